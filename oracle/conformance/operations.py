"""OPS: the bits of the first update.

The judge is the op model in NumPy.  Trusted: NumPy's binary32, and `torch.sqrt` where an op model names it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.inputs import any_bits, ordinary_states, same_numbers, signs
from guarded_moments.oracle.conformance.requirements import Level, NonConformance, Requirement, Trial
from guarded_moments.oracle.conformance.scenes import SCENES, Scene
from guarded_moments.oracle.conformance.shrink import shrink, simplest
from guarded_moments.oracle.conformance.traces import one_update
from guarded_moments.reference.adam import Scalars, make_update
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.op_models import OpModel

_COUNT = 6000


def _inputs(generator: torch.Generator) -> Tensor:
    """States and gradients as rows `(m, v, g)`: wild ones, and ordinary ones whose gradient matters."""
    wild = torch.stack([any_bits(generator, _COUNT) for _ in range(3)], dim=1)
    m, v = ordinary_states(generator, _COUNT)
    g = (v.double().sqrt() * torch.exp2(4 * torch.randn(_COUNT, generator=generator))).float()
    return torch.cat([wild, torch.stack([m, v, g * signs(generator, _COUNT).float()], dim=1)])


def _expected(model: OpModel, scene: Scene, rows: Tensor) -> Tensor:
    op = NumpyBinary32()
    scalars = Scalars(*(op.constant(value) for value in scene.scalars))
    m, v, g = (column.numpy() for column in rows.T.contiguous())
    return torch.from_numpy(make_update(op, model, scene.options)(m, v, g, scalars))


def updates_are_the_op_models(trial: Trial) -> None:
    """OPS-1."""
    for scene in SCENES:
        rows = _inputs(trial.generator(f"OPS-1 {scene}"))
        for model in scene.models:
            _require_equal(trial, model, scene, rows)


def _require_equal(trial: Trial, model: OpModel, scene: Scene, rows: Tensor) -> None:
    def given(rows: Tensor) -> Tensor:
        return trial.backend.first_update(model, scene.options, scene.scalars, *rows.T.contiguous())

    def differs(rows: Tensor) -> Tensor:
        return ~same_numbers(given(rows), _expected(model, scene, rows))

    wrong = rows[differs(rows)]
    if len(wrong) == 0:
        return
    row = shrink(simplest(wrong), differs)
    m, v, g = row.tolist()
    update, expected = float(given(row.unsqueeze(0))), float(_expected(model, scene, row.unsqueeze(0)))
    raise NonConformance(
        f"the update is {update:.9g}, and the op model's is {expected:.9g}",
        f"claim  {replace(scene, op_model=model.name)}",
        f"m      {hex_of(m)}",
        f"v      {hex_of(v)}",
        f"g      {hex_of(g)}",
        f"given  {hex_of(update)}",
        *one_update(model, scene.options, scene.scalars, m, v, g),
    )


REQUIREMENTS = (
    Requirement(
        "OPS-1",
        "The first update is the op model's, bit for bit, for every state and gradient (NaN payloads apart).",
        "The guarantee is about one sequence of rounded operations; another product fused is another sequence, "
        "and the tolerance may be spent by it.",
        Level.SOUND,
        updates_are_the_op_models,
    ),
)
