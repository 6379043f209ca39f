"""The exact worst case of a coordinate: the supremum of the bit-exact deviation, and a gradient that attains it.

1. `enclosure.enclose` finds where the real-number deviation is largest.
2. The op model is run on the binary32 gradients around; the best of them is a deviation that is attained.
3. `enclosure.slivers_above` lists the gradients at which the op model could do worse still, rounding and all.
4. The op model is run on every one of these.

Claimed: where the certainty is EXACT, `deviation` is the largest over all gradients of the claim (rounded up to
binary64 only where it is no binary64), and `gradient` attains it.  Trusted: the arithmetic, the compiled step (checked
against the others in the tests), and the slack on a cell (`proofs.cell_deviation` derives it for every op model).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.oracle.exhaustive import CompiledTrajectories, Coordinate, Extreme
from guarded_moments.oracle.worst_case.decision import Certainty, Decisions, Verdict, covers, probes
from guarded_moments.oracle.worst_case.enclosure import Sliver, enclose, slivers_above
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.errors import InvalidClaimError
from guarded_moments.reference.floats import bits_of
from guarded_moments.reference.guard.claim_constants import guard_constants
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.guard.enclosure import Enclosure
from guarded_moments.reference.guard.search import States, largest_gradient, slack_of
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import Implementation, implementation_named
from guarded_moments.reference.platform import one_torch_thread, require_subnormals

#: Gradients run through the op model for one coordinate at most, about half a second; its answer is an enclosure then.
MAX_ENUMERATED = 1 << 26
#: Gradients first looked at, around the worst in real arithmetic.
_PROBES = 1 << 14
#: Coordinates whose exact worst case is searched after a decision gave up on them: less than a minute's work.
SETTLED_AT_MOST = 100
_NARROW = 1e-7  #: relative gap of the enclosure; what is left is far below the rounding of binary32
_SIGN = 1 << 31


class WorstCases(NamedTuple):
    """One entry per coordinate; tensors of shape (n,)."""

    certainty: Tensor  #: int8, of `Certainty`
    deviation: Tensor  #: float64: attained, in units of the parameter; infinite where an update is not finite
    gradient: Tensor  #: float32: attains it
    upper: Tensor  #: float64: no gradient of the claim deviates by more; equal to `deviation` where EXACT
    enumerated: Tensor  #: int64: gradients run through the op model
    gradient_bound: float  #: the largest binary32 `|g|` of the claim


def worst_case(
    m: Tensor,
    v: Tensor,
    m_hat: Tensor,
    v_hat: Tensor,
    *,
    hyperparameters: Hyperparameters,
    step: float,
    gradient_bound: float,
    op_model: str,
    index: int = 0,
    max_enumerated: int = MAX_ENUMERATED,
    progress: Callable[[int, int], None] | None = None,
) -> WorstCases:
    """Find each coordinate's largest deviation over all binary32 gradients with `|g| <= gradient_bound`.

    Nothing in the arrays raises: NaN, infinite, negative and huge moments get an answer of their own.

    Args:
        m: native first moments, float32, shape (n,).
        v: native second moments, float32, shape (n,).
        m_hat: recovered first moments, float32, shape (n,).
        v_hat: recovered second moments, float32, shape (n,).
        hyperparameters: of the param_group.
        step: number of the update, 1 or more.
        gradient_bound: `G`; infinity means every gradient up to the op model's overflow limit.
        op_model: name of the implementation, as `gmc ops` lists them.
        index: which of its op models: 0 is the body of a tensor.
        max_enumerated: gradients run through the op model for one coordinate at most.
        progress: called with coordinates done and in all.

    Raises:
        InvalidClaimError: the gradient bound is finite and above the op model's overflow limit, or `index` is none.
        UnsupportedError: the op model is unknown, or the hyperparameters leave nothing to bound.
        PlatformError: this process flushes subnormals.
    """
    require_subnormals()
    implementation = implementation_named(op_model)
    if not 0 <= index < len(implementation.models):
        raise InvalidClaimError(
            f"{op_model} has {len(implementation.models)} op models; there is none with index {index}"
        )
    scalars = implementation.scalars(hyperparameters, step)
    constants = _constants(implementation, hyperparameters, step, gradient_bound)
    trajectories = CompiledTrajectories(implementation.models[index], hyperparameters.options, scalars)
    return worst_cases(constants, trajectories, States(m, v, m_hat, v_hat), max_enumerated, progress)


def _constants(
    implementation: Implementation, hyperparameters: Hyperparameters, step: float, gradient_bound: float
) -> GuardConstants[float]:
    claim = Claim(Tolerance(1.0), GradientBound(gradient_bound), implementation.name)  # no tolerance enters the search
    scalars = implementation.scalars(hyperparameters, step)
    return guard_constants(claim, implementation, hyperparameters.options, scalars, hyperparameters.lr)


def worst_cases(
    constants: GuardConstants[float],
    trajectories: CompiledTrajectories,
    states: States,
    max_enumerated: int = MAX_ENUMERATED,
    progress: Callable[[int, int], None] | None = None,
) -> WorstCases:
    """The same for prepared constants and a compiled op model: see `worst_case`."""
    n = len(states.m)
    result = WorstCases(
        certainty=torch.full((n,), Certainty.OUTSIDE, dtype=torch.int8),
        deviation=torch.zeros(n, dtype=torch.float64),
        gradient=torch.zeros(n),
        upper=torch.full((n,), torch.inf, dtype=torch.float64),
        enumerated=torch.zeros(n, dtype=torch.int64),
        gradient_bound=largest_gradient(constants),
    )
    inside = covers(states).nonzero().flatten()
    with one_torch_thread():
        found = enclose(constants, states.select(inside), relative_gap=_NARROW)
        upper = found.upper + slack_of(constants, states.select(inside))
        result.upper[inside] = torch.nextafter(upper, torch.full_like(upper, torch.inf))
        ranks = dict(zip(inside.tolist(), range(len(inside)), strict=True))
        for coordinate in range(n):
            _search(constants, trajectories, states, found, ranks.get(coordinate), coordinate, max_enumerated, result)
            if progress is not None:
                progress(coordinate + 1, n)
    return result


def settle(
    constants: GuardConstants[float],
    trajectories: Callable[[], CompiledTrajectories],
    states: States,
    decisions: Decisions,
    at_most: int = SETTLED_AT_MOST,
) -> None:
    """Decide, in place, what `decide` left undecided, as far as the exact worst case is found within its budget.

    Args:
        constants: as for `decide`.
        trajectories: compiles the op model; called only where something is undecided.
        states: as for `decide`.
        decisions: what `decide` returned.
        at_most: coordinates that are settled; the rest stays undecided.
    """
    index = (decisions.verdict == Verdict.UNDECIDED).nonzero().flatten()[:at_most]
    if len(index) == 0:
        return
    found = worst_cases(constants, trajectories(), states.select(index))
    decisions.deviation[index], decisions.witness[index] = found.deviation, found.gradient
    decisions.verdict[index[found.upper <= constants.threshold]] = Verdict.SAFE
    decisions.verdict[index[found.deviation > constants.threshold]] = Verdict.UNSAFE


def _search(
    constants: GuardConstants[float],
    trajectories: CompiledTrajectories,
    states: States,
    found: Enclosure,
    rank: int | None,
    index: int,
    max_enumerated: int,
    result: WorstCases,
) -> None:
    coordinate = Coordinate(*(float(moment[index]) for moment in states))
    limit = bits_of(result.gradient_bound)
    if rank is None:
        asked = [trajectories.worst(coordinate, bits_of(gradient), 1) for gradient in probes(result.gradient_bound)]
        best, enumerated = max(asked, key=lambda probe: probe.deviation), 0
        # Nothing is larger than an infinite deviation.
        if best.deviation == float("inf"):
            result.certainty[index] = Certainty.EXACT
    elif coordinate.m == coordinate.m_hat and coordinate.v == coordinate.v_hat:
        best, enumerated = Extreme(0.0, 0.0, 0), 0  # the op model is a function
        result.certainty[index], result.upper[index] = Certainty.EXACT, 0.0
    else:
        around = bits_of(float(found.gradient[rank].float()))
        best = trajectories.worst(coordinate, *_around(around, limit))
        slivers = slivers_above(constants, coordinate, best.deviation)
        enumerated = sum(sliver.length for sliver in slivers)
        if enumerated <= max_enumerated:
            for sliver in slivers:
                here = trajectories.worst(coordinate, *sliver)
                best = here if here.deviation > best.deviation else best
            result.certainty[index], result.upper[index] = Certainty.EXACT, best.deviation
        else:
            enumerated = 0
            result.certainty[index] = Certainty.ENCLOSED
    result.deviation[index], result.gradient[index] = best.deviation, best.gradient
    result.enumerated[index] = enumerated + best.evaluated


def _around(bits: int, limit: int) -> Sliver:
    """`_PROBES` gradients around one, of its sign and within the claim."""
    magnitude = bits & ~_SIGN
    first = max(0, min(magnitude, limit) - _PROBES // 2)
    return Sliver((bits & _SIGN) | first, min(_PROBES, limit - first + 1))
