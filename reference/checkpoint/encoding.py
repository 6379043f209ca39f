"""One parameter's moments through codec and guard: codes where the guard accepts, the exact pair elsewhere.

Claimed: every coordinate that is not escaped was accepted by the guard with the *decoded* pair, or else is zero and
stays zero.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from guarded_moments.reference.adam import Scalars
from guarded_moments.reference.checkpoint.alternatives import take_alternatives
from guarded_moments.reference.checkpoint.optimizer_state import Parameter, in_memory_order
from guarded_moments.reference.checkpoint.state import GuardedTensor, digest_of
from guarded_moments.reference.claim import Claim
from guarded_moments.reference.codecs import Codec, Codes, Escaped
from guarded_moments.reference.codecs.compiled_ranges import CompiledClosedForm
from guarded_moments.reference.errors import CheckpointError, GuardedMomentsError
from guarded_moments.reference.guard import GuardConstants, closed_form_guard, exact_guard, guard_constants, in_domain
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.horizon import LaterGuard, Run, later_guard
from guarded_moments.reference.implementations import Implementation

if TYPE_CHECKING:
    from guarded_moments.reference.kernels.codecs import Kernel

#: Coordinates that are worked on at a time: the temporaries of a block stay in a core's cache.
BLOCK = 1 << 15
#: A run with parameters of its own has at least so many coordinates; shorter rows are put together.
SMALLEST_RUN = 64
BLOCK_RUN = 256  #: coordinates that share parameters with `per-block`

Granularity = Literal["per-tensor", "per-row", "per-block"]


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


def later_guard_of(parameter: Parameter, claim: Claim, implementation: Implementation, lr: float) -> LaterGuard | None:
    """The guard of a parameter's later updates, with its name in any error; None where the claim is not about them."""
    try:
        return later_guard(claim, Run(implementation, parameter.hyperparameters, parameter.next_step, lr))
    except GuardedMomentsError as error:
        raise type(error)(f"{parameter.where}: {error}") from None


def scalars_of(parameter: Parameter, implementation: Implementation, lr: float) -> Scalars[float]:
    """The kernel's constants at a parameter's next update, with this learning rate."""
    return implementation.scalars(replace(parameter.hyperparameters, lr=lr), parameter.next_step)


