"""The states that every implementation is given: as training leaves them, and special values.

Trained moments are made by `torch.optim.Adam` itself, from gradients of a drawn scale and drift, some of them sparse.

Claimed: nothing; poor states make weak evidence.  The same seed draws the same gradients everywhere; the moments then
follow from the machine's own Adam.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Generator = np.random.Generator
Bits = npt.NDArray[np.uint32]
Doubles = npt.NDArray[np.float64]

SEED = 20150715
#: Elements of a state: a multiple of every block size, and 13 more, for the kernels' tails.
COUNT = (1 << 14) + 13
#: The first update; bias corrections that cancel; as in a small run; bias corrections gone.
STEPS = (1, 10, 400, 100_000)

_UPDATES_MADE = 399  #: moments for later steps are those after as many updates; the step count alone differs
_ROW = 256  #: elements of one layer's scale
_LOG10_SCALES = (-6.0, -2.0)  #: of a row's gradients
_SPREAD = 0.5  #: standard deviation of a coordinate's scale within its row, in decades
_DRIFT = 0.3  #: standard deviation of a coordinate's mean gradient, in its scales
_SPARSE, _SEEN = 0.1, 0.05  #: share of coordinates with rare gradients, and how rare they are

_SIGN, _INFINITY, _NAN, _LARGEST = 0x80000000, 0x7F800000, 0x7FC00000, 0x7F7FFFFF
_SMALLEST_NORMAL = 0x00800000


@dataclass(frozen=True)
class State:
    """What one update starts from: float32 tensors of shape (n,)."""

    number: int  #: of the update, 1 for the first
    g: Tensor
    m: Tensor
    v: Tensor

    def whole_blocks(self, block: int) -> Self:
        """The first elements, as many as fill blocks of this size."""
        count = len(self.g) - len(self.g) % block
        return type(self)(self.number, self.g[:count], self.m[:count], self.v[:count])


def trained_states(seed: int = SEED, count: int = COUNT, steps: Sequence[int] = STEPS) -> list[State]:
    """One state for each step, all from one run with gradients drawn from `seed`."""
    rng = np.random.default_rng((seed, 1))
    rows = -(-count // _ROW)
    scale = 10.0 ** (np.repeat(rng.uniform(*_LOG10_SCALES, rows), _ROW)[:count] + _SPREAD * rng.standard_normal(count))
    drift = _DRIFT * rng.standard_normal(count)
    sparse = rng.random(count) < _SPARSE
    parameter = torch.nn.Parameter(torch.zeros(count))
    optimizer = torch.optim.Adam([parameter])
    moments = [torch.zeros(count), torch.zeros(count)]
    found, done = [], 0
    for number in sorted(steps):
        for _ in range(done, min(number - 1, _UPDATES_MADE)):
            parameter.grad = _gradient(rng, scale, drift, sparse)
            optimizer.step()
            done += 1
            state = optimizer.state[parameter]
            moments = [state["exp_avg"], state["exp_avg_sq"]]
        found.append(State(number, _gradient(rng, scale, drift, sparse), moments[0].clone(), moments[1].clone()))
    return found


def _gradient(rng: Generator, scale: Doubles, drift: Doubles, sparse: npt.NDArray[np.bool_]) -> Tensor:
    gradient = scale * (drift + rng.standard_normal(len(scale)))
    gradient[sparse & (rng.random(len(scale)) >= _SEEN)] = 0
    return torch.from_numpy(gradient.astype(np.float32))


def special_states(seed: int = SEED, count: int = COUNT, steps: Sequence[int] = STEPS) -> list[State]:
    """Zeros of both signs, subnormals, values around the smallest normal, huge ones, infinities and NaN, mixed.

    `v` has no sign, as an optimizer never gives it one.
    """
    rng = np.random.default_rng((seed, 2))
    states = []
    for number in steps:
        g, m, v = (_special(rng, count) for _ in range(3))
        v &= np.uint32(_SIGN - 1)
        states.append(State(number, *(torch.from_numpy(bits.view(np.float32)) for bits in (g, m, v))))
    return states


def _special(rng: Generator, count: int) -> Bits:
    kinds = (
        np.zeros(count, dtype=np.int64),
        rng.integers(1, _SMALLEST_NORMAL, count),
        _SMALLEST_NORMAL + rng.integers(-2, 3, count),
        rng.integers(_SMALLEST_NORMAL, _SMALLEST_NORMAL + (24 << 23), count),  # products with small constants underflow
        (np.abs(rng.standard_normal(count)) * 1e-3).astype(np.float32).view(np.uint32).astype(np.int64),
        rng.integers(0x5E800000, 0x64000000, count),  # 2**62 to 2**73: squares overflow, in some op models later
        rng.choice((_LARGEST, _INFINITY, _NAN), count),
    )
    bits = np.choose(rng.choice(len(kinds), count, p=(0.15, 0.2, 0.1, 0.2, 0.2, 0.1, 0.05)), kinds)
    return (bits | (rng.integers(2, size=count) * _SIGN)).astype(np.uint32)
