"""OPS: slips of steps."""

# ruff: noqa: D102 - the docstring of a class says what its one method gets wrong

from dataclasses import replace

import torch
from tests.meta.seeding import caught_by
from torch import Tensor

from guarded_moments.oracle.conformance import ReferenceBackend
from guarded_moments.oracle.conformance.other_roundings import Rounding
from guarded_moments.oracle.conformance.slips import Step
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.floats import round_to_binary32
from guarded_moments.reference.op_models import Correction, Interpolation, OpModel, SecondMoment, Update


class _OtherOpModel(ReferenceBackend):
    """The first update of a changed op model."""

    def changed(self, model: OpModel) -> OpModel:
        raise NotImplementedError

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        return super().first_update(self.changed(model), options, scalars, m, v, g)


@caught_by("OPS-1")
class FirstMomentContracted(_OtherOpModel):
    """A compiler fused the interpolation's product, or did not."""

    def changed(self, model: OpModel) -> OpModel:
        other = Interpolation.FMA if model.interpolation is Interpolation.SEPARATE else Interpolation.SEPARATE
        return replace(model, interpolation=other)


@caught_by("OPS-1")
class SecondMomentContracted(_OtherOpModel):
    """A compiler fused the other product of the second moment."""

    def changed(self, model: OpModel) -> OpModel:
        other = SecondMoment.FMA_DECAY if model.second_moment is SecondMoment.FMA_PRODUCT else SecondMoment.FMA_PRODUCT
        return replace(model, second_moment=other)


@caught_by("OPS-1")
class ConstantRoundedTwice(ReferenceBackend):
    """`f32(1 - beta2)` computed as `1 - f32(beta2)`."""

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        twice = scalars._replace(c=1 - scalars.beta2)
        return super().first_update(model, options, twice, m, v, g)


@caught_by("OPS-1")
class FlushesSubnormals(ReferenceBackend):
    """Subnormal moments are taken for zero."""

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        m, v = (torch.where(x.abs() < 2.0**-126, 0.0, x) for x in (m, v))
        return super().first_update(model, options, scalars, m, v, g)


@caught_by("OPS-1")
class SeparateWhereFused(_OtherOpModel):
    """`-ffp-contract=off`, for a model of a build that contracts."""

    def changed(self, model: OpModel) -> OpModel:
        return replace(model, second_moment=SecondMoment.SEPARATE)


@caught_by("OPS-1")
class ReciprocalOfTheRoot(_OtherOpModel):
    """A division by a constant turned into a product with its reciprocal."""

    def changed(self, model: OpModel) -> OpModel:
        return replace(model, correction=Correction.MULTIPLY)

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        if model.correction is Correction.DIVIDE:
            scalars = scalars._replace(root=round_to_binary32(1 / scalars.root))
        return super().first_update(model, options, scalars, m, v, g)


@caught_by("OPS-1")
class DividesFirst(_OtherOpModel):
    """`step * (m / den)` for `(step * m) / den`."""

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        other = replace(model, update=Update.DIVIDE_THEN_MULTIPLY)
        update = ReferenceBackend.first_update(self, other, options, scalars, m, v, g)
        return update.float() if model.rounds_update else update


class _OtherRounding(ReferenceBackend):
    """Rounds otherwise."""

    rounding: Rounding

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        right = super().first_update(model, options, scalars, m, v, g)
        few = slice(0, 200)  # the exact arithmetic is slow, and one wrong element is enough
        rows = torch.stack([m[few], v[few], g[few]], dim=1)
        right[few] = Step(model, options, scalars, self.rounding).updates(rows)
        return right


@caught_by("OPS-4")
class TiesAwayFromZero(_OtherRounding):
    """`roundf` where the hardware rounds ties to even."""

    rounding = Rounding.TIES_AWAY


@caught_by("OPS-1")
class RoundsTowardZero(_OtherRounding):
    """A truncating multiply-add."""

    rounding = Rounding.TOWARD_ZERO


@caught_by("OPS-1")
class NoBiasCorrectionOfTheRoot(ReferenceBackend):
    """The second bias correction is forgotten."""

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        return super().first_update(model, options, scalars._replace(root=1.0), m, v, g)


@caught_by("OPS-2")
class FlushesSubnormalResults(ReferenceBackend):
    """`-ffast-math` sets flush-to-zero for the process."""

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        update = super().first_update(model, options, scalars, m, v, g)
        return torch.where(update.abs() < 2.0**-126, 0.0 * update, update)


@caught_by("OPS-2")
class NanBecomesZero(ReferenceBackend):
    """`nan_to_num`, so that one bad gradient does not spoil a run."""

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        return super().first_update(model, options, scalars, m, v, g).nan_to_num(nan=0.0)


@caught_by("OPS-3")
class TailHandledAsBody(ReferenceBackend):
    """The last `n % 8` elements in the order of operations of another loop."""

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        update = super().first_update(model, options, scalars, m, v, g)
        whole = len(m) - len(m) % 8
        other = replace(model, second_moment=SecondMoment.FMA_DECAY)
        update[whole:] = super().first_update(other, options, scalars, m[whole:], v[whole:], g[whole:])
        return update


@caught_by("OPS-4")
class OneFormOfTheInterpolation(ReferenceBackend):
    """`m + w*(g - m)` for every weight, where those of one half and more are interpolated from the other end."""

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        return super().first_update(model, replace(options, interpolate_from_end=False), scalars, m, v, g)


@caught_by("OPS-4")
class EpsNeverZero(ReferenceBackend):
    """An eps below 1e-30 is taken for 1e-30, against division by zero."""

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        floored = scalars._replace(eps=max(scalars.eps, round_to_binary32(1e-30)))
        return super().first_update(model, options, floored, m, v, g)
