"""`gmc compress` says how large gradients can be in three ways, and one of them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.oracle.cli.checkpoints import trained
from tests.oracle.cli.running import gmc, run_well

from guarded_moments.reference.checkpoint import read
from guarded_moments.reference.clipping import bound_of_clipped_norm, bound_of_clipped_value


@pytest.fixture
def compress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The words of a command, but for the bound; there are two param_groups."""
    monkeypatch.chdir(tmp_path)
    torch.save(trained(), "optimizer.pt")
    return ("compress", "optimizer.pt", "optimizer.gmc", "--tolerance", "0.01")


def bounds() -> set[float]:
    """Those of the tensors in the file that was written."""
    state = read(Path("optimizer.gmc"))
    return {state.claim_for(tensor).gradient_bound.value for tensor in state.tensors}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--clip-norm", "1.0"), {bound_of_clipped_norm(1.0)}),
        (("--clip-norm", "0.5", "--norm-type", "inf"), {bound_of_clipped_norm(0.5)}),
        (("--clip-norm", "0.5", "--norm-type", "1"), {bound_of_clipped_norm(0.5)}),
        (("--clip-value", "0.1"), {bound_of_clipped_value(0.1)}),
        (("--grad-bound", "0.25"), {0.25}),
        (("--grad-bound", "0x1p-2,inf"), {0.25, float("inf")}),
        (("--grad-bound", "2,2"), {2.0}),
    ],
)
def test_the_bound_is_that_of_the_option(
    compress: tuple[str, ...], options: tuple[str, ...], expected: set[float]
) -> None:
    run_well(*compress, *options)

    assert bounds() == expected
    audited = run_well("audit", "optimizer.gmc", "--native", "optimizer.pt")
    assert "HOLDS" in audited.line("verdict")


def test_claims_of_several_bounds_are_told_one_by_one(compress: tuple[str, ...]) -> None:
    said = run_well(*compress, "--grad-bound", "1,0.5")

    assert said.line("claim").count("every gradient |g| <= ") == 2


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "none": ((), "Missing option: give one of --grad-bound, --clip-norm and --clip-value."),
    "two": (("--clip-norm", "1", "--grad-bound", "1"), "Give one of --grad-bound, --clip-norm and --clip-value."),
    "another norm": (("--clip-norm", "1", "--norm-type", "3"), "'3' is not one of '1', '2', 'inf'"),
    "a norm of nothing": (("--clip-norm", "0"), "clip-norm is 0.0: expected a number from"),
    "a value of nothing": (("--clip-value", "-1"), "clip-value is -1.0: expected a positive number"),
    "a word": (("--grad-bound", "1,large"), "'large' is not a number"),
    "too many": (("--grad-bound", "1,2,3"), "grad-bound is 3 numbers, and there are 2 param_groups"),
}


@pytest.mark.parametrize(("options", "says"), REFUSED.values(), ids=REFUSED)
def test_other_options_are_refused_in_one_line(compress: tuple[str, ...], options: tuple[str, ...], says: str) -> None:
    said = gmc(*compress, *options)

    assert (said.status, said.out) == (2, "")
    assert says in said.err
    assert said.err.count("\n") == 1
    assert not Path("optimizer.gmc").exists()


@pytest.mark.parametrize("option", ["--clip-norm", "--clip-value"])
def test_clipping_bounds_nothing_where_l2_decay_comes_after_it(compress: tuple[str, ...], option: str) -> None:
    decayed: dict[str, Any] = trained(torch.optim.Adam)
    assert [group["weight_decay"] for group in decayed["param_groups"]] == [0.1, 0.0]
    torch.save(decayed, "optimizer.pt")
    said = gmc(*compress, option, "1")

    assert said.status == 2
    assert "optimizer.pt: state[0] (0.weight): has L2 weight decay 0.1, which adds that many times" in said.err
    run_well(*compress, "--grad-bound", "3,1")
