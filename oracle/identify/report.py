"""What an identification found, in words and as JSON.

Claimed: nothing beyond the identification; every statement says on what it rests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

from guarded_moments.oracle.identify.candidates import Quantity
from guarded_moments.oracle.identify.difference import Difference
from guarded_moments.oracle.identify.experiment import Trial
from guarded_moments.oracle.identify.identification import Identification
from guarded_moments.oracle.identify.inputs import scan_roots
from guarded_moments.oracle.identify.naming import Part, acts_of, fields_of
from guarded_moments.oracle.identify.regions import regions_as_seen
from guarded_moments.oracle.identify.separate import ulps_apart
from guarded_moments.oracle.identify.whole import Acts
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.implementations import Evidence, Implementation


def in_words(found: Identification) -> list[str]:
    """The report, line by line."""
    return [line for section in (_verdict, _quantities, _left, _difference, _basis) for line in section(found)]


def _verdict(found: Identification) -> Iterator[str]:
    yield f"kernel      {found.kernel}, on {found.platform}"
    if found.named:
        for known in dict.fromkeys(implementation for implementation, _ in found.named):
            rules = " or ".join(str(rule) for implementation, rule in found.named if implementation is known)
            yield f"IDENTIFIED  {known.name}, constants {rules}  [{known.evidence.value}]"
        yield from (f"constants   {text}" for text in dict.fromkeys(rule.constants.value for _, rule in found.named))
        names = {implementation.name for implementation, _ in found.named}
        if len(names) > 1:
            alike = len({_without_names(implementation) for implementation, _ in found.named}) == 1
            yield f"            these have {'the same op models' if alike else 'the same bits on every input tried'}"
    elif found.exact:
        near = found.nearest.implementation.name
        yield f"IDENTIFIED  an op model that no known implementation has; nearest is {near}"
        yield from (f"            {altered}" for altered in found.nearest.altered)
    else:
        yield f"NOT IDENTIFIED  nearest is {found.nearest.implementation.name}; but"
        yield from (f"            {reason}" for reason in reasons(found))


def _without_names(implementation: Implementation) -> Implementation:
    """The implementation as far as it decides bits."""
    models = tuple(replace(model, name="") for model in implementation.models)
    return replace(implementation, name="", remark="", models=models, evidence=Evidence.MEASURED)


def reasons(found: Identification) -> list[str]:
    """Why a kernel was not identified, the first reason first."""
    told = [_closeness(difference) for difference in found.differences]
    told += [altered for altered in found.nearest.altered if not altered.endswith("is computed otherwise")]
    if found.assembly is not None and not found.rules and not told:
        told.append("no one way to form the constants suits all quantities")
    if found.failure is not None:
        failure = found.failure
        at = ", ".join(f"{name} {hex_of(value)}" for name, value in failure.example.items())
        told.append(
            f"whole steps differ in {failure.differing:,} of {failure.values:,} values at {failure.setting}: "
            f"{failure.row} is {hex_of(failure.observed)}, not {hex_of(failure.expected)}, where {at}"
        )
    return told or ["its quantities follow op models at elements that cannot be joined"]


def _closeness(difference: Difference) -> str:
    closest = "; ".join(str(choice.value) for _, choice in difference.closest.choices)
    share = 100 * difference.differing / max(1, difference.elements)
    far = "" if not difference.differing else f", by {_ulps(difference.median_ulps)} (median), "
    most = "" if not difference.differing else f"{_ulps(difference.largest_ulps)} at most"
    return (
        f"{difference.quantity.value} follows no op model: the closest, {closest}, differs in "
        f"{share:.3g} % of {difference.elements:,} elements{far}{most}"
    )


def _ulps(count: int) -> str:
    return "NaN against a number" if count < 0 else f"{count:,} ulp{'' if count == 1 else 's'}"


def _quantities(found: Identification) -> Iterator[str]:
    acts = _acts(found)
    yield "quantities, each given the kernel's own values of those before it:"
    rows = []
    for quantity, trial in found.trials.items():
        for where, chosen in regions_of(found, quantity, trial):
            rows.append((quantity.value, where, describe_choices(quantity, {quantity: chosen}, acts)))
        if quantity in found.unlike:
            share = 100 * float(trial.matched.max() / trial.tried.max().clamp(min=1))
            rows.append((quantity.value, "", f"no op model; at best {share:.4g} % of elements"))
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    yield from (f"  {row[0]:<{first}}  {row[1]:<{second}}  {row[2]}" for row in rows)


def _acts(found: Identification) -> Acts:
    """What the options do, as far as the quantities that follow op models show."""
    if found.assembly is not None:
        return found.assembly.acts
    return acts_of([{q: trial.survivors for q, trial in found.trials.items() if q not in found.unlike}])


def regions_of(found: Identification, quantity: Quantity, trial: Trial) -> list[tuple[str, list[Any]]]:
    """Where a quantity follows which candidates: the parts of the whole if they differ in it, else its own regions."""
    assembly = found.assembly
    if assembly is not None and assembly.placement is not None:
        chosen = [part[quantity] for part in assembly.parts]
        if all(candidates == chosen[0] for candidates in chosen):
            return [("all elements", chosen[0])]
        return list(zip(assembly.regions, chosen, strict=True))
    return [
        (region.where, [trial.candidates[index] for index in region.alive])
        for region in regions_as_seen(trial, found.plan.sizes)
    ]


def choices_left(quantity: Quantity, part: Part, acts: Acts) -> dict[str, list[Enum]]:
    """For each field that a quantity decides, the choices that reproduce it."""
    return {
        field: list(dict.fromkeys(value for c in part[quantity] for name, value in c.choices if name == field))
        for field in fields_of(quantity, acts)
    }


def describe_choices(quantity: Quantity, part: Part, acts: Acts) -> str:
    """The operations that reproduce a quantity, as the op models' fields name them."""
    fields = choices_left(quantity, part, acts)
    if fields:
        return "; ".join(" or ".join(str(choice.value) for choice in choices) for choices in fields.values())
    one = part[quantity][0]
    if quantity is Quantity.AMSGRAD_ROOT:
        return "the root of vmax'" if one.amsgrad else "the root of v': vmax' is not used"
    return "-g" if quantity is Quantity.MAXIMIZE and one.maximize else "as without the option"


