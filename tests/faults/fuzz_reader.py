"""Coverage-guided fuzzing of the reader, with atheris: files taken apart, mutated and sealed again with right digests.

    make fuzz                                            # ten minutes
    python tests/faults/fuzz_reader.py -max_total_time=600 CORPUS

Claimed if it ends without a crash: none of the files tried made the reader do anything but return a state or raise one
of our errors, none that it returned came out otherwise when it was written again, and none took memory beyond the limit
of libFuzzer.  The reader's own modules are instrumented; torch and zlib are not.
"""

import json
import sys
import warnings
import zlib
from pathlib import Path

import atheris  # the extra `fuzz`

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["guarded_moments.reference.checkpoint", "guarded_moments.reference.codecs"]):
    from guarded_moments.reference.checkpoint import file_format, recover

import torch
from tests.reference.checkpoint.sealing import opened, sealed, with_right_header
from tests.reference.checkpoint.states import compressed, raw, sample, state_of

from guarded_moments.reference.checkpoint.comparison import first_difference
from guarded_moments.reference.codecs import CODECS
from guarded_moments.reference.errors import GuardedMomentsError

#: Files tried, and of these returned as a state.
COUNTS = {"tried": 0, "returned": 0}


def seeds() -> list[bytes]:
    """A small file of every codec, one with families of grids, and one with a little of everything."""
    moments = torch.tensor([1e-4, float("nan"), -2e-4, 0.0, -0.0, 3e-5])
    little = state_of((moments, moments.abs()), (torch.ones(2).bfloat16(), torch.ones(2).bfloat16()))
    whole = {"optimizer": little, "model": {"w": torch.arange(5.0)}}
    states = [compressed(little, codec=codec) for codec in CODECS]
    states += [compressed(whole), compressed(little, grid="per-block"), compressed(sample("old_int_step"))]
    return [file_format.to_bytes(state) for state in states]


def try_one(content: bytes) -> None:
    """Read it; whatever is not one of our errors is a crash."""
    COUNTS["tried"] += 1
    if COUNTS["tried"] % 50_000 == 0:
        print(f"{COUNTS['tried']:,} files tried, {COUNTS['returned']:,} returned as a state", file=sys.stderr)
    try:
        state = file_format.from_bytes(content)
        checkpoint = recover(state)
    except GuardedMomentsError:
        return
    COUNTS["returned"] += 1
    again = recover(file_format.from_bytes(file_format.to_bytes(state)))
    difference = first_difference(checkpoint, again)
    assert difference is None, f"{difference} is lost when it is written again"


def mutate(content: bytes, most: int, seed: int) -> bytes:
    """Change the header's text, the description, or what an array holds; then put the digests right."""
    try:
        said, inside, arrays = opened(content)
        kind = seed % 4
        if kind == 0:
            end = 8 + int.from_bytes(content[:8], "little")
            header = atheris.Mutate(content[8:end], end)
            header += b" " * (-len(header) % 8)
            return with_right_header(len(header).to_bytes(8, "little") + header + content[end:])[:most]
        if kind == 1:
            text = atheris.Mutate(json.dumps(inside).encode(), 1 << 16)
            try:
                return sealed(said, json.loads(text), arrays)[:most]
            except Exception:  # noqa: BLE001 - no JSON any more, or of another form
                return sealed(said, text, arrays)[:most]
        names = sorted(name for name, array in arrays.items() if array.numel())
        name = names[seed // 4 % len(names)]
        data = raw(arrays[name])
        if name in said["pickled_bytes"]:
            data = atheris.Mutate(zlib.decompress(data), 1 << 16)
            said["pickled_bytes"][name] = len(data)
            data = zlib.compress(data)
        else:
            data = atheris.Mutate(data, 1 << 16)
        size = arrays[name].dtype.itemsize * max(1, arrays[name][:1].numel())
        array = torch.frombuffer(bytearray(data[: len(data) // size * size] or bytes(size)), dtype=torch.uint8)
        changed = array.view(arrays[name].dtype).view(-1, *arrays[name].shape[1:])
        return sealed(said, inside, {**arrays, name: changed})[:most]
    except Exception:  # noqa: BLE001 - a file that cannot be taken apart any more
        return bytes(atheris.Mutate(content, most))


def main() -> None:
    """Write the seeds into the corpus, and fuzz."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folders = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]
    for folder in folders[:1]:
        folder.mkdir(parents=True, exist_ok=True)
        for index, content in enumerate(seeds()):
            (folder / f"seed-{index}").write_bytes(content)
    atheris.Setup([*sys.argv, "-max_len=65536"], try_one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
