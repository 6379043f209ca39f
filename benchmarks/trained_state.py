"""The state that benchmarks are run on: the largest tensor of a trained optimizer."""

from __future__ import annotations

from pathlib import Path

import click
from torch import Tensor

from guarded_moments.reference import load_state_dict, parameters_of
from guarded_moments.reference.checkpoint.optimizer_state import Parameter, in_memory_order

checkpoint_option = click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    default=Path("build/main-job/optimizer.pt"),
    show_default=True,
    help="A trained optimizer state; make audit writes this one.",
)


def largest_parameter(checkpoint: Path) -> Parameter:
    """Of the checkpoint, by coordinates."""
    return max(parameters_of(load_state_dict(checkpoint)), key=lambda parameter: parameter.numel)


def repeated_moments(parameter: Parameter, coordinates: int) -> tuple[Tensor, Tensor]:
    """Both moments, repeated to at least so many coordinates: float32, shape (n,)."""
    repeats = -(-coordinates // parameter.numel)
    return in_memory_order(parameter.m).repeat(repeats), in_memory_order(parameter.v).repeat(repeats)
