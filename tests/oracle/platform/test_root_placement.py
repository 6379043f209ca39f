"""Where a root stands and when it is first called: a root that depends on either is found."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.oracle.platform.roots import correct, off

from guarded_moments.oracle.platform import (
    root_placement,
)
from guarded_moments.oracle.platform.first_call import first_calls
from guarded_moments.oracle.platform.root_placement import placement
from guarded_moments.oracle.platform.root_sweep import (
    Root,
)

PLACES: dict[str, Root] = {
    "in the last elements of a tensor": lambda x: (
        torch.cat((correct(x[: len(x) // 8 * 8]), off(x[len(x) // 8 * 8 :]))) if x.dim() == 1 else correct(x)
    ),
    "in small tensors": lambda x: off(x) if x.numel() < 8 else correct(x),
    "at an odd address": lambda x: off(x) if x.data_ptr() % 64 == 4 else correct(x),
    "on several threads": lambda x: off(x) if torch.get_num_threads() > 1 and x.numel() > 10**5 else correct(x),
    "in strided tensors": lambda x: correct(x) if x.is_contiguous() else off(x),
    "after a special neighbour": lambda x: off(x) if x.numel() == 3 and bool(x[0] < 1) else correct(x),
}


def test_the_correct_root_is_the_same_in_every_place(rng: np.random.Generator) -> None:
    found = placement(correct, rng)
    assert (found.differing, found.first_difference) == (0, None)
    assert found.roots > 10_000_000


@pytest.mark.parametrize("fault", PLACES)
def test_a_root_that_differs_by_place_is_found(
    fault: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_placement, "_LARGE", (4095, 100_003))
    found = placement(PLACES[fault], rng)
    assert found.differing > 0
    assert found.first_difference is not None


def test_a_settled_first_call_gives_the_roots_of_later_ones() -> None:
    found = first_calls(3)
    assert (found.processes, found.settled_processes, found.settled_differing) == (3, 3, 0)


def test_importing_the_package_makes_the_first_call_on_one_element() -> None:
    program = """
import torch
calls, true_root = [], torch.Tensor.sqrt
torch.Tensor.sqrt = lambda self: (calls.append(self.numel()), true_root(self))[1]
import guarded_moments.reference
print(calls[0])
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "1\n"
