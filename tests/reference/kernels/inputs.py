"""What kernels are compared on: codecs, claims, and moments of every kind."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.codecs import BFloat16, Codec, FloatGrid, Lin8, Log8, LogGrid, Ratio8
from guarded_moments.reference.codecs.tables import levels, thresholds
from guarded_moments.reference.guard import GuardConstants, guard_constants
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import implementation_named

PATH = "torch-2.13-cpu-avx2/foreach"
#: As a trained tensor's, wide, as narrow as a file may hold, and at both ends of the format; `low` and `high` of each.
SPANS = (((-22.0, -8.0), (-44.0, -16.0)), ((-126.0, 127.0), (-126.0, 127.0)), ((-10.0, -9.99), (-20.0, -19.99)))


def codecs() -> Iterator[Codec]:
    """Each codec that has loops, on each span."""
    for (m_low, m_high), (v_low, v_high) in SPANS:
        yield Log8(LogGrid.spanning(m_low, m_high, 127), LogGrid.spanning(v_low, v_high, 255))
        yield Lin8(FloatGrid.spanning(m_low, m_high, 127), FloatGrid.spanning(v_low, v_high, 255))
    yield Lin8(FloatGrid(1 << 23, 16910368, 127), FloatGrid(1 << 23, 1, 255))  # the widest and the narrowest
    yield Log8(LogGrid(-126.0, 2.0, 127), LogGrid(-100.25, 0.5, 255))  # thresholds that are powers of two
    yield BFloat16()
    for (_, (v_low, v_high)), step in zip(SPANS, (0.0264892578125, 2.0**-62, 255 * 2.0**49), strict=True):
        yield Ratio8(LogGrid.spanning(v_low, v_high, 255), torch.tensor([step]))


def constants(tolerance: float = 0.01, bound: float = 1.0) -> GuardConstants[float]:
    """Of AdamW at its tenth update."""
    implementation = implementation_named(PATH)
    h = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=True)
    claim = Claim(Tolerance(tolerance), GradientBound(bound), PATH)
    return guard_constants(claim, implementation, h.options, implementation.scalars(h, 10.0), 1e-3)


def trained(rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
    """Moments as a trained tensor has them, a few of them zero."""
    v = np.exp2(rng.normal(-28, 4, count))
    m = rng.normal(0, 0.4, count) * np.sqrt(v)
    zero = rng.random(count) < 0.01
    m, v = np.where(zero, 0, m), np.where(zero, 0, v)
    return torch.from_numpy(m.astype(np.float32)), torch.from_numpy(v.astype(np.float32))


def any_bits(rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
    """Any binary32 at all: NaN, infinities, both zeros, subnormals, negative second moments."""
    m, v = (rng.integers(0, 1 << 32, count, dtype=np.uint32) for _ in range(2))
    v[::2] &= np.uint32(0x7FFF_FFFF)
    special = np.array(
        [0, 1 << 31, 0x7F80_0000, 0xFF80_0000, 0x7F80_0001, 0x7FC0_0000, 1, 0x8000_0001], dtype=np.uint32
    )
    for bits in (m, v):
        places = rng.random(count) < 0.05
        bits[places] = rng.choice(special, int(places.sum()))
    return torch.from_numpy(m.view(np.float32)), torch.from_numpy(v.view(np.float32))


def turning_points(codec: Codec) -> tuple[Tensor, Tensor]:
    """Numbers at which an encoder decides: thresholds, levels and format limits, each with its neighbours."""
    if isinstance(codec, (Log8, Lin8)):
        found = [_around(_of_grid(grid)) for grid in (codec.m_grid, codec.v_grid)]
    elif isinstance(codec, Ratio8):
        return _around_multiples(codec)
    else:
        halves = torch.arange(0, 0x7F80, 7, dtype=torch.int64)
        found = [_around(torch.cat([halves << 16, (halves << 16) + 0x8000]))] * 2
    size = max(len(part) for part in found)
    m, v = (part.repeat(-(-size // len(part)))[:size] for part in found)
    return torch.cat([m, -m]), torch.cat([v, v])


def _around_multiples(codec: Ratio8) -> tuple[Tensor, Tensor]:
    """Beside every second moment that has a code and its thresholds, the middles between multiples and beyond them."""
    seconds = _around(_of_grid(codec.v_grid))
    roots = codec.tables()[1][codec.encode(torch.zeros_like(seconds), seconds).v.long()].double()
    halves = torch.tensor([0, 0.5, 1, 1.5, 2.5, 64.5, 125.5, 126.5, 127, 127.5, 128, 1e9], dtype=torch.float64)
    middles = (halves.unsqueeze(1) * codec.steps.double() * roots).float()
    bits = (middles.view(torch.int32) + torch.arange(-1, 2, dtype=torch.int32).view(3, 1, 1)).clamp(0, 0x7F7F_FFFF)
    m, v = (x.flatten() for x in torch.broadcast_tensors(bits.view(torch.float32), seconds))
    return torch.cat([m, -m]), torch.cat([v, v])


def _of_grid(grid: object) -> Tensor:
    if isinstance(grid, LogGrid):
        return torch.cat([levels(grid), thresholds(grid)]).view(torch.int32).long()
    assert isinstance(grid, FloatGrid)
    index = torch.arange(grid.levels)
    return torch.cat([grid.base + index * grid.step, grid.base + index * grid.step + grid.step // 2])


def _around(bits: Tensor) -> Tensor:
    """Each number, the one below and the one above, zero and the largest among them; finite only."""
    ends = torch.tensor([0, 1, 0x7F7F_FFFF])
    near = torch.cat([ends, bits - 1, bits, bits + 1])
    return near[(near >= 0) & (near <= 0x7F7F_FFFF)].to(torch.int32).view(torch.float32)
