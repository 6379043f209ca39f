"""`docs/file-format.md` suffices to read a file: a reader that was written from it alone recovers it bit for bit."""

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.reference.checkpoint import independent_reader
from tests.reference.checkpoint.independent_reader import Array, DamagedError, Unpickler
from tests.reference.checkpoint.sealing import opened, sealed
from tests.reference.checkpoint.states import DATA, LARGER_SAMPLES, LEARNING_RATE, SAMPLES, compressed, raw, sample

from guarded_moments.reference.checkpoint import load_checkpoint, recover
from guarded_moments.reference.checkpoint.file_format import FORMAT_VERSION, from_bytes, to_bytes
from guarded_moments.reference.codecs import CODECS

SPECIFICATION = (Path(__file__).parents[3] / "docs" / "file-format.md").read_text(encoding="utf-8")


def plain(value: Any) -> Any:  # noqa: ANN401 - a checkpoint holds anything
    """A checkpoint in the values that the independent reader gives."""
    if isinstance(value, torch.Tensor):
        element = {"float32": "Float", "bfloat16": "BFloat16", "uint8": "Byte", "int64": "Long"}
        kind = element[str(value.dtype).removeprefix("torch.")]
        return Array(kind, tuple(value.shape), value.stride(), raw(value))
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(part) for part in value)
    return value


EVERY_CODEC = [
    *((codec, "per-tensor") for codec in CODECS),
    *((codec, grid) for codec, kind in CODECS.items() if kind.granularities for grid in ("per-row", "per-block")),
]


@pytest.mark.parametrize(("codec", "grid"), EVERY_CODEC)
def test_a_reader_written_from_the_specification_recovers_every_codec(codec: str, grid: str) -> None:
    state = compressed(load_checkpoint(DATA / "model_optimizer_dict.pt"), codec=codec, grid=grid)
    said, _, checkpoint = independent_reader.read(to_bytes(state))

    assert checkpoint == plain(recover(state))
    assert said["certificate"]["escaped"] == state.escapes


@pytest.mark.parametrize("name", [*SAMPLES, *LARGER_SAMPLES])
def test_a_reader_written_from_the_specification_recovers_every_sample(name: str) -> None:
    native = load_checkpoint(DATA / name) if "." in name else sample(name)
    state = compressed(native, lr=LEARNING_RATE.get(name))
    _, _, checkpoint = independent_reader.read(to_bytes(state))

    assert checkpoint == plain(recover(state))


@pytest.mark.parametrize("codec", ["log8", "bf16", "blockwise8", "ratio8", "entropy"])
def test_unusual_coordinates_and_layouts_are_recovered_too(codec: str) -> None:
    moments = torch.tensor([[1e-4, float("nan"), -2e-4], [0.0, -0.0, 3e-5]])
    square = torch.arange(6.0).view(2, 3).t()
    native = sample("plain_adamw_named_amsgrad")
    native["state"][1].update(exp_avg=moments, exp_avg_sq=moments.abs())
    native["state"][2].update(exp_avg=square * 1e-5, exp_avg_sq=square * 1e-9)
    native["param_groups"][0]["amsgrad"] = False
    state = compressed(native, codec=codec)
    assert {tensor.stride for tensor in state.tensors} >= {(1, 3)}
    assert state.escapes >= 2, "a NaN and a minus zero"

    assert independent_reader.read(to_bytes(state))[2] == plain(recover(state))


def test_the_reader_is_independent() -> None:
    """It imports what Python brings, and not even its pickle."""
    tree = ast.parse(Path(independent_reader.__file__).read_text(encoding="utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or ".").partition(".")[0])

    assert imported <= sys.stdlib_module_names - {"pickle", "importlib"}


def test_the_reader_notices_every_flipped_byte() -> None:
    content = to_bytes(compressed(sample("old_int_step")))
    for place in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        with pytest.raises((DamagedError, ValueError, LookupError, TypeError, AttributeError)):
            independent_reader.read(bytes(damaged))


def test_the_reader_runs_nothing() -> None:
    with pytest.raises(DamagedError, match="the name"):
        Unpickler.called(Unpickler.__new__(Unpickler), independent_reader.Global("os", "system"), ("true",))


# What the document says of members and versions


def members(section: str, head: str = "member") -> set[str]:
    """The names in the first column of a section's table with that head."""
    table = SPECIFICATION.split(f"\n## {section}")[1].split(f"\n| {head} |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_document_names_every_member_and_array_and_no_other() -> None:
    said, inside, arrays = opened(to_bytes(compressed(load_checkpoint(DATA / "model_optimizer_dict.pt"))))

    assert f"format version {FORMAT_VERSION}\n" in SPECIFICATION
    assert members("1. ") == set(said)
    assert members("2. ", "name") == {*arrays, "description"}
    assert members("3. ") == {*inside["tensors"][0], "gradient_bound", "code_bytes"}
    assert set(inside) == {"hyperparameters", "tensors", "kept"}
    certificate = SPECIFICATION.split("\n## 6. ")[1].split("\n## ")[0]
    assert [
        name for name in (*said["certificate"], *inside["hyperparameters"][0]) if f"`{name}`" not in certificate
    ] == []
    assert [name for name in CODECS if f"`{name}`" not in SPECIFICATION.split("\n## 4. ")[1].split("\n## ")[0]] == []


def test_what_a_newer_program_adds_is_passed_over_by_both_readers() -> None:
    """The rule of section 8: members, and arrays of any element type, may be added without another version."""
    state = compressed(sample("plain_adamw_2groups_tensorlr_optimizer"))
    said, inside, arrays = opened(to_bytes(state))
    said["certificate"]["seal"] = {"of": "tomorrow"}
    inside["tensors"][0]["mood"] = inside["hyperparameters"][0]["nesterov"] = inside["more"] = [1, 2]
    added = {**arrays, "a_more": torch.arange(3.0), "zz": torch.ones(2, 2, dtype=torch.bfloat16)}
    newer = sealed({**said, "more": None}, inside, added)

    assert plain(recover(from_bytes(newer))) == plain(recover(state)) == independent_reader.read(newer)[2]
    assert to_bytes(from_bytes(newer)) == to_bytes(state), "what it does not know is not written again"
