"""Who decides the parts of an audit: this process, processes of this machine, or the workers of a Dask cluster.

Claimed: no result is taken from a worker that has another version of this package; a lost process of this machine ends
the audit, a lost worker of a cluster does not, since Dask gives its parts to another.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import metadata
from multiprocessing import get_context
from typing import Any

from guarded_moments.reference.errors import PlatformError, UnsupportedError

#: Parts on their way for each worker: one that is decided, and what it takes next.
AHEAD = 3
#: Seconds to wait for a scheduler.
PATIENCE = 10.0


@contextmanager
def deciding(processes: int, address: str | None) -> Iterator[dict[str, Any]]:
    """What `audit` needs to know of who decides: its `executor` and `ahead`, or nothing for this process.

    Args:
        processes: of this machine; 1 is this one.
        address: of the scheduler of a Dask cluster, or None.

    Raises:
        UnsupportedError: Dask is not installed.
        PlatformError: there is no such cluster, it has no workers, one has another version, or a process died.
    """
    if address is not None:
        with _cluster(address) as (executor, workers):
            yield {"executor": executor, "ahead": AHEAD * workers}
    elif processes > 1:
        # Spawned: a forked copy of a process in which torch has run threads may wait for them for ever.
        pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_leave_interrupts_to_the_parent)
        try:
            yield {"executor": pool, "ahead": AHEAD * processes}
        except BrokenExecutor:
            raise PlatformError(
                f"one of the {processes} worker processes died, perhaps for want of memory: nothing is said of the "
                "file; fewer --workers need less"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)
    else:
        yield {}


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def version_here() -> str:
    """This package's version, asked of every worker."""
    return metadata.version("guarded-moments")


@contextmanager
def _cluster(address: str) -> Iterator[tuple[Executor, int]]:
    """An executor of a running cluster, and how many parts it can decide at a time."""
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise UnsupportedError(
            "--dask needs Dask, which is not installed: pip install 'guarded-moments[dask]'"
        ) from None
    _require_scheduler(address)
    with distributed.Client(address, timeout=PATIENCE, set_as_default=False) as client:
        threads = client.nthreads()
        if not threads:
            raise PlatformError(f"--dask {address}: the cluster has no workers")
        _require_version(client, address)
        try:
            yield client.get_executor(pure=False), sum(threads.values())
        except distributed.KilledWorker as error:
            raise PlatformError(
                f"--dask {address}: the same part was lost with several workers, perhaps for want of memory: nothing "
                f"is said of the file ({str(error).splitlines()[0]})"
            ) from None


def _require_scheduler(address: str) -> None:
    """Ask who is there, and wait no longer than that.

    A client that is made at once waits for ever where something else listens, and where the address is none it fails in
    a way that leaves it half open.
    """
    try:
        identity = asyncio.run(asyncio.wait_for(_identity_at(address), PATIENCE))
    except TimeoutError:
        raise PlatformError(f"--dask {address}: no scheduler answers there within {PATIENCE:g} s") from None
    except Exception as error:  # noqa: BLE001 - each transport has its own
        raise PlatformError(f"--dask {address}: no scheduler can be asked there ({error})") from None
    if identity.get("type") != "Scheduler":
        raise PlatformError(f"--dask {address}: there is a {identity.get('type')}, expected a Scheduler")


async def _identity_at(address: str) -> dict[str, Any]:
    core: Any = importlib.import_module("distributed.core")
    async with core.rpc(address) as remote:
        identity: dict[str, Any] = await remote.identity()
    return identity


def _version_of(client: Any) -> dict[str, str]:  # noqa: ANN401 - Dask has no annotations
    """The version that each worker has."""
    found: dict[str, str] = client.run(version_here)
    return found


def _require_version(client: Any, address: str) -> None:  # noqa: ANN401 - as above
    try:
        found = _version_of(client)
    except Exception as error:  # noqa: BLE001 - whatever the import raises there comes back as itself
        raise PlatformError(
            f"--dask {address}: the workers cannot import guarded-moments ({type(error).__name__}: {error})"
        ) from None
    own = version_here()
    others = sorted({f"{worker} has {version}" for worker, version in found.items() if version != own})
    if others:
        raise PlatformError(f"--dask {address}: guarded-moments is {own} here, but {', '.join(others)}")
