"""The command line, `gmc`: one module a command, loaded when it is asked for.

Exit status: 0 the job is done and, for an audit, the claim holds; 1 the claim does not hold or is undecided; 2 the
input or the request is wrong, said in one line; 70 a fault of this program; 130 interrupted.  `docs/commands.md` has
them for users.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping
from types import MappingProxyType
from typing import NoReturn

import click
from click.exceptions import NoArgsIsHelpError
from click.shell_completion import CompletionItem

#: Command, and the line that `gmc --help` shows without importing torch.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "compress": "Store an Adam checkpoint in about a quarter of the space, with a guarantee.",
        "recover": "Turn a .gmc file back into a state_dict that load_state_dict takes.",
        "audit": "Check the guarantee on every coordinate of a .gmc file.",
        "verify": "Check that a file, its native checkpoint and an attestation belong together.",
        "trajectory": "Resume training from native, recovered and control states, and compare.",
        "prove": "Prove the theorem behind the guard from certificates, and its lemmas with solvers.",
        "bench": "Measure every codec: bits, times, and what was published.",
        "suggest": "Show what each tolerance and gradient bound would cost a checkpoint.",
        "sweep": "Show bits and escapes while one choice changes.",
        "explain": "Show one coordinate: codes, guard, worst gradient, both updates.",
        "requirements": "List what pytest --oracle judges codec backends by.",
        "pipe": "Judge a codec backend in any language over its standard input and output.",
        "vectors": "Write test vectors for codec backends, and judge answers to them.",
        "peers": "Judge the codecs of bitsandbytes and torchao by the same requirements.",
        "ops": "List the op models: their roundings, limits and evidence.",
        "certify-platform": "Run all 2^31 inputs of this machine's square root.",
        "identify": "Find the op models that an Adam kernel follows, bit for bit.",
        "crosscheck": "Compare optax, torchao, bitsandbytes and compiled Adam with the op models.",
    }
)


#: Commands whose files and exit status say what was found, so that they may be silent.
SILENT = frozenset(
    {
        "audit",
        "certify-platform",
        "compress",
        "identify",
        "prove",
        "recover",
        "suggest",
        "sweep",
        "trajectory",
        "verify",
    }
)
#: Where contexts of click keep it.
QUIET = "guarded_moments.quiet"


def _be_quiet(ctx: click.Context, parameter: click.Parameter, value: object) -> None:  # noqa: ARG001 - click's signature
    ctx.meta[QUIET] = bool(value)


class _Lazy(click.Group):
    """A group that imports a command's module only to run it or to show its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name.replace('-', '_')}").command
        if cmd_name in SILENT and not any(option.name == "quiet" for option in command.params):
            command.params.append(
                click.Option(
                    ["-q", "--quiet"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_be_quiet,
                    help="Print nothing but errors, and JSON if that is asked for; the exit status says the rest.",
                )
            )
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click's, but no command is imported to name it: that takes seconds, and a shell asks at every key."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=does) for name, does in COMMANDS.items() if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="guarded-moments", prog_name="gmc")
def gmc() -> None:
    """Guarded moment compression: Adam's two moments in 8 bits each, and a guarantee you can check.

    A coordinate is stored in 16 bits only where the first update after recovery is certain to stay within a tolerance,
    counted in learning rates, of what native float32 Adam would have done, for every gradient up to a bound.
    Elsewhere its two float32 values are kept exactly.

    \b
      gmc compress optimizer.pt optimizer.gmc --tolerance 0.01 --grad-bound 1.0
      gmc audit    optimizer.gmc --native optimizer.pt
      gmc recover  optimizer.gmc optimizer.recovered.pt

    Exit status: 0 done, and what was to be decided holds; 1 it does not hold, or is undecided; 2 the input or the
    request is wrong; 70 a fault of this program; 130 interrupted.  Completion in bash:

    \b
      eval "$(_GMC_COMPLETE=bash_source gmc)"
    """  # noqa: D301 - \b is the character by which click keeps lines as they are


def main() -> None:
    """Run `gmc`: errors of input become one line and exit status 2, faults of ours a traceback and 70."""
    try:
        status = gmc.main(standalone_mode=False)
        sys.stdout.flush()
    except NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context is not None else ""
        _fail(f"{error.format_message()}{hint}", 2)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted; no output was written", 130)
    except OSError as error:
        # Nothing more can be printed where standard output is gone; not even when Python flushes it at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _fail(f"{error.filename or 'standard output'}: {error.strerror or error}", 2)
    except Exception as error:  # noqa: BLE001 - sorted here: input's fault, or ours
        from guarded_moments.reference.errors import GuardedMomentsError  # noqa: PLC0415 - it imports torch: not for --help

        if isinstance(error, GuardedMomentsError):
            _fail(str(error), 2)
        traceback.print_exc()
        sys.exit(70)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, status: int) -> NoReturn:
    click.echo(f"gmc: {' '.join(message.split())}", err=True)
    sys.exit(status)
