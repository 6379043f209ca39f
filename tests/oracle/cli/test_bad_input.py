"""Bad input, through the command line: one line that says what is wrong and where, status 2, and nothing written."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tests.oracle.cli.checkpoints import changed, rewritten, trained
from tests.oracle.cli.conftest import Job
from tests.oracle.cli.running import contents, gmc
from torch import Tensor

from guarded_moments.reference.checkpoint.file_format import FORMAT_VERSION

CLAIM = "--tolerance 0.01 --grad-bound 1"
COMPRESS = f"compress bad.pt out.gmc {CLAIM}"
AUDIT = "audit optimizer.gmc --native bad.pt --json out.json"
Prepare = Callable[[Path], object]


class Bad(NamedTuple):
    """A command line that must be refused, in a folder with a checkpoint and its compressed form."""

    command: str
    names: str  #: what the line names: a file, an option
    says: str  #: and what is wrong with it
    prepare: Prepare = lambda folder: None  # makes the bad file


def native(change: Callable[[Any], object]) -> Prepare:
    """The checkpoint with something changed, as bad.pt."""
    return lambda folder: torch.save(changed(torch.load(folder / "optimizer.pt"), change), folder / "bad.pt")


def entry(key: int, **values: Callable[[Any], object] | None) -> Prepare:
    """The checkpoint with values of one parameter's state changed, or removed."""

    def change(state_dict: Any) -> None:  # noqa: ANN401 - a state_dict that is then none
        for name, value in values.items():
            if value is None:
                del state_dict["state"][key][name]
            else:
                state_dict["state"][key][name] = value(state_dict["state"][key].get(name))

    return native(change)


def group(index: int, **values: object) -> Prepare:
    """The checkpoint with hyperparameters changed."""
    return native(lambda state_dict: state_dict["param_groups"][index].update(values))


def saved(thing: object) -> Prepare:
    """Something else that torch.save takes, as bad.pt."""
    return lambda folder: torch.save(thing, folder / "bad.pt")


def of(optimizer: Callable[..., torch.optim.Optimizer], **options: float) -> Prepare:
    """A checkpoint of another optimizer, as bad.pt."""
    return lambda folder: torch.save(trained(optimizer, 2, **options), folder / "bad.pt")


def cut(name: str, length: int, cut_name: str) -> Prepare:
    """The first bytes of a file; of a negative length, all but the last."""
    return lambda folder: (folder / cut_name).write_bytes((folder / name).read_bytes()[:length])


def header(old: str, new: str) -> Prepare:
    """The compressed file with text of its header changed and its digest put right, as bad.gmc."""

    def prepare(folder: Path) -> None:
        (folder / "optimizer.gmc").rename(folder / "bad.gmc")
        rewritten(folder / "bad.gmc", old.encode(), new.encode())

    return prepare


def text(name: str) -> Prepare:
    return lambda folder: (folder / name).write_text("# Not a checkpoint\n\nbut a text.\n", encoding="utf-8")


def empty(name: str) -> Prepare:
    return lambda folder: (folder / name).touch()


def directory(name: str) -> Prepare:
    return lambda folder: (folder / name).mkdir()


def link(name: str, target: str) -> Prepare:
    def prepare(folder: Path) -> None:
        (folder / target).touch()
        (folder / name).symlink_to(target)

    return prepare


class Custom:
    """A class that a checkpoint may not name."""


def kept_whole(state_dict: Any) -> None:  # noqa: ANN401 - as above
    for settings in state_dict["param_groups"]:
        settings["amsgrad"] = True
    for state in state_dict["state"].values():
        state["max_exp_avg_sq"] = state["exp_avg_sq"].double()


def first_bit_flipped(moment: Tensor) -> Tensor:
    return (moment.view(torch.int32) ^ 1).view(torch.float32)


