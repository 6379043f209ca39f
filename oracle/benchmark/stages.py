"""What a codec costs, stage by stage: the product's own functions on whole tensors, one torch thread, processor time.

    choose    the codec's parameters from the data
    encode    the nearest codes, and where the guard is defined
    guard     decode, closed form, and the alternatives of a codec that has any
    escape    mark what is rejected, and gather its exact pairs
    recover   decode all of it, exact pairs in place

Claimed: the stages are those of `compress` with the closed form and of `recover`, in their order; only files are left
out.  Processor time does not count what other programs take, but caches and memory are shared with them all the same:
seconds of one machine on one day mean little, ratios within one run something.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.encoding import BLOCK, encode_block, judge_block
from guarded_moments.reference.checkpoint.state import decoded
from guarded_moments.reference.codecs import Codec, Codes
from guarded_moments.reference.codecs.compiled_ranges import CompiledClosedForm
from guarded_moments.reference.guard import GuardConstants

if TYPE_CHECKING:
    from guarded_moments.reference.kernels.codecs import Kernel

STAGES = ("choose", "encode", "guard", "escape", "recover")
#: What the total is of: the grids may come from the last checkpoint, and are shown apart.
TOTAL = STAGES[1:]
#: Of the compiled loops; together they do what the stages of the total do.
PASSES = ("compress", "recover")


@dataclass(frozen=True)
class Work:
    """One tensor's moments, flat, and the constants of its guard."""

    m: Tensor
    v: Tensor
    constants: GuardConstants[float]


class Stopwatch:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time what is done inside."""
        started = time.process_time()
        yield
        self.seconds[stage] += time.process_time() - started


def run(kind: type[Codec], works: Sequence[Work]) -> tuple[dict[str, float], int]:
    """Seconds by stage, and how many coordinates escaped, of one pass over all tensors."""
    clock, escapes = Stopwatch(), 0
    for work in works:
        m, v = work.m, work.v
        with clock("choose"):
            codec = kind.fit(m, v, CompiledClosedForm(work.constants))
        codes = Codes(*(torch.empty(len(m), dtype=codec.code_type) for _ in range(2)))
        accepted = torch.empty(len(m), dtype=torch.bool)
        for begin in range(0, len(m), BLOCK):
            block = slice(begin, begin + BLOCK)
            with clock("encode"):
                covered, encoded = encode_block(codec, m[block], v[block], begin)
            with clock("guard"):
                judged = judge_block(codec, work.constants, m[block], v[block], covered, encoded, begin)
                codes.m[block], codes.v[block], accepted[block] = judged.codes.m, judged.codes.v, judged.accepted
        with clock("escape"):
            escaped = ~accepted
            codes = codec.escape(codes, escaped)
            pairs = torch.stack([m[escaped], v[escaped]], dim=1)
        with clock("recover"):
            decoded(codec, *codes, pairs)
        escapes += len(pairs)
    return clock.seconds, escapes


def run_compiled(kernels: Sequence[Kernel], works: Sequence[Work]) -> dict[str, float]:
    """Seconds of the compiled loops over all tensors: encode, guard and escape in one pass, recover in another."""
    seconds = dict.fromkeys(PASSES, 0.0)
    for kernel, work in zip(kernels, works, strict=True):
        started = time.process_time()
        found = kernel.guarded(work.constants, work.m, work.v)
        guarded = time.process_time()
        kernel.recovered(*found)
        seconds["compress"] += guarded - started
        seconds["recover"] += time.process_time() - guarded
    return seconds


def seconds_of(job: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    started = time.process_time()
    job()
    return time.process_time() - started
