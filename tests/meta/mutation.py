"""Mutation testing of the guard: change one operator, function or number of its source, and see a test fail.

    python -m tests.meta.mutation reference/guard/closed_form.py            # every mutant of a module
    python -m tests.meta.mutation reference/guard/*.py --sample 60          # so many, drawn with --seed

A mutant that survives is a line that no test guards, or one that means the same; the latter are listed in `EQUIVALENT`
with the reason.  Each mutant runs in a fork of a process that has imported everything but this project, on the tests of
its own module, which keeps it at seconds.

Exit status 1 if any mutant survives that is not known to be equivalent; 2 if the tests fail without a mutant.
"""

import argparse
import ast
import contextlib
import copy
import importlib.abc
import importlib.machinery
import math
import os
import random
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import hypothesis
import mpmath
import numba
import pytest
import torch

ROOT = Path(__file__).parents[2]
PRELOADED = (hypothesis, mpmath, numba, torch)
PATIENCE = 6  #: times as long as the tests take on the module as it is; beyond, a mutant counts as killed by running on
MEMORY = 4 << 30  #: bytes of address space a mutant; one that splits cells without end runs out of it, and fails

#: Where the source of the formulas is run on symbols, and must be what the certificates are about.
PROOFS = tuple(
    f"../../proofs/test_{name}.py::test_the_source_as_it_is_fits_its_proof"
    for name in ("cells", "cell_evaluation", "cell_deviation")
)
#: The same of the closed form and its slack.
PROOF_OF_UPDATE = "../../proofs/test_check.py::test_the_source_as_it_is_fits_its_proof"
#: What each module's mutants are tried on, the quickest first.
TESTS = {
    "closed_form": ("test_closed_form.py", "test_constants.py", PROOF_OF_UPDATE),
    "constants": ("test_constants.py", "test_closed_form.py"),
    "slack": ("test_slack.py", "test_constants.py", PROOF_OF_UPDATE),
    "real_update": ("test_constants.py", "test_slack.py"),
    "cells": ("test_cells.py", *PROOFS),
    "search": ("test_search.py", "test_cells.py", "test_cover.py"),
    "exact": ("test_exact.py",),
    "enclosure": ("test_search.py",),
    "cut": ("test_cut.py", "test_cover.py"),
    "binary32_filter": ("test_binary32_filter.py",),
    "compiled_search": (
        "test_compiled_search.py",
        "test_cover.py::test_every_answer[of_the_compiled_search]",
        "test_exact.py",
    ),
    "allowance": ("test_search.py", "test_exact.py"),
    "signed_cells": ("test_signed_cells.py", "test_exact.py", "test_cover.py"),
    "slopes": ("test_slopes.py", *PROOFS),
    "cell_slack": ("test_signed_cells.py", "test_slack.py", *PROOFS),
    "overflow": ("test_overflow.py",),
    "binary64_range": ("test_binary64_range.py",),
    "claim_constants": ("test_constants.py", "test_closed_form.py", "test_binary64_range.py"),
}
WITHIN = "within = (~found.cleared & (found.best * constants.step <= constants.threshold)).nonzero().flatten()"
COLUMNS = "lows, highs = np.empty((_STACK, 3)), np.empty((_STACK, 3))"
WITHOUT_WIDTH = "if g <= low.g and (j < len(ends) or g > 0.0):  # no width, and covered by its neighbours"
ORDINARY = "_ORDINARY = (Ordinary(2.0**10, 2.0**-80, 2.0**20), Ordinary(2.0**10, 2.0**-60, 2.0**10))"
NEVER = "_NEVER, _NO_NUMBER = 1 << 40, 1 << 30"
FIRST_ENDS = "FIRST_ENDS = (0.0, 0.3, 0.6, 1.0, 1.7, 3.5, 9.0)"
#: Survivors that change nothing that is claimed, by module, line of code and change, with the reason.
EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("exact", "WORTH_COMPILING = 1 << 20", "1 to 2"): "where compiling pays; both ways decide alike",
    ("exact", "WORTH_COMPILING = 1 << 20", "20 to 21"): "as above",
    ("exact", "compiled = len(judged) >= WORTH_COMPILING if compiled is None else compiled", "GtE to Gt"): "as above",
    ("exact", "_TORCH_BLOCK = 1 << 12", "1 to 2"): "how many are searched together",
    ("exact", "_TORCH_BLOCK = 1 << 12", "12 to 13"): "as above",
    ("exact", WITHIN, "BitAnd to BitOr"): "more is searched again, to the same end",
    ("exact", WITHIN, "LtE to Lt"): "at equality alone: less is accepted, if anything",
    (
        "exact",
        "blocks = [states.slice(begin, begin + _TORCH_BLOCK) for begin in range(0, max(1, len(states.m)), _TORCH_BLOCK)]",  # noqa: E501 - a line of code, as it is
        "1 to 2",
    ): "one block of no coordinates in any case",
    ("signed_cells", "MAX_ROUNDS = 400", "400 to 401"): "a budget: what is beyond it is left as it is",
    ("signed_cells", "MAX_CELLS = 1 << 12", "1 to 2"): "as above",
    ("signed_cells", "MAX_CELLS = 1 << 12", "12 to 13"): "as above",
    (
        "signed_cells",
        "found.spent.logical_or_(cells.coordinate.bincount(minlength=n) > MAX_CELLS)",
        "Gt to GtE",
    ): "as above",
    (
        "signed_cells",
        "cells = cells.select(bounds.highest(cells) > constants.threshold)",
        "Gt to GtE",
    ): "at equality alone: less is cleared, if anything",
    (
        "signed_cells",
        "done = (at_ends > constants.threshold) | (cells.floats_inside <= shortest) | found.spent[cells.coordinate]",
        "Gt to GtE",
    ): "as above",
    (
        "closed_form",
        "return round_up(inflation(count + 1))  # and one for the product with this factor",
        "1 to 2",
    ): "one rounding too many is counted: less is accepted, if anything",
    (
        "constants",
        "return GuardConstants(*(op.constant(0.0) for _ in GuardConstants._fields))",
        "0.0 to 1.0",
    ): "what is counted is roundings, whatever the number",
    (
        "binary64_range",
        "return exponents(low, high, np.where(order == 0, 1, order), order == 0, found.grid)",
        "1 to 2",
    ): "zero has no sign",
    (
        "binary64_range",
        "low, high = np.where(a.is_zero, _NEVER, a.low // 2 - 1), np.where(a.is_zero, -_NEVER, -(-a.high // 2) + 1)",
        "1 to 2",
    ): "a wider range: more is refused, if anything",
    (
        "overflow",
        "@lru_cache(maxsize=64)  # tensors of one param_group share everything that matters here",
        "64 to 65",
    ): "how many are remembered",
    ("binary64_range", "BAND = 64", "64 to 65"): "how wide a case is",
    ("binary64_range", NEVER, "1 to 2"): "a number far above every exponent in either case",
    ("binary64_range", NEVER, "40 to 41"): "as above",
    ("binary64_range", NEVER, "30 to 31"): "as above",
    (
        "binary64_range",
        "@lru_cache(maxsize=64)  # tensors of one param_group share everything that matters here",
        "64 to 65",
    ): "how many are remembered",
    (
        "binary64_range",
        "if not smaller or not bool(positive.all()) or max(a.high.max(), b.high.max()) >= _NO_NUMBER // 2:",
        "GtE to Gt",
    ): "at a number far above every exponent",
    (
        "binary64_range",
        'raise OutOfRangeError("a divisor may be zero" if most >= _NO_NUMBER // 2 else f"2**{most} overflows")',
        "GtE to Gt",
    ): "as above",
    (
        "binary64_range",
        'raise OutOfRangeError("a divisor may be zero" if most >= _NO_NUMBER // 2 else f"2**{most} overflows")',
        "2 to 3",
    ): "as above",
    (
        "binary64_range",
        "return exponents(low, high, np.ones_like(low), low > high, grid)",
        "Gt to GtE",
    ): "the ends of a band differ",
    (
        "binary64_range",
        "m, m_hat = (exponents(least_exponent, most, np.array(0), most > least, least_exponent) for _ in range(2))",
        "Gt to GtE",
    ): "they are -149 and 60",
    (
        "binary64_range",
        "gradients = _bands(least, max(least + 1, math.frexp(gradient_bound)[1]))",
        "1 to 2",
    ): "a band that is wider: more is refused, if anything",
    (
        "binary64_range",
        "grown = np.where(a.zero | b.zero, np.minimum(a.low, b.low), np.maximum(a.low, b.low))",
        "BitOr to BitAnd",
    ): "where one alone may be zero, the next line decides",
    (
        "binary64_range",
        "if not smaller or not bool(positive.all()) or max(a.high.max(), b.high.max()) >= _NO_NUMBER // 2:",
        "2 to 3",
    ): "a number far above every exponent in either case",
    (
        "search",
        "exceeded[cells.coordinate[cells.floats_inside <= 1]] = True  # neighbours: nothing is left to split",
        "1 to 2",
    ): "given up one split sooner: less is accepted, if anything",
    (
        "search",
        "return torch.where(gradient < 0, minus, plus).clamp_(min=0)",
        "Lt to LtE",
    ): "at zero both are one number",
    (
        "search",
        "sign = torch.where(plus[row, column] >= minus[row, column], 1.0, -1.0)",
        "GtE to Gt",
    ): "at a tie either sign attains it",
    ("compiled_search", "MAX_CELLS = 20_000", "20000 to 20001"): "a budget: what is beyond it is not accepted",
    (
        "compiled_search",
        "_STACK = 512  #: cells waiting at a time; depth-first, each split adds one",
        "512 to 513",
    ): "as above",
    ("compiled_search", "cells = 0", "0 to 1"): "as above",
    ("compiled_search", "cells += 1", "1 to 2"): "as above",
    ("compiled_search", "@lru_cache(maxsize=1)", "1 to 2"): "how many are remembered",
    ("compiled_search", "if cells > MAX_CELLS or top + 2 > _STACK:", "Gt to GtE"): "a budget, as above",
    ("compiled_search", "if cells > MAX_CELLS or top + 2 > _STACK:", "2 to 3"): "as above",
    ("compiled_search", COLUMNS, "3 to 4"): "a column that nothing uses",
    ("compiled_search", WITHOUT_WIDTH, "LtE to Lt"): "a cell of no width is asked about, to the same end",
    ("compiled_search", WITHOUT_WIDTH, "Or to And"): "as above",
    ("compiled_search", WITHOUT_WIDTH, "0.0 to 1.0"): "as above",
    ("compiled_search", "a, b = (low, cut) if half == 0 else (cut, high)", "0 to 1"): "which half comes first",
    (
        "compiled_search",
        "outcome[i], gradient[i] = exceeded, np.float32(g if plus >= minus else -g)",
        "GtE to Gt",
    ): "at a tie either sign attains it",
    ("compiled_search", "if at_zero > allowed:", "Gt to GtE"): "at equality alone: less is accepted, if anything",
    ("compiled_search", "if upper_of(k, terms.shift, terms.pull, a, b) > allowed:", "Gt to GtE"): "as above",
    (
        "compiled_search",
        "if max(plus, minus) > allowed:",
        "Gt to GtE",
    ): "at equality alone: less is accepted, if anything",
    (
        "compiled_search",
        "if upper_of(k, terms.shift, terms.pull, low, high) > allowed:",
        "Gt to GtE",
    ): "as above",
    (
        "compiled_search",
        "ends = np.array(FIRST_ENDS[1:], dtype=np.float64)",
        "1 to 2",
    ): "where cells end decides how long a search takes, and nothing else",
    ("constants", "threshold: Fraction = Fraction(0),", "0 to 1"): "a default, for those who ask of other constants",
    ("constants", "gradient_bound: Fraction = Fraction(0),", "0 to 1"): "as above",
    (
        "claim_constants",
        "if not (lr > 0 and all(math.isfinite(x) for x in scalars) and scalars.step != 0):",
        "Gt to GtE",
    ): "a learning rate of zero gives a step size of zero",
    (
        "cell_slack",
        "return round_up(inflation(deviation_roundings() + 1))  # and one for the product with this factor",
        "1 to 2",
    ): "one rounding too many is counted: less is accepted, if anything",
    ("binary32_filter", "@lru_cache(maxsize=64)", "64 to 65"): "how many are remembered",
    ("binary32_filter", ORDINARY, "10 to 11"): "what a filter does not judge the guard does, alike",
    ("binary32_filter", ORDINARY, "20 to 21"): "as above",
    ("binary32_filter", ORDINARY, "60 to 61"): "as above",
    ("binary32_filter", ORDINARY, "80 to 81"): "as above",
    (
        "binary32_filter",
        "return Filter(held, np.float32(-np.inf), np.float32(np.inf), _ORDINARY[0])",
        "0 to 1",
    ): "it leaves everything to the guard",
    (
        "binary32_filter",
        "return np.nextafter(nearest, np.float32(-np.inf)) if Fraction(float(nearest)) > value else nearest",
        "Gt to GtE",
    ): "at equality alone: more is left to the guard",
    ("enclosure", "rounds: int = 200,", "200 to 201"): "a budget: what is beyond it is in the upper end",
    (
        "enclosure",
        "cells = cells.select(bounds.upper(cells.low, cells.high, cells.coordinate) > cutoff(best)[cells.coordinate])",
        "Gt to GtE",
    ): "at equality alone: more is split, to the same end",
    ("constants", "TINY = 2.0**-1000", "1000 to 1001"): "any number below every root",
    ("cut", FIRST_ENDS, "1.7 to 2.7"): "where cells end decides how long a search takes, and nothing else",
    ("cut", FIRST_ENDS, "3.5 to 4.5"): "as above",
    ("cut", FIRST_ENDS, "9.0 to 10.0"): "as above",
    ("search", "SPENT = 2", "2 to 3"): "a name's number",
    ("search", "ENUMERABLE = 512", "512 to 513"): "from where cells are split and not enumerated; both are exact",
    ("search", "exceeded = best > allowed", "Gt to GtE"): "at equality alone: less is accepted, if anything",
    ("search", "exceeded |= best > allowed", "Gt to GtE"): "as above",
    ("search", "cells = cells.select(upper > allowed[cells.coordinate])", "Gt to GtE"): "as above",
    ("search", "keep = (bounds.upper(lows, highs) > cutoff(best)) & wide", "Gt to GtE"): "as above",
    (
        "search",
        "def cleared(constants: GuardConstants[float], states: States, rounds: int = 60) -> Cleared:",
        "60 to 61",
    ): "a budget: what is beyond it is not accepted",
    (
        "search",
        "return Partition(Cells(coordinate, low, high), best, g[row, column] * sign)",
        "Mult to Div",
    ): "a sign is 1 or -1",
    (
        "search",
        "return halves, torch.maximum(plus, minus), torch.where(plus >= minus, middle, -middle)",
        "GtE to Gt",
    ): "at a tie either sign attains it",
    ("search", "wide[-1] |= highs.g[-1] == 0", "1 to 2"): "all cells are one gradient then",
    (
        "search",
        "return (torch.zeros_like(cutoff).index_fill_(0, partition.cells.coordinate, 1.0) > 0).nonzero().flatten()",
        "1.0 to 2.0",
    ): "a mark",
    (
        "signed_cells",
        "keep[-1] |= ends[-1] == 0  # zero is all there is: no cell has a width",
        "1 to 2",
    ): "as in search",
    ("signed_cells", "torch.full((n,), -1.0, dtype=torch.float64),", "1.0 to 2.0"): "below every value",
    (
        "signed_cells",
        "attains = (values >= value[cells.coordinate]) & (values > found.value[cells.coordinate])",
        "Gt to GtE",
    ): "another gradient of the same value",
    ("signed_cells", "by_slopes = torch.where(cells.sign > 0, plus, minus)", "Gt to GtE"): "a sign is 1 or -1",
    ("signed_cells", "upper = torch.where(cells.sign > 0, plus, minus)", "Gt to GtE"): "as above",
    ("signed_cells", "return torch.where(sign > 0, plus, minus) * self._step", "Gt to GtE"): "as above",
    (
        "exact",
        "left = uncleared(constants, states.select(index), shortest=1).cells.coordinate",
        "1 to 2",
    ): "a cell of three gradients is left as it is: less is accepted, if anything",
}

