"""From candidates that reproduce each quantity to op models for whole steps.

Claimed: nothing; `Proposal.failure` judges what is assembled here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from guarded_moments.oracle.identify.candidates import Candidate, Quantity
from guarded_moments.oracle.identify.naming import Part, Trials, acts_of, common_rules, fields_of, fitting
from guarded_moments.oracle.identify.regions import assign, covering, describe
from guarded_moments.oracle.identify.rules import Rule
from guarded_moments.oracle.identify.whole import Acts, Parts, Proposal
from guarded_moments.reference.adam import StepOptions
from guarded_moments.reference.implementations import Placement
from guarded_moments.reference.op_models import OpModel


@dataclass(frozen=True)
class Assembly:
    """One way to divide a tensor's elements into parts, and what reproduces each part."""

    regions: tuple[str, ...]  #: where each part is, in words
    parts: tuple[Part, ...]
    parts_of: Parts
    placement: Placement | None  #: None where the division is only what was seen

    @property
    def rules(self) -> list[Rule]:
        """The rules for constants that all quantities of all parts allow."""
        return common_rules(list(self.parts))

    @property
    def acts(self) -> Acts:
        """What the options do."""
        return acts_of(list(self.parts))

    def proposal(self, rule: Rule) -> Proposal:
        """Whole op models, the first of each set of candidates that have this rule."""
        acts = self.acts
        models = [_model(part, rule, acts) for part in self.parts]
        return Proposal(models, self.parts_of, rule, acts)


def assemblies(trials: Trials, sizes: tuple[int, ...], threads: int) -> Iterator[Assembly]:
    """Every division into parts that all quantities agree with: the known placements, else as seen.

    Args:
        trials: how the candidates for each quantity fared.
        sizes: the sizes in which every position was examined.
        threads: of the kernel's run.
    """
    known = fitting(trials, sizes)
    for placement, parts in known.items():
        yield Assembly(_words(placement), tuple(parts), _by_placement(placement, threads), placement)
    if not known:
        seen = _as_seen(trials, sizes)
        if seen is not None:
            yield seen


def _words(placement: Placement) -> tuple[str, ...]:
    if placement is Placement.NOWHERE:
        return ("all elements",)
    return ("all other elements", placement.value)


def _by_placement(placement: Placement, threads: int) -> Parts:
    def parts(sizes: tuple[int, ...], options: StepOptions) -> Tensor:
        return assign(placement, sizes, options, threads)

    return parts


def _as_seen(trials: Trials, sizes: tuple[int, ...]) -> Assembly | None:
    """The elements divided so that in each part each quantity has a candidate."""
    covers: dict[Quantity, list[Tensor]] = {}
    for quantity, trial in trials.items():
        masks = covering(trial.alive)
        if masks is None:
            return None
        covers[quantity] = masks
    parts: list[Part] = []
    regions: list[str] = []
    label = torch.zeros(sum(sizes), dtype=torch.int64)
    for masks_of_part in product(*covers.values()):
        where = torch.stack(masks_of_part).all(dim=0)
        if not bool(where.any()):
            continue
        label[where] = len(parts)
        regions.append(describe(where, sizes))
        parts.append(
            {
                quantity: [c for c, on in zip(trial.candidates, trial.alive[:, where].all(dim=1), strict=True) if on]
                for quantity, trial in trials.items()
            }
        )
    known: Mapping[int, Tensor] = dict(zip(sizes, label.split(list(sizes)), strict=True))

    def parts_of(wanted: tuple[int, ...], options: StepOptions) -> Tensor:  # noqa: ARG001 - what was seen depends on none
        return torch.cat([known[size] for size in wanted])

    return Assembly(tuple(regions), tuple(parts), parts_of, None)


def _model(part: Part, rule: Rule, acts: Acts) -> OpModel:
    choices: dict[str, object] = {}
    base = next(iter(part.values()))[0].model
    for quantity, candidates in part.items():
        fields = fields_of(quantity, acts)
        chosen = next((c for c in candidates if _suits(c, quantity, rule, acts)), candidates[0])
        choices |= {name: choice for name, choice in chosen.choices if name in fields}
    return replace(base, name="found", **choices)  # type: ignore[arg-type]  # fields of an op model, by name


def _suits(candidate: Candidate, quantity: Quantity, rule: Rule, acts: Acts) -> bool:
    if quantity is Quantity.LARGEST:
        return candidate.amsgrad == acts.amsgrad
    decays = {Quantity.GRADIENT_DECAY, Quantity.PARAMETER_DECAY}
    return candidate.rule == rule and (quantity not in decays or candidate.decay is acts.decay)
