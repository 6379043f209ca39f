"""An audit by several processes, and by a cluster that loses one of them: the same result as by this process."""

import importlib
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.oracle.cli.conftest import Job
from tests.oracle.cli.running import gmc, read_json, run_well

from guarded_moments.oracle.audit import audit, whole
from guarded_moments.oracle.cli import audit_workers
from guarded_moments.oracle.cli.audit_workers import deciding
from guarded_moments.reference import compress
from guarded_moments.reference.errors import PlatformError, UnsupportedError

AUDIT = ("audit", "optimizer.gmc", "--native", "optimizer.pt", "--json", "by-workers.json")


@pytest.mark.usefixtures("here")
def test_processes_give_what_one_process_gives(job: Job) -> None:
    ran = run_well(*AUDIT, "--workers", "2")

    assert read_json(Path("by-workers.json")) == job.report
    assert "another machine" not in ran.out


@pytest.mark.usefixtures("here")
def test_processes_and_a_cluster_exclude_each_other() -> None:
    ran = gmc(*AUDIT, "--workers", "2", "--dask", "tcp://127.0.0.1:1")
    assert (ran.status, ran.out) == (2, "")
    assert "--workers and --dask exclude each other" in ran.err


def test_a_lost_process_is_no_verdict() -> None:
    with pytest.raises(PlatformError, match=r"one of the 3 worker processes died.*fewer --workers"), deciding(3, None):
        raise BrokenProcessPool


def test_without_dask_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with (
        pytest.raises(UnsupportedError, match=r"pip install 'guarded-moments\[dask\]'"),
        deciding(1, "tcp://127.0.0.1:1"),
    ):
        pass


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three processes and a scheduler on this machine."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: extra 'dask'")
    options = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    with distributed.LocalCluster(processes=True, silence_logs=50, **options) as running:
        yield running


def trained_state() -> dict[str, Any]:
    """A state of some tens of parts of a thousand coordinates."""
    generator = torch.Generator().manual_seed(3)
    parameters = [torch.nn.Parameter(torch.zeros(200, 150)), torch.nn.Parameter(torch.zeros(9_000))]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    for _ in range(5):
        for parameter in parameters:
            parameter.grad = 1e-2 * torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return optimizer.state_dict()


@pytest.mark.timeout(300)
def test_a_cluster_that_loses_a_worker_in_the_middle_gives_the_same(
    cluster: Any,  # noqa: ANN401 - Dask has no annotations
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whole, "PART", 1_000)
    native = trained_state()
    state = compress(native, tolerance=0.01, grad_bound=1.0)
    here = audit(state, native)
    killed: list[int] = []

    with cluster.get_client() as client:
        processes: dict[str, int] = client.run(os.getpid)

        def kill_one(done: int, total: int) -> None:
            if not killed and done >= total // 4:
                killed.append(processes[min(processes)])
                os.kill(killed[0], signal.SIGKILL)

        with deciding(1, cluster.scheduler_address) as who:
            found = audit(state, native, kill_one, **who)

    assert len(processes) == 3
    assert len(killed) == 1
    assert os.getpid() not in processes.values()
    assert found == here
    assert found.holds
    assert found.coordinates == 39_000


@pytest.mark.usefixtures("here")
def test_the_command_takes_a_cluster(cluster: Any, job: Job) -> None:  # noqa: ANN401 - as above
    run_well(*AUDIT, "--dask", cluster.scheduler_address)
    assert read_json(Path("by-workers.json")) == job.report


def test_workers_of_another_version_are_refused(
    cluster: Any,  # noqa: ANN401 - as above
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = audit_workers.version_here
    monkeypatch.setattr(audit_workers, "_version_of", lambda _: {"tcp://10.0.0.7:1": "0.0.1"})
    with (
        pytest.raises(PlatformError, match=rf"is {own()} here, but tcp://10.0.0.7:1 has 0.0.1"),
        deciding(1, cluster.scheduler_address),
    ):
        pass


def test_a_part_that_kills_every_worker_is_no_verdict(cluster: Any) -> None:  # noqa: ANN401 - as above
    distributed = importlib.import_module("distributed")
    with (
        pytest.raises(PlatformError, match="the same part was lost with several workers"),
        deciding(1, cluster.scheduler_address),
    ):
        raise distributed.KilledWorker("part", SimpleNamespace(address="tcp://10.0.0.7:1"), 3)


def refused(address: str) -> str:
    """Why a cluster is refused, in at most one line."""
    with pytest.raises(PlatformError) as error, deciding(1, address):
        pass
    assert "\n" not in str(error.value)
    return str(error.value)


def test_where_no_scheduler_answers_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: extra 'dask'")
    monkeypatch.setattr(audit_workers, "PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for address in ("tcp://127.0.0.1:1", f"tcp://127.0.0.1:{silent.getsockname()[1]}"):
            assert refused(address) == f"--dask {address}: no scheduler answers there within 0.5 s"


@pytest.mark.parametrize("address", ["nonsense", "", "tcp://host", "http://127.0.0.1:80", "ucx://127.0.0.1:1"])
def test_what_is_no_address_is_refused_before_a_client_is_made(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: extra 'dask'")
    monkeypatch.delattr(distributed, "Client")
    assert refused(address).startswith(f"--dask {address}: no scheduler can be asked there (")


def test_a_worker_is_no_scheduler(cluster: Any) -> None:  # noqa: ANN401 - as above
    address = cluster.workers[0].worker_address
    assert refused(address) == f"--dask {address}: there is a Worker, expected a Scheduler"
