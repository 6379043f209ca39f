"""One coordinate from its two moments to the verdict: codes, guard terms, worst gradient, both updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from guarded_moments.oracle.deviation_curve import Curve, deviation_curve
from guarded_moments.oracle.tracing import Operation, trace_update
from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.oracle.worst_case import Certainty, Verdict, decide, largest_deviation
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.arithmetic import TorchBinary64
from guarded_moments.reference.checkpoint.encoding import encode_guarded
from guarded_moments.reference.claim import Claim
from guarded_moments.reference.codecs import Codec
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.guard import GuardConstants, closed_form_guard, guard_constants, in_domain
from guarded_moments.reference.guard.closed_form import BoundTerms, closed_form_deviation, lifted, make_bound_terms
from guarded_moments.reference.guard.search import States, largest_gradient
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import implementation_named
from guarded_moments.reference.platform import one_torch_thread, require_subnormals

if TYPE_CHECKING:
    from guarded_moments.oracle.exhaustive import CompiledTrajectories

#: The enclosure of one coordinate's supremum is narrowed to this share of it; the op model has the last word.
_RELATIVE_GAP = 1e-7


class Exactly(NamedTuple):
    """The supremum over all gradients, by one of the two ways to find it bit for bit."""

    certainty: Certainty
    deviation: float  #: in learning rates
    upper: float  #: in learning rates; above `deviation` where the budget of gradients ran out
    gradient: float  #: attains `deviation`
    evaluated: int  #: gradients run through the op model


@dataclass(frozen=True)
class Explanation:
    """Everything there is to say about one coordinate.  Deviations and terms in learning rates."""

    claim: Claim
    lr: float
    options: StepOptions
    scalars: Scalars[float]
    constants: GuardConstants[float]
    m: float
    v: float
    covered: bool  #: in the guard's domain; if not, the rest is absent
    encodable: bool = True  #: has codes that are not the escape and decode into the guard's domain; if not, as above
    recovered_is_given: bool = False  #: and not the codec's: there are no codes
    m_code: int | None = None
    v_code: int | None = None
    m_hat: float | None = None
    v_hat: float | None = None
    terms: BoundTerms[float] | None = None
    bound: float | None = None
    accepted: bool = False
    verdict: Verdict | None = None
    worst_gradient: float | None = None
    worst_deviation: float | None = None
    worst_upper: float | None = None
    states: States | None = None  #: the coordinate as tensors of shape (1,)
    traced_gradient: float | None = None  #: of the traces: the worst, or the one that was asked for
    traced_deviation: float | None = None
    native_trace: tuple[Operation, ...] = ()
    recovered_trace: tuple[Operation, ...] = ()


def exact_worst_case(found: Explanation) -> Exactly:
    """Search the exact supremum of an explained coordinate; compiles its op model, which takes seconds.

    Args:
        found: an explanation that has states.
    """
    from guarded_moments.oracle.worst_case.supremum import worst_cases  # noqa: PLC0415 - imports the compiler

    states, lr = _states(found), found.lr
    result = worst_cases(found.constants, _compiled(found), states)
    return Exactly(
        Certainty(int(result.certainty[0])),
        float(result.deviation[0]) / lr,
        float(result.upper[0]) / lr,
        float(result.gradient[0]),
        int(result.enumerated[0]),
    )


def exhausted_worst_case(found: Explanation, progress: Callable[[int, int], None] | None = None) -> Exactly:
    """Run every gradient of the claim through the op model for an explained coordinate.

    Args:
        found: an explanation that has states.
        progress: called with gradients done and in all.
    """
    from guarded_moments.oracle.exhaustive import Coordinate, exhaust  # noqa: PLC0415 - imports the compiler

    lr, coordinate = found.lr, Coordinate(*(float(moment) for moment in _states(found)))
    extreme = exhaust(_compiled(found), coordinate, largest_gradient(found.constants), progress)
    deviation = extreme.deviation / lr
    return Exactly(Certainty.EXACT, deviation, deviation, extreme.gradient, extreme.evaluated)


def curve_of(found: Explanation) -> Curve:
    """What a picture of an explained coordinate shows."""
    trajectories = Trajectories(implementation_named(found.claim.implementation).body, found.options, found.scalars)
    with one_torch_thread():
        return deviation_curve(found.constants, trajectories, _states(found))


def _states(found: Explanation) -> States:
    if found.states is None:
        raise ValueError("a coordinate that is stored exactly has no worst case")
    return found.states


def _compiled(found: Explanation) -> CompiledTrajectories:
    from guarded_moments.oracle.exhaustive import CompiledTrajectories  # noqa: PLC0415 - imports the compiler

    return CompiledTrajectories(implementation_named(found.claim.implementation).body, found.options, found.scalars)


def explain(
    claim: Claim,
    hyperparameters: Hyperparameters,
    step: float,
    codec: Codec,
    m: float,
    v: float,
    place: int = 0,
    *,
    recovered: tuple[float, float] | None = None,
    gradient: float | None = None,
) -> Explanation:
    """Follow one coordinate through the codec, the guard and the worst-case search.

    Args:
        claim: tolerance, gradient bound and op model.
        hyperparameters: of its param_group.
        step: number of the first update after recovery.
        codec: of its tensor.
        m: native first moment, a binary32 value.
        v: native second moment, a binary32 value.
        place: in memory order of its tensor; it matters where blocks have grids or scales of their own.
        recovered: both moments in place of those that the codec gives, binary32 values.
        gradient: follow both updates at this one, a binary32 value, and not at the worst.

    Raises:
        UnsupportedError: amsgrad, whose worst case depends on a third moment.
    """
    require_subnormals()
    if hyperparameters.amsgrad:
        msg = (
            "amsgrad: no worst case is searched for; such coordinates are guarded by the closed form alone, "
            "and `gmc audit` decides them so"
        )
        raise UnsupportedError(msg)
    implementation = implementation_named(claim.implementation)
    options, lr = hyperparameters.options, hyperparameters.lr
    scalars = implementation.scalars(hyperparameters, step)
    constants = guard_constants(claim, implementation, options, scalars, lr)
    native = [torch.tensor([value], dtype=torch.float32) for value in (m, v)]
    if not bool(in_domain(*native)):
        return Explanation(claim, lr, options, scalars, constants, m, v, covered=False)
    if recovered is not None:
        codes = None
        states = States(native[0], native[1], *torch.tensor(recovered, dtype=torch.float32).unsqueeze(1))
        closed = closed_form_guard(constants, *states)
    else:
        codes, closed = encode_guarded(codec, constants, *native, exact=False, start=place)
        states = States(native[0], native[1], *codec.decode(*codes, place))
    escaped = codes is not None and bool(codec.escaped(*codes))
    if escaped or not bool(in_domain(states.m_hat, states.v_hat)):
        return Explanation(
            claim,
            lr,
            options,
            scalars,
            constants,
            m,
            v,
            covered=True,
            encodable=False,
            recovered_is_given=codes is None,
        )
    exact = [moment.double() for moment in states]
    scale = constants.step / lr
    terms = BoundTerms(*(float(x) * scale for x in make_bound_terms(TorchBinary64())(lifted(constants), *exact)))
    bound = float(closed_form_deviation(constants, *states)) / lr
    trajectories = Trajectories(implementation.body, options, scalars)
    with one_torch_thread():
        decided = decide(constants, trajectories, states)
        worst = largest_deviation(constants, trajectories, states, relative_gap=_RELATIVE_GAP)
    worst_gradient, deviation = worst.gradient, worst.deviation
    if float(decided.deviation[0]) > deviation:
        worst_gradient, deviation = float(decided.witness[0]), float(decided.deviation[0])
    traced = worst_gradient if gradient is None else gradient
    there = trajectories.deviations(states, torch.tensor([traced], dtype=torch.float32))
    m_hat, v_hat = float(states.m_hat), float(states.v_hat)
    return Explanation(
        claim=claim,
        lr=lr,
        options=options,
        scalars=scalars,
        constants=constants,
        m=m,
        v=v,
        covered=True,
        m_code=None if codes is None else int(codes[0]),
        v_code=None if codes is None else int(codes[1]),
        m_hat=m_hat,
        v_hat=v_hat,
        terms=terms,
        bound=bound,
        accepted=bool(closed),
        verdict=Verdict(int(decided.verdict[0])),
        worst_gradient=worst_gradient,
        worst_deviation=deviation / lr,
        worst_upper=worst.upper / lr,
        states=states,
        traced_gradient=traced,
        traced_deviation=float(there) / lr,
        native_trace=tuple(trace_update(implementation.body, options, scalars, m, v, traced)),
        recovered_trace=tuple(trace_update(implementation.body, options, scalars, m_hat, v_hat, traced)),
    )
