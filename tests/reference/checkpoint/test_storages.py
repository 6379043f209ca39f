"""Storages, which a safe load can give: refused wherever they lie, in words and without a warning of torch's own."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.reference.checkpoint.sealing import opened, sealed
from tests.reference.checkpoint.states import compressed, state_of

from guarded_moments.reference.checkpoint import file_format, load_checkpoint
from guarded_moments.reference.checkpoint.distributed.items import value_of
from guarded_moments.reference.checkpoint.distributed.metadata import Item
from guarded_moments.reference.checkpoint.pickled import pack
from guarded_moments.reference.checkpoint.spool import Spool
from guarded_moments.reference.checkpoint.storages import storage_in
from guarded_moments.reference.errors import CheckpointError, FormatError

STORAGES = {
    "typed": torch.TypedStorage([1.0, 2.0], dtype=torch.float32, _internal=True),
    "untyped": torch.UntypedStorage(8),
}
every_storage = pytest.mark.parametrize("storage", STORAGES.values(), ids=STORAGES)


def native() -> dict[str, Any]:
    return state_of((torch.ones(2), torch.ones(2)))


@every_storage
@pytest.mark.parametrize(
    ("around", "place"),
    [
        (lambda storage: storage, ""),
        (lambda storage: {"model": [1.0, storage]}, "model[1]"),
        (lambda storage: ({"a": {"b": (storage,)}}, 2), "[0]['a']['b'][0]"),
        (lambda storage: {storage: 1}, None),
        (lambda storage: {"all": {storage}}, "all[0]"),
    ],
)
def test_each_is_found(storage: object, around: Callable[[object], object], place: str | None) -> None:
    found = storage_in(around(storage))
    assert found is not None if place is None else found == place


def test_nothing_else_is_taken_for_one() -> None:
    cyclic: list[object] = [native(), torch.ones(3), "storage", None, {1, 2}]
    cyclic.append(cyclic)
    assert storage_in(cyclic) is None


@every_storage
def test_a_checkpoint_with_one_is_refused(storage: object, tmp_path: Path) -> None:
    checkpoint = {"optimizer": native(), "weights": {"head": storage}}
    with pytest.raises(CheckpointError, match=r"holds a storage at weights\['head'\].*save the tensor"):
        compressed(checkpoint)
    if isinstance(storage, torch.TypedStorage):  # torch.save takes no untyped ones
        torch.save(checkpoint, tmp_path / "state.pt")
        with pytest.raises(CheckpointError, match=r"state\.pt: holds a storage at weights\['head'\]"):
            load_checkpoint(tmp_path / "state.pt")


@pytest.mark.parametrize("name", ["skeleton", "beside"])
@pytest.mark.parametrize("place", ["alone", "in a list"])
def test_a_file_with_one_for_a_part_is_refused(name: str, place: str) -> None:
    """A damaged skeleton did unpickle to a storage, and was read as a list would be."""
    said, inside, arrays = opened(file_format.to_bytes(compressed({"optimizer": native(), "epoch": 3})))
    storage = STORAGES["typed"]
    packed = pack(storage if place == "alone" else [[[], storage]], Spool())
    said["pickled_bytes"][name] = packed.size
    with pytest.raises(FormatError, match=f"its {name} holds a storage"):
        file_format.from_bytes(sealed(said, inside, {**arrays, name: packed.packed}))


@pytest.mark.parametrize("part", [7, "text", {}, torch.ones(2, 2), None])
def test_a_skeleton_of_another_kind_is_refused(part: object) -> None:
    said, inside, arrays = opened(file_format.to_bytes(compressed(native())))
    packed = pack(part, Spool())
    said["pickled_bytes"]["skeleton"] = packed.size
    with pytest.raises(FormatError, match=f"its skeleton is a {type(part).__name__}, expected a list"):
        file_format.from_bytes(sealed(said, inside, {**arrays, "skeleton": packed.packed}))


def test_an_item_of_a_distributed_checkpoint_with_one_is_refused() -> None:
    file = io.BytesIO()
    torch.save([STORAGES["typed"]], file)
    item = Item("optim.extra", (), None, None, "__0_0.distcp", 0, file.tell())
    with pytest.raises(CheckpointError, match=r"__0_0\.distcp: optim\.extra holds a storage"):
        value_of(file.getvalue(), item)
