"""A step by `torch.compile`, which must not fall back to the step itself: that has other bits.

Nor may it run code that was compiled for another instruction set: see `compiled_for_this_process`.

Claimed: what `compiled_step` returns either runs code compiled for this process or raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from guarded_moments.reference.kernels.inductor import compiled_for_this_process


def compiled_step(step: Callable[[], Any]) -> Callable[[], None]:
    """The step, compiled when it is first called and whenever sizes or hyperparameters are new.

    Args:
        step: an optimizer's own, such as `optimizer.step`.

    Raises:
        torch._dynamo.exc.FailOnRecompileLimitHit: when called, if torch would rather stop compiling anew.
    """
    dynamo = torch._dynamo  # noqa: SLF001 - its documented interface
    compiled = torch.compile(step)

    def run() -> None:
        with dynamo.config.patch(fail_on_recompile_limit_hit=True), compiled_for_this_process():
            compiled()

    return run
