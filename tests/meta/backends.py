"""Backends with one slip each, of the kind that people make: the reference with a method overridden.

`KILLERS` says which requirement must catch which.
"""

# ruff: noqa: D102 - the docstring of a class says what its one method gets wrong

import copy
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import torch
from torch import Tensor

from guarded_moments.oracle.conformance import Codes, Grids, Moments, ReferenceBackend
from guarded_moments.reference.adam import Jit, Scalars, StepOptions
from guarded_moments.reference.arithmetic.protocol import OrderedArithmetic
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.codecs.log8 import ESCAPE
from guarded_moments.reference.codecs.tables import levels, thresholds
from guarded_moments.reference.guard import GuardConstants, closed_form, in_domain
from guarded_moments.reference.op_models import Interpolation, OpModel, SecondMoment

INFINITY = torch.tensor(torch.inf)


class OneLevelOffByAnUlp(ReferenceBackend):
    """One entry of the decode table was rounded the other way."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        m, v = super().decode(codes, grids)
        return Moments(m, torch.where(codes.v == 77, torch.nextafter(v, INFINITY), v))


class ZeroDecodesToTheFirstLevel(ReferenceBackend):
    """The table has no entry for zero, as that of blockwise 8-bit optimizers."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        return super().decode(Codes(codes.m, codes.v.clamp(min=1)), grids)


class NegativeZeroCode(ReferenceBackend):
    """The escape decodes to minus zero, its sign bit taken for a sign."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        m, v = super().decode(codes, grids)
        return Moments(torch.where(codes.m == ESCAPE, -m, m), v)


class LevelsSwapped(ReferenceBackend):
    """Two neighbouring entries of the table changed places."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        swapped = torch.where(codes.m == 0x85, 0x86, torch.where(codes.m == 0x86, 0x85, codes.m))
        return super().decode(Codes(swapped.to(torch.uint8), codes.v), grids)


class SignLost(ReferenceBackend):
    """Negative codes decode to positive levels."""

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        m, v = super().decode(codes, grids)
        return Moments(m.abs(), v)


class EncodesDown(ReferenceBackend):
    """The level below instead of the nearest."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        below = torch.bucketize(v, levels(grids.v), right=True)
        below = torch.where(v > 0, below.clamp(min=1), 0)
        return Codes(super().encode(m, v, grids).m, below.to(torch.uint8))


class NearestInValue(ReferenceBackend):
    """The level nearest in the number instead of the logarithm."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        table = levels(grids.v).double()
        nearest = torch.bucketize(v.double(), (table[1:] + table[:-1]) / 2, right=True) + 1
        return Codes(super().encode(m, v, grids).m, torch.where(v > 0, nearest, 0).to(torch.uint8))


class TiesDown(ReferenceBackend):
    """A number on the threshold itself goes down."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        index = torch.bucketize(v, thresholds(grids.v), right=False)
        return Codes(super().encode(m, v, grids).m, torch.where(v > 0, index + 1, 0).to(torch.uint8))


class TinyBecomesZero(ReferenceBackend):
    """What is far below the grid is stored as zero."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        codes = super().encode(m, v, grids)
        return Codes(codes.m, torch.where(v < levels(grids.v)[0] / 2, 0, codes.v).to(torch.uint8))


class TinyNegativeIsTheEscape(ReferenceBackend):
    """A small negative moment gets the code that would be minus zero."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        codes = super().encode(m, v, grids)
        tiny = (m < 0) & (m > -levels(grids.m)[0] / 2)
        return Codes(torch.where(tiny, ESCAPE, codes.m).to(torch.uint8), codes.v)


class FirstLevelSkipped(ReferenceBackend):
    """The lowest level is never used."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        codes = super().encode(m, v, grids)
        return Codes(codes.m, torch.where(codes.v == 1, 2, codes.v).to(torch.uint8))


class HugeWrapsAround(ReferenceBackend):
    """The index of a number above the grid overflows its byte."""

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        codes = super().encode(m, v, grids)
        beyond = v > 2 * levels(grids.v)[-1]
        return Codes(codes.m, torch.where(beyond, 1, codes.v).to(torch.uint8))


class _WithoutTerm(ReferenceBackend):
    """A term of the closed form is forgotten."""

    term: str

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        closed_form.bound_inflation()  # counted once and kept: from the whole formula
        make_whole = closed_form.make_bound_terms

        def make_terms(op: OrderedArithmetic[Tensor], jit: Jit) -> Callable[..., closed_form.BoundTerms[Tensor]]:
            whole = make_whole(op, jit)
            return lambda *state: whole(*state)._replace(**{self.term: op.constant(0.0)})

        with mock.patch.object(closed_form, "make_bound_terms", make_terms):
            return super().guard(constants, m, v, m_hat, v_hat)


