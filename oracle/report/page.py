"""The page: one HTML file with its style and drawings in it, no script, and no request to anywhere.

Claimed: equal facts give equal bytes; text from a checkpoint is escaped, and characters that would not be seen, or
would turn the text around them, are shown by their code points.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from guarded_moments.oracle.report.charts import HEIGHT, WIDTH, bars

#: Tensors that the page lists; the JSON may have more.
ROWS = 60
#: Lemmas and theorems that it lists, each; likewise.
CLAIM_ROWS = 200
#: Characters of a name at its beginning and at its end that the page shows, where it has more; the JSON has all.
_HEAD, _TAIL = 80, 40


def page(facts: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> str:
    """The report as HTML.

    Args:
        facts: of `facts_of`.
        changes: of `difference`, against an earlier report.
    """
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters |= {"count": _count, "figure": _figure, "name": _name, "place": _place, "prose": _prose}
    template = environment.get_template("page.html.jinja")
    return template.render(
        f=facts, changes=changes, bars=bars, width=WIDTH, height=HEIGHT, rows=ROWS, claim_rows=CLAIM_ROWS
    )


def _source(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def visible(text: str) -> str:
    """The text with every character that is not printable as its code point; line breaks are not printable."""
    return "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)


def _count(value: int) -> str:
    return f"{value:,}"


def _figure(value: float | str | None) -> str:
    """Eight digits; a word for what is no number."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else f"{value:.8g}"


def _name(text: str) -> str:
    if len(text) <= _HEAD + _TAIL:
        return text
    return f"{text[:_HEAD]}… ({len(text):,} characters) …{text[-_TAIL:]}"


def _place(coordinate: Mapping[str, Any]) -> str:
    return f"{_name(coordinate['where'])}[{', '.join(map(str, coordinate['position']))}]"


def _prose(text: str) -> Markup:
    """Text with what stands in backquotes set as code."""
    parts = [escape(visible(part)) for part in text.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))
