"""`gmc recover`: decode into a state_dict."""

from __future__ import annotations

from pathlib import Path

import click
import torch

from guarded_moments.oracle.cli.common import FILE, force_option, out
from guarded_moments.reference.checkpoint import read, recover
from guarded_moments.reference.checkpoint.file_format import replacing
from guarded_moments.reference.errors import CheckpointError


@click.command("recover")
@click.argument("compressed", type=FILE)
@click.argument("output", type=FILE)
@force_option
def command(compressed: Path, output: Path, force: bool) -> None:  # noqa: FBT001 - a flag on the command line
    """Recover COMPRESSED (a .gmc file) into OUTPUT, a state_dict for optimizer.load_state_dict.

    Everything but the guarded moments is bit-identical to the checkpoint that was compressed.
    """
    if output.resolve() == compressed.resolve():
        raise CheckpointError(f"{output}: would replace the file that is read; nothing was written")
    state = read(compressed)
    with replacing(output, overwrite=force) as temporary:
        torch.save(recover(state), temporary)
    out().print(
        f"recovered {state.coordinates:,} coordinates of {len(state.tensors) + len(state.kept)} tensors into {output}"
    )
