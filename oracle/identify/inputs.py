"""Inputs among which separating ones are searched: as training leaves them, and as unlike it as can be.

Claimed: nothing of their distribution.  Trusted: NumPy's generator.  Where `torch.sqrt` and the correct root differ is
found by trying them on random values of this machine, and second moments are built that come out as those values.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from guarded_moments.oracle.identify.setting import Setting
from guarded_moments.reference.arithmetic import TorchBinary32

Array = npt.NDArray[np.float32]

_SIGN = 0x80000000
_EDGES = (0, 1, 2, 0x007FFFFF, 0x00800000, 0x00800001, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x7F7FFFFF, 0x7F800000)
_EDGE_BITS = np.array([sign | word for sign in (0, _SIGN) for word in (*_EDGES, 0x7FC00000)], dtype=np.uint32)
_ZERO_BITS = np.array([0, 0, _SIGN, _SIGN, 1, 1 | _SIGN, 0x3F800000, 0xBF800000, 0x7FC00000], dtype=np.uint32)
_SCANNED = 1 << 18
_BUILT = 128
#: Shares: of edges among any values, of any bits among the rest, of second moments that are made positive.
_EDGE, _WILD, _POSITIVE = 0.15, 0.5, 0.85


class Roots(NamedTuple):
    """What scanning the platform's square root showed."""

    scanned: int
    differing: Tensor  #: some of the inputs where it is not the correctly rounded one
    errors: int  #: how many there were


@cache
def scan_roots(seed: int) -> Roots:
    """Compare `torch.sqrt` with the correct root on random positive normal numbers."""
    op = TorchBinary32()
    words = np.random.default_rng(seed).integers(0x00800000, 0x7F800000, size=_SCANNED, dtype=np.int32)
    x = torch.from_numpy(words).view(torch.float32)
    found = x[op.platform_sqrt(x) != op.sqrt(x)]
    return Roots(_SCANNED, found[:_BUILT], len(found))


def pool(count: int, setting: Setting, seed: int) -> Tensor:
    """Rows `p g m v vmax`, float32, shape (5, count); the first half is as training leaves it.

    The rest: values near those where `torch.sqrt` errs, gradients as large as a decayed parameter, any bits, edges of
    the format, and zeros, subnormals, ones and NaN in every combination.
    """
    rng = np.random.default_rng(seed)
    half = count // 2
    trained = _trained(half, rng, setting)
    parts = [trained]
    left = count - half
    roots = _at_roots(min(left // 8, _BUILT), rng, setting, scan_roots(1))
    parts.append(roots)
    left -= roots.shape[1]
    for share, make in ((0.25, _decayed), (0.4, _any), (0.35, _degenerate)):
        number = round(share * (count - half - roots.shape[1])) if make is not _degenerate else left
        parts.append(make(number, rng, setting))
        left -= number
    return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))


def _trained(count: int, rng: np.random.Generator, setting: Setting) -> Array:
    scale = 10.0 ** rng.uniform(-9, 1, size=count)
    g, m = rng.standard_normal((2, count)) * scale
    v, v_max = np.square(rng.standard_normal((2, count)) * scale)
    # Beside a parameter of zero the update shows all its bits, beside a large one few.
    size = rng.choice((0.0, setting.lr, 10 * setting.lr, 0.02), size=count, p=(0.3, 0.3, 0.2, 0.2))
    return np.stack((rng.standard_normal(count) * size, g, m, v, v_max)).astype(np.float32)


def _at_roots(count: int, rng: np.random.Generator, setting: Setting, roots: Roots) -> Array:
    """Without a gradient `v' = beta2*v`, here a value whose root the platform gets wrong, if there are any."""
    wanted = roots.differing[:count].numpy()
    rows = _trained(len(wanted), rng, setting)
    rows[0], rows[1] = 0, 0
    beta2 = np.float32(setting.beta2)
    if beta2 > 0:
        v = wanted / beta2
        for nearby in (v, np.nextafter(v, np.float32(0)), np.nextafter(v, np.float32(np.inf))):
            v = np.where(v * beta2 == wanted, v, nearby)
        rows[3] = np.where(np.isfinite(v), v, wanted)
    rows[2] = (rng.standard_normal(len(wanted)) * np.sqrt(wanted)).astype(np.float32)
    rows[4] = wanted
    return rows


def _decayed(count: int, rng: np.random.Generator, setting: Setting) -> Array:
    rows = _trained(count, rng, setting)
    decay = setting.weight_decay or 0.01
    rows[0] = (rows[1] / decay * 10.0 ** rng.uniform(-2, 1, size=count)).astype(np.float32)
    return rows


def _any(count: int, rng: np.random.Generator, setting: Setting) -> Array:  # noqa: ARG001 - all makers are called alike
    words = rng.integers(2**32, size=(5, count), dtype=np.uint32)
    edges = rng.choice(_EDGE_BITS, size=(5, count))
    # Moderate exponents too: of any bits, most overflow or vanish.
    near = (rng.standard_normal((5, count)) * 2.0 ** rng.integers(-20, 20, size=(5, count))).astype(np.float32)
    rest = np.where(rng.random((5, count)) < _WILD, words, near.view(np.uint32))
    rows = np.where(rng.random((5, count)) < _EDGE, edges, rest)
    return _mostly_positive(rows.view(np.float32), rng)


def _degenerate(count: int, rng: np.random.Generator, setting: Setting) -> Array:  # noqa: ARG001 - as above
    return _mostly_positive(rng.choice(_ZERO_BITS, size=(5, count)).view(np.float32), rng)


def _mostly_positive(rows: Array, rng: np.random.Generator) -> Array:
    rows[3:] = np.where(rng.random(rows[3:].shape) < _POSITIVE, np.abs(rows[3:]), rows[3:])
    return rows