def _left(found: Identification) -> Iterator[str]:
    told = coinciding(found)
    if told:
        yield f"not told apart by {found.tried:,} inputs:"
        yield from (f"  {line}" for line in told)


def coinciding(found: Identification) -> list[str]:
    """Choices and ways to form constants that give the same bits on everything tried, so that either may be meant."""
    if found.assembly is None:
        return []
    told = []
    for where, part in zip(found.assembly.regions, found.assembly.parts, strict=True):
        for quantity in part:
            for field, choices in choices_left(quantity, part, found.assembly.acts).items():
                if len(choices) > 1:
                    told.append(f"{field}, {where}: {' = '.join(choice.name for choice in choices)}")
    roots = scan_roots(1)
    if not roots.errors:
        told.append(f"torch.sqrt is the correctly rounded root on all {roots.scanned:,} values scanned on this machine")
    if len(found.rules) > 1:
        told.append(f"constants: {' = '.join(map(str, found.rules))}")
    return list(dict.fromkeys(told))


def _difference(found: Identification) -> Iterator[str]:
    if not found.differences:
        return
    first = found.differences[0]
    apart = _ulps(ulps_apart(first.expected, first.observed))
    yield f"first difference, in {first.quantity.value}, at {first.setting}:"
    yield from (f"  {name:<5} {hex_of(value)}" for name, value in first.example.items())
    for operation in first.trace:
        yield f"  {operation.name:<5} {hex_of(operation.result)}  {operation.formula}"
    yield f"  the kernel has {hex_of(first.observed)} in place of {hex_of(first.expected)}: {apart} apart"


def _basis(found: Identification) -> Iterator[str]:
    plan = found.plan
    differing = "0 differ" if found.exact else "some differ"
    yield (
        f"basis       {found.compared:,} values ({differing}) in {len(found.settings)} settings, tensors of "
        f"{', '.join(map(str, plan.sizes))}{f' and {plan.large:,}' if plan.large else ''} elements, seed {plan.seed}"
    )
    if found.skipped:
        yield f"not tried   {', '.join(feature.value for feature in found.skipped)}: not offered, or not in the plan"


def as_json(found: Identification) -> dict[str, Any]:
    """The same, for programs.  Values are given as C99 hexadecimal with their bits."""
    acts = _acts(found)
    return {
        "kernel": found.kernel,
        "platform": found.platform,
        "exact": found.exact,
        "named": [
            {"implementation": known.name, "constants": str(rule), "evidence": known.evidence.value}
            for known, rule in found.named
        ],
        "nearest": found.nearest.implementation.name,
        "altered": list(found.nearest.altered),
        "reasons": [] if found.exact else reasons(found),
        "constants": [str(rule) for rule in found.rules],
        "quantities": [
            {
                "quantity": quantity.name.lower(),
                "elements": where,
                "choices": {
                    field: [choice.name for choice in choices]
                    for field, choices in choices_left(quantity, {quantity: chosen}, acts).items()
                },
            }
            for quantity, trial in found.trials.items()
            for where, chosen in regions_of(found, quantity, trial)
        ],
        "unlike": [_difference_as_json(difference) for difference in found.differences],
        "coinciding": coinciding(found),
        "compared": found.compared,
        "tried": found.tried,
        "not_tried": [feature.value for feature in found.skipped],
        "sizes": [*found.plan.sizes, *([found.plan.large] if found.plan.large else [])],
        "settings": [str(setting) for setting in found.settings],
        "seed": found.plan.seed,
    }


def _difference_as_json(difference: Difference) -> dict[str, Any]:
    return {
        "quantity": difference.quantity.name.lower(),
        "elements": difference.elements,
        "differing": difference.differing,
        "median_ulps": difference.median_ulps,
        "largest_ulps": difference.largest_ulps,
        "setting": str(difference.setting),
        "example": {name: hex_of(value) for name, value in difference.example.items()},
        "operation": difference.operation,
        "expected": hex_of(difference.expected),
        "observed": hex_of(difference.observed),
        "trace": [[operation.name, operation.formula, hex_of(operation.result)] for operation in difference.trace],
    }
