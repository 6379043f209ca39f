"""Writers killed with SIGKILL: after it the older file is whole or the newer one is, and the next writer cleans up."""

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from tests.reference.checkpoint.states import compressed, state_of

from guarded_moments.reference.checkpoint import GuardedState, file_format, read, write, writing

#: Large enough that a kill by the clock often falls into the writing itself.
NUMEL = 60_000


def made(value: float, numel: int) -> GuardedState:
    m = torch.full((numel,), value)
    return compressed(state_of((m, m * m)))


def killed(write_it: Callable[[], object], kill: Callable[[int], object]) -> bool:
    """Whether a process that writes was killed before it was done; `kill` may send it a signal."""
    child = os.fork()
    if child == 0:
        try:
            write_it()
        finally:
            os._exit(0)
    kill(child)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


class Whole:
    """A place with an older file, and what may be found there afterwards."""

    def __init__(self, folder: Path, numel: int) -> None:
        self.path = folder / "optimizer.gmc"
        self.states = [made(1e-3, numel), made(2e-3, numel)]
        self.contents = [file_format.to_bytes(state) for state in self.states]
        write(self.states[0], self.path)

    def start_again(self) -> None:
        """Put the older file there."""
        self.path.write_bytes(self.contents[0])

    def check(self, before: str) -> int:
        """Which file is there, byte for byte; it can be read, and another writer is not in trouble."""
        found = self.path.read_bytes()
        assert found in self.contents, f"{before}: {len(found)} bytes that are neither the older nor the newer file"
        read(self.path)
        write(self.states[1], self.path, overwrite=True)
        assert list(self.path.parent.iterdir()) == [self.path], f"{before}: a partial file was left"
        return self.contents.index(found)


def at_line(number: int) -> Callable[..., Any]:
    """A trace function that kills its own process at the nth line that `writing` or `file_format` runs."""
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal left
        if frame.f_code.co_filename not in {writing.__file__, file_format.__file__}:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


@pytest.mark.parametrize("existing", [True, False])
def test_a_writer_killed_at_any_line_loses_nothing(
    tmp_path: Path, tried: Counter[str], budget: int, *, existing: bool
) -> None:
    place, found = Whole(tmp_path, 50), Counter[int]()
    for line in range(0, 10_000, 5 if budget == 1 else 1):
        place.start_again()
        if not existing:
            place.path.unlink()

        def write_it(line: int = line) -> None:
            sys.settrace(at_line(line))
            write(place.states[1], place.path, overwrite=existing)

        if not killed(write_it, lambda child: None):
            break
        if existing or place.path.exists():
            found[place.check(f"killed at line {line}")] += 1
        else:
            write(place.states[1], place.path)
            assert list(tmp_path.iterdir()) == [place.path], f"killed at line {line}: a partial file was left"
        tried["writers killed at each line"] += 1
    else:
        pytest.fail("the writer was never done")
    assert found[1] > 0, "no kill fell after the newer file was there"
    assert not existing or found[0] > 5, "no kill fell before it"


def test_a_writer_killed_at_any_moment_loses_nothing(
    tmp_path: Path, tried: Counter[str], seed: int, budget: int
) -> None:
    place, moment = Whole(tmp_path, NUMEL), random.Random(seed)  # noqa: S311 - no secret
    start = time.perf_counter()
    write(place.states[1], place.path, overwrite=True)
    duration = time.perf_counter() - start
    kills, found = 0, Counter[int]()
    while kills < 25 * budget:
        place.start_again()
        wait = moment.uniform(0, 1.3 * duration)

        def kill(child: int, wait: float = wait) -> None:
            time.sleep(wait)
            os.kill(child, signal.SIGKILL)

        if killed(lambda: write(place.states[1], place.path, overwrite=True), kill):
            kills += 1
            tried["writers killed at a random moment"] += 1
        found[place.check(f"killed after {wait * 1000:.2f} ms")] += 1
    print(f"the older file was found {found[0]} times, the newer {found[1]} times")  # noqa: T201 - shown with a failure
    assert found[0] > 0
