"""Whole checkpoints of trainers through all three commands; and a learning rate of zero, where a claim is trivial."""

from pathlib import Path

import pytest
import torch
from tests.oracle.cli.checkpoints import changed, only, same_bits, trained
from tests.oracle.cli.running import CLAIM, gmc, read_json, run_well
from tests.reference.checkpoint.states import DATA, LARGER_SAMPLES

from guarded_moments.reference.checkpoint import load_checkpoint, read
from guarded_moments.reference.checkpoint.comparison import first_difference
from guarded_moments.reference.checkpoint.optimizer_state import StateDict


@pytest.mark.parametrize("name", LARGER_SAMPLES)
def test_a_trainers_file_is_compressed_recovered_and_audited(name: str, tmp_path: Path) -> None:
    native, (compressed, recovered, json) = DATA / name, (tmp_path / n for n in ("c.gmc", "r.pt", "a.json"))

    said = run_well("compress", native, compressed, *CLAIM)
    run_well("recover", compressed, recovered)
    audited = run_well("audit", compressed, "--native", native, "--json", json)

    before, after = load_checkpoint(native), load_checkpoint(recovered)
    moments = {
        (*LARGER_SAMPLES[name], "state", key, moment) for key in range(4) for moment in ("exp_avg", "exp_avg_sq")
    }
    assert first_difference(before, after, frozenset(moments)) is None
    report = read_json(json)
    assert report["holds"]
    assert (report["violations"], report["undecided"], report["safe"] > 0) == (0, 0, True)
    beside = said.integers("beside")[0]
    assert report["bit_rate"] == 8 * (compressed.stat().st_size - beside) / report["coordinates"]
    assert f"{report['bit_rate']:.2f} bits per coordinate" in said.line("stored")
    assert str(LARGER_SAMPLES[name][0]) in audited.line("closest")


def test_another_weight_beside_the_state_is_another_checkpoint(tmp_path: Path) -> None:
    native = DATA / "model_optimizer_dict.pt"
    run_well("compress", native, tmp_path / "c.gmc", *CLAIM)
    other = load_checkpoint(native)
    other["model"]["0.bias"][3] += 1e-7
    torch.save(other, tmp_path / "other.pt")

    ran = gmc("audit", tmp_path / "c.gmc", "--native", tmp_path / "other.pt")

    assert ran.status == 2
    assert "not the file's own native checkpoint: model['0.bias'] differs" in ran.err


def finished(state_dict: StateDict) -> None:
    """As a schedule that decays to zero leaves it."""
    for group in state_dict["param_groups"]:
        group.update(lr=0.0, initial_lr=1e-3)


def test_after_a_finished_schedule_the_claim_counts_in_the_initial_rate_and_says_so(tmp_path: Path) -> None:
    native, compressed = tmp_path / "n.pt", tmp_path / "c.gmc"
    torch.save(changed(only(trained(), 3), finished), native)

    said = run_well("compress", native, compressed, *CLAIM)
    audited = run_well("audit", compressed, "--native", native)

    for ran in (said, audited):
        assert ran.line("lr ") == (
            "0.001, the schedule's initial_lr: the claim counts in it; the checkpoint's own is 0, at which every "
            "update is zero and any claim trivial"
        )
    run_well("recover", compressed, tmp_path / "r.pt")
    assert same_bits(load_checkpoint(tmp_path / "r.pt")["param_groups"], load_checkpoint(native)["param_groups"])


def test_a_file_can_be_audited_at_another_learning_rate(tmp_path: Path) -> None:
    native, compressed, json = tmp_path / "n.pt", tmp_path / "c.gmc", tmp_path / "a.json"
    torch.save(only(trained(), 3), native)
    run_well("compress", native, compressed, *CLAIM)

    audited = run_well("audit", compressed, "--native", native, "--lr", "0x1p-4", "--json", json)
    refused = gmc("audit", compressed, "--native", native, "--lr", "0")

    assert audited.line("lr ") == "0.0625, as given: the claim counts in it; the checkpoint's own is 0.001"
    assert {tensor.lr for tensor in read(compressed).tensors} == {1e-3}
    assert read_json(json)["max_deviation"] <= 0.01
    assert refused.status == 2
    assert "pass the learning rate of the run that will resume" in refused.err
