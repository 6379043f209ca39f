"""What changed between two reports, row by row; both as the JSON holds them.

Claimed: every verdict figure, step of the assurance case, case that is not covered, version and listed tensor that
differs is counted; the page shows the first of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from guarded_moments.oracle.report.facts import FORMAT, VERSION
from guarded_moments.reference.errors import CheckpointError

SHOWN = 40  #: rows of a kind
_OF_A_TENSOR = ("coordinates", "accepted", "escapes", "violations", "undecided", "max_deviation", "codec", "lr")
_OF_A_VERDICT = (
    "word",
    "coordinates",
    "safe",
    "violations",
    "undecided",
    "escapes",
    "needless_escapes",
    "bit_rate",
    "max_deviation",
    "max_deviation_upper",
)


def difference(earlier: Any, later: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - whatever a file holds
    """What changed, by kind: rows of what, before and after; and how many there are of each.

    Raises:
        CheckpointError: `earlier` is no report of this version.
    """
    require_report(earlier)
    try:
        kinds = {
            "the claim": _mapped(_claimed(earlier), _claimed(later)),
            "the verdict": _named(earlier["verdict"], later["verdict"], _OF_A_VERDICT),
            "how steps are known": _keyed(earlier["assurance"], later["assurance"], "step", ("word",)),
            "what is not covered": _keyed(
                earlier["not_covered"]["cases"], later["not_covered"]["cases"], "name", ("is_counterexample", "largest")
            ),
            "versions": _mapped(earlier["trusted_base"]["versions"], later["trusted_base"]["versions"]),
            "the machine": _mapped(earlier["trusted_base"]["machine"], later["trusted_base"]["machine"]),
            "files": _keyed(earlier["trusted_base"]["files"], later["trusted_base"]["files"], "name", ("sha256",)),
            "proofs": _keyed(earlier["lemmas"], later["lemmas"], "name", ("statement", "status")),
            "tensors": _keyed(earlier["tensors"]["shown"], later["tensors"]["shown"], "where", _OF_A_TENSOR),
        }
        rows = {kind: list(found) for kind, found in kinds.items()}
    except (KeyError, TypeError, AttributeError, IndexError):
        raise CheckpointError(f"is damaged: it is not what the schema of {FORMAT} says") from None
    return {
        "subject": str(earlier["run"]["subject"]),
        "kinds": [{"kind": kind, "of": len(found), "rows": found[:SHOWN]} for kind, found in rows.items() if found],
    }


def require_report(data: Any) -> None:  # noqa: ANN401 - whatever a file holds
    """Refuse what is no report of this version, before anything is compared.

    Raises:
        CheckpointError: as said.
    """
    if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
        raise CheckpointError(f"is no {FORMAT} of version {VERSION}: gmc audit --report FILE.json writes one")


_Row = dict[str, str]


def _claimed(report: Mapping[str, Any]) -> dict[str, str]:
    """What all claims of a report say, and of which learning rates and updates."""
    claims = report["claims"]
    return {
        "claims": "; ".join(claim["sentence"] for claim in claims),
        "learning rates": "; ".join(", ".join(map(_text, claim["learning_rates"])) for claim in claims),
        "number of the first update": "; ".join(", ".join(map(_text, claim["next_steps"])) for claim in claims),
    }


def _row(what: str, before: object, after: object) -> _Row:
    return {"what": what, "before": _text(before), "after": _text(after)}


def _text(value: object) -> str:
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.8g}" if isinstance(value, float) else str(value)


def _named(before: Mapping[str, Any], after: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[_Row]:
    for name in names:
        if before[name] != after[name]:
            yield _row(name.replace("_", " "), before[name], after[name])


def _mapped(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[_Row]:
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield _row(name, before.get(name), after.get(name))


def _keyed(
    before: list[Mapping[str, Any]], after: list[Mapping[str, Any]], key: str, names: tuple[str, ...]
) -> Iterator[_Row]:
    one, other = ({entry[key]: entry for entry in entries} for entries in (before, after))
    for name in sorted({*one, *other}):
        if name not in one or name not in other:
            yield _row(name, *("there" if name in side else None for side in (one, other)))
            continue
        for row in _named(one[name], other[name], names):
            yield {**row, "what": f"{name}: {row['what']}"}
