"""The binary32 operations are MPFR's, and a wrong rounding of any kind is caught by the cases that look for it."""

import re
import sys
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from tests.reference.arithmetic import exact_binary32
from tests.strategies import INFINITY, NAN, SIGN, SMALLEST_NORMAL, bits_of, floats_of

from guarded_moments.oracle.platform import arithmetic_cases, arithmetic_evidence
from guarded_moments.oracle.platform.arithmetic import Operation, by_mpfr, compare, gmpy2_version, ours
from guarded_moments.oracle.platform.arithmetic_cases import OPERANDS, Array, cases
from guarded_moments.oracle.platform.arithmetic_evidence import _tasks
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.errors import UnsupportedError

OPERATIONS = tuple(OPERANDS)
ORDINARY, THOROUGH = 200_000, 100_000_000
#: What a fault is made of: the operation, and its operands, to the wrong result.
Fault = Callable[[str, tuple[Array, ...]], Array]


@pytest.fixture(autouse=True)
def _gmpy2() -> None:
    pytest.importorskip("gmpy2")


@pytest.mark.timeout(3600)  # for `--oracle`
def test_every_operation_is_mpfrs(seed: int, pytestconfig: pytest.Config, compared: Counter[str]) -> None:
    thorough = pytestconfig.getoption("--oracle", default=None) is not None
    count, processes = (THOROUGH, 2) if thorough else (ORDINARY, 1)
    evidence = arithmetic_evidence(count, seed, processes)
    compared["add, sub, mul, div and fma with MPFR"] += evidence.total
    assert evidence.total == count
    assert min(evidence.cases.values()) == count // len(OPERATIONS)
    assert evidence.mismatches == {"NumpyBinary32": 0, "TorchBinary32": 0, "CompiledBinary32": 0}, evidence.examples
    assert f"{count:,} cases of add, sub, mul, div, fma in NumpyBinary32" in evidence.sentence()
    assert evidence.sentence().endswith("compared with " + gmpy2_version() + ": 0 mismatches")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_mpfr_itself_agrees_with_exact_rationals(operation: str, rng: np.random.Generator) -> None:
    operands = cases(operation, 3000, rng)
    result = by_mpfr(operation)(*operands)
    got = np.where(np.isnan(result), np.uint32(NAN), bits_of(result)).tolist()
    exact = exact_binary32.OPERATIONS[operation]
    assert got == [exact(*(float(value) for value in case)) for case in zip(*operands, strict=True)]


def exactly(operation: str, operands: tuple[Array, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.longdouble]]:
    """The result with 64 bits of significand, from which faults are made."""
    a, b, *c = (operand.astype(np.longdouble) for operand in operands)
    by_name = {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "div": lambda: a / b}
    return a * b + c[0] if operation == "fma" else by_name[operation]()


def truncated(operation: str, operands: tuple[Array, ...]) -> Array:
    right = right_result(operation, operands)
    too_large = np.abs(right.astype(np.longdouble)) > np.abs(exactly(operation, operands))
    return np.where(too_large, np.nextafter(right, np.float32(0)), right)


def flushed_results(operation: str, operands: tuple[Array, ...]) -> Array:
    right = right_result(operation, operands)
    return np.where(np.abs(right) < np.finfo(np.float32).smallest_normal, np.float32(0) * right, right)


def flushed_operands(operation: str, operands: tuple[Array, ...]) -> Array:
    tiny = np.finfo(np.float32).smallest_normal
    return right_result(operation, tuple(np.where(np.abs(x) < tiny, np.float32(0) * x, x) for x in operands))


def unsigned_zero(operation: str, operands: tuple[Array, ...]) -> Array:
    right = right_result(operation, operands)
    return np.where(right == 0, np.float32(0), right)


def saturated(operation: str, operands: tuple[Array, ...]) -> Array:
    right = right_result(operation, operands)
    finite = np.all([np.isfinite(x) for x in operands], axis=0)
    largest = np.copysign(np.finfo(np.float32).max, right)
    return np.where(np.isinf(right) & finite, largest, right).astype(np.float32)


def ties_away(operation: str, operands: tuple[Array, ...]) -> Array:
    right = right_result(operation, operands)
    exact = exactly(operation, operands)
    away = np.nextafter(right, np.copysign(np.float32(np.inf), right))
    tie = (exact - right == away - exact) & np.isfinite(away)
    return np.where(tie, away, right)


def rounded_twice(operation: str, operands: tuple[Array, ...]) -> Array:
    """In binary64 first: harmless for all but fma."""
    a, b, *c = (operand.astype(np.float64) for operand in operands)
    by_name = {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "div": lambda: a / b}
    return (a * b + c[0] if operation == "fma" else by_name[operation]()).astype(np.float32)


