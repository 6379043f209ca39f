"""What makes a lemma well formed, and what is refused."""

from typing import Any

import pytest

from guarded_moments.proofs import Lemma, LemmaError

GOOD: dict[str, Any] = {
    "name": "square_grows",
    "statement": "The square of a number above one is at least the number.",
    "variables": {"x": "a number [1]"},
    "given": ("1 <= x",),
    "then": "x <= x*x",
    "twin": "1.01*x <= x*x",
    "needed_by": ("nothing_else",),
}


def test_a_lemma_holds_its_claims_parsed() -> None:
    lemma = Lemma(**GOOD)
    assert [str(atom) for atom in lemma.hypotheses] == ["-1 + x >= 0"]
    assert len(lemma.goal) == len(lemma.false_goal) == 1
    assert lemma.goal != lemma.false_goal


def test_a_lemma_cannot_be_changed() -> None:
    variables = {"x": "a number [1]"}
    lemma = Lemma(**GOOD | {"variables": variables})
    variables["y"] = "a late addition [1]"
    assert dict(lemma.variables) == {"x": "a number [1]"}
    with pytest.raises(AttributeError):
        lemma.then = "x >= 0"  # type: ignore[misc]
    with pytest.raises(TypeError):
        lemma.variables["y"] = "another [1]"  # type: ignore[index]


def test_equal_lemmas_are_equal() -> None:
    assert Lemma(**GOOD) == Lemma(**GOOD)
    assert len({Lemma(**GOOD), Lemma(**GOOD)}) == 1


@pytest.mark.parametrize(
    ("change", "part", "reason"),
    [
        ({"name": "Square"}, "name", "words of lower-case letters"),
        ({"name": "square__grows"}, "name", "words of lower-case letters"),
        ({"statement": "Squares grow"}, "statement", "full stop"),
        ({"variables": {"abs": "a number [1]"}}, "variables", "'abs' cannot be a variable"),
        ({"variables": {"let": "a number [1]"}}, "variables", "'let' cannot be a variable"),
        ({"variables": {"lambda": "a number [1]"}}, "variables", "'lambda' cannot be a variable"),
        ({"variables": {"x y": "a number [1]"}}, "variables", "'x y' cannot be a variable"),
        ({"variables": {"x": "a number"}}, "variables", "ends with a [unit]"),
        ({"variables": {"x": "[1]"}}, "variables", "ends with a [unit]"),
        ({"variables": {"x": "a [1]", "y": "b [1]"}}, "variables", "'y' is never used"),
        ({"given": "1 <= x"}, "given", "a tuple of texts"),
        ({"needed_by": "theorem"}, "needed_by", "a tuple of texts"),
        ({"needed_by": ()}, "needed_by", "nothing needs"),
        ({"resource_limit": 0}, "resource_limit", "positive"),
        ({"twin": "x*x - x >= 0"}, "twin", "the same as the goal"),
        ({"given": ("1 <= x", "x <= z")}, "given[1]", "unknown variable 'z'"),
        ({"then": "x <= x*x +"}, "then", "cannot be read"),
        ({"twin": "x/x <= 1"}, "twin", "by numbers only"),
    ],
)
def test_an_ill_formed_lemma_is_refused(change: dict[str, Any], part: str, reason: str) -> None:
    with pytest.raises(LemmaError) as refused:
        Lemma(**GOOD | change)
    message = str(refused.value)
    assert message.startswith(f"lemma {(GOOD | change)['name']!r}, {part}: ")
    assert reason in message


def test_the_variables_of_an_identity_count_as_used() -> None:
    Lemma(**GOOD | {"given": (), "then": "x - x == 0", "twin": "x == 0"})
