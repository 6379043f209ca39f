"""The named family of op models: which product is fused, which square root is called, where a tensor's tail differs.

An *op model* is one sequence of rounded operations; an *implementation* says which op model each element of a
tensor follows.  Both are data: the step itself is written once, in `adam`.

Claimed: on a CPU whose torch build reports the named capability, `torch.optim.Adam` and `AdamW` compute these
sequences bit for bit (NaN payloads apart); the tests compare them on the machine they run on.  Not claimed: other
builds (compilers contract differently), other devices, `capturable`, `differentiable`, tensor betas.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

import torch

from guarded_moments.reference.errors import PlatformError, UnsupportedError


class SecondMoment(Enum):
    """How `beta2*v + c*g*g` is rounded."""

    SEPARATE = "v*beta2 + (c*g)*g"  #: four roundings: builds without contraction
    FMA_PRODUCT = "fma(c*g, g, v*beta2)"  #: GCC's AVX2 build, vector body and scalar tail of the unfused kernels
    FMA_DECAY = "fma(v, beta2, (c*g)*g)"  #: the scalar tail of GCC's AVX2 fused kernel


class FromEnd(Enum):
    """How the interpolation is written for a weight of at least one half (`beta1 <= 1/2`)."""

    SCALED = "g + (w-1)*(g-m)"  #: vector bodies
    SUBTRACTED = "g - (g-m)*(1-w)"  #: scalar tails; differs from the above only in the sign of a zero product


class SquareRoot(Enum):
    """Which square root the kernel calls."""

    CORRECT = "correctly rounded"
    PLATFORM = "torch.sqrt of this platform"  #: the vector library's: a black box within one ulp, monotone


class Maximum(Enum):
    """How amsgrad keeps the largest second moment."""

    TIE_SECOND = "NaN propagates, of equal values the new one"  #: vector bodies
    TIE_FIRST = "NaN propagates, of equal values the old one"  #: scalar tails of the unfused kernel
    NAN_LOST = "vmax < v ? v : vmax"  #: `std::max` in the fused kernel's tail: a NaN in `v` is dropped


@dataclass(frozen=True)
class OpModel:
    """A sequence of rounded operations for one element of one Adam step."""

    name: str
    fused_interpolation: bool  #: `m + w*(g-m)`: is the product fused into the sum?
    from_end: FromEnd
    second_moment: SecondMoment
    square_root: SquareRoot
    maximum: Maximum
    fused_l2_decay: bool  #: `g + wd*p`: is the product fused into the sum?


class TailRule(Enum):
    """Which elements of a contiguous tensor the scalar tail of a kernel handles."""

    LAST_OF_VECTOR = "the last numel % 8"  #: fused kernels; chunks for threads are multiples of 16
    LAST_OF_CHUNK = "the last (chunk length) % 16 of each thread's chunk"  #: unfused kernels


_VECTOR_LENGTH = 8  #: float32 lanes of AVX2, which AVX512 builds use for these kernels too
_UNROLLED_LENGTH = 16  #: unfused kernels run two vectors a turn
_PARALLEL_GRAIN = 32768  #: elements below which torch does not split a tensor over threads


@dataclass(frozen=True)
class Implementation:
    """Which op model each element of a contiguous tensor follows, and how that is known."""

    name: str  #: stored in files: platform, capability and path
    body: OpModel
    tail: OpModel
    tail_rule: TailRule
    evidence: str  #: how the sequences were established

    @property
    def models(self) -> tuple[OpModel, ...]:
        """The distinct op models of the implementation, body first."""
        return (self.body,) if self.body == self.tail else (self.body, self.tail)

    def tail_mask(self, numel: int, threads: int | None = None) -> torch.Tensor:
        """Where `tail` applies: a bool tensor of shape (numel,).

        Args:
            numel: elements of the contiguous tensor.
            threads: intra-op threads of the run; torch's own number by default.
        """
        mask = torch.zeros(numel, dtype=torch.bool)
        if self.tail_rule is TailRule.LAST_OF_VECTOR:
            mask[numel - numel % _VECTOR_LENGTH :] = True
            return mask
        threads = torch.get_num_threads() if threads is None else threads
        chunks = 1 if numel < _PARALLEL_GRAIN else min(threads, -(-numel // _PARALLEL_GRAIN))
        chunk = max(1, -(-numel // chunks))
        for begin in range(0, numel, chunk):
            end = min(numel, begin + chunk)
            mask[end - (end - begin) % _UNROLLED_LENGTH : end] = True
        return mask


def _family(capability: str, *, contracted: bool) -> tuple[Implementation, ...]:
    prefix = f"torch-2.13-cpu-{capability}"
    evidence = f"measured on CPU, {capability} kernels, against torch 2.13.0, by this package's tests"

    def model(path: str, part: str, second: SecondMoment, root: SquareRoot, maximum: Maximum) -> OpModel:
        return OpModel(
            name=f"{prefix}/{path}/{part}",
            fused_interpolation=contracted,
            from_end=FromEnd.SCALED if part == "body" else FromEnd.SUBTRACTED,
            second_moment=second if contracted else SecondMoment.SEPARATE,
            square_root=root,
            maximum=maximum,
            fused_l2_decay=contracted,
        )

    product, decay = SecondMoment.FMA_PRODUCT, SecondMoment.FMA_DECAY
    platform, correct = SquareRoot.PLATFORM, SquareRoot.CORRECT
    unfused = (
        model("single", "body", product, platform, Maximum.TIE_SECOND),
        model("single", "tail", product, platform, Maximum.TIE_FIRST),
    )
    fused = (
        model("fused", "body", product, correct, Maximum.TIE_SECOND),
        model("fused", "tail", decay, correct, Maximum.NAN_LOST),
    )
    return (
        Implementation(f"{prefix}/single", *unfused, TailRule.LAST_OF_CHUNK, evidence),
        Implementation(f"{prefix}/foreach", *unfused, TailRule.LAST_OF_CHUNK, evidence),
        Implementation(f"{prefix}/fused", *fused, TailRule.LAST_OF_VECTOR, evidence),
    )


#: Every implementation this version knows, by name.
IMPLEMENTATIONS: Mapping[str, Implementation] = MappingProxyType(
    {
        implementation.name: implementation
        for implementation in (*_family("avx2", contracted=True), *_family("default", contracted=False))
    }
)

#: What `torch.backends.cpu.get_cpu_capability()` says, and whose kernels run then (AVX512 runs the AVX2 ones).
_KERNELS_OF_CAPABILITY = MappingProxyType({"AVX2": "avx2", "AVX512": "avx2", "DEFAULT": "default"})


def implementation_named(name: str) -> Implementation:
    """The implementation of that name.

    Raises:
        UnsupportedError: there is none; the message lists those there are.
    """
    try:
        return IMPLEMENTATIONS[name]
    except KeyError:
        known = ", ".join(sorted(IMPLEMENTATIONS))
        msg = f"op model {name!r} is not known to this version; known are: {known}"
        raise UnsupportedError(msg) from None


def capability_of_this_machine() -> str:
    """`avx2` or `default`: the kernels that torch's CPU dispatcher has chosen in this process.

    Raises:
        PlatformError: another capability, whose contraction nobody measured.
    """
    capability = torch.backends.cpu.get_cpu_capability()
    try:
        return _KERNELS_OF_CAPABILITY[capability]
    except KeyError:
        msg = (
            f"this machine's torch runs {capability} kernels, whose op sequence is not measured; "
            "name one with --op-model, or set ATEN_CPU_CAPABILITY=default before starting"
        )
        raise PlatformError(msg) from None


def implementation_for(param_group: Mapping[str, Any]) -> Implementation:
    """The implementation that torch on this machine's CPU would use for a param_group.

    `fused=True` selects the fused path and `foreach=True` the foreach path; with neither set, a CPU runs single.
    """
    path = "fused" if param_group.get("fused") else "foreach" if param_group.get("foreach") else "single"
    return implementation_named(f"torch-2.13-cpu-{capability_of_this_machine()}/{path}")


def platform_description() -> str:
    """The CPU capability, torch and environment that decide which bits this machine computes."""
    forced = os.environ.get("ATEN_CPU_CAPABILITY")
    suffix = f" (ATEN_CPU_CAPABILITY={forced})" if forced else ""
    return f"torch {torch.__version__}, CPU capability {torch.backends.cpu.get_cpu_capability()}{suffix}"
