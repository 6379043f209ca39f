"""`gmc` in this process, through the function that its entry point calls; and what it did to a folder."""

import io
import json
import math
import re
import struct
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from unittest.mock import patch

import pytest

from guarded_moments.oracle.cli import main

CLAIM = ("--tolerance", "0.01", "--grad-bound", "1")


class Ran(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str

    def line(self, label: str) -> str:
        """The one line of standard output that starts with a label, without it."""
        (found,) = [line for line in self.out.splitlines() if line.startswith(label)]
        return found.removeprefix(label).strip()

    def integers(self, label: str) -> list[int]:
        """The whole numbers in that line; thousands are separated by commas."""
        numbers = re.findall(r"(?<![\w.])\d[\d,]*(?![\w.]|,\d)", self.line(label))
        return [int(number.replace(",", "")) for number in numbers]


def gmc(*arguments: object) -> Ran:
    """Run a command line. An exception that `main` does not turn into a status goes on to the test."""
    out, err = io.StringIO(), io.StringIO()
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", ["gmc", *map(str, arguments)]),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    assert isinstance(stop.value.code, int), f"gmc {arguments}: exit status {stop.value.code!r}"
    return Ran(stop.value.code, out.getvalue(), err.getvalue())


def run_well(*arguments: object) -> Ran:
    """Run a command line that must succeed, with nothing to say on standard error."""
    ran = gmc(*arguments)
    assert (ran.status, ran.err) == (0, ""), f"gmc {arguments}: {ran}"
    return ran


def contents(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, hidden files too, with what it holds."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = b"link to " + bytes(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = b"no file"
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Strict JSON: the words NaN and Infinity, which Python would take, are none."""

    def refuse(word: str) -> NoReturn:
        raise AssertionError(f"{path}: {word} is not JSON")

    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    return data


def float_of(text: str) -> float:
    """The value of `0x1.800000p-12 [39c00000]`, whose two notations must agree."""
    found = re.fullmatch(r"(\S+) \[([0-9a-f]{8})\]", text)
    assert found is not None, f"{text!r} is no value with its bits"
    (value,) = struct.unpack(">f", bytes.fromhex(found[2]))
    assert value == float.fromhex(found[1]) or math.isnan(value), f"{text!r}: the bits are {value.hex()}"
    return float(value)
