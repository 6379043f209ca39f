"""What the commands share: parameters, numbers in hexadecimal, progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from guarded_moments.oracle.cli import QUIET
from guarded_moments.reference.checkpoint import GuardedState
from guarded_moments.reference.checkpoint.guarded import Kernels
from guarded_moments.reference.claim import Claim, GradientBound, Tolerance
from guarded_moments.reference.errors import GuardedMomentsError


class Number(click.ParamType[float]):
    """A number in decimal or C99 hexadecimal (`0x1.8p-12`), `inf` and `nan` included."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or fail with the text that was given."""
        text = str(value)
        try:
            return float.fromhex(text) if "0x" in text.lower() else float(text)
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is not a number (decimal, or hexadecimal such as 0x1.8p-12)", param, ctx)


NUMBER = Number()
#: Existence is checked by the readers, whose messages say more.
FILE = click.Path(path_type=Path)

tolerance_option = click.option(
    "--tolerance",
    type=NUMBER,
    required=True,
    metavar="TAU",
    help="Largest deviation of the first update, in learning rates; 0.01 is a good start.",
)
grad_bound_option = click.option(
    "--grad-bound",
    type=NUMBER,
    required=True,
    metavar="G",
    help=("Largest |gradient| covered, as it enters the moments; inf covers all up to the op model's overflow limit."),
)
op_model_option = click.option(
    "--op-model",
    metavar="NAME",
    help="Op model of the run that will resume, such as torch-2.13-cpu-avx2/single; by default this machine's.",
)
force_option = click.option("--force", is_flag=True, help="Replace the output if it exists.")


def implementation_option(what: str, large: str) -> Callable[[Any], Any]:
    """The option `--implementation`, which a command takes as `kernels`: what it changes, and where `auto` compiles."""
    return click.option(
        "--implementation",
        "kernels",
        type=click.Choice(get_args(Kernels)),
        default="auto",
        show_default=True,
        help=f"{what}  auto: compiled loops where compiling them pays, for large {large}.",
    )


def check_claim(tolerance: float, grad_bound: float | Sequence[float]) -> None:
    """Refuse a tolerance or bound that makes no claim, before anything is read."""
    for bound in grad_bound if isinstance(grad_bound, Sequence) else [grad_bound]:
        Claim(Tolerance(tolerance), GradientBound(bound), implementation="")


#: Columns assumed where standard output is no terminal, so that tables are not folded.
_WIDE = 200


class _Console(Console):
    """A console that leaves a broken pipe to the caller, as any other failure to write."""

    def on_broken_pipe(self) -> None:
        """Raise what happened; the base class would exit with status 1, which here is a verdict."""
        raise  # noqa: PLE0704 - called while the error is handled


def is_quiet() -> bool:
    """Whether the command that runs was told to be."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def out(*, quiet: bool = False) -> Console:
    """The console for results; plain and wide when standard output is no terminal, silent with `--quiet`.

    Args:
        quiet: whether it is to be silent in any case.
    """
    return _Console(
        quiet=quiet or is_quiet(),
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
        width=None if sys.stdout.isatty() else _WIDE,
    )


def watched() -> bool:
    """Whether progress is to be shown: standard error is a terminal, and nobody asked for quiet."""
    return sys.stderr.isatty() and not is_quiet()


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """Show coordinates done on standard error, if that is a terminal; gives the function to call."""
    columns = (TextColumn(text), BarColumn(), TaskProgressColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not watched()) as bar:
        task = bar.add_task(text, total=None)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield update


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show on standard error, if that is a terminal, that something is being done whose end cannot be foreseen."""
    with Console(stderr=True, quiet=not watched()).status(text):
        yield


def is_folder(path: Path) -> bool:
    """Whether it is a folder; what cannot be looked at is none, and the readers say why."""
    try:
        return path.is_dir()
    except OSError:
        return False


@contextmanager
def said_of(path: Path) -> Iterator[None]:
    """Put the name of an input in front of what is said of its content."""
    try:
        yield
    except GuardedMomentsError as error:
        text = str(error)
        raise (error if text.startswith(str(path)) else type(error)(f"{path}: {text}")) from None


def foreign_rates(state: GuardedState) -> list[str]:
    """A line for each learning rate of the claim that is not the checkpoint's own."""
    rates = set()
    for tensor in state.tensors:
        group = state.group_of(tensor)
        own = float(group["lr"])
        if own != tensor.lr:
            source = "the schedule's initial_lr" if tensor.lr == group.get("initial_lr") else "as given"
            trivial = ", at which every update is zero and any claim trivial" if own == 0 else ""
            rates.add(
                f"lr        {tensor.lr:g}, {source}: the claim counts in it; the checkpoint's own is {own:g}{trivial}"
            )
    return sorted(rates)


def percent(part: int, whole: int) -> str:
    """A share with two decimals, `0.00 %` for nothing of nothing."""
    return f"{100 * part / whole if whole else 0:.2f} %"
