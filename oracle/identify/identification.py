"""Which op models a kernel follows: the search, quantity by quantity, and what came out of it.

Claimed: `exact` means that op models of the choice space, assigned to elements as the result says, have reproduced
every value of every call; candidates that remain together for a quantity of the plain step coincide also on the inputs
of a second, larger search.  Not claimed: anything about sizes, hyperparameters or devices that were not tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from guarded_moments.oracle.identify.assembly import Assembly, assemblies
from guarded_moments.oracle.identify.candidates import (
    CHOICES,
    Candidate,
    Quantity,
    evaluate,
    key_of,
    largest_candidates,
    plain_candidates,
    to_maximize,
    with_amsgrad_root,
    with_decay,
)
from guarded_moments.oracle.identify.difference import Difference, difference
from guarded_moments.oracle.identify.experiment import Experiment, Progress, Record, Trial
from guarded_moments.oracle.identify.inputs import pool
from guarded_moments.oracle.identify.naming import Nearest, acts_of, idle_options, nearest, unlike_anything
from guarded_moments.oracle.identify.rules import Rule
from guarded_moments.oracle.identify.separate import bits, classes_of, separating
from guarded_moments.oracle.identify.setting import Feature, Plan, Setting
from guarded_moments.oracle.identify.subject import Subject
from guarded_moments.oracle.identify.whole import Failure, Proposal
from guarded_moments.reference.implementations import IMPLEMENTATIONS, Implementation, platform_description
from guarded_moments.reference.platform import one_torch_thread, require_subnormals

_PLAIN: frozenset[Feature] = frozenset()
_FEATURE_OF = {
    Quantity.GRADIENT_DECAY: Feature.WEIGHT_DECAY,
    Quantity.PARAMETER_DECAY: Feature.WEIGHT_DECAY,
    Quantity.MAXIMIZE: Feature.MAXIMIZE,
    Quantity.LARGEST: Feature.AMSGRAD,
    Quantity.AMSGRAD_ROOT: Feature.AMSGRAD,
}


@dataclass(frozen=True)
class Identification:
    """What a kernel was found to be."""

    kernel: str
    platform: str
    exact: bool  #: op models of the choice space reproduce every value
    named: tuple[tuple[Implementation, Rule], ...]  #: the known implementations that do, with the constants' rule
    assembly: Assembly | None  #: what reproduces each part of the elements, quantity by quantity
    rules: tuple[Rule, ...]  #: the ways to form the constants that remain
    trials: dict[Quantity, Trial]  #: how the candidates for each quantity fared
    unlike: tuple[Quantity, ...]  #: the quantities that no candidates reproduce
    nearest: Nearest  #: the implementation with the fewest differing choices
    differences: tuple[Difference, ...]  #: of those quantities, each beside the candidate that comes closest
    failure: Failure | None  #: where whole steps fail although each quantity by itself is reproduced
    compared: int  #: values that the kernel computed
    tried: int  #: inputs on which candidates were compared with each other
    settings: tuple[Setting, ...]  #: in which it was called
    skipped: tuple[Feature, ...]  #: options that the kernel does not offer or the plan does not ask for
    plan: Plan


def identify(subject: Subject, plan: Plan | None = None, progress: Progress | None = None) -> Identification:
    """Find the op models that a kernel follows.

    Args:
        subject: the kernel: `load_subject("module:callable")`, or a `FunctionSubject`.
        plan: where to look, and how hard.
        progress: called with the settings done and their number.

    Raises:
        KernelError: the kernel raised, broke the protocol, or is not deterministic.
        PlatformError: flush-to-zero is on.
    """
    require_subnormals()
    threads = torch.get_num_threads()
    with one_torch_thread():  # the arrays here are too small to share
        return _identify(subject, Plan() if plan is None else plan, progress or _silent, threads)


def _identify(subject: Subject, plan: Plan, progress: Progress, threads: int) -> Identification:
    offered = [setting for setting in plan.settings if setting.features <= subject.features]
    experiment = Experiment(subject, plan, progress, threads)
    experiment.expected = len(offered)
    experiment.require_determinism(plan.of(_PLAIN)[0])
    for setting in plan.of(_PLAIN):
        experiment.run(setting, {quantity: plain_candidates(quantity) for quantity in CHOICES})
    _examine_options(experiment)
    _search_further(experiment)
    return _conclude(experiment, _whole_steps(experiment))


def _silent(done: int, total: int) -> None:
    """Show no progress."""


def _examine_options(experiment: Experiment) -> None:
    """Each option by itself, on top of what the plain step left possible; where nothing is left, nothing is asked."""
    sizes = experiment.plan.sizes
    open_questions = unlike_anything(experiment.trials, sizes)
    left = {q: trial.survivors for q, trial in experiment.trials.items() if q not in open_questions}
    candidates: dict[Feature, dict[Quantity, list[Candidate]]] = {feature: {} for feature in Feature}
    if Quantity.FIRST_MOMENT in left:
        first = left[Quantity.FIRST_MOMENT]
        candidates[Feature.WEIGHT_DECAY][Quantity.GRADIENT_DECAY] = with_decay(first, Quantity.GRADIENT_DECAY)
        candidates[Feature.MAXIMIZE][Quantity.MAXIMIZE] = to_maximize(first)
    if Quantity.PARAMETER in left:
        last = left[Quantity.PARAMETER]
        candidates[Feature.WEIGHT_DECAY][Quantity.PARAMETER_DECAY] = with_decay(last, Quantity.PARAMETER_DECAY)
        candidates[Feature.AMSGRAD][Quantity.AMSGRAD_ROOT] = with_amsgrad_root(last)
    candidates[Feature.AMSGRAD][Quantity.LARGEST] = largest_candidates()
    for feature in Feature:
        if feature in experiment.subject.features and candidates[feature]:
            for setting in experiment.plan.of(frozenset({feature})):
                experiment.run(setting, candidates[feature])


def _search_further(experiment: Experiment) -> None:
    """Look among more inputs for some that tell apart what the first search left together, and show them the kernel."""
    assembly = next(assemblies(experiment.trials, experiment.plan.sizes, experiment.threads), None)
    if not experiment.plan.search or assembly is None or assembly.placement is None or not assembly.rules:
        return
    proposal = assembly.proposal(assembly.rules[0])
    for number, setting in enumerate(experiment.plan.of(_PLAIN)):
        inputs = pool(experiment.plan.search, setting, experiment.plan.seed + 1000 + number)
        outputs = proposal.predict(setting, (inputs.shape[1],), inputs)
        tables = []
        for part in assembly.parts:
            for quantity in CHOICES:
                distinct = {key_of(candidate, setting): candidate for candidate in part[quantity]}
                rows = [bits(evaluate(quantity, c, setting, inputs, outputs)) for c in distinct.values()]
                tables.append(torch.stack(rows))
        experiment.tried += inputs.shape[1]
        if any(int(classes_of(table).max()) > 0 for table in tables):
            probes = inputs[:, separating(tables, experiment.plan.redundancy)]
            experiment.probe(setting, probes, list(CHOICES))


def _whole_steps(experiment: Experiment) -> list[Record]:
    """Calls on tensors large enough to be split over threads, and with options together."""
    plan = experiment.plan
    size = plan.large or max(plan.sizes)
    plain = plan.of(_PLAIN)
    settings = [*plain[:1], *plain[-1:]] if plan.large else []
    settings += [setting for setting in plan.together if setting.features <= experiment.subject.features]
    records = []
    for number, setting in enumerate(settings):
        inputs = pool(size, setting, plan.seed + 2000 + number)
        records.append(Record(setting, (size,), inputs, experiment.call(setting, inputs)))
    return records


def _conclude(experiment: Experiment, whole: list[Record]) -> Identification:
    trials, sizes = experiment.trials, experiment.plan.sizes
    records = [*experiment.pools, *experiment.records, *whole]
    found: Assembly | None = None
    exact, failure = False, None
    named: list[tuple[Implementation, Rule]] = []
    for assembly in assemblies(trials, sizes, experiment.threads):
        # Of what was only seen nothing is known at other sizes.
        seen = records if assembly.placement is not None else [r for r in records if set(r.calls) <= set(sizes)]
        failures = [assembly.proposal(rule).failure(seen) for rule in assembly.rules[:1]]
        right = failures == [None]
        if found is None or (right and not exact):
            found, failure = assembly, next(iter(failures), None)
        exact = exact or right
        if not idle_options(trials, sizes, assembly.acts):
            named += _known(assembly, records, experiment.threads)
    unlike = unlike_anything(trials, sizes)
    left = {quantity: trial.survivors for quantity, trial in trials.items() if quantity not in unlike}
    acts = found.acts if found is not None else acts_of([left])
    return Identification(
        kernel=experiment.subject.name,
        platform=platform_description(),
        exact=exact or bool(named),
        named=tuple(named),
        assembly=found,
        rules=tuple(found.rules if found is not None else ()),
        trials=trials,
        unlike=tuple(unlike),
        nearest=nearest(trials, sizes, acts),
        differences=tuple(_difference(experiment, quantity) for quantity in Quantity if quantity in unlike),
        failure=failure,
        compared=sum(record.values for record in records),
        tried=experiment.tried,
        settings=tuple(dict.fromkeys(record.setting for record in records)),
        skipped=tuple(f for f in Feature if not any(f in record.setting.features for record in records)),
        plan=experiment.plan,
    )


def _known(assembly: Assembly, records: list[Record], threads: int) -> list[tuple[Implementation, Rule]]:
    """The implementations with this placement that reproduce everything."""
    return [
        (known, rule)
        for known in IMPLEMENTATIONS.values()
        if known.placement is assembly.placement
        for rule in assembly.rules
        if rule.constants is known.constants
        and Proposal.of(known, rule, assembly.acts, threads).failure(records) is None
    ]


def _difference(experiment: Experiment, quantity: Quantity) -> Difference:
    """A quantity that nothing reproduces, beside what comes closest to it."""
    closest = {examined: trial.best for examined, trial in experiment.trials.items()}
    features = _PLAIN if quantity in CHOICES else frozenset({_FEATURE_OF[quantity]})
    pools, probes = (
        [record for record in records if record.setting.features == features]
        for records in (experiment.pools, experiment.records)
    )
    return difference(quantity, closest, pools, probes)
