"""CUDA's `powf`: the bits of libdevice's own code, its accuracy, and what they mean for Adam's bias corrections."""

import math

import mpmath
import numpy as np
import pytest

from guarded_moments.reference.arithmetic.numpy_binary32 import Array
from guarded_moments.reference.cuda_powf import LARGEST_EXPONENT, cuda_powf, cuda_powf_array
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.floats import bits_of, from_bits

BETAS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999)
LAST_STEP = 200_000

# Bits of the base, exponent, ulps added to the nearest reciprocal, bits of the power.  Obtained from `__nv_powf` of
# libdevice.10.bc in the triton 3.9.0 wheel (sha256 of the .bc 9e84b504...8265d8), its LLVM code compiled for x86-64 by
# llvmlite 0.50 with `__nvvm_reflect` answering 0 (no flush to zero), `llvm.nvvm.*.rn` as the IEEE operations,
# `llvm.nvvm.round` as round to nearest even and `rcp.approx` as the nearest binary32 plus those ulps.
GOLDEN = (
    (0x3F000000, 1, 0, 0x3F000000),
    (0x3F000000, 149, 0, 0x00000001),
    (0x3F000000, 150, 0, 0x00000000),
    (0x3F4CCCCD, 2, 0, 0x3F23D70B),
    (0x3F4CCCCD, 10, 0, 0x3DDBE701),
    (0x3F4CCCCD, 400, 0, 0x0012BFD7),
    (0x3F666666, 1, 0, 0x3F666666),
    (0x3F666666, 3, 0, 0x3F3A9FBD),
    (0x3F666666, 10, 0, 0x3EB285F8),
    (0x3F666666, 900, 0, 0x00001258),
    (0x3F733333, 2, 0, 0x3F670A3D),
    (0x3F733333, 100, 0, 0x3BC200F0),
    (0x3F7AE148, 1, 0, 0x3F7AE148),
    (0x3F7AE148, 3, 0, 0x3F70F1F6),
    (0x3F7AE148, 3000, 0, 0x13BCD7EF),
    (0x3F7D70A4, 1, 0, 0x3F7D70A4),
    (0x3F7D70A4, 2, 0, 0x3F7AE7D6),
    (0x3F7D70A4, 1000, 0, 0x38351339),
    (0x3F7FBE77, 1, 0, 0x3F7FBE77),
    (0x3F7FBE77, 2, 0, 0x3F7F7CFF),
    (0x3F7FBE77, 3, 0, 0x3F7F3B97),
    (0x3F7FBE77, 1000, 0, 0x3EBC4332),
    (0x3F7FBE77, 10000, 0, 0x383D7EC3),
    (0x3F7FBE77, 100000, 0, 0x00000019),
    (0x3F7FF972, 1, 0, 0x3F7FF972),
    (0x3F7FF972, 2, 0, 0x3F7FF2E4),
    (0x3F7FF972, 1000, 0, 0x3F67A225),
    (0x3F7FF972, 200000, 0, 0x310D07EC),
    (0x3F666666, 49, -1, 0x3BBBA49A),
    (0x3F666666, 49, 0, 0x3BBBA49B),
    (0x3F666666, 49, 1, 0x3BBBA49A),
    (0x3F2A8594, 4, -1, 0x3E4995EE),
    (0x3F2A8594, 4, 0, 0x3E4995EE),
    (0x3F2A8594, 4, 1, 0x3E4995ED),
    (0x3F3504F2, 37, 0, 0x363504C7),
    (0x3F3504F3, 37, 0, 0x363504EC),
    (0x3F3504F4, 37, 0, 0x36350511),
    (0x3F7FFFFF, 1, 0, 0x3F7FFFFF),
    (0x3F7FFFFF, 16777216, 0, 0x3EBC5AB1),
    (0x3F7FFFFF, 8388609, 0, 0x3F1B4597),
    (0x00800000, 1, 0, 0x00800000),
    (0x00800000, 2, 0, 0x00000000),
    (0x00000000, 1, 0, 0x00000000),
    (0x00000000, 7, 0, 0x00000000),
    (0x3F800000, 12345, 0, 0x3F800000),
    (0x3F39860F, 267, 0, 0x017A538F),
    (0x3F7FBE77, 303, 0, 0x3F3D0DAF),
    (0x3F7AE148, 566, 0, 0x37356B58),
    (0x3F666666, 984, 0, 0x00000001),
    (0x3F3504F3, 3, 0, 0x3EB504F2),
    (0x3F3E8D00, 133, 0, 0x2322B775),
    (0x3F3EEC20, 211, 0, 0x12D1EC89),
    (0x3F38FEB3, 240, 0, 0x0737CE59),
    (0x3F336099, 147, 0, 0x19BDB0ED),
    (0x3F45F874, 151, 0, 0x2380095D),
    (0x3F2C561B, 120, 0, 0x1D33C469),
)


