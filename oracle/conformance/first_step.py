"""REC, of a step that decodes as it goes: the first step after recovery must be recovery, then the step.

The judge decodes with the reference, puts the exact pairs in their places, and steps with the op model in NumPy.
Trusted: as for `operations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.backend import Codes, Stepped
from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.oracle.conformance.inputs import GRIDS, any_bits, same_numbers, signs
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial
from guarded_moments.oracle.conformance.scenes import Scene
from guarded_moments.oracle.tracing import trace_step
from guarded_moments.reference.adam import Scalars, StepOptions, make_step
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.checkpoint.state import decoded
from guarded_moments.reference.codecs import Log8
from guarded_moments.reference.codecs.log8 import ESCAPE
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.op_models import OpModel

_COUNT = 4099  #: no multiple of any vector length, and beyond a block
_SIZES = (0, 1, 2, 7, 8, 9, 63, 64, 65)
#: An escape lies before and at each: where blocks and vectors end.
_EDGES = (0, 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_ESCAPED = 0.05
_DECAYS: tuple[dict[str, Any], ...] = (
    {},
    {"weight_decay": 0.1, "decoupled": True},
    {"weight_decay": 0.1, "decoupled": False},
)


def the_first_step_is_recovery_then_the_step(trial: Trial) -> None:
    """REC-4.  Each op model with one kind of weight decay, every other one maximising."""
    scenes = list({scene.op_model: scene for scene in reversed(trial.scenes)}.values())
    for index, scene in enumerate(scenes):
        h = replace(scene.hyperparameters, **_DECAYS[index % len(_DECAYS)], maximize=index % 2 == 1)
        generator = trial.generator(f"REC-4 {scene}")
        for model in scene.models:
            for count in (_COUNT, *_SIZES):
                _require_equal(trial, scene, model, h, _Tensor.drawn(generator, count, index))


class _Tensor:
    """One tensor's codes with their exact pairs, its parameter and gradient."""

    def __init__(self, codes: Codes, escapes: Tensor, grids: int, p: Tensor, g: Tensor) -> None:
        self.codes, self.escapes, self.grids, self.p, self.g = codes, escapes, GRIDS[grids % len(GRIDS)], p, g

    @classmethod
    def drawn(cls, generator: torch.Generator, count: int, grids: int) -> _Tensor:
        """Any codes, exact pairs of any bits at the edges of blocks and elsewhere, any parameter, any gradient."""
        m_codes, v_codes = torch.randint(0, 256, (2, count), generator=generator).to(torch.uint8)
        escaped = torch.rand(count, generator=generator) < _ESCAPED
        escaped[[at for edge in _EDGES for at in (edge - 1, edge) if 0 <= at < count]] = True
        m_codes[m_codes == ESCAPE] = 0
        m_codes[escaped], v_codes[escaped] = ESCAPE, 0
        escapes = any_bits(generator, 2 * int(escaped.sum())).reshape(-1, 2)
        ordinary = 1e-2 * torch.randn(count, generator=generator)
        p = torch.where(torch.rand(count, generator=generator) < _ESCAPED, any_bits(generator, count), ordinary)
        small = (1e-3 * signs(generator, count) * torch.rand(count, generator=generator)).float()
        g = torch.where(torch.rand(count, generator=generator) < _ESCAPED, any_bits(generator, count), small)
        return cls(Codes(m_codes, v_codes), escapes, grids, p, g)


def _expected(model: OpModel, options: StepOptions, scalars: Scalars[float], given: _Tensor) -> tuple[Stepped, Stepped]:
    """What is recovered, beside the parameter as it was; and what the step makes of it."""
    op = NumpyBinary32()
    m, v = decoded(Log8(given.grids.m, given.grids.v), *given.codes, given.escapes)
    constants = Scalars(*(op.constant(value) for value in scalars))
    p, g, first, second = (column.numpy() for column in (given.p, given.g, m, v))
    after = make_step(op, model, options)(p, g, first, second, second, constants)
    return Stepped(given.p, m, v), Stepped(*(torch.from_numpy(part.copy()) for part in after[:3]))


def _require_equal(trial: Trial, scene: Scene, model: OpModel, h: Hyperparameters, given: _Tensor) -> None:
    scalars = scene.implementation.scalars(h, scene.step)
    before, expected = _expected(model, h.options, scalars, given)
    answer = trial.backend.first_step(
        model, h.options, scalars, given.codes, given.escapes, given.grids, given.p.clone(), given.g.clone()
    )
    for name, right, got in zip(Stepped._fields, expected, answer, strict=True):
        wrong = ~same_numbers(right, got)
        if bool(wrong.any()):
            at = int(wrong.nonzero()[0])
            escaped = bool(given.codes.m[at] == ESCAPE)
            p, m, v, g = (float(column[at]) for column in (*before, given.g))
            raise NonConformance(
                f"the first step after recovery gives another {name} than recovery followed by the step",
                f"claim      {scene}, {h.options}",
                f"op model   {model.name}",
                f"where      element {at} of {len(right)}, {'an escape' if escaped else 'no escape'}; "
                f"{int(wrong.sum())} elements differ",
                f"before     p = {hex_of(p)}  g = {hex_of(g)}",
                f"recovered  m = {hex_of(m)}  v = {hex_of(v)}",
                f"given      {name} = {hex_of(float(got[at]))}",
                f"asked      {name} = {hex_of(float(right[at]))}",
                *_trace(model, h.options, scalars, {"p": p, "g": g, "m": m, "v": v, "vmax": v}),
            )


def _trace(model: OpModel, options: StepOptions, scalars: Scalars[float], inputs: dict[str, float]) -> Iterator[str]:
    operations, _ = trace_step(model, options, scalars, inputs)
    return (f"{operation.name} = {operation.formula} = {hex_of(operation.result)}" for operation in operations)


REQUIREMENTS = (
    Requirement(
        "REC-4",
        "A step that decodes as it goes gives the parameter and the moments that recovery followed by the op model's "
        "step gives, bit for bit (NaN payloads apart), escapes and every kind of weight decay included.",
        "The guarantee is about the step after recovery; one that is fused with it must be the same step.",
        Level.SOUND,
        the_first_step_is_recovery_then_the_step,
        needs=("first_step",),
    ),
)
