"""The whole claim, exhaustively, in formats small enough to enumerate.

The Adam step (`adam.make_update`, and with amsgrad `make_amsgrad_update`), the constants (`formula_constants` to
`exact_constants`, for the format's own unit roundoff) and the guard (`make_bound_terms`) are the very sources of the
theorem, run on every gradient, every native state and every recovered one of a format; nothing is sampled.  For each
pair of states the largest deviation over all gradients is compared with the guard's bound, which decides the claim for
every tolerance at once.

Claimed: `Exhausted.violations` counts every pair whose deviation exceeds the bound, among all pairs asked for.
Trusted: `SmallFormat`, whose operations are one correct rounding each: exact or correctly rounded in binary64, which
has more than twice the digits, then rounded to the format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from typing import final

import torch
from torch import Tensor

from guarded_moments.reference.adam import Scalars, StepOptions, make_amsgrad_update, make_update
from guarded_moments.reference.arithmetic.torch_binary64 import TorchBinary64
from guarded_moments.reference.floats import BINARY64, FloatFormat, round_up, square_root_down, square_root_up
from guarded_moments.reference.guard.closed_form import BoundTerms, bound_inflation, lifted, make_bound_terms
from guarded_moments.reference.guard.constants import GuardConstants, exact_constants
from guarded_moments.reference.guard.real_update import real_update
from guarded_moments.reference.guard.slack import denominator_error, update_error
from guarded_moments.reference.op_models import OpModel

#: What can be left out of the guard's bound, to see that it is needed.
TERMS = BoundTerms._fields
SLACK = ("slack_moment", "slack_reciprocal", "slack_gradient", "slack_floor")


@final
class SmallFormat:
    """A binary format of up to 11 digits on float64 tensors: `Arithmetic[Tensor]`."""

    def __init__(self, fmt: FloatFormat) -> None:
        """Round to `fmt`, ties to even, with subnormals."""
        self.fmt = fmt
        self._lowest = 2 - fmt.largest_exponent  # exponent, as frexp gives it, of the smallest normal
        self._largest, self._smallest_normal = float(fmt.largest), float(fmt.smallest_normal)
        self._dropped = BINARY64.precision - fmt.precision
        self._half, self._kept = (1 << (self._dropped - 1)) - 1, -(1 << self._dropped)
        self._even = 1.5 * 2.0 ** (BINARY64.precision - 1) * float(fmt.smallest_subnormal)
        self._infinity = torch.tensor(torch.inf, dtype=torch.float64)

    def round(self, exact: Tensor) -> Tensor:
        """The nearest value of the format; infinite beyond the largest."""
        # In the normal range, half a unit less one is added to the bits, and one more where the last kept bit is odd.
        bits = exact.view(torch.int64)
        normal = ((bits + self._half + (bits >> self._dropped & 1)) & self._kept).view(torch.float64)
        # Below it the grid is even: binary64 rounds to that grid itself, next to a number with that spacing.
        subnormal = (exact + self._even) - self._even
        rounded = torch.where(exact.abs() < self._smallest_normal, subnormal, normal)
        return torch.where(rounded.abs() > self._largest, torch.copysign(self._infinity, rounded), rounded)

    def values(self, largest: float) -> Tensor:
        """Every value from zero up to `largest`, ascending."""
        digits = self.fmt.precision
        integers = torch.arange(2 ** (digits - 1), dtype=torch.float64)
        lowest = self._lowest - digits
        normal = [torch.ldexp(integers + 2 ** (digits - 1), torch.tensor(e)) for e in range(lowest, lowest + 64)]
        every = torch.cat([torch.ldexp(integers, torch.tensor(lowest)), *normal])
        return every[every <= min(largest, self._largest)]

    def constant(self, value: float) -> Tensor:
        """A number of the format."""
        return torch.tensor(value, dtype=torch.float64)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """`a + b`."""
        return self.round(a + b)

    def sub(self, a: Tensor, b: Tensor) -> Tensor:
        """`a - b`."""
        return self.round(a - b)

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        """`a * b`."""
        return self.round(a * b)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """`a * b`, not rounded."""
        return a * b

    def div(self, a: Tensor, b: Tensor) -> Tensor:
        """`a / b`."""
        return self.round(a / b)

    def fma(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """`a * b + c`, rounded once: the sum is exact in binary64 for the exponents of a small format."""
        return self.round(a * b + c)

    def sqrt(self, a: Tensor) -> Tensor:
        """The square root."""
        return self.round(a.sqrt())

    def platform_sqrt(self, a: Tensor) -> Tensor:
        """A root one unit in the last place above the correctly rounded one, as a platform's may be."""
        correct = self.sqrt(a)
        _, exponent = torch.frexp(correct)
        unit = torch.ldexp(torch.ones_like(correct), exponent.clamp(min=self._lowest) - self.fmt.precision)
        return torch.where(correct > 0, correct + unit, correct)

    def negate(self, a: Tensor) -> Tensor:
        """`-a`."""
        return -a

    def select_less(self, a: Tensor, b: Tensor, if_less: Tensor, otherwise: Tensor) -> Tensor:
        """`if_less` where `a < b`."""
        return torch.where(a < b, if_less, otherwise)

    def select_nan(self, a: Tensor, if_nan: Tensor, otherwise: Tensor) -> Tensor:
        """`if_nan` where `a` is NaN."""
        return torch.where(a.isnan(), if_nan, otherwise)


