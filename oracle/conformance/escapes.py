"""EXA: what is stored exactly comes back exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.oracle.conformance.inputs import SPECIAL, any_bits, ordinary_states, same_bits
from guarded_moments.oracle.conformance.optimizer_states import moments_of, state_dict
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial
from guarded_moments.oracle.conformance.shrink import complexity
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard import in_domain

_COUNT = 500
_ODD_SHAPE = (7, 3)
_SETTINGS = {"lr": 1e-3}
_UPDATES_DONE = 41
#: No code is near enough for this, so that every coordinate is an escape.
_UNREACHABLE = 1e-30
_EDGE_SIZES = (1, 2, 8, 9, 255, 256, 257, 4097, 40_000)
#: An escape lies before and at each, where the tensor reaches so far.
_EDGES = (0, 1, 8, 9, 32, 64, 128, 255, 256, 257, 512, 2048, 4095, 4096, 4097, 32_768, 40_000)
_FIRST_NAN = 0x7FC00001
_STILL = 0.3


def _moments(generator: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    """Every pair of special values, wild ones, and ordinary ones between them; and a matrix of no even size."""
    special = torch.cartesian_prod(SPECIAL, SPECIAL)
    ordinary = torch.stack(ordinary_states(generator, _COUNT), dim=1)
    wild = torch.stack([any_bits(generator, _COUNT), any_bits(generator, _COUNT)], dim=1)
    pairs = torch.cat([special, ordinary, wild])
    m, v = pairs[torch.randperm(len(pairs), generator=generator)].T.contiguous()
    small = torch.Size(_ODD_SHAPE).numel()
    return [(m, v), (m[:small].reshape(_ODD_SHAPE).clone(), v[-small:].reshape(_ODD_SHAPE).clone())]


def escapes_survive(trial: Trial) -> None:
    """EXA-1."""
    for tolerance, gradient_bound in ((0.01, 1.0), (_UNREACHABLE, torch.inf)):
        moments = _moments(trial.generator(f"EXA-1 {tolerance}"))
        native = state_dict(moments, _UPDATES_DONE, _SETTINGS)
        content = trial.backend.compress(native, tolerance=tolerance, gradient_bound=gradient_bound)
        recovered = moments_of(trial.backend.recover(content))
        for index, (before, after) in enumerate(zip(moments, recovered, strict=True)):
            exact = ~in_domain(*before) | ((before[0] == 0) & (before[1] == 0))
            if tolerance == _UNREACHABLE:
                exact = torch.ones_like(exact)
            _require_same(index, exact, before, after, f"tolerance {tolerance:g}, G {gradient_bound:g}")


def _require_same(
    index: int, exact: Tensor, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor], claim: str
) -> None:
    kept = same_bits(before[0], after[0]) & same_bits(before[1], after[1])
    lost = exact & ~kept
    if not bool(lost.any()):
        return
    at = tuple(lost.nonzero()[complexity(torch.stack([moment[lost] for moment in before], dim=1)).argmin()].tolist())
    m, v, m_hat, v_hat = (float(moment[at]) for moment in (*before, *after))
    raise NonConformance(
        f"{int(lost.sum())} of {int(exact.sum())} coordinates that must be kept exactly are not, "
        f"such as m = {m:g}, v = {v:g}",
        f"claim      {claim}",
        f"where      state[{index}]{list(at)}",
        f"native     m = {hex_of(m)}  v = {hex_of(v)}",
        f"recovered  m = {hex_of(m_hat)}  v = {hex_of(v_hat)}",
    )


def escapes_survive_at_every_edge(trial: Trial) -> None:
    """EXA-2.  Each escape has a NaN payload of its own, so that one in another's place is seen."""
    generator = trial.generator("EXA-2")
    moments = []
    for size in _EDGE_SIZES:
        m, v = ordinary_states(generator, size)
        places = torch.tensor(sorted({place for edge in _EDGES for place in (edge - 1, edge) if 0 <= place < size}))
        m[places] = (places.to(torch.int32) + _FIRST_NAN).view(torch.float32)
        moments.append((m, v))
    native = state_dict(moments, _UPDATES_DONE, _SETTINGS)
    content = trial.backend.compress(native, tolerance=0.01, gradient_bound=1.0)
    recovered = moments_of(trial.backend.recover(content))
    for index, (before, after) in enumerate(zip(moments, recovered, strict=True)):
        _require_same(index, before[0].isnan(), before, after, f"a tensor of {len(before[0])}, escapes at its edges")


def zeros_stay_zero(trial: Trial) -> None:
    """EXA-3."""
    generator = trial.generator("EXA-3")
    m, v = ordinary_states(generator, _COUNT)
    still = torch.rand(_COUNT, generator=generator) < _STILL
    m[still], v[still] = 0.0, 0.0
    moments = [(m, v), (torch.zeros(_COUNT), torch.zeros(_COUNT)), (torch.zeros(1), torch.zeros(1))]
    native = state_dict(moments, _UPDATES_DONE, _SETTINGS)
    content = trial.backend.compress(native, tolerance=0.01, gradient_bound=1.0)
    recovered = moments_of(trial.backend.recover(content))
    for index, (before, after) in enumerate(zip(moments, recovered, strict=True)):
        _require_same(index, (before[0] == 0) & (before[1] == 0), before, after, "coordinates that had no gradient yet")


REQUIREMENTS = (
    Requirement(
        "EXA-1",
        "What the guard cannot accept is recovered bit for bit: NaN with its payload, infinities, negative second "
        "moments, minus zero, and everything where no code is near enough; zeros stay zero.",
        "The exact fallback is what makes every other loss a choice.",
        Level.SOUND,
        escapes_survive,
        needs=("compress", "recover"),
    ),
    Requirement(
        "EXA-2",
        "Escapes come back in their own places: at the first and last element and at both sides of every block's edge.",
        "Escapes are stored apart from the codes; one that is lost or counted twice shifts every one behind it.",
        Level.SOUND,
        escapes_survive_at_every_edge,
        needs=("compress", "recover"),
    ),
    Requirement(
        "EXA-3",
        "A coordinate whose moments are both zero is recovered with both zero, in any company.",
        "Where v is zero, eps alone divides: a trace of a first moment there becomes an update of many learning rates.",
        Level.SOUND,
        zeros_stay_zero,
        needs=("compress", "recover"),
    ),
)
