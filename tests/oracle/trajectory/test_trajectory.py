"""Training resumed from several states: what is measured is what the runs did, and the first update keeps the claim."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
from tests.oracle.cli.running import contents, gmc, read_json, run_well
from tests.oracle.trajectory.small_training import LR, SmallTraining, resume, trained

import train_language_model as example
from guarded_moments.oracle.trajectory import CONTROLS, NATIVE, OTHER_ORDER, RECOVERED, Plan, Trajectory, follow
from guarded_moments.oracle.trajectory.measure import looked_at
from guarded_moments.oracle.trajectory.table import loss_difference, page, rows
from guarded_moments.oracle.trajectory.variants import BFLOAT16, ONE_ULP, UNGUARDED, WITHOUT, ZEROED, variants_of
from guarded_moments.reference import compress, recover
from guarded_moments.reference.checkpoint import GuardedState, load_state_dict
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.claim import Horizon
from guarded_moments.reference.errors import CheckpointError, UnsupportedError

HERE = Path(__file__).parent
TRAINING = f"{HERE / 'small_training.py'}:resume"
TAU = 0.01


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="module")
def native(checkpoint: Path) -> StateDict:
    return load_state_dict(checkpoint)


@pytest.fixture(scope="module")
def state(native: StateDict) -> GuardedState:
    return compress(native, tolerance=TAU, grad_bound=math.inf)


@pytest.fixture(scope="module")
def seen(checkpoint: Path, native: StateDict, state: GuardedState) -> Trajectory:
    return follow(lambda order: resume(checkpoint, order), variants_of(state, native), Plan(12, (0, 1)))


def moments(state_dict: StateDict, name: str) -> torch.Tensor:
    return torch.cat([entry[name].flatten() for entry in state_dict["state"].values()])


def test_each_variant_is_what_its_name_says(native: StateDict, state: GuardedState) -> None:
    variants = variants_of(state, native)
    m, v = (moments(native, name) for name in ("exp_avg", "exp_avg_sq"))
    of = {name: [moments(variants[name], x) for x in ("exp_avg", "exp_avg_sq")] for name in variants if name != WITHOUT}

    assert set(variants) == {RECOVERED, *CONTROLS}
    assert variants[WITHOUT]["state"] == {}
    for name in (NATIVE, OTHER_ORDER):
        assert torch.equal(of[name][0], m)
    for found, own in zip(of[ONE_ULP], (m, v), strict=True):
        assert torch.equal((found.view(torch.int32) - own.view(torch.int32)), torch.ones(len(own), dtype=torch.int32))
    assert torch.equal(of[BFLOAT16][1], v.bfloat16().float())
    assert not of[ZEROED][0].any()
    assert not of[ZEROED][1].any()
    assert all(entry["step"] == 30 for entry in variants[ZEROED]["state"].values())
    escaped = torch.cat([tensor.escaped for tensor in state.tensors])
    assert 0 < escaped.sum() < len(escaped)
    for found, kept, own in zip(of[UNGUARDED], of[RECOVERED], (m, v), strict=True):
        assert torch.equal(found[~escaped], kept[~escaped]), "codes are the file's own where it has codes"
        assert not torch.equal(found[escaped], own[escaped]), "and what was escaped is encoded, too"


def test_no_variant_is_stepped_in_place(checkpoint: Path, native: StateDict, state: GuardedState) -> None:
    before = moments(native, "exp_avg").clone()
    follow(lambda order: resume(checkpoint, order), variants_of(state, native), Plan(2, (0,)))
    assert torch.equal(moments(native, "exp_avg"), before)


def test_the_native_state_run_again_is_the_native_run(seen: Trajectory) -> None:
    for closed in (True, False):
        points = [point for course in seen.of(NATIVE, closed=closed) for point in course.points]
        assert len(points) == 2 * len(looked_at(12))
        assert {(point.relative_l2, point.largest) for point in points} == {(0.0, 0.0)}
    assert {loss_difference(seen, course) for course in seen.of(NATIVE, closed=True)} == {0.0}


def test_the_first_update_keeps_the_claim_and_the_controls_do_not(seen: Trajectory) -> None:
    rounding = 2.0**-24 / LR  # of the parameters, which are below 2
    for closed in (True, False):
        for course in seen.of(RECOVERED, closed=closed):
            assert 0 < course.at(1).largest <= TAU + 2 * rounding
    for name in (UNGUARDED, ZEROED, WITHOUT):
        assert min(course.at(1).largest for course in seen.of(name, closed=True)) > TAU, name


def test_a_larger_disturbance_is_seen_as_larger(seen: Trajectory) -> None:
    by_name = {
        name: min(c.at(12).relative_l2 for c in seen.of(name, closed=True))
        for name in (ONE_ULP, RECOVERED, ZEROED, OTHER_ORDER)
    }
    assert 0 < by_name[ONE_ULP] < by_name[RECOVERED] < by_name[ZEROED]
    assert by_name[OTHER_ORDER] > 0.1
    assert [course.variant for course in seen.courses if course.variant == OTHER_ORDER and not course.closed] == []


def test_the_first_update_is_the_same_in_both_loops(seen: Trajectory) -> None:
    for name in seen.variants:
        for closed, opened in zip(seen.of(name, closed=True), seen.of(name, closed=False), strict=False):
            assert closed.at(1) == opened.at(1), name


def test_distances_are_those_of_runs_made_by_hand(checkpoint: Path, native: StateDict, seen: Trajectory) -> None:
    """Three updates from the recovered state, by the optimizer alone; and the same with the native run's gradients."""
    state = recover(compress(native, tolerance=TAU, grad_bound=math.inf))
    runs = [resume(checkpoint, 1) for _ in range(3)]
    for run, own in zip(runs, (native, state, state), strict=True):
        run.optimizer.load_state_dict(copied(own))
    begin = flat(runs[0])
    for update in range(3):
        for run in runs[:2]:
            run.gradients(update)
        for mine, source in zip(runs[2].model.parameters(), runs[0].model.parameters(), strict=True):
            mine.grad = source.grad
        for run in runs:
            run.optimizer.step()
    moved = (flat(runs[0]) - begin).norm()

    for run, closed in ((runs[1], True), (runs[2], False)):
        (course,) = [course for course in seen.of(RECOVERED, closed=closed) if course.order == 1]
        difference = flat(run) - flat(runs[0])
        assert course.at(3).relative_l2 == pytest.approx(float(difference.norm() / moved), rel=1e-12)
        assert course.at(3).largest == pytest.approx(float(difference.abs().max()) / LR, rel=1e-12)


