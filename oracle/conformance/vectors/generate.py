"""Vectors, from the inputs of the checks and the answers of their oracles.

Claimed: each answer is of the oracle that judges backends: mpmath for codes and levels, NumPy's op model for updates,
the worst-case search for guards, of whose pairs only those that it decided are kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.adapting import Adapted
from guarded_moments.oracle.conformance.backend import Codes, Grids, ReferenceBackend
from guarded_moments.oracle.conformance.encode import near_thresholds, nearest_codes
from guarded_moments.oracle.conformance.guard import likely_gradients
from guarded_moments.oracle.conformance.inputs import (
    GRIDS,
    INFINITIES,
    NANS,
    POSITIVE,
    SPECIAL,
    ZEROS,
    log_uniform,
    same_numbers,
    signs,
)
from guarded_moments.oracle.conformance.operations import ordinary_rows
from guarded_moments.oracle.conformance.pairs import accepted_pairs, joined, quantised_pairs
from guarded_moments.oracle.conformance.pipe import constant_words, grid_words, ratio_words, step_words
from guarded_moments.oracle.conformance.ratio import RATIO_GRIDS, decoded_exactly, nearest_pairs, ratio_pairs
from guarded_moments.oracle.conformance.requirements import Trial
from guarded_moments.oracle.conformance.scenes import Scene
from guarded_moments.oracle.conformance.slips import Step, slips_of
from guarded_moments.oracle.conformance.vectors.group import Group
from guarded_moments.oracle.trajectories import Trajectories
from guarded_moments.oracle.worst_case import Verdict, decide
from guarded_moments.reference.codecs.log8 import ESCAPE
from guarded_moments.reference.codecs.ratio8 import ESCAPE as RATIO_ESCAPE
from guarded_moments.reference.guard import closed_form_guard, in_domain
from guarded_moments.reference.guard.search import States
from guarded_moments.reference.platform import one_torch_thread

_SMALLEST_NORMAL = 2.0**-126
_SHOWN_GRIDS = 3
_LINES = 6
_POOL, _TELLING = 4000, 4  #: rows that are looked through, and those kept of each slip
_EXACT = 200  #: ... looked through where the arithmetic is slow
_ENUMERATED = 1 << 12  #: gradients of one pair, beyond which it is left out


def generate(trial: Trial, count: int) -> list[Group]:
    """Groups of every kind.

    Args:
        trial: the seed, and the op models asked for.
        count: ordinary questions a group, besides those that are there for a reason.
    """
    with one_torch_thread():
        return [
            *_decode(),
            *_encode(trial, count),
            *_decode_ratio(trial),
            *_encode_ratio(trial, count),
            *_guard(trial, count),
            *_updates(trial, count),
        ]


def _decode() -> Iterator[Group]:
    codes = torch.arange(256, dtype=torch.uint8)
    for index, grids in enumerate(GRIDS[:_SHOWN_GRIDS]):
        m, v = ReferenceBackend().decode(Codes(codes, codes), grids)
        flags = tuple(
            ("Escape",) if code == ESCAPE else ("Zero", "Code") if code == 0 else ("Code",) for code in codes.tolist()
        )
        inputs, answers = {"m_code": codes, "v_code": codes}, {"m": m, "v": v}
        yield Group("decode", f"grids-{index}", f"decode {grid_words(grids)}", str(grids), inputs, answers, flags)


def _encode(trial: Trial, count: int) -> Iterator[Group]:
    for index, grids in enumerate(GRIDS[:_SHOWN_GRIDS]):
        generator = trial.generator(f"vectors encode {index}")
        columns = [_to_encode(generator, grids, moment, count) for moment in (0, 1)]
        size = min(len(column) for column, _ in columns)
        (m, m_flags), (v, v_flags) = ((column[:size], flags[:size]) for column, flags in columns)
        m = m * signs(generator, size).float() + 0.0
        answers = {}
        for name, moment, values, grid in (("m_code", "m", m, grids.m), ("v_code", "v", v, grids.v)):
            codes = torch.zeros(size, dtype=torch.int64)
            codes[values != 0] = nearest_codes(moment, grid, values[values != 0])
            answers[name] = codes.to(torch.uint8)
        flags = tuple(tuple(sorted({a, b})) for a, b in zip(m_flags, v_flags, strict=True))
        yield Group(
            "encode", f"grids-{index}", f"encode {grid_words(grids)}", str(grids), {"m": m, "v": v}, answers, flags
        )


def _to_encode(generator: torch.Generator, grids: Grids, moment: int, count: int) -> tuple[Tensor, list[str]]:
    grid = grids[moment]
    near = near_thresholds(grid)
    near = near[torch.randperm(len(near), generator=generator)[: 2 * count]]
    low, high = 2.0 ** grid.exponent(0), 2.0 ** grid.exponent(grid.levels - 1)
    ordinary = log_uniform(generator, count, low, high).float()
    outside = POSITIVE[(low > POSITIVE) | (high < POSITIVE)]
    parts = ((ZEROS[:1], "Zero"), (outside, "OutsideGrid"), (near, "NearThreshold"), (ordinary, "Ordinary"))
    return torch.cat([part for part, _ in parts]), [flag for part, flag in parts for _ in part]


def _decode_ratio(trial: Trial) -> Iterator[Group]:
    every = torch.arange(256, dtype=torch.uint8)
    every = every[every != RATIO_ESCAPE]
    for index, grid in enumerate(RATIO_GRIDS[:_SHOWN_GRIDS]):
        generator = trial.generator(f"vectors decode ratio {index}")
        codes = Codes(every, torch.randint(1, 256, every.shape, generator=generator).to(torch.uint8))
        codes.v[:2] = 0
        decoded = decoded_exactly(codes, grid)
        flags = tuple(("Zero", "Code") if v == 0 else ("Code",) for v in codes.v.tolist())
        inputs = {"m_code": codes.m, "v_code": codes.v}
        request = f"decode_ratio {ratio_words(grid)}"
        yield Group("decode_ratio", f"grid-{index}", request, str(grid), inputs, decoded._asdict(), flags)


def _encode_ratio(trial: Trial, count: int) -> Iterator[Group]:
    for index, grid in enumerate(RATIO_GRIDS[:_SHOWN_GRIDS]):
        generator = trial.generator(f"vectors encode ratio {index}")
        m, v = ratio_pairs(generator, grid, count)
        m, v = torch.cat([torch.tensor([0.0, 1.0, -0.0]), m]), torch.cat([torch.zeros(3), v])
        nearest = nearest_pairs(m, v, grid)
        encoded = {"m_code": nearest.m, "v_code": nearest.v}
        flags = tuple(("Zero",) if x == 0 else ("NearMultiple",) for x in v.tolist())
        request = f"encode_ratio {ratio_words(grid)}"
        yield Group("encode_ratio", f"grid-{index}", request, str(grid), {"m": m, "v": v}, encoded, flags)


def _guard(trial: Trial, count: int) -> Iterator[Group]:
    for index, scene in enumerate(trial.scenes):
        generator = trial.generator(f"vectors guard {scene}")

        def guard(*states: Tensor, scene: Scene = scene) -> Tensor:
            return closed_form_guard(scene.constants, *states)

        last, before = accepted_pairs(generator, guard, _LINES)
        near = joined(before, _farther(last))
        pairs = joined(near, quantised_pairs(generator, GRIDS[1], count))
        names = ["NearTolerance"] * len(near.m) + ["Quantised"] * count
        safe, decided = _verdicts(scene, pairs)
        bad, bad_names = _outside()
        kept = joined(pairs.select(decided), bad)
        flags = [name for name, keep in zip(names, decided.tolist(), strict=True) if keep] + bad_names
        accept = torch.cat([safe[decided].to(torch.int8), torch.zeros(len(bad.m), dtype=torch.int8)])
        request = f"guard {constant_words(scene.constants)}"
        yield Group(
            "guard",
            f"claim-{index}",
            request,
            str(scene),
            kept._asdict(),
            {"accept": accept},
            tuple((f,) for f in flags),
        )


def _farther(pairs: States) -> States:
    """The recovered state moved on by as much again."""
    m_hat, v_hat = 2 * pairs.m_hat - pairs.m, 2 * pairs.v_hat - pairs.v
    return States(pairs.m, pairs.v, m_hat + 0.0, v_hat.clamp(min=0.0) + 0.0)


def _verdicts(scene: Scene, pairs: States) -> tuple[Tensor, Tensor]:
    """Whether each pair is safe for all op models of the scene, and whether that is known.

    Safe: the closed form and the search over all gradients both say so.  Unsafe: one of a few gradients shows it, or
    the pair is outside the domain.  What lies between would take a tenth of a second each, and is left out.
    """
    inside = in_domain(pairs.m, pairs.v) & in_domain(pairs.m_hat, pairs.v_hat)
    accepted = closed_form_guard(scene.constants, *pairs)
    safe, unsafe = accepted.clone(), ~inside
    easy = accepted.nonzero().flatten()
    index = inside.nonzero().flatten()
    for model in scene.models:
        trajectories = Trajectories(model, scene.options, scene.scalars)
        safe[easy] &= decide(scene.constants, trajectories, pairs.select(easy), _ENUMERATED).verdict == Verdict.SAFE
        some = pairs.select(index)
        beyond = trajectories.deviations(some, likely_gradients(scene, some)) > scene.constants.threshold
        unsafe[index] |= beyond.any(dim=0)
    return safe, safe | unsafe


def _outside() -> tuple[States, list[str]]:
    """Pairs that no guard may accept."""
    good_m, good_v = 2.0**-10, 2.0**-18
    rows, names = [], []
    for bad in (*NANS, *INFINITIES):
        name = "NaN" if bool(bad.isnan()) else "Infinite"
        for place in range(4):
            row = torch.tensor([good_m, good_v, good_m, good_v])
            row[place] = bad
            rows.append(row)
            names.append(name)
    rows.append(torch.tensor([good_m, -good_v, good_m, -good_v]))
    names.append("NegativeSecondMoment")
    return States(*torch.stack(rows).T.contiguous()), names


def _updates(trial: Trial, count: int) -> Iterator[Group]:
    scenes = {scene.op_model: scene for scene in reversed(trial.scenes)}.values()
    for scene in scenes:
        generator = trial.generator(f"vectors update {scene}")
        chosen = torch.randint(len(SPECIAL), (count, 3), generator=generator)
        common = torch.cat([SPECIAL[chosen], ordinary_rows(generator, count)])
        pool = ordinary_rows(generator, _POOL)
        for model in scene.models:
            step = Step(model, scene.options, scene.scalars)
            telling = _telling(step, pool)
            rows = torch.cat([common, telling])
            m, v, g = rows.T.contiguous()
            flags = (*(_flags_of(row) for row in common), *(("Telling",) for _ in telling))
            request = f"first_update {step_words(model, scene.options, scene.scalars)}"
            inputs, answers = {"m": m, "v": v, "g": g}, {"update": step.updates(rows)}
            yield Group("first_update", model.name, request, f"{model.name}, {scene}", inputs, answers, flags)


def _telling(step: Step, pool: Tensor) -> Tensor:
    """For each known slip, a few rows whose update it changes."""
    right = step.updates(pool)
    found = []
    for slip in slips_of(step):
        few = pool[:_EXACT] if slip.step.rounding is not None else pool
        other = slip.updates(few)
        if other.dtype is right.dtype:
            found.append(few[~same_numbers(other, right[: len(few)])][:_TELLING])
    return torch.cat(found)


def _flags_of(row: Tensor) -> tuple[str, ...]:
    found = []
    for name, applies in (
        ("NaN", row.isnan()),
        ("Infinite", row.isinf()),
        ("Zero", row == 0),
        ("Subnormal", (row != 0) & (row.abs() < _SMALLEST_NORMAL)),
    ):
        if bool(applies.any()):
            found.append(name)
    return tuple(found) or ("Ordinary",)


def reference_trial(seed: int, op_models: tuple[str, ...]) -> Trial:
    """A trial for its seed and op models alone."""
    return Trial(Adapted(ReferenceBackend()), seed, op_models)