def binary32(*values: float) -> Array:
    return np.asarray(values, dtype=np.float32)


def steps_until_the_correction_is_one(beta: float) -> Array:
    """The steps whose power still counts in `1 - power`, that is above `2**-25`, and some more."""
    last = min(LAST_STEP, math.ceil(-26 / math.log2(beta)))
    return np.arange(1, last + 1, dtype=np.float32)


def bias_corrections(beta: float, steps: Array, reciprocal_ulps: int = 0) -> Array:
    return np.float32(1) - cuda_powf_array(binary32(beta), steps, reciprocal_ulps)


def error_in_ulps(base: float, exponent: int, power: float) -> float:
    """How far `power` is from `base**exponent`, in units of the last place of the latter (normal powers only)."""
    with mpmath.workprec(200):
        exact = mpmath.mpf(base) ** exponent
        exponent_of_exact = mpmath.frexp(exact)[1] - 1
        return float(abs(power - exact) / mpmath.mpf(2) ** (exponent_of_exact - 23))


def relative_error(correction: float, beta: float, step: int) -> float:
    with mpmath.workprec(200):
        return float(abs(correction / (1 - mpmath.mpf(beta) ** step) - 1))


def test_the_bits_are_those_of_libdevice() -> None:
    computed = [bits_of(cuda_powf(from_bits(base), exponent, ulps)) for base, exponent, ulps, _ in GOLDEN]
    assert computed == [bits for *_, bits in GOLDEN]


def test_arrays_broadcast_and_hold_what_the_scalar_form_returns() -> None:
    steps = binary32(1, 2, 1000)
    powers = cuda_powf_array(binary32(*BETAS)[:, np.newaxis], steps)
    assert powers.shape == (len(BETAS), 3)
    assert powers.dtype == np.float32
    assert powers.tolist() == [[cuda_powf(beta, step) for step in (1, 2, 1000)] for beta in BETAS]


@pytest.mark.parametrize("beta", BETAS)
def test_the_power_of_a_usual_beta_is_within_085_ulp(beta: float) -> None:
    base = float(np.float32(beta))
    last = min(LAST_STEP, math.floor(-126 / math.log2(base)))  # the power is normal
    steps = np.unique(np.geomspace(1, last, 1500).astype(np.int64))
    powers = cuda_powf_array(binary32(base), steps.astype(np.float32))
    assert max(map(error_in_ulps, [base] * len(steps), steps.tolist(), powers.tolist())) <= 0.85


def test_the_power_of_any_base_is_within_two_ulp() -> None:
    generator = np.random.default_rng(20)
    bases = (1 - np.exp2(generator.uniform(-24, -1, 4000))).astype(np.float32)
    wanted_logarithms = generator.uniform(0, 125, bases.size)
    exponents = np.clip(np.floor(wanted_logarithms / -np.log2(bases, dtype=np.float64)), 1, LARGEST_EXPONENT)
    powers = cuda_powf_array(bases, exponents.astype(np.float32))
    errors = list(map(error_in_ulps, bases.tolist(), exponents.astype(int).tolist(), powers.tolist()))
    assert 0.85 < max(errors) < 2  # the figure for the usual betas is not a bound for all
    assert max(np.asarray(errors)[powers > 2.0**-20]) < 1