def right_result(operation: str, operands: tuple[Array, ...]) -> Array:
    result: Array = getattr(NumpyBinary32(), operation)(*operands)
    return result


FAULTS: tuple[Fault, ...] = (truncated, flushed_results, flushed_operands, unsigned_zero, saturated, ties_away)


def mismatches(operation: str, fault: Fault, operands: tuple[Array, ...]) -> int:
    def faulty(*values: Array) -> Array:
        with np.errstate(all="ignore"):
            return fault(operation, values)

    return compare(operation, operands, {"faulty": faulty}).mismatches["faulty"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_wrong_rounding_is_caught(operation: str, fault: Fault, rng: np.random.Generator) -> None:
    assert mismatches(operation, fault, cases(operation, ORDINARY // 20, rng)) > 0


def test_an_fma_that_rounds_twice_is_caught(rng: np.random.Generator) -> None:
    assert mismatches("fma", rounded_twice, cases("fma", ORDINARY // 20, rng)) > 100


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div"])
def test_binary64_is_wide_enough_for_all_but_fma(operation: str, rng: np.random.Generator) -> None:
    """So that the test before tells something of fma, not of the cases."""
    assert mismatches(operation, rounded_twice, cases(operation, ORDINARY // 20, rng)) == 0


@pytest.mark.parametrize("kind", ["_fma_just_below_half", "_fma_just_beside_half", "_fma_subnormal", "_fma_overflow"])
def test_each_kind_built_against_two_roundings_meets_them(kind: str, rng: np.random.Generator) -> None:
    operands = getattr(arithmetic_cases, kind)(3, 2000, rng)
    assert mismatches("fma", rounded_twice, operands) > 200


@pytest.mark.parametrize("operation", OPERATIONS)
def test_cases_reach_every_kind_of_result(operation: str, rng: np.random.Generator) -> None:
    result = right_result(operation, cases(operation, ORDINARY // 20, rng))
    bits = bits_of(result)
    magnitude = bits & ~np.uint32(SIGN)
    kinds = {
        "zero": bits == 0,
        "minus zero": bits == SIGN,
        "subnormal": (magnitude > 0) & (magnitude < SMALLEST_NORMAL),
        "infinity": magnitude == INFINITY,
        "NaN": np.isnan(result),
    }
    assert [name for name, found in kinds.items() if found.mean() < 1e-3] == []


@pytest.mark.parametrize("count", [5, 6, 32_768, 500_003])
def test_tasks_are_as_many_cases_as_asked_and_no_draw_is_used_twice(count: int) -> None:
    tasks = list(_tasks(count, seed=3))
    assert sum(task.cases for task in tasks) == count
    assert len({task.seed for task in tasks}) == len(tasks)
    assert {task.operation for task in tasks} == set(OPERATIONS)


def test_processes_share_the_work_and_find_the_same() -> None:
    seen: list[int] = []
    shared = arithmetic_evidence(1000, 5, processes=2, progress=lambda done, total: seen.append(done))
    assert (shared.total, shared.differing, shared.processes) == (1000, 0, 2)
    assert seen[-1] == 1000


def test_a_mismatch_is_spelled_out_in_bits() -> None:
    def wrong(*operands: Array) -> Array:
        return np.nextafter(right_result("fma", operands), np.float32(np.inf))

    operands = tuple(floats_of([bits, bits]) for bits in (0x3F800000, 0x40000000, 0x40400000))
    found = compare("fma", operands, {**ours("fma"), "wrong": wrong})
    assert found.mismatches == {"NumpyBinary32": 0, "TorchBinary32": 0, "CompiledBinary32": 0, "wrong": 2}
    assert found.examples[0] == (
        "wrong: fma(0x1.000000p+0 [3f800000], 0x1.000000p+1 [40000000], 0x1.800000p+1 [40400000]) "
        "= 0x1.400002p+2 [40a00001], by MPFR 0x1.400000p+2 [40a00000]"
    )


def test_nan_is_nan_whatever_its_payload() -> None:
    operands = (floats_of([0x7F800001, NAN]), floats_of([NAN | SIGN, 0x3F800000]))

    def other_nan(*operands: Array) -> Array:
        return floats_of([0x7FFFFFFF, 0xFFC00001])

    one: dict[str, Operation] = {"other": other_nan}
    assert compare("add", operands, one).mismatches == {"other": 0}


def test_without_gmpy2_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gmpy2", None)
    with pytest.raises(UnsupportedError, match=re.escape("pip install gmpy2")):
        arithmetic_evidence(1000, 1)
