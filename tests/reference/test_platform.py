"""Flush-to-zero is found wherever torch's threads or NumPy would meet it; each case in a process of its own."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from guarded_moments.reference.errors import PlatformError
from guarded_moments.reference.platform import require_subnormals

#: Runs each program of the command line in a child of its own, forked before torch has made any thread.
CHILDREN = """
import os
import sys

import torch
from guarded_moments.reference.errors import PlatformError
from guarded_moments.reference.platform import require_subnormals


def use(threads):
    torch.set_num_threads(threads)
    torch.ones(1 << 22).mul_(2)


for program in sys.argv[1:]:
    child = os.fork()
    if not child:
        exec(program)
        print(int((torch.full((1 << 22,), 2.0**-126) * 0.5 == 0).sum()), end=" ")
        try:
            require_subnormals()
        except PlatformError as error:
            print(error, end="")
        print(flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, program
"""

SWITCH_ON = "torch.set_flush_denormal(True)"
SWITCH_OFF = "torch.set_flush_denormal(False)"
FLUSHING = {
    "before anything else": SWITCH_ON,
    "of the only thread": f"torch.set_num_threads(1); {SWITCH_ON}",
    "in the calling thread alone": f"use(2); {SWITCH_ON}",
    "in the workers alone": f"torch.set_num_threads(2); {SWITCH_ON}; use(2); {SWITCH_OFF}",
    "in workers beyond the sixteenth": f"use(16); {SWITCH_ON}; use(24); {SWITCH_OFF}",
}
KEEPING = {"as it starts": "pass", "switched off again": f"use(2); {SWITCH_ON}; {SWITCH_OFF}"}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[int, str]]:
    """After each program: how many of 4,194,304 elements torch flushes, and how it was refused."""
    programs = FLUSHING | KEEPING
    command = [sys.executable, "-c", CHILDREN, *programs.values()]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = (line.partition(" ") for line in done.stdout.splitlines())
    return {name: (int(flushed), error) for name, (flushed, _, error) in zip(programs, lines, strict=True)}


def test_this_process_keeps_subnormals() -> None:
    require_subnormals()


@pytest.mark.parametrize("name", FLUSHING)
def test_flush_to_zero_is_found(name: str, outcomes: dict[str, tuple[int, str]]) -> None:
    flushed, error = outcomes[name]
    assert flushed > 0, "nothing flushes here: this case shows nothing"
    assert error.startswith("flush-to-zero is switched on in this process"), f"{flushed} elements flushed, not found"
    assert "torch.set_flush_denormal(False)" in error


@pytest.mark.parametrize("name", KEEPING)
def test_where_nothing_flushes_nothing_is_found(name: str, outcomes: dict[str, tuple[int, str]]) -> None:
    assert outcomes[name] == (0, "")


def test_each_python_thread_is_asked_for_itself() -> None:
    """The setting is the thread's own: a thread that switches it on is refused, its neighbour is not."""

    def asked() -> str:
        if not torch.set_flush_denormal(True):
            pytest.skip("this CPU cannot flush")
        try:
            require_subnormals()
        except PlatformError as error:
            return str(error)
        finally:
            torch.set_flush_denormal(False)
        return ""

    with ThreadPoolExecutor(max_workers=1) as pool:
        assert "flush-to-zero" in pool.submit(asked).result()
    require_subnormals()
