"""OPS: the bits of the first update.

The judge is the op model in NumPy.  Trusted: NumPy's binary32, and `torch.sqrt` where an op model names it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.elementwise import LONGEST, require_elementwise
from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.oracle.conformance.inputs import (
    SPECIAL,
    any_bits,
    ordinary_states,
    same_numbers,
    signs,
)
from guarded_moments.oracle.conformance.other_roundings import Rounding
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial
from guarded_moments.oracle.conformance.scenes import Scene
from guarded_moments.oracle.conformance.shrink import shrink, simplest
from guarded_moments.oracle.conformance.slips import Slip, Step, explaining
from guarded_moments.oracle.conformance.traces import one_update, shown, two_steps
from guarded_moments.oracle.identify.separate import ulps_apart
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.op_models import OpModel

_COUNT = 6000
_FEW = 200
_OP_MODELS = 3
_CORNER_BETAS = ((0.0, 0.0), (0.5, 0.5), (0.9, 0.999), (0.9999, 0.999999))
_CORNER_EPS = (0.0, 1e-45, 1e-8, 1.0)
_CORNER_LR = (1e-38, 1e-3, 1e4)
_CORNER_STEPS = (1.0, 2.0, 2.0**24)


def ordinary_rows(generator: torch.Generator, count: int) -> Tensor:
    """Rows `(m, v, g)` in which the gradient matters."""
    m, v = ordinary_states(generator, count)
    g = (v.double().sqrt() * torch.exp2(4 * torch.randn(count, generator=generator))).float()
    return torch.stack([m, v, g * signs(generator, count).float()], dim=1)


def _wild(generator: torch.Generator, count: int) -> Tensor:
    return torch.stack([any_bits(generator, count) for _ in range(3)], dim=1)


def updates_are_the_op_models(trial: Trial) -> None:
    """OPS-1."""
    for scene in trial.scenes:
        generator = trial.generator(f"OPS-1 {scene}")
        rows = torch.cat([_wild(generator, _COUNT), ordinary_rows(generator, _COUNT)])
        for model in scene.models:
            _require_equal(trial, model, scene, rows)


def special_values_are_computed_with(trial: Trial) -> None:
    """OPS-2."""
    rows = torch.cartesian_prod(SPECIAL, SPECIAL, SPECIAL)
    for scene in _one_of_each_op_model(trial):
        for model in scene.models:
            _require_equal(trial, model, scene, rows)


def an_update_is_its_elements_alone(trial: Trial) -> None:
    """OPS-3.  Of all op models a few, which depend on the seed."""
    scenes = _one_of_each_op_model(trial)
    chosen = torch.randperm(len(scenes), generator=trial.generator("OPS-3 op models"))[:_OP_MODELS]
    for scene in (scenes[i] for i in chosen.tolist()):
        rows = ordinary_rows(trial.generator(f"OPS-3 {scene}"), LONGEST)
        for model in scene.models:

            def operation(*columns: Tensor, scene: Scene = scene, model: OpModel = model) -> list[Tensor]:
                return [trial.backend.first_update(model, scene.options, scene.scalars, *columns)]

            require_elementwise(operation, list(rows.T.contiguous()), ("m", "v", "g"), ("the update",), f"{model.name}")


def corners_of_the_hyperparameters(trial: Trial) -> None:
    """OPS-4."""
    scenes = _one_of_each_op_model(trial)
    corners = product(_CORNER_BETAS, _CORNER_EPS, _CORNER_LR, _CORNER_STEPS)
    for index, (betas, eps, lr, step) in enumerate(corners):
        scene = replace(scenes[index % len(scenes)], betas=betas, eps=eps, lr=lr, step=step)
        generator = trial.generator(f"OPS-4 {scene}")
        rows = torch.cat([_wild(generator, _FEW), ordinary_rows(generator, _FEW)])
        for model in scene.models:
            _require_equal(trial, model, scene, rows)


def _one_of_each_op_model(trial: Trial) -> list[Scene]:
    return list({scene.op_model: scene for scene in reversed(trial.scenes)}.values())


def _require_equal(trial: Trial, model: OpModel, scene: Scene, rows: Tensor) -> None:
    asked = Step(model, scene.options, scene.scalars)

    def given(rows: Tensor) -> Tensor:
        return trial.backend.first_update(model, scene.options, scene.scalars, *rows.T.contiguous())

    def differs(rows: Tensor) -> Tensor:
        return ~same_numbers(given(rows), asked.updates(rows))

    wrong = rows[differs(rows)]
    if len(wrong):
        row = shrink(simplest(wrong), differs)
        raise _wrong_update(asked, scene, row, wrong, given(wrong), given(row.unsqueeze(0)))


def _wrong_update(
    asked: Step, scene: Scene, row: Tensor, wrong: Tensor, answers: Tensor, given: Tensor
) -> NonConformance:
    """The finding.

    Args:
        asked: the op model.
        scene: where it was asked.
        row: the simplest `(m, v, g)` found.
        wrong: other rows, for which the backend's answers are wrong too.
        answers: those.
        given: the answer for `row`, shape (1,).
    """
    m, v, g = row.tolist()
    expected = asked.updates(row.unsqueeze(0))
    slip = explaining(asked, torch.cat([row.unsqueeze(0), wrong]), torch.cat([given, answers]))
    lines = [
        f"claim  {replace(scene, op_model=asked.model.name)}",
        f"m      {hex_of(m)}",
        f"v      {hex_of(v)}",
        f"g      {hex_of(g)}",
        f"given  {shown(given)}",
        f"asked  {shown(expected)}",
        f"kind   {_kind(float(given), float(expected), slip)}",
    ]
    if slip is None:
        lines += one_update(asked, m, v, g)
    else:
        lines += [f"slip   every wrong answer looked at is explained by {slip.words}"]
        lines += two_steps(asked, (m, v, g), slip.step, slip.before(row).tolist(), f"with {slip.words}")
    return NonConformance(f"the update is {float(given):.9g}, and the op model's is {float(expected):.9g}", *lines)


def _kind(given: float, expected: float, slip: Slip | None) -> str:
    """Whether rounding alone can be the matter."""
    if slip is not None and slip.step.rounding is Rounding.TIES_AWAY:
        return "rounding tie: an exact result lies halfway between two binary32, and the even one is asked"
    if not math.isfinite(given) or not math.isfinite(expected) or (given == expected == 0):
        return "bug: another kind of value, or a zero of the other sign"
    apart = ulps_apart(given, expected)
    if apart <= 1:
        return f"rounding: {apart} ulp apart, as from another order of rounded operations"
    return f"bug: {apart:,} ulp apart"


REQUIREMENTS = (
    Requirement(
        "OPS-1",
        "The first update is the op model's, bit for bit, for every state and gradient (NaN payloads apart).",
        "The guarantee is about one sequence of rounded operations; another product fused is another sequence, "
        "and the tolerance may be spent by it.",
        Level.SOUND,
        updates_are_the_op_models,
        needs=("first_update",),
    ),
    Requirement(
        "OPS-2",
        "Zeros of both signs, subnormals, the largest numbers, infinities and NaN are computed with as the op model "
        "does: nothing is flushed, clamped or skipped.",
        "Moments decay through the subnormals; a kernel that flushes them moves coordinates that have stopped.",
        Level.SOUND,
        special_values_are_computed_with,
        needs=("first_update",),
    ),
    Requirement(
        "OPS-3",
        "An update depends on its own element alone: not on the tensor's size, the element's place, the stride or the "
        "alignment.",
        "The last elements of a tensor are often another piece of code, and a guard was told of one.",
        Level.SOUND,
        an_update_is_its_elements_alone,
        needs=("first_update",),
    ),
    Requirement(
        "OPS-4",
        "The update is the op model's at every corner of the hyperparameters: betas from 0 to nearly 1, eps from 0 to "
        "1, updates 1, 2 and 2**24, tiny and huge learning rates.",
        "A weight of at least one half is interpolated from the other end, and the first updates are corrected most.",
        Level.SOUND,
        corners_of_the_hyperparameters,
        needs=("first_update",),
    ),
)
