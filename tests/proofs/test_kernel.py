"""The kernel: what is proved, and that nothing else can be made into a theorem."""

from fractions import Fraction

import pytest

from guarded_moments.proofs import Atom, KernelError, Polynomial, Relation, Theorem, kernel, parse_claim
from guarded_moments.proofs.kernel import Multiple, Product, Refutation

X, Y = Polynomial.variable("x"), Polynomial.variable("y")
ONE = Polynomial.constant(1)


def atom(text: str) -> Atom:
    (found,) = parse_claim(text, {"x", "y", "s", "i"})
    return found.normal()


def product(factor: int, *facts: int, squares: tuple[Polynomial, ...] = ()) -> Product:
    return Product(Fraction(factor), facts, squares)


def test_facts_that_multiply_to_a_goal_prove_it() -> None:
    # 0 <= x, 0 <= y |- 0 <= x*y: the negated goal plus x*y is zero, and the negated goal is positive.
    proved = kernel.certify(
        [atom("0 <= x"), atom("0 <= y")], atom("0 <= x*y"), [Refutation((product(1, 0, 1), product(1, 2)))]
    )
    assert proved.hypotheses == {atom("0 <= x"), atom("0 <= y")}
    assert proved.conclusion == atom("0 <= x*y")


def test_a_square_needs_no_hypothesis() -> None:
    proved = kernel.certify([], atom("2*x*y <= x*x + y*y"), [Refutation((product(1, squares=(X - Y,)), product(1, 0)))])
    assert proved.hypotheses == frozenset()


@pytest.mark.parametrize(
    ("refutation", "reason"),
    [
        (Refutation((product(2, 0, 1), product(1, 2))), "do not cancel"),
        (Refutation((product(1, 0), product(1, 2))), "do not cancel"),
        (Refutation((product(-1, 0, 1), product(1, 2))), "negative"),
        (Refutation((product(0, 2),)), "no term is positive"),
        (Refutation(()), "no term is positive"),
        (Refutation((product(1, 0, 9),)), "no fact 9"),
        (Refutation((product(1, 0, -1),)), "no fact -1"),
        (Refutation((product(1, 2),), (Multiple(0, ONE),)), "only an equation"),
    ],
    ids=["factor", "fact", "sign", "zero factor", "empty", "no fact", "from the end", "multiplier of an inequality"],
)
def test_a_wrong_certificate_is_refused(refutation: Refutation, reason: str) -> None:
    with pytest.raises(KernelError, match=reason):
        kernel.certify([atom("0 <= x"), atom("0 <= y")], atom("0 <= x*y"), [refutation])


def test_an_equation_in_a_product_is_refused() -> None:
    with pytest.raises(KernelError, match="equation stands in a product"):
        kernel.certify([atom("x == 0")], atom("0 <= x"), [Refutation((product(1, 0), product(1, 1)))])


def test_a_strict_goal_is_not_proved_by_a_weak_fact() -> None:
    with pytest.raises(KernelError, match="no term is positive"):
        kernel.certify([atom("0 <= x")], atom("0 < x"), [Refutation((product(1, 0), product(1, 1)))])


def test_an_equation_takes_both_signs() -> None:
    once = Refutation((product(1, 2), product(1, 0)))
    with pytest.raises(KernelError, match="needs two refutations"):
        kernel.certify([atom("0 <= x"), atom("x <= 0")], atom("x == 0"), [once])
    both = [once, Refutation((product(1, 2), product(1, 1)))]
    assert kernel.certify([atom("0 <= x"), atom("x <= 0")], atom("x == 0"), both).conclusion == atom("x == 0")


def test_nobody_else_makes_a_theorem() -> None:
    with pytest.raises(KernelError, match="only the kernel"):
        Theorem(object(), frozenset(), atom("0 < x"))
    proved = kernel.assume(atom("0 < x"))
    with pytest.raises(KernelError, match="does not change"):
        proved.conclusion = atom("0 < y")
    with pytest.raises(KernelError, match="not a theorem"):
        kernel.cut(atom("0 < x"), proved)  # type: ignore[arg-type]


def test_a_cut_needs_the_very_hypothesis() -> None:
    with pytest.raises(KernelError, match="no hypothesis"):
        kernel.cut(kernel.assume(atom("0 <= x")), kernel.assume(atom("0 < x")))


def test_cases_join_what_is_shown_on_both_sides() -> None:
    square = [Refutation((product(1, 0, 0), product(1, 1)))]
    one = kernel.certify([atom("0 <= x")], atom("0 <= x*x"), square)
    other = kernel.certify([atom("x <= 0")], atom("0 <= x*x"), square)
    assert kernel.cases(one, other, X).hypotheses == frozenset()
    with pytest.raises(KernelError, match="different things"):
        kernel.cases(one, kernel.assume(atom("x <= 0")), X)


def test_variables_are_replaced_all_at_once() -> None:
    swapped = kernel.instantiate(kernel.assume(atom("x <= y")), {"x": Y, "y": X})
    assert swapped.conclusion == atom("y <= x")


def test_a_root_is_eliminated_only_where_it_exists_and_occurs_nowhere_else() -> None:
    exists = kernel.assume(atom("0 <= x"))
    given = [atom("0 <= s"), atom("s*s == x"), atom("y <= 0")]
    # s >= 0, s*s == x, y <= 0 |- y <= 0, in which s does not occur.
    proved = kernel.certify(given, atom("y <= 0"), [Refutation((product(1, 2), product(1, 3)))])
    assert kernel.eliminate_root(proved, "s", X, exists).hypotheses == {atom("0 <= x"), atom("y <= 0")}
    with pytest.raises(KernelError, match="existence"):
        kernel.eliminate_root(proved, "s", Y, exists)
    kept = kernel.certify([*given, atom("s <= y")], atom("y <= 0"), [Refutation((product(1, 2), product(1, 4)))])
    with pytest.raises(KernelError, match="s occurs elsewhere"):
        kernel.eliminate_root(kept, "s", X, exists)


def test_a_reciprocal_is_eliminated_only_of_something_positive() -> None:
    given = [atom("0 < i"), atom("i*x == 1"), atom("y <= 0")]
    proved = kernel.certify(given, atom("y <= 0"), [Refutation((product(1, 2), product(1, 3)))])
    kept = kernel.eliminate_reciprocal(proved, "i", X, kernel.assume(atom("0 < x")))
    assert kept.hypotheses == {atom("0 < x"), atom("y <= 0")}
    with pytest.raises(KernelError, match="existence"):
        kernel.eliminate_reciprocal(proved, "i", X, kernel.assume(atom("0 <= x")))


def test_scaling_does_not_change_a_statement() -> None:
    assert Atom(X + X, Relation.AT_LEAST).normal() == atom("0 <= x")
    assert Atom(-X - X, Relation.EQUAL).normal() == atom("x == 0")
    assert Atom(-X, Relation.AT_LEAST).normal() != atom("0 <= x")
