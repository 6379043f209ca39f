"""Whatever the bounds of cells say, the cells that were dropped cover every gradient of a coordinate that is cleared.

The loops are run as they are, with chance in place of the bounds: what is dropped is recorded, and must be a chain of
cells from zero to the largest gradient, each beginning where the one before it ends.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import Setting, pairs
from torch import Tensor

from guarded_moments.oracle.exhaustive import Coordinate
from guarded_moments.oracle.worst_case import enclosure
from guarded_moments.reference.adam import as_is
from guarded_moments.reference.guard import compiled_search, search, signed_cells
from guarded_moments.reference.guard.cells import End
from guarded_moments.reference.guard.closed_form import bound_inflation
from guarded_moments.reference.guard.constants import GuardConstants, binary64_constants
from guarded_moments.reference.guard.search import Outcome, States, largest_gradient
from guarded_moments.reference.guard.signed_cells import SignedCells

#: Bounds on the gradient: infinite, usual, among the subnormal numbers, and below the smallest of them.
BOUNDS = [math.inf, 1.0, 3e-45, 1e-46]
Cell = tuple[float, float]


class Chance:
    """Drops cells at random, and remembers which."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.dropped = rng, list[Cell]()

    def upper(self, low: float, high: float) -> float:
        """A bound that no cutoff reaches, or one that every cutoff does."""
        if self.rng.random() < 0.45:
            return math.inf
        self.dropped.append((low, high))
        return -math.inf


def is_chain(dropped: list[Cell], last: float) -> bool:
    """Whether cells, of which those of no width say nothing, reach from zero to the last gradient without a gap."""
    cells = sorted({cell for cell in dropped if cell[0] < cell[1]} or set(dropped))
    joined = all(before[1] == after[0] for before, after in pairwise(cells))
    return bool(cells) and cells[0][0] == 0 and cells[-1][1] == last and joined


