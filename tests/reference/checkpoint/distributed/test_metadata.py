"""`.metadata` is read without running anything that it names; the stock reader runs it."""

import io
import os
import pickle
import pickletools
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.reference.checkpoint.states import DATA

from guarded_moments.reference.checkpoint.distributed.metadata import Item, _Reader, _Record, _Size, read_metadata
from guarded_moments.reference.errors import CheckpointError, GuardedMomentsError, UnsupportedError

FOLDERS = ("dcp_fsdp2", "dcp_fsdp2_raw")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A real folder that may be damaged."""
    return Path(shutil.copytree(DATA / "dcp_fsdp2", tmp_path / "folder"))


def refused(folder: Path) -> str:
    """What is said of a folder that cannot be read."""
    with pytest.raises(GuardedMomentsError) as caught:
        read_metadata(folder)
    said = str(caught.value)
    assert said.startswith(str(folder))
    assert "\n" not in said
    return said


@pytest.mark.parametrize("name", FOLDERS)
def test_what_is_read_is_what_the_stock_reader_reads(name: str) -> None:
    torch_metadata = pytest.importorskip("torch.distributed.checkpoint")
    theirs = torch_metadata.FileSystemReader(DATA / name).read_metadata()

    ours = read_metadata(DATA / name)

    assert set(ours.items) == set(theirs.state_dict_metadata)
    stored = {
        (index.fqn, tuple(index.offset or ())): (info.relative_path, info.offset, info.length)
        for index, info in theirs.storage_data.items()
    }
    items = [item for chunks in ours.items.values() for item in chunks]
    assert {(item.name, item.offsets): (item.file, item.start, item.length) for item in items} == stored
    for item in items:
        kind = theirs.state_dict_metadata[item.name]
        shape = tuple(kind.size) if hasattr(kind, "size") else None
        assert item.whole == shape, item


def test_nothing_of_torch_distributed_is_imported() -> None:
    code = (
        "import sys, pathlib; from guarded_moments.reference.checkpoint.distributed import Folder; "
        f"Folder(pathlib.Path({str(DATA / 'dcp_fsdp2')!r})).shard('__0_0.distcp'); "
        "sys.exit(any(name.startswith('torch.distributed.checkpoint') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


class Calls:
    """Pickles as a call of anything with anything."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def test_a_crafted_file_is_executed_by_the_stock_reader_and_not_by_ours(folder: Path, tmp_path: Path) -> None:
    reader = pytest.importorskip("torch.distributed.checkpoint").FileSystemReader(folder)
    touched = tmp_path / "touched"
    (folder / ".metadata").write_bytes(pickle.dumps(Calls(os.system, f"touch {touched}")))

    said = refused(folder)

    assert "names posix.system, which no metadata of torch.distributed.checkpoint needs" in said
    assert "nothing was run" in said
    assert not touched.exists()
    with pytest.raises(AttributeError):  # what it gets is no metadata, but by then the command has run
        reader.read_metadata()
    assert touched.exists()


def crafted(*operations: bytes) -> bytes:
    """A pickle from its operations, ended properly."""
    return b"".join((b"\x80\x04", *operations, b"."))