NAMES = {
    "minimum": "maximum",
    "maximum": "minimum",
    "mul": "add",
    "add": "mul",
    "div": "mul",
    "min": "max",
    "max": "min",
    "round_up": "round_down",
    "round_down": "round_up",
    "square_root_up": "square_root_down",
    "square_root_down": "square_root_up",
}
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}


class Mutant(NamedTuple):
    """A module with one change."""

    module: str  #: `guarded_moments.reference.guard.slack`
    line: int
    code: str  #: of that line
    change: str
    source: str

    @property
    def equivalent(self) -> bool:
        """Whether it is known to change nothing that is claimed."""
        return (self.module.rpartition(".")[2], self.code, self.change) in EQUIVALENT

    @property
    def name(self) -> str:
        """How it is printed."""
        return f"{self.module.rpartition('.')[2]}:{self.line}: {self.change}: {self.code}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file, in the order of its lines."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    module = _module_of(path)
    lines, annotations = source.splitlines(), _annotations(tree)
    for index, node in enumerate(ast.walk(tree)):
        for change in () if node in annotations else _changes(node):
            changed = copy.deepcopy(tree)
            target = list(ast.walk(changed))[index]
            words = _apply(target, change)
            line = getattr(node, "lineno", 0)
            yield Mutant(module, line, lines[line - 1].strip(), words, ast.unparse(changed))