@dataclass(frozen=True)
class Setting:
    """A format, an op model and the numbers that a kernel would hold; each is rounded to the format."""

    fmt: FloatFormat
    model: OpModel
    options: StepOptions
    beta1: float = 0.75
    beta2: float = 0.75
    root: float = 0.75
    eps: float = 0.5
    step: float = 1.0
    largest: float = 1.0  #: of every second moment, and the bound on the gradient
    largest_first: float = 1.0  #: of every first moment

    @property
    def scalars(self) -> Scalars[float]:
        """The constants of the kernel; the step size is the learning rate's magnitude, negative as torch has it."""
        small = SmallFormat(self.fmt)

        def rounded(value: float) -> float:
            return float(small.round(torch.tensor(value, dtype=torch.float64)))

        w = rounded(1 - self.beta1)
        named = dict.fromkeys(Scalars._fields, 0.0)
        named |= {"w": w, "c": rounded(1 - self.beta2), "beta1": rounded(self.beta1), "beta2": rounded(self.beta2)}
        named |= {"root": rounded(self.root), "eps": rounded(self.eps), "step": -rounded(self.step)}
        named |= {"w_minus_one": rounded(w - 1), "one_minus_w": rounded(1 - w)}
        return Scalars(**named)

    def constants(self) -> GuardConstants[float]:
        """The guard's constants, derived as for binary32 from the format's own unit roundoff.

        Raises:
            ValueError: the format is too coarse for these numbers: rounding may move an update by any amount.
        """
        u, n = self.fmt.unit_roundoff, self.fmt.half_smallest_subnormal
        real = real_update(self.model, self.scalars)
        denominator = denominator_error(self.model, real, u, n, square_root_up)
        if denominator.rho >= 1:
            raise ValueError(f"the denominator's relative error is {float(denominator.rho):.3g}: not below one")
        error = update_error(self.model, self.options, real, u, n, denominator, square_root_down)
        exact = exact_constants(real, error, square_root_up, gradient_bound=Fraction(self.largest))
        return GuardConstants(*(round_up(value) for value in exact))


@dataclass
class Exhausted:
    """What was found, summed over pairs of states."""

    cases: int = 0  #: gradients times pairs of states
    pairs: int = 0
    violations: int = 0  #: pairs whose deviation exceeds the guard's bound
    accepted: int = 0  #: pairs whose bound is at most the tolerance
    overflows: int = 0  #: pairs in which an update is not finite: outside the claim
    closest: float = 0.0  #: the largest deviation over bound

    def add(self, bound: Tensor, deviation: Tensor, gradients: int, tolerance: float) -> None:
        """Count pairs, given the bound and the largest deviation of each."""
        finite = deviation.isfinite()
        bound, deviation = bound[finite], deviation[finite]
        self.pairs += bound.numel()
        self.cases += bound.numel() * gradients
        self.overflows += int((~finite).sum())
        self.violations += int((deviation > bound).sum())
        self.accepted += int((bound <= tolerance).sum())
        if bound.numel():
            self.closest = max(self.closest, float((deviation / bound).nan_to_num(0.0).max()))


