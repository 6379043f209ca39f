"""A trace is the reference's own update: every op model, wild values, and each line says what it computed."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from tests.reference.against_torch import INPUTS, NUMPY, step_of
from tests.strategies import SPECIAL_BITS, floats_of, wild, wild_states

from guarded_moments.oracle.tracing import Operation, trace_step, trace_update
from guarded_moments.reference.adam import Scalars, StepOptions, make_update
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS, Implementation

STATES = 60  #: traced of each op model and option, by budget
HYPERPARAMETERS = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=True)


def binary64(value: float) -> bytes:
    """The bits of a result; all NaN are one."""
    return b"NaN" if math.isnan(value) else np.float64(value).tobytes()


def settings(implementation: Implementation, *, from_end: bool) -> tuple[StepOptions, Scalars[float]]:
    hyperparameters = replace(HYPERPARAMETERS, beta1=0.3) if from_end else HYPERPARAMETERS
    return hyperparameters.options, implementation.scalars(hyperparameters, 12.0)


@pytest.mark.parametrize("from_end", [False, True], ids=["beta1 of 0.9", "beta1 of 0.3"])
@pytest.mark.parametrize("name", sorted(IMPLEMENTATIONS))
def test_a_trace_ends_with_the_update_of_the_reference(
    name: str, rng: np.random.Generator, budget: int, compared: Counter[str], *, from_end: bool
) -> None:
    options, scalars = settings(IMPLEMENTATIONS[name], from_end=from_end)
    assert options.interpolate_from_end is from_end
    m, v, g = (wild(STATES * budget, rng) for _ in range(3))
    v = np.where(rng.random(v.size) < 0.8, np.abs(v), v)
    for model in IMPLEMENTATIONS[name].models:
        op = NumpyBinary32()
        constants = Scalars(*(op.constant(value) for value in scalars))
        expected = make_update(op, model, options)(m, v, g, constants)
        for state in zip(m.tolist(), v.tolist(), g.tolist(), expected.tolist(), strict=True):
            last = trace_update(model, options, scalars, *state[:3])[-1]
            assert binary64(last.result) == binary64(state[3]), (
                f"{model.name}: m {hex_of(state[0])}, v {hex_of(state[1])}, g {hex_of(state[2])}: "
                f"the trace ends with {last.result.hex()}, the reference gives {state[3].hex()}"
            )
        compared["traces against NumpyBinary32"] += len(m)


@pytest.mark.parametrize("name", sorted(IMPLEMENTATIONS))
def test_the_trace_of_a_step_has_the_results_of_the_reference(name: str, rng: np.random.Generator) -> None:
    """Under the names of the operations that gave them, whichever these were."""
    hyperparameters = replace(HYPERPARAMETERS, amsgrad=True, maximize=True, weight_decay=0.1)
    scalars = IMPLEMENTATIONS[name].scalars(hyperparameters, 12.0)
    states = wild_states(STATES, rng)
    for model in IMPLEMENTATIONS[name].models:
        expected = step_of(NUMPY, model, hyperparameters.options, scalars, states)
        for state, after in zip(states.t().tolist(), expected.t().tolist(), strict=True):
            operations, result = trace_step(
                model, hyperparameters.options, scalars, dict(zip(INPUTS, state, strict=True))
            )
            assert [binary64(float(traced.value)) for traced in result] == [binary64(value) for value in after]
            by_name = {operation.name: operation.result for operation in operations}
            assert result.p.name == operations[-1].name
            assert {binary64(by_name[traced.name]) for traced in (result.p, result.m, result.v)} == {
                binary64(float(traced.value)) for traced in (result.p, result.m, result.v)
            }


def rounded(value: Fraction) -> np.float32:
    """The nearest binary32 of a rational that is neither huge nor subnormal, ties to even."""
    if value == 0:
        return np.float32(0)
    exponent = 0
    while abs(value) * Fraction(2) ** -exponent >= 2:
        exponent += 1
    while abs(value) * Fraction(2) ** -exponent < 1:
        exponent -= 1
    unit = Fraction(2) ** (exponent - 23)
    return np.float32(float(round(value / unit) * unit))


def root(value: Fraction) -> np.float32:
    scaled = math.isqrt(value.numerator * value.denominator << 200)
    return rounded(Fraction(scaled, value.denominator << 100))


EXACT: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


def recomputed(operation: Operation, known: dict[str, Fraction]) -> float:
    """What the formula of a line says, in rational arithmetic, rounded once."""

    def value(name: str) -> Fraction:
        return -known[name[1:]] if name.startswith("-") else known[name]

    formula = operation.formula
    if formula.startswith("fma("):
        a, b, c = (value(name) for name in formula[4:-1].split(", "))
        return float(rounded(a * b + c))
    if formula.startswith("sqrt("):
        return float(root(value(formula[5:-1])))
    if formula.startswith("torch.sqrt("):
        return torch.tensor([float(value(formula[11:-1]))], dtype=torch.float32).sqrt().item()
    left, sign, right, *exactly = formula.split(" ")
    exact = EXACT[sign](value(left), value(right))
    if exactly:
        assert exactly == ["exactly"], formula
        assert Fraction(float(exact)) == exact, f"{formula} is no binary64"
        return float(exact)
    return float(rounded(exact))


@pytest.mark.parametrize("from_end", [False, True], ids=["beta1 of 0.9", "beta1 of 0.3"])
@pytest.mark.parametrize("name", sorted(IMPLEMENTATIONS))
def test_each_line_says_what_it_computed(name: str, rng: np.random.Generator, *, from_end: bool) -> None:
    options, scalars = settings(IMPLEMENTATIONS[name], from_end=from_end)
    for model in IMPLEMENTATIONS[name].models:
        for _ in range(8):
            m, g = (rng.standard_normal(2) * 1e-3).astype(np.float32).tolist()
            v = float(np.float32(rng.random() * 1e-6 + 1e-9))
            known = {name: Fraction(value) for name, value in scalars._asdict().items()}
            known |= {"m": Fraction(m), "v": Fraction(v), "g": Fraction(g)}

            operations = trace_update(model, options, scalars, m, v, g)

            assert [operation.name for operation in operations] == [f"t{i + 1}" for i in range(len(operations))]
            for operation in operations:
                expected = recomputed(operation, known)
                assert expected.hex() == operation.result.hex(), f"{model.name}: {operation}, with {known}"
                known[operation.name] = Fraction(operation.result)
            used = " ".join(operation.formula for operation in operations)
            for operation in operations[:-1]:
                assert operation.name in used, f"{model.name}: {operation.name} is computed and never used"


@pytest.mark.parametrize("name", ["torch-2.13-cpu-avx2/single", "torch-2.13-cpu-default/fused"])
def test_specials_are_traced_without_a_warning(name: str) -> None:
    model = IMPLEMENTATIONS[name].body
    options, scalars = settings(IMPLEMENTATIONS[name], from_end=False)
    specials = floats_of(SPECIAL_BITS).tolist()
    for m in specials[::3]:
        for v in specials[::2]:
            for g in specials[::5]:
                assert len(trace_update(model, options, scalars, m, v, g)) >= 8
