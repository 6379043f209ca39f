"""From surviving candidates to names: which known implementation it is, or which comes nearest and in what it differs.

Claimed: `common_rules` are the ways to form constants under which every quantity of every part is reproduced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from guarded_moments.oracle.identify.candidates import CHOICES, Candidate, Quantity
from guarded_moments.oracle.identify.experiment import Trial
from guarded_moments.oracle.identify.regions import placed, regions_as_seen
from guarded_moments.oracle.identify.rules import RULES, Rule
from guarded_moments.oracle.identify.setting import Feature
from guarded_moments.oracle.identify.whole import Acts
from guarded_moments.reference.adam import Decay, StepOptions
from guarded_moments.reference.implementations import IMPLEMENTATIONS, Implementation, Placement
from guarded_moments.reference.op_models import OpModel

Trials = Mapping[Quantity, Trial]
#: The candidates that reproduce each quantity in one part of the elements.
Part = dict[Quantity, list[Candidate]]

#: Quantities whose candidates name a rule that means something.
_WITH_RULE = set(Quantity) - {Quantity.LARGEST}
_PART_NAMES = ("body", "tail")


def options_of(quantity: Quantity) -> StepOptions:
    """The per-tensor choices under which a quantity is examined, as far as placements depend on them."""
    return StepOptions(
        decay={Quantity.GRADIENT_DECAY: Decay.L2, Quantity.PARAMETER_DECAY: Decay.DECOUPLED}.get(quantity, Decay.NONE),
        amsgrad=quantity in {Quantity.LARGEST, Quantity.AMSGRAD_ROOT},
        maximize=quantity is Quantity.MAXIMIZE,
    )


def parts_of(trials: Trials, placement: Placement, sizes: tuple[int, ...]) -> list[Part] | None:
    """The candidates for each quantity in each part of a placement; None if it leaves some part without any.

    A quantity examined where the placement has one part only counts for both.
    """
    parts: list[Part] = [{}, {}]
    for quantity, trial in trials.items():
        alive = placed(trial, placement, sizes, options_of(quantity))
        for number in (0, 1):
            found = alive.get(number, next(iter(alive.values())))
            parts[number][quantity] = [trial.candidates[index] for index in found]
    if not all(candidates for part in parts for candidates in part.values()):
        return None
    return parts[:1] if placement is Placement.NOWHERE else parts


def fitting(trials: Trials, sizes: tuple[int, ...]) -> dict[Placement, list[Part]]:
    """Every known placement that all quantities agree with, the simplest first."""
    found = {placement: parts_of(trials, placement, sizes) for placement in Placement}
    return {placement: parts for placement, parts in found.items() if parts is not None}


def common_rules(parts: list[Part]) -> list[Rule]:
    """The rules for constants under which every quantity of every part has a candidate."""
    sets = [
        {candidate.rule for candidate in candidates}
        for part in parts
        for quantity, candidates in part.items()
        if quantity in _WITH_RULE
    ]
    return [rule for rule in RULES if all(rule in alive for alive in sets)]


def acts_of(parts: list[Part]) -> Acts:
    """What the options do, where they were examined; only one kind of decay can act."""
    examined = {quantity for part in parts for quantity in part}

    def every(quantity: Quantity) -> list[Candidate]:
        return [candidate for part in parts for candidate in part.get(quantity, [])]

    decay = Decay.NONE
    for quantity in (Quantity.PARAMETER_DECAY, Quantity.GRADIENT_DECAY):
        for candidate in every(quantity):
            decay = candidate.decay if candidate.decay is not Decay.NONE else decay
    return Acts(
        decay=decay,
        amsgrad=Quantity.LARGEST not in examined or any(c.amsgrad for c in every(Quantity.LARGEST)),
        maximize=Quantity.MAXIMIZE not in examined or any(c.maximize for c in every(Quantity.MAXIMIZE)),
    )


def idle_options(trials: Trials, sizes: tuple[int, ...], acts: Acts) -> list[str]:
    """The options that were examined and change nothing, as no implementation has them."""
    understood = set(trials) - set(unlike_anything(trials, sizes))
    idle = (
        (Feature.WEIGHT_DECAY, acts.decay is Decay.NONE, {Quantity.GRADIENT_DECAY, Quantity.PARAMETER_DECAY}),
        (Feature.AMSGRAD, not acts.amsgrad, {Quantity.LARGEST}),
        (Feature.MAXIMIZE, not acts.maximize, {Quantity.MAXIMIZE}),
    )
    return [f"{feature.value} changes nothing" for feature, on, needed in idle if on and needed <= understood]


def fields_of(quantity: Quantity, acts: Acts) -> tuple[str, ...]:
    """The fields of an op model that a quantity adds to those before it."""
    if quantity in CHOICES:
        return tuple(CHOICES[quantity])
    added = {
        Quantity.GRADIENT_DECAY: ("l2_decay", acts.decay is Decay.L2),
        Quantity.PARAMETER_DECAY: ("decoupled_decay", acts.decay is Decay.DECOUPLED),
        Quantity.LARGEST: ("maximum", acts.amsgrad),
    }
    field, on = added.get(quantity, ("", False))
    return (field,) if on else ()


@dataclass(frozen=True)
class Nearest:
    """A known implementation, and what a kernel does otherwise."""

    implementation: Implementation
    altered: tuple[str, ...]  #: nothing if it may be that implementation


def nearest(trials: Trials, sizes: tuple[int, ...], acts: Acts) -> Nearest:
    """The implementation from which the fewest choices differ; of equal ones the first listed."""
    unlike = unlike_anything(trials, sizes)
    idle = idle_options(trials, sizes, acts)

    def distance(known: Implementation) -> tuple[int, int]:
        closest = sum(_away_from(known, quantity, trials[quantity], acts) for quantity in unlike)
        return len(altered[known.name]), closest

    altered = {
        known.name: (*_altered(known, trials, sizes, acts, unlike), *_altered_constants(known, trials, unlike))
        for known in IMPLEMENTATIONS.values()
    }
    found = min(IMPLEMENTATIONS.values(), key=distance)
    return Nearest(found, (*altered[found.name], *idle))


def unlike_anything(trials: Trials, sizes: tuple[int, ...]) -> list[Quantity]:
    """The quantities for which no few candidates together reproduce all positions."""
    return [quantity for quantity, trial in trials.items() if not regions_as_seen(trial, sizes)]


def _altered(
    implementation: Implementation, trials: Trials, sizes: tuple[int, ...], acts: Acts, unlike: list[Quantity]
) -> tuple[str, ...]:
    found: list[str] = []
    for quantity, trial in trials.items():
        if quantity in unlike:
            found.append(f"{quantity.value} is computed otherwise")
            continue
        alive = placed(trial, implementation.placement, sizes, options_of(quantity))
        for number, indices in alive.items():
            model = implementation.models[min(number, len(implementation.models) - 1)]
            part = f" ({_PART_NAMES[number]})" if len(implementation.models) > 1 else ""
            candidates = [trial.candidates[index] for index in indices]
            found += _altered_fields(quantity, fields_of(quantity, acts), model, part, candidates)
    return tuple(dict.fromkeys(found))


def _away_from(implementation: Implementation, quantity: Quantity, trial: Trial, acts: Acts) -> int:
    """In how many choices the closest candidate for a quantity that nothing reproduces is not the implementation's."""
    choices = dict(trial.best.choices)
    fields = [field for field in fields_of(quantity, acts) if field in choices]
    return sum(choices[field] != getattr(implementation.body, field) for field in fields)