class WithoutFirstTerm(_WithoutTerm):
    """The first moments' difference."""

    term = "first_moment"


class WithoutSecondTerm(_WithoutTerm):
    """What the denominators' difference does to the first moment."""

    term = "second_moment"


class WithoutThirdTerm(ReferenceBackend):
    """`w P`: what the denominators' difference does to the gradient."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        closed_form.bound_inflation()  # counted once and kept: from the whole formula
        zero = mock.Mock(return_value=torch.tensor(0.0, dtype=torch.float64))
        with mock.patch.object(closed_form, "make_third_term", return_value=zero):
            return super().guard(constants, m, v, m_hat, v_hat)


class WithoutSlack(ReferenceBackend):
    """The formula of real numbers, as if binary32 did not round."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        exact = constants._replace(slack_moment=0.0, slack_reciprocal=0.0, slack_gradient=0.0, slack_floor=0.0)
        return super().guard(exact, m, v, m_hat, v_hat)


class WithoutFirstBiasCorrection(ReferenceBackend):
    """The learning rate in place of the step size: early updates are larger than it thinks."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        uncorrected = constants._replace(step=0.5 * constants.step)
        return super().guard(uncorrected, m, v, m_hat, v_hat)


class WithoutSecondBiasCorrection(ReferenceBackend):
    """`v` as stored in place of `v` over its bias correction is too small; the guard takes it for too large."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return super().guard(constants._replace(radicand=2 * constants.radicand), m, v, m_hat, v_hat)


class EpsInsideTheRoot(ReferenceBackend):
    """`sqrt(v + eps)` for `sqrt(v) + eps`: a denominator that is never small."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return super().guard(constants._replace(eps=constants.eps**0.5), m, v, m_hat, v_hat)


class _Sampling(ReferenceBackend):
    """A guard that evaluates the real formula at some gradients, with the reference's slack."""

    margin = 1.0

    def gradients(self, bound: float) -> Tensor:
        raise NotImplementedError

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        k = constants
        g = self.gradients(k.gradient_bound).double().unsqueeze(1)

        def update(m: Tensor, v: Tensor) -> Tensor:
            denominator = (k.radicand * v.double() + k.curvature * g * g).sqrt() + k.eps
            return k.step * (k.complement * m.double() + k.w * g) / denominator

        def slack(m: Tensor, v: Tensor) -> Tensor:
            reciprocal = 1 / ((k.radicand * v.double()).sqrt() + k.eps)
            proportional = (k.slack_moment * m.double().abs() + k.slack_reciprocal) * reciprocal
            return k.step * (proportional + k.slack_gradient) + k.slack_floor

        worst = (update(m_hat, v_hat) - update(m, v)).abs().amax(dim=0)
        bound = self.margin * worst + slack(m, v) + slack(m_hat, v_hat)
        return (bound <= k.threshold) & in_domain(m, v) & in_domain(m_hat, v_hat)


class OnlyGradientZero(_Sampling):
    """The update is compared where no gradient arrives."""

    def gradients(self, bound: float) -> Tensor:  # noqa: ARG002 - as the others
        return torch.zeros(1)


class OnlyPositiveGradients(_Sampling):
    """Negative gradients are taken for mirror images of positive ones."""

    margin = 1.1  # for what lies between the sampled ones: it errs by the sign alone

    def gradients(self, bound: float) -> Tensor:
        sizes = torch.logspace(-14, 14, 141, dtype=torch.float64)
        return torch.cat([torch.zeros(1), sizes[sizes < bound], torch.tensor([min(bound, 1e30)])])


class OnlyGradientsAtTheBound(_Sampling):
    """The largest gradient is taken for the worst."""

    def gradients(self, bound: float) -> Tensor:
        return torch.tensor([-bound, bound]).clamp(-1e30, 1e30)


class HalfTheGradientBound(ReferenceBackend):
    """The gradient bound of one worker, where two are summed."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        halved = constants._replace(gradient_bound=constants.gradient_bound / 2)
        return super().guard(halved, m, v, m_hat, v_hat)


class AcceptsNan(ReferenceBackend):
    """`not (bound > tau)` in place of `bound <= tau`."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        accepted = super().guard(constants, m, v, m_hat, v_hat)
        return accepted | torch.stack([m, v, m_hat, v_hat]).isnan().any(dim=0)


class TakesNegativeForPositive(ReferenceBackend):
    """The root of the magnitude."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return super().guard(constants, m, v.abs(), m_hat, v_hat.abs())


class AcceptsEqualInfinities(ReferenceBackend):
    """Equal states are accepted before anything else is looked at."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return super().guard(constants, m, v, m_hat, v_hat) | ((m == m_hat) & (v == v_hat))


