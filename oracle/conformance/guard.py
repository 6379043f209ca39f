"""GRD: what a guard accepts.

Every accepted pair is decided by the exact worst-case search on the bit-exact op models.  Trusted: that search, for the
word SAFE; a gradient that it names as a witness is evaluated again in the trace that is printed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.backend import Grids
from guarded_moments.oracle.conformance.elementwise import LONGEST, require_elementwise
from guarded_moments.oracle.conformance.findings import NonConformance, Undecided
from guarded_moments.oracle.conformance.inputs import (
    GRIDS,
    INFINITIES,
    NANS,
    POSITIVE,
    log_uniform,
    ordinary_states,
    signs,
)
from guarded_moments.oracle.conformance.pairs import (
    Accepted,
    Guard,
    accepted_pairs,
    edge_pairs,
    joined,
    quantised_pairs,
)
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial
from guarded_moments.oracle.conformance.scenes import Scene
from guarded_moments.oracle.conformance.shrink import shrink, simplest
from guarded_moments.oracle.conformance.violations import violation
from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.oracle.worst_case import Verdict, decide
from guarded_moments.reference.codecs import LogGrid
from guarded_moments.reference.codecs.log8 import M_LEVELS, V_LEVELS
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard import closed_form_guard, in_domain
from guarded_moments.reference.guard.enclosure import enclose
from guarded_moments.reference.guard.search import States, slack_of
from guarded_moments.reference.op_models import OpModel

_LINES = 400  #: of each kind of native state, a scene
_HARD_LAST, _HARD_BEFORE = 2, 100  #: pairs beyond the closed form that are decided, a scene
_ORDINARY = 4000
_LEAST_SHARE = 0.1
_PROBE_ROUNDS = 3
_PROBE_NEIGHBOURS = 8
_SMALLEST_NORMAL = 2.0**-126
_ON_THE_EDGE, _EDGE_ROUNDS = 60, 12
_QUANTISED = 500


def accepted_pairs_are_safe(trial: Trial) -> None:
    """GRD-1.  Likely gradients first, in all scenes."""
    found = []
    for scene in trial.scenes:
        generator = trial.generator(f"GRD-1 {scene}")
        accepted = accepted_pairs(generator, _guard(trial, scene), _LINES)
        pairs = joined(*accepted)
        found.append((scene, _worth_deciding(generator, scene, accepted)))
        _try_likely_gradients(trial, scene, pairs)
    for scene, pairs in found:
        _decide_all(trial, scene, pairs)


def _worth_deciding(generator: torch.Generator, scene: Scene, accepted: Accepted) -> States:
    """What a closed form accepts too, and a sample of the rest.

    A pair that a tight guard accepts last has its worst case at the tolerance to the last bit, and deciding it means to
    go through millions of gradients: a tenth of a second each.
    """
    chosen = []
    for pairs, most in ((accepted.last, _HARD_LAST), (accepted.before, _HARD_BEFORE)):
        hard = ~closed_form_guard(scene.constants, *pairs)
        order = torch.randperm(int(hard.sum()), generator=generator)[:most]
        chosen.append(joined(pairs.select(~hard), pairs.select(hard.nonzero().flatten()[order])))
    return joined(*chosen)


def _decide_all(trial: Trial, scene: Scene, pairs: States) -> None:
    """Fail with a pair of which some gradient violates the claim, or that could not be decided."""
    for model in scene.models:
        decisions = decide(scene.constants, Trajectories(model, scene.options, scene.scalars), pairs)
        unsafe = decisions.verdict == Verdict.UNSAFE
        _require_safe(trial, scene, model, pairs, decisions.witness, unsafe)
        undecided = decisions.verdict == Verdict.UNDECIDED
        if bool(undecided.any()):
            m, v, m_hat, v_hat = (hex_of(float(x[undecided][0])) for x in pairs)
            msg = f"{int(undecided.sum())} of {len(undecided)} accepted pairs were not decided within the budget"
            raise Undecided(f"{msg}, among them\n  {m=} {v=} {m_hat=} {v_hat=}\n  {scene}")


def _try_likely_gradients(trial: Trial, scene: Scene, pairs: States) -> None:
    """Fail where one of a few gradients violates the claim: a violation that they show needs no search."""
    gradients = likely_gradients(scene, pairs)
    for model in scene.models:
        deviations = Trajectories(model, scene.options, scene.scalars).deviations(pairs, gradients)
        _require_safe(trial, scene, model, pairs, gradients, deviations > scene.constants.threshold)


def likely_gradients(scene: Scene, pairs: States) -> Tensor:
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
    """The simplest of the rows `(m, v, m_hat, v_hat, g)`, each of which is accepted and violates the claim.

    Where there are some that no rounding explains, it is one of those.
    """
    trajectories = Trajectories(model, scene.options, scene.scalars)
    limit = scene.constants.gradient_bound

    def violates(rows: Tensor, *, plainly: bool) -> Tensor:
        *moments, g = rows.T.contiguous()
        states = States(*moments)
        inside = in_domain(states.m, states.v) & in_domain(states.m_hat, states.v_hat) & (g.abs() <= limit)
        slack = slack_of(scene.constants, states) if plainly else 0.0
        beyond = trajectories.deviations(states, g) > scene.constants.threshold + slack
        violating: Tensor = guard(*states) & inside & beyond
        return violating

    plain = violates(rows, plainly=True)
    plainly = bool(plain.any())
    row = shrink(simplest(rows[plain] if plainly else rows), partial(violates, plainly=plainly))
    states, g = States(*row[:4].unsqueeze(1)), row[4:]
    return violation(scene, model, states, g, float(trajectories.deviations(states, g)))


def what_cannot_be_handled_is_rejected(trial: Trial) -> None:
    """GRD-2."""
    good = torch.tensor([2.0**-10, 2.0**-18])
    bad_m, bad_v = torch.cat([NANS, INFINITIES]), torch.cat([NANS, INFINITIES, -POSITIVE])
    for scene in trial.scenes:
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
    scene = trial.scenes[0]
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


def a_verdict_is_its_pairs_alone(trial: Trial) -> None:
    """GRD-4."""
    scene = trial.scenes[0]
    generator = trial.generator("GRD-4")
    m, v = ordinary_states(generator, LONGEST)
    moved = [1 + signs(generator, LONGEST) * log_uniform(generator, LONGEST, 1e-6, 0.99) for _ in range(2)]
    columns = [m, v, (m.double() * moved[0]).float(), (v.double() * moved[1]).float()]

    def operation(*states: Tensor) -> list[Tensor]:
        return [_guard(trial, scene)(*states)]

    require_elementwise(operation, columns, ("m", "v", "m_hat", "v_hat"), ("the verdict",), str(scene))


def one_ulp_beyond_the_tolerance_is_rejected(trial: Trial) -> None:
    """GRD-5."""
    for scene in trial.scenes:
        for model in scene.models:
            trajectories = Trajectories(model, scene.options, scene.scalars)
            pairs = edge_pairs(trial.generator(f"GRD-5 {scene} {model.name}"), _ON_THE_EDGE)
            worst = enclose(scene.constants, pairs, rounds=_EDGE_ROUNDS)
            gradients = worst.gradient.float()
            for index, deviation in enumerate(trajectories.deviations(pairs, gradients).tolist()):
                below = math.nextafter(deviation, 0.0)
                if not 0.0 < below < math.inf:
                    continue
                constants = scene.constants._replace(threshold=below)
                states = pairs.select(torch.tensor([index]))
                if bool(trial.backend.guard(constants, *states)):
                    tight = replace(scene, tolerance=below / scene.lr)
                    raise violation(tight, model, states, gradients[index : index + 1], deviation)


def pairs_of_the_codec_are_safe(trial: Trial) -> None:
    """GRD-6."""
    for scene in trial.scenes:
        for grids in (GRIDS[1], _grids_of_training()):
            m, v, m_hat, v_hat = quantised_pairs(trial.generator(f"GRD-6 {scene} {grids}"), grids, _QUANTISED)
            inside = in_domain(m, v) & in_domain(m_hat, v_hat)
            pairs = States(m, v, m_hat, v_hat).select(inside)
            pairs = pairs.select(_guard(trial, scene)(*pairs))
            _try_likely_gradients(trial, scene, pairs)
            _decide_all(trial, scene, pairs)


def _grids_of_training() -> Grids:
    return Grids(LogGrid.spanning(-22.0, -8.0, M_LEVELS), LogGrid.spanning(-36.0, -16.0, V_LEVELS))


REQUIREMENTS = (
    Requirement(
        "GRD-1",
        "No accepted pair has a gradient within the bound whose two updates differ by more than the tolerance.",
        "This is the guarantee.",
        Level.SOUND,
        accepted_pairs_are_safe,
        needs=("guard",),
    ),
    Requirement(
        "GRD-2",
        "A pair with NaN, an infinity or a negative second moment is rejected, and so stored exactly.",
        "Comparisons with NaN are false both ways round, so that a guard written as `not (bound > tau)` accepts it.",
        Level.SOUND,
        what_cannot_be_handled_is_rejected,
        needs=("guard",),
    ),
    Requirement(
        "GRD-3",
        "Of ordinary pairs, some near and some far, at least a tenth is accepted and at least a tenth rejected.",
        "A guard that accepts nothing is sound and compresses nothing; one that accepts all was not asked.",
        Level.REPRODUCIBLE,
        neither_all_nor_nothing_is_accepted,
        needs=("guard",),
    ),
    Requirement(
        "GRD-4",
        "A verdict depends on nothing but its own pair: not on the tensor's size, the place, the stride or the "
        "alignment.",
        "A coordinate in the tail of a tensor must be guarded as one in its body.",
        Level.SOUND,
        a_verdict_is_its_pairs_alone,
        needs=("guard",),
    ),
    Requirement(
        "GRD-5",
        "A pair is rejected where an update is known to deviate by the tolerance and one unit in the last place more.",
        "A guard that is computed in binary32, or that forgets how binary32 rounds the updates, is wrong by just so "
        "much.",
        Level.SOUND,
        one_ulp_beyond_the_tolerance_is_rejected,
        needs=("guard",),
    ),
    Requirement(
        "GRD-6",
        "Of the pairs that quantising makes (levels and their neighbours, middles of levels, zeros, subnormals, a zero "
        "second moment beside a first one that is not) none is accepted that some gradient takes beyond the tolerance.",
        "These are the pairs that a codec will ask about.",
        Level.SOUND,
        pairs_of_the_codec_are_safe,
        needs=("guard",),
    ),
)
