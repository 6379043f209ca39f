"""The command line, `gmc`: one module a command, loaded when it is asked for.

Exit status: 0 the job is done and, for an audit, the claim holds; 1 the claim does not hold or is undecided; 2 the
input or the request is wrong, said in one line; 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import MappingProxyType

import click

#: Command, and the line that `gmc --help` shows without importing torch.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "compress": "Store an Adam checkpoint in about a quarter of the space, with a guarantee.",
        "recover": "Turn a .gmc file back into a state_dict that load_state_dict takes.",
        "audit": "Check the guarantee on every coordinate of a .gmc file.",
        "prove": "Prove the lemmas behind the guard, with z3.",
        "explain": "Show one coordinate: codes, guard, worst gradient, both updates.",
    }
)


class _Lazy(click.Group):
    """A group that imports a command's module only to run it or to show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="guarded-moments", prog_name="gmc")
def gmc() -> None:
    r"""Guarded moment compression: Adam's two moments in 8 bits each, and a guarantee you can check.

    A coordinate is stored in 16 bits only where the first update after recovery is certain to stay within a tolerance,
    counted in learning rates, of what native float32 Adam would have done, for every gradient up to a bound.
    Elsewhere its two float32 values are kept exactly.

    \b
      gmc compress optimizer.pt optimizer.gmc --tolerance 0.01 --grad-bound 1.0
      gmc audit    optimizer.gmc --native optimizer.pt
      gmc recover  optimizer.gmc optimizer.recovered.pt
    """


def main() -> None:
    """Run `gmc`, and turn errors of input into one line and exit status 2."""
    try:
        status = gmc.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("gmc: interrupted; no output was written", err=True)
        sys.exit(130)
    except Exception as error:
        from guarded_moments.reference.errors import GuardedMomentsError  # noqa: PLC0415 - it imports torch: not for --help

        if not isinstance(error, GuardedMomentsError):
            raise
        click.echo(f"gmc: {error}", err=True)
        sys.exit(2)
    sys.exit(status if isinstance(status, int) else 0)
