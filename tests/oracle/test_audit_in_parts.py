"""The audit as a map over parts: whatever decides them, and wherever a file is cut, the result is the same."""

import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.oracle.cli.checkpoints import accepted, levels_up, trained, with_codes

from guarded_moments.oracle.audit import PartAudit, audit, whole
from guarded_moments.reference.checkpoint import GuardedState, compress
from guarded_moments.reference.checkpoint.encoding import Granularity
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.codecs import CODECS


@pytest.fixture(scope="module")
def native() -> StateDict:
    return trained()


@pytest.fixture(scope="module", params=["as encoded", "with violations"])
def state(native: StateDict, request: pytest.FixtureRequest) -> GuardedState:
    encoded = compress(native, tolerance=0.01, grad_bound=1.0)
    if request.param == "with violations":
        for tensor in range(4):
            encoded = with_codes(encoded, tensor, accepted(encoded, tensor), levels_up(1))
    return encoded


class Recording(Executor):
    """Runs at once, and remembers how many results were waiting and how large what it was given is."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []
        self.sizes: list[int] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:  # noqa: ANN401 - the base class's
        """Run it."""
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **named))
        self.futures.append(future)
        self.sizes.append(len(pickle.dumps((arguments, named))))
        return future


def test_an_executor_gives_what_this_process_gives(
    state: GuardedState, native: StateDict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "PART", 50)
    with ThreadPoolExecutor(2) as threads:
        assert audit(state, native, executor=threads, ahead=3) == audit(state, native)


@pytest.mark.parametrize("size", [64])
def test_where_a_file_is_cut_changes_no_count_and_no_finding(
    size: int, state: GuardedState, native: StateDict, monkeypatch: pytest.MonkeyPatch
) -> None:
    uncut = audit(state, native)
    monkeypatch.setattr(whole, "PART", size)

    cut = audit(state, native)

    assert [t.coordinates for t in cut.tensors] == [t.numel for t in state.tensors]
    compared = ("safe", "violations", "undecided", "escapes", "needless_escapes", "undecided_escapes")
    assert {name: cut.total(name) for name in compared} == {name: uncut.total(name) for name in compared}
    assert [t.escape_reasons for t in cut.tensors] == [t.escape_reasons for t in uncut.tensors]
    assert cut.findings == uncut.findings
    for one, other in zip(cut.tensors, uncut.tensors, strict=True):
        assert one.max_deviation == pytest.approx(other.max_deviation, rel=2e-4), "to the gap of the search"
        assert max(one.max_deviation, other.max_deviation) <= min(one.max_deviation_upper, other.max_deviation_upper)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_decoded_from_the_middle(codec: str, native: StateDict, monkeypatch: pytest.MonkeyPatch) -> None:
    grid: Granularity = "per-block" if CODECS[codec].granularities else "per-tensor"
    encoded = compress(native, tolerance=0.01, grad_bound=1.0, codec=codec, grid=grid)
    uncut = audit(encoded, native)
    monkeypatch.setattr(whole, "PART", 37)

    cut = audit(encoded, native)

    assert (cut.holds, cut.total("safe"), cut.total("escapes")) == (True, uncut.total("safe"), encoded.escapes)


def test_a_part_on_its_way_holds_its_own_coordinates_only(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1 << 15))])
    optimizer.param_groups[0]["params"][0].grad = torch.linspace(-1e-2, 1e-2, 1 << 15)
    optimizer.step()
    large = optimizer.state_dict()
    monkeypatch.setattr(whole, "PART", 1 << 12)
    recording = Recording()

    audit(compress(large, tolerance=0.01, grad_bound=1.0), large, executor=recording, ahead=1)

    assert len(recording.futures) == 8
    assert max(recording.sizes) < (1 << 12) * 20 + 10_000, (
        "ten bytes a coordinate, as much again of escapes, and a rest"
    )
    results = [future.result() for future in recording.futures]
    assert all(isinstance(result, PartAudit) for result in results)
    assert max(len(pickle.dumps(result)) for result in results) < 5_000


def test_no_more_parts_are_on_their_way_than_asked(
    native: StateDict, state: GuardedState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "PART", 10)
    given, done = 0, 0

    class Counting(Recording):
        def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:  # noqa: ANN401 - as above
            nonlocal given
            given += 1
            assert given - done <= 3
            return super().submit(function, *arguments, **named)

    def progress(_: int, __: int) -> None:
        nonlocal done
        done += 1

    audit(state, native, progress, executor=Counting(), ahead=3)
    assert given == done > 30


def test_another_machine_is_named(state: GuardedState, native: StateDict) -> None:
    class Elsewhere(Recording):
        def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:  # noqa: ANN401 - as above
            future = super().submit(function, *arguments, **named)
            moved: Future[Any] = Future()
            moved.set_result(replace(future.result(), machine="torch 9.9, CPU capability VAX"))
            return moved

    assert audit(state, native).elsewhere == []
    assert audit(state, native, executor=Elsewhere()).elsewhere == ["torch 9.9, CPU capability VAX"]
