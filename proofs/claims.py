"""The claim language: what a lemma assumes and asserts, as text, read exactly.

A claim is one comparison of polynomials over the reals, or several that all hold::

    0 <= w <= 1
    abs(r - x) <= u*a + 2**-150
    (t1 - s1)*(s2 + e) >= 1.01*(t2 - s2)*(s1 + e)
    s <= S and S <= T

Allowed are ``+ - *``, integer powers, division by a number, ``<= < == >= >``, chains, ``and``, and
``abs(x) <= B`` or ``abs(x) < B`` as a whole comparison (it means ``-B <= x and x <= B``).  A decimal
is the rational it spells: 1.01 is 101/100, not a binary number near it.  A variable and a negative
power never meet, so a claim has a meaning at every point.

Claimed: `parse_claim` returns atoms whose conjunction says what Python's reading of the text says,
with real numbers for floats.  Anything else is refused, with a caret under the offending text.

Trusted: Python's own `ast` for precedence, and `fractions.Fraction`.
"""

import ast
from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from typing import Final, NoReturn, TypeAlias

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.polynomials import Polynomial

#: A slip such as ``x**1000`` would keep the computer busy for hours instead of giving an error.
LARGEST_POWER: Final = 256


_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[Polynomial, Polynomial], Polynomial]]] = {
    ast.Add: Polynomial.__add__,
    ast.Sub: Polynomial.__sub__,
    ast.Mult: Polynomial.__mul__,
}


#: Assertions that all hold.
Claim: TypeAlias = tuple[Atom, ...]


class ClaimError(ValueError):
    """A claim is not in the claim language; the message shows where."""


def parse_claim(text: str, variables: Collection[str]) -> Claim:
    """Read a claim.

    Args:
        text: the claim, on one line.
        variables: the names that may occur in it.

    Returns:
        The atoms that the claim is the conjunction of.

    Raises:
        ClaimError: if the text is not a claim in these variables.
    """
    return tuple(_Reader(text, variables).read())


def parse_polynomial(text: str, variables: Collection[str]) -> Polynomial:
    """Read an expression of the claim language.

    Args:
        text: the expression, on one line.
        variables: the names that may occur in it.

    Raises:
        ClaimError: if the text is not a polynomial in these variables.
    """
    return _Reader(text, variables).expression()