ARGUMENTS = {
    **{
        f"tolerance {value}": Bad(
            f"compress optimizer.pt out.gmc --tolerance {value} --grad-bound 1", "tolerance", says
        )
        for value, says in (
            ("0", "expected a positive, finite number"),
            ("-0.01", "expected a positive, finite number"),
            ("nan", "expected a positive, finite number"),
            ("inf", "expected a positive, finite number"),
            ("small", "'small' is not a number"),
            ("0x1p-7q", "'0x1p-7q' is not a number"),
        )
    },
    **{
        f"grad-bound {value}": Bad(f"compress optimizer.pt out.gmc --tolerance 0.01 --grad-bound {value}", name, says)
        for value, name, says in (
            ("0", "grad-bound", "expected a positive number, or inf"),
            ("-1", "grad-bound", "expected a positive number, or inf"),
            ("nan", "grad-bound", "expected a positive number, or inf"),
            ("large", "grad-bound", "'large' is not a number"),
            ("1e30", "optimizer.pt", "grad-bound 1e+30 is above the overflow limit 5.83"),
        )
    },
    **{
        f"lr {value}": Bad(f"compress optimizer.pt out.gmc {CLAIM} --lr {value}", name, says)
        for value, name, says in (
            ("0", "optimizer.pt: state[0]", "the next update is zero whatever the state holds"),
            ("-1e-3", "optimizer.pt: state[0]", "lr -0.001"),
            ("nan", "optimizer.pt: state[0]", "lr nan"),
            ("inf", "optimizer.pt: state[0]", "lr inf"),
            ("1e-60", "optimizer.pt: state[0]", "step size of -0.0"),
            ("fast", "lr", "'fast' is not a number"),
        )
    },
    "op model": Bad(f"compress optimizer.pt out.gmc {CLAIM} --op-model cuda", "optimizer.pt", "op model 'cuda'"),
    **{
        f"horizon {value}": Bad(f"compress optimizer.pt out.gmc {CLAIM} --horizon {value}", "horizon is", says)
        for value, says in (("0", "from 1 to 1000, or all"), ("1001", "from 1 to 1000, or all"), ("ever", "'ever'"))
    },
    "guard": Bad(f"compress optimizer.pt out.gmc {CLAIM} --guard none", "--guard", "'none' is not one of"),
    "no tolerance": Bad("compress optimizer.pt out.gmc --grad-bound 1", "--tolerance", "Missing option"),
    "no native": Bad("audit optimizer.gmc", "--native", "Missing option"),
    "no output": Bad("recover optimizer.gmc", "OUTPUT", "Missing argument"),
    "no such command": Bad("decompress optimizer.gmc", "decompress", "No such command"),
    "no such option": Bad("recover optimizer.gmc out.pt --fast", "--fast", "No such option"),
}

