"""The page leaves nothing out: every implementation is in it, measured or with the reason why not."""

import re
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from typing import NoReturn

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.oracle.cli.running import contents, gmc, run_well
from tests.oracle.crosscheck.stand_ins import COUNT, StandIn, coarse

from guarded_moments.oracle.crosscheck import ADAPTERS, After, NotMeasured, Report, cross_check, markdown
from guarded_moments.oracle.crosscheck.report import CrossCheck

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "other-implementations.md"


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    section = page.split(f"## {heading}\n")[1].splitlines()
    start = next(i for i, line in enumerate(section) if line.startswith("|"))
    table = takewhile(lambda line: line.startswith("|"), section[start:])
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table][2:]


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every package but torch is missing."""

    def version(package: str) -> str:
        if package != "torch":
            raise metadata.PackageNotFoundError(package)
        return "2.13.0"

    monkeypatch.setattr("guarded_moments.oracle.crosscheck.adapter.metadata.version", version)


@pytest.fixture(scope="module")
def report() -> Report:
    return cross_check([ADAPTERS["torch-single"], ADAPTERS["torch-fused"], StandIn(codec=coarse)], count=COUNT)


def test_missing_packages_are_said(nothing_installed: None) -> None:
    names = [name for name, adapter in ADAPTERS.items() if adapter.packages != ("torch",)]
    assert len(names) == 10
    check = CrossCheck(count=256)
    page = markdown(check.report([check.measure(ADAPTERS[name]) for name in names]), "gmc crosscheck")

    found = rows(page, "Which op model each follows")
    assert [row[0] for row in found] == [ADAPTERS[name].title for name in names]
    assert all(row[1].startswith("not measured: package not installed (") for row in found)
    assert found[0][1].endswith("(optax, jax, jaxlib)")


def test_a_failing_package_is_said() -> None:
    def fail(after: After) -> NoReturn:
        raise RuntimeError("no compiler | here\nand more")

    result = CrossCheck(count=256).measure(StandIn(fail))

    assert isinstance(result, NotMeasured)
    assert result.reason == "failed with RuntimeError: no compiler | here"


def test_a_control_and_a_format_are_rendered(report: Report) -> None:
    page = markdown(report, "gmc crosscheck --seed 1")

    assert "\n    gmc crosscheck --seed 1\n" in page
    assert f"| seed | {report.seed} |" in page
    assert f"| CPU | {report.machine.cpu} |" in page
    single, fused, stand_in = rows(page, "Which op model each follows")
    assert f"`{report.native}`" in single[1]
    assert single[2].endswith(f"all {4 * COUNT:,} equal")
    assert f"`{report.native}`" not in fused[1]
    assert stand_in[0] == "a stand-in"
    assert rows(page, "What that does to the first update")[0] == ["torch AdamW, single", *["0 / 0"] * 4]
    assert [row[0] for row in rows(page, "Special values")] == ["torch AdamW, single", "torch AdamW, fused"]
    assert [row[1] for row in rows(page, "What quantised moments do, unguarded")] == ["10", "400", "100,000"]
    assert len(rows(page, "How each is written")) == 3


def test_every_table_has_as_many_cells_in_each_row(report: Report) -> None:
    failed = NotMeasured(ADAPTERS["optax-adam"], "failed with E: a | b")
    page = markdown(Report(**(vars(report) | {"results": (*report.results, failed)})), "gmc crosscheck")

    width = 0
    for line in page.splitlines():
        cells = line.replace("\\|", "").count("|")
        assert cells in {0, width} or width == 0, line
        width = cells
    assert "a \\| b" in page


def test_the_same_states_give_the_same_page(report: Report) -> None:
    again = cross_check([result.adapter for result in report.results], count=COUNT)

    assert markdown(again, "gmc crosscheck") == markdown(report, "gmc crosscheck")


def test_the_command_writes_the_page_and_names_what_it_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run_well("crosscheck", "--only", "torch-single", "--output", "page.md")

    assert ran.out == f"page.md: 1 of {len(ADAPTERS)} implementations measured\n"
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "\n    gmc crosscheck --only torch-single --output page.md --force\n" in page
    found = rows(page, "Which op model each follows")
    assert [row[0] for row in found] == [adapter.title for adapter in ADAPTERS.values()]
    assert [row[1] for row in found[1:]] == ["not measured: left out with --only"] * (len(ADAPTERS) - 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("--only", "tensorflow"),
            "no implementation 'tensorflow' is known to the cross-check; known are: torch-single,",
        ),
        (("--output", "there.md"), "there.md: exists already; nothing was written (--force replaces it)"),
        (("--output", "nowhere/page.md"), "nowhere/page.md: cannot be written: No such file or directory"),
        (("--seed", "-1"), "Invalid value for '--seed': -1 is not in the range x>=0."),
    ],
)
def test_bad_requests_are_refused_in_a_line(
    arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.md").write_text("kept", encoding="utf-8")
    ran = gmc("crosscheck", *arguments)

    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert says in ran.err
    assert contents(tmp_path) == {"there.md": b"kept"}


def test_the_page_in_the_docs_has_every_implementation_measured() -> None:
    """It is generated where the extra is installed; the numbers are that machine's."""
    page = PAGE.read_text(encoding="utf-8")

    found = rows(page, "Which op model each follows")
    assert [row[0] for row in found] == [adapter.title for adapter in ADAPTERS.values()]
    assert not any("not measured" in row[1] for row in found)
    assert "\n    gmc crosscheck --output docs/other-implementations.md --force\n" in page


def test_the_page_in_the_docs_quotes_the_pinned_versions() -> None:
    lines = (ROOT / "constraints-crosscheck.txt").read_text(encoding="utf-8").splitlines()
    pins = {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in (Requirement(line) for line in lines if line and not line.startswith("#"))
    }
    ours = map(Requirement, metadata.requires("guarded-moments") or [])
    extra = [r for r in ours if r.marker is not None and r.marker.evaluate({"extra": "crosscheck"})]
    page = PAGE.read_text(encoding="utf-8")

    for requirement in extra:
        name = canonicalize_name(requirement.name)
        assert requirement.specifier.contains(pins[name])
        assert f"{name} {pins[name]}" in page
