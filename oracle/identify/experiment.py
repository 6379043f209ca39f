"""Calls to a kernel, and which candidates each position of each size leaves alive.

In each setting the kernel first sees a pool of inputs; among them probes are chosen that tell the candidates apart;
then, for each size, the kernel is called once for each probe with all probes rotated by one, so that every position
sees every probe.  A candidate is alive at a position as long as it has given the kernel's bits there.

Claimed: a candidate that is not alive at a position has failed to reproduce some value there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from guarded_moments.oracle.identify.candidates import Candidate, Quantity, evaluate, key_of
from guarded_moments.oracle.identify.inputs import pool
from guarded_moments.oracle.identify.separate import agree, bits, separating
from guarded_moments.oracle.identify.setting import Plan, Setting
from guarded_moments.oracle.identify.subject import KernelError, Subject

Progress = Callable[[int, int], None]
_FEWEST_PROBES = 6
_UNEXPLAINED_PROBES = 4


@dataclass(frozen=True)
class Record:
    """What one setting's calls took and gave, one after the other."""

    setting: Setting
    calls: tuple[int, ...]  #: the sizes of the tensors
    inputs: Tensor  #: rows `p g m v vmax`, shape (5, sum of calls)
    outputs: Tensor  #: rows `p m v vmax`, shape (4, sum of calls)

    @property
    def values(self) -> int:
        """How many values the kernel computed."""
        rows = len(self.outputs) if self.setting.amsgrad else len(self.outputs) - 1
        return rows * self.outputs.shape[1]


@dataclass
class Trial:
    """The candidates for one quantity, and how they fared."""

    candidates: list[Candidate]
    alive: Tensor  #: bool, shape (candidates, positions)
    matched: Tensor  #: int64, shape (candidates,): values reproduced among those as training leaves them, ...
    tried: Tensor  #: ... of so many

    @classmethod
    def of(cls, candidates: list[Candidate], positions: int) -> Trial:
        """Before any call."""
        count = torch.zeros(len(candidates), dtype=torch.int64)
        return cls(candidates, torch.ones(len(candidates), positions, dtype=torch.bool), count, count.clone())

    @property
    def survivors(self) -> list[Candidate]:
        """The candidates alive somewhere."""
        return [c for c, alive in zip(self.candidates, self.alive.any(dim=1).tolist(), strict=True) if alive]

    @property
    def best(self) -> Candidate:
        """The candidate alive at most positions and, of these, the one that reproduced the largest share of values."""
        share = self.matched / self.tried.clamp(min=1)
        order = self.alive.sum(dim=1) * 2 + share
        return self.candidates[int(order.argmax())]

    def considered(self) -> list[int]:
        """Which candidates still matter: those alive somewhere, or all where none is."""
        anywhere = self.alive.any(dim=1)
        return (anywhere if bool(anywhere.any()) else torch.ones_like(anywhere)).nonzero().flatten().tolist()


