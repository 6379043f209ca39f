"""The ways to compute codes and moments, in one run: the reference, `torch.compile`, compiled loops.  Run: make bench.

Each encodes with the closed-form guard and escapes, and recovers; all give the same bits.  In every round each of them
runs once on each codec, and a plain copy of both moments too; ratios are taken within a round.  Times are processor
time.  Two threads are compared with one by the wall's clock, on a state so much larger that waking a thread up does not
count; what else runs on the machine then does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import torch
from torch import Tensor

from guarded_moments.reference import Claim, GradientBound, Tolerance
from guarded_moments.reference.checkpoint.encoding import constants_of, encode_guarded
from guarded_moments.reference.checkpoint.state import decoded
from guarded_moments.reference.codecs import CODECS, Codec, Escaped
from guarded_moments.reference.codecs.compiled_ranges import CompiledClosedForm
from guarded_moments.reference.guard import GuardConstants
from guarded_moments.reference.implementations import implementation_for, platform_description
from guarded_moments.reference.kernels.codecs import Kernel
from guarded_moments.reference.kernels.inductor import InductorKernel
from trained_state import checkpoint_option, largest_parameter, repeated_moments

_BASE = "bf16"
_NAMES = (_BASE, "lin8", "log8")
_WAYS = ("reference, in torch", "torch.compile", "compiled loops, one thread")
#: How many times the coordinates, to compare two threads with one.
_LARGER = 8


def _jobs(codec: Codec, constants: GuardConstants[float], m: Tensor, v: Tensor) -> dict[str, Callable[[], object]]:
    loops, compiled = Kernel.of(codec), InductorKernel.of(codec)
    if loops is None or compiled is None:  # these have both
        raise AssertionError(codec)
    into = (torch.zeros_like(m), torch.zeros_like(v))

    def by_reference() -> None:
        codes, accepted = encode_guarded(codec, constants, m, v, exact=False)
        pairs = torch.stack([m[~accepted], v[~accepted]], dim=1)
        decoded(codec, *codec.escape(codes, ~accepted), pairs)

    def by_compiled() -> None:
        compiled.recovered(*compiled.guarded(constants, m, v))

    def by_loops() -> None:
        _by_loops(loops, constants, (m, v), into, 1)

    return dict(zip(_WAYS, (by_reference, by_compiled, by_loops), strict=True))


def _by_loops(
    loops: Kernel,
    constants: GuardConstants[float],
    moments: tuple[Tensor, Tensor],
    into: tuple[Tensor, Tensor],
    threads: int,
) -> None:
    found: Escaped = loops.guarded(constants, *moments, threads)
    loops.recovered(*found, threads, into)


def _seconds(job: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Processor time, which does not count what other programs take; of two threads the wall's."""
    started = clock()
    job()
    return clock() - started


def _gain(codec: Codec, constants: GuardConstants[float], m: Tensor, v: Tensor, rounds: int) -> list[float]:
    """How many times faster two threads are than one."""
    loops = Kernel.of(codec)
    if loops is None:
        raise AssertionError(codec)
    moments = (m.repeat(_LARGER), v.repeat(_LARGER))
    into = (torch.zeros_like(moments[0]), torch.zeros_like(moments[1]))
    gains = []
    for turn in range(rounds + 1):
        one, two = (
            _seconds(lambda threads=threads: _by_loops(loops, constants, moments, into, threads), time.perf_counter)  # type: ignore[misc]  # bound now
            for threads in (1, 2)
        )
        if turn:
            gains.append(one / two)
    return gains


def _shown(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


@click.command()
@checkpoint_option
@click.option("--coordinates", default=1 << 22, show_default=True, help="Its largest tensor is repeated to so many.")
@click.option("--tolerance", default=0.02, show_default=True, help="In learning rates; it sets how much escapes.")
@click.option("--rounds", default=7, show_default=True, help="Rounds, after one that compiles.")
def main(checkpoint: Path, coordinates: int, tolerance: float, rounds: int) -> None:
    """Time each way on each codec; torch itself has one thread."""
    torch.set_num_threads(1)
    trained = largest_parameter(checkpoint)
    own, lr = implementation_for(trained.param_group), trained.hyperparameters.lr
    constants = constants_of(trained, Claim(Tolerance(tolerance), GradientBound(1.0), own.name), own, lr)
    m, v = repeated_moments(trained, coordinates)
    target = torch.zeros_like(m)
    codecs = {name: CODECS[name].fit(m, v, CompiledClosedForm(constants)) for name in _NAMES}
    jobs = {name: _jobs(codec, constants, m, v) for name, codec in codecs.items()}
    times: dict[tuple[str, str], list[float]] = {}
    copies = []
    for turn in range(rounds + 1):
        copied = _seconds(lambda: target.copy_(m)) + _seconds(lambda: target.copy_(v))
        taken = {(way, name): _seconds(jobs[name][way]) for way in _WAYS for name in _NAMES}
        if turn:
            copies.append(copied)
            for key, seconds in taken.items():
                times.setdefault(key, []).append(seconds)
    escaped = {
        name: 100 * len(loops.guarded(constants, m, v).escapes) / len(m)
        for name, codec in codecs.items()
        if (loops := Kernel.of(codec)) is not None
    }
    copied = 1e9 * statistics.median(copies) / len(m)
    shares = ", ".join(f"{name} {share:.2f} %" for name, share in escaped.items())
    print(  # noqa: T201 - its output
        f"{platform_description()}; {len(m):,} coordinates, tolerance {tolerance:g}, escaped: {shares}; medians of "
        f"{rounds} rounds (smallest to largest).  A copy of both moments: {copied:.2f} ns.\n"
    )
    print("| way | codec | ns a coordinate | to bf16, the same way | to a copy |")  # noqa: T201 - as above
    print("|---|---|---:|---:|---:|")  # noqa: T201 - as above
    for way in _WAYS:
        for name in _NAMES:
            own_times, base = times[way, name], times[way, _BASE]
            cells = (
                [1e9 * seconds / len(m) for seconds in own_times],
                [a / b for a, b in zip(own_times, base, strict=True)],
                [a / b for a, b in zip(own_times, copies, strict=True)],
            )
            print(f"| {way} | {name} | {' | '.join(map(_shown, cells))} |")  # noqa: T201 - as above
    gains = ", ".join(f"{name} {_shown(_gain(codecs[name], constants, m, v, rounds))}" for name in _NAMES)
    print(f"\ntwo threads, times as fast as one, on {_LARGER * len(m):,} coordinates: {gains}")  # noqa: T201 - as above


if __name__ == "__main__":
    main()
