"""Files that commands write beside their job, whole or not at all; `-` stands for standard output where JSON may go."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from guarded_moments.oracle.cli.common import FILE
from guarded_moments.reference.checkpoint.writing import check_output, replacing

STANDARD_OUTPUT = Path("-")


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--json`, which a command takes as `json_file`."""
    return click.option(
        "--json",
        "json_file",
        type=FILE,
        metavar="FILE",
        help="Write the same as JSON; - is standard output, and nothing else is then printed there.",
    )(command)


def check_outputs(outputs: Sequence[Path | None], inputs: Sequence[Path], *, overwrite: bool) -> None:
    """Refuse, before any work, an output that would destroy something or another output."""
    taken = list(inputs)
    for path in outputs:
        if path is not None and path != STANDARD_OUTPUT:
            check_output(path, overwrite=overwrite, inputs=taken)
            taken.append(path)


def write_json(path: Path, data: Any, *, force: bool) -> None:  # noqa: ANN401 - plain data
    """To a file, or to standard output where the name is `-`."""
    text = json.dumps(data, indent=1)
    if path == STANDARD_OUTPUT:
        click.echo(text)
    else:
        write_text(path, text + "\n", force=force)


def write_text(path: Path, text: str, *, force: bool) -> None:
    """A file, whole or not at all."""
    with replacing(path, overwrite=force) as temporary:
        temporary.write_text(text, encoding="utf-8")
