"""The interval oracle: operations of both numbers against fractions, cells against gradients, itself against others."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import flint
import numpy as np
import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st
from tests.reference.arithmetic.exact_binary32 import OPERATIONS, round_to_nearest_even
from tests.strategies import fractions

from guarded_moments.oracle.conformance.strategies import binary32
from guarded_moments.oracle.intervals import (
    Deviation,
    Enclosure,
    FractionBinary32,
    Numbers,
    Pair,
    PairArithmetic,
    UnboundedError,
    balls,
    enclose,
    enclosure,
    mpf,
)
from guarded_moments.oracle.intervals.exact import round_to_nearest
from guarded_moments.oracle.intervals.pairs import shared
from guarded_moments.oracle.intervals.protocol import Intervals
from guarded_moments.oracle.intervals.rounding import Rounding
from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.oracle.worst_case import Verdict, decide
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import BINARY32, bits_of, from_bits, hex_of
from guarded_moments.reference.guard import GuardConstants, guard_constants
from guarded_moments.reference.guard import search as guard_search
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS
from guarded_moments.reference.op_models import OpModel, SquareRoot

LR = 1e-3
#: The enclosures that are compared stay open by this share, and hold for this many coordinates of each setting.
GAP, COUNT = 0.01, 4
EXACT = FractionBinary32()
MPMATH: Intervals[mpf.Interval] = mpf
ARB: Intervals[flint.arb] = balls
FINITE = binary32(finite=True)


class Setting(NamedTuple):
    """What one tensor fixes: an op model, the hyperparameters that differ between settings, a claim."""

    implementation: str
    model: int  #: which of the implementation's
    beta1: float
    step: float
    bound: float

    def __str__(self) -> str:
        name = IMPLEMENTATIONS[self.implementation].models[self.model].name
        return f"{name}, beta1 = {self.beta1}, t = {self.step:g}, G = {self.bound:g}"


class Tensor(NamedTuple):
    """What follows from a setting."""

    setting: Setting
    model: OpModel
    options: StepOptions
    scalars: Scalars[float]
    constants: GuardConstants
    trajectories: Trajectories


@cache
def tensor_of(setting: Setting) -> Tensor:
    implementation = IMPLEMENTATIONS[setting.implementation]
    model = implementation.models[setting.model]
    fused = setting.implementation.endswith("fused")
    hyperparameters = Hyperparameters(LR, setting.beta1, 0.999, 1e-8, 0.0, decoupled=False, fused=fused)
    options = hyperparameters.options
    scalars = implementation.scalars(hyperparameters, setting.step)
    claim = Claim(Tolerance(0.01), GradientBound(setting.bound), setting.implementation)
    constants = guard_constants(claim, implementation, options, scalars, LR)
    return Tensor(setting, model, options, scalars, constants, Trajectories(model, options, scalars))


CLAIMS = [(0.9, step, bound) for step, bound in product((1, 400, 1e5), (1e-3, 1.0, math.inf))]
CLAIMS.append((0.3, 400, 1.0))  # the interpolation is then written from the other end
MEASURED = [
    ("torch-2.13-cpu-avx2/single", 0),
    ("torch-2.13-cpu-default/single", 0),
    ("torch-2.13-cpu-avx2/fused", 0),
    ("torch-2.13-cpu-avx2/fused", 1),
]
OTHERS = [
    (name, index)
    for name, implementation in IMPLEMENTATIONS.items()
    for index in range(len(implementation.models))
    if (name, index) not in MEASURED and not re.fullmatch(r".*cpu.*/foreach", name)  # its models are single's
]
SETTINGS = [Setting(*model, *claim) for model, claim in product(MEASURED, CLAIMS)]
SETTINGS += [Setting(*model, *claim) for model, claim in product(OTHERS, ((0.9, 1000, math.inf), (0.3, 3, 1.0)))]


class Coordinate(NamedTuple):
    """Native and recovered moments, binary32."""

    m: float
    v: float
    m_hat: float
    v_hat: float

    @property
    def states(self) -> States:
        """As the search wants it."""
        return States(*(torch.tensor([moment]) for moment in self))


def coordinate(rng: np.random.Generator) -> Coordinate:
    """What a codec may leave of a coordinate: decoded within 5 %, mostly; now and then something wilder."""
    scale = 10.0 ** rng.uniform(-12, 0)
    m, v = scale * rng.standard_normal(), np.square(scale * rng.lognormal())
    kind = rng.choice(["zero v", "subnormal v", "m only", "v only", "far"]) if rng.random() < 0.3 else ""
    v = 0.0 if kind == "zero v" else rng.uniform(0, 2.0**-126) if kind == "subnormal v" else v
    m_error, v_error = rng.uniform(-0.05, 0.05, size=2)
    if kind == "far":
        m_error, v_error = rng.choice([-2.0, -1.0, 0.5, 3.0]), rng.choice([-0.99, 1.0, 30.0])
    m_hat = m * (1 + m_error * (kind != "v only"))
    v_hat = v * (1 + v_error * (kind != "m only"))
    return Coordinate(*(float(np.float32(moment)) for moment in (m, v, m_hat, v_hat)))


# What is certain of single operations.


@pytest.fixture(params=[MPMATH, ARB], ids=["mpmath", "arb"], scope="module")
def intervals(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401 - of two types
    return request.param


@pytest.fixture(scope="module")
def pair_operations(intervals: Intervals[Any]) -> PairArithmetic[Any]:
    return PairArithmetic(intervals)


class Between(NamedTuple):
    """Two binary32 ends, and a number between."""

    low: float
    high: float
    member: Fraction


@st.composite
def members(draw: st.DrawFn, *, positive: bool = False) -> Between:
    """An interval with binary32 ends, thin or narrow now and then, and one of its members."""
    values = binary32(signs=False, finite=True, zero=False) if positive else FINITE
    low, high = draw(values), draw(values)
    kind = draw(st.sampled_from(["thin", "narrow", "wide"]))
    if kind == "thin":
        high = low
    elif kind == "narrow":  # within a few binades, where a ball still knows the sign
        high = math.copysign(from_bits(min(bits_of(abs(low)) + draw(st.integers(1, 2**25)), 0x7F7FFFFF)), low)
    low, high = sorted((low, high))
    share = draw(st.fractions(0, 1, max_denominator=2**30))
    return Between(low, high, Fraction(low) + share * (Fraction(high) - Fraction(low)))


def ends(interval: Any) -> tuple[Any, Any]:  # noqa: ANN401 - of two types; the ends may be infinite
    """The least and the largest member, exactly."""
    if not isinstance(interval, flint.arb):
        return mpf.to_fraction(interval[0]), mpf.to_fraction(interval[1])
    if not interval.is_finite():
        return -math.inf, math.inf
    middle, radius = (Fraction(int(x.p), int(x.q)) for x in (interval.mid().fmpq(), interval.rad().fmpq()))
    return middle - radius, middle + radius


def holds(interval: Any, x: Fraction) -> bool:  # noqa: ANN401 - of two types
    low, high = ends(interval)
    return bool(low <= x <= high)


@given(members(), members())
def test_interval_operations_enclose_the_results_of_members(intervals: Intervals[Any], a: Between, b: Between) -> None:
    one, other = intervals.from_ends(a.low, a.high), intervals.from_ends(b.low, b.high)
    x, y = a.member, b.member
    assert holds(one, x)
    assert holds(intervals.thin(a.low), Fraction(a.low))
    assert holds(intervals.add(one, other), x + y)
    assert holds(intervals.sub(one, other), x - y)
    assert holds(intervals.mul(one, other), x * y)
    assert holds(intervals.negate(one), -x)
    assert holds(intervals.intersect(one, intervals.add(one, intervals.sub(other, other))), x)
    least, most = intervals.magnitudes(one)
    assert 0 <= least <= abs(x) <= most
    # Ends as long as they get: the rounded results of an operation are operands of the next.
    long = intervals.mul(one, other)
    assert holds(intervals.add(long, one), x * y + x)
    assert holds(intervals.mul(long, intervals.sub(one, other)), x * y * (x - y))


@given(members(), members())
def test_comparisons_are_true_only_where_they_hold_of_all_members(
    intervals: Intervals[Any], a: Between, b: Between
) -> None:
    one, other = intervals.from_ends(a.low, a.high), intervals.from_ends(b.low, b.high)
    assert not intervals.is_less(one, other) or a.high < b.low
    assert not intervals.is_at_most(one, other) or a.high <= b.low
    assert not intervals.is_positive(one) or a.low > 0
    assert not intervals.is_negative(one) or a.high < 0
    low, high = intervals.thin(a.low), intervals.thin(a.high)  # of single numbers they are also true
    assert intervals.is_less(low, high) == (a.low < a.high)
    assert intervals.is_at_most(high, low) == (a.high <= a.low)
    assert (intervals.is_positive(low), intervals.is_negative(low)) == (a.low > 0, a.low < 0)


@given(members(), members(positive=True))
def test_interval_quotients_and_roots_enclose_the_results_of_members(
    intervals: Intervals[Any], a: Between, b: Between
) -> None:
    one, other = intervals.from_ends(a.low, a.high), intervals.from_ends(b.low, b.high)
    least, most = ends(intervals.sqrt(other))
    assert max(least, 0) ** 2 <= b.member <= most**2
    with pytest.raises(UnboundedError):
        intervals.div(one, intervals.negate(other))
    if intervals.is_positive(other):
        assert holds(intervals.div(one, other), a.member / b.member)
    else:  # a ball has 30 bits for its radius, and around ends this far apart it reaches below zero
        assert intervals is ARB
        assert b.high > 2**25 * b.low


@given(members(positive=True), st.fractions(0, 1, max_denominator=2**30))
def test_roots_know_that_nothing_is_negative(intervals: Intervals[Any], a: Between, share: Fraction) -> None:
    least, most = ends(intervals.sqrt(intervals.from_ends(0.0, a.high)))
    assert max(least, 0) == 0
    assert most**2 >= Fraction(a.high) >= share * Fraction(a.high)


@pytest.mark.parametrize("kind", list(Rounding))
@given(members(), st.integers(0, 300))
def test_rounding_encloses_the_rounded_members(
    intervals: Intervals[Any], kind: Rounding, a: Between, halvings: int
) -> None:
    interval, x = intervals.from_ends(a.low, a.high), a.member
    if kind is Rounding.PRODUCT:  # also below the smallest binary32
        interval, x = intervals.mul(interval, intervals.thin(2.0**-halvings)), x / 2**halvings
    else:  # a sum of binary32 values is a multiple of the smallest, and a root is not subnormal at all
        x = round(x / BINARY32.smallest_subnormal) * BINARY32.smallest_subnormal
    try:
        result = intervals.rounded(interval, kind)
    except UnboundedError:  # the ball of everything up to the largest number reaches beyond it
        assert intervals is ARB
        assert max(abs(a.low), abs(a.high)) > 0.999 * float(BINARY32.largest)
        return
    if kind is Rounding.PLATFORM_ROOT and x and not 2.0**-75 <= abs(x) <= 2.0**64:
        return  # no binary32 has such a root
    zero = intervals.thin(0.0)
    least, most = intervals.thin(a.low), intervals.thin(a.high)
    for rounded in neighbours(round_to_nearest(x)) if kind is Rounding.PLATFORM_ROOT else [round_to_nearest(x)]:
        assert holds(result, rounded)
        assert holds(intervals.with_errors(zero, interval, zero, kind), rounded - x)
        assert holds(intervals.with_errors(least, zero, interval, kind), Fraction(a.low) + rounded - x)
        assert holds(intervals.with_errors(most, interval, interval, kind), Fraction(a.high) + 2 * (rounded - x))


def test_beyond_the_largest_binary32_nothing_is_rounded(intervals: Intervals[Any]) -> None:
    largest = float(BINARY32.largest)
    for kind in Rounding:
        assert holds(intervals.rounded(intervals.thin(-largest), kind), -BINARY32.largest)
        for beyond in (math.nextafter(largest, math.inf), -(2.0**128), 1e300):
            with pytest.raises(UnboundedError):
                intervals.rounded(intervals.thin(beyond), kind)


@pytest.mark.parametrize(
    "nothing", [flint.arb.nan(), flint.arb.pos_inf(), flint.arb(0, math.inf)], ids=["nan", "infinity", "all"]
)
def test_a_ball_that_says_nothing_bounds_nothing(nothing: flint.arb) -> None:
    assert ARB.magnitudes(nothing) == (0.0, math.inf)
    with pytest.raises(UnboundedError):
        ARB.rounded(nothing, Rounding.SUM)
    with pytest.raises(UnboundedError):
        ARB.div(ARB.thin(1.0), ARB.sub(nothing, nothing))


@given(members(), members(), st.integers(2, 64))
def test_balls_enclose_at_whatever_precision_someone_has_set(a: Between, b: Between, precision: int) -> None:
    with flint.ctx.workprec(precision):
        one, other = ARB.from_ends(a.low, a.high), ARB.from_ends(b.low, b.high)
        results = [ARB.thin(a.low), ARB.mul(one, other), ARB.add(one, other)]
        least, most = ARB.magnitudes(one)
    exact = [Fraction(a.low), a.member * b.member, a.member + b.member]
    assert all(map(holds, results, exact))
    assert least <= abs(a.member) <= most


class Members(NamedTuple):
    """What a pair is built from, and a native and a recovered member of it."""

    native_ends: tuple[float, float]
    recovered_ends: tuple[float, float]
    native: Fraction
    recovered: Fraction
    are_one: bool = False
    further: tuple[float, float] = (0.0, 0.0)  #: how much wider the difference is than the two members' own

    def pair(self, intervals: Intervals[Any]) -> Pair[Any]:
        """A pair of such intervals."""
        native, recovered = intervals.from_ends(*self.native_ends), intervals.from_ends(*self.recovered_ends)
        if self.are_one:
            return shared(native)
        difference = intervals.sub(intervals.thin(float(self.recovered)), intervals.thin(float(self.native)))
        if self.further != (0.0, 0.0):
            difference = intervals.add(difference, intervals.from_ends(*self.further))
        return Pair(native, recovered, difference)


@st.composite
def pairs(draw: st.DrawFn, least: float = -math.inf) -> Members:
    """Pairs of values of at least `least`: thin, shared by both trajectories, or wide."""
    values = FINITE if least < 0 else binary32(signs=False, finite=True, zero=least == 0)
    native = draw(values)
    neighbour = from_bits(min(bits_of(native) ^ draw(st.integers(0, 7)), bits_of(math.copysign(2.0**127, native))))
    recovered = draw(st.one_of(values, st.just(neighbour if abs(neighbour) >= least else native)))

    def around(member: float) -> tuple[float, float]:
        low, _, high = sorted((member, draw(values), draw(values)))
        return min(low, member), max(high, member)

    one, other = Fraction(native), Fraction(recovered)
    kind = draw(st.sampled_from(["thin", "shared", "wide"]))
    if kind == "thin":
        return Members((native, native), (recovered, recovered), one, other, native == recovered)
    if kind == "shared":
        both = around(native)
        return Members(both, both, one, one, are_one=True)
    further = draw(FINITE) if draw(st.booleans()) else 0.0
    return Members(around(native), around(recovered), one, other, further=(min(further, 0.0), max(further, 0.0)))


def assert_encloses(pair: Pair[Any], native: Fraction, recovered: Fraction) -> None:
    assert holds(pair.native, native)
    assert holds(pair.recovered, recovered)
    if pair.difference is None:
        assert native == recovered
    else:
        assert holds(pair.difference, recovered - native)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma", "product"])
@given(operands=st.tuples(pairs(), pairs(), pairs()))
def test_sums_and_products_of_pairs_enclose_both_trajectories(
    intervals: Intervals[Any],
    pair_operations: PairArithmetic[Any],
    name: str,
    operands: tuple[Members, Members, Members],
) -> None:
    chosen = operands if name == "fma" else operands[:2]
    try:
        result = getattr(pair_operations, name)(*(operand.pair(intervals) for operand in chosen))
    except UnboundedError:
        reject()
    exact = getattr(EXACT, name)
    native, recovered = exact(*(x.native for x in chosen)), exact(*(x.recovered for x in chosen))
    assert_encloses(result, native, recovered)


@given(pairs(), pairs())
def test_a_fused_product_knows_its_own_factor(
    intervals: Intervals[Any], pair_operations: PairArithmetic[Any], a: Members, b: Members
) -> None:
    try:
        factor = b.pair(intervals)
        result = pair_operations.fma(a.pair(intervals), factor, factor)
    except UnboundedError:
        reject()
    native, recovered = EXACT.fma(a.native, b.native, b.native), EXACT.fma(a.recovered, b.recovered, b.recovered)
    assert_encloses(result, native, recovered)


@given(pairs(), pairs(least=2.0**-149))
def test_quotients_of_pairs_enclose_both_trajectories(
    intervals: Intervals[Any], pair_operations: PairArithmetic[Any], a: Members, b: Members
) -> None:
    try:
        result = pair_operations.div(a.pair(intervals), b.pair(intervals))
        negated = pair_operations.div(a.pair(intervals), pair_operations.negate(b.pair(intervals)))
    except UnboundedError:
        reject()
    native, recovered = EXACT.div(a.native, b.native), EXACT.div(a.recovered, b.recovered)
    assert_encloses(result, native, recovered)
    assert_encloses(negated, -native, -recovered)


@given(pairs(least=0.0))
def test_roots_of_pairs_enclose_both_trajectories(
    intervals: Intervals[Any], pair_operations: PairArithmetic[Any], a: Members
) -> None:
    native, recovered = EXACT.sqrt(a.native), EXACT.sqrt(a.recovered)
    assert_encloses(pair_operations.sqrt(a.pair(intervals)), native, recovered)
    result = pair_operations.platform_sqrt(a.pair(intervals))
    for first, second in product(neighbours(native), neighbours(recovered)):
        if a.native != a.recovered or first == second:
            assert_encloses(result, first, second)


def neighbours(root: Fraction) -> list[Fraction]:
    """The binary32 within one unit in the last place of another; zero's root is zero."""
    bits = bits_of(float(root))
    return [Fraction(from_bits(bits + step)) for step in (-1, 0, 1)] if root else [root]


