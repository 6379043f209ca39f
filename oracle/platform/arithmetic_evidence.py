"""A hundred million cases of add, sub, mul, div and fma against MPFR, on as many processes as there are cores to spare.

Claimed: the evidence counts every case that was compared, and the same seed and count compare the same cases whatever
the number of processes.  Trusted: as `arithmetic`.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import NamedTuple

import numpy as np
import torch

from guarded_moments.oracle.platform.arithmetic import Comparison, compare, gmpy2_version, ours
from guarded_moments.oracle.platform.arithmetic_cases import OPERANDS, cases
from guarded_moments.reference.platform import one_torch_thread, require_subnormals

#: Cases that a process draws and compares before it reports; arrays of them stay in a core's cache.
_TASK = 1 << 15
_SPELLED_OUT = 5


@dataclass(frozen=True)
class ArithmeticEvidence:
    """How many cases of each operation were compared, and how many differ."""

    cases: Mapping[str, int]  #: by operation
    mismatches: Mapping[str, int]  #: by arithmetic
    examples: tuple[str, ...]
    seed: int
    against: str  #: the independent implementation and its version
    of: str  #: the versions of what was checked
    seconds: float
    processes: int
    date: str

    @property
    def total(self) -> int:
        """Cases of all operations; each was computed by every arithmetic."""
        return sum(self.cases.values())

    @property
    def differing(self) -> int:
        """Mismatches of all operations and arithmetics."""
        return sum(self.mismatches.values())

    def sentence(self) -> str:
        """In one line, for reports."""
        operations = ", ".join(self.cases)
        return (
            f"{self.total:,} cases of {operations} in {', '.join(self.mismatches)} compared with {self.against}: "
            f"{self.differing:,} mismatches"
        )


class _Task(NamedTuple):
    operation: str
    cases: int
    seed: tuple[int, ...]


def arithmetic_evidence(
    count: int, seed: int, processes: int = 1, progress: Callable[[int, int], None] | None = None
) -> ArithmeticEvidence:
    """Compare `count` cases, an equal part of each operation.

    Args:
        count: cases of all operations together.
        seed: of the cases.
        processes: 1 for this process alone.
        progress: called with cases done and in all.

    Raises:
        UnsupportedError: gmpy2 is not installed.
        PlatformError: a process flushes subnormals.
    """
    against, started, done = gmpy2_version(), time.perf_counter(), 0
    of_operation: Counter[str] = Counter(dict.fromkeys(OPERANDS, 0))
    of_arithmetic: Counter[str] = Counter()
    examples: list[str] = []
    with _compared(_tasks(count, seed), processes) as comparisons:
        for comparison in comparisons:
            of_operation[comparison.operation] += comparison.cases
            of_arithmetic.update(comparison.mismatches)
            examples += comparison.examples
            done += comparison.cases
            if progress is not None:
                progress(done, count)
    return ArithmeticEvidence(
        cases=dict(of_operation),
        mismatches=dict(of_arithmetic),
        examples=tuple(examples[:_SPELLED_OUT]),
        seed=seed,
        against=against,
        of=f"NumPy {np.__version__}, torch {torch.__version__}, numba {version('numba')}",
        seconds=time.perf_counter() - started,
        processes=processes,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _tasks(count: int, seed: int) -> Iterator[_Task]:
    """Tasks of all operations in turn, so that a run that is cut short has seen them all."""
    left = {operation: count // len(OPERANDS) for operation in OPERANDS}
    left["fma"] += count % len(OPERANDS)
    number = 0
    while any(left.values()):
        for index, operation in enumerate(OPERANDS):
            if size := min(_TASK, left[operation]):
                yield _Task(operation, size, (seed, index, number))
                left[operation] -= size
        number += 1


@contextmanager
def _compared(tasks: Iterable[_Task], processes: int) -> Iterator[Iterator[Comparison]]:
    if processes == 1:
        require_subnormals()
        with one_torch_thread():
            yield map(_compare, tasks)
        return
    # A forked copy of a process whose torch has started threads may wait for them forever: start afresh.
    with multiprocessing.get_context("spawn").Pool(processes, initializer=_start) as pool:
        yield pool.imap_unordered(_compare, tasks)


def _start() -> None:
    require_subnormals()
    torch.set_num_threads(1)


def _compare(task: _Task) -> Comparison:
    operands = cases(task.operation, task.cases, np.random.default_rng(task.seed))
    return compare(task.operation, operands, ours(task.operation))
