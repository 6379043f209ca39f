"""GRD: slips of guards."""

# ruff: noqa: D102 - the docstring of a class says what its one method gets wrong

from collections.abc import Callable
from unittest import mock

import torch
from tests.meta.seeding import caught_by
from torch import Tensor

from guarded_moments.oracle.conformance import ReferenceBackend
from guarded_moments.reference.adam import Jit
from guarded_moments.reference.arithmetic.protocol import OrderedArithmetic
from guarded_moments.reference.guard import GuardConstants, closed_form, in_domain
from guarded_moments.reference.guard.enclosure import enclose
from guarded_moments.reference.guard.search import States


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


@caught_by("GRD-1")
class WithoutFirstTerm(_WithoutTerm):
    """The first moments' difference."""

    term = "first_moment"


@caught_by("GRD-1")
class WithoutSecondTerm(_WithoutTerm):
    """What the denominators' difference does to the first moment."""

    term = "second_moment"


@caught_by("GRD-1")
class WithoutThirdTerm(ReferenceBackend):
    """`w P`: what the denominators' difference does to the gradient."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        closed_form.bound_inflation()  # counted once and kept: from the whole formula
        zero = mock.Mock(return_value=torch.tensor(0.0, dtype=torch.float64))
        with mock.patch.object(closed_form, "make_third_term", return_value=zero):
            return super().guard(constants, m, v, m_hat, v_hat)


@caught_by("GRD-1")
class WithoutSlack(ReferenceBackend):
    """The formula of real numbers, as if binary32 did not round."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        exact = constants._replace(slack_moment=0.0, slack_reciprocal=0.0, slack_gradient=0.0, slack_floor=0.0)
        return super().guard(exact, m, v, m_hat, v_hat)


@caught_by("GRD-1")
class WithoutFirstBiasCorrection(ReferenceBackend):
    """The learning rate in place of the step size: early updates are larger than it thinks."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        uncorrected = constants._replace(step=0.5 * constants.step)
        return super().guard(uncorrected, m, v, m_hat, v_hat)


@caught_by("GRD-1")
class WithoutSecondBiasCorrection(ReferenceBackend):
    """`v` as stored in place of `v` over its bias correction is too small; the guard takes it for too large."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return super().guard(constants._replace(radicand=2 * constants.radicand), m, v, m_hat, v_hat)


@caught_by("GRD-1")
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


@caught_by("GRD-1")
class OnlyGradientZero(_Sampling):
    """The update is compared where no gradient arrives."""

    def gradients(self, bound: float) -> Tensor:  # noqa: ARG002 - as the others
        return torch.zeros(1)


@caught_by("GRD-1")
class OnlyPositiveGradients(_Sampling):
    """Negative gradients are taken for mirror images of positive ones."""

    margin = 1.1  # for what lies between the sampled ones: it errs by the sign alone

    def gradients(self, bound: float) -> Tensor:
        sizes = torch.logspace(-14, 14, 141, dtype=torch.float64)
        return torch.cat([torch.zeros(1), sizes[sizes < bound], torch.tensor([min(bound, 1e30)])])


@caught_by("GRD-1")
class OnlyGradientsAtTheBound(_Sampling):
    """The largest gradient is taken for the worst."""

    def gradients(self, bound: float) -> Tensor:
        return torch.tensor([-bound, bound]).clamp(-1e30, 1e30)


@caught_by("GRD-1")
class HalfTheGradientBound(ReferenceBackend):
    """The gradient bound of one worker, where two are summed."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        halved = constants._replace(gradient_bound=constants.gradient_bound / 2)
        return super().guard(halved, m, v, m_hat, v_hat)


@caught_by("GRD-2")
class AcceptsNan(ReferenceBackend):
    """`not (bound > tau)` in place of `bound <= tau`."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        accepted = super().guard(constants, m, v, m_hat, v_hat)
        return accepted | torch.stack([m, v, m_hat, v_hat]).isnan().any(dim=0)


@caught_by("GRD-2")
class TakesNegativeForPositive(ReferenceBackend):
    """The root of the magnitude."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return super().guard(constants, m, v.abs(), m_hat, v_hat.abs())


@caught_by("GRD-2")
class AcceptsEqualInfinities(ReferenceBackend):
    """Equal states are accepted before anything else is looked at."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return super().guard(constants, m, v, m_hat, v_hat) | ((m == m_hat) & (v == v_hat))