CHECKPOINTS = {
    "missing": Bad(COMPRESS, "bad.pt", "there is no such file"),
    "a directory": Bad(COMPRESS, "bad.pt", "is a folder without .metadata", directory("bad.pt")),
    "a name too long": Bad(f"compress {'x' * 300} out.gmc {CLAIM}", "x" * 300, "File name too long"),
    "empty": Bad(COMPRESS, "bad.pt", "is no checkpoint of torch.save, or is damaged", empty("bad.pt")),
    "text": Bad(COMPRESS, "bad.pt", "is no checkpoint of torch.save, or is damaged", text("bad.pt")),
    "a .gmc file": Bad(f"compress optimizer.gmc out.gmc {CLAIM}", "optimizer.gmc", "is no checkpoint of torch.save"),
    **{
        f"cut at {length}": Bad(
            COMPRESS, "bad.pt", "is no checkpoint of torch.save, or is damaged", cut("optimizer.pt", length, "bad.pt")
        )
        for length in (1, 100, 3000, -1)
    },
    "a list": Bad(COMPRESS, "bad.pt", "holds a list", saved([1])),
    "a tensor": Bad(COMPRESS, "bad.pt", "holds a Tensor", saved(torch.ones(3))),
    "weights": Bad(COMPRESS, "bad.pt", "has no 'state' and 'param_groups'", saved({"0.weight": torch.ones(3)})),
    "a larger checkpoint": Bad(COMPRESS, "bad.pt", "found 'model', 'optimizer'", saved({"model": {}, "optimizer": {}})),
    "a class": Bad(COMPRESS, "bad.pt", "only unsafe loading could restore", saved({"state": Custom()})),
    "no groups": Bad(COMPRESS, "bad.pt", "not a list of dictionaries", saved({"state": {}, "param_groups": 3})),
    "SGD": Bad(COMPRESS, "bad.pt", "not a state of Adam or AdamW", of(torch.optim.SGD, momentum=0.9)),
    "SGD without momentum": Bad(COMPRESS, "bad.pt", "not a param_group of Adam or AdamW", of(torch.optim.SGD)),
    "RAdam": Bad(COMPRESS, "bad.pt", "Adam or AdamW", of(torch.optim.RAdam)),
    "NAdam": Bad(COMPRESS, "bad.pt", "Adam or AdamW", of(torch.optim.NAdam)),
    "Adamax": Bad(COMPRESS, "bad.pt", "Adam or AdamW", of(torch.optim.Adamax)),
    "RMSprop": Bad(COMPRESS, "bad.pt", "Adam or AdamW", of(torch.optim.RMSprop)),
    "Adagrad": Bad(COMPRESS, "bad.pt", "Adam or AdamW", of(torch.optim.Adagrad)),
    "shapes": Bad(COMPRESS, "state[1] (2.weight)", "(3, 17) but exp_avg_sq (5, 17)", entry(1, exp_avg=lambda m: m[:3])),
    "no step": Bad(COMPRESS, "state[1] (2.weight)", "has no 'step'", entry(1, step=None)),
    "step of NaN": Bad(COMPRESS, "state[0]", "step is tensor(nan)", entry(0, step=lambda s: s * torch.nan)),
    "negative step": Bad(COMPRESS, "state[0]", "step is tensor(-12.)", entry(0, step=lambda s: -s)),
    "three steps": Bad(COMPRESS, "state[0]", "step is a tensor of shape (3,)", entry(0, step=lambda s: s.expand(3))),
    "no first moment": Bad(COMPRESS, "parameter 1", "has no 'exp_avg'", entry(1, exp_avg=None)),
    "no second moment": Bad(COMPRESS, "parameter 1", "has no 'exp_avg_sq'", entry(1, exp_avg_sq=None)),
    "a moment that is a list": Bad(
        COMPRESS, "parameter 0", "expected a tensor", entry(0, exp_avg=lambda m: m.tolist())
    ),
    "a sparse moment": Bad(COMPRESS, "parameter 0", "sparse", entry(0, exp_avg=lambda m: m.to_sparse())),
    "eps of zero": Bad(COMPRESS, "bad.pt: state[0] (0.weight)", "eps is 0", group(0, eps=0.0)),
    "eps that rounds to zero": Bad(COMPRESS, "bad.pt: state[0] (0.weight)", "eps is 0", group(0, eps=1e-50)),
    "lr of zero": Bad(COMPRESS, "bad.pt: state[0] (0.weight)", "--lr on the command line", group(0, lr=0.0)),
    "lr of NaN": Bad(COMPRESS, "bad.pt: param_groups[1]", "lr is nan", group(1, lr=float("nan"))),
    "beta2 of one": Bad(COMPRESS, "bad.pt: param_groups[1]", "betas[1] is 1.0", group(1, betas=(0.9, 1.0))),
    "capturable": Bad(COMPRESS, "bad.pt: state[0]", "--op-model", group(0, capturable=True)),
    "no group": Bad(COMPRESS, "state[0]", "no param_group", native(lambda s: s["param_groups"][0].update(params=[1]))),
    "keys that are pairs": Bad(
        COMPRESS,
        "(0, 0)",
        "",
        native(
            lambda s: {"state": {(0, 0): s["state"][0]}, "param_groups": [s["param_groups"][0] | {"params": [(0, 0)]}]}
        ),
    ),
}

