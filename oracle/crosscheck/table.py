"""The report as one Markdown page.

Claimed: the page says what was seen, on what, and how to see it again; the same report gives the same text.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from guarded_moments.oracle.crosscheck.codec import PROBES, TOLERANCE, Deviations
from guarded_moments.oracle.crosscheck.compare import Comparison, Distance, Quantity
from guarded_moments.oracle.crosscheck.report import Measured, NotMeasured, Report
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.implementations import IMPLEMENTATIONS

_WIDTH = 120
_WHOLE = 10  #: learning rates from which no decimals are shown
_HEADINGS = {"m": "m'", "v": "v'", "update": "update"}


def markdown(report: Report, command: str) -> str:
    """The page.

    Args:
        report: what was seen.
        command: what regenerates the page.
    """
    measured = [result for result in report.results if isinstance(result, Measured)]
    parts = [
        _head(report, command),
        _op_models(report),
        _first_updates(report, measured),
        _special_values(measured),
        _codecs(report, measured),
        _readings(report),
    ]
    return "\n".join(line for part in parts for line in part) + "\n"


def _head(report: Report, command: str) -> Iterator[str]:
    h, machine = report.hyperparameters, report.machine
    yield from ("# Other implementations of Adam beside the op models", "")
    yield from _paragraph(
        "Generated, never edited. This regenerates it, with the packages of the extra `crosscheck` installed (`pip "
        "install -c constraints.txt -c constraints-crosscheck.txt -e '.[crosscheck]'`):"
    )
    yield from (f"    {command}", "")
    packages = {result.versions for result in report.results if isinstance(result, Measured)}
    packages.add(f"torch {machine.torch}")
    yield from _table(
        ("", ""),
        [
            ("packages", ", ".join(sorted({name for text in packages for name in text.split(", ")}))),
            ("Python", report.python),
            ("CPU", machine.cpu),
            ("torch's CPU capability", machine.capability),
            ("torch's vector library", machine.library),
            ("seed", str(report.seed)),
            ("coordinates of a state", f"{report.count:,}"),
            ("hyperparameters", f"lr {h.lr:g}, betas {h.beta1:g} and {h.beta2:g}, eps {h.eps:g}, no decay"),
        ],
    )
    yield from _paragraph(
        "Each implementation makes one update of a parameter that is zero, so that the parameter afterwards is the "
        "update, bare. *Trained states* are moments that torch's own Adam made from drawn gradients, some of them "
        "sparse; the updates are numbers 1 (zero moments), 10, 400 and 100,000 (the moments of 400, the bias "
        "corrections gone). *Special values* are zeros of both signs, subnormals, values around the smallest normal, "
        "huge ones, infinities and NaN, in all mixtures. Everything ran on one torch thread. The page is about these "
        "versions on this CPU: other builds and other CPUs give other bits."
    )


def _op_models(report: Report) -> Iterator[str]:
    yield from ("## Which op model each follows", "")
    yield from _paragraph(
        "On trained states. *Follows*: the op models whose bits it gives in every element of every quantity, and on "
        "the special values too. In the column of a quantity: an op model with those bits; or else the nearest one, "
        "the share of elements that deviate from it, and by how many units in the last place those do (median / "
        "largest). Quantised moments are compared after the op model's went through the same encoding."
    )
    rows: list[tuple[str, ...]] = []
    for result in report.results:
        if isinstance(result, NotMeasured):
            rows.append((result.adapter.title, f"not measured: {result.reason}", "", "", ""))
        else:
            cells = (_nearest(quantity) for quantity in result.trained.quantities)
            rows.append((result.adapter.title, _follows(result), *cells))
    yield from _table(("implementation", "follows", *_HEADINGS.values()), rows)


def _follows(result: Measured) -> str:
    names = result.trained.followed
    if result.special is not None:
        names = tuple(name for name in names if name in result.special.followed)
    return ", ".join(f"`{name}`" for name in names) or "none"


def _nearest(quantity: Quantity) -> str:
    found = quantity.nearest
    if quantity.followed:
        return f"{_form(quantity)}: all {found.compared:,} equal"
    return f"none; nearest {_form(quantity)}: {_distance(found)}"


def _form(quantity: Quantity) -> str:
    """How the nearest op model forms this quantity."""
    implementation = IMPLEMENTATIONS[quantity.nearest.implementation]
    if quantity.name == "m":
        return f"`{implementation.body.interpolation.value}` of `{implementation.name}`"
    if quantity.name == "v":
        return f"`{implementation.body.second_moment.value}` of `{implementation.name}`"
    return f"`{implementation.name}`"


def _distance(found: Distance) -> str:
    unlike = f", {found.unlike:,} of another kind" if found.unlike else ""
    return f"{_percent(found.share)} deviate, {found.median_ulps:,.0f} / {found.largest_ulps:,} ulp{unlike}"


def _first_updates(report: Report, measured: Sequence[Measured]) -> Iterator[str]:
    yield from ("## What that does to the first update", "")
    yield from _paragraph(
        f"`|U - U'|` in learning rates, where `U'` is the update of `{report.native}` from the moments that the "
        "implementation really started from, so that quantisation itself is not in it: the 99.9th percentile over the "
        "coordinates / the largest, on trained states."
    )
    numbers = sorted({number for result in measured for number in result.first_update})
    rows = [
        (
            result.adapter.title,
            *(f"{_lr(result.first_update[n].percentile)} / {_lr(result.first_update[n].largest)}" for n in numbers),
        )
        for result in measured
    ]
    yield from _table(("implementation", *(f"update {number:,}" for number in numbers)), rows)


def _special_values(measured: Sequence[Measured]) -> Iterator[str]:
    yield from ("## Special values", "")
    yield from _paragraph(
        "As in the first table, on special values. *Of another kind*: finite, infinite or NaN, and the op model's "
        "result is not that. *Flushed*: of the results that are subnormal in this machine's single path, those that "
        "are zero here. Quantised moments are not asked: one NaN would poison its whole block."
    )
    rows: list[tuple[str, ...]] = []
    for result in measured:
        if result.special is None:
            continue
        flushed = ", ".join(
            f"{_HEADINGS[quantity.name]} {quantity.flushed:,} of {quantity.subnormal:,}"
            for quantity in result.special.quantities
        )
        rows.append((result.adapter.title, *_shares(result.special), flushed, "; ".join(result.observations)))
    yield from _table(("implementation", *_HEADINGS.values(), "flushed", "seen apart from Adam"), rows)


def _shares(comparison: Comparison) -> Iterator[str]:
    for quantity in comparison.quantities:
        name = quantity.nearest.implementation
        yield f"`{name}`" if quantity.followed else f"none; nearest `{name}`: {_distance(quantity.nearest)}"


def _codecs(report: Report, measured: Sequence[Measured]) -> Iterator[str]:
    quantised = [result for result in measured if result.adapter.quantised]
    if not quantised:
        return
    yield from ("## What quantised moments do, unguarded", "")
    yield from _paragraph(
        "The native moments of a trained state are encoded and decoded once by the implementation's own code; then one "
        f"update of `{report.native}` follows from each. The deviation of the two, in learning rates: the share of "
        f"coordinates beyond {TOLERANCE:g}, and median / 99.9th percentile / largest over the coordinates. *Own "
        f"gradient*: the state's. *Worst gradient*: for each coordinate the worst of that and {PROBES} more, which are "
        "zero and up to 2^16 times its own scale either way; the supremum over all gradients is no smaller."
    )
    rows = []
    for result in quantised:
        for found in result.codec:
            own, probed = _deviations(found.own), _deviations(found.probed)
            rows.append((result.adapter.title, f"{found.number:,}", *own, *probed))
    columns = ("own gradient: beyond", "deviation", "worst gradient: beyond", "deviation")
    yield from _table(("implementation", "update", *columns), rows)
    yield from _paragraph("The coordinate of each that deviates most, over the updates above:")
    worst = []
    for result in quantised:
        found = max(result.codec, key=lambda deviation: deviation.probed.largest)
        cells = (f"`{hex_of(value)}`" for value in (found.m, found.m_hat, found.v, found.v_hat, found.g))
        worst.append((result.adapter.title, f"{found.number:,}", *cells, f"{_lr(found.probed.largest)} lr"))
    yield from _table(("implementation", "update", "m", "recovered", "v", "recovered", "gradient", "deviation"), worst)


def _deviations(found: Deviations) -> tuple[str, str]:
    return _percent(found.beyond), " / ".join(map(_lr, (found.median, found.percentile, found.largest)))


def _readings(report: Report) -> Iterator[str]:
    yield from ("## How each is written", "")
    yield from _paragraph(
        "Read from source, to explain what was measured. `b1`, `b2` are the betas, `bc1`, `bc2` the bias corrections; "
        "the second column is what `gmc crosscheck --only` takes."
    )
    rows = [(result.adapter.title, f"`{result.adapter.name}`", result.adapter.reading) for result in report.results]
    yield from _table(("implementation", "name", "operations"), rows, last=True)


def _paragraph(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    yield ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, last: bool = False) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in row)} |"
    if not last:
        yield ""


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _lr(deviation: float) -> str:
    if deviation == 0:
        return "0"
    return f"{deviation:,.0f}" if deviation >= _WHOLE else f"{deviation:.2g}"