@dataclass
class Experiment:
    """A kernel, a plan, and everything seen so far."""

    subject: Subject
    plan: Plan
    progress: Progress
    threads: int  #: of torch, while the kernel runs
    records: list[Record] = field(default_factory=list)
    pools: list[Record] = field(default_factory=list)
    trials: dict[Quantity, Trial] = field(default_factory=dict)
    tried: int = 0  #: inputs on which candidates were compared with each other
    done: int = 0
    expected: int = 0

    @property
    def positions(self) -> int:
        """Elements over all sizes."""
        return sum(self.plan.sizes)

    def call(self, setting: Setting, inputs: Tensor) -> Tensor:
        """One step of the kernel, with the threads that it had before the identification began."""
        ours = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            return self.subject.step(setting, inputs)
        finally:
            torch.set_num_threads(ours)

    def require_determinism(self, setting: Setting) -> None:
        """Call twice with the same inputs.

        Raises:
            KernelError: the bits differ.
        """
        inputs = pool(max(self.plan.sizes), setting, self.plan.seed)
        first, second = self.call(setting, inputs), self.call(setting, inputs)
        if not bool(agree(first, second).all()):
            raise KernelError(f"{self.subject.name} gives other bits when called again with the same inputs")

    def run(self, setting: Setting, candidates: Mapping[Quantity, list[Candidate]]) -> None:
        """Try the candidates for some quantities in one setting."""
        for quantity, listed in candidates.items():
            self.trials.setdefault(quantity, Trial.of(listed, self.positions))
        seen = self._call_on_pool(setting)
        tables, chosen = [], []
        for quantity in candidates:
            table = self._table(quantity, setting, seen.inputs, seen.outputs)
            right = table == bits(seen.outputs[quantity.row])
            self._count(quantity, right)
            # What nothing explains here must explain itself at every position.
            chosen.append((~right.any(dim=0)).nonzero().flatten()[:_UNEXPLAINED_PROBES])
            tables.append(table)
        self.tried += seen.inputs.shape[1]
        chosen.append(separating(tables, self.plan.redundancy))
        few = _FEWEST_PROBES - len(torch.cat(chosen))
        chosen.append(torch.arange(max(0, few)))  # where little is left to tell apart, any inputs
        self.probe(setting, seen.inputs[:, torch.cat(chosen)], list(candidates))

    def probe(self, setting: Setting, probes: Tensor, quantities: Sequence[Quantity]) -> None:
        """Show every position every probe, and strike out the candidates that fail."""
        turns = probes.shape[1]
        given, got, calls = [], [], []
        for size in self.plan.sizes:
            for turn in range(turns):
                inputs = probes[:, (torch.arange(size) + turn) % turns].contiguous()
                given.append(inputs)
                got.append(self.call(setting, inputs))
                calls.append(size)
        record = Record(setting, tuple(calls), torch.cat(given, dim=1), torch.cat(got, dim=1))
        self.records.append(record)
        for quantity in quantities:
            self._strike_out(quantity, record, turns)
        self.done += 1
        self.progress(self.done, max(self.expected, self.done))

    def _call_on_pool(self, setting: Setting) -> Record:
        size = max(self.plan.sizes) if self.plan.only_these_sizes else self.plan.pool
        count = -(-self.plan.pool // size)
        inputs = pool(count * size, setting, self.plan.seed + 1 + len(self.pools))
        got = torch.cat([self.call(setting, part.contiguous()) for part in inputs.split(size, dim=1)], dim=1)
        self.pools.append(Record(setting, (size,) * count, inputs, got))
        return self.pools[-1]

    def _table(self, quantity: Quantity, setting: Setting, inputs: Tensor, outputs: Tensor) -> Tensor:
        """The bits of the candidates that still matter, shape (those candidates, inputs)."""
        trial = self.trials[quantity]
        known: dict[object, Tensor] = {}
        rows = []
        for index in trial.considered():
            candidate = trial.candidates[index]
            key = key_of(candidate, setting)
            if key not in known:
                known[key] = bits(evaluate(quantity, candidate, setting, inputs, outputs))
            rows.append(known[key])
        return torch.stack(rows)

    def _count(self, quantity: Quantity, right: Tensor) -> None:
        """Count what the candidates that still matter reproduce of the pool's half that is as training leaves it."""
        trial, half = self.trials[quantity], right.shape[1] // 2
        considered = trial.considered()
        trial.matched[considered] += right[:, :half].sum(dim=1)
        trial.tried[considered] += half

    def _strike_out(self, quantity: Quantity, record: Record, turns: int) -> None:
        trial = self.trials[quantity]
        considered = trial.considered()
        right = self._table(quantity, record.setting, record.inputs, record.outputs) == bits(
            record.outputs[quantity.row]
        )
        place = begin = 0
        for size in self.plan.sizes:
            block = right[:, begin : begin + turns * size].view(len(considered), turns, size).all(dim=1)
            trial.alive[considered, place : place + size] &= block
            place, begin = place + size, begin + turns * size
