"""A file whose claim is false is seen to be so, and what is said of it can be replayed with the real optimizer."""

import copy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.oracle.cli.checkpoints import accepted, levels_up, same_bits, trained, updates, with_codes, with_tensor
from tests.oracle.cli.conftest import Job
from tests.oracle.cli.running import CLAIM, Ran, float_of, gmc, read_json, run_well

from guarded_moments.oracle.worst_case import decision, supremum
from guarded_moments.reference import IMPLEMENTATIONS, Tolerance, read, write
from guarded_moments.reference.checkpoint import GuardedState, load_state_dict
from guarded_moments.reference.codecs.log8 import ESCAPE
from guarded_moments.reference.guard import signed_cells

TOLERANCE, LR = 0.01, 1e-3


def audited(state: GuardedState) -> tuple[Ran, dict[str, Any]]:
    """What the audit says of a file that holds this state, and writes."""
    write(state, Path("wrong.gmc"), overwrite=True)
    ran = gmc("audit", "wrong.gmc", "--native", "optimizer.pt", "--json", "wrong.json", "--force")
    assert ran.err == ""
    return ran, read_json(Path("wrong.json"))


def replayed(found: dict[str, Any], key: int) -> tuple[Fraction, Fraction]:
    """The two updates of a finding, native and recovered, as torch's optimizer computes them."""
    run_well("recover", "wrong.gmc", "wrong.pt", "--force")
    position, gradient = tuple(found["position"]), float_of(found["gradient"])
    native, recovered = (
        Fraction(updates(load_state_dict(Path(name)), gradient)[key][position].item())
        for name in ("optimizer.pt", "wrong.pt")
    )
    return native, recovered


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("tensor", range(4))
def test_a_changed_code_is_a_violation_that_torch_confirms(job: Job, tensor: int) -> None:
    state = job.state
    guarded = state.tensors[tensor]
    chosen = accepted(state, tensor)[-1]
    wrong = with_codes(state, tensor, [chosen], lambda codes: codes ^ 0x80)  # the other sign

    ran, report = audited(wrong)

    assert ran.status == 1
    assert ran.line("verdict") == "DOES NOT HOLD    1 violations, 0 undecided"
    assert (report["violations"], report["holds"]) == (1, False)
    assert report["safe"] == job.report["safe"] - 1
    (found,) = report["found_violations"]
    position = tuple(index.item() for index in torch.unravel_index(torch.tensor(chosen), guarded.shape))
    assert (found["where"], tuple(found["position"])) == (guarded.where, position)
    native, recovered = replayed(found, int(guarded.key))
    deviation = abs(recovered - native) / Fraction(LR)
    assert deviation > Fraction(TOLERANCE), found
    assert float(deviation) == pytest.approx(found["deviation"], rel=1e-15), found
    place = f"{guarded.where}[{', '.join(map(str, position))}]"
    assert ran.line("violation") == f"{found['deviation']:.8g} lr at {place}, g = {found['gradient']}"
    assert f"m {found['m']} -> {found['m_hat']}, v {found['v']} -> {found['v_hat']}" in ran.out
    assert report["max_deviation"] >= found["deviation"]


def worst_by_rounding(native: dict[str, Any], found: dict[str, Any], key: int) -> Fraction:
    """The largest deviation of a coordinate at the gradients beside one, in learning rates, by torch's optimizer."""
    position, gradient = tuple(found["position"]), float_of(found["gradient"])
    recovered = load_state_dict(Path("right.pt"))
    bits = torch.tensor(gradient).view(torch.int32) + torch.arange(-40, 40, dtype=torch.int32)
    worst = Fraction(0)
    for neighbour in bits.view(torch.float32).tolist():
        one, other = (Fraction(updates(s, neighbour)[key][position].item()) for s in (native, recovered))
        worst = max(worst, abs(other - one) / Fraction(LR))
    return worst


