"""`pytest --oracle`, run as users run it: what it adds, what it leaves alone, what it says."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from fnmatch import fnmatch

import pytest

from guarded_moments.oracle import conformance
from guarded_moments.oracle.conformance import NonConformance, NotJudged, Requirement, Trial, Undecided, loading

pytest_plugins = "pytester"

A_TEST = "def test_of_the_repository(): pass"


def passes(trial: Trial) -> None:
    """Meet the requirement."""


def fails(trial: Trial) -> None:
    raise NonConformance("m is 2, not 1", "value  0x1.000000p+1 [40000000]", f"seed   {trial.seed}")


def is_not_judged(trial: Trial) -> None:
    raise NotJudged("this machine has no such kernel")


def is_undecided(trial: Trial) -> None:
    raise Undecided("3 pairs are left")


def breaks(trial: Trial) -> None:
    raise ZeroDivisionError("a fault of the backend")


@pytest.fixture
def requirements(monkeypatch: pytest.MonkeyPatch) -> tuple[Requirement, ...]:
    """Stand-ins that answer at once."""
    sound, reproducible = (conformance.requirement(identifier) for identifier in ("GRD-1", "DEC-1"))
    checks = {"PAS-1": passes, "FAI-1": fails, "NOT-1": is_not_judged, "UND-1": is_undecided, "BRE-1": breaks}
    quick = (
        *(replace(sound, identifier=identifier, check=check, needs=()) for identifier, check in checks.items()),
        replace(reproducible, identifier="PAS-2", check=passes, needs=()),
    )
    monkeypatch.setattr(conformance, "REQUIREMENTS", quick)
    monkeypatch.setattr(loading, "registered", lambda: ["reference"])  # one backend is enough
    return quick


def test_without_the_option_nothing_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_modules():
            assert "guarded_moments.oracle.pytest_plugin" in sys.modules
            ours = {name for name in sys.modules if name.startswith("guarded_moments.")}
            assert ours == {"guarded_moments.oracle", "guarded_moments.oracle.pytest_plugin"}
            assert not {"torch", "numpy", "mpmath", "numba"} & sys.modules.keys()
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("oracle: *")


def test_an_empty_folder_is_enough(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--oracle", "-v", "-k", "DEC or GRD-2")
    result.assert_outcomes(passed=10, deselected=2 * len(conformance.REQUIREMENTS) - 10)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "oracle: backend all, device as each backend says, op models of every kind, seed 1, guarded-m*, torch *",
            "oracle::reference::GRD-2 PASSED*",
            "oracle::compiled::GRD-2 PASSED*",
            "oracle: reference: 5 holds",
            "oracle: compiled: 5 holds",
        ]
    )


@pytest.mark.usefixtures("requirements")
@pytest.mark.parametrize("option", ["--oracle", "--oracle=reference"])
def test_it_runs_beside_the_tests_of_a_repository(pytester: pytest.Pytester, option: str) -> None:
    pytester.makepyfile(A_TEST)
    result = pytester.runpytest_inprocess(option, "-k", "repository or PAS")
    result.assert_outcomes(passed=3, deselected=4)


@pytest.mark.usefixtures("requirements")
def test_a_path_behind_the_bare_option_is_no_backend(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("checks")
    folder.joinpath("test_a.py").write_text(A_TEST, encoding="utf-8")
    # An option of a conftest file is known only where the path is seen before the command line is parsed.
    option = "def pytest_addoption(parser): parser.addoption('--their-own')"
    folder.joinpath("conftest.py").write_text(option, encoding="utf-8")
    pytester.makepyfile(test_elsewhere="def test_elsewhere(): pass")

    result = pytester.runpytest_inprocess("--oracle", "checks", "--their-own", "x", "-v", "-k", "test or PAS")
    result.assert_outcomes(passed=3, deselected=4)
    result.stdout.fnmatch_lines(["checks/test_a.py::test_of_the_repository PASSED*", "oracle::reference::PAS-1 *"])


@pytest.mark.usefixtures("requirements")
def test_the_option_can_stand_in_a_configuration_file(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = --oracle\n")
    pytester.makepyfile(A_TEST)
    pytester.runpytest_inprocess("-k", "PAS").assert_outcomes(passed=2, deselected=5)


BACKEND = """
import helper_beside_it
class Backend:
    name = "mine"
    expected_failures = {"FAI-1": "a known fault"}
    not_claimed = {"NOT-1": "there is no GPU here"}
    def guard(self, constants, m, v, m_hat, v_hat):
        raise NotImplementedError
