"""Compressing an optimizer's state_dict and recovering it: the product, as two functions on values in memory.

Claimed: for every coordinate that is not escaped, the guard accepted the *decoded* pair, so that the claim holds for
it; every escaped coordinate and everything else in the state_dict is recovered bit for bit.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from guarded_moments.reference.adam import Scalars
from guarded_moments.reference.checkpoint.layouts import Place, entry_at, group_of, with_own_states
from guarded_moments.reference.checkpoint.optimizer_state import (
    MOMENTS,
    Parameter,
    StateDict,
    contents_of,
    in_memory_order,
)
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.codecs.log8 import ESCAPE, Log8
from guarded_moments.reference.errors import CheckpointError, GuardedMomentsError, UnsupportedError
from guarded_moments.reference.guard import GuardConstants, closed_form_guard, exact_guard, guard_constants, in_domain
from guarded_moments.reference.implementations import Implementation, implementation_for, implementation_named
from guarded_moments.reference.platform import one_torch_thread, require_subnormals

#: Coordinates that are worked on at a time: the temporaries of a block stay in a core's cache.
BLOCK = 1 << 15

#: Called with coordinates done and in all.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class GuardedTensor:
    """The guarded moments of one parameter; flat tensors are in the memory order of the native moments."""

    key: int | str
    where: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    implementation: str
    next_step: float
    lr: float  #: the learning rate that the tolerance counts in
    codec: Log8
    m_codes: Tensor  #: uint8, (numel,)
    v_codes: Tensor  #: uint8, (numel,)
    escapes: Tensor  #: float32, (escapes, 2): the native pairs, in order
    native_digest: str  #: of both native moments
    reasons: Mapping[str, int] = field(default_factory=dict)  #: escapes by reason; known only to the compressor
    place: Place = ()  #: of the optimizer's state_dict in the checkpoint

    @property
    def numel(self) -> int:
        """Coordinates."""
        return self.m_codes.numel()

    @property
    def escaped(self) -> Tensor:
        """Where the exact pair is kept: bool, (numel,)."""
        return self.m_codes == ESCAPE

    def decode(self) -> tuple[Tensor, Tensor]:
        """The recovered moments, float32, (numel,), escapes included."""
        m, v = self.codec.decode(self.m_codes, self.v_codes)
        escaped = self.escaped
        m[escaped], v[escaped] = self.escapes[:, 0], self.escapes[:, 1]
        return m, v


@dataclass(frozen=True)
class KeptTensor:
    """A parameter whose moments are stored exactly, whole."""

    key: int | str
    where: str
    numel: int
    because: str


@dataclass(frozen=True)
class GuardedState:
    """A compressed checkpoint: what a `.gmc` file holds."""

    tolerance: Tolerance
    gradient_bound: GradientBound
    tensors: tuple[GuardedTensor, ...]
    kept: tuple[KeptTensor, ...]
    skeleton: StateDict  #: the checkpoint with the guarded moments replaced by None

    @property
    def coordinates(self) -> int:
        """Coordinates in the state, guarded and kept."""
        return sum(t.numel for t in self.tensors) + sum(t.numel for t in self.kept)

    @property
    def escapes(self) -> int:
        """Coordinates of guarded tensors that are stored exactly."""
        return sum(len(t.escapes) for t in self.tensors)

    def claim_for(self, tensor: GuardedTensor) -> Claim:
        """What is claimed about that tensor's coordinates."""
        return Claim(self.tolerance, self.gradient_bound, tensor.implementation)

    def at_rate(self, lr: float) -> GuardedState:
        """The same codes under a claim that counts in another learning rate, to audit what it would mean there."""
        return replace(self, tensors=tuple(replace(tensor, lr=lr) for tensor in self.tensors))

    def entry_of(self, tensor: GuardedTensor) -> Mapping[str, Any]:
        """What is kept of a parameter's entry in `state`."""
        return entry_at(self.skeleton, tensor.place, tensor.key)

    def group_of(self, tensor: GuardedTensor) -> Mapping[str, Any]:
        """The param_group that governs a parameter."""
        return group_of(self.skeleton, tensor.place, tensor.key)


