"""Damaged files: every byte, every length; and files whose digests were put right again, as an attacker would."""

import json
import random
import time
import zlib
from collections import Counter
from pathlib import Path

import pytest
import torch
from tests.reference.checkpoint.sealing import opened, sealed, with_right_header
from tests.reference.checkpoint.states import compressed, raw, state_of

from guarded_moments.reference.checkpoint import GuardedState, file_format, read, recover, write
from guarded_moments.reference.errors import FormatError, GuardedMomentsError


@pytest.fixture(scope="module")
def state() -> GuardedState:
    """A little of everything: guarded, escaped, kept, and something beside."""
    moments = torch.tensor([1e-4, float("nan"), -2e-4, 0.0, -0.0, 3e-5])
    native = state_of((moments, moments.abs()), (torch.ones(2).bfloat16(), torch.ones(2).bfloat16()))
    return compressed({"optimizer": native, "model": {"w": torch.arange(5.0)}})


def test_every_byte_flipped_and_every_length_is_noticed(
    state: GuardedState, tmp_path: Path, tried: Counter[str]
) -> None:
    path = tmp_path / "optimizer.gmc"
    write(state, path)
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(FormatError):
            read(path)
        tried["bytes flipped"] += 1
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(FormatError):
            read(path)
        tried["lengths cut to"] += 1


def mutated(content: bytes, choose: random.Random) -> bytes:
    """A file whose header, description, skeleton, codes or escapes were changed, and then its digests put right."""
    kind = choose.randrange(3)
    if kind == 0:
        damaged = bytearray(content)
        length = int.from_bytes(content[:8], "little")
        for _ in range(choose.choice((1, 1, 2, 5))):
            damaged[choose.randrange(8, 8 + length)] = choose.choice(b'0123456789-.,:[]{}"aeFU')
        return with_right_header(bytes(damaged))
    said, inside, arrays = opened(content)
    if kind == 1:
        text = changed(json.dumps(inside).encode(), choose)
        try:  # the tensors' digests are put right where it still says which bytes are whose
            return sealed(said, json.loads(text), arrays)
        except (ValueError, TypeError, AttributeError, OverflowError):
            return sealed(said, text, arrays)
    name = choose.choice([name for name, array in arrays.items() if array.numel()])
    data = raw(arrays[name])
    if name in said["pickled_bytes"]:
        data = changed(zlib.decompress(data), choose)
        said["pickled_bytes"][name] = len(data)
        data = zlib.compress(data)
    else:
        data = changed(data, choose)
    array = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return sealed(said, inside, {**arrays, name: array.view(arrays[name].dtype).view(-1, *arrays[name].shape[1:])})


def changed(content: bytes, choose: random.Random) -> bytes:
    """The same length, some bytes changed."""
    damaged = bytearray(content)
    for _ in range(choose.choice((1, 1, 2, 5))):
        place = choose.randrange(len(damaged))
        damaged[place] = choose.choice((damaged[place] ^ 1 << choose.randrange(8), *b'0123456789-.,:[]{}"ae\x80\xff'))
    return bytes(damaged)


@pytest.mark.timeout(200)
def test_files_damaged_before_their_digests_were_taken_never_do_more_than_raise(
    state: GuardedState, tried: Counter[str], seed: int, budget: int
) -> None:
    """They may be files of another state; but nothing hangs, runs, or fails in any other way than by saying so."""
    content, choose = file_format.to_bytes(state), random.Random(seed)  # noqa: S311 - no secret
    until = time.monotonic() + (2 if budget == 1 else 90)
    accepted = 0
    while time.monotonic() < until:
        damaged = mutated(content, choose)
        try:
            recover(file_format.from_bytes(damaged))
            accepted += 1
        except GuardedMomentsError:
            pass
        tried["files with right digests over damage"] += 1
    assert accepted > 0, "the digests were never right"
