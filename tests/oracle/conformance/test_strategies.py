"""The strategies for backends' authors: they make what they say, and what is on the edge is on the edge."""

import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from tests.meta.ratio_bugs import TiesOfMultiplesUp

from guarded_moments.oracle.conformance import ReferenceBackend
from guarded_moments.oracle.conformance.ratio import RATIO_GRIDS, nearest_pairs, roots_and_levels
from guarded_moments.oracle.conformance.strategies import (
    SIZES,
    AtTolerance,
    Moments,
    at_the_tolerance,
    binary32,
    first_moments,
    grids,
    moments,
    near_levels,
    ratio_grids,
    ratio_states,
    second_moments,
    tensors,
)
from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.oracle.worst_case import Verdict, decide
from guarded_moments.reference.codecs import Log8
from guarded_moments.reference.floats import bits_of, hex_of
from guarded_moments.reference.guard.exact import exact_guard

PAGE = (Path(__file__).parents[3] / "docs" / "conformance.md").read_text(encoding="utf-8")
#: Compiling an op model takes seconds, once.
COMPILES = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
#: Whether there is an example is all that is asked.
UNSHRUNK = settings(max_examples=5000, deadline=None, phases=[Phase.generate])


@given(binary32(signs=False, finite=True, zero=False))
def test_what_is_left_out_is_not_drawn(value: float) -> None:
    assert 0.0 < value < math.inf


EDGES: dict[str, Callable[[float], bool]] = {
    "a subnormal": lambda x: 0.0 < x < 2.0**-126,
    "minus zero": lambda x: x == 0.0 and math.copysign(1.0, x) < 0.0,
    "infinity": lambda x: x == math.inf,
    "NaN": math.isnan,
    "one ulp above 1": lambda x: x == 1.0 + 2.0**-23,
}


@pytest.mark.parametrize("edge", EDGES)
def test_the_edges_of_the_format_are_drawn(edge: str) -> None:
    find(binary32(), EDGES[edge], settings=UNSHRUNK)


@given(st.data())
def test_values_near_levels_are_near_levels(data: st.DataObject) -> None:
    grid = data.draw(grids()).m
    value = data.draw(near_levels(grid))
    half = round(2 * (math.log2(value) - grid.low) / grid.step)
    assert abs(bits_of(value) - bits_of(2.0 ** grid.exponent(half / 2))) <= 2, hex_of(value)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_states_of_ratios_are_near_multiples_and_the_reference_takes_the_nearest(data: st.DataObject) -> None:
    grid = data.draw(ratio_grids())
    m, v = data.draw(ratio_states(grid))
    pair = torch.tensor([m]), torch.tensor([v])
    assert [x.tolist() for x in ReferenceBackend().encode_ratio(*pair, grid)] == [
        x.tolist() for x in nearest_pairs(*pair, grid)
    ], f"m = {hex_of(m)}, v = {hex_of(v)}, {grid}"
    root = roots_and_levels(grid.v)[0][int(nearest_pairs(*pair, grid).v)]
    halves = abs(m) / (grid.step * float(root)) * 2
    assert halves == pytest.approx(round(halves), rel=2e-7)


def test_a_codec_of_ratios_that_breaks_ties_upward_is_found() -> None:
    grid = RATIO_GRIDS[2]

    def differs(pair: tuple[float, float]) -> bool:
        m, v = torch.tensor([pair[0]]), torch.tensor([pair[1]])
        return not torch.equal(TiesOfMultiplesUp().encode_ratio(m, v, grid).m, nearest_pairs(m, v, grid).m)

    find(ratio_states(grid), differs, settings=UNSHRUNK)


@given(st.data())
def test_tensors_are_of_the_sizes_and_layouts_said(data: st.DataObject) -> None:
    tensor = data.draw(tensors(binary32(finite=True)))
    assert tensor.dtype == torch.float32
    assert tensor.dim() == 1
    assert len(tensor) in SIZES
    assert bool(tensor.isfinite().all()), "what lies between the elements is not of the tensor"


KINDS: dict[str, Callable[[Moments], bool]] = {
    "strided": lambda x: x.m.stride() != (1,) and len(x.m) > 1,
    "unaligned": lambda x: len(x.v) > 0 and x.v.data_ptr() % 16 != 0,
    "empty": lambda x: len(x.m) == 0,
    "longer than a block": lambda x: len(x.m) == max(SIZES),
    "two layouts": lambda x: x.m.stride() != x.v.stride(),
    "a moment that vanishes beside one that does not": lambda x: bool(((x.v == 0) & (x.m != 0)).any()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_moments_is_drawn(kind: str) -> None:
    find(moments(), KINDS[kind], settings=UNSHRUNK)


@given(moments())
def test_the_reference_codec_does_not_look_at_layouts(drawn: Moments) -> None:
    codec = Log8(drawn.grids.m, drawn.grids.v)
    there, here = codec.encode(drawn.m, drawn.v), codec.encode(drawn.m.clone(), drawn.v.clone())
    assert all(torch.equal(a, b) for a, b in zip(there, here, strict=True))


def test_a_codec_that_rounds_down_is_found() -> None:
    def differs(drawn: Moments) -> bool:
        codec, grid = Log8(drawn.grids.m, drawn.grids.v), drawn.grids.v
        _, code = codec.encode(drawn.m, drawn.v)
        below = ((drawn.v.double().log2() - grid.low) / grid.step).floor()
        inside = (below >= 0) & (below < grid.levels - 1) & (drawn.m != 0) & (code > 0)
        return bool((inside & (code.double() - 1 != below)).any())

    find(moments(), differs, settings=UNSHRUNK)


@given(at_the_tolerance())
@COMPILES
def test_thresholds_are_on_either_side_of_the_exact_worst_case(drawn: AtTolerance) -> None:
    trajectories = Trajectories(drawn.scene.implementation.body, drawn.scene.options, drawn.scene.scalars)
    deviation = float(trajectories.deviations(drawn.states, torch.tensor([drawn.gradient])))
    assert deviation == drawn.safe.threshold, drawn
    assert drawn.unsafe.threshold == math.nextafter(deviation, 0.0)
    assert int(decide(drawn.safe, trajectories, drawn.states).verdict) != Verdict.UNSAFE, drawn
    assert int(decide(drawn.unsafe, trajectories, drawn.states).verdict) == Verdict.UNSAFE, drawn


@given(at_the_tolerance())
@COMPILES
def test_no_guard_of_ours_accepts_below_the_worst_case(drawn: AtTolerance) -> None:
    assert not bool(exact_guard(drawn.unsafe, *drawn.states)), drawn


@given(st.data())
def test_moments_are_finite_and_second_ones_not_negative(data: st.DataObject) -> None:
    of = data.draw(grids())
    assert math.isfinite(data.draw(first_moments(of)))
    assert 0.0 <= data.draw(second_moments(of)) < math.inf


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(\"\"\"Properties.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "test_my_properties.py").write_text(example, encoding="utf-8")
    # A hundred examples of each, as Hypothesis has it by default, take most of a minute.
    few = "from hypothesis import settings\nsettings.register_profile('few', max_examples=5)\n"
    (tmp_path / "conftest.py").write_text(f"{few}settings.load_profile('few')\n", encoding="utf-8")
    command = [str(Path(sys.executable).parent / "pytest"), "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