def copied(state_dict: StateDict) -> StateDict:
    """A copy that a run may step in place."""
    entries = {key: {name: value.clone() for name, value in e.items()} for key, e in state_dict["state"].items()}
    return {**state_dict, "state": entries}


def flat(run: SmallTraining) -> torch.Tensor:
    return torch.cat([p.detach().flatten().double() for p in run.model.parameters()])


def test_progress_counts_every_update(checkpoint: Path, native: StateDict, state: GuardedState) -> None:
    counted: list[tuple[int, int]] = []

    follow(
        lambda order: resume(checkpoint, order),
        variants_of(state, native),
        Plan(3, (0,)),
        lambda done, total: counted.append((done, total)),
    )

    total = 3 * (len(CONTROLS) + 2)
    assert counted == [(done, total) for done in range(1, total + 1)]


def test_a_loss_that_is_no_number_is_told(checkpoint: Path, native: StateDict, state: GuardedState) -> None:
    class Broken(SmallTraining):
        def gradients(self, update: int) -> float:
            super().gradients(update)
            return math.nan

    with pytest.raises(CheckpointError, match="the loss is nan at update 1 from the native state"):
        follow(lambda order: Broken(order), variants_of(state, native), Plan(3, (0,)))  # noqa: PLW0108 - one argument


def test_several_optimizers_are_refused(native: StateDict) -> None:
    both = {"one": native, "two": native}
    with pytest.raises(UnsupportedError, match="holds 2 optimizers"):
        variants_of(compress(both, tolerance=TAU, grad_bound=1.0), both)


@pytest.mark.parametrize("updates", [1, 5, 10, 11, 200, 300])
def test_the_updates_that_are_looked_at_include_the_tables_own(updates: int) -> None:
    found = looked_at(updates)
    assert found == sorted(set(found))
    assert (found[0], found[-1]) == (1, updates)
    assert {1, 2, 10, 50, 100} & set(range(updates + 1)) <= set(found)
    assert len(found) <= 30


