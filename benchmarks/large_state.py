"""A state as large as asked for: compress, recover and audit it, with the time and the most memory of each.

The state is that of the main job, each tensor repeated; the commands are those a user types, each in a process of its
own.  Run: make large.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import click
import torch

from guarded_moments.reference import load_state_dict, parameters_of
from guarded_moments.reference.checkpoint.file_format import read
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.implementations import platform_description
from trained_state import checkpoint_option

_GMC = (sys.executable, "-c", "import sys; from guarded_moments.oracle.cli import main; sys.exit(main())")


class Run(NamedTuple):
    """What one command took."""

    seconds: float
    processor: float  #: seconds of all processors together
    peak: int  #: bytes resident at most, pages of mapped files included, in the largest of its processes


def measured(*arguments: str) -> Run:
    """Run a command of this package, in a process of its own."""
    print("$ gmc", *arguments, file=sys.stderr)  # noqa: T201 - progress
    started = time.perf_counter()
    process = subprocess.Popen([*_GMC, *arguments])  # noqa: S603 - this package's own command
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"gmc {arguments[0]} ended with status {process.returncode}")
    return Run(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss)


class Size(NamedTuple):
    """How large the state is."""

    coordinates: int
    tensors: int
    largest: int  #: coordinates of the largest tensor
    native: int  #: bytes of the checkpoint
    compressed: int  #: bytes of the file


_HEAD = """
{coordinates:,} coordinates of {tensors} tensors, the largest of {largest:,}: the state of the main job with its tensors
repeated.  Codec {codec}, `tau` 0.01, `G` 1; {native} become {compressed}.  {platform}, {cores} cores, {memory} of
memory, of which the machine did other work too.
"""
_FOOT = """
Files are read, written, flushed to the device, read back and compared in these times.  Resident memory is that of a
command's largest process, pages of mapped files included: these the system takes back when it needs them.  What `gmc`
keeps itself are the codes; of everything else it has a part at a time.
"""


def page(runs: Mapping[str, Run], size: Size, codec: str, command: str) -> str:
    """The page of the documentation.

    Args:
        runs: by command.
        size: of the state.
        codec: of the file.
        command: that makes the page again.
    """
    facts = {
        **size._asdict(),
        "codec": codec,
        "native": _gigabytes(size.native),
        "compressed": _gigabytes(size.compressed),
        "platform": platform_description(),
        "cores": os.cpu_count(),
        "memory": _gigabytes(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
    }
    lines = [
        "# A large state",
        "",
        "Generated, never edited, on a state that `make audit` trains:",
        "",
        f"    {command}",
        "",
        " ".join(_HEAD.format(**facts).split("\n")).strip(),
        "",
        "| command | seconds | processor seconds | million coordinates a second | most memory resident |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {name} | {run.seconds:.0f} | {run.processor:.0f} | {size.coordinates / run.seconds / 1e6:.2f} | "
            f"{_gigabytes(run.peak)} |"
            for name, run in runs.items()
        ),
        "",
        " ".join(_FOOT.split("\n")).strip(),
    ]
    return "\n".join(lines) + "\n"


def tiled(state: StateDict, coordinates: int) -> StateDict:
    """The state with its tensors repeated along their first dimension, to at least so many coordinates.

    Args:
        state: of Adam or AdamW.
        coordinates: wanted.
    """
    repeats = -(-coordinates // sum(parameter.numel for parameter in parameters_of(state)))
    entries = {
        key: {
            name: value.repeat(repeats, *[1] * (value.ndim - 1)) if value.ndim else value
            for name, value in entry.items()
        }
        for key, entry in state["state"].items()
    }
    return {**state, "state": entries}


@click.command()
@checkpoint_option
@click.option("--coordinates", default=100_000_000, show_default=True, help="Coordinates, at least.")
@click.option("--codec", default="log8", show_default=True)
@click.option("--workers", default=2, show_default=True, help="Processes that audit.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("build/large"),
    show_default=True,
    help="For the files: 18 bytes a coordinate and more.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Write the page here, not to standard output.")
def main(checkpoint: Path, coordinates: int, codec: str, workers: int, folder: Path, output: Path | None) -> None:
    """Compress, recover and audit a large state, and say what it took."""
    folder.mkdir(parents=True, exist_ok=True)
    native, compressed, recovered = (str(folder / name) for name in ("native.pt", "state.gmc", "recovered.pt"))
    torch.save(tiled(load_state_dict(checkpoint), coordinates), native)
    runs = {
        "compress": measured(
            "compress", native, compressed, "--tolerance", "0.01", "--grad-bound", "1.0", "--codec", codec, "--force"
        ),
        "recover": measured("recover", compressed, recovered, "--force"),
        f"audit, {workers} workers": measured("audit", compressed, "--native", native, "--workers", str(workers)),
    }
    state = read(Path(compressed))
    size = Size(
        state.coordinates,
        len(state.tensors),
        max(tensor.numel for tensor in state.tensors),
        *(Path(name).stat().st_size for name in (native, compressed)),
    )
    command = f"python benchmarks/large_state.py --coordinates {coordinates} --output docs/large-state.md"
    text = page(runs, size, codec, command)
    if output is None:
        print(text, end="")  # noqa: T201 - its output
    else:
        output.write_text(text, encoding="utf-8")


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.2f} GB"


if __name__ == "__main__":
    main()
