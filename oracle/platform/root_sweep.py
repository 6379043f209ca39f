"""Every non-negative binary32 through a square root: how far off, how often, and whether it ever falls.

The errors are measured in binary64.  A binary64 root errs by at most half a unit of its own, `2**-30` units in the last
place of binary32, and its difference from a binary32 next to it is exact.  No root of a binary32 lies within `2**-27`
units of the middle of two neighbours without being it (the squares differ by a whole unit of their product), so that
binary64 root rounded to binary32 is the correctly rounded root, and every verdict here is certain.

Claimed: the tally is of every input of the range, in order.  Trusted: the CPU's binary64 root and numba's compiler;
`exact_root` repeats a sample, and the worst input, in integers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from guarded_moments.reference.arithmetic import NumpyBinary32, TorchBinary32

#: Inputs of a block: two of float32 fit a core's cache.
BLOCK = 1 << 16
INFINITY = 0x7F800000  #: bits; all non-negative finite values have smaller ones
NAN_END = 0x80000000  #: bits from `INFINITY + 1` up to here are NaN
#: What a binary64 measurement may be short of, in units in the last place of binary32.
MARGIN = 2.0**-29
_UNIT_ROUNDOFF = 2.0**-24
_NAN_BLOCKS = list(range(INFINITY, NAN_END, BLOCK))
_NEGATIVE_STEP = 1021  #: a prime, so that all endings of the significand occur

Root = Callable[[Tensor], Tensor]
Progress = Callable[[int, int], None]

_BELOW, _ABOVE, _FARTHEST, _FIRST_OFF, _FALLS, _WORST_AT, _NUMPY_OFF, _OWN_OFF, _COUNTERS = range(9)
_ERROR, _RELATIVE, _LAST = range(3)


def _unit_scales() -> npt.NDArray[np.float64]:
    """One over the unit in the last place of the root, by the radicand's exponent field (subnormals apart)."""
    return np.array([2.0 ** (23 - ((field - 127) >> 1)) for field in range(256)])


@cache
def _compiled_tally() -> Callable[..., None]:
    from guarded_moments.reference.arithmetic.compiled_operations import jit  # noqa: PLC0415 - numba takes half a second

    return jit(_tally)


def _tally(first: int, x: Any, roots: Any, bits: Any, scales: Any, n: Any, worst: Any) -> None:  # noqa: ANN401 - arrays
    """Add a block of inputs, whose bits count up from `first`, to the counters `n` and the extremes `worst`.

    `bits` are those of three roots: the one in question, NumPy's and our own through binary64.
    """
    last = worst[_LAST]
    for i in range(x.size):
        exact = math.sqrt(np.float64(x[i]))
        correct = np.int64(np.float32(exact).view(np.int32))
        n[_NUMPY_OFF] += bits[1, i] != correct
        n[_OWN_OFF] += bits[2, i] != correct
        distance = bits[0, i] - correct
        if distance != 0:
            if n[_BELOW] + n[_ABOVE] == 0:
                n[_FIRST_OFF] = first + i
            n[_BELOW] += distance < 0
            n[_ABOVE] += distance > 0
            n[_FARTHEST] = max(n[_FARTHEST], abs(distance))
        got = np.float64(roots[i])
        if not got >= last:
            n[_FALLS] += 1
        last = got
        field = (first + i) >> 23
        scale = scales[field] if field else 2.0 ** (24 - math.frexp(exact)[1])
        error = abs(got - exact) * scale
        if error > worst[_ERROR]:
            worst[_ERROR] = error
            n[_WORST_AT] = first + i
        if exact > 0:
            worst[_RELATIVE] = max(worst[_RELATIVE], abs(got - exact) / exact)
    worst[_LAST] = last


@dataclass(frozen=True)
class Sweep:
    """What the finite inputs showed; errors are upper bounds, the margin of the measurement included."""

    inputs: int
    below: int  #: roots under the correctly rounded one
    above: int  #: roots over it
    first_off: int | None  #: bits of the first input whose root is not correctly rounded
    farthest: int  #: from the correctly rounded root, in units in the last place
    error: float  #: largest distance from the exact root, in its units in the last place
    error_at: int  #: bits of the first input that attains it
    relative: float  #: largest relative error, in unit roundoffs `2**-24`
    falls: int  #: how often a larger input had a smaller root
    numpy_off: int  #: inputs whose root by NumPy is not correctly rounded
    own_off: int  #: inputs whose root through torch's binary64, `TorchBinary32.sqrt`, is not
    fingerprint: str  #: SHA-256 of all roots in order, 4 bytes each, the least significant first


