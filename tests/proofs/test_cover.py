"""Where a cell is cut: the statements are true of numbers, cover every path, and another cut does not fit its proof."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from tests.proofs import stored
from tests.proofs.test_check import changed

from guarded_moments.proofs import cover
from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.check import CUT
from guarded_moments.proofs.cover import Path, path_name, paths
from guarded_moments.proofs.definitions import Definitions
from guarded_moments.reference.arithmetic.compiled_binary64 import CompiledBinary64
from guarded_moments.reference.arithmetic.torch_binary64 import TorchBinary64
from guarded_moments.reference.guard.cut import LONG, make_cut


def magnitudes(rng: np.random.Generator, count: int) -> list[tuple[float, float]]:
    """Ends of cells: of any width, neighbours, and those that begin at zero."""
    patterns = rng.integers(0, 0x7F7FFFFF, size=(count, 2), dtype=np.uint32)
    patterns[::3, 1] = patterns[::3, 0] + rng.integers(0, 3, len(patterns[::3]), dtype=np.uint32)
    patterns[1::7, 0] = 0
    patterns[2::7] >>= np.uint32(8)
    ends = np.sort(patterns, axis=1).view(np.float32).astype(float)
    return [(0.0, 0.0), *((float(low), float(high)) for low, high in ends)]


def is_true(atom: Atom, values: dict[str, Fraction]) -> bool:
    """Whether an atom holds of exact numbers."""
    total = Fraction(0)
    for monomial, coefficient in atom.polynomial.terms:
        term = Fraction(coefficient)
        for name, exponent in monomial:
            term *= values[name] ** exponent
        total += term
    return total > 0 if atom.relation is Relation.ABOVE else total >= 0


def test_one_path_is_that_of_each_cell_and_its_conclusion_is_true(rng: np.random.Generator) -> None:
    in_torch, seen = make_cut(TorchBinary64()), set()
    for low, high in magnitudes(rng, 400):
        path = (LONG * low < high, low > 0)
        made = cover.cut(path)
        at = float(in_torch(torch.tensor(low).double(), torch.tensor(high).double()))
        values = {"low": Fraction(low), "high": Fraction(high)}
        values |= {"cut_rounded1": Fraction(low + high), "cut_rounded2": Fraction(at)}
        false = [str(atom) for atom in made.hypotheses if not is_true(atom, values)]
        assert not false, (low, high, false)
        assert all(is_true(atom, values) for atom in made.conclusion), (low, high, at)
        assert low <= at <= high
        seen.add(path)
    assert seen == set(paths())


def test_compiled_code_cuts_at_the_same_places(rng: np.random.Generator) -> None:
    in_torch, compiled = make_cut(TorchBinary64()), make_cut(CompiledBinary64())
    for low, high in magnitudes(rng, 400):
        here = float(in_torch(torch.tensor(low).double(), torch.tensor(high).double()))
        assert compiled(low, high) == here, (low, high)


def test_a_product_that_may_be_rounded_has_no_statement() -> None:
    op = cover.CuttingArithmetic(Definitions("cut_"), (True, True))
    with pytest.raises(AssertionError, match="may be rounded"):
        op.mul(op.constant(3.0), cover.LOW)


def problem_of(path: Path) -> str | None:
    made = cover.cut(path)
    return stored.problem_of(f"{CUT}{path_name(path)}", made.hypotheses, made.conclusion)


@pytest.mark.parametrize("path", paths(), ids=path_name)
def test_the_source_as_it_is_fits_its_proof(path: Path) -> None:
    assert problem_of(path) is None


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("mul(far, low)", "mul(long, mul(far, low))", (True, True)),
        ("mul(long, low), high", "low, high", (True, True)),
        ("mul(half, add(low, high))", "add(low, high)", (False, True)),
        ("mul(half, high))", "mul(far, high))", (True, False)),
        ("return nearest(select", "return (select", (False, True)),
    ],
)
def test_another_cut_does_not_fit_the_proof(monkeypatch: pytest.MonkeyPatch, old: str, new: str, path: Path) -> None:
    wrong: Callable[..., object] = changed(make_cut, old, new)
    monkeypatch.setattr(cover, "make_cut", wrong)
    assert problem_of(path) is not None, f"{old} became {new}, and the old proof still fits"