@pytest.mark.usefixtures("here")
def test_the_op_model_decides_a_violation_that_only_rounding_makes(job: Job) -> None:
    native = job.state_dict
    for tolerance in (0.01, 0.009, 0.008, 0.007, 0.006, 0.005):
        claim = ("--tolerance", tolerance, "--grad-bound", "1")
        run_well("compress", "optimizer.pt", "right.gmc", *claim, "--force")
        run_well("recover", "right.gmc", "right.pt", "--force")
        run_well("audit", "right.gmc", "--native", "optimizer.pt", "--json", "right.json", "--force")
        closest = read_json(Path("right.json"))["max_deviation_at"]
        if float_of(closest["gradient"]) == 0.0:
            continue
        # Beside the gradient that is worst in real numbers, rounding decides which is worst.
        key = next(int(t.key) for t in job.state.tensors if t.where == closest["where"])
        worst = worst_by_rounding(native, closest, key)
        if float(worst) > closest["deviation"] * (1 + 1e-7):
            break
    else:
        pytest.fail("no tolerance gave a coordinate whose worst gradient is not zero")
    just_below = float(worst * (1 - Fraction(1, 10**9)))

    ran, report = audited(replace(read(Path("right.gmc")), tolerance=Tolerance(just_below)))

    assert (ran.status, report["violations"]) == (1, 1)
    (found,) = report["found_violations"]
    assert found["deviation"] > just_below
    one, other = replayed(found, key)
    assert float(abs(other - one) / Fraction(LR)) == pytest.approx(found["deviation"], rel=1e-15)
    assert report["max_deviation"] >= found["deviation"], "the largest deviation is at least that of a violation"
    assert report["max_deviation"] <= report["max_deviation_upper"]


@pytest.mark.usefixtures("here")
def test_every_violation_is_counted_and_the_first_are_spelled_out(job: Job) -> None:
    state = job.state
    for tensor in range(4):
        state = with_codes(state, tensor, accepted(state, tensor), levels_up(30))

    ran, report = audited(state)

    run_well("recover", "wrong.gmc", "wrong.pt")
    native, recovered = job.state_dict, load_state_dict(Path("wrong.pt"))
    worst = {key: torch.zeros_like(entry["exp_avg"], dtype=torch.float64) for key, entry in native["state"].items()}
    for exponent in range(-24, 1):
        for sign in (1.0, -1.0):
            one, other = (updates(state_dict, sign * 2.0**exponent) for state_dict in (native, recovered))
            for key, deviation in worst.items():
                torch.maximum(deviation, (other[key].double() - one[key].double()).abs() / LR, out=deviation)
    seen = sum(int((deviation > TOLERANCE).sum()) for deviation in worst.values())
    assert max(float(deviation.max()) for deviation in worst.values()) <= report["max_deviation_upper"]
    assert seen <= report["violations"] <= sum(len(accepted(state, tensor)) for tensor in range(4))
    assert seen >= report["violations"] * 0.9, "few violations hide between these gradients"
    assert ran.status == 1
    assert report["safe"] + report["violations"] + report["escapes"] == report["coordinates"]
    assert len(report["found_violations"]) == 10
    assert sum(line.startswith("violation ") for line in ran.out.splitlines()) == 10


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("column", [0, 1], ids=["first moment", "second moment"])
def test_an_escape_that_is_not_the_native_pair_is_a_violation(job: Job, column: int) -> None:
    state = job.state
    escapes = state.tensors[0].escapes.clone()
    escapes.view(torch.int32)[1, column] ^= 1  # one unit in the last place: no gradient would move an update by much

    ran, report = audited(with_tensor(state, 0, escapes=escapes))

    assert (ran.status, report["violations"], report["undecided"]) == (1, 1, 0)
    (found,) = report["found_violations"]
    assert (found["gradient"], found["deviation"]) == (None, None)
    flat = int(state.tensors[0].escaped.nonzero()[1])
    position = [index.item() for index in torch.unravel_index(torch.tensor(flat), state.tensors[0].shape)]
    assert found["position"] == position
    assert "the stored pair is not the native one" in ran.line("violation")
    assert found["m"] in ran.line("violation")


