"""What every test of the interval oracle may ask for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.oracle.intervals.members import ARB, MPMATH
from tests.oracle.intervals.settings import (
    SETTINGS,
    Tensor,
    tensor_of,
)

from guarded_moments.oracle.intervals import (
    PairArithmetic,
)
from guarded_moments.oracle.intervals.protocol import Intervals


@pytest.fixture(params=[MPMATH, ARB], ids=["mpmath", "arb"], scope="module")
def intervals(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401 - of two types
    return request.param


@pytest.fixture(scope="module")
def pair_operations(intervals: Intervals[Any]) -> PairArithmetic[Any]:
    return PairArithmetic(intervals)


@pytest.fixture(params=SETTINGS, ids=str)
def tensor(request: pytest.FixtureRequest) -> Tensor:
    return tensor_of(request.param)