@given(pairs(), pairs(), pairs(), pairs())
def test_exact_operations_of_pairs(
    intervals: Intervals[Any], pair_operations: PairArithmetic[Any], a: Members, b: Members, x: Members, y: Members
) -> None:
    one, other, if_less, otherwise = (operand.pair(intervals) for operand in (a, b, x, y))
    assert_encloses(pair_operations.negate(one), -a.native, -a.recovered)
    assert pair_operations.select_nan(one, if_less, otherwise) is otherwise
    try:
        chosen = pair_operations.select_less(one, other, if_less, otherwise)
    except UnboundedError:
        return
    assert (a.native < b.native) == (chosen is if_less)
    assert (a.recovered < b.recovered) == (chosen is if_less)


@given(fractions(170), st.integers(-1, 1))
def test_fractions_round_as_the_tests_own_arithmetic_does(x: Fraction, off: int) -> None:
    spacing = BINARY32.smallest_subnormal
    halfway = (x // spacing) * spacing + spacing / 2 + off * spacing / 2**40  # of two subnormals, or beside it
    for value in (x, halfway):
        try:
            assert float(round_to_nearest(value)) == from_bits(round_to_nearest_even(value))
        except UnboundedError:
            assert abs(value) > BINARY32.largest


@pytest.mark.parametrize(
    ("name", "operands"), [("add", 2), ("sub", 2), ("mul", 2), ("div", 2), ("fma", 3), ("sqrt", 1)]
)
@given(values=st.tuples(FINITE, FINITE, FINITE))
def test_operations_on_fractions_are_the_tests_own(
    name: str, operands: int, values: tuple[float, float, float]
) -> None:
    chosen = [abs(x) for x in values[:operands]] if name == "sqrt" else list(values[:operands])
    if name == "div" and chosen[1] == 0:
        reject()
    expected = OPERATIONS[name](*chosen)
    try:
        result = float(getattr(EXACT, name)(*map(Fraction, chosen)))
    except UnboundedError:
        assert math.isinf(from_bits(expected))
    else:
        assert result == from_bits(expected)  # zeros of both signs are one


# What is certain of a cell of gradients.


@pytest.fixture(params=SETTINGS, ids=str)
def tensor(request: pytest.FixtureRequest) -> Tensor:
    return tensor_of(request.param)


def test_every_gradient_of_a_cell_lies_within_its_enclosure(
    tensor: Tensor, rng: np.random.Generator, budget: int
) -> None:
    limit = bits_of(tensor.constants.gradient_bound) - 1
    for _ in range(4 * budget):
        state = coordinate(rng)
        start = bits_of(abs(state.m) * 10.0 ** rng.uniform(-3, 3)) if rng.random() < 0.7 else rng.integers(limit)
        low = min(int(start), limit)
        high = min(low + int(2.0 ** rng.uniform(0, 30)), limit)  # from neighbours to many binades
        within = np.unique(np.linspace(low, high, min(high - low + 1, 4096)).astype(np.int32))
        sign = float(rng.choice([1.0, -1.0]))
        gradients = torch.from_numpy(within).view(torch.float32) * sign
        states = States(*(moment.expand(len(gradients)) for moment in state.states))
        deviations = tensor.trajectories.deviations(states, gradients)
        cells = [
            deviation_of(tensor, state, numbers).over(from_bits(low) * sign, from_bits(high) * sign)
            for numbers in Numbers
        ]
        for (least, most), at in product(cells, (int(deviations.argmax()), int(deviations.argmin()))):
            deviation, g = float(deviations[at]), float(gradients[at])
            assert 0 <= least <= deviation <= most, described(tensor, state, g, deviation=deviation, cell=(least, most))


@pytest.mark.parametrize(
    "setting",
    [setting for setting in SETTINGS if tensor_of(setting).model.square_root is SquareRoot.CORRECT],
    ids=str,
)
def test_a_single_gradient_gives_the_bits_of_torchs_arithmetic(
    setting: Setting, rng: np.random.Generator, budget: int, compared: Counter[str]
) -> None:
    tensor = tensor_of(setting)
    for _ in range(10 * budget):
        state = coordinate(rng)
        g = from_bits(int(rng.integers(bits_of(tensor.constants.gradient_bound))) | int(rng.integers(2)) << 31)
        least, most = deviation_of(tensor, state).at(g)
        deviation = float(tensor.trajectories.deviations(state.states, torch.tensor([g])))
        assert most == deviation, described(tensor, state, g, torch=deviation, fractions=(least, most))
        assert math.nextafter(least, math.inf) >= most
        compared["deviations with exact rationals"] += 1


def deviation_of(tensor: Tensor, state: Coordinate, numbers: Numbers = Numbers.MPMATH) -> Deviation:
    return Deviation(tensor.model, tensor.options, tensor.scalars, *state, numbers=numbers)


# Whether the oracles agree.


class Findings(NamedTuple):
    """What the two oracles say about the worst case of one coordinate, in units of the parameter."""

    state: Coordinate
    intervals: Enclosure
    lower: float  #: of the search, in real numbers
    upper: float
    slack: float  #: how far rounding may move either
    gradient: float  #: the search's worst
    deviation: float  #: bit-exact there


def ask_both(tensor: Tensor, state: Coordinate, constants: GuardConstants) -> Findings:
    """The enclosures of both oracles; the search uses `constants`."""
    search = guard_search.enclose(constants, state.states)
    gradient = search.gradient.float()
    bound = tensor.constants.gradient_bound
    return Findings(
        state,
        enclose(tensor.model, tensor.options, tensor.scalars, *state, bound, relative_gap=GAP),
        float(search.lower),
        float(search.upper),
        float(guard_search.slack_of(constants, state.states)),
        float(gradient),
        float(tensor.trajectories.deviations(state.states, gradient)),
    )


@cache
def findings(setting: Setting, seed: int, count: int) -> list[Findings]:
    """Ask both oracles about that many random coordinates."""
    tensor = tensor_of(setting)
    rng = np.random.default_rng([seed, SETTINGS.index(setting)])
    return [ask_both(tensor, coordinate(rng), tensor.constants) for _ in range(count)]


def contradictions(found: Findings) -> list[str]:
    """In what the two oracles cannot both be right."""
    lower, upper = found.intervals.lower, found.intervals.upper
    checks = {
        "the intervals' enclosure is empty": lower <= upper,
        "the op model exceeds the intervals' upper end": found.deviation <= upper,
        "the intervals' lower end exceeds the search's upper end": lower <= found.upper + found.slack,
        "the search's lower end exceeds the intervals' upper end": found.lower - found.slack <= upper,
    }
    return [what for what, consistent in checks.items() if not consistent]


def described(tensor: Tensor, state: Coordinate, g: float, **numbers: object) -> str:
    """A coordinate and a gradient as bits, and whatever was found there."""
    named = {**state._asdict(), "g": g}
    bits = ", ".join(f"{name} = {hex_of(value)}" for name, value in named.items())
    return "\n  ".join((f"{tensor.setting}: {bits}", *(f"{name}: {value}" for name, value in numbers.items())))


def test_both_oracles_agree_on_the_worst_case(tensor: Tensor, seed: int, budget: int) -> None:
    for found in findings(tensor.setting, seed, COUNT * budget):
        wrong = contradictions(found)
        assert not wrong, described(tensor, found.state, found.gradient, wrong=wrong, found=found)


def test_both_numbers_enclose_the_same_worst_case(
    tensor: Tensor, seed: int, budget: int, compared: Counter[str]
) -> None:
    for found in findings(tensor.setting, seed, COUNT * budget):
        bound = tensor.constants.gradient_bound
        arb = enclose(
            tensor.model, tensor.options, tensor.scalars, *found.state, bound, relative_gap=GAP, numbers=Numbers.ARB
        )
        wrong = contradictions(found._replace(intervals=arb))
        assert not wrong, described(tensor, found.state, found.gradient, wrong=wrong, found=found, arb=arb)
        mpmath = found.intervals
        assert max(mpmath.lower, arb.lower) <= min(mpmath.upper, arb.upper), described(
            tensor, found.state, arb.gradient, mpmath=mpmath, arb=arb
        )
        # Nor is one idle: balls are wider than intervals, which shows where rounding is most of a deviation.
        assert arb.upper - arb.lower <= 4 * max(mpmath.upper - mpmath.lower, GAP * mpmath.upper), described(
            tensor, found.state, arb.gradient, mpmath=mpmath, arb=arb
        )
        compared["enclosures by both numbers"] += 1


@pytest.mark.parametrize("share", [0.8, 0.97, 1.03, 1.2])
@pytest.mark.parametrize("model", [*MEASURED, None], ids=lambda model: "{}/{}".format(*model) if model else "others")
def test_both_oracles_agree_on_the_verdict(model: tuple[str, int] | None, share: float, seed: int, budget: int) -> None:
    asked = decided = 0
    for setting in SETTINGS:
        own = (setting.implementation, setting.model)
        if own != model and (model or own in MEASURED):
            continue
        tensor = tensor_of(setting)
        for found in findings(setting, seed, COUNT * budget):
            threshold = share * max(found.intervals.lower, found.deviation)
            if threshold < 100 * found.slack:  # 3 % off is then within rounding, and the budget may run out
                continue
            asked += 1
            expected = Verdict.SAFE if found.intervals.upper <= threshold else Verdict.UNSAFE
            if expected is Verdict.UNSAFE and found.intervals.lower <= threshold:
                continue
            decided += 1
            decisions = decide(tensor.constants._replace(threshold=threshold), tensor.trajectories, found.state.states)
            assert int(decisions.verdict) == expected, described(
                tensor, found.state, float(decisions.witness), threshold=threshold, search=decisions, found=found
            )
    assert asked >= 4 * COUNT
    assert decided >= 0.9 * asked


@pytest.mark.parametrize("field", ["w", "radicand", "curvature"])
def test_the_comparison_would_notice_a_wrong_search(field: str, rng: np.random.Generator) -> None:
    tensor = tensor_of(Setting("torch-2.13-cpu-avx2/fused", 0, 0.9, 400, 1.0))
    wrong = tensor.constants._replace(**{field: 1.1 * getattr(tensor.constants, field)})
    noticed = [bool(contradictions(ask_both(tensor, coordinate(rng), wrong))) for _ in range(24)]
    assert sum(noticed) >= 4  # most; not where `v` is so small that the constant does not matter


# The ends of what is claimed.

ORDINARY = SETTINGS[0]
NATIVE = (from_bits(0x3A83126F), from_bits(0x358637BD))  # 1e-3, 1e-6
RECOVERED = (from_bits(0x3A84B5DD), from_bits(0x3588DDEE))  # about 1.3 and 2 % off


def enclosed(native: tuple[float, float], recovered: tuple[float, float], bound: float, **options: float) -> Enclosure:
    tensor = tensor_of(ORDINARY)
    gap, cells = options.get("relative_gap", GAP), int(options.get("max_cells", 20_000))
    return enclose(
        tensor.model, tensor.options, tensor.scalars, *native, *recovered, bound, relative_gap=gap, max_cells=cells
    )


def test_the_same_state_has_no_deviation() -> None:
    found = enclosed(NATIVE, NATIVE, 1.0)
    assert (found.lower, found.upper) == (0.0, 0.0)


def test_too_few_cells_leave_the_enclosure_wide_and_right() -> None:
    coarse, fine = enclosed(NATIVE, RECOVERED, 1.0, max_cells=1), enclosed(NATIVE, RECOVERED, 1.0)
    assert coarse.cells < fine.cells
    assert coarse.lower <= fine.upper < coarse.upper
    assert fine.upper <= 1.012 * fine.lower


def test_a_smaller_gap_is_a_closer_enclosure() -> None:
    coarse, fine = (enclosed(NATIVE, RECOVERED, 1.0, relative_gap=gap) for gap in (0.2, 0.005))
    assert fine.upper < coarse.upper
    assert fine.upper <= 1.007 * fine.lower


def test_with_no_gap_left_the_ends_are_the_worst_bits_of_all_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enclosure, "_NOISES", 0)
    tensor = tensor_of(Setting("torch-2.13-cpu-avx2/fused", 0, 0.9, 400, 1.0))
    state = Coordinate(*NATIVE, *RECOVERED)
    bound = from_bits(0x3A000000)  # below where the deviation is largest: it grows up to there
    found = enclose(tensor.model, tensor.options, tensor.scalars, *state, bound, relative_gap=0.0, max_cells=10**5)
    last = torch.arange(bits_of(bound) - 2**20, bits_of(bound) + 1, dtype=torch.int32).view(torch.float32)
    every = torch.cat([last, -last])
    worst = tensor.trajectories.deviations(States(*(moment.expand(len(every)) for moment in state.states)), every).max()
    assert found.upper == float(worst)
    assert math.nextafter(found.lower, math.inf) >= found.upper
    assert tensor.trajectories.deviations(state.states, torch.tensor([found.gradient])) == worst