def test_powf_is_not_correctly_rounded() -> None:
    base = float(np.float32(0.9))
    assert [step for step in range(1, 101) if error_in_ulps(base, step, cuda_powf(base, step)) > 0.5] == [57, 89, 95]


@pytest.mark.parametrize(
    ("beta", "step", "error"),
    [
        (0.999, 1, "1.3e-05"),
        (0.999, 2, "2.0e-05"),
        (0.999, 10, "1.3e-05"),
        (0.999, 1_000, "7.5e-06"),
        (0.999, 10_000, "7.0e-09"),
        (0.9999, 2, "2.2e-04"),
    ],
)
def test_the_error_of_a_bias_correction(beta: float, step: int, error: str) -> None:
    (correction,) = bias_corrections(beta, binary32(step)).tolist()
    assert f"{relative_error(correction, beta, step):.1e}" == error


@pytest.mark.parametrize(
    ("beta", "from_binary64", "from_binary32"),
    [
        (0.9, "3.2e-07", "1.1e-07"),
        (0.95, "3.2e-07", "1.3e-07"),
        (0.99, "1.8e-06", "8.4e-07"),
        (0.999, "2.0e-05", "6.7e-06"),
        (0.9999, "2.2e-04", "9.9e-05"),
    ],
)
def test_the_largest_error_of_a_bias_correction(beta: float, from_binary64: str, from_binary32: str) -> None:
    steps = np.arange(1, 2001)
    corrections = bias_corrections(beta, steps.astype(np.float32)).tolist()
    for exact_beta, expected in ((beta, from_binary64), (float(np.float32(beta)), from_binary32)):
        errors = map(relative_error, corrections, [exact_beta] * len(steps), steps.tolist())
        assert f"{max(errors):.1e}" == expected


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("ulps", [-1, 1])
def test_no_bias_correction_of_a_usual_beta_depends_on_the_reciprocal(beta: float, ulps: int) -> None:
    steps = steps_until_the_correction_is_one(beta)
    assert bias_corrections(beta, steps, ulps).tolist() == bias_corrections(beta, steps).tolist()
    later = np.geomspace(steps[-1], LAST_STEP, 100).astype(np.int64).astype(np.float32)
    assert (bias_corrections(beta, later, ulps) == bias_corrections(beta, later)).all()


def test_the_reciprocal_can_matter_elsewhere() -> None:
    steps = np.arange(1, 1001, dtype=np.float32)
    powers, shifted = (cuda_powf_array(binary32(0.9), steps, ulps) for ulps in (0, 1))
    assert 0.001 < powers[powers != shifted].max() < 0.01  # a small power of a usual beta
    odd_beta = from_bits(0x3F2A8594)
    assert bias_corrections(odd_beta, binary32(4), 1) != bias_corrections(odd_beta, binary32(4))


@pytest.mark.parametrize("exponent", [0, -1, 1.5, LARGEST_EXPONENT + 1, math.inf, math.nan])
def test_an_exponent_outside_the_domain_is_refused(exponent: float) -> None:
    with pytest.raises(UnsupportedError, match="exponent"):
        cuda_powf(0.9, exponent)


@pytest.mark.parametrize("base", [-0.5, -0.0, 1e-40, 1.0000002, math.inf, math.nan])
def test_a_base_outside_the_domain_is_refused(base: float) -> None:
    with pytest.raises(UnsupportedError, match="base"):
        cuda_powf(base, 1)
    with pytest.raises(UnsupportedError, match="base"):
        cuda_powf_array(binary32(0.9, base), binary32(1))
