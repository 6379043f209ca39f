"""Folders of torch.distributed.checkpoint through the three commands."""

import shutil
from pathlib import Path

import pytest
import torch
from tests.oracle.cli.running import CLAIM, contents, gmc, read_json, run_well
from tests.reference.checkpoint.states import DATA

NATIVE = DATA / "dcp_fsdp2"


def test_a_folder_is_compressed_recovered_and_audited(tmp_path: Path) -> None:
    compressed, recovered, json = (tmp_path / name for name in ("c", "r", "a.json"))

    said = run_well("compress", NATIVE, compressed, *CLAIM, "-v")
    run_well("recover", compressed, recovered)
    audited = run_well("audit", compressed, "--native", NATIVE, "--json", json, "-v")

    assert sorted(contents(compressed)) == [".metadata", "__0_0.distcp.gmc", "__1_0.distcp.gmc"]
    assert {name: len(content) for name, content in contents(recovered).items()} == {
        name: len(content) for name, content in contents(NATIVE).items()
    }
    assert said.integers("stored")[:2] == [697, 8]
    report = read_json(json)
    assert (report["holds"], report["coordinates"], report["violations"], report["undecided"]) == (True, 697, 0, 0)
    assert report["safe"] + report["escapes"] == 697
    assert report["escapes"] == said.integers("exact")[0] > 0
    assert f"{report['bit_rate']:.2f} bits per coordinate" in said.line("stored")
    assert f"{report['bit_rate']:.2f} bits per coordinate" in audited.line("stored")
    assert audited.out.count("0.weight[17:33, 0:16]") >= 1
    assert set(contents(tmp_path)) == {
        *("c", "r", "a.json"),
        *(f"{folder}/{name}" for folder in "cr" for name in contents(tmp_path / folder)),
    }


def test_a_folder_is_not_the_native_of_another(tmp_path: Path) -> None:
    run_well("compress", NATIVE, tmp_path / "c", *CLAIM)
    run_well("recover", tmp_path / "c", tmp_path / "r")

    ran = gmc("audit", tmp_path / "c", "--native", tmp_path / "r")

    assert (ran.status, ran.out) == (2, "")
    assert "not the file's own native checkpoint" in ran.err
    assert "has other moments" in ran.err


@pytest.mark.parametrize(
    ("command", "names", "says"),
    [
        ("compress native c --tolerance 0.01 --grad-bound 1", "c", "exists already; nothing was written"),
        ("compress native c --tolerance 0.01 --grad-bound 1 --force", "c", "a folder is never replaced"),
        ("recover c native", "native", "exists already"),
        ("recover empty out", "empty", "is a folder without .metadata"),
        ("recover native out", "native", "__0_0.distcp.gmc: there is no such file"),
        ("compress empty out --tolerance 0.01 --grad-bound 1", "empty", "is a folder without .metadata"),
        ("compress native missing/out --tolerance 0.01 --grad-bound 1", "missing/out", "No such file or directory"),
        ("compress native out --tolerance 0.01 --grad-bound 1e30", "native", "above the overflow limit"),
        ("audit c --native empty", "empty", "is a folder without .metadata"),
        ("audit c --native file.pt", "file.pt", "Not a directory"),
        ("audit c/__0_0.distcp.gmc --native native", "native", "is a directory, expected a file"),
        ("audit partial --native native", "partial", "__1_0.distcp.gmc: there is no such file"),
        ("recover partial out", "partial", "__1_0.distcp.gmc: there is no such file"),
    ],
)
def test_a_wrong_request_about_folders_is_refused(
    command: str, names: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(NATIVE, "native")
    Path("empty").mkdir()
    torch.save({"state": {}, "param_groups": []}, "file.pt")
    run_well("compress", NATIVE, "c", *CLAIM)
    shutil.copytree("c", "partial")
    Path("partial/__1_0.distcp.gmc").unlink()
    before = contents(tmp_path)

    ran = gmc(*command.split())

    assert (ran.status, ran.out) == (2, ""), ran
    assert ran.err.startswith(f"gmc: {names}"), ran.err
    assert says in ran.err
    after = {name: content for name, content in contents(tmp_path).items() if not name.startswith("out.partial")}
    assert after == before
    assert not Path("out").exists()
