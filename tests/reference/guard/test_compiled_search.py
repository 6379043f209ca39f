"""The compiled loop, run uncompiled on answers of ours: what it asks, what it says, and that its stack is enough."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from tests.reference.guard.cases import Setting

from guarded_moments.reference.adam import as_is
from guarded_moments.reference.guard import compiled_search
from guarded_moments.reference.guard.constants import binary64_constants
from guarded_moments.reference.guard.cut import FIRST_ENDS
from guarded_moments.reference.guard.search import Outcome

INF = math.inf
LAST = 20.0  #: the largest gradient, in units of the scale
#: Ends of the first cells.
ENDS = [float(np.float32(end)) for end in FIRST_ENDS] + [LAST]
Cell = tuple[float, float]


def nowhere(_low: float, _high: float) -> bool:
    return False


class Answers:
    """Which cells are kept, at which gradient the tolerance is exceeded, and what was asked."""

    def __init__(
        self, keeps: Callable[[float, float], bool] = nowhere, exceeds: dict[float, tuple[float, float]] | None = None
    ) -> None:
        self.keeps, self.exceeds, self.asked = keeps, exceeds or {}, list[Cell]()

    def found(self, patch: pytest.MonkeyPatch, last: float = LAST) -> tuple[Outcome, float]:
        """What the loop says of one coordinate."""
        patch.setattr(compiled_search, "jit", as_is)
        patch.setattr(compiled_search, "make_scale", lambda *_: lambda *_: np.float64(1))
        patch.setattr(compiled_search, "make_value", lambda *_: self._value)
        patch.setattr(compiled_search, "make_upper", lambda *_: self._upper)
        loop = compiled_search.compiled_search.__wrapped__()
        constants = binary64_constants(Setting(bound=LAST).case().constants)
        outcome, gradient = np.zeros(1, dtype=np.int8), np.zeros(1, dtype=np.float32)
        loop(constants, np.float32(last), 1.0, *np.full((4, 1), 1e-4, dtype=np.float32), outcome, gradient)
        return Outcome(int(outcome[0])), float(gradient[0])

    def _value(self, *arguments: object) -> tuple[float, float]:
        return self.exceeds.get(float(arguments[-1].g), (-INF, -INF))  # type: ignore[attr-defined]  # an end

    def _upper(self, *arguments: object) -> float:
        low, high = (float(end.g) for end in arguments[-2:])  # type: ignore[attr-defined]  # as above
        self.asked.append((low, high))
        return INF if self.keeps(low, high) else -INF


def test_a_coordinate_of_which_every_cell_is_dropped_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers()
    assert answers.found(monkeypatch) == (Outcome.CLEARED, 0.0)
    assert answers.asked == list(pairwise(ENDS))


@pytest.mark.parametrize("g", ENDS[1:])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_gradient_at_a_first_end_has_the_sign_that_exceeds(
    g: float, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Answers(exceeds={g: (sign * INF, -sign * INF)})
    assert answers.found(monkeypatch) == (Outcome.EXCEEDED, sign * g)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_gradient_at_a_cut_has_the_sign_that_exceeds(sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(lambda low, _high: low == 9.0, {14.5: (sign * INF, -sign * INF)})
    assert answers.found(monkeypatch) == (Outcome.EXCEEDED, sign * 14.5)


def test_what_exceeds_at_zero_needs_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(exceeds={0.0: (INF, INF)})
    assert answers.found(monkeypatch) == (Outcome.EXCEEDED, 0.0)
    assert answers.asked == []


@pytest.mark.parametrize("kept", [True, False])
def test_of_a_claim_about_zero_alone_zero_is_asked_about(*, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(lambda _low, _high: kept)
    outcome, _ = answers.found(monkeypatch, last=0.0)
    assert answers.asked == [(0.0, 0.0)]
    assert (outcome == Outcome.CLEARED) == (not kept)


def test_no_cell_is_asked_about_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(lambda low, high: high - low > 0.25)
    assert answers.found(monkeypatch)[0] == Outcome.CLEARED
    assert len(answers.asked) > 100
    assert len(set(answers.asked)) == len(answers.asked)


def test_neighbours_that_are_kept_count_as_exceeding(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(lambda low, high: low <= 10.0 <= high)
    outcome, gradient = answers.found(monkeypatch)
    assert outcome == Outcome.EXCEEDED
    assert abs(gradient - 10.0) <= 2.0**-20


@pytest.mark.parametrize(("name", "size"), [("_STACK", 20), ("MAX_CELLS", 10)])
def test_out_of_stack_or_cells_a_coordinate_is_given_up(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_search, name, size)
    answers = Answers(lambda _low, _high: True)
    assert answers.found(monkeypatch)[0] == Outcome.SPENT


def test_the_stack_is_enough_down_to_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all cells kept, of which each split adds one, and with all that begin at zero."""
    for last in (LAST, float(np.finfo(np.float32).max)):
        answers = Answers(lambda _low, _high: True)
        assert answers.found(monkeypatch, last)[0] == Outcome.EXCEEDED
    answers = Answers(lambda low, _high: low == 0)
    assert answers.found(monkeypatch)[0] == Outcome.EXCEEDED