@caught_by("GRD-3")
class AcceptsNothing(ReferenceBackend):
    """Sound, and of no use."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return super().guard(constants, m, v, m_hat, v_hat) & (m == m_hat) & (v == v_hat)


@caught_by("GRD-1")
class AdmitsTwiceTheTolerance(ReferenceBackend):
    """The tolerance is taken for each of the two updates."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return super().guard(constants._replace(threshold=2 * constants.threshold), m, v, m_hat, v_hat)


@caught_by("GRD-1")
class WeightOfThePresentGradientOnly(ReferenceBackend):
    """`beta1` and `1 - beta1` exchanged."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        exchanged = constants._replace(w=constants.complement, complement=constants.w)
        return super().guard(exchanged, m, v, m_hat, v_hat)


@caught_by("GRD-1")
class ChecksTheUnroundedScale(ReferenceBackend):
    """The guard sees the second moment before its last rounding: eight bits of it here."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        nearer = (v.double() + 0.97 * (v_hat.double() - v.double())).float()
        return super().guard(constants, m, v, m_hat, nearer)


@caught_by("GRD-1")
class GradientBoundForPositiveOnly(_Sampling):
    """Negative gradients are looked at up to a thousandth of the bound."""

    margin = 1.1

    def gradients(self, bound: float) -> Tensor:
        sizes = torch.logspace(-14, 14, 141, dtype=torch.float64)
        positive = sizes[sizes < bound]
        return torch.cat([torch.zeros(1), positive, -positive[positive < min(bound, 1.0) / 1000]])


@caught_by("GRD-2")
class MinimumSwallowsNan(ReferenceBackend):
    """`fmin` of the bound and infinity drops a NaN and leaves the other operand, a bound of zero."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        cleaned = [torch.where(moment.isnan(), torch.zeros_like(moment), moment) for moment in (m, v, m_hat, v_hat)]
        return super().guard(constants, *cleaned)


@caught_by("GRD-2")
class NothingIsHuge(ReferenceBackend):
    """Infinities are clamped to the largest number before they are judged."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        clamped = [moment.clamp(-(2.0**50), 2.0**90) for moment in (m, v, m_hat, v_hat)]
        return super().guard(constants, *clamped)


@caught_by("GRD-3")
class AcceptsEverythingInDomain(ReferenceBackend):
    """The tolerance is set out of reach, as for a measurement, and stays so."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return super().guard(constants._replace(threshold=1e300), m, v, m_hat, v_hat)


@caught_by("GRD-4")
class TailIsAccepted(ReferenceBackend):
    """The mask of a last short vector starts as all ones."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        accepted = super().guard(constants, m, v, m_hat, v_hat)
        accepted[len(m) - len(m) % 4 :] |= len(m) > 4
        return accepted


@caught_by("GRD-4")
class OneBlockOneVerdict(ReferenceBackend):
    """A warp votes: an element is accepted where most of its 32 are."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        accepted = super().guard(constants, m, v, m_hat, v_hat)
        for begin in range(0, len(m), 32):
            block = accepted[begin : begin + 32]
            block.fill_(bool(block.double().mean() > 0.5))
        return accepted


@caught_by("GRD-5")
class InBinary32WithoutSlack(ReferenceBackend):
    """The worst deviation is known, and compared with the tolerance in binary32."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        generous = constants.threshold * (1 + 2.0**-23)
        exact = constants._replace(
            threshold=generous, slack_moment=0.0, slack_reciprocal=0.0, slack_gradient=0.0, slack_floor=0.0
        )
        worst = enclose(exact, States(m, v, m_hat, v_hat)).lower * exact.step
        return (worst <= generous) & in_domain(m, v) & in_domain(m_hat, v_hat)


@caught_by("GRD-6")
class ZeroSecondMomentSkipped(ReferenceBackend):
    """Where `v` is stored as zero there is nothing to divide by, so nothing is checked."""

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return super().guard(constants, m, v, m_hat, v_hat) | ((v_hat == 0) & in_domain(m, v) & in_domain(m_hat, v))
