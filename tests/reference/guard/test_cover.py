"""Whatever the bounds of cells say, the cells that were dropped cover every gradient of a coordinate that is cleared.

The loops are run as they are, with answers of ours in place of the bounds: what is dropped is recorded, and must be a
chain of cells from zero to the largest gradient, each beginning where the one before it ends.  Of a claim with a few
gradients every answer to every question is tried, for every place of the first ends; of other claims some, by chance.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.guard.cases import Setting, pairs
from torch import Tensor

from guarded_moments.oracle.exhaustive import Coordinate
from guarded_moments.oracle.worst_case import enclosure as by_slopes
from guarded_moments.reference.adam import as_is
from guarded_moments.reference.guard import compiled_search, enclosure, search, signed_cells
from guarded_moments.reference.guard.cells import End
from guarded_moments.reference.guard.closed_form import bound_inflation
from guarded_moments.reference.guard.constants import GuardConstants, binary64_constants
from guarded_moments.reference.guard.cut import FIRST_ENDS
from guarded_moments.reference.guard.search import Outcome, States, largest_gradient
from guarded_moments.reference.guard.signed_cells import SignedCells

#: Bounds on the gradient: infinite, usual, among the subnormal numbers, and below the smallest of them.
BOUNDS = [math.inf, 1.0, 3e-45, 1e-46]
SMALLEST = 2.0**-149
Cell = tuple[float, float]
#: Cells that must be a chain, if the loop says that nothing is left.
Found = list[Cell] | None


class Answers:
    """What bounds cells, and remembers which were dropped."""

    def __init__(self) -> None:
        self.dropped = list[Cell]()

    def keeps(self) -> bool:
        """Whether the next cell is kept."""
        raise NotImplementedError

    def upper(self, low: float, high: float) -> float:
        """A bound that no cutoff reaches, or one that every cutoff does.

        Of a gradient alone it is only asked whether it exceeds a cutoff, and of two such at once.
        """
        if low == high > 0:
            return math.inf if self.keeps() else -math.inf
        if self.keeps():
            return math.inf
        self.dropped.append((low, high))
        return -math.inf


class Chance(Answers):
    """Drops cells at random."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self.rng = rng

    def keeps(self) -> bool:
        """Whether the next cell is kept."""
        return bool(self.rng.random() < 0.45)


class Script(Answers):
    """Drops all cells but those that a beginning says."""

    def __init__(self, beginning: tuple[bool, ...] = ()) -> None:
        super().__init__()
        self.beginning, self.given = beginning, list[bool]()

    def keeps(self) -> bool:
        """Whether the next cell is kept."""
        place = len(self.given)
        self.given.append(place < len(self.beginning) and self.beginning[place])
        return self.given[-1]

    def next(self) -> Iterator["Script"]:
        """Those that differ from here on, of which none comes twice."""
        assert tuple(self.given[: len(self.beginning)]) == self.beginning, "the loop asked something else this time"
        for place in range(len(self.beginning), len(self.given)):
            yield Script((*self.given[:place], True))


def is_chain(dropped: list[Cell], last: float) -> bool:
    """Whether cells, of which those of no width say nothing, reach from zero to the last gradient without a gap."""
    cells = sorted({cell for cell in dropped if cell[0] < cell[1]} or set(dropped))
    joined = all(before[1] == after[0] for before, after in pairwise(cells))
    return bool(cells) and cells[0][0] == 0 and cells[-1][1] == last and joined