def _annotations(tree: ast.AST) -> set[ast.AST]:
    """What says types and is never evaluated."""
    said = {getattr(node, place, None) for node in ast.walk(tree) for place in ("annotation", "returns")}
    return {inner for annotation in said if annotation is not None for inner in ast.walk(annotation)}


def _changes(node: ast.AST) -> Iterator[object]:
    if isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in OPERATORS:
        yield OPERATORS[type(node.op)]
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        yield OPERATORS[type(node.ops[0])]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
        yield NAMES[node.func.id]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Invert, ast.Not)):
        yield None
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        yield node.value + 1


def _apply(node: ast.AST, change: object) -> str:
    if isinstance(node, (ast.BinOp, ast.BoolOp)) and isinstance(change, type):
        words = f"{type(node.op).__name__} to {change.__name__}"
        node.op = change()
    elif isinstance(node, ast.Compare) and isinstance(change, type):
        words = f"{type(node.ops[0]).__name__} to {change.__name__}"
        node.ops[0] = change()
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and isinstance(change, str):
        words = f"{node.func.id} to {change}"
        node.func.id = change
        if change in {"add", "mul"}:  # the builders name only what they use
            node.func = ast.Attribute(ast.Name("op", ast.Load()), change, ast.Load())
    elif isinstance(node, ast.UnaryOp):
        words = f"without {type(node.op).__name__}"
        node.op = ast.UAdd() if isinstance(node.op, ast.Not) else ast.Invert()
        if isinstance(node.op, ast.Invert):
            node.operand = ast.UnaryOp(ast.Invert(), node.operand)
    elif isinstance(node, ast.Constant):
        words = f"{node.value!r} to {change!r}"
        node.value = change  # type: ignore[assignment]  # a number, as it was
    else:
        raise TypeError(node)
    ast.fix_missing_locations(node)
    return words


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a mutant's source."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name == self._mutant.module else None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = f"<{self._mutant.name}>"
        exec(compile(self._mutant.source, module.__file__, "exec"), module.__dict__)  # noqa: S102 - the project's own source


