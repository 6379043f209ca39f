"""Counterexamples: simple, still failing, and shown operation by operation."""

import re

import pytest
import torch
from torch import Tensor

from guarded_moments.oracle.conformance.scenes import SCENES, Scene
from guarded_moments.oracle.conformance.shrink import complexity, shrink, simplest
from guarded_moments.oracle.conformance.slips import Step
from guarded_moments.oracle.conformance.traces import one_update, shown, two_updates
from guarded_moments.reference.adam import Scalars, make_update
from guarded_moments.reference.arithmetic import TorchBinary32


@pytest.mark.parametrize(
    ("simpler", "harder"),
    [(0.0, 1.0), (1.0, 1.5), (1.0, -1.0), (1.0, 2.0**20), (2.0**20, 1.5), (1.5, 0.1), (-1.5, 0.1), (0.0, -0.0)],
)
def test_the_order_of_complexity(simpler: float, harder: float) -> None:
    of_simpler, of_harder = complexity(torch.tensor([[simpler], [harder]])).tolist()
    assert of_simpler < of_harder


def test_the_simplest_row() -> None:
    rows = torch.tensor([[0.1, 1.0], [0.5, 1.0], [0.5, 0.3]])
    assert simplest(rows).tolist() == [0.5, 1.0]


def test_only_what_matters_is_left() -> None:
    def fails(rows: Tensor) -> Tensor:
        return (rows[:, 0] > 0.7) & (rows[:, 2] < -100)

    given = torch.tensor([0.7654321, 123.456, -3456.789, 0.1])
    assert fails(given.unsqueeze(0))
    shrunk = shrink(given, fails)
    assert fails(shrunk.unsqueeze(0))
    assert shrunk.tolist() == [1.0, 0.0, -2048.0, 0.0]


def test_what_cannot_be_simplified_stays() -> None:
    given = torch.tensor([0.1, torch.nan])
    bits = given.view(torch.int32)

    def fails(rows: Tensor) -> Tensor:
        return (rows.view(torch.int32) == bits).all(dim=1)

    assert shrink(given, fails).view(torch.int32).tolist() == bits.tolist()


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: f"{scene.op_model}-{scene.step:g}")
def test_a_trace_ends_with_the_update(scene: Scene) -> None:
    op = TorchBinary32()
    scalars = Scalars(*(op.constant(value) for value in scene.scalars))
    m, v, g = (torch.tensor([x]) for x in (0.012, 3e-5, -0.25))
    for model in scene.models:
        update = make_update(op, model, scene.options)(m, v, g, scalars)
        lines = one_update(Step(model, scene.options, scene.scalars), float(m), float(v), float(g))
        assert lines[-1].endswith(shown(update))


def test_two_traces_mark_what_differs() -> None:
    scene = SCENES[0]
    header, *lines = two_updates(
        scene.models[0], scene.options, scene.scalars, native=(0.5, 0.25), recovered=(0.5, 0.125), g=1.0
    )
    assert header.split() == ["native", "recovered"]
    marked = [line.endswith(("*", "<- the first that differs")) for line in lines]
    assert sum(line.endswith("<- the first that differs") for line in lines) == 1
    assert marked[:3] == [False, False, False], "the first moment and c*g do not depend on v"
    assert marked[-1]
    for line, differs in zip(lines, marked, strict=True):
        native, recovered = re.findall(r"\[[0-9a-f]{8}\]", line)
        assert (native != recovered) == differs
