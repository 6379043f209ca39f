"""`gmc ops`: every op model, what it rounds and how it is known.

Everything shown is read from the models or computed by running them; nothing is written down here a second time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from guarded_moments.oracle.cli.common import out
from guarded_moments.oracle.platform import Certificate, platform_certificate
from guarded_moments.oracle.rounding_counts import rounding_counts
from guarded_moments.reference.adam import StepOptions
from guarded_moments.reference.guard.overflow import LARGEST_MOMENT, LARGEST_SECOND_MOMENT, largest_finite_gradient
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS, Implementation, Placement, implementation_named
from guarded_moments.reference.op_models import Interpolation, OpModel, SquareRoot

#: torch's own; limits are shown for them.
DEFAULTS = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=False)
#: The first update of a run, whose step size and bias corrections are the most extreme, and one late in it.
_STEPS = (1, 100_000)
_COLUMNS = ("quantity", "operations", "roundings")
_FROM_START, _FROM_END = StepOptions(), StepOptions(interpolate_from_end=True)

_ABOUT = """
An op model is one sequence of rounded binary32 operations, and a claim is about one of them. An *implementation* names
the op models of a platform's path: most have one, some run a second on a few elements of each tensor. A file names the
implementation that it was written for; another build, device or `fused` setting rounds differently.

*Measured*: compared bit for bit with the real kernels by the tests, where they run on such a machine. *Emulated from
machine code* and *read from source*: run on no hardware here. `gmc identify` finds the op model that a kernel follows,
`gmc crosscheck` compares [other implementations](other-implementations.md).