def unchanged(path: Path) -> Mutant:
    """A module as it is, on which its tests must pass: else every mutant would seem to be killed."""
    source = ast.unparse(ast.parse(path.read_text(encoding="utf-8")))
    return Mutant(_module_of(path), 0, "", "unchanged", source)


def _module_of(path: Path) -> str:
    return f"guarded_moments.{'.'.join(path.resolve().relative_to(ROOT).with_suffix('').parts)}"


def survives(mutant: Mutant, timeout: float = math.inf) -> bool:
    """Whether the tests pass with the mutant in place of its module, within `timeout` seconds.

    Raises:
        RuntimeError: they could not be run: neither passed, nor failed, nor broke when they were imported.
    """
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        sys.meta_path.insert(0, _Changed(mutant))
        short = mutant.module.rpartition(".")[2]
        files = [str(ROOT / "tests" / "reference" / "guard" / name) for name in TESTS[short]]
        os._exit(int(pytest.main(["-x", "-q", "-o", "timeout=0", "-W", "ignore", *files])))
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            ended = os.waitstatus_to_exitcode(status)
            if ended > int(pytest.ExitCode.INTERRUPTED):  # which is also a module that raises when it is imported
                raise RuntimeError(
                    f"{mutant.name}: pytest ended with {pytest.ExitCode(ended).name}, which says nothing"
                )
            return ended == 0
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, 9)
    os.waitpid(child, 0)
    return False