def run_of(parameter: Parameter, granularity: Granularity) -> int | None:
    """How many coordinates, in memory order, share a codec's parameters; None for all of the tensor."""
    if granularity == "per-block":
        return BLOCK_RUN
    row = None if granularity == "per-tensor" else row_of(parameter)
    return None if row is None else row * -(-SMALLEST_RUN // row)


def row_of(parameter: Parameter) -> int | None:
    """How many coordinates, in memory order, one index along the slowest axis selects; None of a vector."""
    axes = [
        (stride, extent) for extent, stride in zip(parameter.m.shape, parameter.m.stride(), strict=True) if extent > 1
    ]
    return None if len(axes) <= 1 else parameter.numel // max(axes)[1]


@dataclass(frozen=True)
class Encoding:
    """How one parameter is to be encoded."""

    claim: Claim
    implementation: Implementation
    lr: float
    kind: type[Codec]
    granularity: Granularity
    exact: bool  #: whether the search decides what the closed form rejects
    compiled: bool = False  #: whether grids are searched for in compiled code
    previous: Codec | None = None  #: whose parameters are taken, where they suit
    kernels: bool = False  #: whether codes are computed by the compiled loops, where the codec has them
    threads: int = 1  #: of those
    many: bool = False  #: whether there are so many coordinates in all that compiling the exact guard's search pays

    def searches(self, parameter: Parameter) -> bool:
        """Whether the exact guard is asked: not with amsgrad, where errors that cancel without it need not."""
        return self.exact and parameter.v_max is None

    def codec_for(self, parameter: Parameter, constants: GuardConstants[float]) -> Codec:
        """The previous parameters, or fitted ones."""
        size = row_of(parameter) if self.kind.by_rows else run_of(parameter, self.granularity)
        if self.previous is not None:
            return self.previous
        m, v = in_memory_order(parameter.m), in_memory_order(parameter.v)
        widens = self.kind.search_widens if self.searches(parameter) else 1.0
        widened = constants._replace(threshold=constants.threshold * widens)
        guard = CompiledClosedForm(widened)
        return self.kind.fit(m, v, guard if self.compiled else guard.__call__, size)

    def apply(self, parameter: Parameter) -> GuardedTensor:
        """Encode, guard and escape.

        Raises:
            GuardedMomentsError: the claim cannot be made about this parameter; the text names it.
        """
        if self.lr == 0:
            msg = (
                f"{parameter.where}: lr is 0, as a finished schedule leaves it: the next update is zero whatever the "
                "state holds, and every tolerance trivial; pass the learning rate of the run that will resume, --lr on "
                "the command line"
            )
            raise CheckpointError(msg)
        constants = constants_of(parameter, self.claim, self.implementation, self.lr)
        later = later_guard_of(parameter, self.claim, self.implementation, self.lr)
        codec = self.codec_for(parameter, constants if later is None else later.fitting)
        m, v = in_memory_order(parameter.m), in_memory_order(parameter.v)
        exact, beyond = self.searches(parameter), outside_of_amsgrad(parameter)
        kernel = kernel_of(codec) if self.kernels and later is None and not len(beyond) else None
        if kernel is None:
            codes, accepted = encode_guarded(codec, constants, m, v, exact=exact)
            accepted[beyond] = False
            if later is not None:
                accepted = accepted_later(codec, later, m, v, codes, accepted, exact=exact)
            codes, escapes = codec.escape(codes, ~accepted), torch.stack([m[~accepted], v[~accepted]], dim=1)
        else:
            found = kernel.guarded(constants, m, v, self.threads)
            codes, escapes = taken_back(codec, constants, found, compiled=self.many or None) if exact else found
        third = None if parameter.v_max is None else in_memory_order(parameter.v_max)[codec.escaped(*codes)]
        return GuardedTensor(
            key=parameter.key,
            where=parameter.where,
            shape=tuple(parameter.m.shape),
            stride=parameter.m.stride(),
            implementation=self.implementation.name,
            next_step=parameter.next_step,
            lr=self.lr,
            codec=codec,
            m_codes=codes.m,
            v_codes=codes.v,
            escapes=escapes,
            native_digest=digest_of(parameter.m, parameter.v),
            reasons=escape_reasons(escapes[:, 0], escapes[:, 1], third),
            place=parameter.place,
        )


def outside_of_amsgrad(parameter: Parameter) -> Tensor:
    """Places, in memory order, whose third moment is none that the guard's theorem speaks about; none without one."""
    if parameter.v_max is None:
        return torch.empty(0, dtype=torch.int64)
    v_max = in_memory_order(parameter.v_max)
    return (~in_domain(torch.zeros(()), v_max)).nonzero().flatten()


def encode_guarded(
    codec: Codec, constants: GuardConstants[float], m: Tensor, v: Tensor, *, exact: bool, start: int = 0
) -> tuple[Codes, Tensor]:
    """Codes of a tensor, and where the guard lets them stand: bool, (n,).

    Args:
        codec: with its parameters.
        constants: of the guard.
        m: first moments, float32, shape (n,), any values.
        v: second moments, float32, shape (n,), any values.
        exact: whether the search decides what the closed form rejects.
        start: place in the tensor of the first coordinate.
    """
    codes = Codes(*(torch.empty(len(m), dtype=codec.code_type) for _ in range(2)))
    accepted = torch.empty(len(m), dtype=torch.bool)
    doubtful, states = [], []
    for begin in range(0, len(m), BLOCK):
        block = slice(begin, begin + BLOCK)
        covered, encoded = encode_block(codec, m[block], v[block], start + begin)
        judged = judge_block(codec, constants, m[block], v[block], covered, encoded, start + begin)
        codes.m[block], codes.v[block], accepted[block] = judged.codes.m, judged.codes.v, judged.accepted
        if exact:
            index = (judged.usable & ~judged.accepted).nonzero().flatten()
            doubtful.append(index + begin)
            states.append(judged.states.select(index))
    if exact and doubtful:  # all of a tensor together
        together = States(*(torch.cat(parts) for parts in zip(*states, strict=True)))
        accepted[torch.cat(doubtful)] = exact_guard(constants, *together)
    return codes, accepted


def accepted_later(
    codec: Codec, later: LaterGuard, m: Tensor, v: Tensor, codes: Codes, accepted: Tensor, *, exact: bool
) -> Tensor:
    """Where the guard of later updates lets codes stand that the guard of the first accepted: bool, (n,).

    Args:
        codec: with its parameters.
        later: the guard.
        m: first moments, float32, shape (n,).
        v: second moments, float32, shape (n,).
        codes: of the whole tensor.
        accepted: where the first update is guaranteed.
        exact: as in `encode_guarded`.
    """
    index = accepted.nonzero().flatten()
    states = States(m, v, *codec.decode(*codes, 0)).select(index)
    kept = torch.zeros_like(accepted)
    kept[index[later.accepts(states, exact=exact)]] = True
    return kept


def kernel_of(codec: Codec) -> Kernel | None:
    """The compiled loops of a codec with its parameters; None where it has none."""
    from guarded_moments.reference.kernels.codecs import Kernel  # noqa: PLC0415 - importing numba takes half a second

    return Kernel.of(codec)


def taken_back(
    codec: Codec, constants: GuardConstants[float], found: Escaped, *, compiled: bool | None = None
) -> Escaped:
    """What the closed form escaped, less what the search clears: the result of `encode_guarded` with `exact`.

    Args:
        codec: one that has no alternatives and the same parameters at every place.
        constants: of the guard.
        found: with the closed form alone; its codes are written to.
        compiled: as in `exact_guard`.
    """
    m, v = found.escapes[:, 0].contiguous(), found.escapes[:, 1].contiguous()
    covered, nearest = encode_block(codec, m, v, 0)
    doubtful = (covered & ~codec.escaped(*nearest)).nonzero().flatten()
    states = States(m, v, *codec.decode(*nearest)).select(doubtful)
    cleared = doubtful[exact_guard(constants, *states, compiled=compiled)]
    places = codec.escaped(*found.codes).nonzero().flatten()[cleared]
    for codes, own in zip(found.codes, nearest, strict=True):
        codes.numpy()[places.numpy()] = own.numpy()[cleared.numpy()]
    kept = torch.ones(len(m), dtype=torch.bool)
    kept[cleared] = False
    return Escaped(found.codes, found.escapes[kept])


def encode_block(codec: Codec, m: Tensor, v: Tensor, start: int) -> tuple[Tensor, Codes]:
    """Where the guard is defined, and the nearest codes there; elsewhere those of zero."""
    covered = in_domain(m, v)
    zero = torch.zeros(())
    return covered, codec.encode(torch.where(covered, m, zero), torch.where(covered, v, zero), start)


class Judged(NamedTuple):
    """Coordinates that were encoded and put to the closed form."""

    codes: Codes  #: the nearest, or the alternatives that were taken in their place
    states: States  #: with what the nearest codes decode to
    usable: Tensor  #: where the guard is defined and the nearest codes are no escape
    accepted: Tensor


def judge_block(
    codec: Codec, constants: GuardConstants[float], m: Tensor, v: Tensor, covered: Tensor, codes: Codes, start: int
) -> Judged:
    """Put encoded coordinates to the closed form, and the codec's alternatives where it rejects the nearest codes."""
    states = States(m, v, *codec.decode(*codes, start))
    usable = covered & ~codec.escaped(*codes)
    accepted = usable & closed_form_guard(constants, *states)
    accepted |= take_alternatives(codec, constants, m, v, codes, usable & ~accepted, start)
    return Judged(codes, states, usable, accepted)


def escape_reasons(m: Tensor, v: Tensor, v_max: Tensor | None = None) -> dict[str, int]:
    """Escaped coordinates by the reason they were kept; the first that applies counts.

    Args:
        m: first moments of the escaped coordinates, float32, shape (n,).
        v: second moments.
        v_max: third moments, with amsgrad.
    """
    reasons: Counter[str] = Counter()
    left = torch.ones_like(m, dtype=torch.bool)
    zero = torch.zeros(())
    for reason, applies in (
        ("NaN or infinity", ~(m.isfinite() & v.isfinite())),
        ("negative second moment", torch.signbit(v)),
        ("minus zero", (m == 0) & torch.signbit(m)),
        ("outside the guard's range", ~in_domain(m, v)),
        ("third moment outside the guard's range", ~in_domain(zero, zero if v_max is None else v_max)),
        ("not within tolerance", torch.ones_like(left)),
    ):
        count = int((left & applies).sum())
        if count:
            reasons[reason] = count
        left &= ~applies
    return dict(reasons)
