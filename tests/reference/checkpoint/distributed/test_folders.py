"""Folders of torch.distributed.checkpoint through compression and back, and onto another number of ranks."""

import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.reference.checkpoint.distributed import ranks
from tests.reference.checkpoint.states import DATA, OP_MODEL

from guarded_moments.reference.checkpoint import read, write
from guarded_moments.reference.checkpoint.distributed import (
    Folder,
    compress_shards,
    finish_compressed,
    is_compressed_folder,
    recover_folder,
    shards_of,
)
from guarded_moments.reference.checkpoint.distributed.items import value_of
from guarded_moments.reference.checkpoint.distributed.metadata import read_metadata
from guarded_moments.reference.checkpoint.distributed.shards import MomentOf, filled
from guarded_moments.reference.errors import CheckpointError, GuardedMomentsError, PlatformError, UnsupportedError
from guarded_moments.reference.implementations import capability_of_this_machine

FOLDERS = ("dcp_fsdp2", "dcp_fsdp2_raw")
CHOICES: dict[str, Any] = {"tolerance": 0.01, "grad_bound": 1.0, "implementation": OP_MODEL}


def compressed(native: Path, output: Path) -> Path:
    """A folder, compressed by one process."""
    folder = Folder(native)
    for _ in compress_shards(folder, output, **CHOICES):
        pass
    finish_compressed(folder, output)
    return output


def recovered(folder: Path, output: Path) -> Path:
    for _ in recover_folder(folder, output):
        pass
    return output


def own_moments(shard: dict[str, Any]) -> MomentOf:
    """The moments that lie in the shard itself, to fill its own holes."""
    return lambda owner, optimizer, key, moment: shard["optimizers"][optimizer]["state"][key][moment]


@pytest.fixture
def native(tmp_path: Path) -> Path:
    """A real folder that may be damaged."""
    return Path(shutil.copytree(DATA / "dcp_fsdp2", tmp_path / "native"))


@pytest.mark.parametrize("name", FOLDERS)
def test_with_the_native_moments_every_file_is_the_native_one(name: str) -> None:
    folder = Folder(DATA / name)
    for file in folder.files:
        shard = folder.shard(file)

        content = filled(
            shard,
            own_moments(shard),
        )

        assert content == (DATA / name / file).read_bytes()
        assert len(shard["holes"]) == 8
        assert len(shard["rest"]) == len(content) - sum(length for _, length, *_ in shard["holes"])


@pytest.mark.parametrize("name", FOLDERS)
def test_everything_but_the_moments_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    output = recovered(compressed(DATA / name, tmp_path / "c"), tmp_path / "r")

    assert sorted(path.name for path in output.iterdir()) == sorted(path.name for path in (DATA / name).iterdir())
    assert (output / ".metadata").read_bytes() == (DATA / name / ".metadata").read_bytes()
    changed = 0
    for chunks in read_metadata(output).items.values():
        for item in chunks:
            before, after = (
                (folder / item.file).read_bytes()[item.start : item.start + item.length]
                for folder in (DATA / name, output)
            )
            assert zipfile.ZipFile(BytesIO(after)).testzip() is None, f"{item.name}: a wrong checksum"
            if item.name.endswith(("exp_avg", "exp_avg_sq")):
                one, other = value_of(before, item), value_of(after, item)
                assert isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)  # noqa: PT018 - for the types
                assert torch.allclose(one, other, rtol=0.3, atol=0)
                changed += before != after
            else:
                assert before == after, item.name
    assert changed > 10


