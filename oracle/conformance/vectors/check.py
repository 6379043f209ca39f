"""Answers judged: bit for bit, but that a guard may reject what it could accept, and that any NaN is NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.inputs import same_numbers
from guarded_moments.oracle.conformance.vectors.answers import Answers
from guarded_moments.oracle.conformance.vectors.group import FLAGS, Group, digits


class Wrong(NamedTuple):
    """One wrong answer."""

    group: Group
    place: int
    given: dict[str, Tensor]

    def lines(self) -> list[str]:
        """What was asked, what was answered, what should have been, and why the question is there."""
        inputs = ", ".join(f"{name} {digits(column)[self.place]}" for name, column in self.group.inputs.items())
        given = ", ".join(f"{name} {digits(column)[self.place]}" for name, column in self.given.items())
        right = ", ".join(f"{name} {digits(column)[self.place]}" for name, column in self.group.answers.items())
        flags = self.group.flags[self.place]
        return [
            f"{self.group.kind} {self.group.name}, vector {self.place}: {given}, expected {right}",
            f"  input  {inputs}",
            f"  about  {self.group.about}",
            *(f"  {name}: {FLAGS[name].effect} ({FLAGS[name].requirement})" for name in flags),
        ]


class Outcome(NamedTuple):
    """What came of all answers."""

    right: int
    wrong: list[Wrong]
    unanswered: int  #: vectors of groups without answers


def check(groups: Sequence[Group], answers: Answers) -> Outcome:
    """Judge every answer."""
    right, unanswered = 0, 0
    wrong: list[Wrong] = []
    for group in groups:
        given = answers.get((group.kind, group.name))
        if given is None:
            unanswered += group.count
            continue
        good = torch.ones(group.count, dtype=torch.bool)
        for name, expected in group.answers.items():
            good &= _good(given[name], expected)
        right += int(good.sum())
        wrong += [Wrong(group, index, given) for index in (~good).nonzero().flatten().tolist()]
    return Outcome(right, wrong, unanswered)


def _good(given: Tensor, expected: Tensor) -> Tensor:
    if expected.dtype is torch.int8:  # a guard: 0 must reject, 1 may accept
        return given <= expected
    return same_numbers(given, expected) if expected.dtype.is_floating_point else given == expected
