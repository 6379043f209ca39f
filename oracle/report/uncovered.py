"""What the claim does not cover, each with a counterexample looked for among this checkpoint's own coordinates.

The coordinates nearest the tolerance are followed (for flush-to-zero also those with the smallest second moments), at
gradients spread over magnitudes and at their own worst.

Claimed: a counterexample's deviation was computed bit for bit as said, from the states and gradients that are given.
"No counterexample found" claims nothing but how many cases were tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from guarded_moments.oracle.report.beyond_bound import BeyondBound
from guarded_moments.oracle.report.flushing import FlushingBinary32, flushed
from guarded_moments.oracle.report.followed import Followed
from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.reference.adam import Decay, Scalars, make_moments, make_step, make_update
from guarded_moments.reference.arithmetic import NumpyBinary32, TorchBinary32
from guarded_moments.reference.checkpoint.encoding import scalars_of
from guarded_moments.reference.claim import LARGEST_GRADIENT, Horizon
from guarded_moments.reference.errors import GuardedMomentsError
from guarded_moments.reference.floats import hex_of, round_to_binary32
from guarded_moments.reference.guard.search import CellBounds, States, largest_gradient
from guarded_moments.reference.implementations import IMPLEMENTATIONS, implementation_named

_MAGNITUDES = 48  #: of gradients, of each sign
_BELOW, _ABOVE = 2.0**-10, 2.0**12  #: times the scale at which the denominator bends
#: How many were tried, the largest deviation among them in learning rates, and what it takes.
_Case = tuple[int, float, dict[str, Any]]
_BEFORE = 9  #: updates before the one that is looked at, where all are claimed
_PARAMETERS = tuple(mantissa * 2.0**exponent for exponent in range(-16, 8) for mantissa in (1.0, 1.25, 1.5, 1.75))


@dataclass(frozen=True)
class Uncovered:
    """One thing that the claim leaves out, and what was found of it here."""

    name: str  #: for links
    what: str
    tolerance: float  #: that of the coordinate, in learning rates
    tried: int  #: cases
    largest: float  #: deviation seen, in learning rates
    case: dict[str, Any] | None = None  #: that of the largest: the coordinate, gradients and what else it takes
    settled: str | None = None  #: what is known of all cases, where they were decided and not tried

    @property
    def violates(self) -> bool:
        """Whether the case is a counterexample: its distance is not within the tolerance; NaN is not."""
        return self.case is not None and not self.largest <= self.tolerance

    def as_json(self) -> dict[str, Any]:
        """Plain data; a distance that is no finite number is a word."""
        return {
            "name": self.name,
            "what": self.what,
            "tolerance": self.tolerance,
            "tried": self.tried,
            "largest": self.largest if math.isfinite(self.largest) else "not finite",
            "is_counterexample": self.violates,
            "case": self.case,
            "settled": self.settled,
        }


def uncovered(nearest: Sequence[Followed], smallest: Sequence[Followed], beyond: BeyondBound) -> list[Uncovered]:
    """Everything that the claim leaves out and a single coordinate can show."""
    if not nearest:
        return []
    return [
        gradients_above_the_bound(nearest, beyond),
        later_update(nearest),
        another_op_model(nearest),
        flush_to_zero([*nearest, *smallest]),
        rounding_of_the_parameter(nearest),
    ]


def gradients_of(followed: Followed) -> Tensor:
    """Gradients of the claim spread over magnitudes, both signs, zero, the bound, and the worst known; float32."""
    constants = followed.stretch.constants
    limit = min(largest_gradient(constants), followed.stretch.claim.largest_of_sequence)
    scale = float(CellBounds(constants, followed.states).scale())
    ends = torch.tensor([max(scale * _BELOW, 2.0**-149), max(scale * _ABOVE, 2.0**-148)], dtype=torch.float64).log2()
    magnitude = torch.linspace(float(ends[0]), float(ends[1]), _MAGNITUDES, dtype=torch.float64).exp2()
    magnitude = torch.cat([magnitude.clamp(max=limit).float(), torch.tensor([limit])])
    return torch.cat([magnitude, -magnitude, torch.tensor([0.0, followed.gradient])])


def gradients_above_the_bound(nearest: Sequence[Followed], beyond: BeyondBound) -> Uncovered:
    """Decided for every coordinate up to the overflow limit; above it the moments themselves are infinite."""
    bound, tolerance = nearest[0].stretch.claim.largest_of_sequence, nearest[0].stretch.claim.tolerance.value
    what = (
        f"a gradient above the op model's overflow limit, {beyond.limit:.6g}, an infinite one, or NaN"
        if math.isinf(bound)
        else f"a gradient above {bound:g}, an infinite one, or NaN"
    )
    if beyond.found is not None:
        found = beyond.found
        return Uncovered("gradient", what, tolerance, beyond.decided, found.deviation, found.as_json())
    settled = None
    if not math.isinf(bound):
        settled = (
            f"at the first update none of the {beyond.decided:,} coordinates violates for any gradient up to the op "
            f"model's overflow limit, {beyond.limit:.6g}: decided as the claim itself"
            if beyond.undecided == 0
            else f"{beyond.undecided:,} of {beyond.decided:,} coordinates are undecided up to the overflow limit"
        )
    # An infinite gradient makes both updates NaN: they have no distance, and none is within the tolerance.
    followed = nearest[0]
    native, recovered = followed.stretch.trajectories.updates(followed.states, torch.tensor([math.inf]))
    case = {
        **followed.as_json(),
        "gradient": hex_of(math.inf),
        "deviation": None,
        "native_update": _number(float(native)),
        "recovered_update": _number(float(recovered)),
    }
    distance = abs(float(native) - float(recovered)) / followed.stretch.lr
    return Uncovered("gradient", what, tolerance, 1, distance, case, settled)


def later_update(nearest: Sequence[Followed]) -> Uncovered:
    """The update after the claim's horizon, both runs given one gradient at all updates before it, and then another.

    Where every update is claimed, the later ones in exact arithmetic, some later one in binary32.
    """
    horizon = nearest[0].stretch.claim.horizon
    before = _BEFORE if horizon.updates is None else horizon.updates

    def cases() -> Iterator[_Case]:
        for followed in nearest:
            stretch, g = followed.stretch, gradients_of(followed)
            if horizon != Horizon.FIRST:
                g = g.clamp(-LARGEST_GRADIENT, LARGEST_GRADIENT)  # many of the largest would overflow
            op = TorchBinary32()
            moments = make_moments(op, stretch.model, stretch.options)
            constants = Scalars(*(op.constant(value) for value in stretch.scalars))
            m, v, m_hat, v_hat = (moment.expand(len(g)) for moment in followed.states)
            for _ in range(before):
                (m, v), (m_hat, v_hat) = moments(m, v, g, constants), moments(m_hat, v_hat, g, constants)
            first, last = (
                x.flatten() for x in torch.meshgrid(torch.arange(len(g)), torch.arange(len(g)), indexing="ij")
            )
            later = replace(stretch.parameter, next_step=stretch.parameter.next_step + before)
            scalars = scalars_of(later, implementation_named(stretch.claim.implementation), stretch.lr)
            trajectories = Trajectories(stretch.model, stretch.options, scalars)
            deviation = trajectories.deviations(States(m, v, m_hat, v_hat).select(first), g[last]) / stretch.lr
            most = int(deviation.argmax())
            gradients = {"first_gradient": hex_of(float(g[first[most]])), "gradient": hex_of(float(g[last[most]]))}
            yield (
                deviation.numel(),
                float(deviation[most]),
                {**followed.as_json(), **gradients, "at_update": before + 1, "deviation": float(deviation[most])},
            )

    what = f"update {before + 1} and all later ones"
    if horizon == Horizon.FIRST:
        what = "the second update and all later ones"
    elif horizon == Horizon.ALL:
        what = f"the rounding of later updates, which are claimed in exact arithmetic; looked at is update {before + 1}"
    return _largest("later-update", what, nearest, cases())


def another_op_model(nearest: Sequence[Followed]) -> Uncovered:
    """A native run under the claim's op model, and a recovered run under each of the others."""
    names = [name for name in IMPLEMENTATIONS if name != nearest[0].stretch.claim.implementation]

    def cases() -> Iterator[_Case]:
        for followed, name in itertools.product(nearest, names):
            stretch, other = followed.stretch, IMPLEMENTATIONS[name]
            g = gradients_of(followed)
            try:
                scalars = scalars_of(stretch.parameter, other, stretch.lr)
            except GuardedMomentsError:  # an op model that does not take these hyperparameters
                continue
            states = States(*(moment.expand(len(g)) for moment in followed.states))
            native, _ = stretch.trajectories.updates(states, g)
            _, recovered = Trajectories(other.body, stretch.options, scalars).updates(states, g)
            deviation = ((recovered - native).abs() / stretch.lr).nan_to_num(nan=0.0, posinf=math.inf)
            most = int(deviation.argmax())
            found = {"gradient": hex_of(float(g[most])), "deviation": float(deviation[most])}
            yield deviation.numel(), float(deviation[most]), {**followed.as_json(), **found, "recovered_run": name}

    what = "a recovered run under another op model than the native one: another device, build or path"
    return _largest("op-model", what, nearest, cases())


