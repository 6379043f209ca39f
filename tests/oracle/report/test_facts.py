"""What a report says is so: its counterexamples happen in torch, its counts add up, its lists are the right ones."""

import copy
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from tests.oracle.cli.checkpoints import accepted, trained, updates, with_codes
from tests.oracle.cli.running import float_of, gmc
from tests.oracle.report.conftest import Reported
from torch import nn

from guarded_moments.oracle.audit import audit
from guarded_moments.oracle.report import Evidence, Gatherer, Run, facts_of, gathering, report_schema
from guarded_moments.oracle.report import against_torch as comparison
from guarded_moments.oracle.report import facts as module
from guarded_moments.oracle.report.flushing import FlushingBinary32
from guarded_moments.oracle.report.gathering import stretches
from guarded_moments.oracle.report.uncovered import gradients_above_the_bound
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.checkpoint import GuardedState, compress, load_state_dict, parameters_of, read, recover
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.claim import LARGEST_GRADIENT, Horizon
from guarded_moments.reference.guard.enclosure import enclose

LR, TOLERANCE = 1e-3, 0.01


def facts(state: GuardedState, native: StateDict, evidence: Evidence, *, cases: bool = False) -> dict[str, Any]:
    """The report of a state that no file holds; what is not covered takes a second to look for."""
    gatherer = Gatherer()
    result = audit(state, native)
    gatherer.add(state, native)
    run = Run(subject="x", command="gmc", files=[], versions={}, certificate=None)
    with pytest.MonkeyPatch.context() as patch:
        if not cases:
            patch.setattr(module, "uncovered", lambda *found: [])
        return facts_of(result, gatherer, evidence, run, 16.0)


def validate(value: Any, schema: dict[str, Any], where: str = "report") -> None:  # noqa: ANN401 - JSON, a schema's words
    """Assert that a value is of a schema, of the words that this one uses and no other."""
    known = {"$schema", "title", "type", "properties", "required", "additionalProperties", "items", "maxItems"}
    assert schema.keys() <= known | {"enum", "const", "minimum", "description"}, schema.keys()
    types: dict[str, type | tuple[type, ...]] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if "type" in schema:
        allowed = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        assert any(isinstance(value, types[one]) for one in allowed), f"{where}: {value!r} is not {allowed}"
    if "const" in schema:
        assert value == schema["const"], where
    if "enum" in schema:
        assert value in schema["enum"], f"{where}: {value!r}"
    if "minimum" in schema:
        assert value >= schema["minimum"], where
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= value.keys(), where
        for key, inner in value.items():
            rule = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
            assert rule is not False, f"{where}.{key}"
            validate(inner, rule, f"{where}.{key}")
    if isinstance(value, list):
        assert len(value) <= schema.get("maxItems", len(value)), where
        for index, inner in enumerate(value):
            validate(inner, schema.get("items", {}), f"{where}[{index}]")


def test_the_json_is_of_its_schema_and_the_command_prints_that(reported: Reported) -> None:
    printed = gmc("audit", "--report-schema")
    assert printed.status == 0
    schema = json.loads(printed.out)

    assert schema == report_schema()
    validate(reported.facts, schema)
    with pytest.raises(AssertionError):
        validate({**reported.facts, "more": 1}, schema)


def test_counts_add_up(reported: Reported) -> None:
    found, state = reported.facts, read(reported.folder / "optimizer.gmc")
    verdict, shown, drawn = found["verdict"], found["tensors"]["shown"], found["distributions"]
    guarded = state.coordinates - state.escapes

    assert verdict["word"] == "HOLDS"
    assert verdict["safe"] == guarded == sum(row["accepted"] for row in shown)
    assert verdict["escapes"] == state.escapes == sum(drawn["escapes"].values())
    assert (drawn["drawn"], drawn["of"]) == (guarded, guarded)  # so few that all are drawn
    assert sum(drawn["deviations"]["counts"]) == sum(drawn["gradients"]["counts"]) == guarded
    assert drawn["deviations"]["above"] == 0
    assert {name: sum(counts) for name, counts in drawn["codes"].items()} == {"m": guarded, "v": guarded}
    (claim,) = found["claims"]
    assert (claim["guarded"], claim["exact"]) == (guarded, state.escapes)
    assert claim["gradients"] == 2 * (0x3F800000 + 1), "binary32 values from -1 to 1"


def test_the_nearest_are_the_largest_of_all(reported: Reported) -> None:
    state = read(reported.folder / "optimizer.gmc")
    parameters = {p.key: p for p in parameters_of(load_state_dict(reported.folder / "optimizer.pt"))}
    every: list[float] = []
    for tensor in state.tensors:
        for stretch in stretches(state, tensor, parameters[tensor.key]):
            found = enclose(stretch.constants, stretch.states, relative_gap=1e-5)
            every += (found.lower / LR).tolist()

    nearest = [row["deviation"] for row in reported.facts["nearest"]]
    assert nearest == sorted(nearest, reverse=True)
    assert nearest == pytest.approx(sorted(every, reverse=True)[:10], rel=2e-4)
    assert all(row["trace"][-1]["native"] != row["trace"][-1]["recovered"] for row in reported.facts["nearest"])


