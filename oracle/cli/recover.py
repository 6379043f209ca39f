"""`gmc recover`: decode into a state_dict."""

from __future__ import annotations

from pathlib import Path

import click

from guarded_moments.oracle.cli.common import (
    FILE,
    force_option,
    implementation_option,
    is_folder,
    out,
    progress_bar,
    working,
)
from guarded_moments.oracle.cli.outputs import STANDARD_OUTPUT, check_outputs, json_option, write_json
from guarded_moments.reference.checkpoint import read, recover
from guarded_moments.reference.checkpoint.distributed import recover_folder
from guarded_moments.reference.checkpoint.distributed.metadata import read_metadata
from guarded_moments.reference.checkpoint.guarded import Kernels
from guarded_moments.reference.checkpoint.saving import save_checkpoint
from guarded_moments.reference.checkpoint.spool import Spool
from guarded_moments.reference.checkpoint.writing import check_output


@click.command("recover")
@click.argument("compressed", type=FILE)
@click.argument("output", type=FILE)
@implementation_option("What computes the moments; they are the same.", "files")
@json_option
@force_option
def command(
    compressed: Path,
    output: Path,
    kernels: Kernels,
    json_file: Path | None,
    force: bool,  # noqa: FBT001 - a flag on the command line
) -> None:
    """Recover COMPRESSED (a .gmc file) into OUTPUT, a checkpoint of the same layout as the one compressed.

    A folder of .gmc files becomes a folder of torch.distributed.checkpoint again, for any number of ranks.
    Everything but the guarded moments is bit-identical to the checkpoint that was compressed; of a bare state_dict,
    optimizer.load_state_dict takes it.
    """
    check_outputs((json_file,), (compressed, output), overwrite=force)
    if is_folder(compressed):
        found = _recover_folder(compressed, output, kernels)
        what = f"{found['files']} files"
    else:
        check_output(output, overwrite=force, inputs=(compressed,))
        spool = Spool(output.parent)
        with working(f"reading {compressed} and checking it"):
            state = read(compressed, spool)
        with progress_bar("recovering") as progress:
            recovered = recover(state, spool, kernels, progress)
        with working(f"writing {output} and reading it back"):
            save_checkpoint(recovered, output, overwrite=force)
        found = {"coordinates": state.coordinates, "tensors": len(state.tensors) + len(state.kept), "files": 1}
        what = f"{found['tensors']} tensors"
    console = out(quiet=json_file == STANDARD_OUTPUT)
    console.print(f"recovered {found['coordinates']:,} coordinates of {what} into {output}")
    if json_file is not None:
        write_json(json_file, {**found, "output": str(output)}, force=force)


def _recover_folder(compressed: Path, output: Path, kernels: Kernels) -> dict[str, int]:
    coordinates = tensors = files = 0
    total = len(read_metadata(compressed, with_files=False).files())
    with progress_bar("recovering files") as progress:
        for shard in recover_folder(compressed, output, kernels):
            coordinates += shard.state.coordinates
            tensors += len(shard.state.tensors) + len(shard.state.kept)
            files += 1
            progress(files, total)
    return {"coordinates": coordinates, "tensors": tensors, "files": files}
