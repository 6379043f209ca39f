"""What all tests share: how hard they look, randomness that can be repeated, and a count of what was compared.

`--oracle` multiplies the random part of the tests by ten. Every run says its seed; `GM_TEST_SEED` repeats it.
"""

import os
import secrets
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

#: Without the option: the same values in every run, so that a failure is the change's own.
ORDINARY_SEED = 20150715
SEED_VARIABLE = "GM_TEST_SEED"
#: How many times the ordinary amount, for a pytest that a test starts.
BUDGET_VARIABLE = "GM_TEST_BUDGET"

_SEED = pytest.StashKey[int]()
_COMPARED = pytest.StashKey[Counter[str]]()

settings.register_profile("ordinary", deadline=None, derandomize=True)
settings.register_profile("oracle", deadline=None, max_examples=1000, print_blob=True)


def _budget(config: pytest.Config) -> int:
    given = os.environ.get(BUDGET_VARIABLE)
    return int(given) if given else 10 if config.getoption("--oracle", default=None) else 1


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--hypothesis-profile", default=None):
        settings.load_profile("ordinary" if _budget(config) == 1 else "oracle")
    given = os.environ.get(SEED_VARIABLE)
    fresh = ORDINARY_SEED if _budget(config) == 1 else secrets.randbelow(2**32)
    config.stash[_SEED] = int(given) if given else fresh
    config.stash[_COMPARED] = Counter()
    # Threads of several processes that wait for each other on the same cores take up to a hundred times as long.
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    torch.set_num_threads(max(1, torch.get_num_threads() // workers))


def pytest_report_header(config: pytest.Config) -> str:
    capability = torch.backends.cpu.get_cpu_capability()
    return f"seed: {config.stash[_SEED]} ({SEED_VARIABLE} sets it), torch's CPU capability: {capability}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    failed = len(terminalreporter.stats.get("failed", [])) + len(terminalreporter.stats.get("error", []))
    # A comparison fails its test at the first mismatch.
    verdict = f"mismatches, if any, are in the {failed} tests that failed" if failed else "0 mismatches"
    for subject, count in sorted(config.stash[_COMPARED].items()):
        terminalreporter.write_line(f"compared bit for bit, {subject}: {count:,} values, {verdict}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a worker of pytest-xdist hand its counts to the process that prints them."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        compared: Counter[str] = session.config.stash[_COMPARED]
        output["compared"] = dict(compared)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - pytest-xdist's, which has no annotations
    """Take them."""
    compared: Counter[str] = node.config.stash[_COMPARED]
    compared.update(getattr(node, "workeroutput", {}).get("compared", {}))


@pytest.fixture(scope="session")
def budget(pytestconfig: pytest.Config) -> int:
    """How many times the ordinary amount of random work to do: 1, or 10 with `--oracle`."""
    return _budget(pytestconfig)


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """The seed of this run."""
    return pytestconfig.stash[_SEED]


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator of the test's own, the same whichever other tests run."""
    own = [seed, zlib.crc32(request.node.name.encode())]
    print(f"np.random.default_rng({own})")  # noqa: T201 - pytest shows it with a failure
    return np.random.default_rng(own)


@pytest.fixture(scope="session")
def compared(pytestconfig: pytest.Config) -> Counter[str]:
    """How many values were compared bit for bit, by subject: the summary prints it."""
    return pytestconfig.stash[_COMPARED]


@pytest.fixture
def threads() -> Iterator[None]:
    """Puts torch's number of threads back after a test that sets it."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def one_thread(threads: None) -> None:
    """Threads that wait for each other are slow where something else runs too."""
    torch.set_num_threads(1)