def states_of(folder: Reported) -> list[StateDict]:
    """The native and the recovered state."""
    return [load_state_dict(folder.folder / "optimizer.pt"), recover(read(folder.folder / "optimizer.gmc"))]


def case_of(found: dict[str, Any], name: str) -> dict[str, Any]:
    (one,) = [case for case in found["not_covered"]["cases"] if case["name"] == name]
    return dict(one)


@pytest.fixture(scope="module", params=["1", "3", "all"])
def of_horizon(
    request: pytest.FixtureRequest, reported: Reported, evidence: Evidence
) -> tuple[str, dict[str, Any], list[StateDict]]:
    """A horizon, the report of a file that has it, and the native and the recovered state."""
    states = states_of(reported)
    if request.param == "1":
        return request.param, reported.facts, states
    longer = compress(states[0], tolerance=TOLERANCE, grad_bound=math.inf, horizon=Horizon.parse(request.param))
    return request.param, facts(longer, states[0], evidence, cases=True), [states[0], recover(longer)]


def test_a_later_update_deviates_in_torch_as_the_report_says(
    of_horizon: tuple[str, dict[str, Any], list[StateDict]],
) -> None:
    horizon, found, states = of_horizon
    validate(found, report_schema())
    found = case_of(found, "later-update")
    case = found["case"]
    assert case["at_update"] == {"1": 2, "3": 4, "all": 10}[horizon]
    assert found["largest"] == case["deviation"] > 0
    assert found["is_counterexample"] == (found["largest"] > TOLERANCE)
    before, last = float_of(case["first_gradient"]), float_of(case["gradient"])
    key = int(case["where"].split("[")[1].split("]")[0])
    moved = []
    for state in states:
        entry = state["state"][key]
        parameter = nn.Parameter(torch.zeros_like(entry["exp_avg"]))
        optimizer = torch.optim.AdamW([parameter], lr=LR)
        optimizer.state[parameter] = {name: value.clone() for name, value in entry.items()}
        for gradient in (*[before] * (case["at_update"] - 1), last):
            with torch.no_grad():
                parameter.zero_()  # so that the step leaves the update itself
            parameter.grad = torch.full_like(parameter, gradient)
            optimizer.step()
        moved.append(Fraction(parameter[tuple(case["position"])].item()))

    deviation = abs(moved[1] - moved[0]) / Fraction(LR)
    assert float(deviation) == pytest.approx(case["deviation"], rel=1e-12), case


def test_several_updates_are_claimed_for_no_larger_gradients_than_the_claim_says(
    of_horizon: tuple[str, dict[str, Any], list[StateDict]],
) -> None:
    horizon, found, _ = of_horizon
    (claim,) = found["claims"]
    if horizon != "3":
        assert claim["gradient_bound"] == (1.0 if horizon == "1" else "inf")
        return

    assert claim["gradient_bound"] == LARGEST_GRADIENT
    assert f"|g| <= {LARGEST_GRADIENT:g}" in claim["sentence"]
    largest = int(np.float32(LARGEST_GRADIENT).view(np.int32))
    assert claim["gradients"] == 2 * (largest + 1)
    assert case_of(found, "gradient")["what"].startswith(f"a gradient above {LARGEST_GRADIENT:g}")
    for name in ("op-model", "flush-to-zero", "later-update"):
        assert abs(float_of(case_of(found, name)["case"]["gradient"])) <= LARGEST_GRADIENT, name


def test_the_rounding_of_the_parameter_happens_in_torch(reported: Reported) -> None:
    case = case_of(reported.facts, "parameter")["case"]
    key = int(case["where"].split("[")[1].split("]")[0])
    moved = []
    for state in states_of(reported):
        entry = state["state"][key]
        parameter = nn.Parameter(torch.full_like(entry["exp_avg"], float_of(case["parameter"])))
        optimizer = torch.optim.AdamW([parameter], lr=LR, weight_decay=0.0)
        optimizer.state[parameter] = {name: value.clone() for name, value in entry.items()}
        parameter.grad = torch.full_like(parameter, float_of(case["gradient"]))
        optimizer.step()
        moved.append(Fraction(parameter[tuple(case["position"])].item()))

    assert float(abs(moved[1] - moved[0]) / Fraction(LR)) == pytest.approx(case["deviation"], rel=1e-12), case
    assert case["deviation"] > TOLERANCE


def test_a_gradient_beyond_a_small_bound_is_found_and_violates_in_torch() -> None:
    native = trained()
    state = compress(native, tolerance=TOLERANCE, grad_bound=2.0**-140)
    gatherer = Gatherer()
    gatherer.add(state, native)
    found = gradients_above_the_bound(gatherer.nearest.found, gatherer.beyond_bound)

    assert found.violates
    assert found.case is not None
    gradient = float_of(found.case["gradient"])
    assert abs(gradient) > 2.0**-140
    key = int(found.case["where"].split("[")[1].split("]")[0])
    position = tuple(found.case["position"])
    one, other = (Fraction(updates(s, gradient)[key][position].item()) for s in (native, recover(state)))
    assert float(abs(other - one) / Fraction(LR)) == pytest.approx(found.largest, rel=1e-12)
    assert found.largest > TOLERANCE


