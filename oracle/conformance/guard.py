"""GRD: what a guard accepts.

Every accepted pair is decided by the exact worst-case search on the bit-exact op models.  Trusted: that search, for the
word SAFE; a gradient that it names as a witness is evaluated again in the trace that is printed.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.inputs import (
    INFINITIES,
    NANS,
    POSITIVE,
    log_uniform,
    ordinary_states,
    signs,
)
from guarded_moments.oracle.conformance.pairs import Guard, accepted_pairs
from guarded_moments.oracle.conformance.requirements import (
    Level,
    NonConformance,
    Requirement,
    Trial,
    Undecided,
)
from guarded_moments.oracle.conformance.scenes import SCENES, Scene
from guarded_moments.oracle.conformance.shrink import shrink, simplest
from guarded_moments.oracle.conformance.traces import two_updates
from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.oracle.worst_case import Verdict, decide
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard import in_domain
from guarded_moments.reference.guard.search import States, enclose
from guarded_moments.reference.op_models import OpModel

_LINES = 750  #: of each kind of native state, a scene
_ORDINARY = 4000
_LEAST_SHARE = 0.1
_PROBE_ROUNDS = 3
_PROBE_NEIGHBOURS = 8
_SMALLEST_NORMAL = 2.0**-126


def accepted_pairs_are_safe(trial: Trial) -> None:
    """GRD-1.  Likely gradients first, in all scenes: a violation that they show needs no search."""
    found = []
    for scene in SCENES:
        pairs = accepted_pairs(trial.generator(f"GRD-1 {scene}"), _guard(trial, scene), _LINES)
        found.append((scene, pairs))
        gradients = _likely_gradients(scene, pairs)
        for model in scene.models:
            deviations = Trajectories(model, scene.options, scene.scalars).deviations(pairs, gradients)
            _require_safe(trial, scene, model, pairs, gradients, deviations > scene.constants.threshold)
    for scene, pairs in found:
        for model in scene.models:
            decisions = decide(scene.constants, Trajectories(model, scene.options, scene.scalars), pairs)
            unsafe = decisions.verdict == Verdict.UNSAFE
            _require_safe(trial, scene, model, pairs, decisions.witness, unsafe)
            undecided = decisions.verdict == Verdict.UNDECIDED
            if bool(undecided.any()):
                m, v, m_hat, v_hat = (hex_of(float(x[undecided][0])) for x in pairs)
                msg = f"{int(undecided.sum())} of {len(undecided)} accepted pairs were not decided within the budget"
                raise Undecided(f"{msg}, among them\n  {m=} {v=} {m_hat=} {v_hat=}\n  {scene}")


def _likely_gradients(scene: Scene, pairs: States) -> Tensor:
    """Near each pair's worst gradient in real arithmetic: neighbours, their negatives, and zero; shape (k, n)."""
    worst = enclose(scene.constants, pairs, rounds=_PROBE_ROUNDS).gradient.float()
    bits = worst.view(torch.int32) + torch.arange(-_PROBE_NEIGHBOURS, 1, dtype=torch.int32).unsqueeze(1)
    around = torch.where(worst.abs() > _SMALLEST_NORMAL, bits.view(torch.float32), worst)
    return torch.cat([around, -around, torch.zeros_like(worst).unsqueeze(0)])


def _require_safe(trial: Trial, scene: Scene, model: OpModel, pairs: States, gradients: Tensor, unsafe: Tensor) -> None:
    """Fail with one of the pairs, where there is a gradient that violates the claim."""
    if bool(unsafe.any()):
        moments = (moment.expand_as(unsafe)[unsafe] for moment in pairs)
        rows = torch.stack([*moments, gradients[unsafe]], dim=1)
        raise _unsound(_guard(trial, scene), scene, model, rows)


