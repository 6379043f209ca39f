"""`pytest --oracle`, run as users run it: what it adds, what it leaves alone, what it says."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from guarded_moments.oracle import conformance
from guarded_moments.oracle.conformance import NonConformance, NotJudged, Requirement, Trial, Undecided

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
        *(replace(sound, identifier=identifier, check=check) for identifier, check in checks.items()),
        replace(reproducible, identifier="PAS-2", check=passes),
    )
    monkeypatch.setattr(conformance, "REQUIREMENTS", quick)
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
    result.assert_outcomes(passed=4, deselected=len(conformance.REQUIREMENTS) - 4)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["oracle: backend reference, torch 2.*, seed *, op models torch-*", "oracle::reference::GRD-2 PASSED*"]
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


@pytest.mark.parametrize("backend", ["my_kernels:backend", "kernel.py:kernel", "tests", ""])
def test_another_backend_is_refused_in_one_line(pytester: pytest.Pytester, backend: str) -> None:
    pytester.makepyfile(A_TEST)
    result = pytester.runpytest_inprocess(f"--oracle={backend}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = f"backend {backend!r} cannot be loaded yet: this version judges only the built-in reference"
    assert [line for line in result.errlines if line] == [f"ERROR: --oracle={backend}: {said}"]


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
    result = pytester.runpytest_inprocess("--oracle", "-k", "DEC-1 or DEC-2")
    result.assert_outcomes(passed=1, failed=1, deselected=len(conformance.REQUIREMENTS) - 2)
    result.stdout.fnmatch_lines(
        ["v code 0x01 decodes to *, which is not nearest to 2[*][*]x", "  decoded  0x1.00000?p-64 *"]
    )