class AcceptsNothing(ReferenceBackend):
    """Sound, and of no use."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return super().guard(constants, m, v, m_hat, v_hat) & (m == m_hat) & (v == v_hat)


class _OtherOpModel(ReferenceBackend):
    """The first update of a changed op model."""

    def changed(self, model: OpModel) -> OpModel:
        raise NotImplementedError

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        return super().first_update(self.changed(model), options, scalars, m, v, g)


class FirstMomentContracted(_OtherOpModel):
    """A compiler fused the interpolation's product, or did not."""

    def changed(self, model: OpModel) -> OpModel:
        other = Interpolation.FMA if model.interpolation is Interpolation.SEPARATE else Interpolation.SEPARATE
        return replace(model, interpolation=other)


class SecondMomentContracted(_OtherOpModel):
    """A compiler fused the other product of the second moment."""

    def changed(self, model: OpModel) -> OpModel:
        other = SecondMoment.FMA_DECAY if model.second_moment is SecondMoment.FMA_PRODUCT else SecondMoment.FMA_PRODUCT
        return replace(model, second_moment=other)


class ConstantRoundedTwice(ReferenceBackend):
    """`f32(1 - beta2)` computed as `1 - f32(beta2)`."""

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        twice = scalars._replace(c=1 - scalars.beta2)
        return super().first_update(model, options, twice, m, v, g)


class FlushesSubnormals(ReferenceBackend):
    """Subnormal moments are taken for zero."""

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        m, v = (torch.where(x.abs() < 2.0**-126, 0.0, x) for x in (m, v))
        return super().first_update(model, options, scalars, m, v, g)


class _AfterRecovery(ReferenceBackend):
    """What comes back is changed, parameter by parameter."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def recover(self, content: bytes) -> StateDict:
        state = super().recover(content)
        for entry in state["state"].values():
            entry["exp_avg"], entry["exp_avg_sq"] = self.change(entry["exp_avg"], entry["exp_avg_sq"])
        return state


class MinusZeroLost(_AfterRecovery):
    """A sum with zero."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(m == 0, 0.0, m), v


class NanPayloadLost(_AfterRecovery):
    """NaN is NaN."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(m.isnan(), torch.nan, m), v


class InfinityClamped(_AfterRecovery):
    """The largest finite number in place of infinity."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return m, v.clamp(max=torch.finfo(torch.float32).max)


class FirstMomentHalved(_AfterRecovery):
    """The first moment's scale, halved: the test of a well-known library passes with it."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return m / 2, v


class SecondMomentShrunk(_AfterRecovery):
    """The second moment's scale times 0.95, rounded after the guard had seen it."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return m, 0.95 * v


class StepCountLost(ReferenceBackend):
    """The run resumes at step one."""

    def recover(self, content: bytes) -> StateDict:
        state = copy.deepcopy(super().recover(content))
        for entry in state["state"].values():
            entry["step"] = torch.zeros_like(entry["step"])
        return state


#: The requirement that must catch each.
KILLERS: dict[Callable[[], ReferenceBackend], str] = {
    OneLevelOffByAnUlp: "DEC-1",
    SignLost: "DEC-1",
    ZeroDecodesToTheFirstLevel: "DEC-2",
    NegativeZeroCode: "DEC-2",
    LevelsSwapped: "DEC-3",
    EncodesDown: "ENC-1",
    NearestInValue: "ENC-1",
    TiesDown: "ENC-1",
    TinyBecomesZero: "ENC-2",
    TinyNegativeIsTheEscape: "ENC-2",
    FirstLevelSkipped: "ENC-3",
    HugeWrapsAround: "ENC-4",
    WithoutFirstTerm: "GRD-1",
    WithoutSecondTerm: "GRD-1",
    WithoutThirdTerm: "GRD-1",
    WithoutSlack: "GRD-1",
    WithoutFirstBiasCorrection: "GRD-1",
    WithoutSecondBiasCorrection: "GRD-1",
    EpsInsideTheRoot: "GRD-1",
    OnlyGradientZero: "GRD-1",
    OnlyPositiveGradients: "GRD-1",
    OnlyGradientsAtTheBound: "GRD-1",
    HalfTheGradientBound: "GRD-1",
    AcceptsNan: "GRD-2",
    TakesNegativeForPositive: "GRD-2",
    AcceptsEqualInfinities: "GRD-2",
    AcceptsNothing: "GRD-3",
    FirstMomentContracted: "OPS-1",
    SecondMomentContracted: "OPS-1",
    ConstantRoundedTwice: "OPS-1",
    FlushesSubnormals: "OPS-1",
    MinusZeroLost: "EXA-1",
    NanPayloadLost: "EXA-1",
    InfinityClamped: "EXA-1",
    FirstMomentHalved: "REC-1",
    SecondMomentShrunk: "REC-1",
    StepCountLost: "REC-1",
}