def _guard(trial: Trial, scene: Scene) -> Guard:
    def guard(m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        return trial.backend.guard(scene.constants, m, v, m_hat, v_hat)

    return guard


def _unsound(guard: Guard, scene: Scene, model: OpModel, rows: Tensor) -> NonConformance:
    """The simplest of the rows `(m, v, m_hat, v_hat, g)`, each of which is accepted and violates the claim."""
    trajectories = Trajectories(model, scene.options, scene.scalars)
    limit = scene.constants.gradient_bound

    def violates(rows: Tensor) -> Tensor:
        *moments, g = rows.T.contiguous()
        states = States(*moments)
        inside = in_domain(states.m, states.v) & in_domain(states.m_hat, states.v_hat) & (g.abs() <= limit)
        beyond = trajectories.deviations(states, g) > scene.constants.threshold
        violating: Tensor = guard(*states) & inside & beyond
        return violating

    row = shrink(simplest(rows), violates)
    m, v, m_hat, v_hat, g = row.tolist()
    deviation = float(trajectories.deviations(States(*row[:4].unsqueeze(1)), row[4:])) / scene.lr
    return NonConformance(
        f"accepted a pair whose update deviates by {deviation:.9g} lr, tolerance {scene.tolerance:g} lr",
        f"claim      {replace(scene, op_model=model.name)}",
        f"native     m = {hex_of(m)}  v = {hex_of(v)}",
        f"recovered  m = {hex_of(m_hat)}  v = {hex_of(v_hat)}",
        f"gradient   g = {hex_of(g)}",
        *two_updates(model, scene.options, scene.scalars, (m, v), (m_hat, v_hat), g),
    )


def what_cannot_be_handled_is_rejected(trial: Trial) -> None:
    """GRD-2."""
    good = torch.tensor([2.0**-10, 2.0**-18])
    bad_m, bad_v = torch.cat([NANS, INFINITIES]), torch.cat([NANS, INFINITIES, -POSITIVE])
    for scene in SCENES:
        guard = _guard(trial, scene)
        for bad, moment in ((bad_m, 0), (bad_v, 1)):
            for places in ((0,), (1,), (0, 1)):  # native, recovered, both alike
                pair = good.repeat(len(bad), 2, 1)
                for place in places:
                    pair[:, place, moment] = bad
                accepts = guard(*(column.contiguous() for column in pair.flatten(1).T))
                if bool(accepts.any()):
                    row = pair[accepts][0].flatten().tolist()
                    names = ("m", "v", "m_hat", "v_hat")
                    what = " and ".join(names[2 * place + moment] for place in places)
                    raise NonConformance(
                        f"accepted a pair whose {what} is {float(bad[accepts][0])}",
                        f"claim  {scene}",
                        *(f"{name:5}  {hex_of(x)}" for name, x in zip(names, row, strict=True)),
                    )


def neither_all_nor_nothing_is_accepted(trial: Trial) -> None:
    """GRD-3."""
    scene = SCENES[0]
    generator = trial.generator("GRD-3")
    m, v = ordinary_states(generator, _ORDINARY)
    dm, dv = (1 + signs(generator, _ORDINARY) * log_uniform(generator, _ORDINARY, 1e-6, 0.99) for _ in range(2))
    accepts = _guard(trial, scene)(m, v, (m.double() * dm).float(), (v.double() * dv).float())
    share = float(accepts.double().mean())
    if not _LEAST_SHARE <= share <= 1 - _LEAST_SHARE:
        raise NonConformance(
            f"accepted {share:.1%} of pairs whose moments differ by a millionth to all of their size",
            f"claim  {scene}",
            f"expected between {_LEAST_SHARE:.0%} and {1 - _LEAST_SHARE:.0%}",
        )


REQUIREMENTS = (
    Requirement(
        "GRD-1",
        "No accepted pair has a gradient within the bound whose two updates differ by more than the tolerance.",
        "This is the guarantee.",
        Level.SOUND,
        accepted_pairs_are_safe,
    ),
    Requirement(
        "GRD-2",
        "A pair with NaN, an infinity or a negative second moment is rejected, and so stored exactly.",
        "Comparisons with NaN are false both ways round, so that a guard written as `not (bound > tau)` accepts it.",
        Level.SOUND,
        what_cannot_be_handled_is_rejected,
    ),
    Requirement(
        "GRD-3",
        "Of ordinary pairs, some near and some far, at least a tenth is accepted and at least a tenth rejected.",
        "A guard that accepts nothing is sound and compresses nothing; one that accepts all was not asked.",
        Level.REPRODUCIBLE,
        neither_all_nor_nothing_is_accepted,
    ),
)