@pytest.mark.parametrize("horizon", [Horizon.FIRST, Horizon(10), Horizon.ALL], ids=str)
def test_the_page_says_what_is_claimed_and_that_nothing_else_is_promised(
    seen: Trajectory, state: GuardedState, horizon: Horizon
) -> None:
    claim = dataclasses.replace(state.claim_for(state.tensors[0]), horizon=horizon)
    text = page(seen, command="gmc trajectory ...", claims=[claim], what="a small one")

    assert f"The file claims: {claim.sentence()}. It claims nothing of: {claim.not_claimed()}." in text
    assert "What follows is no guarantee" in text
    assert "resumed for 12 updates, 2 times with other orders" in text
    for row in (*rows(seen, closed=True), *rows(seen, closed=False)):
        assert f"| {' | '.join(row)} |" in text
    (other,) = [row for row in rows(seen, closed=True) if row[0] == OTHER_ORDER]
    assert other[-1] == "other batches"


@pytest.fixture
def folder(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a checkpoint and its compressed form."""
    for path in checkpoint.parent.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    run_well("compress", "optimizer.pt", "optimizer.gmc", "--tolerance", TAU, "--grad-bound", "inf")
    return tmp_path


COMMAND = ("trajectory", "optimizer.gmc", "--native", "optimizer.pt", "--training")


def test_the_command_prints_both_tables_and_writes_all_of_it(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    small = ("--updates", "4", "--orders", "2")

    ran = run_well(*COMMAND, TRAINING, *small, "--json", "t.json", "--output", "t.md", "--plot", "t.svg")

    assert ran.line("claim").startswith("first update within 0.01 lr")
    assert ran.out.count(RECOVERED) == 2
    data = read_json(folder / "t.json")
    assert len(data["runs"]) == 2 * (len(CONTROLS) + 1) + 2 * len(CONTROLS)
    assert {run["loop"] for run in data["runs"]} == {"open", "closed"}
    assert all(len(run["losses"]) == 4 for run in data["runs"] if run["loop"] == "closed")
    text = (folder / "t.md").read_text(encoding="utf-8")
    assert "    gmc trajectory optimizer.gmc --native optimizer.pt" in text
    assert b"<svg" in (folder / "t.svg").read_bytes()
    again = run_well(*COMMAND, TRAINING, *small, "--json", "again.json")
    assert read_json(folder / "again.json") == data
    assert [line for line in again.out.splitlines() if "time" not in line] == [
        line for line in ran.out.splitlines() if "time" not in line
    ]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("training", "says"),
    [
        ("nothing", "expected module:callable or file.py:callable"),
        ("nowhere.py:resume", "there is no file nowhere.py"),
        ("no_such_module:resume", "cannot import no_such_module"),
        (f"{HERE / 'small_training.py'}:nothing", "there is no nothing in it"),
        (f"{HERE / 'small_training.py'}:LR", "is a float, expected something to call"),
        (f"{HERE / 'small_training.py'}:without_gradients", "has no 'optimizer' or no 'gradients(update)'"),
        (f"{HERE / 'small_training.py'}:failing", "FileNotFoundError: no data for 0 beside optimizer.pt"),
        (
            f"{HERE / 'small_training.py'}:of_other_parameters",
            "the state has groups of [4] parameters, the optimizer of [2]",
        ),
    ],
    ids=lambda text: text.rpartition("/")[2],
)
def test_a_training_that_cannot_be_resumed_is_told_in_one_line(training: str, says: str, folder: Path) -> None:
    before = contents(folder)

    ran = gmc(*COMMAND, training, "--json", "t.json")

    assert (ran.status, ran.out) == (2, ""), ran
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert contents(folder) == before


def test_the_example_resumes_at_its_own_checkpoint(tmp_path: Path) -> None:
    settings = example.Settings(steps=3, seed=0, fused=False, batch=2, context=8, width=16, blocks=1)
    text = example.read_text(settings.text_limit)
    model = example.make_model(settings)
    optimizer = example.make_optimizer(model, settings)
    example.train(model, optimizer, text, settings)
    example.save(tmp_path, model, optimizer, example.describe(settings, text))

    one, other, third = (example.resume(tmp_path / example.OPTIMIZER, order) for order in (4, 4, 5))

    saved = torch.load(tmp_path / example.MODEL, weights_only=True)
    ours = [p for group in one.optimizer.param_groups for p in group["params"]]
    assert sum(p.numel() for p in ours) == sum(p.numel() for p in saved.values())
    assert all(any(torch.equal(p, q) for q in saved.values()) for p in ours)
    assert one.gradients(0) == other.gradients(0) != third.gradients(0)
    assert one.gradients(1) == other.gradients(1)
    assert json.loads((tmp_path / example.RECORD).read_text(encoding="utf-8"))["settings"]["width"] == 16