def test_no_gradient_beyond_is_said_only_of_what_was_decided() -> None:
    native = trained()
    state = compress(native, tolerance=TOLERANCE, grad_bound=1.0)
    gatherer = Gatherer()
    gatherer.add(state, native)
    gatherer.beyond_bound.found = None
    gatherer.beyond_bound.undecided = 3
    found = gradients_above_the_bound(gatherer.nearest.found, gatherer.beyond_bound)

    assert found.settled is not None
    assert "3 of " in found.settled
    assert "undecided" in found.settled


def test_a_file_that_violates_is_refuted_in_the_report(evidence: Evidence) -> None:
    native = trained()
    state = compress(native, tolerance=TOLERANCE, grad_bound=1.0)
    wrong = with_codes(state, 0, [accepted(state, 0)[0]], lambda codes: codes ^ 0x80)
    found = facts(wrong, native, evidence)

    validate(found, report_schema())
    assert found["verdict"]["word"] == "DOES NOT HOLD"
    assert len(found["verdict"]["violations_shown"]) == 1
    assert "refuted" in {step["word"] for step in found["assurance"]}
    assert found["tensors"]["shown"][0]["violations"] == 1, "the tensor with a violation comes first"


def test_what_is_not_proved_is_unknown(evidence: Evidence) -> None:
    native = trained()
    state = compress(native, tolerance=TOLERANCE, grad_bound=1.0)
    lemmas = [{**lemma, "status": "the file has no proof of it"} for lemma in evidence.lemmas]
    unproved = copy.copy(evidence)
    object.__setattr__(unproved, "lemmas", lemmas)
    words = {step["word"] for step in facts(state, native, unproved)["assurance"]}

    assert "proved" not in words
    assert "unknown" in words


def test_torch_is_compared_and_another_path_is_seen_to_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    native = trained()
    state = compress(native, tolerance=TOLERANCE, grad_bound=1.0)
    gatherer = Gatherer()
    gatherer.add(state, native)
    assert (gatherer.against_torch.compared, gatherer.against_torch.differing) == (2 * state.coordinates, 0)

    monkeypatch.setattr(comparison, "_path", lambda name: {"fused": True})  # another square root
    other = Gatherer()
    other.add(state, native)
    assert 0 < other.against_torch.differing < 2 * state.coordinates


def test_a_file_with_nothing_guarded_has_a_report(evidence: Evidence) -> None:
    native = {"state": {}, "param_groups": trained()["param_groups"]}
    found = facts(compress(native, tolerance=TOLERANCE, grad_bound=1.0), native, evidence)

    validate(found, report_schema())
    assert (found["verdict"]["word"], found["claims"], found["nearest"]) == ("NOTHING IS GUARDED", [], [])


def test_an_infinite_bound_is_a_word_in_the_json(evidence: Evidence) -> None:
    native = trained()
    found = facts(compress(native, tolerance=TOLERANCE, grad_bound=float("inf")), native, evidence, cases=True)

    validate(found, report_schema())
    assert found["claims"][0]["gradient_bound"] == "inf"
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_drawing_keeps_a_share_whatever_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    native = trained()
    state = compress(native, tolerance=TOLERANCE, grad_bound=1.0)
    monkeypatch.setattr(gathering, "DRAWN", 100)
    gatherer = Gatherer()
    gatherer.add(state, native)

    assert 25 < gatherer.drawn <= 100 < gatherer.guarded
    assert int(gatherer.deviations().sum()) == int(gatherer.gradients().sum()) == gatherer.drawn


def test_flushing_differs_from_binary32_only_in_subnormals(rng: np.random.Generator) -> None:
    bits = rng.integers(0, 2**32, size=(3, 4000), dtype=np.uint32)
    bits[:, :2000] &= np.uint32(0x81FFFFFF)  # tiny numbers
    a, b, c = bits.view(np.float32)
    plain, flushing = NumpyBinary32(), FlushingBinary32()
    smallest = np.float32(2.0**-126)

    def zeroed(x: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.where(np.abs(x) < smallest, np.copysign(np.float32(0), x), x)

    for name, operands in (("add", (a, b)), ("mul", (a, b)), ("div", (a, b)), ("fma", (a, b, c))):
        expected = zeroed(getattr(plain, name)(*map(zeroed, operands)))
        got = getattr(flushing, name)(*operands)
        assert np.array_equal(got, expected, equal_nan=True), name
        assert not (np.abs(got[got != 0]) < smallest).any(), name
    with np.errstate(all="ignore"):
        assert (np.multiply(a, b) != flushing.mul(a, b)).any()
