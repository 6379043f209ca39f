"""Which op model each element of a tensor follows, by platform and path, and how that is known.

Claimed: on a CPU whose torch build reports the named capability, `torch.optim.Adam` and `AdamW` compute the
`torch-2.13-cpu` sequences bit for bit (NaN payloads apart): the tests compare them on the machine they run on.  The
CUDA sequences were emulated from machine code or read from source and have run on no GPU here; their `evidence` says
so wherever they show.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.adam import Decay, Scalars, StepOptions
from guarded_moments.reference.errors import PlatformError, UnsupportedError
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.op_models import (
    Correction,
    DecoupledDecay,
    FromEnd,
    Interpolation,
    L2Decay,
    Maximum,
    OpModel,
    SecondMoment,
    SquareRoot,
    Update,
)
from guarded_moments.reference.scalars import Constants, kernel_scalars


class Evidence(Enum):
    """How op sequences are known; only a run on the hardware turns the last two into the first."""

    MEASURED = "measured"  #: compared bit for bit with the real kernels, on the machine that runs the tests
    EMULATED = "emulated from machine code"  #: the kernels' disassembly was executed in an interpreter
    SOURCE = "read from source"


class Placement(Enum):
    """Which elements of a contiguous tensor follow the second op model of an implementation."""

    NOWHERE = "none"
    LAST_OF_VECTOR = "the last numel % 8"  #: fused CPU kernels; chunks for threads are multiples of 16
    LAST_OF_CHUNK = "the last (chunk length) % 16 of each thread's chunk"  #: unfused CPU kernels
    FIRST_SLOT = "with L2 decay, the first of each thread's four elements, all of them with maximize"  #: CUDA fused


_VECTOR_LENGTH = 8  #: float32 lanes of AVX2, which AVX512 builds use for these kernels too
_UNROLLED_LENGTH = 16  #: unfused kernels run two vectors a turn
_PARALLEL_GRAIN = 32768  #: elements below which torch does not split a tensor over threads
_CUDA_SLOTS = 4  #: elements a thread of a multi-tensor kernel handles at a time
_CUDA_BLOCK = 512  #: its threads
_CUDA_CHUNK = 65536  #: elements of a tensor that one block of threads handles


@dataclass(frozen=True)
class Implementation:
    """The op models of a platform's path, where each applies, how its constants are formed, and how that is known."""

    name: str  #: stored in files: platform, capability and path
    models: tuple[OpModel, ...]  #: one, or two with the second where `placement` says
    placement: Placement
    constants: Constants
    evidence: Evidence
    remark: str  #: what the evidence is, and of which build

    @property
    def body(self) -> OpModel:
        """The op model of most elements."""
        return self.models[0]

    def scalars(self, hyperparameters: Hyperparameters, step: float) -> Scalars[float]:
        """The constants that the kernel holds at update number `step`."""
        return kernel_scalars(hyperparameters, step, self.constants, self.body.correction)

    def assign(self, numel: int, options: StepOptions, threads: int | None = None) -> Tensor:
        """The index into `models` of each element of a contiguous tensor: int64, shape (numel,).

        Args:
            numel: elements of the tensor.
            options: the per-tensor choices; CUDA's fused kernel contracts differently with some.
            threads: intra-op threads of the run, for CPU kernels; torch's own number by default.
        """
        assigned = torch.zeros(numel, dtype=torch.int64)
        assigned[self.second_places(numel, options, slice(0, numel), threads)] = 1
        return assigned

    def second_places(self, numel: int, options: StepOptions, within: slice, threads: int | None = None) -> Tensor:
        """The elements that follow the second op model among `within`, ascending: int64.

        Args:
            numel: elements of the tensor.
            options: as in `assign`.
            within: a stretch of the tensor, its ends given.
            threads: as in `assign`.
        """
        if self.placement is Placement.LAST_OF_VECTOR:
            return _shared(within, numel - numel % _VECTOR_LENGTH, numel)
        if self.placement is Placement.LAST_OF_CHUNK:
            threads = torch.get_num_threads() if threads is None else threads
            chunks = 1 if numel < _PARALLEL_GRAIN else min(threads, -(-numel // _PARALLEL_GRAIN))
            chunk = max(1, -(-numel // chunks))
            lengths = ((begin, min(numel, begin + chunk)) for begin in range(0, numel, chunk))
            tails = [_shared(within, end - (end - begin) % _UNROLLED_LENGTH, end) for begin, end in lengths]
            return torch.cat(tails) if tails else torch.empty(0, dtype=torch.int64)
        if self.placement is Placement.FIRST_SLOT and options.decay is Decay.L2 and not options.amsgrad:
            place = _shared(within, 0, numel)
            # Vectorised loads need a multiple of four elements (and aligned pointers, which torch's allocator gives).
            vectorised = numel % _CUDA_SLOTS == 0
            slot = (
                place % _CUDA_SLOTS
                if vectorised
                else (place % _CUDA_CHUNK) % (_CUDA_SLOTS * _CUDA_BLOCK) // _CUDA_BLOCK
            )
            return place[(slot == 0) | options.maximize]
        return torch.empty(0, dtype=torch.int64)

    def steps_alike(self, options: StepOptions) -> bool:
        """Whether all op models give the same step, as they differ in nothing that these options use."""
        unused = {"name"}
        unused |= set() if options.amsgrad else {"maximum"}
        unused |= set() if options.decay is Decay.L2 else {"l2_decay"}
        unused |= set() if options.decay is Decay.DECOUPLED else {"decoupled_decay"}
        return self._alike(unused | self._unused_from_end(options))

    def _unused_from_end(self, options: StepOptions) -> set[str]:
        return set() if options.interpolate_from_end else {"from_end"}

    def _alike(self, unused: Iterable[str]) -> bool:
        """Whether the op models differ in nothing but these fields."""
        common: dict[str, Any] = {name: getattr(self.body, name) for name in unused}
        return all(replace(model, **common) == self.body for model in self.models)

    def update_regions(
        self, options: StepOptions, numel: int, within: slice | None = None
    ) -> list[tuple[OpModel, Tensor]]:
        """Which op model the *update* of each element follows: pairs of a model and a bool mask, each element in one.

        Of a tensor of `numel` elements, or of a stretch of it, its ends given.

        Regions are joined where their models differ only in what `options` leaves unused or in what precedes the
        moments, since the claim is about the gradient as it enters the moments.
        """
        within = within or slice(0, numel)
        if self._alike({"name", "maximum", "l2_decay", "decoupled_decay"} | self._unused_from_end(options)):
            return [(self.body, torch.ones(within.stop - within.start, dtype=torch.bool))]
        second = torch.zeros(within.stop - within.start, dtype=torch.bool)
        second[self.second_places(numel, options, within) - within.start] = True
        return [(self.models[0], ~second), (self.models[1], second)]


def _shared(within: slice, first: int, last: int) -> Tensor:
    """The places from `first` up to `last` that are within a slice."""
    begin = max(first, within.start)
    return torch.arange(begin, max(begin, min(last, within.stop)))


def _cpu(capability: str, *, contracted: bool) -> tuple[Implementation, ...]:
    prefix = f"torch-2.13-cpu-{capability}"
    remark = f"torch 2.13.0, CPU, {capability} kernels (GCC 13.3), compared by this package's tests where they run"

    def model(path: str, part: str, second: SecondMoment, root: SquareRoot, maximum: Maximum) -> OpModel:
        return OpModel(
            name=f"{prefix}/{path}/{part}",
            interpolation=Interpolation.FMA if contracted else Interpolation.SEPARATE,
            from_end=FromEnd.SCALED if part == "body" else FromEnd.SUBTRACTED,
            second_moment=second if contracted else SecondMoment.SEPARATE,
            square_root=root,
            correction=Correction.DIVIDE,
            update=Update.MULTIPLY_THEN_DIVIDE,
            maximum=maximum,
            l2_decay=L2Decay.FMA if contracted else L2Decay.SEPARATE,
            decoupled_decay=DecoupledDecay.MULTIPLY,
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
    return tuple(
        Implementation(f"{prefix}/{path}", models, placement, Constants.HOST, Evidence.MEASURED, remark)
        for path, models, placement in (
            ("single", unfused, Placement.LAST_OF_CHUNK),
            ("foreach", unfused, Placement.LAST_OF_CHUNK),
            ("fused", fused, Placement.LAST_OF_VECTOR),
        )
    )


def _compiled() -> tuple[Implementation, ...]:
    remark = "torch.compile of the step, torch 2.13.0 inductor on CPU (AVX512, AVX2 or neither), compared by the tests"

    def implementation(name: str, second: SecondMoment, update: Update, constants: Constants) -> Implementation:
        model = OpModel(
            name=name,
            interpolation=Interpolation.SEPARATE,
            from_end=FromEnd.SUBTRACTED,
            second_moment=second,
            square_root=SquareRoot.CORRECT,
            correction=Correction.DIVIDE,
            update=update,
            maximum=Maximum.TIE_SECOND,
            l2_decay=L2Decay.SEPARATE,
            decoupled_decay=DecoupledDecay.MULTIPLY,
        )
        return Implementation(name, (model,), Placement.NOWHERE, constants, Evidence.MEASURED, remark)

    name = "torch-2.13-cpu-avx2/compiled"
    return (
        implementation(name, SecondMoment.FMA_SQUARE, Update.QUOTIENT, Constants.COMPILED),
        implementation(
            f"{name}-foreach", SecondMoment.SEPARATE_SQUARE, Update.DIVIDE_TWICE, Constants.COMPILED_FOREACH
        ),
    )


def _cuda() -> tuple[Implementation, ...]:
    seen = (
        "kernels of torch 2.14.1 (CUDA 13.0) disassembled and executed in an interpreter; 2.13's headers are the same"
    )

    def unfused(path: str, correction: Correction, update: Update) -> OpModel:
        return OpModel(
            name=f"torch-2.14-cuda/{path}",
            interpolation=Interpolation.FMA,
            from_end=FromEnd.SUBTRACTED,
            second_moment=SecondMoment.FMA_SQUARE,
            square_root=SquareRoot.CORRECT,
            correction=correction,
            update=update,
            maximum=Maximum.TIE_FIRST,
            l2_decay=L2Decay.FMA,
            decoupled_decay=DecoupledDecay.MULTIPLY,
        )

    def fused(name: str, l2_decay: L2Decay) -> OpModel:
        return OpModel(
            name=name,
            interpolation=Interpolation.FMA_TWICE,
            from_end=FromEnd.SUBTRACTED,
            second_moment=SecondMoment.FMA_TWICE,
            square_root=SquareRoot.CORRECT,
            correction=Correction.DIVIDE,
            update=Update.MULTIPLY_THEN_DIVIDE,
            maximum=Maximum.NAN_LOST,
            l2_decay=l2_decay,
            decoupled_decay=DecoupledDecay.FMA_NEGATED,
        )

    older, newer = "torch-2.14-cuda-sm75-sm90/fused", "torch-2.14-cuda-sm100-sm120/fused"
    uniform = Placement.NOWHERE
    return (
        Implementation(
            "torch-2.14-cuda/single",
            (unfused("single", Correction.MULTIPLY, Update.DIVIDE_THEN_MULTIPLY),),
            uniform,
            Constants.HOST,
            Evidence.EMULATED,
            seen,
        ),
        Implementation(
            "torch-2.14-cuda/foreach",
            (unfused("foreach", Correction.DIVIDE, Update.DIVIDE_THEN_MULTIPLY),),
            uniform,
            Constants.HOST,
            Evidence.EMULATED,
            seen,
        ),
        Implementation(
            "torch-2.14-cuda/capturable",
            (unfused("capturable", Correction.DIVIDE, Update.QUOTIENT),),
            uniform,
            Constants.CAPTURABLE,
            Evidence.SOURCE,
            "torch/optim/adam.py of 2.13.0; never run",
        ),
        Implementation(
            "torch-2.14-cuda/capturable-foreach",
            (unfused("capturable-foreach", Correction.DIVIDE, Update.DIVIDE_TWICE),),
            uniform,
            Constants.CAPTURABLE_FOREACH,
            Evidence.SOURCE,
            "torch/optim/adam.py of 2.13.0; never run",
        ),
        Implementation(
            older,
            (fused(f"{older}/fused decay", L2Decay.FMA), fused(f"{older}/separate decay", L2Decay.SEPARATE)),
            Placement.FIRST_SLOT,
            Constants.DEVICE,
            Evidence.EMULATED,
            seen,
        ),
        Implementation(newer, (fused(newer, L2Decay.FMA),), uniform, Constants.DEVICE, Evidence.EMULATED, seen),
    )


#: Every implementation this version knows, by name.
IMPLEMENTATIONS: Mapping[str, Implementation] = MappingProxyType(
    {
        implementation.name: implementation
        for implementation in (
            *_cpu("avx2", contracted=True),
            *_cpu("default", contracted=False),
            *_compiled(),
            *_cuda(),
        )
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

    Raises:
        UnsupportedError: the group is capturable, which no CPU runs.
        PlatformError: this CPU's kernels were never measured.
    """
    if param_group.get("capturable"):
        msg = (
            "capturable=True runs on CUDA only: name the op model of the run that will resume with --op-model, "
            "such as torch-2.14-cuda/capturable"
        )
        raise UnsupportedError(msg)
    path = "fused" if param_group.get("fused") else "foreach" if param_group.get("foreach") else "single"
    return implementation_named(f"torch-2.13-cpu-{capability_of_this_machine()}/{path}")


def platform_description() -> str:
    """The CPU capability, torch and environment that decide which bits this machine computes."""
    forced = os.environ.get("ATEN_CPU_CAPABILITY")
    suffix = f" (ATEN_CPU_CAPABILITY={forced})" if forced else ""
    return f"torch {torch.__version__}, CPU capability {torch.backends.cpu.get_cpu_capability()}{suffix}"
