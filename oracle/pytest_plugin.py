"""`pytest --oracle`: the conformance kit as tests of the session.

Claimed: without `--oracle` nothing is imported but pytest and no test is added; with it nothing is imported before
tests are collected.  Every requirement is one test, `oracle::BACKEND::GRD-1`, that selection, reports and the exit
status treat like any other.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Generator, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from guarded_moments.oracle.conformance import Adapted, Requirement, Trial
    from guarded_moments.oracle.conformance.judgement import Judgement

_OPTION = "--oracle"
_ALL = "all"
_DEFAULT_SEED = 1
_LEVELS = ("sound", "reproducible")
#: What names an object in a module or a file, and no test: `my_kernels:backend`, `kernels/submission.py:kernel`.
_OBJECT = re.compile(r"([\w.]+|[^:]+\.py):[A-Za-z_][\w.]*")
#: Under which a test tells the report what came of it.
_PROPERTY = "oracle"
_MARKERS = {
    "oracle": "a requirement on a codec backend (guarded-moments, --oracle)",
    "oracle_sound": "a requirement that the guarantee rests on",
    "oracle_reproducible": "a requirement that codes and decoded values are the reference's",
}


class StaleExpectation(pytest.PytestWarning):
    """A requirement that a backend lists among its expected failures holds."""


def conclude(judgement: Judgement, subject: str, expected: str) -> None:
    """Give what is no failure as pytest's outcome: an expected failure, a skip, or a warning that one is stale."""
    from guarded_moments.oracle.conformance import Status

    if judgement.stale:
        warnings.warn(
            StaleExpectation(f"{subject} holds, and is listed as an expected failure: {judgement.expected}"),
            stacklevel=2,
        )
    elif judgement.status in {Status.FAILS, Status.UNDECIDED}:
        pytest.xfail(f"{expected}: {judgement.expected}")
    elif judgement.status is not Status.HOLDS:
        pytest.skip(f"{judgement.status.value}: {judgement.text}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    group = parser.getgroup("guarded-moments", "conformance of codec backends (guarded-moments)")
    group.addoption(
        _OPTION,
        nargs="?",
        const=_ALL,
        action="append",
        metavar="BACKEND",
        help="also judge a codec backend, one test a requirement: package.module:attribute, folder/file.py:attribute, "
        "or a registered name; bare, every backend that this machine has; may be given more than once",
    )
    group.addoption("--oracle-device", metavar="DEVICE", help="where its tensors live, such as cuda:0")
    group.addoption(
        "--oracle-budget",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="go on trying each requirement on fresh inputs for so long (default: once)",
    )
    group.addoption(
        "--oracle-seed",
        type=int,
        default=_DEFAULT_SEED,
        metavar="N",
        help="seed of the inputs that backends are judged on (default %(default)s)",
    )
    group.addoption(
        "--oracle-op-model",
        action="append",
        default=[],
        metavar="NAME",
        help="judge guards and updates by this op model (gmc ops lists them); may be given more than once",
    )
    group.addoption(
        "--oracle-level",
        choices=_LEVELS,
        help="sound: only what the guarantee rests on; reproducible (default): that, and the reference's own codes",
    )
    group.addoption("--oracle-report", metavar="FILE", help="write what came of each requirement as JSON")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Keep a bare `--oracle` from swallowing the path behind it: `pytest --oracle tests/` names no backend."""
    end = args.index("--") if "--" in args else len(args)
    bare = [index for index in range(end) if args[index] == _OPTION]
    if not bare:
        return
    for index in reversed(bare):
        if index + 1 < end and _OBJECT.fullmatch(args[index + 1]):
            args[index : index + 2] = [f"{_OPTION}={args[index + 1]}"]
        else:
            args[index] = f"{_OPTION}={_ALL}"
    # The conftest files of the paths are found in what was parsed before this hook.
    early_config.known_args_namespace.file_or_dir = parser.parse_known_args(args).file_or_dir


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and the report where one is asked for."""
    for name, meaning in _MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    if config.getoption(_OPTION) is not None:
        config.pluginmanager.register(Report(config), "guarded-moments-report")
    elif config.getoption("--oracle-report"):
        raise pytest.UsageError("--oracle-report says what came of --oracle, which is not given")


def pytest_report_header(config: pytest.Config) -> str | None:
    """What is judged, and with which inputs."""
    if config.getoption(_OPTION) is None:
        return None
    asked = config.getoption("--oracle-op-model")
    return (
        f"oracle: backend {', '.join(dict.fromkeys(config.getoption(_OPTION)))}, "
        f"device {config.getoption('--oracle-device') or 'as each backend says'}, "
        f"op models {', '.join(asked) if asked else 'of every kind'}, seed {config.getoption('--oracle-seed')}, "
        f"{_versions()}"
    )


def _versions() -> str:
    return ", ".join(f"{name} {metadata.version(name)}" for name in ("guarded-moments", "torch"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Add the kit to what the session collects: selection and counting come after."""
    report = yield
    if isinstance(collector, pytest.Session) and collector.config.getoption(_OPTION) is not None:
        report.result.append(Oracle.from_parent(collector, name="oracle", nodeid="oracle"))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Load the backends: the first moment at which torch may be imported, and the last for a clean refusal."""
    if session.config.getoption(_OPTION) is not None:
        session.config.stash[_BACKENDS] = _load(session.config)


_BACKENDS = pytest.StashKey["list[Adapted]"]()


def _load(config: pytest.Config) -> list[Adapted]:
    from guarded_moments.oracle.conformance import BackendError
    from guarded_moments.oracle.conformance.loading import load
    from guarded_moments.reference.errors import UnsupportedError
    from guarded_moments.reference.implementations import implementation_named

    for name in config.getoption("--oracle-op-model"):
        try:
            implementation_named(name)
        except UnsupportedError as error:
            raise pytest.UsageError(f"--oracle-op-model: {error}") from None
    folders = list(dict.fromkeys([config.invocation_params.dir, config.rootpath]))
    found = []
    for spec in dict.fromkeys(config.getoption(_OPTION)):
        try:
            found += load(spec, folders, config.getoption("--oracle-device"))
        except BackendError as error:
            raise pytest.UsageError(f"{_OPTION}={spec}: {error}") from None
    return list({backend.name: backend for backend in found}.values())


class Oracle(pytest.Collector):
    """The kit."""

    def collect(self) -> Iterator[JudgedBackend]:
        """The backends to judge."""
        for backend in self.config.stash[_BACKENDS]:
            yield JudgedBackend.from_parent(self, name=backend.name, backend=backend)


class JudgedBackend(pytest.Collector):
    """A backend."""

    def __init__(self, *, backend: Adapted, **node: Any) -> None:  # noqa: ANN401 - pytest's own
        """Take what to judge.

        Args:
            backend: to judge.
            **node: what a pytest node is made of.
        """
        super().__init__(**node)
        self._backend = backend

    def collect(self) -> Iterator[Conformance]:
        """One test a requirement."""
        from guarded_moments.oracle.conformance import REQUIREMENTS, Trial

        option = self.config.getoption
        trial = Trial(self._backend, option("--oracle-seed"), tuple(option("--oracle-op-model")))
        for requirement in REQUIREMENTS:
            if option("--oracle-level") != "sound" or requirement.level.value == "sound":
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
        from guarded_moments.oracle.conformance import judge
        from guarded_moments.oracle.conformance.judgement import as_json

        judgement = judge(self._requirement, self._trial, self.config.getoption("--oracle-budget"))
        backend = self._trial.backend
        told = {"backend": backend.name, "device": backend.device, **as_json(judgement)}
        self.user_properties.append((_PROPERTY, json.dumps(told)))
        if judgement.fails:
            raise Failure(judgement.in_full())
        conclude(judgement, self.nodeid, f"expected by {backend.name}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *_style: Any) -> Any:  # noqa: ANN401 - pytest's
        """The counterexample alone; a traceback only for faults of the kit or the backend."""
        if isinstance(excinfo.value, Failure):
            return str(excinfo.value)
        return excinfo.getrepr(style="short", tbfilter=lambda fault: fault.traceback.cut(path=__file__))

    def reportinfo(self) -> tuple[Any, None, str]:
        """No file and no line: the name stands for itself."""
        return self.config.rootpath / "oracle", None, self.nodeid


class Failure(Exception):  # noqa: N818 - a finding about a backend, not an error of the program
    """What is shown of a requirement that is not met."""


class Report:
    """What came of each requirement, for the summary and the file: also where other processes ran the tests."""

    def __init__(self, config: pytest.Config) -> None:
        """Look at the options."""
        self._config = config
        self._told: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test told, or that it broke before it could."""
        if not report.nodeid.startswith("oracle::") or report.when != "call":
            return
        properties = dict(report.user_properties)
        if _PROPERTY in properties:
            self._told.append(json.loads(str(properties[_PROPERTY])))
        elif report.failed:
            _, backend, identifier = report.nodeid.split("::")
            broken = {"backend": backend, "requirement": identifier, "level": properties["level"], "status": "broken"}
            self._told.append({**broken, "text": properties["requirement"], "finding": report.longreprtext})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One line a backend."""
        for backend in dict.fromkeys(told["backend"] for told in self._told):
            counted: dict[str, list[str]] = {}
            for told in self._told:
                if told["backend"] == backend:
                    expected = told["status"] == "fails" and told.get("expected_failure")
                    counted.setdefault("fails, as expected" if expected else told["status"], []).append(
                        told["requirement"]
                    )
            parts = (
                f"{len(names)} {status}" + ("" if status == "holds" else f" ({', '.join(names)})")
                for status, names in sorted(counted.items(), key=lambda entry: entry[0] != "holds")
            )
            terminalreporter.write_line(f"oracle: {backend}: {'; '.join(parts)}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file, where it is asked for and this process hears of every test."""
        file = self._config.getoption("--oracle-report")
        if file is None or hasattr(self._config, "workerinput"):
            return
        option = self._config.getoption
        content = {
            "generator": _versions(),
            "seed": option("--oracle-seed"),
            "budget_seconds": option("--oracle-budget"),
            "op_models": option("--oracle-op-model") or None,
            "level": option("--oracle-level") or "reproducible",
            "results": sorted(self._told, key=lambda told: (told["backend"], told["requirement"])),
        }
        path = Path(self._config.invocation_params.dir) / file
        try:
            path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            raise pytest.UsageError(f"--oracle-report={file}: {error.strerror}") from None
