"""`gmc ops`: its counts are of the step itself, its limits are where overflow begins, and it hides no evidence."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch
from tests.oracle.cli.running import gmc, run_well

from guarded_moments.oracle.cli.ops import DEFAULTS, describe, gradient_limit
from guarded_moments.oracle.platform import Certificate, this_machine
from guarded_moments.oracle.rounding_counts import RoundingCounts, rounding_counts
from guarded_moments.oracle.tracing import trace_update
from guarded_moments.reference.adam import Scalars, StepOptions, make_moments, make_update
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.arithmetic.numpy_binary32 import Array
from guarded_moments.reference.implementations import IMPLEMENTATIONS, Evidence, Implementation
from guarded_moments.reference.op_models import Interpolation, OpModel, SecondMoment, Update

#: Counted by hand, from the sequences in the docstrings of `op_models`.
BY_HAND: Mapping[str, RoundingCounts] = MappingProxyType(
    {
        "torch-2.13-cpu-avx2/single": RoundingCounts(2, 3, 6, 10),
        "torch-2.13-cpu-avx2/foreach": RoundingCounts(2, 3, 6, 10),
        "torch-2.13-cpu-avx2/fused": RoundingCounts(2, 3, 6, 10),
        "torch-2.13-cpu-default/single": RoundingCounts(3, 4, 7, 12),
        "torch-2.13-cpu-default/foreach": RoundingCounts(3, 4, 7, 12),
        "torch-2.13-cpu-default/fused": RoundingCounts(3, 4, 7, 12),
        "torch-2.13-cpu-avx2/compiled": RoundingCounts(3, 3, 6, 10),
        "torch-2.13-cpu-avx2/compiled-foreach": RoundingCounts(3, 4, 7, 12),
        "torch-2.14-cuda/single": RoundingCounts(2, 3, 6, 9),
        "torch-2.14-cuda/foreach": RoundingCounts(2, 3, 6, 9),
        "torch-2.14-cuda/capturable": RoundingCounts(2, 3, 6, 9),
        "torch-2.14-cuda/capturable-foreach": RoundingCounts(2, 3, 6, 10),
        "torch-2.14-cuda-sm75-sm90/fused": RoundingCounts(2, 3, 6, 10),
        "torch-2.14-cuda-sm100-sm120/fused": RoundingCounts(2, 3, 6, 10),
    }
)
FROM_START, FROM_END = StepOptions(), StepOptions(interpolate_from_end=True)


@pytest.fixture(autouse=True)
def _no_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def model_of(name: str) -> OpModel:
    return IMPLEMENTATIONS[name].body


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_roundings_are_those_counted_by_hand(name: str) -> None:
    assert {rounding_counts(model, FROM_START) for model in IMPLEMENTATIONS[name].models} == {BY_HAND[name]}


@pytest.mark.parametrize("options", [FROM_START, FROM_END], ids=["from start", "from end"])
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_an_update_is_traced_in_as_many_operations_as_are_counted(name: str, options: StepOptions) -> None:
    implementation = IMPLEMENTATIONS[name]
    scalars = implementation.scalars(DEFAULTS, 5)
    for model in implementation.models:
        trace = trace_update(model, options, scalars, 0.5, 0.25, 1e-3)
        rounded = [operation for operation in trace if not operation.formula.endswith("exactly")]
        assert rounding_counts(model, options).update == len(rounded)


def test_a_fused_product_is_a_rounding_less() -> None:
    model = model_of("torch-2.13-cpu-avx2/single")
    counts = rounding_counts(model, FROM_START)
    separate = rounding_counts(replace(model, interpolation=Interpolation.SEPARATE), FROM_START)
    assert separate == (counts.first_moment + 1, counts.second_moment, counts.denominator, counts.update + 1)
    separate = rounding_counts(replace(model, second_moment=SecondMoment.SEPARATE), FROM_START)
    assert separate == (counts.first_moment, *(count + 1 for count in counts[1:]))
    unrounded = rounding_counts(replace(model, update=Update.DIVIDE_THEN_MULTIPLY), FROM_START)
    assert unrounded == (*counts[:3], counts.update - 1)


def test_an_operation_that_two_paths_share_counts_once() -> None:
    """CUDA's fused second moment uses `g*g` twice."""
    assert rounding_counts(model_of("torch-2.14-cuda-sm100-sm120/fused"), FROM_START).second_moment == 3


