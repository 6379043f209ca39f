"""The cross-check as a whole: every adapter measured on the same states, or the reason why not.

Claimed: an adapter that was asked for is in the report; nothing is left out without its reason.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from guarded_moments.oracle.crosscheck.adapter import Adapter
from guarded_moments.oracle.crosscheck.codec import CodecDeviation, codec_deviation
from guarded_moments.oracle.crosscheck.compare import (
    Comparison,
    Effect,
    compare,
    effect,
    native_implementation,
    predicted,
    started,
)
from guarded_moments.oracle.crosscheck.states import COUNT, SEED, State, special_states, trained_states
from guarded_moments.oracle.platform.machine import Machine, this_machine
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.platform import one_torch_thread, require_subnormals

#: torch's defaults, without decay: the update is seen bare.
HYPERPARAMETERS = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=True)


@dataclass(frozen=True)
class Measured:
    """One implementation, seen."""

    adapter: Adapter
    versions: str
    trained: Comparison
    special: Comparison | None  #: None for quantised moments: one NaN would poison a block
    first_update: Mapping[int, Effect]  #: by the number of the update, against this machine's single path
    codec: tuple[CodecDeviation, ...]
    observations: tuple[str, ...]


@dataclass(frozen=True)
class NotMeasured:
    """One implementation, not seen, and why."""

    adapter: Adapter
    reason: str


@dataclass(frozen=True)
class Report:
    """Everything that the table says."""

    seed: int
    count: int  #: coordinates of a state
    hyperparameters: Hyperparameters
    native: str  #: this machine's single path
    machine: Machine
    python: str
    results: tuple[Measured | NotMeasured, ...]


class CrossCheck:
    """The states, drawn once, and what each adapter makes of them."""

    def __init__(self, seed: int = SEED, count: int = COUNT) -> None:
        """Draw the states.

        Raises:
            PlatformError: flush-to-zero is on, or the op models of this machine's kernels are not known.
        """
        require_subnormals()
        self._seed, self._count, self._native = seed, count, native_implementation()
        with one_torch_thread():
            self._trained = trained_states(seed, count)
            self._special = special_states(seed, count)

    def measure(self, adapter: Adapter) -> Measured | NotMeasured:
        """Run an adapter, if its packages are installed."""
        missing = adapter.missing()
        if missing:
            return NotMeasured(adapter, f"package not installed ({', '.join(missing)})")
        try:
            with one_torch_thread():
                return self._measured(adapter)
        except Exception as error:  # noqa: BLE001 - another package's failure is a line of the table
            first = next(iter(str(error).splitlines()), "")
            return NotMeasured(adapter, f"failed with {type(error).__name__}: {first}")

    def _measured(self, adapter: Adapter) -> Measured:
        states = [state.whole_blocks(adapter.block) for state in self._trained]
        afters = [adapter.step(state, HYPERPARAMETERS) for state in states]
        native = [
            predicted(self._native, started(state, after), HYPERPARAMETERS).update
            for state, after in zip(states, afters, strict=True)
        ]
        effects = {
            state.number: effect(after.p, update, HYPERPARAMETERS.lr)
            for state, after, update in zip(states, afters, native, strict=True)
        }
        return Measured(
            adapter=adapter,
            versions=adapter.versions(),
            trained=compare(adapter, states, afters, HYPERPARAMETERS),
            special=None if adapter.quantised else self._on_special_values(adapter),
            first_update=effects,
            codec=tuple(self._codec(adapter, states)) if adapter.quantised else (),
            observations=tuple(adapter.observations()),
        )

    def _on_special_values(self, adapter: Adapter) -> Comparison:
        afters = [adapter.step(state, HYPERPARAMETERS) for state in self._special]
        return compare(adapter, self._special, afters, HYPERPARAMETERS)

    def _codec(self, adapter: Adapter, states: Sequence[State]) -> list[CodecDeviation]:
        # Before the first update nothing was encoded yet.
        return [codec_deviation(adapter, state, HYPERPARAMETERS) for state in states if state.number > 1]

    def report(self, results: Sequence[Measured | NotMeasured]) -> Report:
        """What was seen, with what it was seen on."""
        return Report(
            seed=self._seed,
            count=self._count,
            hyperparameters=HYPERPARAMETERS,
            native=self._native.name,
            machine=this_machine(),
            python=platform.python_version(),
            results=tuple(results),
        )


def cross_check(adapters: Sequence[Adapter], seed: int = SEED, count: int = COUNT) -> Report:
    """Measure adapters one after the other."""
    check = CrossCheck(seed, count)
    return check.report([check.measure(adapter) for adapter in adapters])