@pytest.mark.parametrize("name", FOLDERS)
def test_the_claim_is_the_same_as_of_a_file_and_names_the_part(name: str, tmp_path: Path) -> None:
    shards = list(shards_of(compressed(DATA / name, tmp_path / "c")))

    assert [shard.file for shard in shards] == ["__0_0.distcp", "__1_0.distcp"]
    optimizer, parameter = ("optim", "0.weight") if name == "dcp_fsdp2" else ("optimizer", "0")
    tensors = [tensor for shard in shards for tensor in shard.state.tensors]
    assert [tensors[0].where, tensors[4].where] == [
        f"optimizers['{optimizer}'].state['{parameter}[0:17, 0:16]']",
        f"optimizers['{optimizer}'].state['{parameter}[17:33, 0:16]']",
    ]
    assert {(tensor.next_step, tensor.lr) for tensor in tensors} == {(4.0, 1e-3)}
    assert sum(shard.state.coordinates for shard in shards) == 33 * 16 + 33 + 4 * 33 + 4
    assert 0 < sum(shard.state.escapes for shard in shards) < 200


def test_a_compressed_folder_is_known_as_one(tmp_path: Path) -> None:
    folder = compressed(DATA / "dcp_fsdp2", tmp_path / "c")

    assert is_compressed_folder(folder)
    assert not is_compressed_folder(DATA / "dcp_fsdp2")
    assert not is_compressed_folder(tmp_path)
    assert not is_compressed_folder(folder / ".metadata")


# What may go wrong