def _altered_fields(
    quantity: Quantity, fields: tuple[str, ...], model: OpModel, part: str, alive: list[Candidate]
) -> list[str]:
    wanted = {(field, getattr(model, field)) for field in fields}
    if any(wanted <= set(candidate.choices) for candidate in alive):
        return []
    if not alive:
        return [f"{quantity.value} changes at other elements"]
    values: dict[str, set[Enum]] = {
        field: {value for candidate in alive for name, value in candidate.choices if name == field} for field in fields
    }
    return [
        f"{field}{part} is {' or '.join(sorted(v.name for v in values[field])) or 'absent'}, not {choice.name}"
        for field, choice in sorted(wanted, key=str)
        if choice not in values[field]
    ] or [f"{quantity.value}{part} combines its choices otherwise"]


def _altered_constants(implementation: Implementation, trials: Trials, unlike: list[Quantity]) -> list[str]:
    """Which quantities take their constants by another rule than the implementation does, given plain numbers.

    None do if some rule of the implementation, such as that for tensors, suits all quantities.
    """
    alive = {
        quantity: {candidate.rule for candidate in trial.survivors}
        for quantity, trial in trials.items()
        if quantity in _WITH_RULE and quantity not in unlike
    }
    own = [rule for rule in RULES if rule.constants is implementation.constants]
    if any(all(rule in rules for rules in alive.values()) for rule in own):
        return []
    return [
        f"constants of {quantity.value} are formed as {next(rule for rule in (*own, *RULES) if rule in rules)}"
        for quantity, rules in alive.items()
        if own[0] not in rules
    ]