COMPRESSED = {
    "missing": Bad("recover bad.gmc out.pt", "bad.gmc", "there is no such file"),
    "a directory": Bad("recover bad.gmc out.pt", "bad.gmc", "is a folder without .metadata", directory("bad.gmc")),
    "empty": Bad("recover bad.gmc out.pt", "bad.gmc", "is no .gmc file, or is truncated", empty("bad.gmc")),
    "text": Bad("recover bad.gmc out.pt", "bad.gmc", "is no .gmc file", text("bad.gmc")),
    "a checkpoint": Bad("recover optimizer.pt out.pt", "optimizer.pt", "is no .gmc file"),
    "a checkpoint, to audit": Bad("audit optimizer.pt --native optimizer.pt", "optimizer.pt", "is no .gmc file"),
    **{
        f"cut at {length}": Bad(
            "recover bad.gmc out.pt", "bad.gmc", "truncated", cut("optimizer.gmc", length, "bad.gmc")
        )
        for length in (1, 8, 100, 3000, -1)
    },
    "one byte more": Bad(
        "recover bad.gmc out.pt",
        "bad.gmc",
        "is damaged",
        lambda folder: (folder / "bad.gmc").write_bytes((folder / "optimizer.gmc").read_bytes() + b"\0"),
    ),
    "a newer version": Bad(
        "recover bad.gmc out.pt",
        "bad.gmc",
        f"format version {FORMAT_VERSION + 1}, and this program knows up to {FORMAT_VERSION}",
        header(rf"format_version\":{FORMAT_VERSION},", rf"format_version\":{FORMAT_VERSION + 1},"),
    ),
    "a newer version, to audit": Bad(
        "audit bad.gmc --native optimizer.pt",
        "bad.gmc",
        "install a newer guarded-moments",
        header(rf"format_version\":{FORMAT_VERSION},", rf"format_version\":{FORMAT_VERSION + 1},"),
    ),
    "a tolerance of nothing": Bad(
        "recover bad.gmc out.pt", "bad.gmc", "tolerance is 0.0", header(r"tolerance\":\"0.01", r"tolerance\":\"0.00")
    ),
}

NOT_ITS_OWN = {
    "a moment's last bit": Bad(AUDIT, "state[0] (0.weight)", "other moments", entry(0, exp_avg=first_bit_flipped)),
    "a second moment": Bad(AUDIT, "state[3] (2.bias)", "other moments", entry(3, exp_avg_sq=lambda v: 2 * v)),
    "moments swapped": Bad(AUDIT, "state[0] (0.weight)", "other moments", native(lambda s: _swap(s["state"][0]))),
    "another step": Bad(AUDIT, "state[2]['step']", "differs", entry(2, step=lambda s: s + 1)),
    "a step of another kind": Bad(AUDIT, "state[2]['step']", "differs", entry(2, step=int)),
    "another lr": Bad(AUDIT, "param_groups[0]['lr']", "differs", group(0, lr=2e-3)),
    "lr as a tensor": Bad(AUDIT, "param_groups[0]['lr']", "differs", group(0, lr=torch.tensor(1e-3))),
    "another eps": Bad(AUDIT, "param_groups[1]['eps']", "differs", group(1, eps=1e-7)),
    "another weight decay": Bad(AUDIT, "param_groups[1]['weight_decay']", "differs", group(1, weight_decay=0.1)),
    "another kernel": Bad(AUDIT, "param_groups[0]['fused']", "differs", group(0, fused=True)),
    "another layout": Bad(
        AUDIT,
        "state[0] (0.weight)",
        "another shape or layout",
        entry(0, exp_avg=lambda m: m.t().contiguous().t(), exp_avg_sq=lambda v: v.t().contiguous().t()),
    ),
    "another shape": Bad(
        AUDIT,
        "state[0] (0.weight)",
        "another shape or layout",
        entry(0, exp_avg=lambda m: m.view(13, 17), exp_avg_sq=lambda v: v.view(13, 17)),
    ),
    "another dtype": Bad(
        AUDIT,
        "state[0] (0.weight)",
        "not the file's own",
        entry(0, exp_avg=lambda m: m.bfloat16(), exp_avg_sq=lambda v: v.bfloat16()),
    ),
    "more in a state": Bad(AUDIT, "state[0]", "differs", entry(0, master=lambda _: torch.ones(3))),
    "a parameter less": Bad(AUDIT, "state[1]", "not the file's own", native(lambda s: _without(s, 1))),
    "a parameter more": Bad(AUDIT, "state[9]", "not the file's own", native(lambda s: _with(s, 9))),
    "groups exchanged": Bad(AUDIT, "param_groups[0]", "differs", native(lambda s: s["param_groups"].reverse())),
    "no checkpoint": Bad("audit optimizer.gmc --native bad.pt", "bad.pt", "is no checkpoint", text("bad.pt")),
    "missing": Bad("audit optimizer.gmc --native bad.pt", "bad.pt", "there is no such file"),
    "the file itself": Bad("audit optimizer.gmc --native optimizer.gmc", "optimizer.gmc", "is no checkpoint"),
}

