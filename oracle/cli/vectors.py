"""`gmc vectors`: questions with answers, as files, for backends that no Python can call."""

from __future__ import annotations

from pathlib import Path

import click

from guarded_moments.oracle.cli.common import FILE
from guarded_moments.oracle.conformance.vectors import (
    VectorError,
    check,
    generate,
    read_answers,
    read_vectors,
    write_vectors,
)
from guarded_moments.oracle.conformance.vectors.generate import reference_trial
from guarded_moments.reference.implementations import implementation_named

_SHOWN = 5


@click.group("vectors")
def command() -> None:
    """Test vectors for codec backends in any language.

    \b
      gmc vectors generate vectors/
      ./backend < vectors/requests.txt > answers.txt
      gmc vectors check vectors/ answers.txt
    """  # noqa: D301 - \b is the character by which click keeps lines as they are


@command.command("generate")
@click.argument("folder", type=FILE)
@click.option("--count", type=click.IntRange(min=1), default=30, show_default=True, help="Ordinary vectors a group.")
@click.option("--bulk", type=click.IntRange(min=1), default=500, show_default=True, help="... of bulk.safetensors.")
@click.option("--op-model", "op_models", multiple=True, metavar="NAME", help="Only this op model.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the random ones.")
def generate_command(folder: Path, count: int, bulk: int, op_models: tuple[str, ...], seed: int) -> int:
    """Write FOLDER with vectors: JSON with schemas, the same as requests for a program, and more as safetensors.

    Every number is the hexadecimal digits of its bits, and every vector has flags that say why it is there.  In
    guard.json, "accept" 0 means that a gradient violates the claim or that the pair is outside the guard's domain; 1
    that it may be accepted.
    """
    for name in op_models:
        implementation_named(name)
    try:
        explained = generate(reference_trial(seed, op_models), count)
        files = write_vectors(folder, explained, generate(reference_trial(seed + 1, op_models), bulk))
    except VectorError as error:
        raise click.ClickException(str(error)) from None
    click.echo(
        f"{sum(group.count for group in explained):,} vectors in {len(explained)} groups; "
        f"{len(files)} files in {folder}"
    )
    return 0


@command.command("check")
@click.argument("folder", type=FILE)
@click.argument("answers", type=FILE)
def check_command(folder: Path, answers: Path) -> int:
    """Judge ANSWERS to the vectors of FOLDER.

    ANSWERS is what a program wrote for requests.txt; or .json, as schemas/answers.schema.json says; or .safetensors,
    for bulk.safetensors, with a tensor KIND/GROUP/COLUMN for each expected one.

    Exit status 0 if every answer is right, 1 if not or if nothing was answered, 2 if the files cannot be read so.
    """
    try:
        groups = read_vectors(folder, bulk=answers.suffix == ".safetensors")
        outcome = check(groups, read_answers(answers, groups))
    except VectorError as error:
        raise click.ClickException(str(error)) from None
    for wrong in outcome.wrong[:_SHOWN]:
        for line in wrong.lines():
            click.echo(line)
    if len(outcome.wrong) > _SHOWN:
        click.echo(f"... and {len(outcome.wrong) - _SHOWN:,} more")
    click.echo(f"{outcome.right:,} right, {len(outcome.wrong):,} wrong, {outcome.unanswered:,} not answered")
    return 0 if outcome.right and not outcome.wrong else 1
