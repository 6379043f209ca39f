"""RAT: the codec `ratio8`, whose first moments are multiples of a step times the root of the second.

Levels and roots are judged against mpmath's powers, products against binary64, in which those of 15 bits by 24 are
exact, and nearest multiples against fractions.  Trusted: mpmath; that torch rounds binary64 to the nearest binary32.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import mpmath
import torch
from mpmath import mpf
from torch import Tensor

from guarded_moments.oracle.conformance.backend import Codes, Moments, RatioGrid
from guarded_moments.oracle.conformance.elementwise import LONGEST, require_elementwise
from guarded_moments.oracle.conformance.encode import near_thresholds, nearest_codes
from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.oracle.conformance.inputs import POSITIVE, log_uniform, ordinary_states, same_bits, signs
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial
from guarded_moments.reference.codecs import LogGrid
from guarded_moments.reference.codecs.eight_bit import V_LEVELS
from guarded_moments.reference.codecs.ratio8 import ESCAPE
from guarded_moments.reference.floats import BINARY32, hex_of

_PRECISION = 160
_CODES, _LARGEST = 256, 127
_RANDOM = 300

#: The usual; odd bounds; whole octaves, with ties; the least step of both; the whole range, with the largest step.
RATIO_GRIDS = (
    RatioGrid(LogGrid.spanning(-64.0, 0.0, V_LEVELS), 0.0264892578125),
    RatioGrid(LogGrid.spanning(-53.77, -9.1, V_LEVELS), 0.01202392578125),
    RatioGrid(LogGrid(-64.0, 0.5, V_LEVELS), 1.0),
    RatioGrid(LogGrid(-20.0, 2.0**-14, V_LEVELS), 2.0**-62),
    RatioGrid(LogGrid.spanning(-126.0, 127.5, V_LEVELS), 255.0 * 2.0**49),
)


@lru_cache(maxsize=16)
def roots_and_levels(grid: LogGrid) -> tuple[Tensor, Tensor]:
    """What each second-moment code multiplies by and decodes to: float32, (256,)."""
    found = []
    for halved in (2, 1):
        with mpmath.workprec(_PRECISION):
            exact = [mpf(2) ** (mpf(grid.exponent(i)) / halved) for i in range(grid.levels)]
        with mpmath.workprec(BINARY32.precision):
            found.append(torch.tensor([0.0, *(float(+x) for x in exact)]))
    return found[0], found[1]


def decoded_exactly(codes: Codes, grid: RatioGrid) -> Moments:
    """What pairs of codes, none of them the escape, must decode to."""
    roots, levels = roots_and_levels(grid.v)
    products = codes.m.view(torch.int8).double() * grid.step * roots[codes.v.long()].double()
    return Moments(products.float(), levels[codes.v.long()])


def nearest_pairs(m: Tensor, v: Tensor, grid: RatioGrid) -> Codes:
    """The codes that pairs must get."""
    v_codes = torch.zeros(len(v), dtype=torch.int64)
    v_codes[v > 0] = nearest_codes("v", grid.v, v[v > 0])
    roots = roots_and_levels(grid.v)[0].tolist()
    multiples = [
        round(Fraction(x) / (Fraction(grid.step) * Fraction(roots[code]))) if code else 0  # of Python: ties to even
        for x, code in zip(m.tolist(), v_codes.tolist(), strict=True)
    ]
    m_codes = torch.tensor([min(max(k, -_LARGEST), _LARGEST) & 0xFF for k in multiples])
    return Codes(m_codes.to(torch.uint8), v_codes.to(torch.uint8))


def ratio_pairs(generator: torch.Generator, grid: RatioGrid, count: int) -> tuple[Tensor, Tensor]:
    """Pairs around where a code changes, and others: float32, shape (n,)."""
    near = near_thresholds(grid.v)
    near = near[torch.randperm(len(near), generator=generator)[: 2 * count]]
    low, high = 2.0 ** grid.v.exponent(0), 2.0 ** grid.v.exponent(grid.v.levels - 1)
    v = torch.cat([near, log_uniform(generator, 3 * count, low, high).float(), POSITIVE])
    roots = roots_and_levels(grid.v)[0][nearest_codes("v", grid.v, v)]
    halves = torch.randint(0, 2 * _LARGEST + 3, (len(v),), generator=generator)
    middles = (halves.double() / 2 * grid.step * roots.double()).float()
    moved = middles.view(torch.int32) + torch.randint(-1, 2, (len(v),), generator=generator).to(torch.int32)
    m = moved.clamp(min=0).view(torch.float32)
    anywhere = torch.rand(len(v), generator=generator) < 1 / 4
    m = torch.where(anywhere, log_uniform(generator, len(v), 2.0**-149, 2.0**127).float(), m)
    return m * signs(generator, len(v)).float() + 0.0, v


def _every_pair(*, zero: bool) -> Codes:
    m, v = torch.meshgrid(torch.arange(_CODES), torch.arange(0 if zero else 1, _CODES), indexing="ij")
    stored = (m != ESCAPE).flatten()
    return Codes(m.flatten()[stored].to(torch.uint8), v.flatten()[stored].to(torch.uint8))


def pairs_decode_to_the_rounded_product(trial: Trial) -> None:
    """RAT-1."""
    codes = _every_pair(zero=True)
    for grid in RATIO_GRIDS:
        answer, expected = trial.backend.decode_ratio(codes, grid), decoded_exactly(codes, grid)
        for moment, given, right in zip("mv", answer, expected, strict=True):
            wrong = (~same_bits(given, right)).nonzero().flatten()
            if len(wrong):
                at = int(wrong[0])
                raise NonConformance(
                    f"codes m 0x{int(codes.m[at]):02x}, v 0x{int(codes.v[at]):02x} decode to {moment} = "
                    f"{float(given[at]):.9g}, which is not the nearest to the exact value",
                    f"grid      {grid}",
                    f"decoded   {hex_of(float(given[at]))}",
                    f"expected  {hex_of(float(right[at]))}",
                    f"wrong     {len(wrong)} of {len(given)} pairs of codes",
                )


def _require_codes(trial: Trial, grid: RatioGrid, m: Tensor, v: Tensor, expected: Codes, rule: str) -> None:
    codes = trial.backend.encode_ratio(m, v, grid)
    wrong = ((codes.m != expected.m) | (codes.v != expected.v)).nonzero().flatten()
    if len(wrong):
        at = int(wrong[m[wrong].abs().argmin()])
        pairs = [f"m 0x{int(x.m[at]):02x}, v 0x{int(x.v[at]):02x}" for x in (codes, expected)]
        raise NonConformance(
            f"m = {float(m[at]):.9g}, v = {float(v[at]):.9g} encode to {pairs[0]}, not {pairs[1]}: {rule}",
            f"native    m = {hex_of(float(m[at]))}  v = {hex_of(float(v[at]))}",
            f"grid      {grid}",
            f"wrong     {len(wrong)} of {len(m)} pairs",
        )


def the_nearest_multiple_is_taken(trial: Trial) -> None:
    """RAT-2."""
    for grid in RATIO_GRIDS:
        m, v = ratio_pairs(trial.generator(f"RAT-2 {grid}"), grid, _RANDOM)
        rule = "the level nearest in the logarithm, then the nearest multiple of its root, ties to even"
        _require_codes(trial, grid, m, v, nearest_pairs(m, v, grid), rule)


def zeros_stay_and_nothing_is_the_escape(trial: Trial) -> None:
    """RAT-3."""
    huge = torch.tensor([3e38, 1.0, 1e-45])
    m, v = torch.meshgrid(torch.cat([torch.tensor([0.0, -0.0]), huge, -huge]), torch.tensor([0.0]), indexing="ij")
    small, positive = torch.meshgrid(
        torch.cat([torch.tensor([0.0, -0.0]), POSITIVE, -POSITIVE]), POSITIVE, indexing="ij"
    )
    m, v = torch.cat([m.flatten(), small.flatten()]), torch.cat([v.flatten(), positive.flatten()])
    for grid in RATIO_GRIDS:
        _require_codes(trial, grid, m, v, nearest_pairs(m, v, grid), "zero stays zero, and no code is the escape")


def pairs_survive_decoding(trial: Trial) -> None:
    """RAT-4."""
    codes = _every_pair(zero=False)
    for grid in RATIO_GRIDS:
        decoded = trial.backend.decode_ratio(codes, grid)
        _require_codes(trial, grid, *decoded, codes, "the pair was decoded from those codes")


def a_pair_is_its_own_alone(trial: Trial) -> None:
    """RAT-5."""
    states = ordinary_states(trial.generator("RAT-5"), LONGEST)
    generator = trial.generator("RAT-5 codes")
    columns = [torch.randint(_CODES, (LONGEST,), generator=generator).to(torch.uint8) for _ in range(2)]
    columns[0] = torch.where(columns[0] == ESCAPE, 0, columns[0])
    grid = RATIO_GRIDS[1]

    def encode(m: Tensor, v: Tensor) -> Codes:
        return trial.backend.encode_ratio(m, v, grid)

    def decode(m: Tensor, v: Tensor) -> Moments:
        return trial.backend.decode_ratio(Codes(m, v), grid)

    require_elementwise(encode, states, ("m", "v"), ("the code of m", "the code of v"), f"encode_ratio, {grid}")
    require_elementwise(decode, columns, ("m code", "v code"), ("m", "v"), f"decode_ratio, {grid}")


REQUIREMENTS = (
    Requirement(
        "RAT-1",
        "Every pair of codes of `ratio8` decodes to the second moment's level, the nearest binary32 to 2**x, and to "
        "the product of multiple * step, exact, and the level's root, the nearest binary32 to 2**(x/2), rounded to "
        "nearest.",
        "Files move between devices and languages: a root of the rounded level, a product rounded twice or in another "
        "order is another state, for which no guard was asked.",
        Level.REPRODUCIBLE,
        pairs_decode_to_the_rounded_product,
        needs=("decode_ratio",),
    ),
    Requirement(
        "RAT-2",
        "A second moment gets the code of the level nearest in the logarithm, ties to the larger; a first moment that "
        "of the multiple of step * root nearest to it, ties to even, clamped to 127, beside the second's code.",
        "The root that counts is that of the level, not of the native second moment; a wrong neighbour costs escapes.",
        Level.REPRODUCIBLE,
        the_nearest_multiple_is_taken,
        needs=("encode_ratio",),
    ),
    Requirement(
        "RAT-3",
        "A second moment of zero, and no other, gets code 0, and beside it every first moment; zeros of both signs get "
        "multiple 0; no first moment gets the escape.",
        "A quotient by a root of zero is NaN or infinite, and a multiple of -128 reads as a stored pair.",
        Level.REPRODUCIBLE,
        zeros_stay_and_nothing_is_the_escape,
        needs=("encode_ratio",),
    ),
    Requirement(
        "RAT-4",
        "Encoding what a pair of codes of `ratio8` decodes to gives that pair again.",
        "A state that is saved, loaded and saved again must not drift.",
        Level.REPRODUCIBLE,
        pairs_survive_decoding,
        needs=("encode_ratio", "decode_ratio"),
    ),
    Requirement(
        "RAT-5",
        "Codes and moments of `ratio8` depend on nothing but their own pair, the grid and the step.",
        "Vectorised bodies and scalar tails are two pieces of code, and a block's edge is where they meet.",
        Level.REPRODUCIBLE,
        a_pair_is_its_own_alone,
        needs=("encode_ratio", "decode_ratio"),
    ),
)