def overflows(implementation: Implementation, step: int, gradient: float) -> bool:
    """Whether a moment or the update is infinite or NaN, from a state of zeros, in any of the op models."""
    op = NumpyBinary32()
    h = replace(DEFAULTS, fused=implementation.name.endswith("/fused"))
    scalars = Scalars(*(op.constant(value) for value in implementation.scalars(h, step)))
    zero, g = op.constant(0.0), op.constant(gradient)
    results: list[Array] = []
    for model in implementation.models:
        results += make_moments(op, model, h.options)(zero, zero, g, scalars)
        results.append(make_update(op, model, h.options)(zero, zero, g, scalars))
    return not all(np.isfinite(result) for result in results)


@pytest.mark.parametrize("step", [1, 100_000])
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_overflow_begins_just_above_the_limit(name: str, step: int) -> None:
    implementation = IMPLEMENTATIONS[name]
    limit = gradient_limit(implementation, step)
    assert not overflows(implementation, step, limit)
    assert overflows(implementation, step, limit * 1.001)


def test_the_defaults_are_torchs() -> None:
    defaults = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]).defaults
    assert (DEFAULTS.lr, (DEFAULTS.beta1, DEFAULTS.beta2)) == (defaults["lr"], defaults["betas"])
    assert (DEFAULTS.eps, DEFAULTS.weight_decay) == (defaults["eps"], defaults["weight_decay"])


def test_every_implementation_is_listed_with_its_evidence() -> None:
    lines = run_well("ops").out.splitlines()
    for name, implementation in IMPLEMENTATIONS.items():
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert implementation.evidence.value in line
        assert f"{gradient_limit(implementation, 1):.4g}" in line
    assert "torch.sqrt: not certified here" in lines[-2]


def test_the_second_op_model_is_listed_where_it_differs() -> None:
    lines = run_well("ops").out.splitlines()
    elsewhere = [lines[i - 1].split()[0] for i, line in enumerate(lines) if line.strip().startswith("elsewhere  ")]
    assert elsewhere == ["torch-2.13-cpu-avx2/fused"]


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_one_is_shown_in_full(name: str) -> None:
    implementation = IMPLEMENTATIONS[name]
    out = " ".join(run_well("ops", name).out.split())
    assert f"{implementation.evidence.value}: {implementation.remark}" in out
    assert implementation.constants.value in out
    for model in implementation.models:
        for choice in (model.interpolation, model.second_moment, model.square_root, model.update, model.maximum):
            assert " ".join(choice.value.split()) in out
        assert ("never rounded by itself" in out) is not model.rounds_update
    assert (implementation.placement.value in out) is (len(implementation.models) > 1)


def test_json_holds_what_is_shown() -> None:
    data = json.loads(run_well("ops", "--json").out)
    assert data == {"implementations": [describe(each) for each in IMPLEMENTATIONS.values()], "platform": None}
    (one,) = json.loads(run_well("ops", "torch-2.14-cuda/single", "--json").out)["implementations"]
    assert one["evidence"] == Evidence.EMULATED.value
    assert one["models"][0]["update_is_rounded_by_itself"] is False


def test_the_certificate_of_this_machine_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = Certificate(this_machine())
    monkeypatch.setattr(Certificate, "sentences", lambda self: ["torch.sqrt: as it was found"])
    monkeypatch.setattr("guarded_moments.oracle.cli.ops.platform_certificate", lambda: certificate)
    assert run_well("ops").line("platform") == "torch.sqrt: as it was found"
    assert run_well("ops", "torch-2.13-cpu-avx2/single").line("platform") == "torch.sqrt: as it was found"
    assert "torch.sqrt" not in run_well("ops", "torch-2.13-cpu-avx2/fused").out


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    ran = gmc("ops", "torch-1.0")
    assert ran.status == 2
    assert "'torch-1.0' is not known" in ran.err
    assert all(name in ran.err for name in IMPLEMENTATIONS)
