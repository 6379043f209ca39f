"""All codecs measured in one run: times interleaved round by round, bits and verdicts of the state itself.

Times are of the state tiled to millions of coordinates, so that few small tensors do not hide what a coordinate costs;
bits, escapes and audits are of the state as it is, at its own step and late in training.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any

import torch

from guarded_moments.oracle.audit import audit
from guarded_moments.oracle.benchmark.altered import LATE, altered
from guarded_moments.oracle.benchmark.later_updates import later_updates
from guarded_moments.oracle.benchmark.peers import PEERS
from guarded_moments.oracle.benchmark.stages import STAGES, TOTAL, Work, run, run_compiled, seconds_of
from guarded_moments.reference.checkpoint import compress, parameters_of
from guarded_moments.reference.checkpoint.bit_rate import BitRate, bit_rate
from guarded_moments.reference.checkpoint.encoding import constants_of, kernel_of, rate_of
from guarded_moments.reference.checkpoint.optimizer_state import in_memory_order
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.codecs import CODECS, Codec, LogGrid
from guarded_moments.reference.codecs.compiled_ranges import CompiledClosedForm
from guarded_moments.reference.codecs.ranges import choose_grids
from guarded_moments.reference.errors import CheckpointError
from guarded_moments.reference.implementations import implementation_for, platform_description
from guarded_moments.reference.platform import one_torch_thread

if TYPE_CHECKING:
    from guarded_moments.reference.kernels.codecs import Kernel

_BYTES = 16  #: of a coordinate's two moments, read and written
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Setting:
    """What is measured."""

    tolerance: float = 0.01
    grad_bound: float = 1.0
    coordinates: int = 1 << 23  #: at least so many, by repeating the state
    rounds: int = 5
    audited: bool = True  #: whether every coordinate of every codec's file is decided


@dataclass(frozen=True)
class Spread:
    """Of one quantity over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Median, smallest and largest."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass
class CodecResult:
    """One codec."""

    name: str
    rounds: list[dict[str, float]] = field(default_factory=list)  #: ns a coordinate, by stage
    bits: dict[str, BitRate] = field(default_factory=dict)  #: by guard, and late in training
    escaped: dict[str, float] = field(default_factory=dict)  #: share of coordinates, likewise
    verdict: dict[str, int] = field(default_factory=dict)  #: of the audit: safe, violations, undecided, needless
    attained: float | None = None  #: the largest deviation that the audit found, in learning rates

    def spread(self, *stages: str) -> Spread:
        """Ns a coordinate of some stages together."""
        return Spread.of([sum(turn[stage] for stage in stages) for turn in self.rounds])


@dataclass
class Benchmark:
    """Everything that one run measured."""

    setting: Setting
    platform: str
    coordinates: int  #: of the state
    tiled: int  #: coordinates that were timed
    tensors: int
    step: float
    codecs: dict[str, CodecResult]
    #: Of the compiled loops, by codec: ns a coordinate by pass, in the same rounds.
    compiled: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    copy: list[float] = field(default_factory=list)  #: seconds of copying both moments, by round
    peers: dict[str, dict[str, list[float]]] = field(default_factory=dict)  #: ns a coordinate, by package and job
    versions: dict[str, str] = field(default_factory=dict)
    choosing: list[float] = field(default_factory=list)  #: seconds for one tensor's grids, of tensors of 8,192 and more
    later: list[float] = field(default_factory=list)  #: largest deviation at each update, log8, drawn gradients

    def ratio(self, name: str, base: str) -> Spread:
        """Of two codecs' totals, taken within each round."""
        pairs = zip(self.codecs[name].rounds, self.codecs[base].rounds, strict=True)
        return Spread.of([sum(a[s] for s in TOTAL) / sum(b[s] for s in TOTAL) for a, b in pairs])

    def ratio_to_copy(self, name: str) -> Spread:
        """Of a codec's total and a copy of both moments, within each round."""
        copies = [1e9 * seconds / self.tiled for seconds in self.copy]
        pairs = zip(self.codecs[name].rounds, copies, strict=True)
        return Spread.of([sum(turn[s] for s in TOTAL) / copied for turn, copied in pairs])

    def compiled_time(self, name: str) -> Spread:
        """Ns a coordinate of a codec's compiled loops."""
        return Spread.of([sum(turn.values()) for turn in self.compiled[name]])

    def compiled_ratio(self, name: str, base: str) -> Spread:
        """Of two codecs' compiled loops, within each round."""
        pairs = zip(self.compiled[name], self.compiled[base], strict=True)
        return Spread.of([sum(a.values()) / sum(b.values()) for a, b in pairs])

    def gain(self, name: str) -> Spread:
        """The reference's total over that of the compiled loops, within each round."""
        pairs = zip(self.codecs[name].rounds, self.compiled[name], strict=True)
        return Spread.of([sum(a[s] for s in TOTAL) / sum(b.values()) for a, b in pairs])

    @property
    def bandwidth(self) -> Spread:
        """Gigabytes a second, read and written, of the copy."""
        return Spread.of([self.tiled * _BYTES / seconds / 1e9 for seconds in self.copy])


