"""Files larger than the memory they may take pass through tensor by tensor, to the same bytes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.reference.checkpoint.states import DATA, GROUP, compressed, differences, sample

from guarded_moments.reference.checkpoint import load_checkpoint, read, recover, safe_loading, write
from guarded_moments.reference.checkpoint.file_format import to_bytes
from guarded_moments.reference.checkpoint.saving import save_checkpoint
from guarded_moments.reference.checkpoint.spool import Spool
from guarded_moments.reference.errors import CheckpointError

TENSORS, NUMEL = 24, 200_000

#: Compresses and recovers with little memory of its own; prints the most that it took, in bytes.
JOB = """
import re, sys, threading, time
from pathlib import Path
from guarded_moments.reference.checkpoint import compress, load_checkpoint, read, recover, safe_loading, write
from guarded_moments.reference.checkpoint.saving import save_checkpoint
from guarded_moments.reference.checkpoint.spool import Spool

native, compressed, recovered, memory = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
safe_loading.MEMORY = memory
choices = {"tolerance": 0.01, "grad_bound": 1.0, "codec": "lin8", "guard": "closed"}

def anonymous():
    return 1024 * int(re.search(r"RssAnon:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

def job(native, compressed, recovered):
    spool = Spool(native.parent, memory)
    write(compress(load_checkpoint(native), spool=spool, **choices), compressed, spool=spool)
    del spool
    spool = Spool(native.parent, memory)
    save_checkpoint(recover(read(compressed, spool), spool), recovered, memory=memory)

job(*(path.with_name("small" + path.suffix) for path in (native, compressed, recovered)))  # loads all code
before, peak, done = anonymous(), [0], threading.Event()

def watch():
    while not done.is_set():
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.002)

thread = threading.Thread(target=watch)
thread.start()
job(native, compressed, recovered)
done.set()
thread.join()
print(peak[0] - before)
"""


def checkpoint(tensors: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(3)
    state = {}
    for key in range(tensors):
        v = (2 * torch.randn(NUMEL, generator=generator) - 16).exp()
        m = 0.3 * torch.randn(NUMEL, generator=generator) * v.sqrt()
        state[key] = {"step": torch.tensor(100.0), "exp_avg": m, "exp_avg_sq": v}
    weights = {f"{key}.weight": torch.randn(NUMEL, generator=generator) for key in range(tensors)}
    return {
        "model": weights,
        "optimizer": {"state": state, "param_groups": [{**GROUP, "params": list(range(tensors))}]},
    }


@pytest.mark.timeout(300)
def test_a_file_passes_through_in_a_fraction_of_its_size(tmp_path: Path, budget: int) -> None:
    if budget == 1:
        pytest.skip("takes half a minute; --oracle runs it")
    native, (small, large) = tmp_path / "native.pt", (tmp_path / "little", tmp_path / "much")
    torch.save(checkpoint(TENSORS), native)
    torch.save(checkpoint(1), tmp_path / "small.pt")
    taken = []
    for folder, memory in ((small, 1 << 20), (large, 1 << 34)):
        folder.mkdir()
        arguments = (native, folder / "c.gmc", folder / "r.pt", memory)
        done = subprocess.run(
            [sys.executable, "-c", JOB, *map(str, arguments)],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"},  # what is freed goes back, so that it does not count
        )
        assert done.returncode == 0, done.stderr[-2000:]
        taken.append(int(done.stdout))

    size = native.stat().st_size
    assert size > 55e6
    assert taken[1] > size, "with much memory it is used, so that the figure below means something"
    assert taken[0] < size / 3, f"{taken[0]:,} bytes of memory for a file of {size:,}"
    for name in ("c.gmc", "r.pt"):
        assert (small / name).read_bytes() == (large / name).read_bytes(), name
    assert {path.name for path in tmp_path.iterdir()} >= {"native.pt", "small.pt"}
    assert not list(tmp_path.rglob(".gmc-*")), "a temporary file was left"


@pytest.mark.parametrize("name", ["model_optimizer_dict.pt", "lightning_fp32.ckpt", "plain_adamw_bf16params.pt"])
def test_little_memory_gives_the_same_bytes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_loading, "MEMORY", 0)
    native = load_checkpoint(DATA / name)
    state = compressed(native, spool=Spool(tmp_path, 0))
    write(state, tmp_path / "c.gmc", spool=Spool(tmp_path, 0))

    assert (tmp_path / "c.gmc").read_bytes() == to_bytes(compressed(native))
    again = recover(read(tmp_path / "c.gmc", Spool(tmp_path, 0)), Spool(tmp_path, 0))
    assert differences(again, recover(state)) == []
    save_checkpoint(again, tmp_path / "r.pt", memory=0)
    assert differences(load_checkpoint(tmp_path / "r.pt"), recover(state)) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.gmc", "r.pt"]


def test_a_spool_gives_memory_of_files_when_its_own_is_used_up(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 20)
    first, second = (spool.empty(1 << 18, torch.float32).fill_(value) for value in (1, 2))
    moved = spool.moved(torch.arange(1 << 17))

    assert (int(first.sum()), int(second.sum())) == (1 << 18, 2 << 18)
    assert torch.equal(moved, torch.arange(1 << 17))
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").count(f"{tmp_path}/.gmc-")
    assert mapped == 2
    assert list(tmp_path.iterdir()) == []


def test_a_spool_without_room_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no room for 4,096,000 bytes"):
        Spool(tmp_path / "none", 0).empty(1_024_000, torch.float32)


def test_a_legacy_file_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_loading, "MEMORY", 0)
    native = sample("plain_adam_optimizer")
    torch.save(native, tmp_path / "old.pt", _use_new_zipfile_serialization=False)

    assert differences(load_checkpoint(tmp_path / "old.pt"), native) == []


def test_what_was_not_saved_as_it_is_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(partial: Path) -> None:
        content = bytearray(partial.read_bytes())
        place = content.find(torch.tensor(0.25).numpy().tobytes() * 4)
        content[place] ^= 1
        partial.write_bytes(content)

    monkeypatch.setattr("guarded_moments.reference.checkpoint.saving.drop_from_cache", changed)

    with pytest.raises(CheckpointError, match=r"r\.pt: what was written was not read back \(model\['w'\]\)"):
        save_checkpoint({"model": {"w": torch.full((9,), 0.25)}}, tmp_path / "r.pt")
    assert list(tmp_path.iterdir()) == []
