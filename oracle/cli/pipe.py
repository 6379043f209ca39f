"""`gmc pipe`: a backend in any language, judged over its standard input and output."""

from __future__ import annotations

import click

from guarded_moments.oracle.conformance.adapting import Adapted, BackendError
from guarded_moments.oracle.conformance.console import judge_all
from guarded_moments.oracle.conformance.document import in_order
from guarded_moments.oracle.conformance.pipe import PipeBackend
from guarded_moments.oracle.conformance.requirements import Level, Trial
from guarded_moments.reference.implementations import implementation_named


@click.command("pipe", context_settings={"ignore_unknown_options": True})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--only", multiple=True, metavar="ID", help="A requirement, or the beginning of some: GRD-1, GRD.")
@click.option("--level", type=click.Choice(["sound", "reproducible"]), default="reproducible", show_default=True)
@click.option("--op-model", "op_models", multiple=True, metavar="NAME", help="Judge by this op model.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the inputs.")
@click.option("--budget", type=float, default=0.0, metavar="SECONDS", help="Go on with fresh inputs, a requirement.")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds without a line.")
def command(
    program: tuple[str, ...],
    only: tuple[str, ...],
    level: str,
    op_models: tuple[str, ...],
    seed: int,
    budget: float,
    timeout: float,
) -> int:
    """Judge PROGRAM, a codec backend in any language, over its standard input and output.

    A request is a line that says what is asked and, last, how many elements follow; then a line an element.  The answer
    is a line an element.  Numbers are the hexadecimal digits of their bits, most significant first.

    \b
      request                                          an element       its answer
      hello 1                                                           operations NAME ...
                                                                        op-models NAME ...
                                                                        (an empty line)
      encode LOW STEP LEVELS LOW STEP LEVELS N         M V              MC VC
      decode LOW STEP LEVELS LOW STEP LEVELS N         MC VC            M V
      guard NAME=BITS ... N                            M V M_HAT V_HAT  0 or 1
      first_update CHOICE=WORD ... NAME=BITS ... N     M V G            U

    Moments, gradients and the constants of first_update are binary32; grids and the constants of guard binary64; codes
    two digits; LEVELS and N decimal.  U is binary64 where the op model does not round the update by itself
    (update=DIVIDE_THEN_MULTIPLY).  The grids are those of m and of v.  The program ends when its input ends.

    \b
      cc -O2 -ffp-contract=off -o backend examples/c_backend/backend.c -lm
      gmc pipe ./backend
      gmc pipe --only GRD ./backend

    Exit status 0 if every requirement that the program claims holds, 1 if not, 2 if it cannot be asked.  The same as
    tests: pytest --oracle="pipe:./backend".
    """  # noqa: D301 - \b is the character by which click keeps lines as they are
    known = [required.identifier for required in in_order()]
    for asked in only:
        if not any(identifier.startswith(asked) for identifier in known):
            raise click.UsageError(f"--only {asked}: there is no such requirement; gmc requirements lists them")
    for name in op_models:
        implementation_named(name)
    try:
        backend = PipeBackend(program, timeout)
    except BackendError as error:
        raise click.ClickException(str(error)) from None
    try:
        trial = Trial(Adapted(backend), seed, op_models)
        found = judge_all(trial, click.echo, only=only, level=Level(level), budget=budget)
    finally:
        backend.close()
    return 1 if any(judgement.fails for judgement in found) else 0
