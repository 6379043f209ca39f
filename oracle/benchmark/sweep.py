"""Bits and escapes while one thing changes: what each choice, hyperparameter and part of the claim is worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from guarded_moments.oracle.benchmark.altered import altered
from guarded_moments.reference.checkpoint import compress
from guarded_moments.reference.checkpoint.bit_rate import BitRate, bit_rate
from guarded_moments.reference.codecs import CODECS


@dataclass(frozen=True)
class Point:
    """One value of what changes."""

    value: str
    bits: BitRate
    escaped: float  #: share of all coordinates


@dataclass(frozen=True)
class Sweep:
    """What changes, through which values."""

    text: str
    values: tuple[Any, ...]
    #: The checkpoint and the arguments of `compress`, with one value in their place.
    apply: Callable[[Mapping[str, Any], dict[str, Any], Any], tuple[Mapping[str, Any], dict[str, Any]]]


def _argument(
    name: str,
) -> Callable[[Mapping[str, Any], dict[str, Any], Any], tuple[Mapping[str, Any], dict[str, Any]]]:
    return lambda checkpoint, claim, value: (checkpoint, {**claim, name: value})


#: By name; the moments stay what they are, though another beta or eps would have made others.
SWEEPS: Mapping[str, Sweep] = MappingProxyType(
    {
        "tolerance": Sweep("tau, in learning rates", (1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1), _argument("tolerance")),
        "grad-bound": Sweep("G", (1e-3, 1e-2, 0.1, 1.0, 10.0, math.inf), _argument("grad_bound")),
        "codec": Sweep("the codec", tuple(CODECS), _argument("codec")),
        "grid": Sweep("what has grids of its own", ("per-tensor", "per-row", "per-block"), _argument("grid")),
        "guard": Sweep("the closed form alone, or the search too", ("closed", "exact"), _argument("guard")),
        "betas": Sweep(
            "betas, of the same moments",
            ((0.9, 0.999), (0.9, 0.99), (0.9, 0.95), (0.95, 0.98), (0.8, 0.999), (0.0, 0.999)),
            lambda checkpoint, claim, value: (altered(checkpoint, betas=value), claim),
        ),
        "eps": Sweep(
            "eps, of the same moments",
            (1e-15, 1e-10, 1e-8, 1e-6, 1e-4),
            lambda checkpoint, claim, value: (altered(checkpoint, eps=value), claim),
        ),
        "step": Sweep(
            "updates made before, with the same moments",
            (1, 10, 100, 400, 1_000, 10_000, 100_000),
            lambda checkpoint, claim, value: (altered(checkpoint, updates=value), claim),
        ),
    }
)


def sweep(name: str, checkpoint: Mapping[str, Any], **claim: Any) -> Iterator[Point]:  # noqa: ANN401 - of compress
    """Compress a checkpoint at each value of one sweep.

    Args:
        name: in `SWEEPS`.
        checkpoint: a state of Adam or AdamW, or one with such states in it.
        claim: arguments of `compress` for what does not change.
    """
    chosen = SWEEPS[name]
    for value in chosen.values:
        native, arguments = chosen.apply(checkpoint, claim, value)
        state = compress(native, **arguments)
        yield Point(_text(value), bit_rate(state), state.escapes / max(1, state.coordinates))


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(_text(part) for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
