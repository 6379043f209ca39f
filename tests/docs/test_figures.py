"""Figures say where they come from: measured pages carry their command, pictures too, and stale pages are found.

What a page says beside its figures is compared with what the program would write now; the figures themselves are made
again by `make figures`.
"""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from tests.docs.documents import DOCS, ROOT, shape
from tests.oracle.cli.running import run_well

from guarded_moments.oracle.trajectory import CONTROLS, NATIVE, OTHER_ORDER, RECOVERED, Course, Plan, Point, Trajectory
from guarded_moments.oracle.trajectory.measure import looked_at
from guarded_moments.oracle.trajectory.table import page
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance

#: Pages that a command writes, and how that command begins.
GENERATED = {
    "audit-in-parts.md": "python benchmarks/parts.py",
    "benchmark.md": "gmc bench",
    "large-state.md": "python benchmarks/large_state.py",
    "open-loop.md": "make open-loop",
    "op-models.md": "gmc ops --markdown",
    "other-implementations.md": "gmc crosscheck",
    "peers.md": "gmc peers",
    "requirements.md": "gmc requirements --markdown",
    "seeded-bugs.md": "python -m tests.meta.table",
    "trade.md": "make trade",
    "trajectory.md": "gmc trajectory",
    "trusted-base.md": "gmc prove --trusted-base",
}
SAYING_SO = re.compile(r"\b(never edited|do not edit)\b", re.IGNORECASE)


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def test_a_page_that_a_command_wrote_names_the_command() -> None:
    written = {path.name for path in DOCS.glob("*.md") if SAYING_SO.search(path.read_text(encoding="utf-8")[:700])}
    assert written == set(GENERATED)
    for name, command in GENERATED.items():
        assert command in (DOCS / name).read_text(encoding="utf-8")[:1200], name


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.stem)
def test_a_picture_stands_beside_the_command_that_draws_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for image in re.findall(r"!\[[^]]+\]\(([^)]+)\)", text):
        drawn = rf"--plot \S*{re.escape(Path(image).name)}|`make picture`"
        assert re.search(drawn, text), f"{path.name}: which command draws {image}?"


def test_the_op_models_are_those_of_the_program() -> None:
    written = (DOCS / "op-models.md").read_text(encoding="utf-8")
    assert run_well("ops", "--markdown").out == written, "gmc ops --markdown > docs/op-models.md"


def test_the_page_about_trajectories_is_what_the_program_would_write() -> None:
    written = (DOCS / "trajectory.md").read_text(encoding="utf-8")
    plan, names = Plan(200, (0, 1, 2)), [NATIVE, RECOVERED, *(name for name in CONTROLS if name != NATIVE)]
    points = [Point(update, 0.5, 0.5) for update in looked_at(plan.updates)]
    courses = [
        Course(name, order, closed, points, [1.0] * plan.updates if closed else [])
        for name in names
        for order in plan.orders
        for closed in (True, False)
        if closed or name != OTHER_ORDER
    ]
    now = page(
        Trajectory(plan, names, courses),
        command="",
        claims=[Claim(Tolerance(0.01), GradientBound(1.0), "torch-2.13/single")],
        what="N parameters, `x`",
        picture="trajectory.png",
    )

    assert shape(written) == shape(now), "make trajectory"


def benchmark(name: str) -> ModuleType:
    """A script of `benchmarks/`, imported."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_about_parts_is_what_the_program_would_write() -> None:
    parts = benchmark("parts")
    runs = [parts.Run(workers, 3.0, 3.0, 1 << 29) for workers in (1, 2)]
    now = parts.page(runs, 1 << 28, 1 << 22, 11.0, "python benchmarks/parts.py")

    written = (DOCS / "audit-in-parts.md").read_text(encoding="utf-8")

    assert shape(written) == shape(now), "make parts"


def test_the_page_about_a_large_state_is_what_the_program_would_write() -> None:
    large = benchmark("large_state")
    runs = {name: large.Run(20.0, 20.0, 1 << 30) for name in ("compress", "recover", "audit, 2 workers")}
    now = large.page(runs, large.Size(1, 1, 1, 1, 1), "log8", "python benchmarks/large_state.py")

    written = (DOCS / "large-state.md").read_text(encoding="utf-8")

    assert shape(written) == shape(now), "make large"


def test_the_page_about_shared_gradients_is_what_the_program_would_write() -> None:
    open_loop = benchmark("open_loop")
    rows = [[open_loop.Seen(0.005, 0)] * len(open_loop.HORIZONS) for _ in range(300)]

    written = (DOCS / "open-loop.md").read_text(encoding="utf-8")

    assert shape(written) == shape(open_loop.page(rows, 0.01, 1)), "make open-loop"


def test_the_page_about_bits_and_tolerances_is_what_the_program_would_write(tmp_path: Path) -> None:
    trade = benchmark("trade")
    points = [
        trade.Point(state, codec, grid, str(horizon), tolerance, 17.25, 0.0125)
        for state, codec, grid, horizon, tolerance in trade.wanted()
    ]
    facts = {"command": "make trade", "platform": "torch 2.13, CPU capability AVX2"}
    numbers = {"coordinates": 1, "tensors": 1, "early": 20.0, "middle": 400.0, "late": 100_000}

    written = (DOCS / "trade.md").read_text(encoding="utf-8")

    assert shape(written) == shape(trade.page(points, facts | numbers)), "make trade"
    trade.draw(points, tmp_path / "trade.png")
    assert (tmp_path / "trade.png").read_bytes().startswith(b"\x89PNG")


def test_points_that_are_there_are_not_measured_again(tmp_path: Path) -> None:
    trade, store = benchmark("trade"), tmp_path / "points.json"
    points = [
        trade.Point(state, codec, grid, str(horizon), tolerance, 1.0, 0.0)
        for state, codec, grid, horizon, tolerance in trade.wanted()
    ]
    assert len(points) == len({point[:5] for point in points}) > 100
    assert trade.measured({}, points, store, 0.0)
    assert not trade.measured({}, points[1:], store, 0.0)


def test_a_changed_page_would_be_found() -> None:
    written = (DOCS / "trajectory.md").read_text(encoding="utf-8")
    assert shape(written) != shape(written.replace("What follows is no guarantee", "What follows is a guarantee"))
    assert shape(written) == shape(written.replace("0.025", "0.031"))


def test_the_figures_that_take_long_have_a_target() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nfigures: ")[2].partition("\n\n")[0]
    for name in ("benchmark.md", "large-state.md", "other-implementations.md", "peers.md"):
        assert f"docs/{name}" in recipe
    assert recipe.startswith("trajectory open-loop parts trade")
