"""Square roots to certify, the correct one and ones with a single fault, and evidence with one.

Shared by the tests of the sweep, the placement and the certificate.
"""

from dataclasses import replace

import torch
from tests.strategies import INFINITY, SMALLEST_NORMAL
from torch import Tensor

from guarded_moments.oracle.platform import RootEvidence
from guarded_moments.oracle.platform.root_sweep import (
    BLOCK,
    Root,
)

#: Subnormals, the last of them and the first normals, and from 1 to beyond 2.
BLOCKS = [0, SMALLEST_NORMAL - BLOCK, SMALLEST_NORMAL, 0x3F800000, 0x3FFF0000, 0x40000000, INFINITY - BLOCK]
SQUARE = 0x40100000  #: 2.25, whose root is exact
INEXACT = 0x40000000  #: 2


def correct(values: Tensor) -> Tensor:
    """The correctly rounded root."""
    return values.double().sqrt().float()


def moved(at: int, by: int) -> Root:
    """The correctly rounded root, but for one input: its root is that many units away."""

    def faulty(values: Tensor) -> Tensor:
        bits = correct(values).view(torch.int32)
        return (bits + by * (values.view(torch.int32) == at).int()).view(torch.float32)

    return faulty


def off(values: Tensor) -> Tensor:
    """One unit above the correctly rounded root."""
    return (correct(values).view(torch.int32) + 1).view(torch.float32)


def faulty(evidence: RootEvidence, **changes: object) -> RootEvidence:
    """With some fields of the sweep changed."""
    return replace(evidence, finite=replace(evidence.finite, **changes))  # type: ignore[arg-type]