class _Reader:
    """Reads one claim, and points into its text when it cannot."""

    def __init__(self, text: str, variables: Collection[str]) -> None:
        self._text = text.strip()
        self._variables = variables

    def read(self) -> Iterator[Atom]:
        """Yield the atoms of the claim."""
        yield from self._conjunction(self._tree())

    def expression(self) -> Polynomial:
        """The polynomial that the whole text spells."""
        return self._polynomial(self._tree())

    def _tree(self) -> ast.expr:
        """The syntax tree of the text."""
        # Positions in the syntax tree count bytes: they are columns only in ASCII.
        if not self._text.isascii() or not self._text.isprintable():
            self._refuse("a claim is one line of ASCII text")
        try:
            return ast.parse(self._text, mode="eval").body
        except SyntaxError as error:
            offset = error.offset or 1
            self._refuse(f"cannot be read: {error.msg}", offset - 1, offset)

    def _conjunction(self, node: ast.expr) -> Iterator[Atom]:
        """Yield the atoms of comparisons joined by ``and``."""
        match node:
            case ast.BoolOp(op=ast.And(), values=parts):
                for part in parts:
                    yield from self._conjunction(part)
            case ast.Compare():
                yield from self._comparison(node)
            case _:
                self._refuse_node(node, "expected a comparison")

    def _comparison(self, node: ast.Compare) -> Iterator[Atom]:
        """Yield the atoms of one comparison or chain of comparisons."""
        operands = [node.left, *node.comparators]
        magnitude = _magnitude(node.left)
        if magnitude is not None:
            if len(node.ops) != 1 or not isinstance(node.ops[0], ast.LtE | ast.Lt):
                self._refuse_node(node, "abs(x) stands only in abs(x) <= B and abs(x) < B")
            inner, bound = self._polynomial(magnitude), self._polynomial(operands[1])
            relation = Relation.ABOVE if isinstance(node.ops[0], ast.Lt) else Relation.AT_LEAST
            yield Atom(bound - inner, relation)
            yield Atom(bound + inner, relation)
            return
        sides = [self._polynomial(operand) for operand in operands]
        for comparison, operator in enumerate(node.ops):
            left, right = sides[comparison], sides[comparison + 1]
            match operator:
                case ast.LtE():
                    yield Atom(right - left, Relation.AT_LEAST)
                case ast.Lt():
                    yield Atom(right - left, Relation.ABOVE)
                case ast.Eq():
                    yield Atom(left - right, Relation.EQUAL)
                case ast.GtE():
                    yield Atom(left - right, Relation.AT_LEAST)
                case ast.Gt():
                    yield Atom(left - right, Relation.ABOVE)
                case _:
                    self._refuse_node(node, "comparisons are <=, <, ==, >= and >")

    def _polynomial(self, node: ast.expr) -> Polynomial:
        """The polynomial that an expression spells."""
        match node:
            case ast.Constant():
                polynomial = Polynomial.constant(self._number(node))
            case ast.Name(id=name):
                if name not in self._variables:
                    known = ", ".join(sorted(self._variables)) or "none"
                    self._refuse_node(node, f"unknown variable {name!r} (known: {known})")
                polynomial = Polynomial.variable(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                polynomial = -self._polynomial(operand)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                polynomial = self._power(left, right)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                polynomial = self._polynomial(left) * Polynomial.constant(1 / self._divisor(right))
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATIONS:
                operation = _OPERATIONS[type(operator)]
                polynomial = operation(self._polynomial(left), self._polynomial(right))
            case _:
                allowed = "numbers, variables, + - *, division by numbers and integer powers"
                self._refuse_node(node, f"not a polynomial; allowed are {allowed}")
        return polynomial

    def _number(self, node: ast.Constant) -> Fraction:
        """The rational that a literal spells, decimals included."""
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            self._refuse_node(node, "not a real number")
        # The parser has already rounded a decimal to binary64; its text is exact.
        return Fraction(node.value if isinstance(node.value, int) else self._source(node))

    def _divisor(self, node: ast.expr) -> Fraction:
        """The nonzero number that an expression spells."""
        value = self._polynomial(node).constant_value
        if value is None:
            self._refuse_node(node, "division is by numbers only, not by variables")
        if value == 0:
            self._refuse_node(node, "division by zero")
        return value

    def _power(self, base: ast.expr, exponent: ast.expr) -> Polynomial:
        """A polynomial to a nonnegative power, or a nonzero number to any integer power."""
        power = self._polynomial(exponent).constant_value
        if power is None or power.denominator != 1 or abs(power) > LARGEST_POWER:
            self._refuse_node(exponent, f"powers are integers, at most {LARGEST_POWER}")
        if power < 0:
            return Polynomial.constant(self._divisor(base) ** int(power))
        return self._polynomial(base) ** int(power)

    def _source(self, node: ast.expr) -> str:
        """The text that a node was read from."""
        return self._text[node.col_offset : node.end_col_offset]

    def _refuse_node(self, node: ast.expr, reason: str) -> NoReturn:
        """Raise an error that points at the text of a node."""
        self._refuse(reason, node.col_offset, node.end_col_offset)

    def _refuse(self, reason: str, start: int = 0, end: int | None = None) -> NoReturn:
        """Raise an error that points at a piece of the text."""
        carets = "^" * max(1, (len(self._text) if end is None else end) - start)
        raise ClaimError(f"{reason}\n    {self._text}\n    {' ' * start}{carets}")


def _magnitude(node: ast.expr) -> ast.expr | None:
    """The expression inside ``abs(...)``, or ``None`` if this is something else."""
    match node:
        case ast.Call(func=ast.Name(id="abs"), args=[inner], keywords=[]):
            return inner
        case _:
            return None
