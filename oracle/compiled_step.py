"""A step by `torch.compile`, which must not fall back to the step itself: that has other bits.

Nor may it run code that was compiled for another instruction set.  The key of inductor's cache on disk (torch 2.13)
does not hold the capability that `ATEN_CPU_CAPABILITY` asks for; a kernel written for sixteen lanes and then compiled
for eight leaves every second eight elements as they were, without a word.  So where the variable is set, the cache is
neither read nor written.

Claimed: what `compiled_step` returns either runs code compiled for this process or raises.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import torch


def compiled_step(step: Callable[[], Any]) -> Callable[[], None]:
    """The step, compiled when it is first called and whenever sizes or hyperparameters are new.

    Args:
        step: an optimizer's own, such as `optimizer.step`.

    Raises:
        torch._dynamo.exc.FailOnRecompileLimitHit: when called, if torch would rather stop compiling anew.
    """
    dynamo = torch._dynamo  # noqa: SLF001 - its documented interface
    inductor: Any = importlib.import_module("torch._inductor.config")  # slow, and only needed here
    compiled = torch.compile(step)

    def run() -> None:
        with (
            dynamo.config.patch(fail_on_recompile_limit_hit=True),
            inductor.patch(force_disable_caches="ATEN_CPU_CAPABILITY" in os.environ),
        ):
            compiled()

    return run
