"""A stretch of one guarded tensor, decided on its own: nothing of the file around it is needed.

Escapes are bit-identical, every other coordinate keeps the claim for every gradient (decided by `worst_case`), and each
escape was needed or not.  Nothing is sampled.

Claimed: what `worst_case.Verdict` claims, for every coordinate of the part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from guarded_moments.oracle.audit.judging import judge_of
from guarded_moments.oracle.audit.later import Later
from guarded_moments.oracle.audit.results import SPELLED_OUT, Finding, PartAudit, TensorAudit, closer
from guarded_moments.oracle.platform import this_machine
from guarded_moments.oracle.worst_case import FEW_ENUMERATED, Decisions, Verdict, Worst
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.checkpoint.encoding import escape_reasons
from guarded_moments.reference.checkpoint.state import decoded
from guarded_moments.reference.codecs import Codec
from guarded_moments.reference.guard import GuardConstants, in_domain
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.implementations import platform_description
from guarded_moments.reference.op_models import OpModel
from guarded_moments.reference.platform import one_torch_thread, require_subnormals


@dataclass(frozen=True)
class Part:
    """Coordinates `begin` and following of one tensor, in memory order, with all that decides about them."""

    where: str  #: the tensor
    shape: tuple[int, ...]  #: of the whole tensor
    stride: tuple[int, ...]  #: likewise
    implementation: str
    lr: float  #: the learning rate that the tolerance counts in
    constants: GuardConstants[float]
    scalars: Scalars[float]
    options: StepOptions
    later: Later  #: what decides about later updates
    codec: Codec  #: of the whole tensor
    begin: int
    m: Tensor  #: native first moments, float32, (n,)
    v: Tensor  #: native second moments, float32, (n,)
    m_codes: Tensor  #: of the codec's `code_type`, (n,)
    v_codes: Tensor  #: likewise
    escapes: Tensor  #: float32, (escapes, 2)
    regions: Sequence[tuple[OpModel, Tensor]]  #: op models with bool masks, (n,); each coordinate in one
    compiled: bool = False  #: whether the compiled search clears what it can
    v_max: Tensor | None = None  #: with amsgrad: native third moments, which are kept exactly, float32, (n,)

    @property
    def numel(self) -> int:
        """Coordinates."""
        return self.m_codes.numel()

    def position(self, flat: int) -> tuple[int, ...]:
        """The index into the tensor of the part's coordinate number `flat`."""
        return position_of(self.shape, self.stride, self.begin + flat)


def audit_part(part: Part) -> PartAudit:
    """Decide every coordinate of a part, on one thread of this process.

    Raises:
        PlatformError: this process flushes subnormals.
    """
    require_subnormals()
    with one_torch_thread():
        return _audit(part)


def _audit(part: Part) -> PartAudit:
    recovered = decoded(part.codec, part.m_codes, part.v_codes, part.escapes, part.begin)
    native, escaped = States(part.m, part.v, *recovered), part.codec.escaped(part.m_codes, part.v_codes)
    found = TensorAudit(part.where, part.implementation, part.numel, escapes=int(escaped.sum()))
    result = PartAudit(found, machine=machine_in_words())
    third = None if part.v_max is None else part.v_max[escaped]
    found.escape_reasons = escape_reasons(native.m[escaped], native.v[escaped], third)
    covered = in_domain(native.m, native.v) & in_domain(native.m_hat, native.v_hat)
    exact = (_bits(native.m) == _bits(native.m_hat)) & (_bits(native.v) == _bits(native.v_hat))
    # An escape that is not the native pair, or a code for what the guard does not cover, needs no gradient to be wrong.
    wrong = (escaped & ~exact) | (~escaped & ~covered)
    found.violations += int(wrong.sum())
    _spell_out(result, part, native, wrong.nonzero().flatten(), None, None)

    encoded, encodable = _as_if_not_escaped(part, native)
    for model, region in part.regions:
        judge = judge_of(part, model)
        index = (region & ~escaped & covered).nonzero().flatten()
        states = native.select(index)
        decisions = judge.decide(states, index)
        updates = part.later.decide(model, states, decisions)
        _note_later(result, part, model, native, index)
        found.safe += int((decisions.verdict == Verdict.SAFE).sum())
        found.undecided += int((decisions.verdict == Verdict.UNDECIDED).sum())
        unsafe = decisions.verdict == Verdict.UNSAFE
        found.violations += int(unsafe.sum())
        _spell_out(result, part, native, index[unsafe], decisions, unsafe, updates[unsafe])
        decisions.deviation[updates > 1] = -1.0  # of another update
        worst = judge.largest(states, found.max_deviation * part.lr, decisions)
        _note_closest(result, part, native, index, worst, decisions)

        judged = (region & escaped & encodable).nonzero().flatten()
        tried = encoded.select(judged)
        verdict = judge.decide(tried, judged, FEW_ENUMERATED).verdict
        needless = tried.select(verdict == Verdict.SAFE)
        found.needless_escapes += int(part.later.accepted(needless).sum())
        found.undecided_escapes += int((verdict == Verdict.UNDECIDED).sum())
    if found.violations == found.undecided == 0:  # then the decision is the better bound
        found.max_deviation_upper = min(found.max_deviation_upper, part.constants.threshold / part.lr)
    return result


