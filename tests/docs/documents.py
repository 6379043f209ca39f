"""Documents as the tests read them: fenced blocks, commands with what is shown of their output, and figures masked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_STATUS = re.compile(r"#.*\bexit status (\d+)")


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str


class Shown(NamedTuple):
    """A command of a console block."""

    command: str
    status: int  #: that it is said to end with; 0 where nothing is said
    output: list[str]  #: the lines that are shown


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a document, in order."""
    found = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(language, inside) for language, inside in found]


def shown_in(console: str) -> list[Shown]:
    """The commands of a console block, each with the output that is shown for it."""
    found: list[Shown] = []
    for line in console.splitlines():
        if line.startswith("$ "):
            command, _, comment = line.removeprefix("$ ").partition("#")
            status = _STATUS.search("#" + comment)
            found.append(Shown(command.strip(), int(status[1]) if status else 0, []))
        elif line:
            found[-1].output.append(line)
    return found


def masked(line: str) -> str:
    """A line of output without what differs from one checkpoint or machine to another."""
    line = re.sub(r"torch-[\w./-]+", "OP-MODEL", line)
    line = re.sub(r"state\[\d+\] \([\w.]+\)\[[\d, ]+\]", "PLACE", line)
    line = re.sub(r"-?0x[0-9a-f.]+p[+-]\d+ \[[0-9a-f]{8}\]", "VALUE", line)
    return re.sub(r"\d[\d,]*(\.\d+)?(e-?\d+)?", "N", line)


def shape(text: str) -> list[str]:
    """A page with every figure masked, and columns of one width."""
    text = re.sub(r"\([^()|]* to [^()|]*\)", "", text)  # a spread, which is absent where all runs agree
    text = re.sub(r"`[^`]*`|torch-[\w./-]+|torch [\w.+]+|capability \w+", "WORD", text)
    text = re.sub(r"-?\d[\d,]*(\.\d+)?(e[-+]?\d+)?", "N", text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if not line.startswith("    ")]
