"""compress, recover and audit on a really trained state: what is printed, what is written, what the library says."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.oracle.cli.checkpoints import numel, only, same_bits, trained, updates
from tests.oracle.cli.conftest import Job
from tests.oracle.cli.running import CLAIM, contents, float_of, gmc, read_json, run_well

from guarded_moments.oracle.audit import audit
from guarded_moments.oracle.cli.audit import as_json
from guarded_moments.reference import IMPLEMENTATIONS
from guarded_moments.reference.checkpoint import load_state_dict, read

TOLERANCE, LR = 0.01, 1e-3
KEYS = {
    "coordinates",
    "violations",
    "undecided",
    "escapes",
    "needless_escapes",
    "bit_rate",
    "max_deviation",
    "max_deviation_upper",
    "max_deviation_at",
    "safe",
    "holds",
    "claims",
    "kept",
    "tensors",
}
COUNTS = ("coordinates", "safe", "violations", "undecided", "escapes", "needless_escapes")


@pytest.fixture(scope="module")
def report(job: Job) -> dict[str, Any]:
    return job.report


def test_compress_prints_what_the_file_holds(job: Job) -> None:
    state, size = job.state, job.compressed.stat().st_size
    coordinates = numel(job.state_dict)

    assert job.compress.integers("stored") == [coordinates, 4, 64]
    assert f" {8 * size / coordinates:.2f} bits per coordinate" in job.compress.line("stored")
    assert job.compress.integers("exact") == [state.escapes]
    assert f"({100 * state.escapes / coordinates:.2f} %)" in job.compress.line("exact")
    assert re.search(rf"\n +{state.escapes} not within tolerance\n", job.compress.out)
    written = f"{job.compressed}  {size:,} bytes, from {job.native.stat().st_size:,}"
    assert job.compress.line("written") == written
    assert job.compress.line("claim") == state.claim_for(state.tensors[0]).sentence()
    assert [t.numel for t in state.tensors] == [e["exp_avg"].numel() for e in job.state_dict["state"].values()]


def test_compress_lists_every_tensor_when_asked(job: Job) -> None:
    rows = [line.split() for line in job.compress.out.splitlines() if line.strip().startswith("state[")]

    assert len(rows) == len(job.state.tensors)
    for row, tensor in zip(rows, job.state.tensors, strict=True):
        escapes = len(tensor.escapes)
        assert " ".join(row[:2]) == tensor.where
        assert row[2:5] == [tensor.implementation, "log8", f"{tensor.numel:,}"]
        assert row[5] == f"{100 * escapes / tensor.numel:.2f}"
        assert row[7] == f"{16 + 64 * escapes / tensor.numel:.2f}"
    plain = [line for line in job.compress.out.splitlines() if "(0.weight)" in line]
    assert len(plain) == 1, "without -v, no line would name a tensor"


def test_the_audit_prints_what_it_writes(job: Job, report: dict[str, Any]) -> None:
    printed = job.audit

    assert printed.integers("verdict") == [report["violations"], report["undecided"]] == [0, 0]
    assert printed.line("verdict").startswith("HOLDS on every coordinate")
    assert printed.integers("checked") == [report["coordinates"], report["safe"], report["escapes"], 0]
    exact, needless = (100 * report[name] / report["coordinates"] for name in ("escapes", "needless_escapes"))
    stored = f"{report['bit_rate']:.2f} bits per coordinate, {exact:.2f} % exact ({needless:.2f} % needlessly)"
    assert printed.line("stored") == stored
    assert [printed.line("claim")] == report["claims"]
    assert printed.line("not claimed:") == report["not_claimed"]
    at = report["max_deviation_at"]
    place = f"{at['where']}[{', '.join(map(str, at['position']))}]"
    assert printed.line("closest") == f"{report['max_deviation']:.8g} lr at {place}, g = {at['gradient']}"
    assert f"m {at['m']} -> {at['m_hat']}, v {at['v']} -> {at['v_hat']}" in printed.out
    assert f"by more than {report['max_deviation_upper']:.8g} lr" in printed.out


def test_the_audit_lists_every_tensor_when_asked(job: Job, report: dict[str, Any]) -> None:
    rows = [line.split() for line in job.audit.out.splitlines() if line.strip().startswith("state[")]

    assert [" ".join(row[:2]) for row in rows] == [tensor["where"] for tensor in report["tensors"]]
    for row, tensor in zip(rows, report["tensors"], strict=True):
        assert [int(count.replace(",", "")) for count in row[2:8]] == [tensor[name] for name in COUNTS]
        assert row[8] == f"{tensor['max_deviation']:.6f}"


def test_the_json_has_what_the_table_of_commands_promises(report: dict[str, Any]) -> None:
    assert report.keys() >= KEYS


def test_the_json_is_the_librarys_audit(job: Job, report: dict[str, Any]) -> None:
    native = job.state_dict
    bit_rate = 8 * job.compressed.stat().st_size / numel(native)

    again = as_json(audit(job.state, native), bit_rate)

    assert json.loads(json.dumps(again)) == report


def test_counts_add_up_to_the_checkpoint(job: Job, report: dict[str, Any]) -> None:
    assert report["coordinates"] == numel(job.state_dict)
    for part in (report, *report["tensors"]):
        whole = sum(report["kept"].values()) if part is report else 0
        assert part["safe"] + part["violations"] + part["undecided"] + part["escapes"] + whole == part["coordinates"]
        assert sum(part["escape_reasons"].values()) == part["escapes"]
        assert part["needless_escapes"] + part["undecided_escapes"] <= part["escapes"]
    for name in COUNTS:
        assert sum(tensor[name] for tensor in report["tensors"]) == report[name], name
    assert 0 < report["escapes"] < report["coordinates"], "the state tries both"


def test_the_largest_deviation_is_a_real_one(job: Job, report: dict[str, Any]) -> None:
    at = report["max_deviation_at"]
    tensor = next(tensor for tensor in job.state.tensors if tensor.where == at["where"])
    key, position = int(tensor.key), tuple(at["position"])
    states = {name: load_state_dict(path) for name, path in (("native", job.native), ("recovered", job.recovered))}
    moved = {name: updates(state, float_of(at["gradient"]))[key][position] for name, state in states.items()}
    moments = [states[name]["state"][key][m][position].item() for name in states for m in ("exp_avg", "exp_avg_sq")]

    assert moments == [float_of(at[name]) for name in ("m", "v", "m_hat", "v_hat")]
    deviation = abs(moved["recovered"].item() - moved["native"].item()) / LR
    assert deviation == pytest.approx(report["max_deviation"], rel=1e-15), (moved, at)
    assert at["deviation"] == report["max_deviation"] == max(t["max_deviation"] for t in report["tensors"])
    assert report["max_deviation"] <= report["max_deviation_upper"] <= TOLERANCE


def test_no_gradient_moves_the_real_optimizer_further_than_certified(
    job: Job, report: dict[str, Any], seed: int
) -> None:
    native, recovered = job.state_dict, load_state_dict(job.recovered)
    generator = torch.Generator().manual_seed(seed)
    compared = 0
    for round_number in range(60):
        scale = 10.0 ** (-round_number / 10)
        gradients = {
            key: (torch.randn(entry["exp_avg"].shape, generator=generator) * scale).clamp(-1, 1)
            for key, entry in native["state"].items()
        }
        one, other = updates(native, gradients), updates(recovered, gradients)
        for key, update in one.items():
            deviation = (other[key].double() - update.double()).abs() / LR
            worst = int(deviation.argmax())
            assert deviation.flatten()[worst] <= report["max_deviation_upper"], (
                f"parameter {key}[{worst}], g = {gradients[key].flatten()[worst].item().hex()}: "
                f"{deviation.flatten()[worst].item()} lr"
            )
            compared += update.numel()
    assert compared == 60 * report["coordinates"]


def test_everything_but_the_guarded_moments_is_recovered_bit_for_bit(job: Job) -> None:
    native, recovered = job.state_dict, load_state_dict(job.recovered)
    for tensor in job.state.tensors:
        entry, original = recovered["state"][tensor.key], native["state"][tensor.key]
        for name, decoded in zip(("exp_avg", "exp_avg_sq"), tensor.decode(), strict=True):
            assert torch.equal(entry[name].flatten(), decoded), (tensor.where, name)
            escaped = tensor.escaped.view(tensor.shape)
            assert torch.equal(entry[name][escaped], original[name][escaped]), (tensor.where, name)
            entry[name] = original[name]

    assert same_bits(recovered, native)


def test_recover_says_where_it_went(job: Job) -> None:
    assert job.recover.out == f"recovered {numel(job.state_dict)} coordinates of 4 tensors into {job.recovered}\n"


@pytest.mark.usefixtures("here")
def test_the_same_checkpoint_gives_the_same_bytes(job: Job) -> None:
    run_well("compress", "optimizer.pt", "again.gmc", *CLAIM)
    run_well("recover", "again.gmc", "again.pt")

    assert Path("again.gmc").read_bytes() == job.compressed.read_bytes()
    assert same_bits(load_state_dict(Path("again.pt")), load_state_dict(job.recovered))


def test_an_output_is_replaced_only_by_force(here: Path) -> None:
    for arguments in (
        ("compress", "optimizer.pt", "out", *CLAIM),
        ("recover", "optimizer.gmc", "out"),
        ("audit", "optimizer.gmc", "--native", "optimizer.pt", "--json", "out"),
    ):
        (here / "out").write_bytes(b"precious")
        before = contents(here)

        refused = gmc(*arguments)

        assert refused.status == 2, arguments
        assert refused.err == "gmc: out: exists already; nothing was written (--force replaces it)\n", arguments
        assert contents(here) == before, arguments

        run_well(*arguments, "--force")

        after = contents(here)
        assert after.pop("out") != before.pop("out"), arguments
        assert after == before, arguments


@pytest.mark.usefixtures("here")
def test_the_learning_rate_of_the_resuming_run_can_be_named() -> None:
    run_well("compress", "optimizer.pt", "other.gmc", *CLAIM, "--lr", "0x1p-7")
    run_well("audit", "other.gmc", "--native", "optimizer.pt", "--json", "other.json")

    assert {tensor.lr for tensor in read(Path("other.gmc")).tensors} == {2.0**-7}
    assert read_json(Path("other.json"))["violations"] == 0


@pytest.mark.usefixtures("here")
def test_the_closed_form_alone_escapes_more_and_holds_too(job: Job) -> None:
    run_well("compress", "optimizer.pt", "closed.gmc", *CLAIM, "--guard", "closed")
    run_well("audit", "closed.gmc", "--native", "optimizer.pt", "--json", "closed.json")

    exact, closed = job.state, read(Path("closed.gmc"))
    for one, other in zip(exact.tensors, closed.tensors, strict=True):
        if one.codec == other.codec:
            assert bool((one.escaped <= other.escaped).all()), one.where
    assert exact.escapes < closed.escapes
    assert read_json(Path("closed.json"))["needless_escapes"] > job.report["needless_escapes"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", sorted(IMPLEMENTATIONS))
def test_every_op_model_can_be_named(name: str) -> None:
    torch.save(only(trained(), 3), "small.pt")
    compressed = run_well("compress", "small.pt", "other.gmc", *CLAIM, "--op-model", name)
    audited = run_well("audit", "other.gmc", "--native", "small.pt", "--json", "other.json")

    assert {tensor.implementation for tensor in read(Path("other.gmc")).tensors} == {name}
    for claim in (compressed.line("claim"), audited.line("claim"), *read_json(Path("other.json"))["claims"]):
        assert claim.endswith(f", {name}")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["a[b].gmc", "[red]a.gmc", "a:smile:.gmc", "a b;c.gmc"])
def test_names_of_files_are_printed_as_they_are(name: str) -> None:
    assert run_well("compress", "optimizer.pt", name, *CLAIM).line("written").startswith(f"{name}  ")
    assert run_well("recover", name, f"{name}.pt").out.endswith(f" into {name}.pt\n")


@pytest.mark.usefixtures("here")
def test_names_of_parameters_are_printed_as_they_are(job: Job) -> None:
    state_dict = job.state_dict
    state_dict["param_groups"][0]["param_names"] = ["[red]a[/]", "[/b]:smile:"]
    torch.save(state_dict, "named.pt")

    printed = run_well("compress", "named.pt", "named.gmc", *CLAIM, "-v").out
    printed += run_well("audit", "named.gmc", "--native", "named.pt", "-v").out

    for where in ("state[0] ([red]a[/])", "state[1] ([/b]:smile:)"):
        assert printed.count(f" {where} ") >= 2, where