def main() -> int:
    """Run, and say which mutants survive."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--sample", type=int, help="so many mutants, drawn at random, and not all")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    files = [path for path in given.files if path.stem in TESTS]
    every = [mutant for path in files for mutant in mutants_of(path)]
    if given.sample is not None:
        every = random.Random(given.seed).sample(every, min(given.sample, len(every)))  # noqa: S311 - no secret
    os.chdir(ROOT)
    timeout: dict[str, float] = {}
    for path in files:
        begun = time.monotonic()
        if not survives(unchanged(path)):
            print(f"{path}: its tests fail on the module as it is")  # noqa: T201 - the result
            return 2
        timeout[_module_of(path)] = PATIENCE * (time.monotonic() - begun)
    killed, equivalent, alive = 0, 0, []
    for mutant in every:
        if not survives(mutant, timeout[mutant.module]):
            killed += 1
            outcome = "killed"
        elif mutant.equivalent:
            equivalent += 1
            outcome = "equivalent"
        else:
            alive.append(mutant)
            outcome = "SURVIVES"
        print(f"{outcome:10}  {mutant.name}", flush=True)  # noqa: T201 - progress
    print(f"{len(every)} mutants: {killed} killed, {equivalent} equivalent, {len(alive)} survive")  # noqa: T201 - the result
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
