"""The options that say how large gradients can be: `--grad-bound`, or what the training run clips at."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import click

from guarded_moments.oracle.cli.common import NUMBER
from guarded_moments.reference.adam import Decay
from guarded_moments.reference.clipping import NORM_TYPES, bound_of_clipped_norm, bound_of_clipped_value
from guarded_moments.reference.errors import InvalidClaimError
from guarded_moments.reference.hyperparameters import Hyperparameters


class _Numbers(click.ParamType[tuple[float, ...]]):
    """Numbers separated by commas."""

    name = "numbers"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Read them, or fail with the text that was given."""
        if isinstance(value, tuple):
            return value
        return tuple(NUMBER.convert(part, param, ctx) for part in str(value).split(","))


NUMBERS = _Numbers()

_OPTIONS = (
    click.option(
        "--grad-bound",
        "grad_bounds",
        type=NUMBERS,
        metavar="G[,G...]",
        help="Largest |gradient| covered, as it enters the moments; inf covers all up to the op model's limit. "
        "Several, separated by commas: one for each param_group of the checkpoint, in order.",
    ),
    click.option(
        "--clip-norm",
        type=NUMBER,
        metavar="C",
        help="The run calls clip_grad_norm_(parameters, C): cover what can be left, its rounding included.",
    ),
    click.option(
        "--norm-type",
        type=click.Choice([f"{kind:g}" for kind in NORM_TYPES]),
        default="2",
        show_default=True,
        help="The norm_type of that call.",
    ),
    click.option(
        "--clip-value",
        type=NUMBER,
        metavar="C",
        help="The run calls clip_grad_value_(parameters, C): cover exactly that.",
    ),
)


class Bound(NamedTuple):
    """What the options say."""

    grad_bound: float | Sequence[float]  #: as `compress` takes it
    clipped: bool  #: whether it is that of gradients as clipping leaves them

    def require_undecayed(self, of: Iterable[tuple[str, Hyperparameters]]) -> None:
        """Refuse what clipping does not bound: gradients that L2 decay adds to afterwards.

        Args:
            of: parameters' names and hyperparameters.

        Raises:
            InvalidClaimError: one has L2 decay.
        """
        for where, hyperparameters in of:
            if self.clipped and hyperparameters.options.decay is Decay.L2:
                raise InvalidClaimError(
                    f"{where}: has L2 weight decay {hyperparameters.weight_decay:g}, which adds that many times the "
                    "parameter to the gradient after it was clipped; give --grad-bound of the sum "
                    "(guarded_moments.reference.clipping.bound_with_l2_decay), or inf"
                )


def bound_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, which a command takes as `grad_bounds`, `clip_norm`, `norm_type` and `clip_value`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def bound_of(
    grad_bounds: tuple[float, ...] | None, clip_norm: float | None, norm_type: str, clip_value: float | None
) -> Bound:
    """What they say.

    Raises:
        UsageError: none or several were given.
        InvalidClaimError: a number that bounds nothing.
    """
    given = [value is not None for value in (grad_bounds, clip_norm, clip_value)]
    if sum(given) != 1:
        text = "Give one of" if any(given) else "Missing option: give one of"
        raise click.UsageError(f"{text} --grad-bound, --clip-norm and --clip-value.", click.get_current_context())
    if clip_norm is not None:
        return Bound(
            bound_of_clipped_norm(clip_norm, math.inf if norm_type == "inf" else float(norm_type)), clipped=True
        )
    if clip_value is not None:
        return Bound(bound_of_clipped_value(clip_value), clipped=True)
    bounds = grad_bounds or ()
    return Bound(bounds[0] if len(bounds) == 1 else bounds, clipped=False)
