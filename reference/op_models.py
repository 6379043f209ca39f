"""The named family of op models: which products are fused, which square root is called, what is divided first.

An *op model* is one sequence of rounded operations, given by choices; the step itself is written once, in `adam`.
`implementations` says which op model each element of a tensor follows.

Claimed: nothing by this module alone; each implementation carries the evidence for its sequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Interpolation(Enum):
    """How `m + w*(g - m)` is rounded."""

    SEPARATE = "m + w*(g-m)"  #: three roundings: builds without contraction
    FMA = "fma(w, g-m, m)"  #: GCC's AVX2 build, CUDA single and foreach
    FMA_TWICE = "fma(beta1, m, fma(-beta1, g, g))"  #: CUDA fused: no difference of g and m


class FromEnd(Enum):
    """How the interpolation is written for a weight of at least one half (`beta1 <= 1/2`)."""

    SCALED = "g + (w-1)*(g-m)"  #: vector bodies on CPU
    SUBTRACTED = "g - (g-m)*(1-w)"  #: scalar tails, CUDA; differs from the above only in the sign of a zero product


class SecondMoment(Enum):
    """How `beta2*v + c*g*g` is rounded."""

    SEPARATE = "v*beta2 + (c*g)*g"  #: four roundings: builds without contraction
    SEPARATE_SQUARE = "v*beta2 + c*(g*g)"  #: four roundings, otherwise associated: compiled foreach
    FMA_PRODUCT = "fma(c*g, g, v*beta2)"  #: GCC's AVX2 build, vector body and scalar tail of the unfused kernels
    FMA_DECAY = "fma(v, beta2, (c*g)*g)"  #: the scalar tail of GCC's AVX2 fused kernel
    FMA_SQUARE = "fma(c, g*g, v*beta2)"  #: CUDA single and foreach, compiled single; g*g overflows first
    FMA_TWICE = "fma(beta2, v, fma(-beta2, g*g, g*g))"  #: CUDA fused

    @property
    def squares_first(self) -> bool:
        """Whether `g*g` is formed before it is scaled, so that it overflows for `|g|` above 1.8447e19."""
        return self in {SecondMoment.SEPARATE_SQUARE, SecondMoment.FMA_SQUARE, SecondMoment.FMA_TWICE}


class SquareRoot(Enum):
    """Which square root the kernel calls."""

    CORRECT = "correctly rounded"
    PLATFORM = "torch.sqrt of this platform"  #: the vector library's: a black box within one ulp, monotone


class Correction(Enum):
    """How the root of `v` is corrected for its bias; `root` is the constant that the kernel holds."""

    DIVIDE = "sqrt(v) / root"
    MULTIPLY = "sqrt(v) * root"  #: root is f32(1/sqrt(bc2)), formed in binary64: CUDA single


class Update(Enum):
    """How the update is formed from the new first moment and the denominator."""

    MULTIPLY_THEN_DIVIDE = "p + (step*m)/den"
    DIVIDE_THEN_MULTIPLY = "fma(step, m/den, p)"  #: CUDA single and foreach: the update is never rounded by itself
    QUOTIENT = "p + m/den"  #: capturable and compiled single: the step size is inside the denominator's constants
    DIVIDE_TWICE = "p + m/(den/step)"  #: capturable and compiled foreach


class Maximum(Enum):
    """How amsgrad keeps the largest second moment."""

    TIE_SECOND = "NaN propagates, of equal values the new one"  #: vector bodies
    TIE_FIRST = "NaN propagates, of equal values the old one"  #: scalar tails of the unfused kernel
    NAN_LOST = "vmax < v ? v : vmax"  #: `std::max` in fused kernels: a NaN in `v` is dropped


class L2Decay(Enum):
    """How `g + wd*p` is rounded."""

    SEPARATE = "g + wd*p"
    FMA = "fma(p, wd, g)"


class DecoupledDecay(Enum):
    """How AdamW shrinks the parameter."""

    MULTIPLY = "p * f32(1 - lr*wd)"
    FMA_NEGATED = "fma(-(lr*wd), p, p)"  #: CUDA fused


@dataclass(frozen=True)
class OpModel:
    """A sequence of rounded operations for one element of one Adam step."""

    name: str
    interpolation: Interpolation
    from_end: FromEnd
    second_moment: SecondMoment
    square_root: SquareRoot
    correction: Correction
    update: Update
    maximum: Maximum
    l2_decay: L2Decay
    decoupled_decay: DecoupledDecay

    @property
    def rounds_update(self) -> bool:
        """Whether the update is a binary32 value before it is added to the parameter."""
        return self.update is not Update.DIVIDE_THEN_MULTIPLY