def asked(answers: Sequence[Answers], which: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The answers about cells, each of one coordinate."""
    flat = zip(which.flatten().tolist(), low.flatten().tolist(), high.flatten().tolist(), strict=True)
    return torch.tensor([answers[i].upper(a, b) for i, a, b in flat], dtype=torch.float64).reshape(low.shape)


def bounds_of(answers: Sequence[Answers]) -> type[search.CellBounds]:
    """The bounds of the vectorised search, whose values exceed nothing."""

    class Bounds(search.CellBounds):
        def value(self, end: End[Tensor], coordinate: Tensor | None = None) -> tuple[Tensor, Tensor]:
            del coordinate
            return torch.full_like(end.g, -math.inf), torch.full_like(end.g, -math.inf)

        def upper(self, low: End[Tensor], high: End[Tensor], coordinate: Tensor | None = None) -> Tensor:
            which = torch.arange(len(answers)).expand_as(low.g) if coordinate is None else coordinate
            return asked(answers, which, low.g, high.g)

    return Bounds


def of_the_vectorised_search(
    patch: pytest.MonkeyPatch, constants: GuardConstants[float], states: States, answers: Sequence[Answers]
) -> list[Found]:
    patch.setattr(search, "CellBounds", bounds_of(answers))
    cleared = search.cleared(constants, states).cleared.tolist()
    return [one.dropped if accepted else None for accepted, one in zip(cleared, answers, strict=True)]


def of_the_vectorised_enclosure(
    patch: pytest.MonkeyPatch, constants: GuardConstants[float], states: States, answers: Sequence[Answers]
) -> list[Found]:
    """Where nothing is left between neighbours, the upper end comes from dropped cells alone."""
    patch.setattr(enclosure, "CellBounds", bounds_of(answers))
    upper = enclosure.enclose(constants, states).upper.tolist()
    return [one.dropped if end < math.inf else None for end, one in zip(upper, answers, strict=True)]


def of_the_search_with_signed_cells(
    patch: pytest.MonkeyPatch, constants: GuardConstants[float], states: States, answers: Sequence[Answers]
) -> list[Found]:
    """What is dropped and what is left, of gradients of the sign that a coordinate's place says."""
    signs = [1.0, -1.0] * len(answers)

    def highest(_: object, cells: SignedCells) -> Tensor:
        own = torch.tensor([sign == signs[i] for i, sign in zip(*(x.tolist() for x in cells[:2]), strict=True)])
        of_sign = torch.full_like(cells.low, -math.inf)
        which = own.nonzero().flatten()
        of_sign[which] = asked(answers, cells.coordinate[which], cells.low[which], cells.high[which])
        return of_sign

    patch.setattr(signed_cells._SignedBounds, "highest", highest)
    left = signed_cells.uncleared(constants, states, shortest=1).cells
    kept: list[list[Cell]] = [[] for _ in answers]
    for i, sign, low, high in zip(*(part.tolist() for part in left), strict=True):
        assert sign == signs[i], "all of the other sign were dropped"
        kept[i].append((low, high))
    return [[*one.dropped, *cells] for one, cells in zip(answers, kept, strict=True)]


def made_of(answers: list[Answers], *, pair: bool) -> Callable[..., Callable[..., Any]]:
    """A builder of bounds, of one or of both signs of the gradient, that are answers of the only one in a list."""

    def make(*_: object) -> Callable[..., Any]:
        def upper(_k: object, _shift: float, _pull: float, low: Any, high: Any) -> Any:  # noqa: ANN401 - ends or points
            low, high = getattr(low, "end", low), getattr(high, "end", high)
            found = answers[0].upper(float(low.g), float(high.g))
            return (found, found) if pair else found

        return upper

    return make


def nothing(*_: object) -> Callable[..., Any]:
    """A builder of values that exceed nothing."""
    return lambda *_: (-math.inf, -math.inf)


def one_by_one(states: States, answers: Sequence[Answers], turn: list[Answers]) -> Iterator[tuple[Answers, list[Any]]]:
    """Each coordinate's answers, put where the loop asks, and its moments as arrays of one."""
    for i, one in enumerate(answers):
        turn[:] = [one]
        yield one, [moment[i : i + 1].numpy() for moment in states]


def of_the_compiled_search(
    patch: pytest.MonkeyPatch, constants: GuardConstants[float], states: States, answers: Sequence[Answers]
) -> list[Found]:
    """Its source, uncompiled."""
    turn, found = list[Answers](), list[Found]()
    patch.setattr(compiled_search, "jit", as_is)
    patch.setattr(compiled_search, "make_value", nothing)
    patch.setattr(compiled_search, "make_upper", made_of(turn, pair=False))
    loop = compiled_search.compiled_search.__wrapped__()
    limit, k = np.float32(largest_gradient(constants)), binary64_constants(constants)
    for one, arrays in one_by_one(states, answers, turn):
        outcome, gradient = np.zeros(1, dtype=np.int8), np.zeros(1, dtype=np.float32)
        loop(k, limit, bound_inflation(), *arrays, outcome, gradient)
        found.append(one.dropped if outcome[0] == Outcome.CLEARED else None)
    return found


def oracle(patch: pytest.MonkeyPatch, turn: list[Answers]) -> Any:  # noqa: ANN401 - functions that are typed by numba
    """The oracle's loops, uncompiled; no cell is too short to be split, and slopes clear none."""
    patch.setattr(by_slopes, "make_uppers", made_of(turn, pair=True))
    patch.setattr(by_slopes, "make_slope_uppers", lambda *_: lambda *_: (math.inf, math.inf))
    patch.setattr(by_slopes, "make_value", nothing)
    patch.setattr(by_slopes, "jit", as_is)
    patch.setattr(by_slopes, "numba", SimpleNamespace(njit=lambda **_: as_is))
    patch.setattr(by_slopes, "make_deviation_upper", lambda *_: lambda _k, upper, *_rest: upper)
    patch.setattr(by_slopes, "SHORT", 1)
    return by_slopes._compiled.__wrapped__()


def of_an_enclosure(
    patch: pytest.MonkeyPatch, constants: GuardConstants[float], states: States, answers: Sequence[Answers]
) -> list[Found]:
    """Where nothing is left between neighbours, the upper end comes from dropped cells alone."""
    turn, found = list[Answers](), list[Found]()
    loops, limit, k = oracle(patch, turn), largest_gradient(constants), binary64_constants(constants)
    for one, arrays in one_by_one(states, answers, turn):
        upper, gradient = np.zeros(1), np.zeros(1)
        loops.enclose(k, np.float64(limit), 1e-4, *arrays, upper, gradient)
        found.append(one.dropped if upper[0] < math.inf else None)
    return found


def of_slivers(
    patch: pytest.MonkeyPatch, constants: GuardConstants[float], states: States, answers: Sequence[Answers]
) -> list[Found]:
    """A gradient is in a dropped cell or in a range that is listed."""
    turn, found = list[Answers](), list[Found]()
    loops, limit, k = oracle(patch, turn), largest_gradient(constants), binary64_constants(constants)
    for one, arrays in one_by_one(states, answers, turn):
        values = Coordinate(*(np.float64(moment[0]) for moment in arrays))
        made = loops.slivers(k, np.float64(limit), 0.0, *values, False)  # noqa: FBT003 - positional, as compiled
        ranges = made.astype(np.uint32).view(np.float32).astype(float) if len(made) else np.empty((0, 2))
        found.append([*one.dropped, *((float(low), float(high)) for low, high in ranges)])
    return found


LOOPS = [
    of_the_vectorised_search,
    of_the_vectorised_enclosure,
    of_the_search_with_signed_cells,
    of_the_compiled_search,
    of_an_enclosure,
    of_slivers,
]
Loop = Callable[[pytest.MonkeyPatch, GuardConstants[float], States, Sequence[Answers]], list[Found]]


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_some_answers(loop: Loop, bound: float, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    constants, count = Setting(bound=bound).case().constants, 60
    answers = [Chance(rng) for _ in range(count)]

    found = loop(monkeypatch, constants, pairs(count, rng), answers)

    for cells in found:
        assert cells is None or is_chain(cells, largest_gradient(constants)), cells
    assert any(cells is not None for cells in found)


def first_scales(last: int) -> list[float]:
    """Scales for which the first cells begin at every combination of the gradients that they can begin at."""
    made: dict[tuple[float, ...], float] = {}
    for tenth in range(last * 40 + 2):
        scale = tenth / 10 * SMALLEST
        ends = tuple(min(float(np.float32(share * scale)), last * SMALLEST) for share in FIRST_ENDS)
        made.setdefault(ends, scale)
    return list(made.values())


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_every_answer(loop: Loop, budget: int) -> None:
    """Of a claim with a few gradients: all scripts that differ in what the loop asks, and every place of the ends."""
    last = 3 if budget == 1 else 4
    constants, tried, closed = Setting(bound=last * SMALLEST).case().constants, 0, 0
    assert largest_gradient(constants) == last * SMALLEST
    for scale in first_scales(last):
        waiting = [Script()]
        while waiting:
            states = States(*(torch.zeros(len(waiting)) for _ in States._fields))
            with pytest.MonkeyPatch.context() as patch:
                for module in (search, compiled_search, by_slopes):
                    patch.setattr(module, "make_scale", lambda *_, scale=scale: lambda _k, v, _v: v * 0 + scale)
                found = loop(patch, constants, states, waiting)
            for script, cells in zip(waiting, found, strict=True):
                assert cells is None or is_chain(cells, last * SMALLEST), (
                    f"Script {script.beginning} at scale {scale!r} leaves {cells}"
                )
                closed += cells is not None
            tried += len(waiting)
            waiting = [following for script in waiting for following in script.next()]
    assert closed >= len(first_scales(last)), f"{closed} of {tried}"


def test_a_loop_that_forgets_a_half_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: where the upper halves are lost, one of the scripts leaves a gap."""
    joined = search.Cells.joined
    monkeypatch.setattr(search.Cells, "joined", classmethod(lambda _, first, _second: joined(first, first)))
    with pytest.raises(AssertionError, match="Script"):
        test_every_answer(of_the_vectorised_search, 1)
