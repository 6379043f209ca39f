"""Runs of one training from several states of its optimizer, each compared with the native run of the same data.

*Closed loop*: a run computes its gradients from its own parameters, as training does.  *Open loop*: the native run's
gradients drive all, which is what claims with a longer horizon are about.  The open-loop runs go beside the native one,
update by update, so that no gradient is kept.

Claimed: runs of one order see the same batches; on one machine the same call gives the same numbers.  Trusted: that
`gradients` depends on nothing but the parameters, the order and the number of the update.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from guarded_moments.oracle.trajectory.measure import Course, Parameters, Point, looked_at, rates_of
from guarded_moments.oracle.trajectory.variants import NATIVE, OTHER_ORDER
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.errors import CheckpointError
from guarded_moments.reference.platform import one_torch_thread, require_subnormals
from guarded_moments.reference.training.loading import load_state

#: What is added to the number of an order to have another.
_OTHER = 1_000_003


class Resumed(Protocol):
    """A training run at the checkpoint: its parameters are there, its optimizer's state is loaded by the caller."""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """Adam or AdamW, over parameters that have the weights of the checkpoint."""
        ...

    def gradients(self, update: int) -> float:
        """Put the gradients of an update into `p.grad`, as training does it, clipping included, and return the loss.

        Args:
            update: 0 is the first after resuming; called once for each, in order.
        """
        ...


#: Makes a run with data in an order of that number.
Make = Callable[[int], Resumed]


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    updates: int = 200
    orders: Sequence[int] = (0, 1, 2)  #: of the data; one is a seed


@dataclass
class Trajectory:
    """What was seen."""

    plan: Plan
    variants: list[str]
    courses: list[Course] = field(default_factory=list)

    def of(self, variant: str, *, closed: bool) -> list[Course]:
        """The runs of a variant, one an order."""
        return [course for course in self.courses if (course.variant, course.closed) == (variant, closed)]


def follow(
    make: Make, variants: Mapping[str, StateDict], plan: Plan, progress: Callable[[int, int], None] | None = None
) -> Trajectory:
    """Resume training from every variant and compare it with the native run.

    Args:
        make: gives a run at the checkpoint, again and again the same; see `Resumed`.
        variants: states of its optimizer, `NATIVE` among them; `variants_of` makes them.
        plan: how many updates, in which orders of the data.
        progress: called with updates done and in all.

    Raises:
        CheckpointError: a state is not of these parameters, or a loss is not finite from the native state.
        PlatformError: this process flushes subnormals.
    """
    require_subnormals()
    found = Trajectory(plan, list(variants))
    runs = len(variants) + 1  # the native one is run first, with the open-loop ones beside it
    total, done = len(plan.orders) * runs * plan.updates, 0

    def one_more() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    with one_torch_thread():
        for order in plan.orders:
            native = _Native(make, variants, plan, order)
            found.courses += native.run(one_more)
            for name, state in variants.items():
                found.courses.append(native.compared(name, state, one_more))
    return found


class _Native:
    """The native run of one order, and where its parameters were."""

    def __init__(self, make: Make, variants: Mapping[str, StateDict], plan: Plan, order: int) -> None:
        self._make, self._variants, self._plan, self._order = make, variants, plan, order
        self._looked_at = set(looked_at(plan.updates))
        first = make(order).optimizer
        self._begin, self._rates = Parameters(first), rates_of(first)
        self._places: dict[int, Parameters] = {}

    def run(self, step_done: Callable[[], None]) -> list[Course]:
        """Run it, and every variant with its gradients beside it."""
        run = _begun(self._make, self._order, self._variants[NATIVE])
        beside = {
            name: _begun(self._make, self._order, state).optimizer
            for name, state in self._variants.items()
            if name != OTHER_ORDER
        }
        courses = {name: Course(name, self._order, closed=False) for name in beside}
        for update in range(self._plan.updates):
            loss = run.gradients(update)
            if not math.isfinite(loss):
                raise CheckpointError(f"the loss is {loss} at update {update + 1} from the native state")
            for optimizer in beside.values():
                _take_gradients(optimizer, run.optimizer)
                optimizer.step()
            run.optimizer.step()
            step_done()
            if update + 1 in self._looked_at:
                self._places[update + 1] = Parameters(run.optimizer)
                for name, optimizer in beside.items():
                    courses[name].points.append(self._point(optimizer, update + 1))
        return list(courses.values())

    def compared(self, name: str, state: StateDict, step_done: Callable[[], None]) -> Course:
        """A variant with gradients of its own."""
        run = _begun(self._make, self._order + _OTHER * (name == OTHER_ORDER), state)
        course = Course(name, self._order, closed=True)
        for update in range(self._plan.updates):
            course.losses.append(run.gradients(update))
            run.optimizer.step()
            step_done()
            if update + 1 in self._looked_at:
                course.points.append(self._point(run.optimizer, update + 1))
        return course

    def _point(self, optimizer: torch.optim.Optimizer, update: int) -> Point:
        return Parameters(optimizer).seen_from(self._places[update], self._begin, self._rates, update)


def _begun(make: Make, order: int, state: StateDict) -> Resumed:
    """A run with a state of its own in its optimizer."""
    run = make(order)
    load_state(run.optimizer, copy.deepcopy(state))
    return run


def _take_gradients(optimizer: torch.optim.Optimizer, other: torch.optim.Optimizer) -> None:
    for mine, own in zip(optimizer.param_groups, other.param_groups, strict=True):
        for parameter, source in zip(mine["params"], own["params"], strict=True):
            parameter.grad = source.grad
