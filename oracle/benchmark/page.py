"""A benchmark as JSON and as a page in Markdown: tables, and each published claim beside the figure measured here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isinf
from typing import Any

from guarded_moments.oracle.benchmark.altered import LATE
from guarded_moments.oracle.benchmark.measure import Benchmark, CodecResult, Spread
from guarded_moments.oracle.benchmark.stages import PASSES, STAGES, TOTAL

_LABELS = ("closed", "exact", "closed late", "exact late")


def as_json(found: Benchmark) -> dict[str, Any]:
    """Plain data."""
    return {
        "setting": asdict(found.setting) | ({"grad_bound": "inf"} if isinf(found.setting.grad_bound) else {}),
        "platform": found.platform,
        "state": {"coordinates": found.coordinates, "tensors": found.tensors, "next_update": found.step},
        "timed_coordinates": found.tiled,
        "copy_gigabytes_per_second": asdict(found.bandwidth),
        "codecs": {name: _codec(found, result) for name, result in found.codecs.items()},
        "compiled": {
            name: {
                "nanoseconds_per_coordinate": {
                    **{part: asdict(Spread.of([turn[part] for turn in rounds])) for part in PASSES},
                    "total": asdict(found.compiled_time(name)),
                },
                "ratio_to_bf16": asdict(found.compiled_ratio(name, "bf16")),
                "reference_to_compiled": asdict(found.gain(name)),
            }
            for name, rounds in found.compiled.items()
        },
        "choosing_grids_milliseconds_per_tensor": asdict(Spread.of([1e3 * s for s in found.choosing])),
        "peers": {
            name: {
                "version": found.versions[name],
                **{job: asdict(Spread.of(times)) for job, times in jobs.items()},
            }
            for name, jobs in found.peers.items()
        },
        "largest_deviation_by_update": found.later,
        "claims": [dict(zip(("claim", "published", "measured"), row, strict=True)) for row in claims(found)],
    }


def _codec(found: Benchmark, result: CodecResult) -> dict[str, Any]:
    return {
        "nanoseconds_per_coordinate": {
            **{stage: asdict(result.spread(stage)) for stage in STAGES},
            "total": asdict(result.spread(*TOTAL)),
        },
        "ratio_to_bf16": asdict(found.ratio(result.name, "bf16")),
        "ratio_to_copy": asdict(found.ratio_to_copy(result.name)),
        "bits": {label: {**asdict(rate), "total": rate.total} for label, rate in result.bits.items()},
        "escaped": result.escaped,
        "audit": result.verdict,
        "largest_deviation": result.attained,
    }


def _shown(spread: Spread, digits: int = 2) -> str:
    return f"{spread.median:.{digits}f} ({spread.low:.{digits}f} to {spread.high:.{digits}f})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], rest: str = "---:") -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'|'.join('---' if i == 0 else rest for i in range(len(head)))}|",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]


def claims(found: Benchmark) -> list[tuple[str, str, str]]:
    """What the scheme's documents say, as published, and what this run saw."""
    setting, log8, joint = found.setting, found.codecs["log8"], found.codecs["joint"]
    audited = [result.verdict for result in found.codecs.values() if result.verdict]
    safe, violations, undecided = (
        sum(verdict[name] for verdict in audited) for name in ("safe", "violations", "undecided")
    )
    decided = (
        f"{safe:,} guarded coordinates of {len(audited)} codecs decided for every gradient: {violations} violations, "
        f"{undecided} undecided; largest deviation {max(r.attained or 0.0 for r in found.codecs.values()):.6f} lr"
        if audited
        else "not audited in this run"
    )
    saving = 100 * (1 - joint.bits["closed"].total / log8.bits["closed"].total)
    cost = found.ratio("joint", "log8")
    to_bf16, to_blocks = found.ratio("log8", "bf16"), found.ratio("log8", "blockwise8")
    later = max(range(len(found.later)), key=lambda i: found.later[i])
    return [
        (
            "the first update is within the tolerance for every shared gradient up to a bound",
            f"guaranteed (here at {setting.tolerance:g} lr, bound {setting.grad_bound:g})",
            decided,
        ),
        (
            "each moment in 8 bits on a logarithmic scale, exact fallback",
            "-",
            (
                f"{log8.bits['exact'].total:.2f} bits a coordinate ({100 * log8.escaped['exact']:.2f} % exact), "
                f"{log8.bits['closed'].total:.2f} with the closed form alone"
            ),
        ),
        (
            "encode and recover, total time against guarded bf16",
            "2.3 to 2.6",
            f"{_shown(to_bf16)}, in torch on one thread",
        ),
        (
            "the same against guarded block-wise 8-bit",
            "below 1",
            _shown(to_blocks),
        ),
        (
            "joint search of both encodings: saving of the bit rate, cost in time",
            "below 0.001 %, 6 %",
            (
                f"{saving:.4f} %, {100 * (cost.median - 1):.0f} % ({100 * (cost.low - 1):.0f} to "
                f"{100 * (cost.high - 1):.0f})"
            ),
        ),
        (
            "the guarantee covers the first update only",
            "stated",
            (
                f"with drawn shared gradients the largest deviation is {found.later[0]:.5f} lr at update 1 and "
                f"{found.later[later]:.5f} lr at update {later + 1} of {len(found.later)}"
            ),
        ),
        ("stability after that is empirical", "stated", "not measured by this command"),
    ]


