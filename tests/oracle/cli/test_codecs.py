"""Every codec and every granularity through compress, recover, audit and explain."""

import re
from pathlib import Path

import pytest
import torch
from tests.oracle.cli.checkpoints import only, trained
from tests.oracle.cli.running import CLAIM, gmc, read_json, run_well

from guarded_moments.reference import read
from guarded_moments.reference.codecs import CODECS

CHOICES = [
    *((codec, "per-tensor") for codec in CODECS),
    *((codec, grid) for codec, kind in CODECS.items() if kind.granularities for grid in ("per-row", "per-block")),
]


@pytest.mark.parametrize(("codec", "grid"), CHOICES)
def test_a_checkpoint_goes_through_every_command(
    codec: str, grid: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(only(trained(), 3), "native.pt")

    shown = run_well("compress", "native.pt", "out.gmc", *CLAIM, "--codec", codec, "--grid", grid, "-v")
    run_well("recover", "out.gmc", "recovered.pt")
    run_well("audit", "out.gmc", "--native", "native.pt", "--json", "audit.json")

    report, (tensor, *_) = read_json(Path("audit.json")), read(Path("out.gmc")).tensors
    assert report["holds"]
    assert tensor.codec.name == codec
    assert f" {codec} " in shown.out
    parts = [float(number) for number in re.findall(r"[\d.]+(?= )", shown.line("bits"))]
    assert sum(parts[:-1]) == pytest.approx(parts[-1], abs=0.003)
    if codec == "entropy":
        held, numel = sum(len(part) for part in tensor.stored), tensor.numel
        assert parts[0] == pytest.approx(8 * held / numel, rel=0.5), "of the first tensor; of all it is about that"
    else:
        assert parts[0] == (32 if codec == "bf16" else 16)
    explained = run_well(
        "explain", "--m", "1e-4", "--v", "1e-8", *CLAIM, "--like", "out.gmc", "--place", tensor.numel - 1
    )
    width = 4 if codec in {"bf16", "entropy"} else 2
    assert len(explained.line("codes").split()[1].rstrip(",")) == 2 + width
    assert explained.line("worst").startswith(("SAFE", "UNSAFE"))


@pytest.mark.parametrize("codec", CODECS)
def test_a_coordinate_without_a_file_in_every_codec(codec: str) -> None:
    explained = run_well("explain", "--m", "0x1.8p-12", "--v", "0x1.2p-22", *CLAIM, "--codec", codec)

    assert explained.line("codes").startswith("m 0x")
    assert "ACCEPTS" in explained.out or "ESCAPES" in explained.out


def test_a_code_that_means_something_else_is_explained() -> None:
    explained = run_well("explain", "--m", "-1e-45", "--v", "1e-8", *CLAIM, "--codec", "bf16")

    assert explained.line("codes").startswith("ESCAPES: the nearest codes of bf16 mean something else")


def test_the_grids_of_an_earlier_file_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    native = trained()
    torch.save(native, "early.pt")
    for entry in native["state"].values():
        entry["exp_avg"] *= 1.5
    torch.save(native, "late.pt")

    run_well("compress", "early.pt", "early.gmc", *CLAIM)
    run_well("compress", "late.pt", "late.gmc", *CLAIM, "--grids-from", "early.gmc")

    early, late = (read(Path(name)) for name in ("early.gmc", "late.gmc"))
    assert [one.codec for one in early.tensors] == [other.codec for other in late.tensors]
    run_well("audit", "late.gmc", "--native", "late.pt")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--codec", "zip"), "'zip' is not one of 'log8', 'lin8', 'bf16', 'blockwise8', 'joint'"),
        (("--grid", "per-cell"), "'per-cell' is not one of"),
        (("--codec", "blockwise8", "--grid", "per-row"), "codec blockwise8 has no grids to choose per-row"),
        (("--grids-from", "none.gmc"), "none.gmc: there is no such file"),
        (("--grids-from", "native.pt"), "native.pt: is no .gmc file"),
    ],
)
def test_choices_that_are_none_are_refused_in_a_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(only(trained(), 3), "native.pt")

    ran = gmc("compress", "native.pt", "out.gmc", *CLAIM, *arguments)

    assert ran.status == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not Path("out.gmc").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--place", "10000000"), "coordinates, and none at 10000000"),
        (("--codec", "lin8"), "is in log8; give --codec lin8 without --like"),
        (("--place", "-1"), "-1 is not in the range"),
    ],
)
def test_a_coordinate_that_is_not_there_is_refused_in_a_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(only(trained(), 3), "native.pt")
    run_well("compress", "native.pt", "out.gmc", *CLAIM)

    ran = gmc("explain", "--m", "1e-4", "--v", "1e-8", *CLAIM, "--like", "out.gmc", *arguments)

    assert ran.status == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