backend = Backend()
number = 3
"""


@pytest.fixture
def kernels(pytester: pytest.Pytester) -> None:
    """Modules and files of a repository."""
    pytester.makepyfile(
        my_kernels=BACKEND,
        helper_beside_it="",
        broken="import there_is_no_such_module",
        leaves="raise SystemExit(3)",
    )
    pytester.mkdir("kernels")
    (pytester.path / "kernels" / "submission.py").write_text(BACKEND.replace("helper_beside_it", "task"), "utf-8")
    (pytester.path / "kernels" / "task.py").write_text("", "utf-8")


@pytest.mark.usefixtures("requirements", "kernels")
@pytest.mark.parametrize(
    "arguments",
    [
        ["--oracle=my_kernels:backend"],
        ["--oracle", "my_kernels:backend"],
        ["--oracle=my_kernels:Backend"],
        ["--oracle=kernels/submission.py:backend"],
    ],
    ids=" ".join,
)
def test_a_backend_is_found_and_what_it_declares_is_kept(pytester: pytest.Pytester, arguments: list[str]) -> None:
    result = pytester.runpytest_inprocess(*arguments, "-k", "PAS or FAI or NOT", "-rs")
    result.assert_outcomes(passed=2, xfailed=1, skipped=1, deselected=2)
    result.stdout.fnmatch_lines(
        [
            "oracle: mine: 2 holds; 1 fails, as expected (FAI-1); 1 not claimed (NOT-1)",
            "SKIPPED * not claimed: there is no GPU here",
        ]
    )


@pytest.mark.usefixtures("requirements", "kernels")
def test_a_stale_expectation_warns(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(my_kernels=BACKEND.replace("FAI-1", "PAS-1"), helper_beside_it="")
    result = pytester.runpytest_inprocess("--oracle=my_kernels:backend", "-k", "PAS-1", "-Wdefault")
    result.assert_outcomes(passed=1, warnings=1, deselected=5)
    result.stdout.fnmatch_lines(["*StaleExpectation: oracle::mine::PAS-1 holds, and is listed *: a known fault"])


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ("nowhere:backend", "nowhere:backend: cannot import nowhere: ModuleNotFoundError: No module named 'nowhere'"),
        ("broken:backend", "*: cannot import broken: ModuleNotFoundError: No module named 'there_is_no_such_module'"),
        ("leaves:backend", "*: cannot import leaves: SystemExit: 3"),
        ("my_kernels:absent", "my_kernels:absent: there is no absent in it"),
        ("my_kernels:number", "my_kernels:number is a int without any of the operations of a backend: encode, *"),
        ("kernels/absent.py:kernel", "kernels/absent.py:kernel: there is no file kernels/absent.py"),
        ("tests", "'tests' names no backend: expected module:attribute, *, all, or one of reference,*"),
        ("", "'' names no backend: *"),
    ],
)
def test_what_cannot_be_loaded_is_refused_in_one_line(pytester: pytest.Pytester, backend: str, said: str) -> None:
    result = pytester.runpytest_inprocess(f"--oracle={backend}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in (*result.errlines, *result.outlines) if line.startswith("ERROR: ")]
    assert fnmatch(line, f"ERROR: --oracle={backend}: {said}".replace("[", "[[]")), line
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_where_triton_is_missing_its_backend_says_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    built_in = {name: make for name, make in loading._BUILT_IN.items() if name != "triton"}
    monkeypatch.setattr(loading, "_BUILT_IN", built_in)
    assert "triton" not in loading.registered()
    with pytest.raises(conformance.BackendError, match=r"pip install 'guarded-moments\[triton\]'"):
        loading.load("triton", [])


def test_a_device_that_is_not_here_is_refused(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--oracle=reference", "--oracle-device=nonsense")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "device 'nonsense' cannot be used here" in result.stdout.str() + result.stderr.str()


def test_an_op_model_that_does_not_exist_is_refused(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--oracle=reference", "--oracle-op-model=cuda")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--oracle-op-model: op model 'cuda' is not known" in result.stdout.str() + result.stderr.str()


@pytest.mark.usefixtures("requirements")
def test_levels_rounds_and_the_report(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(
        "--oracle", "--oracle-level=sound", "--oracle-budget=0.3", "--oracle-report=report.json"
    )
    result.assert_outcomes(passed=1, failed=3, skipped=1)
    report = json.loads((pytester.path / "report.json").read_text(encoding="utf-8"))
    found = {entry["requirement"]: entry for entry in report["results"]}
    assert {name: entry["status"] for name, entry in found.items()} == {
        "PAS-1": "holds",
        "FAI-1": "fails",
        "NOT-1": "not judged",
        "UND-1": "undecided",
        "BRE-1": "broken",
    }
    assert found["PAS-1"]["rounds"] > 1
    assert found["FAI-1"]["finding"].startswith("m is 2, not 1\n")
    assert "ZeroDivisionError" in found["BRE-1"]["finding"]
    assert (report["seed"], report["level"], report["budget_seconds"]) == (1, "sound", 0.3)


@pytest.mark.usefixtures("requirements")
def test_the_report_is_whole_where_other_processes_run_the_tests(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(
        "--oracle=reference", "-n2", "-k", "DEC-2 or DEC-3 or GRD-3", "--oracle-report=report.json"
    )
    result.assert_outcomes(passed=3)
    report = json.loads((pytester.path / "report.json").read_text(encoding="utf-8"))
    assert [entry["requirement"] for entry in report["results"]] == ["DEC-2", "DEC-3", "GRD-3"]


def test_a_test_class_judges_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from guarded_moments.oracle.conformance.suite import ConformanceSuite

        class Guard:
            expected_failures = {"GRD-3": "it is not written yet"}
            def guard(self, constants, m, v, m_hat, v_hat):
                return m < m

        class TestGuard(ConformanceSuite):
            backend = Guard()
        """
    )
    result = pytester.runpytest_subprocess("-k", "GRD-2 or GRD-3 or DEC-1", "-rsx")
    result.assert_outcomes(passed=1, xfailed=1, skipped=1, deselected=len(conformance.REQUIREMENTS) - 3)
    result.stdout.fnmatch_lines(["SKIPPED * not claimed: the backend has no decode", "XFAIL * it is not written yet"])


