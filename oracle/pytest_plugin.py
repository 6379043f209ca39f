"""`pytest --oracle`: the conformance kit as tests of the session.

Claimed: without `--oracle` nothing is imported but pytest and no test is added.  With it, every requirement is one
test, `oracle::BACKEND::GRD-1`, that selection, reports and the exit status treat like any other.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from guarded_moments.oracle.conformance import Requirement, Trial

_OPTION = "--oracle"
_REFERENCE = "reference"
_DEFAULT_SEED = 1
_MARKERS = {
    "oracle": "a requirement on a codec backend (guarded-moments, --oracle)",
    "oracle_sound": "a requirement that the guarantee rests on",
    "oracle_reproducible": "a requirement that codes and decoded values are the reference's",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    group = parser.getgroup("guarded-moments", "conformance of codec backends (guarded-moments)")
    group.addoption(
        _OPTION,
        nargs="?",
        const=_REFERENCE,
        metavar="BACKEND",
        help="also judge a codec backend, one test a requirement; bare, or --oracle=reference, the built-in one",
    )
    group.addoption(
        "--oracle-seed",
        type=int,
        default=_DEFAULT_SEED,
        metavar="N",
        help="seed of the inputs that backends are judged on (default %(default)s)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Keep a bare `--oracle` from swallowing the path behind it: `pytest --oracle tests/` names no backend."""
    end = args.index("--") if "--" in args else len(args)
    bare = [index for index in range(end) if args[index] == _OPTION]
    if not bare:
        return
    for index in bare:
        args[index] = f"{_OPTION}={_REFERENCE}"
    # The conftest files of the paths are found in what was parsed before this hook.
    early_config.known_args_namespace.file_or_dir = parser.parse_known_args(args).file_or_dir


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and refuse a backend that this version cannot judge."""
    for name, meaning in _MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    backend = config.getoption(_OPTION)
    if backend not in {None, _REFERENCE}:
        raise pytest.UsageError(
            f"{_OPTION}={backend}: backend {backend!r} cannot be loaded yet: "
            "this version judges only the built-in reference"
        )


def pytest_report_header(config: pytest.Config) -> str | None:
    """What is judged, against what, with which inputs."""
    if config.getoption(_OPTION) is None:
        return None
    from guarded_moments.oracle.conformance.scenes import SCENES

    models = ", ".join(sorted({scene.op_model for scene in SCENES}))
    return (
        f"oracle: backend {config.getoption(_OPTION)}, torch {metadata.version('torch')}, "
        f"seed {config.getoption('--oracle-seed')}, op models {models}"
    )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Add the kit to what the session collects: selection and counting come after."""
    report = yield
    if isinstance(collector, pytest.Session) and collector.config.getoption(_OPTION) is not None:
        report.result.append(Oracle.from_parent(collector, name="oracle", nodeid="oracle"))
    return report


class Oracle(pytest.Collector):
    """The kit."""

    def collect(self) -> Iterator[JudgedBackend]:
        """The backends to judge."""
        yield JudgedBackend.from_parent(self, name=self.config.getoption(_OPTION))


class JudgedBackend(pytest.Collector):
    """A backend."""

    def collect(self) -> Iterator[Conformance]:
        """One test a requirement."""
        from guarded_moments.oracle.conformance import REQUIREMENTS, ReferenceBackend, Trial

        trial = Trial(ReferenceBackend(), self.config.getoption("--oracle-seed"))
        for requirement in REQUIREMENTS:
            yield Conformance.from_parent(self, name=requirement.identifier, requirement=requirement, trial=trial)


class Conformance(pytest.Item):
    """One requirement on one backend."""

    def __init__(self, *, requirement: Requirement, trial: Trial, **node: Any) -> None:  # noqa: ANN401 - pytest's own
        """Take what to check.

        Args:
            requirement: the requirement.
            trial: the backend and the seed.
            **node: what a pytest node is made of.
        """
        super().__init__(**node)
        self._requirement, self._trial = requirement, trial
        self.add_marker("oracle")
        self.add_marker(f"oracle_{requirement.level.value}")
        self.user_properties.append(("requirement", requirement.text))
        self.user_properties.append(("level", requirement.level.value))

    def runtest(self) -> None:
        """Judge."""
        from guarded_moments.oracle.conformance import NotJudged

        try:
            self._requirement.judge(self._trial)
        except NotJudged as reason:
            pytest.skip(f"not judged: {reason}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *_style: Any) -> Any:  # noqa: ANN401 - pytest's
        """The counterexample alone; a traceback only for faults of the kit or the backend."""
        from guarded_moments.oracle.conformance import NonConformance, Undecided

        if not isinstance(excinfo.value, (NonConformance, Undecided)):
            return excinfo.getrepr(style="short", tbfilter=lambda fault: fault.traceback.cut(path=__file__))
        verdict = "undecided: " if isinstance(excinfo.value, Undecided) else ""
        headline, _, details = f"{verdict}{excinfo.value}".partition("\n")
        return "\n".join(
            [
                headline,
                *(f"  {line}" for line in details.splitlines()),
                "",
                f"{self._requirement.identifier}, {self._requirement.level.value}: {self._requirement.text}",
                self._requirement.why,
            ]
        )

    def reportinfo(self) -> tuple[Any, None, str]:
        """No file and no line: the name stands for itself."""
        return self.config.rootpath / "oracle", None, self.nodeid
