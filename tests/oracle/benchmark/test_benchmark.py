"""The benchmark and its sweeps: what is counted and shown is what was done, on a state small enough to check."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from tests.docs.documents import DOCS, shape
from tests.oracle.cli.checkpoints import only, trained
from tests.oracle.cli.running import gmc, read_json, run_well

from guarded_moments.oracle.benchmark import SWEEPS, Benchmark, Setting, as_json, markdown, measure, sweep
from guarded_moments.oracle.benchmark.altered import LATE, altered
from guarded_moments.oracle.benchmark.later_updates import UPDATES, later_updates
from guarded_moments.oracle.benchmark.measure import Spread
from guarded_moments.oracle.benchmark.page import claims
from guarded_moments.oracle.benchmark.peers import PEERS
from guarded_moments.oracle.benchmark.stages import PASSES, STAGES, Work, run
from guarded_moments.reference.checkpoint import compress, parameters_of
from guarded_moments.reference.checkpoint.bit_rate import bit_rate
from guarded_moments.reference.checkpoint.encoding import constants_of
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.codecs import CODECS
from guarded_moments.reference.implementations import implementation_for

SETTING = Setting(coordinates=5000, rounds=3)


@pytest.fixture(scope="module")
def native() -> dict[str, Any]:
    return trained()


@pytest.fixture(scope="module")
def found(native: dict[str, Any]) -> Benchmark:
    return measure(native, SETTING)


def test_the_bits_are_those_of_the_files(found: Benchmark, native: dict[str, Any]) -> None:
    late = altered(native, updates=LATE)
    for name in CODECS:
        for label, state_dict, guard in (("closed", native, "closed"), ("exact late", late, "exact")):
            state = compress(state_dict, tolerance=0.01, grad_bound=1.0, codec=name, guard=guard)  # type: ignore[arg-type]
            assert found.codecs[name].bits[label] == bit_rate(state), (name, label)
            assert found.codecs[name].escaped[label] == state.escapes / state.coordinates


def test_every_codec_was_audited_and_holds(found: Benchmark) -> None:
    for name, result in found.codecs.items():
        assert (result.verdict["violations"], result.verdict["undecided"]) == (0, 0), name
        assert result.verdict["safe"] > 0
        assert result.attained is not None
        assert result.attained <= SETTING.tolerance


def test_the_compiled_loops_were_timed_in_every_round(found: Benchmark) -> None:
    assert list(found.compiled) == ["log8", "lin8", "bf16", "ratio8"]
    page, data = markdown(found, "gmc bench"), as_json(found)
    for name, rounds in found.compiled.items():
        assert len(rounds) == SETTING.rounds
        assert all(turn[part] > 0 for turn in rounds for part in PASSES)
        assert data["compiled"][name]["ratio_to_bf16"]["median"] == found.compiled_ratio(name, "bf16").median
    assert found.compiled_ratio("bf16", "bf16") == Spread(1.0, 1.0, 1.0)
    assert "reference to this" in page


def test_a_round_is_there_for_each_and_every_stage_took_time(found: Benchmark) -> None:
    assert found.tiled >= SETTING.coordinates > found.tiled - found.coordinates
    assert len(found.copy) == SETTING.rounds
    for result in found.codecs.values():
        assert len(result.rounds) == SETTING.rounds
        assert all(set(turn) == set(STAGES) for turn in result.rounds)
        assert all(turn["encode"] > 0 and turn["guard"] > 0 for turn in result.rounds)
    assert found.ratio("bf16", "bf16") == Spread(1.0, 1.0, 1.0)


def test_one_pass_escapes_what_compress_does(native: dict[str, Any]) -> None:
    works, escapes = [], dict.fromkeys(CODECS, 0)
    implementation = implementation_for({})
    for parameter in parameters_of(native):
        if parameter.kept_because is None:
            claim = Claim(Tolerance(0.01), GradientBound(1.0), implementation.name)
            constants = constants_of(parameter, claim, implementation, parameter.hyperparameters.lr)
            works.append(Work(parameter.m.flatten(), parameter.v.flatten(), constants))
    for name, kind in CODECS.items():
        _, escapes[name] = run(kind, works)
        state = compress(
            native, tolerance=0.01, grad_bound=1.0, codec=name, guard="closed", implementation=implementation.name
        )
        assert escapes[name] == state.escapes, name


def test_the_json_is_the_page(found: Benchmark) -> None:
    data = json.loads(json.dumps(as_json(found), allow_nan=False))
    page = markdown(found, "gmc bench optimizer.pt")

    assert list(data["codecs"]) == list(CODECS)
    for name, codec in data["codecs"].items():
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
        assert f"{codec['nanoseconds_per_coordinate']['total']['median']:.1f}" in row
        assert f"{codec['bits']['exact']['total']:.3f}" in page
        assert codec["bits"]["exact"]["total"] == pytest.approx(
            sum(codec["bits"]["exact"][part] for part in ("codes", "escapes", "parameters", "metadata"))
        )
    for row in data["claims"]:
        assert f"| {row['claim']} | {row['published']} | {row['measured']} |" in page
    assert len(data["claims"]) == 7
    assert "    gmc bench optimizer.pt\n" in page


def test_the_page_in_the_docs_is_what_the_program_would_write(found: Benchmark) -> None:
    spreads = {"encode": [1.0, 2.0], "decode": [1.0, 2.0]}
    there = dict.fromkeys(PEERS, spreads)
    now = dataclasses.replace(found, peers=there, versions=dict.fromkeys(PEERS, "1.0.0"))

    written = (DOCS / "benchmark.md").read_text(encoding="utf-8")

    assert shape(written) == shape(markdown(now, "gmc bench")), "make figures"


def test_an_infinite_bound_is_json_too(native: dict[str, Any]) -> None:
    found = measure(only(native, 3), Setting(grad_bound=math.inf, coordinates=1, rounds=1, audited=False))
    data = as_json(found)

    assert json.loads(json.dumps(data, allow_nan=False))["setting"]["grad_bound"] == "inf"
    assert data["claims"][0]["measured"] == "not audited in this run"


def test_the_claims_are_of_the_same_figures(found: Benchmark) -> None:
    table = {claim: measured for claim, _, measured in claims(found)}
    saving = 1 - found.codecs["joint"].bits["closed"].total / found.codecs["log8"].bits["closed"].total

    (joint,) = (text for claim, text in table.items() if claim.startswith("joint"))
    assert joint.startswith(f"{100 * saving:.4f} %, ")
    (ratio,) = (text for claim, text in table.items() if claim.startswith("encode and recover"))
    assert ratio.startswith(f"{found.ratio('log8', 'bf16').median:.2f} (")


def test_later_updates_are_not_bounded_by_the_first(native: dict[str, Any]) -> None:
    state = compress(native, tolerance=0.01, grad_bound=math.inf)
    largest = later_updates(state, native)

    assert len(largest) == UPDATES
    assert 0 < largest[0] <= 0.01
    assert largest == later_updates(state, native), "the gradients are the same every time"


def test_other_libraries_are_timed_where_they_are_installed(found: Benchmark) -> None:
    assert set(found.peers) == set(found.versions) <= set(PEERS)
    for jobs in found.peers.values():
        assert all(len(times) == SETTING.rounds and min(times) > 0 for times in jobs.values())


def test_altered_changes_what_it_is_told_and_leaves_the_original(native: dict[str, Any]) -> None:
    before = [float(entry["step"]) for entry in native["state"].values()]

    changed = altered({"optimizer": native, "epoch": 3}, updates=77, eps=1e-6)

    assert {float(entry["step"]) for entry in changed["optimizer"]["state"].values()} == {77.0}
    assert {group["eps"] for group in changed["optimizer"]["param_groups"]} == {1e-6}
    assert changed["epoch"] == 3
    assert [float(entry["step"]) for entry in native["state"].values()] == before
    assert {group["eps"] for group in native["param_groups"]} == {1e-8}


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_is_a_compression_at_each_value(name: str, native: dict[str, Any], budget: int) -> None:
    if budget == 1 and name not in {"tolerance", "guard"}:
        pytest.skip("as the others do; --oracle runs it")
    claim: Mapping[str, Any] = {"tolerance": 0.01, "grad_bound": 1.0, "guard": "closed"}

    points = list(sweep(name, native, **claim))

    assert len(points) == len(SWEEPS[name].values) == len({point.value for point in points})
    if name == "tolerance":
        rates = [point.bits.total for point in points]
        assert rates == sorted(rates, reverse=True)
        assert rates[0] > rates[-1] + 10
    state = compress(native, **{**claim, **({"tolerance": 1e-3} if name == "tolerance" else {})})
    if name in {"tolerance", "codec", "grid", "guard"}:
        assert points[0].bits == bit_rate(state)


# The commands


def test_bench_writes_a_page_json_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(only(trained(), 3), "optimizer.pt")
    few = ("--coordinates", "1", "--rounds", "1", "--no-audit")

    ran = run_well("bench", "optimizer.pt", *few, "--output", "page.md", "--json", "bench.json")
    assert ran.out == ""
    page = Path("page.md").read_text(encoding="utf-8")
    assert "    gmc bench optimizer.pt --coordinates 1 --rounds 1 --no-audit --output page.md --force\n" in page
    assert list(read_json(Path("bench.json"))["codecs"]) == list(CODECS)
    assert {path.name for path in tmp_path.iterdir()} == {"optimizer.pt", "page.md", "bench.json"}


def test_sweep_shows_a_row_for_each_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(trained(), "optimizer.pt")

    shown = run_well("sweep", "guard", "optimizer.pt").out.splitlines()
    data = json.loads(run_well("sweep", "guard", "optimizer.pt", "--grad-bound", "inf", "--json", "-").out)

    assert [line.split()[0] for line in shown[1:]] == ["closed", "exact"]
    assert [point["value"] for point in data["points"]] == ["closed", "exact"]
    assert data["fixed"]["grad_bound"] == "inf"
    assert data["points"][0]["escaped"] > data["points"][1]["escaped"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bench", "none.pt"), "none.pt: there is no such file"),
        (("bench", "optimizer.pt", "--tolerance", "0"), "tolerance is 0.0"),
        (("bench", "optimizer.pt", "--json", "optimizer.pt"), "optimizer.pt: is read as input and would be replaced"),
        (
            ("bench", "optimizer.pt", "--plot", "picture.txt"),
            "picture.txt: a picture needs a name that ends in .png, .svg, .pdf",
        ),
        (("bench", "optimizer.pt", "--rounds", "0"), "0 is not in the range"),
        (("bench", "empty.pt"), "no parameter has moments that the guard could judge"),
        (("sweep", "weather", "optimizer.pt"), "'weather' is not one of 'tolerance'"),
        (("sweep", "guard", "optimizer.pt", "--plot", "optimizer.pt"), "would be replaced"),
        (("sweep", "codec", "optimizer.pt", "--grid", "per-row"), "codec bf16 has no grids to choose per-row"),
    ],
)
def test_wrong_requests_are_refused_in_a_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(trained(), "optimizer.pt")
    torch.save({"state": {}, "param_groups": trained()["param_groups"]}, "empty.pt")

    ran = gmc(*arguments)

    assert ran.status == 2, ran.err
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_pictures_are_drawn_where_matplotlib_is_installed(
    found: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    torch.save(only(trained(), 3), "optimizer.pt")

    run_well("sweep", "guard", "optimizer.pt", "--plot", "sweep.png")
    with patch("guarded_moments.oracle.cli.bench.measure", return_value=found):
        shown = run_well("bench", "optimizer.pt", "--plot", "bench.svg")

    assert Path("sweep.png").read_bytes().startswith(b"\x89PNG")
    picture = Path("bench.svg").read_text(encoding="utf-8")
    assert picture.startswith("<?xml")
    assert all(f"<!-- {name} -->" in picture for name in CODECS), "a point and a name for each"
    assert shown.out.startswith("# Codecs measured\n")


def test_without_matplotlib_a_picture_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(trained(), "optimizer.pt")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)

    ran = gmc("bench", "optimizer.pt", "--plot", "bench.png")

    assert ran.status == 2
    assert "--plot needs matplotlib, which is not installed" in ran.err
