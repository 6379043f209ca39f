"""ENC and REC, of a codec in its own format: blocks, scales and tables as its authors have them, with no guard.

`encode` and `decode` are about the project's own grids.  A codec of another kind is asked only for what it makes of a
tensor, and judged by what any codec of moments should do.  Nothing here knows its format.
"""

from __future__ import annotations

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.oracle.conformance.inputs import log_uniform, signs, uniform
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial
from guarded_moments.oracle.conformance.scenes import Scene
from guarded_moments.oracle.conformance.shrink import complexity
from guarded_moments.oracle.conformance.traces import two_updates
from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard.enclosure import enclose
from guarded_moments.reference.guard.search import States

_COUNT = 1 << 14
_OF_UPDATES = 1 << 12
#: Learning rates; an 8-bit format has levels a few hundredths apart here.
_OF_ONE_SIZE = 0.1
_SCENES = 3
_ROUNDS = 6  #: of the search for each worst gradient


def the_nearest_level_is_taken(trial: Trial) -> None:
    """ENC-6.  Levels are what the codec itself decodes to; nearest in value or in the logarithm, as it likes."""
    generator = trial.generator("ENC-6")
    magnitudes = log_uniform(generator, _COUNT, 1e-4, 1.0)
    values = {"m": (magnitudes * signs(generator, _COUNT)).float(), "v": magnitudes.float()}
    for block in values.values():
        block[:: _COUNT // 64] = 1.0  # one scale for all blocks
    recovered = dict(zip(("m", "v"), trial.backend.round_trip(values["m"], values["v"]), strict=True))
    for moment, given in values.items():
        _require_nearest(moment, given, recovered[moment])


def _require_nearest(moment: str, given: Tensor, taken: Tensor) -> None:
    levels = taken.unique()
    at = torch.searchsorted(levels, given).clamp(1, len(levels) - 1)
    low, high = levels[at - 1].double(), levels[at].double()
    x, y = given.double(), taken.double()
    inside = (low <= x) & (x <= high)
    farther = inside & (y != low) & (y != high)
    in_value = torch.where(x - low < high - x, low, high)
    middle = low.sign() * (low * high).clamp(min=0).sqrt()
    in_logarithm = torch.where(x < middle, low, high)
    wrong = farther | (inside & (low * high > 0) & (in_value == in_logarithm) & (y != in_value))
    if bool(wrong.any()):
        index = int(wrong.nonzero().flatten()[complexity(given[wrong].unsqueeze(1)).argmin()])
        raise NonConformance(
            f"{moment} = {float(x[index]):.9g} becomes {float(y[index]):.9g}, and the codec has a nearer value",
            f"given    {hex_of(float(x[index]))}",
            f"becomes  {hex_of(float(y[index]))}",
            f"between  {hex_of(float(low[index]))}",
            f"and      {hex_of(float(high[index]))}, both values that it decodes to; {int(wrong.sum())} of {len(x)} "
            "numbers have a nearer one",
        )


def updates_of_one_size_survive(trial: Trial) -> None:
    """REC-3."""
    for scene in trial.scenes[:_SCENES]:
        generator = trial.generator(f"REC-3 {scene}")
        root = 1e-3 * uniform(generator, _OF_UPDATES, 0.5, 1.0)
        m = (root * uniform(generator, _OF_UPDATES, 0.5, 1.0) * signs(generator, _OF_UPDATES)).float()
        v = (root * root).float()
        states = States(m, v, *trial.backend.round_trip(m, v))
        _require_close(scene, states)


def _require_close(scene: Scene, states: States) -> None:
    trajectories = Trajectories(scene.models[0], scene.options, scene.scalars)
    with_own = torch.copysign(states.v.sqrt(), states.m)
    for g in (torch.zeros_like(with_own), with_own, enclose(scene.constants, states, rounds=_ROUNDS).gradient.float()):
        deviation = trajectories.deviations(states, g) / scene.lr
        worst = int(deviation.argmax())
        if float(deviation[worst]) > _OF_ONE_SIZE:
            m, v, m_hat, v_hat, gradient = (float(x[worst]) for x in (*states, g))
            beyond = int((deviation > _OF_ONE_SIZE).sum())
            raise NonConformance(
                f"coordinate {worst}: its next update is off by {float(deviation[worst]):.4g} lr, "
                f"on a tensor whose coordinates are all of one size",
                f"claim      {scene}",
                f"native     m = {hex_of(m)}  v = {hex_of(v)}",
                f"recovered  m = {hex_of(m_hat)}  v = {hex_of(v_hat)}",
                f"gradient   g = {hex_of(gradient)}",
                f"beyond     {beyond} of {len(deviation)} coordinates are off by more than {_OF_ONE_SIZE:g} lr",
                *two_updates(scene.models[0], scene.options, scene.scalars, (m, v), (m_hat, v_hat), gradient),
            )


OF_CODES = (
    Requirement(
        "ENC-6",
        "Of the values that a codec decodes to, a number becomes one of the two beside it, and never one that another "
        "is nearer than, both in value and in the logarithm.",
        "A level that is passed over is precision that was paid for.",
        Level.REPRODUCIBLE,
        the_nearest_level_is_taken,
        needs=("round_trip",),
    ),
)
OF_UPDATES = (
    Requirement(
        "REC-3",
        "On a tensor whose coordinates are all of one size, the first update after a bare round trip is off by at most "
        "a tenth of a learning rate.",
        "It is the easiest state there is: what fails here has a scale, a bias correction or a table wrong.",
        Level.REPRODUCIBLE,
        updates_of_one_size_survive,
        needs=("round_trip",),
    ),
)
