"""The compiled enclosure: around mpmath's values and the torch search's, and slivers that leave nothing out."""

import math

import mpmath
import numpy as np
import torch
from tests.reference.guard.cases import (
    PRECISION,
    Setting,
    describe,
    exact_deviation,
    gradients,
    pairs,
    settings,
    trained_pairs,
)

from guarded_moments.oracle.exhaustive import Coordinate
from guarded_moments.oracle.worst_case.enclosure import SHORT, enclose, slivers_above
from guarded_moments.reference.floats import bits_of, hex_of
from guarded_moments.reference.guard import enclosure, search

_SIGN = 1 << 31


def test_the_gradient_attains_the_lower_end_and_none_sampled_exceeds_the_upper(
    rng: np.random.Generator, budget: int
) -> None:
    for setting in settings(rng, 8 * budget):
        case = setting.case()
        states = pairs(25, rng)
        found = enclose(case.constants, states)
        g = gradients(case.constants, states, 6)
        coordinates = list(zip(*(moment.tolist() for moment in states), strict=True))
        with mpmath.workprec(PRECISION):
            step = mpmath.mpf(case.real.step.numerator) / case.real.step.denominator
            for i, state in enumerate(coordinates):
                at = float(found.gradient[i])
                lower, upper = float(found.lower[i]), float(found.upper[i])
                attained = exact_deviation(case.real, state, at) * step
                assert lower <= attained, f"{describe(states, i)} at {hex_of(at)}: {attained} < {lower!r}"
                assert attained - lower <= upper * 1e-9, f"{describe(states, i)} at {hex_of(at)}"
                for gradient in g[:, i].tolist():
                    deviation = exact_deviation(case.real, state, gradient) * step
                    assert deviation <= upper, f"{describe(states, i)} at {hex_of(gradient)}: {deviation} > {upper!r}"


def test_it_agrees_with_the_search_in_torch(rng: np.random.Generator) -> None:
    for setting in settings(rng, 12):
        case = setting.case()
        states = trained_pairs(20, rng)
        compiled, torch_found = enclose(case.constants, states), enclosure.enclose(case.constants, states)
        assert bool((compiled.lower <= torch_found.upper).all()), case.scalars
        assert bool((torch_found.lower <= compiled.upper).all()), case.scalars


def test_the_gap_is_as_asked(rng: np.random.Generator) -> None:
    case = Setting(step=400.0).case()
    states = trained_pairs(500, rng)
    for gap in (1e-2, 1e-4, 1e-7):
        found = enclose(case.constants, states, relative_gap=gap)
        assert bool((found.upper <= found.lower * (1 + gap) * (1 + 1e-12)).all()), gap


def test_no_gradient_outside_the_slivers_deviates_by_more(rng: np.random.Generator, budget: int) -> None:
    """Bit for bit in every op model, at gradients everywhere and just outside each end."""
    outside = inside = 0
    for setting in settings(rng, 10 * budget):
        case = setting.case()
        states = trained_pairs(30, rng)
        sample = gradients(case.constants, states, 60)
        found = enclose(case.constants, states)
        for i in range(30):
            state = Coordinate(*(float(moment[i]) for moment in states))
            allowed = float(found.lower[i]) * rng.uniform(0.5, 1.5)
            slivers = slivers_above(case.constants, state, allowed)
            edges = [bits for first, count in slivers for bits in (first - 1, first + count)]
            limit = bits_of(search.largest_gradient(case.constants))
            patterns = [bits_of(g) for g in sample[:, i].tolist()]
            patterns += [bits for bits in edges if bits >= 0 and bits & ~_SIGN <= limit]
            beyond = [b for b in patterns if not any(first <= b < first + count for first, count in slivers)]
            outside, inside = outside + len(beyond), inside + len(patterns) - len(beyond)
            if beyond:
                g = torch.from_numpy(np.array(beyond, dtype=np.uint32).view(np.float32).copy())
                same = search.States(*(torch.full_like(g, value) for value in state))
                for model in case.models:
                    deviation = case.trajectories(model).deviations(same, g)
                    worst = int(deviation.argmax())
                    assert float(deviation[worst]) <= allowed, f"{describe(states, i)} at {hex_of(float(g[worst]))}"
    assert min(outside, inside) > 1000


def test_slivers_are_ascending_disjoint_and_short_of_the_whole(rng: np.random.Generator) -> None:
    case = Setting(step=400.0).case()
    states = trained_pairs(60, rng, off=0.2)
    found = enclose(case.constants, states)
    for i in range(60):
        state = Coordinate(*(float(moment[i]) for moment in states))
        slivers = slivers_above(case.constants, state, 0.999 * float(found.lower[i]))
        assert bits_of(float(found.gradient[i].float())) in range(
            slivers[0].first, slivers[-1].first + slivers[-1].length
        )
        ends = [end for first, count in slivers for end in (first, first + count)]
        assert ends == sorted(ends)
        assert sum(sliver.length for sliver in slivers) < 1 << 26


def test_above_everything_there_is_no_sliver_and_above_nothing_there_is_one_per_sign(rng: np.random.Generator) -> None:
    case = Setting(step=400.0).case()
    states = trained_pairs(5, rng)
    everything = bits_of(search.largest_gradient(case.constants)) + 1
    for i in range(5):
        state = Coordinate(*(float(moment[i]) for moment in states))
        assert slivers_above(case.constants, state, 1e9) == []
        assert slivers_above(case.constants, state, math.inf) == []
        assert [tuple(sliver) for sliver in slivers_above(case.constants, state, 0.0)] == [
            (0, everything),
            (_SIGN, everything),
        ]
    assert everything > SHORT