def test_a_folder_is_never_replaced(tmp_path: Path) -> None:
    for make in (Path.mkdir, Path.touch):
        output = tmp_path / make.__name__
        make(output)
        with pytest.raises(CheckpointError, match="exists already; nothing was written"):
            compressed(DATA / "dcp_fsdp2", output)
        with pytest.raises(CheckpointError, match="exists already; nothing was written"):
            recovered(DATA / "dcp_fsdp2", output)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_takes_its_place_only_when_it_is_whole(tmp_path: Path) -> None:
    folder, output = Folder(DATA / "dcp_fsdp2"), tmp_path / "c"
    for _ in compress_shards(folder, output, rank=1, ranks=2, **CHOICES):
        pass

    with pytest.raises(CheckpointError, match=r"__0_0\.distcp\.gmc: there is no such file"):
        finish_compressed(folder, output)
    assert not output.exists()

    for _ in compress_shards(folder, output, rank=0, ranks=2, **CHOICES):
        pass
    finish_compressed(folder, output)
    assert is_compressed_folder(output)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_file_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    one, other = (compressed(DATA / name, tmp_path / name) for name in FOLDERS)
    shutil.copy(other / "__0_0.distcp.gmc", one / "__0_0.distcp.gmc")

    with pytest.raises(CheckpointError, match=r"is the file '__0_0\.distcp' of another checkpoint"):
        recovered(one, tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_files_exchanged_in_their_folder_are_refused(tmp_path: Path) -> None:
    folder = compressed(DATA / "dcp_fsdp2", tmp_path / "c")
    (folder / "__0_0.distcp.gmc").rename(tmp_path / "aside")
    (folder / "__1_0.distcp.gmc").rename(folder / "__0_0.distcp.gmc")
    (tmp_path / "aside").rename(folder / "__1_0.distcp.gmc")

    with pytest.raises(CheckpointError, match=r"is the file '__1_0\.distcp' of another checkpoint"):
        list(shards_of(folder))


def test_holes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    folder = compressed(DATA / "dcp_fsdp2", tmp_path / "c")
    path = folder / "__0_0.distcp.gmc"
    for index, value in (
        (0, 1 << 40),
        (0, 0),
        (1, 3),
        (2, [1 << 40]),
        (2, [-9]),
        (3, "__7_0.distcp"),
        (5, "none"),
        (6, "step"),
    ):
        state = read(path)
        before = state.skeleton["holes"][1][index]
        state.skeleton["holes"][1][index] = value
        write(state, path, overwrite=True)
        with pytest.raises(GuardedMomentsError):
            recovered(folder, tmp_path / "r")
        state.skeleton["holes"][1][index] = before
        write(state, path, overwrite=True)
    recovered(folder, tmp_path / "r")


def test_damaged_items_are_refused_or_are_other_moments(native: Path, tmp_path: Path) -> None:
    """A flipped bit of a moment is another moment: the format has no checksum that its readers compare."""
    whole = (native / "__0_0.distcp").read_bytes()
    for place in range(0, len(whole), 397):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        (native / "__0_0.distcp").write_bytes(damaged)
        try:
            shard = Folder(native).shard("__0_0.distcp")
        except GuardedMomentsError:
            continue
        content = filled(
            shard,
            own_moments(shard),
        )
        differing = [i for i, (a, b) in enumerate(zip(content, damaged, strict=True)) if a != b]
        assert len(differing) <= 8, "only checksums, which are now those of the bytes"


def test_another_optimizers_folder_is_refused(native: Path) -> None:
    content = (native / ".metadata").read_bytes()
    assert content.count(b"exp_avg_sq") > 0
    (native / ".metadata").write_bytes(content.replace(b"exp_avg_sq", b"square_avg"))

    with pytest.raises(CheckpointError, match=r"has no 'exp_avg_sq' in the same chunks beside it"):
        Folder(native)

    renamed = content.replace(b"exp_avg_sq", b"square_avg").replace(b"exp_avg", b"average")
    (native / ".metadata").write_bytes(renamed)
    with pytest.raises(CheckpointError, match=r"holds no state of Adam or AdamW .* of RMSprop or Adadelta"):
        Folder(native)


def test_parameters_without_a_group_are_refused(native: Path) -> None:
    content = (native / ".metadata").read_bytes()
    (native / ".metadata").write_bytes(content.replace(b"param_groups", b"other_groups"))

    with pytest.raises(CheckpointError, match=r"belongs to no param_group that is stored"):
        Folder(native)


def test_moments_stored_in_a_way_that_is_not_known_are_refused(native: Path) -> None:
    file = native / "__0_0.distcp"
    item = Folder(native).metadata.items["optim.state.0.weight.exp_avg"][0]
    buffer = BytesIO()
    with (
        zipfile.ZipFile(BytesIO(file.read_bytes()[item.start : item.start + item.length])) as old,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for info in old.infolist():
            new.writestr(info.filename, old.read(info), zipfile.ZIP_DEFLATED if info.filename.endswith("/0") else None)
    packed = buffer.getvalue()
    assert len(packed) <= item.length
    content = bytearray(file.read_bytes())
    content[item.start : item.start + item.length] = packed.ljust(item.length, b"\0")
    file.write_bytes(content)

    with pytest.raises((UnsupportedError, CheckpointError), match="exp_avg"):
        Folder(native).shard("__0_0.distcp")


# Real ranks


def run(*arguments: object) -> None:
    """`ranks` as a program, by its path."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", ranks.__file__, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.timeout(400)
def test_what_was_saved_on_four_ranks_resumes_on_two_within_the_tolerance(tmp_path: Path, budget: int) -> None:
    try:
        capability_of_this_machine()
    except PlatformError as error:
        pytest.skip(str(error))
    layouts = ranks.LAYOUTS if budget > 1 else ("tree", "replicated")
    run("save", tmp_path, 4, *layouts)
    for layout in layouts:
        recovered(tmp_path / f"{layout}.gmc", tmp_path / f"{layout}.recovered")
    run("resume", tmp_path, 2, *layouts)

    for layout in layouts:
        files = [path.name for path in (tmp_path / layout).glob("*.distcp")]
        assert len(files) == 4, layout
        natives, ours = torch.load(tmp_path / f"{layout}.updates.pt")
        largest = 0.0
        for one, other in zip(natives, ours, strict=True):
            deviation = float((one.double() - other.double()).abs().max()) / 1e-3
            assert deviation <= ranks.TOLERANCE, layout
            largest = max(largest, deviation)
        assert largest > 0, f"{layout}: nothing was compressed"
