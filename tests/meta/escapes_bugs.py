"""EXA: slips of the exact fallback."""

# ruff: noqa: D102 - the docstring of a class says what its one method gets wrong

import torch
from tests.meta.seeding import AfterRecovery, caught_by
from torch import Tensor


@caught_by("EXA-1")
class MinusZeroLost(AfterRecovery):
    """A sum with zero."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(m == 0, 0.0, m), v


@caught_by("EXA-1")
class NanPayloadLost(AfterRecovery):
    """NaN is NaN."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(m.isnan(), torch.nan, m), v


@caught_by("EXA-1")
class InfinityClamped(AfterRecovery):
    """The largest finite number in place of infinity."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return m, v.clamp(max=torch.finfo(torch.float32).max)


@caught_by("EXA-1")
class AbsmaxSwallowsNan(AfterRecovery):
    """A maximum that ignores NaN lets its coordinate through to the codec, which makes it zero."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(m.isnan(), 0.0, m), v


@caught_by("EXA-1")
class NegativeSecondMomentClamped(AfterRecovery):
    """`clamp(min=0)` before the root."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return m, torch.where(v < 0, 0.0, v)


@caught_by("EXA-2")
class EscapeLostAtBlockEdge(AfterRecovery):
    """The escape of every block's last element is written by nobody."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        changed = m.clone()
        last = changed.flatten()[255::256]
        changed.view(-1)[255::256] = torch.where(last.isnan(), 0.0, last)
        return changed, v


@caught_by("EXA-2")
class EscapesShiftedByOne(AfterRecovery):
    """The list of escapes is read from its second entry on in tensors of more than one block."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        changed = m.clone()
        flat = changed.view(-1)
        if len(flat) > 4096:
            escaped = flat.isnan()
            flat[escaped] = flat[escaped].roll(1)
        return changed, v


@caught_by("EXA-3")
class ZeroLeavesAResidue(AfterRecovery):
    """An affine map of a block without an exact zero: what never moved gets a trace of a moment."""

    def change(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where((m == 0) & (v == 0), 1e-12 * m.abs().nan_to_num().clamp(max=1.0).amax(), m), v
