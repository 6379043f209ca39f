"""Two writers at once, a reader during a write, a full disk, a device that returns other bytes."""

import fcntl
import multiprocessing
import os
import resource
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from tests.reference.checkpoint.states import compressed, state_of

from guarded_moments.reference.checkpoint import GuardedState, file_format, read, write, writing
from guarded_moments.reference.errors import CheckpointError, GuardedMomentsError

FORK = multiprocessing.get_context("fork")


def made(value: float, numel: int = 2000) -> GuardedState:
    m = torch.full((numel,), value)
    return compressed(state_of((m, m * m)))


def in_a_process(work: Callable[[], object]) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    """Start work in a process of its own, which sends back `None` or what was refused."""
    here, there = FORK.Pipe(duplex=False)

    def run() -> None:
        try:
            work()
        except GuardedMomentsError as error:
            there.send(str(error))
        else:
            there.send(None)

    process = FORK.Process(target=run)
    process.start()
    return process, here


def test_of_two_writers_who_may_not_replace_one_is_refused(tmp_path: Path, tried: Counter[str], budget: int) -> None:
    states = [made(1e-3), made(2e-3)]
    contents = [file_format.to_bytes(state) for state in states]
    for turn in range(10 * budget):
        path, barrier = tmp_path / f"{turn}.gmc", FORK.Barrier(2)

        def work(state: GuardedState, path: Path = path, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            write(state, path)

        runs = [in_a_process(partial(work, state)) for state in states]
        said = [connection.recv() for _, connection in runs]
        for process, _ in runs:
            process.join()
        assert sum(text is None for text in said) == 1, said
        assert path.read_bytes() == contents[said.index(None)]
        assert "exists already; nothing was written" in next(text for text in said if text is not None)
        tried["two writers at once"] += 1
    assert {path.suffix for path in tmp_path.iterdir()} == {".gmc"}


def test_of_two_writers_who_may_replace_the_last_one_wins_whole(
    tmp_path: Path, tried: Counter[str], budget: int
) -> None:
    states, path = [made(1e-3), made(2e-3)], tmp_path / "optimizer.gmc"
    contents = [file_format.to_bytes(state) for state in states]
    write(states[0], path)

    def work(state: GuardedState) -> None:
        for _ in range(10 * budget):
            write(state, path, overwrite=True)

    runs = [in_a_process(partial(work, state)) for state in states]
    reads = 0
    while any(process.is_alive() for process, _ in runs):
        assert path.read_bytes() in contents
        read(path)
        reads += 1
    assert [connection.recv() for _, connection in runs] == [None, None]
    assert list(tmp_path.iterdir()) == [path]
    tried["two writers at once, each replacing"] += 10 * budget
    tried["reads during writes"] += reads


def limited(path: Path, limit: int, state: GuardedState) -> str:
    """What a writer says that may not write more than some bytes; the signal for it is the program's to ignore."""

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        write(state, path, overwrite=True)

    process, connection = in_a_process(work)
    said = connection.recv()
    process.join()
    assert isinstance(said, str), f"written with {limit} bytes"
    return said


def test_a_full_disk_leaves_the_older_file(tmp_path: Path, tried: Counter[str], budget: int) -> None:
    """A limit on the size of a file stands for the disk: the system refuses the same calls."""
    path, older, newer = tmp_path / "optimizer.gmc", made(1e-3), made(2e-3)
    write(older, path)
    content, size = path.read_bytes(), len(file_format.to_bytes(newer))
    for limit in range(0, size, max(1, size // (20 * budget))):
        said = limited(path, limit, newer)
        assert said == f"{path}: cannot be written: File too large"
        assert path.read_bytes() == content
        assert list(tmp_path.iterdir()) == [path]
        tried["full disks"] += 1


def test_a_device_that_returns_other_bytes_is_found(
    tmp_path: Path, tried: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, older, newer = tmp_path / "optimizer.gmc", made(1e-3), made(2e-3)
    write(older, path)
    content, size = path.read_bytes(), len(file_format.to_bytes(newer))
    for byte in range(0, size, size // 40):

        def faulty(written: Path, byte: int = byte) -> None:
            damaged = bytearray(written.read_bytes())
            damaged[byte] ^= 0x40
            written.write_bytes(damaged)

        monkeypatch.setattr(file_format, "drop_from_cache", faulty)
        with pytest.raises(CheckpointError, match="could not be read back: the device or its file system is faulty"):
            write(newer, path, overwrite=True)
        assert path.read_bytes() == content
        assert list(tmp_path.iterdir()) == [path]
        tried["bytes that the device returned otherwise"] += 1


def test_a_partial_file_of_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    path, other = tmp_path / "optimizer.gmc", tmp_path / "other.gmc"
    with writing.replacing(path, overwrite=True) as unfinished:
        unfinished.write_bytes(b"slow")
        write(made(1e-3), path, overwrite=True)
        assert unfinished.read_bytes() == b"slow"
    abandoned = unfinished.with_name(unfinished.name.replace(".partial", "0.partial"))
    abandoned.touch()

    write(made(1e-3), other)
    assert abandoned.exists(), "it is another place's"
    write(made(1e-3), path, overwrite=True)
    assert not abandoned.exists()


def test_the_permissions_of_a_replaced_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "optimizer.gmc"
    write(made(1e-3), path)
    path.chmod(0o640)

    write(made(2e-3), path, overwrite=True)

    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_system_without_links_or_locks_still_refuses_to_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*arguments: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    monkeypatch.setattr(os, "link", unsupported)
    path = tmp_path / "optimizer.gmc"

    write(made(1e-3), path)
    with pytest.raises(CheckpointError, match="exists already"):
        write(made(2e-3), path)

    assert list(tmp_path.iterdir()) == [path]