def test_a_gradient_that_may_overflow_is_not_bounded() -> None:
    found = enclosed(NATIVE, RECOVERED, math.inf)
    assert found.upper == math.inf
    assert 0 < found.lower < LR


@pytest.mark.parametrize("bound", [1e-3, 0.1, 1.0, 1e-45, 2.0**-149, 2.0**-126])
def test_no_gradient_exceeds_the_bound(bound: float) -> None:
    found = enclosed(NATIVE, RECOVERED, bound)
    assert abs(found.gradient) <= bound
    assert from_bits(bits_of(found.gradient)) == found.gradient


@pytest.mark.parametrize("wrong", [-1.0, math.inf, math.nan, 0.1, 1e300])
def test_moments_that_are_none_are_refused(wrong: float) -> None:
    with pytest.raises(UnsupportedError, match="finite binary32 moments"):
        enclosed((NATIVE[0], wrong), RECOVERED, 1.0)


def test_the_platforms_root_has_no_exact_value() -> None:
    with pytest.raises(UnsupportedError, match="black box"):
        EXACT.platform_sqrt(Fraction(2))


def test_without_python_flint_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "guarded_moments.oracle.intervals.balls")
    monkeypatch.setitem(sys.modules, "flint", None)
    tensor = tensor_of(ORDINARY)
    with pytest.raises(UnsupportedError, match=re.escape("pip install 'guarded-moments[flint]'")):
        enclose(tensor.model, tensor.options, tensor.scalars, *NATIVE, *RECOVERED, 1.0, numbers=Numbers.ARB)