OUTPUTS = {
    **{
        f"{kind}, {command.split()[0]}": Bad(command.replace("OUT", name), name, says, prepare)
        for command in (
            f"compress optimizer.pt OUT {CLAIM}",
            "recover optimizer.gmc OUT",
            "audit optimizer.gmc --native optimizer.pt --json OUT",
        )
        for kind, name, says, prepare in (
            ("a missing folder", "missing/out", "No such file or directory", lambda folder: None),
            ("a file for a folder", "file/out", "Not a directory", empty("file")),
            ("a folder that takes no files", "/proc/out", "cannot be written", lambda folder: None),
            ("a name too long", "x" * 300, "File name too long", lambda folder: None),
            ("a file that exists", "file", "exists already", empty("file")),
            ("a link to a file that exists", "link", "exists already", link("link", "other")),
        )
    },
    "a directory": Bad("recover optimizer.gmc out.d --force", "out.d", "", directory("out.d")),
    "the checkpoint": Bad(f"compress optimizer.pt optimizer.pt {CLAIM}", "optimizer.pt", "nothing was written"),
    "the checkpoint, by force": Bad(
        f"compress optimizer.pt ./optimizer.pt {CLAIM} --force", "optimizer.pt", "is read as input"
    ),
    "a link to the checkpoint, by force": Bad(
        f"compress optimizer.pt link {CLAIM} --force", "link", "is read as input", link("link", "optimizer.pt")
    ),
    "the compressed file, by force": Bad(
        "recover optimizer.gmc optimizer.gmc --force", "optimizer.gmc", "is read as input"
    ),
    "the file that is audited, by force": Bad(
        "audit optimizer.gmc --native optimizer.pt --json optimizer.gmc --force", "optimizer.gmc", "is read as input"
    ),
    "the native checkpoint, by force": Bad(
        "audit optimizer.gmc --native optimizer.pt --json optimizer.pt --force", "optimizer.pt", "is read as input"
    ),
}


def _swap(state: dict[str, Tensor]) -> None:
    state["exp_avg"], state["exp_avg_sq"] = state["exp_avg_sq"], state["exp_avg"]


def _without(state_dict: Any, key: int) -> None:  # noqa: ANN401 - as above
    del state_dict["state"][key]


def _with(state_dict: Any, key: int) -> None:  # noqa: ANN401 - as above
    state_dict["state"][key] = state_dict["state"][0]
    state_dict["param_groups"][0]["params"].append(key)


def refused(folder: Path, bad: Bad) -> None:
    """Assert that a command is refused as it must be."""
    bad.prepare(folder)
    before = contents(folder)

    ran = gmc(*bad.command.split())

    assert (ran.status, ran.out) == (2, ""), ran
    assert ran.err.startswith("gmc: "), ran.err
    assert ran.err.endswith("\n"), ran.err
    assert ran.err.count("\n") == 1, f"one line: {ran.err!r}"
    assert bad.names in ran.err, f"{bad.names!r} is not named in {ran.err!r}"
    assert bad.says in ran.err, f"{bad.says!r} is not said in {ran.err!r}"
    after = contents(folder)
    assert after.keys() == before.keys(), f"left behind or removed: {after.keys() ^ before.keys()}"
    assert after == before