@pytest.mark.usefixtures("here")
def test_a_code_for_what_the_guard_does_not_cover_is_a_violation(job: Job) -> None:
    def plant(state_dict: dict[str, Any]) -> None:
        state_dict["state"][0]["exp_avg"][0, 0] = float("nan")
        state_dict["state"][0]["exp_avg_sq"][0, 1] = -1e-9

    native = copy.deepcopy(job.state_dict)
    plant(native)
    torch.save(native, "optimizer.pt")
    run_well("compress", "optimizer.pt", "right.gmc", *CLAIM)
    state = read(Path("right.gmc"))
    guarded = state.tensors[0]
    assert guarded.escaped[:2].all()
    codes = guarded.m_codes.clone()
    codes[:2] = 1
    wrong = with_tensor(state, 0, m_codes=codes, escapes=guarded.escapes[2:])

    ran, report = audited(wrong)

    assert (ran.status, report["violations"]) == (1, 2)
    assert [found["position"] for found in report["found_violations"]] == [[0, 0], [0, 1]]
    assert report["found_violations"][0]["m"].startswith("nan [")
    assert "not covered by the guard" in ran.out


@pytest.mark.usefixtures("here")
def test_an_escape_that_was_not_needed_is_no_violation_but_counted(job: Job) -> None:
    state, native = job.state, job.state_dict
    guarded = state.tensors[0]
    chosen = accepted(state, 0)[0]
    codes = guarded.m_codes.clone()
    codes[chosen] = ESCAPE
    where = (codes == ESCAPE).view(guarded.shape)
    entry = native["state"][guarded.key]
    escapes = torch.stack([entry["exp_avg"][where], entry["exp_avg_sq"][where]], dim=1)

    ran, report = audited(with_tensor(state, 0, m_codes=codes, escapes=escapes))

    assert (ran.status, report["violations"]) == (0, 0)
    assert report["escapes"] == job.report["escapes"] + 1
    assert report["needless_escapes"] == job.report["needless_escapes"] + 1


@pytest.mark.usefixtures("here")
def test_a_step_that_is_not_the_native_one_is_not_passed(job: Job) -> None:
    state = job.state
    skeleton = copy.deepcopy(state.skeleton)
    skeleton["state"][0]["step"] = torch.tensor(1.0)

    write(replace(state, skeleton=skeleton), Path("wrong.gmc"))
    ran = gmc("audit", "wrong.gmc", "--native", "optimizer.pt")

    run_well("recover", "wrong.gmc", "wrong.pt")
    one, other = (updates(load_state_dict(Path(name)), 0.0)[0] for name in ("optimizer.pt", "wrong.pt"))
    assert float((one - other).abs().max()) > 0.1 * LR, "the bias correction of the resumed run is another"
    assert ran.status != 0, ran.out


@pytest.mark.usefixtures("here")
def test_what_the_budget_leaves_undecided_fails_the_audit(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    # As near as a coordinate can be to its tolerance, so that the first cells of gradients do not decide.
    near = replace(job.state, tolerance=Tolerance(job.report["max_deviation_upper"]))
    assert audited(near)[0].status == 0
    for module in (signed_cells, decision):
        monkeypatch.setattr(module, "MAX_ROUNDS", 0)
    monkeypatch.setattr(supremum, "settle", lambda *_: None)

    ran, report = audited(near)

    assert ran.status == 1
    assert (report["violations"], report["holds"]) == (0, False)
    assert report["undecided"] > 0
    assert report["safe"] + report["undecided"] + report["escapes"] == report["coordinates"]
    assert ran.line("verdict").startswith("UNDECIDED: the search ran out of its budget")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("path", ["foreach", "fused"])
def test_other_paths_of_torch_confirm_their_violations_too(job: Job, path: str) -> None:
    options: dict[str, Any] = {path: True}
    state_dict = trained(**options)
    torch.save(state_dict, "optimizer.pt")
    run_well("compress", "optimizer.pt", "right.gmc", *CLAIM)
    state = read(Path("right.gmc"))
    assert state.tensors[0].implementation in IMPLEMENTATIONS
    chosen = accepted(state, 0)[-3:]  # the fused kernel's tail, which rounds differently, is the last five

    ran, report = audited(with_codes(state, 0, chosen, levels_up(40)))

    assert (ran.status, report["violations"]) == (1, len(chosen))
    for found in report["found_violations"]:
        native, recovered = replayed(found, 0)
        deviation = float(abs(recovered - native) / Fraction(LR))
        assert deviation == pytest.approx(found["deviation"], rel=1e-15), found
        assert deviation > TOLERANCE
    assert same_bits(load_state_dict(Path("optimizer.pt")), state_dict)