def markdown(found: Benchmark, regenerates: str) -> str:
    """The page."""
    setting, results = found.setting, list(found.codecs.values())
    lines = [
        "# Codecs measured",
        "",
        "Generated, never edited.  This regenerates it, on a state that `make audit` trains:",
        "",
        f"    {regenerates}",
        "",
        (
            f"{found.platform}, one thread.  The state: {found.coordinates:,} coordinates of {found.tensors} tensors "
            f"before update {found.step:g}, `tau` {setting.tolerance:g}, `G` {setting.grad_bound:g}.  Times: processor "
            f"time on the state tiled to {found.tiled:,} coordinates, codecs interleaved, medians of {setting.rounds} "
            "rounds (smallest to largest).  In the same run a copy of both moments moved "
            f"{_shown(found.bandwidth, 1)} GB/s, read and written."
        ),
        "",
        "## Claims",
        "",
        *_table(("claim", "published", "measured here"), claims(found), rest="---"),
        "## Times, ns a coordinate",
        "",
        (
            "The reference in torch, closed-form guard in binary64: not a fast implementation.  The total leaves "
            "`choose` out, which `--grids-from` saves."
        ),
        "",
        *_table(
            ("codec", *STAGES, "total", "to bf16", "to a copy"),
            [
                (
                    result.name,
                    *(f"{result.spread(stage).median:.1f}" for stage in STAGES),
                    _shown(result.spread(*TOTAL), 1),
                    _shown(found.ratio(result.name, "bf16")),
                    _shown(found.ratio_to_copy(result.name), 1),
                )
                for result in results
            ],
        ),
        "The compiled loops, which give the same bits; in the same rounds, compiling left out:",
        "",
        *_table(
            ("codec", "encode, guard, escape", "recover", "total", "to bf16", "reference to this"),
            [
                (
                    name,
                    *(_shown(Spread.of([turn[part] for turn in rounds]), 1) for part in PASSES),
                    _shown(found.compiled_time(name), 1),
                    _shown(found.compiled_ratio(name, "bf16")),
                    _shown(found.gain(name), 1),
                )
                for name, rounds in found.compiled.items()
            ],
        ),
        (
            "Choosing the grids of one tensor, logarithmic, in compiled code: "
            f"{_shown(Spread.of([1e3 * s for s in found.choosing]))} ms over {len(found.choosing)} tensors."
        ),
        "",
        "## Bits a coordinate, everything counted",
        "",
        f"*Late*: the same moments as if {LATE:,} updates had been made, when bias correction is gone.",
        "",
        *_table(
            ("codec", *(f"{label} (escaped)" for label in _LABELS)),
            [
                (
                    result.name,
                    *(f"{result.bits[x].total:.3f} ({100 * result.escaped[x]:.2f} %)" for x in _LABELS),
                )
                for result in results
            ],
        ),
        *_peers(found),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _peers(found: Benchmark) -> list[str]:
    head = ["## Other libraries, unguarded", ""]
    if not found.peers:
        return [*head, "Not installed in this run: the extra `bench` installs bitsandbytes and torchao.", ""]
    return [
        *head,
        "8-bit quantisation of both moments as their optimizers do it, ns a coordinate; nothing is guaranteed.",
        "",
        *_table(
            ("package", "encode", "decode"),
            [
                (f"{name} {found.versions[name]}", *(_shown(Spread.of(times), 1) for times in jobs.values()))
                for name, jobs in found.peers.items()
            ],
        ),
    ]
