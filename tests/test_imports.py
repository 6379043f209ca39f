"""What importing costs: nobody waits for a compiler, or for torch to say how a command is called."""

import subprocess
import sys

import pytest

from guarded_moments.oracle.cli import COMMANDS

PROGRAM = """
import runpy, sys
sys.argv = ["gmc", *sys.argv[1:]]
from guarded_moments.oracle.cli import main
try:
    main()
except SystemExit:
    pass
print("\\n", *sorted({"torch", "numba", "numpy", "z3", "pytest", "jax"} & sys.modules.keys()))
"""


def imported(program: str, *arguments: str) -> set[str]:
    """Which of the large packages a new process has imported in the end."""
    done = subprocess.run([sys.executable, "-c", program, *arguments], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_reference_imports_torch_and_nothing_slow_beside_it() -> None:
    """Neither a compiler nor what only makes tables; torch itself has sympy, and so mpmath, only once it compiles."""
    program = (
        "import sys, guarded_moments.reference; print(*{'mpmath', 'numba', 'torch', 'triton'} & sys.modules.keys())"
    )
    assert imported(program) == {"torch"}


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("no-such-command",)])
def test_gmc_helps_without_importing_torch_or_numba(arguments: tuple[str, ...]) -> None:
    assert imported(PROGRAM, *arguments) == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_no_commands_help_imports_numba(command: str) -> None:
    assert "numba" not in imported(PROGRAM, command, "--help")


def test_an_audit_of_few_coordinates_does_not_import_numba() -> None:
    program = """
import sys, torch
from guarded_moments.reference import compress
from guarded_moments.oracle.audit import audit
parameter = torch.nn.Parameter(torch.ones(300))
optimizer = torch.optim.AdamW([parameter])
parameter.grad = torch.linspace(-1e-2, 1e-2, 300)
optimizer.step()
state = compress(optimizer.state_dict(), tolerance=0.01, grad_bound=1.0)
audit(state, optimizer.state_dict())
print("numba" if "numba" in sys.modules else "none")
"""
    assert imported(program) == {"none"}