def every_pair(
    setting: Setting,
    tolerance: float,
    *,
    second: Sequence[tuple[int, int]] | None = None,
    third: Sequence[int] | None = None,
    without: str = "",
) -> Exhausted:
    """Every native and every recovered state, every gradient.

    Args:
        setting: format, op model and hyperparameters.
        tolerance: at which pairs count as accepted, in units of the parameter.
        second: the pairs of second moments, native and recovered, by their places among the values; all by default.
        third: with amsgrad, the third moments that both states have, by their places among the values; all by default.
        without: a term of `TERMS` or a constant of `SLACK` to leave out of the bound.
    """
    small = SmallFormat(setting.fmt)
    found = Exhausted()
    magnitudes = small.values(setting.largest)
    signed, first = (_signed(small.values(largest)) for largest in (setting.largest, setting.largest_first))
    bounds = _Bounds(setting, without)

    thirds: list[Tensor | None] = [None]
    if setting.options.amsgrad:
        thirds = [magnitudes[place] for place in (range(len(magnitudes)) if third is None else third)]
    for v_max in thirds:
        updates = cache(lambda place, v_max=v_max: _updates(setting, small, first, magnitudes[place], signed, v_max))
        for i, j in second_moments(setting) if second is None else second:
            bound = bounds(first[:, None], magnitudes[i], first[None, :], magnitudes[j])
            found.add(bound, _largest_deviation(updates(i), updates(j)), len(signed), tolerance)
    return found


def second_moments(setting: Setting) -> list[tuple[int, int]]:
    """Every pair of second moments of a setting, by their places among the values of the format."""
    count = len(SmallFormat(setting.fmt).values(setting.largest))
    return list(product(range(count), range(count)))


def coded_pairs(setting: Setting, tolerance: float, digits: int, *, without: str = "", stride: int = 1) -> Exhausted:
    """Every native state with the recovered one that a codec of fewer digits decodes to, every gradient.

    Args:
        setting: format, op model and hyperparameters.
        tolerance: as `every_pair`.
        digits: of the stored moments: rounding to them is encoding and decoding.
        without: as `every_pair`.
        stride: take only every so many second moments; 1 for all.
    """
    small = SmallFormat(setting.fmt)
    codec = SmallFormat(FloatFormat(digits, setting.fmt.largest_exponent))
    found = Exhausted()
    magnitudes = small.values(setting.largest)
    signed = _signed(magnitudes)
    recovered = codec.round(signed).clamp(-setting.largest, setting.largest)
    bounds = _Bounds(setting, without)
    for v in magnitudes[::stride]:
        v_hat = codec.round(v).clamp(max=setting.largest)
        native = _updates(setting, small, signed, v, signed)
        decoded = _updates(setting, small, recovered, v_hat, signed)
        deviation = (decoded - native).abs().amax(dim=1)
        found.add(bounds(signed, v, recovered, v_hat), deviation, len(signed), tolerance)
    return found


def _signed(magnitudes: Tensor) -> Tensor:
    """The values of both signs, ascending, zero once."""
    return torch.cat([-magnitudes.flip(0)[:-1], magnitudes])


class _Bounds:
    """The guard's inflated bound, with one term left out if asked."""

    def __init__(self, setting: Setting, without: str) -> None:
        self._constants = setting.constants()
        if without in GuardConstants._fields:
            self._constants = self._constants._replace(**{without: 0.0})
        self._without = without
        self._terms = make_bound_terms(TorchBinary64())
        self._lifted = lifted(self._constants)

    def __call__(self, m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        m, v, m_hat, v_hat = torch.broadcast_tensors(m, v, m_hat, v_hat)
        terms = self._terms(self._lifted, m, v, m_hat, v_hat)._asdict()
        terms.pop(self._without, None)
        total = torch.stack(list(terms.values())).sum(dim=0)
        return (self._lifted.step * total + 2 * self._lifted.slack_floor) * bound_inflation()


def _updates(
    setting: Setting, small: SmallFormat, m: Tensor, v: Tensor, g: Tensor, v_max: Tensor | None = None
) -> Tensor:
    """The update of every first moment (rows) at every gradient (columns)."""
    scalars = Scalars(*(small.constant(value) for value in setting.scalars))
    rows, columns = torch.broadcast_tensors(m[:, None], g[None, :])
    if v_max is None:
        return make_update(small, setting.model, setting.options)(rows, v.expand_as(rows), columns, scalars)
    update = make_amsgrad_update(small, setting.model, setting.options)
    return update(rows, v.expand_as(rows), v_max.expand_as(rows), columns, scalars)


def _largest_deviation(native: Tensor, recovered: Tensor) -> Tensor:
    """Over all gradients, of every native (rows) and every recovered first moment (columns)."""
    return torch.stack([(recovered - row).abs().amax(dim=1) for row in native])


def settings(fmt: FloatFormat) -> Iterator[Setting]:
    """One setting for each family of op models, of a format."""
    from guarded_moments.proofs.statement import families  # noqa: PLC0415 - the statement loads every implementation

    for family in families():
        weight = 0.25 if family.options.interpolate_from_end else 0.75
        yield Setting(fmt, family.model, family.options, beta1=weight)
