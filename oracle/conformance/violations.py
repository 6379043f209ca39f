"""A pair of states and a gradient that break the claim, as lines that can be checked by hand."""

from __future__ import annotations

import shlex
from dataclasses import replace

from torch import Tensor

from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.oracle.conformance.scenes import Scene
from guarded_moments.oracle.conformance.traces import two_updates
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard.search import States, slack_of
from guarded_moments.reference.op_models import OpModel


def violation(scene: Scene, model: OpModel, states: States, gradient: Tensor, deviation: float) -> NonConformance:
    """The finding.

    Args:
        scene: the claim.
        model: the op model of the element.
        states: one pair, shape (1,), accepted by the backend.
        gradient: shape (1,), within the bound.
        deviation: of the op model's two updates there, in units of the parameter.
    """
    m, v, m_hat, v_hat, g = (float(value) for value in (*states, gradient))
    return NonConformance(
        f"accepted a pair whose update deviates by {deviation / scene.lr:.9g} lr, tolerance {scene.tolerance:g} lr",
        f"claim      {replace(scene, op_model=model.name)}",
        f"native     m = {hex_of(m)}  v = {hex_of(v)}",
        f"recovered  m = {hex_of(m_hat)}  v = {hex_of(v_hat)}",
        f"gradient   g = {hex_of(g)}",
        f"kind       {_kind(scene, states, deviation)}",
        *two_updates(model, scene.options, scene.scalars, (m, v), (m_hat, v_hat), g),
        f"see        {explain_line(scene, (m, v), (m_hat, v_hat), g)}",
    )


def _kind(scene: Scene, states: States, deviation: float) -> str:
    """Whether the excess may be the rounding of the two updates alone."""
    excess, slack = deviation - scene.constants.threshold, float(slack_of(scene.constants, states))
    if excess <= slack:
        return (
            f"rounding: {excess / scene.lr:.3g} lr beyond the tolerance, which the rounding of both updates, "
            f"{slack / scene.lr:.3g} lr at most, may explain; the guard leaves it too little room"
        )
    return (
        f"bug: {excess / scene.lr:.3g} lr beyond the tolerance, more than rounding can do ({slack / scene.lr:.3g} lr)"
    )


def explain_line(scene: Scene, native: tuple[float, float], recovered: tuple[float, float], g: float) -> str:
    """A command that shows the pair and its updates again."""
    words = [
        "gmc",
        "explain",
        *("--m", _short(native[0]), "--v", _short(native[1])),
        *("--recovered", _short(recovered[0]), _short(recovered[1]), "--gradient", _short(g)),
        *("--tolerance", repr(scene.tolerance), "--grad-bound", repr(scene.gradient_bound)),
        *("--lr", repr(scene.lr), "--beta1", repr(scene.betas[0]), "--beta2", repr(scene.betas[1])),
        *("--eps", repr(scene.eps), "--step", repr(scene.step), "--op-model", scene.op_model),
    ]
    return shlex.join(words)


def _short(value: float) -> str:
    return hex_of(value).partition(" ")[0]