def flush_to_zero(followed: Sequence[Followed]) -> Uncovered:
    """Both runs with subnormal numbers flushed to zero, against each other."""

    def cases() -> Iterator[_Case]:
        for one in followed:
            stretch = one.stretch
            op = FlushingBinary32()
            update = make_update(op, stretch.model, stretch.options)
            scalars = Scalars(*(op.constant(value) for value in stretch.scalars))
            g = gradients_of(one).numpy()
            m, v, m_hat, v_hat = (flushed(np.full_like(g, number)) for number in one.numbers)
            native, recovered = (update(*state, g, scalars).astype(np.float64) for state in ((m, v), (m_hat, v_hat)))
            with np.errstate(invalid="ignore"):
                deviation = np.nan_to_num(np.abs(recovered - native) / stretch.lr, nan=0.0)
            most = int(deviation.argmax())
            found = {"gradient": hex_of(float(g[most])), "deviation": float(deviation[most])}
            yield deviation.size, float(deviation[most]), {**one.as_json(), **found}

    what = "flush-to-zero, and any rounding but to nearest; such a process is refused by this program"
    return _largest("flush-to-zero", what, followed, cases())


def rounding_of_the_parameter(nearest: Sequence[Followed]) -> Uncovered:
    """Both updates added to the same parameter, each sum rounded; weight decay left out."""

    def cases() -> Iterator[_Case]:
        op = NumpyBinary32()
        for followed in nearest:
            stretch = followed.stretch
            options = replace(stretch.options, decay=Decay.NONE, amsgrad=False, maximize=False)
            step = make_step(op, stretch.model, options)
            scalars = Scalars(*(op.constant(value) for value in stretch.scalars))
            p, g = (
                x.flatten()
                for x in np.meshgrid(np.array(_PARAMETERS, dtype=np.float32), gradients_of(followed).numpy())
            )
            m, v, m_hat, v_hat = (np.full_like(g, number) for number in followed.numbers)
            native, recovered = (step(p, g, *s, s[1], scalars).p.astype(np.float64) for s in ((m, v), (m_hat, v_hat)))
            with np.errstate(invalid="ignore"):
                deviation = np.nan_to_num(np.abs(recovered - native) / stretch.lr, nan=0.0)
            most = int(deviation.argmax())
            found = {"gradient": hex_of(float(g[most])), "deviation": float(deviation[most])}
            yield (
                deviation.size,
                float(deviation[most]),
                {**followed.as_json(), **found, "parameter": hex_of(float(p[most]))},
            )

    what = "the rounding of the parameter when the update is added to it (one unit of its last place at most)"
    return _largest("parameter", what, nearest, cases())


def _largest(name: str, what: str, followed: Sequence[Followed], cases: Iterable[_Case]) -> Uncovered:
    """The case with the largest deviation, and how many were tried in all."""
    found = list(cases)
    _, largest, case = max(found, key=lambda one: one[1])
    return Uncovered(name, what, followed[0].stretch.claim.tolerance.value, sum(n for n, _, _ in found), largest, case)


def _number(value: float) -> str:
    return hex_of(value) if value == round_to_binary32(value) or math.isnan(value) else value.hex()