def digest_of(m: Tensor, v: Tensor) -> str:
    """Sixteen hex digits that tell one pair of native moments from another (BLAKE2b of their bytes)."""
    digest = hashlib.blake2b(digest_size=8)
    for moment in (m, v):
        digest.update(in_memory_order(moment).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def compress(
    checkpoint: Mapping[str, Any],
    *,
    tolerance: float,
    grad_bound: float,
    guard: Literal["exact", "closed"] = "exact",
    implementation: str | None = None,
    lr: float | None = None,
    progress: Progress | None = None,
) -> GuardedState:
    """Encode both moments of every parameter, and keep exactly every coordinate that the guard does not accept.

    Args:
        checkpoint: `optimizer.state_dict()` of `torch.optim.Adam` or `AdamW`, or a dictionary that holds one or more of
            them, at any depth, beside anything else that `torch.load(weights_only=True)` can read.
        tolerance: `tau`, in learning rates, positive and finite.
        grad_bound: `G`, the largest magnitude of a gradient as it enters the moments; may be infinite.
        guard: `exact` searches the worst gradient of what the closed form rejects; `closed` does not, and so escapes
            more coordinates, a little faster.
        implementation: name of the op model of the run that will resume; by default the one this machine's CPU
            would use for each param_group.
        lr: learning rate of the first update after recovery, where it differs from the checkpoint's.  By default
            a group's own, or its `initial_lr` where a finished schedule left 0.
        progress: called with coordinates done and in all.

    Raises:
        CheckpointError: the state is not Adam's or inconsistent.
        InvalidClaimError: a tolerance or bound that makes no claim.
        UnsupportedError: something valid that is not handled, by name.
        PlatformError: this process flushes subnormals.
    """
    require_subnormals()
    tau, bound = Tolerance(tolerance), GradientBound(grad_bound)
    named = None if implementation is None else implementation_named(implementation)
    parameters, foreign = contents_of(checkpoint)
    total, done = sum(p.numel for p in parameters), 0
    skeleton = with_own_states(checkpoint)
    tensors = []
    kept = [KeptTensor(other.key, other.where, other.numel, f"a state of {other.owner}") for other in foreign]
    for parameter in parameters:
        if parameter.kept_because is None:
            with one_torch_thread():
                tensors.append(_compress_parameter(parameter, tau, bound, named, lr, exact=guard == "exact"))
            entry_at(skeleton, parameter.place, parameter.key).update(dict.fromkeys(MOMENTS))
        else:
            kept.append(KeptTensor(parameter.key, parameter.where, parameter.numel, parameter.kept_because))
        done += parameter.numel
        if progress is not None:
            progress(done, total)
    # A copy: a live optimizer steps its own tensors in place.
    return GuardedState(tau, bound, tuple(tensors), tuple(kept), copy.deepcopy(skeleton))


def rate_of(parameter: Parameter) -> float:
    """The learning rate that the tolerance counts in unless another is given: the group's own.

    A finished schedule leaves 0, at which every claim is trivial; the `initial_lr` that the schedule started from then
    takes its place, where the group has one.  It is 0 where there is none.
    """
    own = parameter.hyperparameters.lr
    initial = parameter.param_group.get("initial_lr", 0.0)
    if isinstance(initial, Tensor) and initial.numel() == 1:
        initial = initial.item()
    usable = isinstance(initial, (int, float)) and math.isfinite(initial) and initial > 0
    return float(initial) if own == 0 and usable else own


def constants_of(
    parameter: Parameter, claim: Claim, implementation: Implementation, lr: float
) -> GuardConstants[float]:
    """The guard's constants for a parameter, with its name in any error."""
    try:
        return guard_constants(
            claim, implementation, parameter.hyperparameters.options, scalars_of(parameter, implementation, lr), lr
        )
    except GuardedMomentsError as error:
        raise type(error)(f"{parameter.where}: {error}") from None


def scalars_of(parameter: Parameter, implementation: Implementation, lr: float) -> Scalars[float]:
    """The kernel's constants at a parameter's next update, with this learning rate."""
    return implementation.scalars(replace(parameter.hyperparameters, lr=lr), parameter.next_step)


def _compress_parameter(
    parameter: Parameter,
    tolerance: Tolerance,
    gradient_bound: GradientBound,
    named: Implementation | None,
    lr: float | None,
    *,
    exact: bool,
) -> GuardedTensor:
    try:
        implementation = named or implementation_for(parameter.param_group)
    except GuardedMomentsError as error:
        raise type(error)(f"{parameter.where}: {error}") from None
    claim = Claim(tolerance, gradient_bound, implementation.name)
    rate = rate_of(parameter) if lr is None else lr
    if rate == 0:
        msg = (
            f"{parameter.where}: lr is 0, as a finished schedule leaves it: the next update is zero whatever the state "
            "holds, and every tolerance trivial; pass the learning rate of the run that will resume, --lr on the "
            "command line"
        )
        raise CheckpointError(msg)
    constants = constants_of(parameter, claim, implementation, rate)
    m, v = in_memory_order(parameter.m), in_memory_order(parameter.v)

    def guard(*states: Tensor) -> Tensor:
        return closed_form_guard(constants, *states)

    covered = in_domain(m, v)
    codec = Log8.fit(m[covered], v[covered], guard)
    m_codes, v_codes = torch.empty(m.numel(), dtype=torch.uint8), torch.empty(m.numel(), dtype=torch.uint8)
    accepted = torch.empty(m.numel(), dtype=torch.bool)
    for begin in range(0, m.numel(), BLOCK):
        block = slice(begin, begin + BLOCK)
        judged = _encode_block(codec, guard, m[block], v[block], covered[block])
        m_codes[block], v_codes[block], accepted[block] = judged
    if exact:
        _reconsider(codec, constants, m, v, (m_codes, v_codes, accepted), covered)
    m_codes[~accepted], v_codes[~accepted] = ESCAPE, 0
    escaped = ~accepted
    return GuardedTensor(
        key=parameter.key,
        where=parameter.where,
        shape=tuple(parameter.m.shape),
        stride=parameter.m.stride(),
        implementation=implementation.name,
        next_step=parameter.next_step,
        lr=rate,
        codec=codec,
        m_codes=m_codes,
        v_codes=v_codes,
        escapes=torch.stack([m[escaped], v[escaped]], dim=1),
        native_digest=digest_of(parameter.m, parameter.v),
        reasons=escape_reasons(m[escaped], v[escaped]),
        place=parameter.place,
    )


def _encode_block(
    codec: Log8, guard: Callable[..., Tensor], m: Tensor, v: Tensor, covered: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, and where the guard lets them stand."""
    zero = torch.zeros(())
    m_codes, v_codes = codec.encode(torch.where(covered, m, zero), torch.where(covered, v, zero))
    return m_codes, v_codes, covered & guard(m, v, *codec.decode(m_codes, v_codes))


def _reconsider(
    codec: Log8,
    constants: GuardConstants,
    m: Tensor,
    v: Tensor,
    judged: tuple[Tensor, Tensor, Tensor],
    covered: Tensor,
) -> None:
    """Put what the closed form rejected to the exact guard, all of a tensor together."""
    m_codes, v_codes, accepted = judged
    doubtful = (covered & ~accepted).nonzero().flatten()
    decoded = codec.decode(m_codes[doubtful], v_codes[doubtful])
    accepted[doubtful] = exact_guard(constants, m[doubtful], v[doubtful], *decoded)


def escape_reasons(m: Tensor, v: Tensor) -> dict[str, int]:
    """Escaped coordinates by the reason they were kept; the first that applies counts."""
    reasons: Counter[str] = Counter()
    left = torch.ones_like(m, dtype=torch.bool)
    for reason, applies in (
        ("NaN or infinity", ~(m.isfinite() & v.isfinite())),
        ("negative second moment", torch.signbit(v)),
        ("minus zero", (m == 0) & torch.signbit(m)),
        ("outside the guard's range", ~in_domain(m, v)),
        ("not within tolerance", torch.ones_like(left)),
    ):
        count = int((left & applies).sum())
        if count:
            reasons[reason] = count
        left &= ~applies
    return dict(reasons)


def recover(state: GuardedState) -> StateDict:
    """The checkpoint again, as its optimizers take it: decoded moments, everything else bit for bit.

    Raises:
        UnsupportedError: a file of several versions ahead slipped through (an entry that is already filled).
    """
    recovered = copy.deepcopy(state.skeleton)
    for tensor in state.tensors:
        entry = entry_at(recovered, tensor.place, tensor.key)
        for name, flat in zip(MOMENTS, tensor.decode(), strict=True):
            if entry[name] is not None:
                msg = f"{tensor.where}: {name} is stored twice"
                raise UnsupportedError(msg)
            moment = torch.empty_strided(tensor.shape, tensor.stride, dtype=torch.float32)
            in_memory_order(moment).copy_(flat)
            entry[name] = moment
    return recovered
