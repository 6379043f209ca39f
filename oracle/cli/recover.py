"""`gmc recover`: decode into a state_dict."""

from __future__ import annotations

from pathlib import Path

import click

from guarded_moments.oracle.cli.common import FILE, force_option, implementation_option, is_folder, out, progress_bar
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
@force_option
def command(
    compressed: Path,
    output: Path,
    kernels: Kernels,
    force: bool,  # noqa: FBT001 - a flag on the command line
) -> None:
    """Recover COMPRESSED (a .gmc file) into OUTPUT, a checkpoint of the same layout as the one compressed.

    A folder of .gmc files becomes a folder of torch.distributed.checkpoint again, for any number of ranks.
    Everything but the guarded moments is bit-identical to the checkpoint that was compressed; of a bare state_dict,
    optimizer.load_state_dict takes it.
    """
    if is_folder(compressed):
        _recover_folder(compressed, output, kernels)
        return
    check_output(output, overwrite=force, inputs=(compressed,))
    spool = Spool(output.parent)
    state = read(compressed, spool)
    save_checkpoint(recover(state, spool, kernels), output, overwrite=force)
    out().print(
        f"recovered {state.coordinates:,} coordinates of {len(state.tensors) + len(state.kept)} tensors into {output}"
    )


def _recover_folder(compressed: Path, output: Path, kernels: Kernels) -> None:
    coordinates = files = 0
    total = len(read_metadata(compressed, with_files=False).files())
    with progress_bar("recovering files") as progress:
        for shard in recover_folder(compressed, output, kernels):
            coordinates += shard.state.coordinates
            files += 1
            progress(files, total)
    out().print(f"recovered {coordinates:,} coordinates of {files} files into {output}")