@pytest.mark.parametrize("bad", ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_a_wrong_request_is_refused(here: Path, bad: Bad) -> None:
    refused(here, bad)


@pytest.mark.parametrize("bad", CHECKPOINTS.values(), ids=CHECKPOINTS.keys())
def test_what_is_no_checkpoint_of_adam_is_refused(here: Path, bad: Bad) -> None:
    refused(here, bad)


@pytest.mark.parametrize("bad", COMPRESSED.values(), ids=COMPRESSED.keys())
def test_what_is_no_file_of_ours_is_refused(here: Path, bad: Bad) -> None:
    refused(here, bad)


@pytest.mark.parametrize("bad", NOT_ITS_OWN.values(), ids=NOT_ITS_OWN.keys())
def test_a_native_checkpoint_that_is_not_the_files_own_is_refused(here: Path, bad: Bad) -> None:
    refused(here, bad)


@pytest.mark.parametrize("bad", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_an_output_that_cannot_be_written_is_refused(here: Path, bad: Bad) -> None:
    refused(here, bad)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_output_in_a_read_only_folder_is_refused(here: Path) -> None:
    (here / "closed").mkdir(mode=0o555)

    refused(here, Bad("recover optimizer.gmc closed/out.pt", "closed/out.pt", "Permission denied"))


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("state[0]['step']", lambda s: s["state"][0].update(step=s["state"][0]["step"] + 1)),
        (
            "state[0]['max_exp_avg_sq']",
            lambda s: s["state"][0].update(max_exp_avg_sq=2 * s["state"][0]["max_exp_avg_sq"]),
        ),
        ("param_groups[0]['lr']", lambda s: s["param_groups"][0].update(lr=2e-3)),
        ("param_groups[0]['eps']", lambda s: s["param_groups"][0].update(eps=1e-7)),
        ("state[0]['exp_avg']", lambda s: s["state"][0].update(exp_avg=first_bit_flipped(s["state"][0]["exp_avg"]))),
    ],
)
def test_a_native_checkpoint_that_differs_where_nothing_is_guarded_is_refused(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, change: Callable[[Any], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = changed(job.state_dict, kept_whole)
    torch.save(whole, "whole.pt")
    torch.save(changed(whole, change), "bad.pt")
    assert gmc(*f"compress whole.pt whole.gmc {CLAIM}".split()).status == 0
    assert gmc("audit", "whole.gmc", "--native", "whole.pt").status == 0

    refused(tmp_path, Bad("audit whole.gmc --native bad.pt", where, "not the file's own"))


def test_a_flipped_bit_anywhere_in_the_file_is_found(here: Path, rng: np.random.Generator) -> None:
    whole = np.frombuffer((here / "optimizer.gmc").read_bytes(), dtype=np.uint8)
    (here / "bad.gmc").touch()
    header_length = 8 * (8 + int.from_bytes(whole[:8].tobytes(), "little"))
    ends = [0, 63, 64, header_length - 1, header_length, 8 * whole.size - 1]
    for bit in [*ends, *rng.integers(header_length, size=24), *rng.integers(8 * whole.size, size=24)]:
        flipped = whole.copy()
        flipped[bit // 8] ^= 1 << (bit % 8)
        (here / "bad.gmc").write_bytes(flipped.tobytes())
        before = contents(here)

        ran = gmc("recover", "bad.gmc", "out.pt")

        assert (ran.status, ran.out) == (2, ""), f"bit {bit}: {ran}"
        assert ran.err.startswith("gmc: bad.gmc: "), f"bit {bit}: {ran.err!r}"
        assert ran.err.count("\n") == 1, f"bit {bit}: {ran.err!r}"
        assert contents(here) == before, f"bit {bit}"


@pytest.mark.parametrize(
    "command",
    [
        f"compress optimizer.pt out {CLAIM}",
        "recover optimizer.gmc out",
        "audit optimizer.gmc --native optimizer.pt --json out",
    ],
)
@pytest.mark.parametrize("exists", [False, True], ids=["new", "in place of another"])
def test_an_interrupted_command_leaves_everything_as_it_was(
    here: Path, monkeypatch: pytest.MonkeyPatch, command: str, *, exists: bool
) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    if exists:
        (here / "out").write_bytes(b"precious")
    before = contents(here)
    monkeypatch.setattr(os, "fsync", interrupt)  # the output is whole by then, under its temporary name

    ran = gmc(*command.split(), "--force")

    assert (ran.status, ran.out) == (130, "")
    assert ran.err.strip() == "gmc: interrupted; no output was written"  # below the terminal's ^C
    assert contents(here) == before


def test_what_is_no_regular_file_is_not_replaced(here: Path) -> None:
    os.mkfifo(here / "pipe")

    refused(here, Bad("recover optimizer.gmc pipe --force", "pipe", ""))

    assert (here / "pipe").is_fifo()
