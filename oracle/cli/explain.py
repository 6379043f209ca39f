"""`gmc explain`: one coordinate, from its moments to the verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table

from guarded_moments.oracle import pictures
from guarded_moments.oracle.cli.common import (
    FILE,
    NUMBER,
    force_option,
    grad_bound_option,
    op_model_option,
    out,
    progress_bar,
    tolerance_option,
)
from guarded_moments.oracle.cli.explain_plot import draw
from guarded_moments.oracle.explain import (
    Exactly,
    Explanation,
    curve_of,
    exact_worst_case,
    exhausted_worst_case,
    explain,
)
from guarded_moments.oracle.worst_case import Certainty, Verdict
from guarded_moments.reference.checkpoint import read
from guarded_moments.reference.checkpoint.writing import check_output, replacing
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.codecs import CODECS, BFloat16, Blockwise8, Codec, Entropy, Log8, LogGrid, Ratio8
from guarded_moments.reference.codecs.eight_bit import M_LEVELS, V_LEVELS, EightBit
from guarded_moments.reference.codecs.entropy_choice import (
    HIGHEST,
    LARGEST_PITCH,
    LARGEST_STEP,
    LOWEST,
    SMALLEST_PITCH,
    Choice,
)
from guarded_moments.reference.codecs.ratio_ranges import steps_reaching
from guarded_moments.reference.errors import CheckpointError, InvalidClaimError
from guarded_moments.reference.floats import bits_of, from_bits, hex_of, round_to_binary32
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import implementation_for

#: The grids of a coordinate without a file: fourteen and twenty octaves, about what a small trained model needs.
_M_RANGE, _V_RANGE = (-22.0, -8.0), (-36.0, -16.0)
_SMALLEST_SCALE, _LARGEST_SCALE = -149.0, 127.0  #: in octaves


@click.command("explain")
@click.option("--m", type=NUMBER, required=True, help="Native first moment (exp_avg), decimal or 0x1.8p-12.")
@click.option("--v", type=NUMBER, required=True, help="Native second moment (exp_avg_sq).")
@tolerance_option
@grad_bound_option
@click.option("--like", type=FILE, metavar="FILE.gmc", help="Take grids, hyperparameters and step from this file ...")
@click.option("--tensor", default=0, show_default=True, help="... and this of its guarded tensors, counted from 0.")
@click.option("--recovered", nargs=2, type=NUMBER, metavar="M V", help="Recovered moments, in place of the codec's.")
@click.option("--gradient", type=NUMBER, metavar="G", help="Show both updates at this gradient, not at the worst.")
@click.option(
    "--place",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Its place in memory order, where rows or blocks have grids or scales of their own.",
)
@click.option("--codec", type=click.Choice(list(CODECS)), help="Codec.  [default: log8, or the file's]")
@click.option(
    "--m-range",
    nargs=2,
    type=NUMBER,
    default=_M_RANGE,
    show_default=True,
    help="Grid of m, in octaves; its end is a block's scale, and what ratio8 and entropy reach beside the largest v.",
)
@click.option("--v-range", nargs=2, type=NUMBER, default=_V_RANGE, show_default=True, help="Grid of v, likewise.")
@click.option("--lr", type=NUMBER, help="Learning rate.  [default: 0.001, or the file's]")
@click.option("--beta1", type=NUMBER, help="[default: 0.9, or the file's]")
@click.option("--beta2", type=NUMBER, help="[default: 0.999, or the file's]")
@click.option("--eps", type=NUMBER, help="[default: 1e-8, or the file's]")
@click.option("--step", type=NUMBER, help="Number of the first update after recovery.  [default: 1000, or the file's]")
@op_model_option
@click.option("--exact", is_flag=True, help="Find the exact worst case as well: run each gradient that could be it.")
@click.option("--exhaust", is_flag=True, help="Run every gradient of the claim: 2**31 for G = 1, ten seconds or more.")
@click.option("--plot", type=FILE, metavar="FILE", help="Draw the deviation against the gradient (.png, .svg or .pdf).")
@force_option
def command(
    m: float,
    v: float,
    tolerance: float,
    grad_bound: float,
    like: Path | None,
    tensor: int,
    place: int,
    codec: str | None,
    recovered: tuple[float, float] | None,
    gradient: float | None,
    m_range: tuple[float, float],
    v_range: tuple[float, float],
    lr: float | None,
    beta1: float | None,
    beta2: float | None,
    eps: float | None,
    step: float | None,
    op_model: str | None,
    exact: bool,  # noqa: FBT001 - a flag on the command line
    exhaust: bool,  # noqa: FBT001 - as above
    plot: Path | None,
    force: bool,  # noqa: FBT001 - as above
) -> None:
    """Explain one coordinate: its codes, the guard's terms, its worst gradient, and both updates step by step.

    \b
      gmc explain --m 0x1.8p-12 --v 0x1.2p-22 --tolerance 0.01 --grad-bound 1.0
      gmc explain --m 3e-5 --v 2e-9 --tolerance 0.01 --grad-bound inf --like optimizer.gmc --tensor 3
    """  # noqa: D301 - \b is the character by which click keeps lines as they are
    _check_picture(plot, like, force=force)
    given = {name: x for name, x in (("lr", lr), ("beta1", beta1), ("beta2", beta2), ("eps", eps)) if x is not None}
    if like is None:
        base = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=True)
        own = _codec(CODECS[codec or Log8.name], m_range, v_range)
        name, first = implementation_for({}).name, 1000.0
    else:
        state = read(like)
        if not 0 <= tensor < len(state.tensors):
            raise CheckpointError(f"{like}: has no guarded tensor {tensor}; it has {len(state.tensors)}")
        source = state.tensors[tensor]
        base = Hyperparameters.from_param_group(state.group_of(source), source.where)
        base = replace(base, lr=source.lr)
        if place >= source.numel:
            raise CheckpointError(f"{like}: {source.where} has {source.numel} coordinates, and none at {place}")
        if codec not in {None, source.codec.name}:
            raise CheckpointError(f"{like}: is in {source.codec.name}; give --codec {codec} without --like")
        own, name, first = source.codec, source.implementation, source.next_step
    hyperparameters = replace(base, **given)  # type: ignore[arg-type]  # the four names above, all numbers
    hyperparameters.check("the options given")
    number = first if step is None else step
    if not (1 <= number < float("inf")):
        raise CheckpointError(f"--step is {number!r}: expected the number of an update, 1 or more")
    claim = Claim(Tolerance(tolerance), GradientBound(grad_bound), op_model or name)
    found = explain(
        claim,
        hyperparameters,
        number,
        own,
        round_to_binary32(m),
        round_to_binary32(v),
        place,
        recovered=None if recovered is None else (round_to_binary32(recovered[0]), round_to_binary32(recovered[1])),
        gradient=None if gradient is None else round_to_binary32(gradient),
    )
    _show(out(), found, number, own)
    if found.states is None:
        return
    if plot is not None:
        with replacing(plot, overwrite=force) as temporary:
            draw(found, curve_of(found), temporary, plot.suffix.removeprefix("."))
        out().print(f"drawn     {plot}")
    _look_closer(found, exact=exact, exhaust=exhaust)


def _check_picture(plot: Path | None, like: Path | None, *, force: bool) -> None:
    if plot is not None:
        pictures.require(plot)
        check_output(plot, overwrite=force, inputs=() if like is None else (like,))


def _look_closer(found: Explanation, *, exact: bool, exhaust: bool) -> None:
    if exact:
        _show_exactly("exact", exact_worst_case(found), found)
    if exhaust:
        with progress_bar("running every gradient") as progress:
            extreme = exhausted_worst_case(found, progress)
        _show_exactly("exhausted", extreme, found)


def _codec(kind: type[Codec], m_range: tuple[float, float], v_range: tuple[float, float]) -> Codec:
    """A codec of a tensor of one coordinate."""
    for option, (low, high) in (("--m-range", m_range), ("--v-range", v_range)):
        if not -math.inf < low < high < math.inf:
            raise InvalidClaimError(
                f"{option} is {low!r} {high!r}: expected two finite exponents of 2, the lower first"
            )
    if issubclass(kind, EightBit):
        spanning = kind.kind.spanning
        return kind(spanning(*m_range, M_LEVELS), spanning(*v_range, V_LEVELS))
    if issubclass(kind, Blockwise8):
        scales = (torch.tensor([high]).clamp(_SMALLEST_SCALE, _LARGEST_SCALE).exp2() for _, high in (m_range, v_range))
        return kind(*scales)
    if issubclass(kind, Ratio8):
        reach = torch.tensor([m_range[1] - v_range[1] / 2], dtype=torch.float64).exp2()
        return kind(LogGrid.spanning(*v_range, V_LEVELS), steps_reaching(reach))
    if issubclass(kind, Entropy):
        return kind(_reaching(m_range, v_range))
    return BFloat16()


def _reaching(m_range: tuple[float, float], v_range: tuple[float, float]) -> Choice:
    """Codes of eight bits over the range of second moments, and of ratios as `ratio8` has them."""
    span = min(v_range[1] - v_range[0], HIGHEST / LogGrid.units)
    pitch = min(max(round(span * LogGrid.units / V_LEVELS / 2) * 2, SMALLEST_PITCH), LARGEST_PITCH)
    middle = min(max(sum(v_range) / 2 * LogGrid.units, LOWEST), HIGHEST)
    step = steps_reaching(torch.tensor([m_range[1] - v_range[1] / 2], dtype=torch.float64).exp2())
    nothing = torch.empty(0, dtype=torch.int8)
    base = round((middle - LOWEST) / pitch)
    return Choice(step.clamp(max=LARGEST_STEP), pitch, base, 1, (0, 0), nothing, nothing)


def _show(console: Console, found: Explanation, step: float, codec: Codec) -> None:
    console.print(f"claim     {found.claim.sentence()}")
    console.print(f"update    number {step:g}, step size {found.constants.step:.8g}")
    console.print(f"native    m {found.m!r} = {hex_of(found.m)}, v {found.v!r} = {hex_of(found.v)}")
    if not found.covered:
        console.print("guard     ESCAPES: NaN, infinite, negative, minus zero or huge; such a pair is stored exactly")
        return
    if not found.encodable:
        why = f"the nearest codes of {codec.name} mean something else"
        if found.recovered_is_given:
            why = "the recovered pair given is NaN, infinite, negative, minus zero or huge"
        console.print(f"codes     ESCAPES: {why}; it is stored exactly")
        return
    if found.m_code is not None:
        width = 2 * codec.code_type.itemsize
        console.print(f"codes     m 0x{found.m_code:0{width}x}, v 0x{found.v_code:0{width}x}")
    console.print(f"recovered m {found.m_hat!r} = {_hex(found.m_hat)}, v {found.v_hat!r} = {_hex(found.v_hat)}")
    if found.terms is not None:
        console.print("guard     terms, in learning rates:")
        for name, value in (
            ("(1-w)|m_hat-m| H(v_hat)", found.terms.first_moment),
            ("(1-w)|m| |H(v)-H(v_hat)|", found.terms.second_moment),
            ("w P", found.terms.gradient),
            ("rounding of both", found.terms.rounding),
        ):
            console.print(f"            {name:<26} {value:.8g}")
    verb = "ACCEPTS" if found.accepted else "ESCAPES"
    console.print(f"            {'bound':<26} {found.bound:.8g}  against {found.claim.tolerance.value:g}: {verb}")
    words = {
        Verdict.SAFE: "SAFE: no gradient of the claim violates it",
        Verdict.UNSAFE: "UNSAFE: this gradient violates the claim",
        Verdict.UNDECIDED: "UNDECIDED: the search ran out of its budget",
    }
    console.print(f"worst     {words[found.verdict]}" if found.verdict is not None else "")
    console.print(f"            g = {found.worst_gradient!r} = {_hex(found.worst_gradient)}")
    console.print(
        f"            deviation {found.worst_deviation:.10g} lr, bit-exact; certainly at most {found.worst_upper:.10g}"
    )
    table = Table("", "operation", "native", "recovered", box=None, pad_edge=False)
    for native, recovered in zip(found.native_trace, found.recovered_trace, strict=True):
        table.add_row(native.name, native.formula, _value(native.result), _value(recovered.result))
    if found.traced_gradient == found.worst_gradient:
        console.print("updates   at that gradient, each line one rounding:")
    else:
        console.print(
            f"updates   at g = {found.traced_gradient!r} = {_hex(found.traced_gradient)}, which was asked for,"
        )
        console.print(f"          deviating by {found.traced_deviation:.10g} lr, each line one rounding:")
    console.print(table)


def _show_exactly(how: str, worst: Exactly, found: Explanation) -> None:
    certain = worst.certainty == Certainty.EXACT
    ends = "" if certain else f", at most {worst.upper:.10g}: the budget of gradients ran out"
    verb = "exceeds" if worst.deviation > found.claim.tolerance.value else "within" if certain else "unknown beside"
    out().print(
        f"{how:<9} {worst.deviation:.10g} lr at g = {worst.gradient!r} = {_hex(worst.gradient)}{ends}\n"
        f"          {verb} the tolerance; {worst.evaluated:,} gradients run through the op model"
    )


def _hex(value: float | None) -> str:
    return "" if value is None else hex_of(value)


def _value(value: float) -> str:
    exact_product = math.isfinite(value) and from_bits(bits_of(value)) != value  # of more digits than binary32 has
    return f"{value:.9g}  {value.hex() if exact_product else hex_of(value)}"
