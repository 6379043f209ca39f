"""Longer horizons on the command line: what is claimed and what is not stand together, and the audit decides both."""

from pathlib import Path

import pytest
import torch
from tests.oracle.cli.checkpoints import trained
from tests.oracle.cli.running import read_json, run_well

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    ("horizon", "claimed", "left_out"),
    [
        ("5", "each of the first 5 updates within", "updates after 5, runs whose own gradients differ"),
        (
            "all",
            "in exact arithmetic every later one",
            "runs whose own gradients differ from the second update on, the",
        ),
    ],
)
def test_a_horizon_is_claimed_with_what_it_leaves_out(horizon: str, claimed: str, left_out: str) -> None:
    torch.save(trained(), "own.pt")
    bound = ("--tolerance", "0.01", "--grad-bound", "inf", "--horizon", horizon)
    compressed = run_well("compress", "own.pt", "own.gmc", *bound, "--json", "compressed.json")
    audited = run_well("audit", "own.gmc", "--native", "own.pt", "--json", "audit.json")
    for ran in (compressed, audited):
        assert claimed in ran.out, ran.out
        assert "of one sequence that both runs share" in ran.out, ran.out
        assert f"not claimed: {left_out}" in ran.out, ran.out
    assert "HOLDS on every coordinate" in audited.out
    found = read_json(Path("audit.json"))
    assert found["later_updates"]["horizon"] == horizon
    assert found["later_updates"]["claimed"] is True
    assert "if both runs see one sequence of gradients" in audited.out