@pytest.mark.usefixtures("requirements")
@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        (["-m", "oracle_sound"], ["PAS-1", "FAI-1", "NOT-1", "UND-1", "BRE-1"]),
        (["-m", "oracle_reproducible"], ["PAS-2"]),
        (["-m", "oracle and not oracle_sound"], ["PAS-2"]),
        (["-m", "not oracle"], []),
        (["-k", "PAS-1 or FAI"], ["PAS-1", "FAI-1"]),
        (["--deselect", "oracle::reference::PAS-1", "-k", "PAS"], ["PAS-2"]),
    ],
    ids=" ".join,
)
def test_selection(pytester: pytest.Pytester, selection: list[str], selected: list[str]) -> None:
    pytester.makepyfile(A_TEST)
    result = pytester.runpytest_inprocess("--oracle", "--collect-only", "-q", "--strict-markers", *selection)
    collected = [line.removeprefix("oracle::reference::") for line in result.outlines if line.startswith("oracle::")]
    assert collected == selected


@pytest.mark.usefixtures("requirements")
def test_every_outcome_is_said(pytester: pytest.Pytester) -> None:
    junit = pytester.path / "junit.xml"
    result = pytester.runpytest_inprocess("--oracle", "--oracle-seed=7", f"--junit-xml={junit}", "-ra")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2, failed=3, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "oracle: *, seed 7, *",
            "*_ oracle::reference::FAI-1 _*",
            "m is 2, not 1",
            "  value  0x1.000000p+1 [[]40000000]",
            "  seed   7",
            "FAI-1, sound: No accepted pair *",
            "This is the guarantee.",
            "undecided: 3 pairs are left",
            "*ZeroDivisionError: a fault of the backend",
            "SKIPPED * not judged: this machine has no such kernel",
            "FAILED oracle::reference::FAI-1*",
        ]
    )
    result.stdout.no_fnmatch_line("*hook_impl*")
    assert result.stdout.str().count("    raise ") == 1, "only the fault has a traceback"

    (suite,) = ET.parse(junit).getroot()  # noqa: S314 - written by the run above
    cases = {(case.get("classname"), case.get("name")): case for case in suite}
    assert set(cases) == {("oracle.reference", required.identifier) for required in conformance.REQUIREMENTS}
    properties = {p.get("name"): p.get("value") for p in cases["oracle.reference", "PAS-2"].iter("property")}
    told = json.loads(str(properties.pop("oracle")))
    assert (told["status"], told["rounds"]) == ("holds", 1)
    assert properties == {"requirement": conformance.requirement("DEC-1").text, "level": "reproducible"}


def test_a_wrong_table_is_found_in_the_real_reference(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = conformance.ReferenceBackend.decode

    def wrong(
        self: conformance.ReferenceBackend, codes: conformance.Codes, grids: conformance.Grids
    ) -> conformance.Moments:
        m, v = decode(self, codes, grids)
        return conformance.Moments(m, 1.0000002 * v)

    monkeypatch.setattr(conformance.ReferenceBackend, "decode", wrong)
    result = pytester.runpytest_inprocess("--oracle=reference", "-k", "DEC-1 or DEC-2")
    result.assert_outcomes(passed=1, failed=1, deselected=len(conformance.REQUIREMENTS) - 2)
    result.stdout.fnmatch_lines(
        ["v code 0x01 decodes to *, which is not nearest to 2[*][*]x", "  decoded  0x1.00000?p-64 *"]
    )