Roundings are counted from the state with its gradient to the quantity, all included.
"""


@click.command("ops")
@click.argument("name", required=False)
@click.option("--json", "as_data", is_flag=True, help="Print the same as JSON.")
@click.option("--markdown", is_flag=True, help="Print the page of the documentation: all of them in full.")
def command(
    name: str | None,
    as_data: bool,  # noqa: FBT001 - a flag on the command line
    markdown: bool,  # noqa: FBT001 - as above
) -> None:
    """List the op models of every implementation, or show the one called NAME in full.

    An op model is one sequence of rounded binary32 operations; the guarantee is about it and no other.  "measured" was
    compared bit for bit with the real kernels by the tests, on the machine they ran on; "emulated from machine code"
    and "read from source" have run on no hardware here.
    """
    if markdown and (name is not None or as_data):
        raise click.UsageError("--markdown is a page about all op models: it takes no NAME and excludes --json")
    chosen = list(IMPLEMENTATIONS.values()) if name is None else [implementation_named(name)]
    certificate = platform_certificate()
    data = [describe(implementation) for implementation in chosen]
    console = out()
    if markdown:
        click.echo(page(chosen, data), nl=False)
    elif as_data:
        kept = None if certificate is None else certificate.as_json()
        console.print(json.dumps({"implementations": data, "platform": kept}, indent=1))
    elif name is None:
        console.print(_list(data))
        console.print(_legend())
        _show_certificate(console, certificate)
    else:
        _show(console, chosen[0], data[0])
        if any(model.square_root is SquareRoot.PLATFORM for model in chosen[0].models):
            _show_certificate(console, certificate)


def describe(implementation: Implementation) -> dict[str, Any]:
    """An implementation as plain data."""
    return {
        "name": implementation.name,
        "evidence": implementation.evidence.value,
        "remark": implementation.remark,
        "constants": implementation.constants.value,
        "second_model_applies_to": implementation.placement.value,
        "gradient_limit": {str(step): gradient_limit(implementation, step) for step in _STEPS},
        "models": [_describe_model(model) for model in implementation.models],
    }


def gradient_limit(implementation: Implementation, step: int) -> float:
    """Up to which `|g|` no operation of any of its op models can overflow, at torch's default hyperparameters.

    Moments may be as large as the guard's domain.
    """
    hyperparameters = replace(DEFAULTS, fused=implementation.name.endswith("/fused"))
    scalars = implementation.scalars(hyperparameters, step)
    return min(
        largest_finite_gradient(model, hyperparameters.options, scalars, math.inf) for model in implementation.models
    )


def _describe_model(model: OpModel) -> dict[str, Any]:
    counts, from_end = rounding_counts(model, _FROM_START), rounding_counts(model, _FROM_END)
    return {
        "name": model.name,
        "first_moment": model.interpolation.value,
        "first_moment_from_end": _from_end(model),
        "second_moment": model.second_moment.value,
        "square_root": model.square_root.value,
        "correction": model.correction.value,
        "update": model.update.value,
        "maximum": model.maximum.value,
        "l2_decay": model.l2_decay.value,
        "decoupled_decay": model.decoupled_decay.value,
        "update_is_rounded_by_itself": model.rounds_update,
        "roundings": counts._asdict(),
        "roundings_from_end": from_end._asdict(),
    }


def _from_end(model: OpModel) -> str:
    """How the first moment is written for a weight of at least one half."""
    if model.interpolation is Interpolation.SEPARATE:
        return f"{model.from_end.value}"
    fused = f"{model.from_end.value}, the product fused with the sum"
    return fused if model.interpolation is Interpolation.FMA else f"{model.interpolation.value}"


def _list(data: list[dict[str, Any]]) -> Table:
    table = Table("implementation", "evidence", "square root", "v'", "update", box=None)
    for heading in ("roundings m' v' den U", "|g| up to"):
        table.add_column(heading, justify="right")
    for entry in data:
        limit = entry["gradient_limit"][str(_STEPS[0])]
        rows = [_row(model) for model in entry["models"]]
        table.add_row(entry["name"], entry["evidence"], *rows[0], f"{limit:.4g}")
        for row in (row for row in rows[1:] if row != rows[0]):
            shown = [cell if cell != above else "" for cell, above in zip(row, rows[0], strict=True)]
            table.add_row("  elsewhere", "", *shown, "")
    return table


def _row(model: dict[str, Any]) -> tuple[str, ...]:
    return (
        model["square_root"].removesuffix(" of this platform"),
        model["second_moment"],
        model["update"] if model["update_is_rounded_by_itself"] else f"{model['update']}, not rounded itself",
        " ".join(f"{count:2}" for count in model["roundings"].values()),
    )


def _legend() -> str:
    h = DEFAULTS
    return (
        "\nelsewhere: what differs in the implementation's second op model; gmc ops NAME says where it applies.\n"
        "roundings: operations between the state with its gradient and the quantity, all included.\n"
        f"|g| up to: no operation overflows at lr {h.lr:g}, betas {h.beta1:g} and {h.beta2:g}, eps {h.eps:g}, "
        f"update {_STEPS[0]}, |m| up to {LARGEST_MOMENT:.3g}, v up to {LARGEST_SECOND_MOMENT:.3g}."
    )


def _show(console: Console, implementation: Implementation, entry: dict[str, Any]) -> None:
    console.print(implementation.name)
    console.print(f"evidence    {entry['evidence']}: {entry['remark']}")
    console.print(f"constants   {entry['constants']}")
    for step in _STEPS:
        limit = entry["gradient_limit"][str(step)]
        title = "overflow" if step == _STEPS[0] else ""
        console.print(f"{title:11} |g| up to {limit:.6g} at update {step:,}, torch's defaults")
    if implementation.placement is not Placement.NOWHERE:
        console.print(f"two models  the second applies to these elements: {implementation.placement.value}")
    for number, model in enumerate(entry["models"], start=1):
        title = f"\nop model {number} of {len(entry['models'])}: {model['name']}" if len(entry["models"]) > 1 else ""
        console.print(title)
        console.print(_sequence(model))


def _sequence(model: dict[str, Any]) -> Table:
    table = Table(*_COLUMNS[:-1], box=None)
    table.add_column(_COLUMNS[-1], justify="right")
    for row in _operations(model):
        table.add_row(*row)
    return table


def _operations(model: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Quantity, operations and number of roundings of each step."""
    counts, from_end = model["roundings"], model["roundings_from_end"]
    rounded = "" if model["update_is_rounded_by_itself"] else "; the update is never rounded by itself"
    yield from (
        ("gradient, L2 decay", model["l2_decay"], ""),
        ("parameter, AdamW", model["decoupled_decay"], ""),
        ("m'", model["first_moment"], str(counts["first_moment"])),
        ("m', w >= 1/2", model["first_moment_from_end"], str(from_end["first_moment"])),
        ("v'", model["second_moment"], str(counts["second_moment"])),
        ("vmax', amsgrad", model["maximum"], "0"),
        ("sqrt", model["square_root"], ""),
        ("den", f"{model['correction']} + eps", str(counts["denominator"])),
        ("parameter", f"{model['update']}{rounded}", f"{counts['update']} before the parameter's"),
    )


def page(implementations: Sequence[Implementation], data: Sequence[dict[str, Any]]) -> str:
    """The page of the documentation, in Markdown; the same on every machine."""
    lines = ["# Op models", "", "Made by `gmc ops --markdown`; do not edit.", "", *_ABOUT.strip().splitlines()]
    for implementation, entry in zip(implementations, data, strict=True):
        lines += ["", f"## {implementation.name}", "", f"*{entry['evidence']}*: {entry['remark']}.", ""]
        lines += [f"- constants: {entry['constants']}"]
        for step in _STEPS:
            limit = entry["gradient_limit"][str(step)]
            lines.append(f"- no overflow for gradients up to {limit:.6g} at update {step:,}, with torch's defaults")
        if implementation.placement is not Placement.NOWHERE:
            lines.append(f"- the second model applies to these elements: {implementation.placement.value}")
        for model in entry["models"]:
            lines += ["", f"`{model['name']}`", "", f"| {' | '.join(_COLUMNS)} |", "|---|---|---:|"]
            lines += [
                f"| {quantity} | `{operations}` | {count} |" for quantity, operations, count in _operations(model)
            ]
    return "\n".join(lines) + "\n"


def _show_certificate(console: Console, certificate: Certificate | None) -> None:
    for sentence in certificate.sentences() if certificate is not None else ["torch.sqrt: not certified here"]:
        console.print(f"platform    {sentence}")
    if certificate is None or not certificate.certified:
        console.print("            run gmc certify-platform")
