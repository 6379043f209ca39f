"""Mutation testing can fail: it needs the tests to pass without a mutant, and sees one that changes nothing survive."""

import subprocess
import sys
from pathlib import Path

from tests.meta.equivalent_mutants import EQUIVALENT
from tests.meta.mutation import TESTS, mutants_of

ROOT = Path(__file__).parents[2]
PROGRAM = """
from pathlib import Path
from tests.meta.mutation import mutants_of, survives, unchanged
path = Path("reference/guard/slopes.py")
print(survives(unchanged(path)), survives(next(one for one in mutants_of(path) if one.change == {change!r})))
"""


def test_a_module_as_it_is_survives_and_a_changed_one_does_not() -> None:
    """In a process of its own: the mutants are forks of one that has not imported this project."""
    program = PROGRAM.format(change="mul to add")
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT)
    assert ran.stdout.split() == ["True", "False"], ran.stdout + ran.stderr


def test_every_reason_is_of_a_mutant_that_there_is() -> None:
    """One of a line that is gone would excuse whatever comes to look like it."""
    paths = {path.stem: path for path in (ROOT / "reference" / "guard").glob("*.py")}
    assert set(TESTS) <= set(paths)
    for module, reasons in EQUIVALENT.items():
        there = {(mutant.code, mutant.change) for mutant in mutants_of(paths[module])}
        listed = {mutant for mutants in reasons.values() for mutant in mutants}
        assert listed <= there, f"{module}: {sorted(listed - there)}"