def measure(checkpoint: Mapping[str, Any], setting: Setting, progress: Progress = lambda _: None) -> Benchmark:
    """Measure every codec on a checkpoint.

    Args:
        checkpoint: a state of Adam or AdamW, or one with such states in it.
        setting: what to measure.
        progress: told in words what is being done.

    Raises:
        CheckpointError: nothing in the checkpoint can be guarded.
    """
    works, numel, step = _works(checkpoint, setting)
    repeats = -(-setting.coordinates // numel)
    result = Benchmark(
        setting=setting,
        platform=platform_description(),
        coordinates=numel,
        tiled=numel * repeats,
        tensors=len(works),
        step=step,
        codecs={name: CodecResult(name) for name in CODECS},
    )
    for name in CODECS:
        _state_of(checkpoint, result.codecs[name], setting, progress)
    progress("later updates")
    result.later = later_updates(_compressed(checkpoint, setting, "log8", "exact"), checkpoint)
    with one_torch_thread():
        result.choosing = _choosing(works)
        tiled = [Work(work.m.repeat(repeats), work.v.repeat(repeats), work.constants) for work in works]
        _time(result, tiled, progress)
        _time_peers(result, tiled, progress)
    return result


def _works(checkpoint: Mapping[str, Any], setting: Setting) -> tuple[list[Work], int, float]:
    """The guarded tensors, their coordinates in all, and the largest number of a next update."""
    works, numel, step = [], 0, 0.0
    for parameter in parameters_of(checkpoint):
        if parameter.kept_because is None:
            implementation = implementation_for(parameter.param_group)
            claim = Claim(Tolerance(setting.tolerance), GradientBound(setting.grad_bound), implementation.name)
            constants = constants_of(parameter, claim, implementation, rate_of(parameter))
            works.append(Work(in_memory_order(parameter.m), in_memory_order(parameter.v), constants))
            numel, step = numel + parameter.numel, max(step, parameter.next_step)
    if not works:
        raise CheckpointError("no parameter has moments that the guard could judge: there is nothing to measure")
    return works, numel, step


def _compressed(checkpoint: Mapping[str, Any], setting: Setting, codec: str, guard: Any) -> Any:  # noqa: ANN401 - of compress
    return compress(checkpoint, tolerance=setting.tolerance, grad_bound=setting.grad_bound, codec=codec, guard=guard)


def _state_of(checkpoint: Mapping[str, Any], result: CodecResult, setting: Setting, progress: Progress) -> None:
    """Bits, escapes and the audit of the state itself."""
    for label, native in (("", checkpoint), (" late", altered(checkpoint, updates=LATE))):
        for guard in ("closed", "exact"):
            progress(f"bits of {result.name}, {guard}{label}")
            state = _compressed(native, setting, result.name, guard)
            result.bits[guard + label] = bit_rate(state)
            result.escaped[guard + label] = state.escapes / state.coordinates
            if setting.audited and (guard, label) == ("exact", ""):
                progress(f"audit of {result.name}")
                found = audit(state, native)
                names = ("safe", "violations", "undecided", "needless_escapes")
                result.verdict = {name: found.total(name) for name in names}
                result.attained = max(tensor.max_deviation for tensor in found.tensors)


def _choosing(works: Sequence[Work]) -> list[float]:
    """Seconds to choose the logarithmic grids of each large tensor, in compiled code, once it is compiled."""
    large = [work for work in works if len(work.m) >= 1 << 13] or list(works)

    def choose(work: Work) -> object:
        return choose_grids(LogGrid, work.m, work.v, 127, 255, CompiledClosedForm(work.constants))

    choose(large[0])
    return [seconds_of(lambda work=work: choose(work)) for work in large]  # type: ignore[misc]  # bound now


def _time(result: Benchmark, works: Sequence[Work], progress: Progress) -> None:
    m = torch.cat([work.m for work in works])
    target = torch.empty_like(m)
    kernels = {name: _kernels(kind, works) for name, kind in CODECS.items()}
    result.compiled = {name: [] for name, found in kernels.items() if found}
    for turn in range(result.setting.rounds + 1):  # the first is not counted
        copied = 2 * seconds_of(lambda: target.copy_(m))
        if turn:
            result.copy.append(copied)
        for name, kind in CODECS.items():
            progress(f"round {turn} of {result.setting.rounds}, {name}")
            seconds = _run(kind, works)
            if turn:
                result.codecs[name].rounds.append({stage: 1e9 * s / result.tiled for stage, s in seconds.items()})
            if name in result.compiled:
                progress(f"round {turn} of {result.setting.rounds}, {name} compiled")
                passes = run_compiled(kernels[name], works)
                if turn:
                    result.compiled[name].append({part: 1e9 * s / result.tiled for part, s in passes.items()})


def _kernels(kind: type[Codec], works: Sequence[Work]) -> list[Kernel]:
    """The compiled loops of each tensor; none where the codec has none."""
    found = [kernel_of(kind.fit(work.m, work.v, CompiledClosedForm(work.constants))) for work in works]
    return [kernel for kernel in found if kernel is not None]


def _run(kind: type[Codec], works: Sequence[Work]) -> dict[str, float]:
    seconds, _ = run(kind, works)
    return {stage: seconds[stage] for stage in STAGES}


def _time_peers(result: Benchmark, works: Sequence[Work], progress: Progress) -> None:
    whole = 1 << 20  # blocks of all sizes fit
    m, v = (torch.cat([getattr(work, name) for work in works]) for name in ("m", "v"))
    m, v = (x[: max(whole, len(x) // whole * whole)].contiguous() for x in (m, v))
    for package, make in PEERS.items():
        try:
            result.versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
        progress(package)
        peer = make(m, v)
        jobs = {"encode": peer.encode, "decode": peer.decode}
        times: dict[str, list[float]] = {job: [] for job in jobs}
        for _ in range(result.setting.rounds):
            for job, call in jobs.items():
                times[job].append(1e9 * seconds_of(call) / len(m))
        result.peers[package] = times
