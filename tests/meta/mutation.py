"""Mutation testing of the guard: change one operator, function or number of its source, and see a test fail.

    python -m tests.meta.mutation reference/guard/closed_form.py            # every mutant of a module
    python -m tests.meta.mutation reference/guard/*.py --sample 60          # so many, drawn with --seed

A mutant that survives is a line that no test guards, or one that means the same; the latter are listed with the reason
(`equivalent_mutants`).  Each mutant runs in a fork of a process that has imported everything but this project, on the
tests of its own module, which keeps it at seconds.

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
from tests.meta.equivalent_mutants import EQUIVALENT

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
        reasons = EQUIVALENT.get(self.module.rpartition(".")[2], {})
        return any((self.code, self.change) in mutants for mutants in reasons.values())

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