@pytest.mark.parametrize("bound", BOUNDS)
def test_of_the_vectorised_search(bound: float, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    constants, count = Setting(bound=bound).case().constants, 200
    chances = [Chance(rng) for _ in range(count)]

    class Chances(search.CellBounds):
        def value(self, end: End[Tensor], coordinate: Tensor | None = None) -> tuple[Tensor, Tensor]:
            del coordinate
            return torch.full_like(end.g, -math.inf), torch.full_like(end.g, -math.inf)

        def upper(self, low: End[Tensor], high: End[Tensor], coordinate: Tensor | None = None) -> Tensor:
            which = torch.arange(count).expand_as(low.g) if coordinate is None else coordinate
            flat = zip(which.flatten().tolist(), low.g.flatten().tolist(), high.g.flatten().tolist(), strict=True)
            return torch.tensor([chances[i].upper(a, b) for i, a, b in flat]).double().reshape(low.g.shape)

    monkeypatch.setattr(search, "CellBounds", Chances)

    cleared = search.cleared(constants, pairs(count, rng)).cleared

    for accepted, chance in zip(cleared.tolist(), chances, strict=True):
        assert not accepted or is_chain(chance.dropped, largest_gradient(constants)), chance.dropped
    assert bool(cleared.any())


@pytest.mark.parametrize("bound", BOUNDS)
def test_of_the_search_with_signed_cells(
    bound: float, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is dropped and what is left, of each sign."""
    constants, count = Setting(bound=bound).case().constants, 60
    chances = {(i, sign): Chance(rng) for i in range(count) for sign in (1.0, -1.0)}

    def highest(_: object, cells: SignedCells) -> Tensor:
        listed = zip(*(part.tolist() for part in cells), strict=True)
        return torch.tensor([chances[i, sign].upper(low, high) for i, sign, low, high in listed]).double()

    monkeypatch.setattr(signed_cells._SignedBounds, "highest", highest)

    left = signed_cells.uncleared(constants, pairs(count, rng), shortest=1).cells

    for (i, sign), chance in chances.items():
        own = left.select((left.coordinate == i) & (left.sign == sign))
        kept = list(zip(own.low.tolist(), own.high.tolist(), strict=True))
        cells = [cell for cell in chance.dropped if cell[0] < cell[1] or cell[1] == 0]  # and not the ends alone
        assert is_chain([*cells, *kept], largest_gradient(constants)), (cells, kept)


def made_of_chance(chance: Chance, *, pair: bool) -> Callable[..., Callable[..., Any]]:
    """A builder of bounds, of one or of both signs of the gradient, that are chance."""

    def make(*_: object) -> Callable[..., Any]:
        def upper(_k: object, _shift: float, _pull: float, low: Any, high: Any) -> Any:  # noqa: ANN401 - ends or points
            low, high = getattr(low, "end", low), getattr(high, "end", high)
            found = chance.upper(float(low.g), float(high.g))
            return (found, found) if pair else found

        return upper

    return make


def nothing(*_: object) -> Callable[..., Any]:
    """A builder of values that exceed nothing."""
    return lambda *_: (-math.inf, -math.inf)


@pytest.mark.parametrize("bound", BOUNDS)
def test_of_the_compiled_search(bound: float, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its source, uncompiled."""
    constants, chance, outcomes = Setting(bound=bound).case().constants, Chance(rng), set()
    monkeypatch.setattr(compiled_search, "jit", as_is)
    monkeypatch.setattr(compiled_search, "make_value", nothing)
    monkeypatch.setattr(compiled_search, "make_upper", made_of_chance(chance, pair=False))
    loop = compiled_search.compiled_search.__wrapped__()
    limit = largest_gradient(constants)
    for i in range(60):
        chance.dropped.clear()
        outcome, gradient = np.zeros(1, dtype=np.int8), np.zeros(1, dtype=np.float32)
        arrays = [moment[i : i + 1].numpy() for moment in pairs(60, np.random.default_rng(i))]
        loop(binary64_constants(constants), np.float32(limit), bound_inflation(), *arrays, outcome, gradient)
        assert outcome[0] != Outcome.CLEARED or is_chain(chance.dropped, limit), chance.dropped
        outcomes.add(int(outcome[0]))
    assert Outcome.CLEARED in outcomes


@pytest.fixture
def oracle(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Chance]:
    """The oracle's loops, uncompiled, and what bounds their cells."""
    chance = Chance(rng)
    for name in ("make_uppers", "make_slope_uppers"):
        monkeypatch.setattr(enclosure, name, made_of_chance(chance, pair=True))
    monkeypatch.setattr(enclosure, "jit", as_is)
    monkeypatch.setattr(enclosure, "numba", SimpleNamespace(njit=lambda **_: as_is))
    monkeypatch.setattr(enclosure, "make_deviation_upper", lambda *_: lambda _k, upper, *_rest: upper)
    return enclosure._compiled.__wrapped__(), chance


def states_of(constants: GuardConstants[float], seed: int) -> tuple[Any, list[Any]]:
    states: States = pairs(1, np.random.default_rng(seed))
    return binary64_constants(constants), [moment.numpy() for moment in states]


@pytest.mark.parametrize("bound", BOUNDS)
def test_of_an_enclosure(bound: float, oracle: tuple[Any, Chance], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is left between neighbours, the upper end comes from dropped cells alone."""
    monkeypatch.setattr(enclosure, "make_value", nothing)
    constants, limit, (loops, chance), closed = Setting(bound=bound).case().constants, 0.0, oracle, 0
    limit = largest_gradient(constants)
    for seed in range(60):
        chance.dropped.clear()
        lower, upper, gradient = np.zeros(1), np.zeros(1), np.zeros(1)
        k, arrays = states_of(constants, seed)
        loops.enclose(k, np.float64(limit), 1e-4, *arrays, lower, upper, gradient)
        finite = upper[0] < math.inf
        assert not finite or is_chain(chance.dropped, limit), chance.dropped
        closed += finite
    assert closed > 0


@pytest.mark.parametrize("bound", BOUNDS)
def test_of_slivers(bound: float, oracle: tuple[Any, Chance]) -> None:
    """A gradient is in a dropped cell or in a range that is listed."""
    constants, (loops, chance) = Setting(bound=bound).case().constants, oracle
    limit = largest_gradient(constants)
    for seed in range(60):
        chance.dropped.clear()
        k, arrays = states_of(constants, seed)
        values = Coordinate(*(np.float64(moment[0]) for moment in arrays))
        found = loops.slivers(k, np.float64(limit), 0.0, *values, False)  # noqa: FBT003 - positional, as compiled
        ranges = found.astype(np.uint32).view(np.float32).astype(float) if len(found) else np.empty((0, 2))
        listed = [(float(low), float(high)) for low, high in ranges]
        assert is_chain([*chance.dropped, *listed], limit), (chance.dropped, listed)