def global_(module: str, name: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode()


METADATA = global_("torch.distributed.checkpoint.metadata", "Metadata")

CRAFTED: dict[str, bytes] = {
    "eval": pickle.dumps(Calls(eval, "1")),
    "an attribute of a module of torch": crafted(global_("torch", "load"), b")R"),
    "a name with dots": crafted(global_("torch", "serialization.os.getcwd"), b")R"),
    "another function of an allowed module": crafted(global_("torch.serialization", "load"), b")R"),
    "a builtin": crafted(global_("builtins", "getattr"), b")R"),
    "a class that sets its class": crafted(
        METADATA, b")R", b"N", b"}", b"X\x09\x00\x00\x00__class__", METADATA, b"s\x86b"
    ),
    "an attribute set on a class": crafted(METADATA, b"N", b"}", b"X\x08\x00\x00\x00__init__", METADATA, b"s\x86b"),
    "an attribute set on a size": crafted(global_("torch", "Size"), b"}", b"X\x01\x00\x00\x00a", b"K\x01sb"),
    "a persistent id": crafted(b"Pid\n"),
    "an extension code": crafted(b"\x82\x01"),
    "a string": pickle.dumps("metadata"),
    "a number": pickle.dumps(3),
    "a record without fields": crafted(METADATA, b")R"),
    "empty": b"",
    "text": b"hello\n",
    "no end": pickle.dumps({"a": 1})[:-1],
    "a memo that is large": crafted(b"r\xff\xff\xff\x7f"),
    "a long that is long": crafted(b"\x8b\xff\xff\xff\x7f"),
    "a string that is long": crafted(b"X\xff\xff\xff\x7f"),
}


@pytest.mark.parametrize("content", CRAFTED.values(), ids=CRAFTED)
def test_crafted_files_are_refused_and_change_nothing(folder: Path, content: bytes) -> None:
    (folder / ".metadata").write_bytes(content)
    before = (dict(vars(_Record)), dict(vars(_Size)))

    assert ".metadata: " in refused(folder)

    assert (dict(vars(_Record)), dict(vars(_Size))) == before


def test_every_name_that_the_reader_knows_is_inert() -> None:
    for name in ("Metadata", "MetadataIndex", "StorageMeta"):
        content = crafted(global_("torch.distributed.checkpoint.metadata", name), b"K\x03\x85R")
        assert isinstance(_Reader(io.BytesIO(content)).load(), _Record)
    content = crafted(global_("pathlib", "PosixPath"), b"X\x01\x00\x00\x00/", b"X\x03\x00\x00\x00etc\x86R")
    assert _Reader(io.BytesIO(content)).load() == ("/", "etc")


def test_real_files_need_no_other_names() -> None:
    for name in FOLDERS:
        content = (DATA / name / ".metadata").read_bytes()
        assert not [op for op, *_ in pickletools.genops(content) if op.name in {"INST", "OBJ", "PERSID", "BINPERSID"}]
        _Reader(io.BytesIO(content)).load()


def rewritten(folder: Path, change: Callable[[Any], object]) -> None:
    """Change the metadata with the classes of torch, and write it again."""
    pytest.importorskip("torch.distributed.checkpoint")
    metadata = pickle.loads((folder / ".metadata").read_bytes())  # noqa: S301 - our own file
    change(metadata)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def first(metadata: Any) -> Any:  # noqa: ANN401 - of torch
    """The place of the first item."""
    return next(iter(metadata.storage_data.values()))


INCONSISTENT: dict[str, tuple[Callable[[Any], object], str]] = {
    "a file elsewhere": (
        lambda m: setattr(first(m), "relative_path", "../../etc/passwd"),
        "not directly in the folder",
    ),
    "a file by its whole path": (lambda m: setattr(first(m), "relative_path", "/etc/passwd"), "not directly in"),
    "a file that is missing": (lambda m: setattr(first(m), "relative_path", "__9_0.distcp"), "__9_0.distcp: belongs"),
    "items that overlap": (lambda m: setattr(first(m), "length", 9000), "overlaps another"),
    "items beyond the end": (lambda m: setattr(first(m), "offset", 1 << 40), "do not hold"),
    "a negative length": (lambda m: setattr(first(m), "length", -1), "do not hold"),
    "an extension": (lambda m: setattr(first(m), "transform_descriptors", ["zstd"]), "by the extension zstd"),
    "a chunk less": (lambda m: m.storage_data.pop(next(iter(m.storage_data))), "has 2 chunks, of which 1 are stored"),
    "no items": (lambda m: m.storage_data.clear(), "of which 0 are stored"),
    "a chunk outside the tensor": (
        lambda m: setattr(m.state_dict_metadata["model.0.weight"].chunks[0], "sizes", (99, 16)),
        "none that fits the tensor",
    ),
    "no tensors": (lambda m: m.state_dict_metadata.clear(), "KeyError"),
}


@pytest.mark.parametrize(("change", "said"), INCONSISTENT.values(), ids=INCONSISTENT)
def test_metadata_that_does_not_fit_the_files_is_refused(
    folder: Path, change: Callable[[Any], object], said: str
) -> None:
    rewritten(folder, change)
    assert said in refused(folder)


def test_an_extension_is_a_limit_and_not_a_fault(folder: Path) -> None:
    rewritten(folder, lambda m: setattr(first(m), "transform_descriptors", ["zstd"]))
    with pytest.raises(UnsupportedError):
        read_metadata(folder)


def test_a_folder_without_metadata_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is a folder without \.metadata"):
        read_metadata(tmp_path)


@pytest.mark.parametrize("name", FOLDERS)
def test_damaged_metadata_is_refused_or_consistent(name: str, tmp_path: Path, seed: int, budget: int) -> None:
    folder = Path(shutil.copytree(DATA / name, tmp_path / "folder"))
    whole, choose = (folder / ".metadata").read_bytes(), random.Random(seed)  # noqa: S311 - no secret
    for _ in range(150 * budget):
        damaged = bytearray(whole)
        for _ in range(choose.choice((1, 1, 1, 4))):
            damaged[choose.randrange(len(damaged))] ^= 1 << choose.randrange(8)
        (folder / ".metadata").write_bytes(damaged)
        try:
            metadata = read_metadata(folder)
        except GuardedMomentsError:
            continue
        assert all(isinstance(item, Item) for chunks in metadata.items.values() for item in chunks)
    for length in range(0, len(whole), 29):
        (folder / ".metadata").write_bytes(whole[:length])
        refused(folder)
