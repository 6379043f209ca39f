"""One real checkpoint, compressed, recovered and audited once; tests that change a file work on copies."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.oracle.cli.checkpoints import trained
from tests.oracle.cli.running import CLAIM, Ran, read_json, run_well

from guarded_moments.reference.checkpoint import GuardedState, load_state_dict, read
from guarded_moments.reference.checkpoint.optimizer_state import StateDict


@dataclass(frozen=True)
class Job:
    """The main job in small: files, and what the commands said."""

    folder: Path
    compress: Ran
    recover: Ran
    audit: Ran

    @property
    def native(self) -> Path:
        """As torch saved it."""
        return self.folder / "optimizer.pt"

    @property
    def compressed(self) -> Path:
        """What `compress` wrote."""
        return self.folder / "optimizer.gmc"

    @property
    def recovered(self) -> Path:
        """What `recover` wrote."""
        return self.folder / "optimizer.recovered.pt"

    @property
    def state_dict(self) -> StateDict:
        """The native checkpoint."""
        return load_state_dict(self.native)

    @property
    def state(self) -> GuardedState:
        """The compressed file, as the library reads it."""
        return read(self.compressed)

    @property
    def report(self) -> dict[str, Any]:
        """The audit's JSON."""
        return read_json(self.folder / "audit.json")


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A really trained state through all three commands."""
    folder = tmp_path_factory.mktemp("job")
    native, compressed = folder / "optimizer.pt", folder / "optimizer.gmc"
    torch.save(trained(), native)
    return Job(
        folder,
        compress=run_well("compress", native, compressed, *CLAIM, "-v"),
        recover=run_well("recover", compressed, folder / "optimizer.recovered.pt"),
        audit=run_well("audit", compressed, "--native", native, "--json", folder / "audit.json", "-v"),
    )


@pytest.fixture
def here(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a copy of the native checkpoint and of the compressed file and nothing else."""
    for path in (job.native, job.compressed):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
