"""The audit: every coordinate of a `.gmc` file against its native checkpoint.

For each guarded tensor: the file is the native's own, escapes are bit-identical, every other coordinate keeps the claim
for every gradient (decided by `worst_case`), and each escape was needed or not.  Nothing is sampled.

Claimed: what `worst_case.Verdict` claims, for every coordinate; counts add up to the coordinates of the checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.oracle.worst_case import FEW_ENUMERATED, Decisions, Verdict, decide, largest_deviation
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.checkpoint.comparison import first_difference
from guarded_moments.reference.checkpoint.encoding import constants_of, escape_reasons, scalars_of
from guarded_moments.reference.checkpoint.layouts import Place
from guarded_moments.reference.checkpoint.optimizer_state import MOMENTS, Parameter, in_memory_order, parameters_of
from guarded_moments.reference.checkpoint.state import GuardedState, GuardedTensor, digest_of
from guarded_moments.reference.errors import CheckpointError
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard import GuardConstants, in_domain
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.implementations import implementation_named, platform_description
from guarded_moments.reference.op_models import OpModel
from guarded_moments.reference.platform import one_torch_thread, require_subnormals

#: Coordinates of a violation or of the closest call that are spelled out; the rest is counted.
_SPELLED_OUT = 10


@dataclass(frozen=True)
class Finding:
    """One coordinate at one gradient, as bits."""

    where: str  #: the tensor
    position: tuple[int, ...]  #: index into the tensor
    m: float
    v: float
    m_hat: float
    v_hat: float
    gradient: float | None  #: None where no gradient is involved: an escape that is not the native pair
    deviation: float | None  #: bit-exact, in learning rates

    def as_json(self) -> dict[str, Any]:
        """Plain data, values as C99 hexadecimal with bits."""
        bits = {name: hex_of(getattr(self, name)) for name in ("m", "v", "m_hat", "v_hat")}
        gradient = None if self.gradient is None else hex_of(self.gradient)
        return {
            "where": self.where,
            "position": list(self.position),
            **bits,
            "gradient": gradient,
            "deviation": self.deviation,
        }


@dataclass
class TensorAudit:
    """What was found in one guarded tensor."""

    where: str
    implementation: str
    coordinates: int
    safe: int = 0
    violations: int = 0
    undecided: int = 0
    escapes: int = 0
    needless_escapes: int = 0
    undecided_escapes: int = 0
    escape_reasons: dict[str, int] = field(default_factory=dict)
    max_deviation: float = 0.0  #: attained, in learning rates
    max_deviation_upper: float = 0.0  #: no gradient of any coordinate deviates by more


@dataclass
class Audit:
    """The result for a whole file."""

    claims: list[str]
    not_claimed: str
    platform: str
    tensors: list[TensorAudit] = field(default_factory=list)
    kept: dict[str, int] = field(default_factory=dict)  #: coordinates of tensors stored whole, by reason
    findings: list[Finding] = field(default_factory=list)  #: the first violations
    closest: Finding | None = None  #: the largest deviation among the guarded coordinates

    def total(self, name: str) -> int:
        """A count, over all guarded tensors."""
        return sum(int(getattr(tensor, name)) for tensor in self.tensors)

    @property
    def coordinates(self) -> int:
        """All coordinates of the checkpoint, those of tensors kept whole included."""
        return self.total("coordinates") + sum(self.kept.values())

    @property
    def holds(self) -> bool:
        """Whether the claim was established for every coordinate."""
        return self.total("violations") == 0 and self.total("undecided") == 0


def audit(state: GuardedState, native: Mapping[str, Any], progress: Callable[[int, int], None] | None = None) -> Audit:
    """Check every coordinate of `state` against the checkpoint it was made from.

    Args:
        state: a read `.gmc` file.
        native: the native checkpoint.
        progress: called with coordinates done and in all.

    Raises:
        CheckpointError: `native` is not the checkpoint that the file was made from.
        PlatformError: this process flushes subnormals.
    """
    require_subnormals()
    parameters = {(parameter.place, parameter.key): parameter for parameter in parameters_of(native)}
    _require_own(state, native, parameters)
    claims = [state.claim_for(tensor) for tensor in state.tensors]
    result = Audit(
        claims=sorted({claim.sentence() for claim in claims}),
        not_claimed=claims[0].not_claimed() if claims else "",
        platform=platform_description(),
    )
    for kept in state.kept:
        result.kept[kept.because] = result.kept.get(kept.because, 0) + kept.numel
    done = sum(result.kept.values())
    for tensor in state.tensors:
        with one_torch_thread():
            _audit_tensor(state, tensor, parameters[tensor.place, tensor.key], result)
        done += tensor.numel
        if progress is not None:
            progress(done, state.coordinates)
    return result


def combined(results: Sequence[Audit]) -> Audit:
    """The audits of the files of one checkpoint as one."""
    whole = Audit(
        claims=sorted({claim for result in results for claim in result.claims}),
        not_claimed=next((result.not_claimed for result in results if result.not_claimed), ""),
        platform=platform_description(),
        tensors=[tensor for result in results for tensor in result.tensors],
        findings=[finding for result in results for finding in result.findings][:_SPELLED_OUT],
    )
    for result in results:
        for reason, count in result.kept.items():
            whole.kept[reason] = whole.kept.get(reason, 0) + count
    closest = [result.closest for result in results if result.closest is not None]
    whole.closest = max(closest, key=lambda finding: finding.deviation or 0.0, default=None)
    return whole


def _require_own(
    state: GuardedState, native: Mapping[str, Any], parameters: Mapping[tuple[Place, int | str], Parameter]
) -> None:
    """Refuse a native checkpoint that differs in any bit from the one the file was made from.

    This also establishes that what `recover` will give back beside the moments (steps, param_groups, everything else)
    is what the claim was audited with.
    """
    guarded = frozenset((*tensor.place, "state", tensor.key, moment) for tensor in state.tensors for moment in MOMENTS)
    difference = first_difference(dict(state.skeleton), dict(native), guarded)
    if difference is not None:
        raise CheckpointError(f"not the file's own native checkpoint: {difference} differs")
    for tensor in state.tensors:
        parameter = parameters.get((tensor.place, tensor.key))
        if parameter is None or (tensor.shape, tensor.stride) != (tuple(parameter.m.shape), parameter.m.stride()):
            raise CheckpointError(f"not the file's own native checkpoint: {tensor.where} has another shape or layout")
        if tensor.next_step != parameter.next_step:
            raise CheckpointError(f"not the file's own native checkpoint: {tensor.where} is at another step")
        if tensor.native_digest != digest_of(parameter.m, parameter.v):
            raise CheckpointError(f"not the file's own native checkpoint: {tensor.where} has other moments")


def _audit_tensor(state: GuardedState, tensor: GuardedTensor, parameter: Parameter, result: Audit) -> None:
    implementation = implementation_named(tensor.implementation)
    constants = constants_of(parameter, state.claim_for(tensor), implementation, tensor.lr)
    scalars, options = scalars_of(parameter, implementation, tensor.lr), parameter.hyperparameters.options
    native = States(in_memory_order(parameter.m), in_memory_order(parameter.v), *tensor.decode())
    escaped = tensor.escaped
    found = TensorAudit(tensor.where, tensor.implementation, tensor.numel, escapes=int(escaped.sum()))
    found.escape_reasons = escape_reasons(native.m[escaped], native.v[escaped])
    covered = in_domain(native.m, native.v) & in_domain(native.m_hat, native.v_hat)
    exact = (_bits(native.m) == _bits(native.m_hat)) & (_bits(native.v) == _bits(native.v_hat))
    # An escape that is not the native pair, or a code for what the guard does not cover, needs no gradient to be wrong.
    wrong = (escaped & ~exact) | (~escaped & ~covered)
    found.violations += int(wrong.sum())
    _spell_out(result, tensor, native, wrong.nonzero().flatten(), None, None)

    encoded, encodable = _as_if_not_escaped(tensor, native)
    for model, region in implementation.update_regions(options, tensor.numel):
        trajectories = Trajectories(model, options, scalars)
        index = (region & ~escaped & covered).nonzero().flatten()
        states = native.select(index)
        decisions = decide(constants, trajectories, states)
        if bool((decisions.verdict == Verdict.UNDECIDED).any()):
            _settle(constants, (model, options, scalars), states, decisions)
        found.safe += int((decisions.verdict == Verdict.SAFE).sum())
        found.undecided += int((decisions.verdict == Verdict.UNDECIDED).sum())
        unsafe = decisions.verdict == Verdict.UNSAFE
        found.violations += int(unsafe.sum())
        _spell_out(result, tensor, native, index[unsafe], decisions, unsafe)
        _note_closest(result, found, tensor, native, index, (constants, trajectories, states), decisions)

        judged = (region & escaped & encodable).nonzero().flatten()
        verdict = decide(constants, trajectories, encoded.select(judged), FEW_ENUMERATED).verdict
        found.needless_escapes += int((verdict == Verdict.SAFE).sum())
        found.undecided_escapes += int((verdict == Verdict.UNDECIDED).sum())
    if found.violations == found.undecided == 0:  # then the decision is the better bound
        found.max_deviation_upper = min(found.max_deviation_upper, constants.threshold / tensor.lr)
    result.tensors.append(found)


def _settle(
    constants: GuardConstants[float],
    op_model: tuple[OpModel, StepOptions, Scalars[float]],
    states: States,
    decisions: Decisions,
) -> None:
    # Imported here: compiling takes seconds, and an audit rarely needs it.
    from guarded_moments.oracle.exhaustive import CompiledTrajectories  # noqa: PLC0415 - as said
    from guarded_moments.oracle.worst_case.supremum import settle  # noqa: PLC0415 - as said

    settle(constants, lambda: CompiledTrajectories(*op_model), states, decisions)


def _as_if_not_escaped(tensor: GuardedTensor, native: States) -> tuple[States, Tensor]:
    """The native states with what the codec would have made of them, and where it could have."""
    zero = torch.zeros(())
    usable = in_domain(native.m, native.v)
    codes = tensor.codec.encode(torch.where(usable, native.m, zero), torch.where(usable, native.v, zero))
    states = States(native.m, native.v, *tensor.codec.decode(*codes))
    return states, usable & ~tensor.codec.escaped(*codes) & in_domain(states.m_hat, states.v_hat)


def _note_closest(
    result: Audit,
    found: TensorAudit,
    tensor: GuardedTensor,
    native: States,
    index: Tensor,
    search: tuple[GuardConstants[float], Trajectories, States],
    decisions: Decisions,
) -> None:
    """Find the largest deviation of the tensor and keep it if it is the largest so far."""
    worst = largest_deviation(*search, known=found.max_deviation * tensor.lr)
    found.max_deviation_upper = max(found.max_deviation_upper, worst.upper / tensor.lr)
    if len(index) and float(decisions.deviation.max()) > worst.deviation:  # the decision looked closer
        coordinate = int(decisions.deviation.argmax())
        gradient, deviation = float(decisions.witness[coordinate]), float(decisions.deviation[coordinate])
        worst = worst._replace(coordinate=coordinate, gradient=gradient, deviation=deviation)
    if worst.coordinate is None:
        return
    found.max_deviation = worst.deviation / tensor.lr
    if result.closest is None or found.max_deviation > (result.closest.deviation or 0.0):
        where = int(index[worst.coordinate])
        result.closest = _finding(tensor, native, where, worst.gradient, found.max_deviation)


def _spell_out(
    result: Audit,
    tensor: GuardedTensor,
    native: States,
    index: Tensor,
    decisions: Decisions | None,
    chosen: Tensor | None,
) -> None:
    room = _SPELLED_OUT - len(result.findings)
    for rank, where in enumerate(index[: max(0, room)].tolist()):
        gradient = deviation = None
        if decisions is not None:
            gradient = float(decisions.witness[chosen][rank])
            deviation = float(decisions.deviation[chosen][rank]) / tensor.lr
        result.findings.append(_finding(tensor, native, where, gradient, deviation))


def _finding(
    tensor: GuardedTensor, native: States, where: int, gradient: float | None, deviation: float | None
) -> Finding:
    m, v, m_hat, v_hat = (float(moment[where]) for moment in native)
    return Finding(tensor.where, position_of(tensor, where), m, v, m_hat, v_hat, gradient, deviation)


def position_of(tensor: GuardedTensor, flat: int) -> tuple[int, ...]:
    """The index into a tensor of an offset in its memory order."""
    position = [0] * len(tensor.shape)
    for axis in sorted(range(len(tensor.shape)), key=lambda axis: -tensor.stride[axis]):
        if tensor.shape[axis] > 1:
            position[axis], flat = divmod(flat, tensor.stride[axis])
    return tuple(position)


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int32)


def reasons_of(result: Audit) -> dict[str, int]:
    """Escapes by reason, over all tensors."""
    total: Counter[str] = Counter()
    for tensor in result.tensors:
        total.update(tensor.escape_reasons)
    return dict(total)
