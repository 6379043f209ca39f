"""Faults that are tried, and a count of them: the summary prints how many, and how many went unnoticed."""

from collections import Counter

import pytest

_TRIED = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TRIED] = Counter()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    tried = config.stash[_TRIED]
    for kind, count in sorted(tried.items()):
        terminalreporter.write_line(f"faults tried, {kind}: {count:,}")
    if tried:
        lost = len(terminalreporter.stats.get("failed", [])) + len(terminalreporter.stats.get("error", []))
        terminalreporter.write_line(
            f"faults tried in all: {tried.total():,}; "
            + ("silent losses: 0" if not lost else f"{lost} tests failed, see above")
        )


@pytest.fixture(scope="session")
def tried(pytestconfig: pytest.Config) -> Counter[str]:
    """How often each kind of fault was tried; a test counts one only after it has seen that nothing was lost."""
    return pytestconfig.stash[_TRIED]