def complete_blocks() -> list[int]:
    """The first bits of every block of finite inputs."""
    return list(range(0, INFINITY, BLOCK))


def quick_blocks() -> list[int]:
    """Every 64th block and all of [1, 4), where an implementation by range reduction shows all it does."""
    whole = range(0x3F800000, 0x40800000, BLOCK)
    return sorted({*range(0, INFINITY, 64 * BLOCK), *whole})


def sweep(root: Root, blocks: list[int], progress: Progress | None = None) -> Sweep:
    """Run `root` on every input of the blocks, on the calling thread.

    Args:
        root: a float32 square root of a contiguous tensor, such as `torch.sqrt`.
        blocks: first bits of each block, ascending; see `complete_blocks`.
        progress: called with inputs done and in all.
    """
    tally = _compiled_tally()
    counters, worst = np.zeros(_COUNTERS, np.int64), np.array([0.0, 0.0, -math.inf])
    correct, own, scales, digest = NumpyBinary32(), TorchBinary32(), _unit_scales(), hashlib.sha256()
    for done, (first, values) in enumerate(_values(blocks), start=1):
        tensor = torch.from_numpy(values)
        roots = root(tensor).numpy()
        three = np.stack((roots, correct.sqrt(values), own.sqrt(tensor).numpy()))
        tally(first, values, roots, three.view(np.int32), scales, counters, worst)
        digest.update(roots.astype("<f4", copy=False).data)
        if progress is not None and (done % 64 == 0 or done == len(blocks)):
            progress(done * BLOCK, len(blocks) * BLOCK)
    n = counters.tolist()
    return Sweep(
        inputs=len(blocks) * BLOCK,
        below=n[_BELOW],
        above=n[_ABOVE],
        first_off=n[_FIRST_OFF] if n[_BELOW] + n[_ABOVE] else None,
        farthest=n[_FARTHEST],
        error=float(worst[_ERROR]) + MARGIN,
        error_at=n[_WORST_AT],
        relative=(float(worst[_RELATIVE]) / _UNIT_ROUNDOFF) + 2 * MARGIN,
        falls=n[_FALLS],
        numpy_off=n[_NUMPY_OFF],
        own_off=n[_OWN_OFF],
        fingerprint=digest.hexdigest(),
    )


def fingerprint_of(roots: Tensor) -> str:
    """SHA-256 of float32 values, as in `Sweep.fingerprint`."""
    return hashlib.sha256(roots.numpy().astype("<f4", copy=False).data).hexdigest()


def _values(blocks: list[int]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    offsets = np.arange(BLOCK, dtype=np.uint32)
    bits = np.empty(BLOCK, np.uint32)
    for first in blocks:
        np.add(offsets, np.uint32(first), out=bits)
        yield first, bits.view(np.float32)


class Beyond(NamedTuple):
    """How many inputs that have no positive finite root are answered wrongly."""

    infinity: int
    nan: int  #: of all NaN without a sign
    minus_zero: int
    negative: int  #: of a sample; NaN is right
    negative_inputs: int  #: how many that sample has


def wrong_beyond_finite(root: Root, rng: np.random.Generator) -> Beyond:
    """Infinity, every NaN without a sign, minus zero, and a sample of negative inputs of all magnitudes."""
    bits = np.hstack((np.arange(1, NAN_END, _NEGATIVE_STEP), rng.integers(1, NAN_END, size=BLOCK))) | NAN_END
    negative = torch.from_numpy(bits.astype(np.uint32).view(np.float32))
    at_ends = root(torch.tensor([math.inf, -0.0])).numpy().view(np.uint32)
    nan = sum(BLOCK - int(root(torch.from_numpy(values)).isnan().sum()) for _, values in _values(_NAN_BLOCKS))
    return Beyond(
        infinity=int(at_ends[0] != INFINITY),
        nan=nan - 1,  # the first of them is infinity itself
        minus_zero=int(at_ends[1] != NAN_END),
        negative=int((~root(negative).isnan()).sum()),
        negative_inputs=negative.numel(),
    )
