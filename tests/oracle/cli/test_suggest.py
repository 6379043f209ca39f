"""`gmc suggest` says what files would take, and they take it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.oracle.cli.checkpoints import numel, trained
from tests.oracle.cli.running import gmc, read_json, run_well

from guarded_moments.oracle.benchmark.suggest import Choice, Suggestion, least_tolerance
from guarded_moments.reference.checkpoint import compress
from guarded_moments.reference.checkpoint.bit_rate import bit_rate


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    state_dict = trained()
    torch.save(state_dict, "optimizer.pt")
    return state_dict


FEW = ("--tolerance", "0.002,0.02", "--grad-bound", "1,inf")


def test_the_bits_are_those_of_the_file_that_compress_would_write(native: dict[str, Any]) -> None:
    said = run_well("suggest", "optimizer.pt", *FEW, "--json", "choices.json")
    found = read_json(Path("choices.json"))

    assert (found["coordinates"], found["looked_at"]) == (numel(native), numel(native))
    assert [(c["tolerance"], c["grad_bound"]) for c in found["choices"]] == [
        (tau, bound) for tau in (0.002, 0.02) for bound in (1.0, "inf")
    ]
    for choice in found["choices"]:
        state = compress(native, tolerance=choice["tolerance"], grad_bound=float(choice["grad_bound"]))
        assert choice["bits"] == pytest.approx(bit_rate(state).total, rel=1e-12)
        assert choice["escaped"] == state.escapes / state.coordinates
        assert f"{choice['bits']:.2f} bits, {100 * choice['escaped']:.2f} % exact" in said.out
    assert said.line("looked at") == f"all {numel(native):,} coordinates; native takes 64 bits"
    assert found["choices"][0]["bits"] > found["choices"][-1]["bits"], "the tolerance matters"


def test_fewer_coordinates_are_an_estimate_that_says_so(native: dict[str, Any]) -> None:
    whole = Suggestion(native)
    some = Suggestion(native, 150)
    both = [next(suggestion.choices([0.01], [1.0])) for suggestion in (whole, some)]

    assert 0 < some.looked_at < whole.looked_at == whole.coordinates == some.coordinates
    assert both[1].bits == pytest.approx(both[0].bits, rel=0.3)
    said = run_well("suggest", "optimizer.pt", *FEW, "--coordinates", "150")
    assert said.line("looked at").startswith(f"{some.looked_at}, evenly spaced, of {numel(native):,} coordinates")


def test_tensors_that_are_kept_whole_are_counted(native: dict[str, Any]) -> None:
    for entry in (native["state"][0],):
        entry.update(exp_avg=entry["exp_avg"].double(), exp_avg_sq=entry["exp_avg_sq"].double())
    for most in (10**9, 150):
        suggestion = Suggestion(native, most)
        (choice,) = suggestion.choices([0.01], [1.0])
        state = compress(native, tolerance=0.01, grad_bound=1.0)
        assert suggestion.coordinates == state.coordinates
        assert choice.bits == pytest.approx(bit_rate(state).total, rel=1e-12 if most > 10**6 else 0.1)


def test_standard_output_can_be_json_and_a_picture_be_drawn(native: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib")
    said = run_well("suggest", "optimizer.pt", *FEW, "--json", "-", "--plot", "choices.svg")

    assert len(json.loads(said.out)["choices"]) == 4
    picture = Path("choices.svg").read_text(encoding="utf-8")
    assert picture.count("<svg") == 1
    assert "tolerance" in picture or "<use" in picture


def test_the_tolerance_that_is_pointed_out_is_good_at_every_bound() -> None:
    choices = [
        Choice(tau, bound, 0.0, share)
        for tau, bound, share in ((0.01, 1, 0.04), (0.01, 2, 0.06), (0.02, 1, 0.05), (0.02, 2, 0.01), (0.05, 1, 0.0))
    ]
    assert least_tolerance(choices, 0.05) == 0.02
    assert least_tolerance(choices, 0.06) == 0.01
    assert least_tolerance(choices[:2], 0.001) is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("optimizer.pt", "--tolerance", "0"), "tolerance is 0.0"),
        (("optimizer.pt", "--tolerance", "0.1,x"), "'x' is not a number"),
        (("optimizer.pt", "--grad-bound", "1,-1"), "grad-bound is -1.0"),
        (
            ("optimizer.pt", "--grad-bound", "1e30"),
            "optimizer.pt: state[0] (0.weight): grad-bound 1e+30 is above the overflow limit",
        ),
        (("missing.pt",), "missing.pt: there is no such file"),
        (("optimizer.pt", "--json", "optimizer.pt"), "is read as input"),
        (("optimizer.pt", "--plot", "choices.txt"), "choices.txt: a picture needs a name"),
        (("optimizer.pt", "--coordinates", "0"), "0 is not in the range"),
    ],
)
def test_bad_input_is_refused_in_one_line(native: dict[str, Any], arguments: tuple[str, ...], says: str) -> None:
    said = gmc("suggest", *arguments)

    assert (said.status, said.out) == (2, "")
    assert says in said.err
    assert said.err.count("\n") == 1
