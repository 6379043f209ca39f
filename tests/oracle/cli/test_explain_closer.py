"""`gmc explain --exact`, `--exhaust` and `--plot`: a closer look at one coordinate."""

import re
import sys
from pathlib import Path

import pytest
from tests.oracle.cli.running import gmc, run_well

from guarded_moments.oracle import pictures

COORDINATE = ("explain", "--m", "0x1.8p-12", "--v", "0x1.2p-22", "--tolerance", "0.01")


def deviation(line: str) -> float:
    found = re.match(r"(\S+) lr at g = ", line)
    assert found is not None, line
    return float(found[1])


def test_the_exact_worst_case_lies_between_what_was_found_and_what_is_certain() -> None:
    ran = run_well(*COORDINATE, "--grad-bound", "1", "--exact")
    found = re.search(r"deviation (\S+) lr, bit-exact; certainly at most (\S+)", ran.out)
    assert found is not None, ran.out
    assert float(found[1]) <= deviation(ran.line("exact")) <= float(found[2])
    assert "exceeds the tolerance" in ran.out


def test_running_every_gradient_finds_the_same() -> None:
    ran = run_well(*COORDINATE, "--grad-bound", "1e-40", "--exact", "--exhaust")
    assert deviation(ran.line("exact")) == deviation(ran.line("exhausted"))
    assert "142,726 gradients" in ran.out  # both signs of the 71,362 subnormals up to 1e-40, and zero


def test_a_coordinate_that_is_stored_exactly_has_no_closer_look() -> None:
    ran = run_well("explain", "--m", "nan", "--v", "1", "--tolerance", "0.01", "--grad-bound", "1", "--exact")
    assert "exact   " not in ran.out


@pytest.mark.parametrize("kind", pictures.KINDS)
def test_a_picture_is_written_once(kind: str, tmp_path: Path) -> None:
    picture = tmp_path / f"coordinate{kind}"
    plot = (*COORDINATE, "--grad-bound", "1", "--plot", picture)
    ran = run_well(*plot)
    assert ran.line("drawn") == str(picture)
    content = picture.read_bytes()
    assert content.startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[kind])
    again = gmc(*plot)
    assert (again.status, again.out) == (2, "")
    assert "--force" in again.err
    assert picture.read_bytes() == content
    run_well(*plot, "--force")


def test_what_cannot_be_drawn_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = gmc(*COORDINATE, "--grad-bound", "1", "--plot", tmp_path / "coordinate.txt")
    assert (ran.status, ran.out) == (2, "")
    assert "needs a name that ends in .png, .svg, .pdf" in ran.err

    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    ran = gmc(*COORDINATE, "--grad-bound", "1", "--plot", tmp_path / "coordinate.png")
    assert (ran.status, ran.out) == (2, "")
    assert "pip install 'guarded-moments[plot]'" in ran.err