def _as_if_not_escaped(part: Part, native: States) -> tuple[States, Tensor]:
    """The native states with what the codec would have made of them, and where it could have."""
    zero = torch.zeros(())
    usable = in_domain(native.m, native.v)
    codes = part.codec.encode(torch.where(usable, native.m, zero), torch.where(usable, native.v, zero), part.begin)
    states = States(native.m, native.v, *part.codec.decode(*codes, part.begin))
    return states, usable & ~part.codec.escaped(*codes) & in_domain(states.m_hat, states.v_hat)


def _note_closest(
    result: PartAudit,
    part: Part,
    native: States,
    index: Tensor,
    worst: Worst,
    decisions: Decisions,
) -> None:
    """Keep the largest deviation of an op model's coordinates if it is the largest of the part so far."""
    found = result.found
    found.max_deviation_upper = max(found.max_deviation_upper, worst.upper / part.lr)
    if len(index) and float(decisions.deviation.max()) > worst.deviation:  # the decision looked closer
        coordinate = int(decisions.deviation.argmax())
        gradient, deviation = float(decisions.witness[coordinate]), float(decisions.deviation[coordinate])
        worst = worst._replace(coordinate=coordinate, gradient=gradient, deviation=deviation)
    if worst.coordinate is None or worst.deviation <= found.max_deviation * part.lr:
        return
    found.max_deviation = worst.deviation / part.lr
    result.closest = _finding(part, native, int(index[worst.coordinate]), worst.gradient, found.max_deviation)


def _note_later(result: PartAudit, part: Part, model: OpModel, native: States, index: Tensor) -> None:
    """What is known of the later updates of the guarded coordinates at `index`."""
    found, states = result.found, native.select(index)
    each, total = part.later.bounds(states)
    alone = part.later.first_moment_alone(part.constants, states)
    found.add(
        TensorAudit(
            part.where,
            part.implementation,
            later_upper=None if each is None else each / part.lr,
            drift_upper=None if total is None else total / part.lr,
            first_moment_alone=alone / part.lr,
        )
    )
    closest = part.later.closest(model, states)
    if closest is not None:
        place, update, gradient, deviation = closest
        finding = _finding(part, native, int(index[place]), gradient, deviation / part.lr, update)
        result.closest_later = closer(result.closest_later, finding)


def _spell_out(
    result: PartAudit,
    part: Part,
    native: States,
    index: Tensor,
    decisions: Decisions | None,
    chosen: Tensor | None,
    updates: Tensor | None = None,
) -> None:
    room = SPELLED_OUT - len(result.findings)
    for rank, where in enumerate(index[: max(0, room)].tolist()):
        gradient = deviation = None
        update = 1 if updates is None else int(updates[rank])
        if decisions is not None:
            gradient = float(decisions.witness[chosen][rank])
            deviation = float(decisions.deviation[chosen][rank]) / part.lr
        result.findings.append(_finding(part, native, where, gradient, deviation, update))


def _finding(
    part: Part, native: States, where: int, gradient: float | None, deviation: float | None, update: int = 1
) -> Finding:
    m, v, m_hat, v_hat = (float(moment[where]) for moment in native)
    return Finding(part.where, part.position(where), m, v, m_hat, v_hat, gradient, deviation, update)


def position_of(shape: Sequence[int], stride: Sequence[int], flat: int) -> tuple[int, ...]:
    """The index into a dense tensor of an offset in its memory order."""
    position = [0] * len(shape)
    for axis in sorted(range(len(shape)), key=lambda axis: -stride[axis]):
        if shape[axis] > 1:
            position[axis], flat = divmod(flat, stride[axis])
    return tuple(position)


@cache
def machine_in_words() -> str:
    """The machine of this process, as far as it decides bits."""
    machine = this_machine()
    return f"{platform_description()}; {machine.cpu}; {machine.capability}; {machine.library}; {machine.settings}"


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int32)
