"""`gmc requirements`: what `pytest --oracle` judges backends by."""

from __future__ import annotations

import json

import click

from guarded_moments.oracle.conformance.document import as_json, as_markdown, as_text


@click.command("requirements")
@click.option("--markdown", is_flag=True, help="As the page of the documentation.")
@click.option("--json", "as_data", is_flag=True, help="As JSON.")
def command(
    markdown: bool,  # noqa: FBT001 - a flag on the command line
    as_data: bool,  # noqa: FBT001 - as above
) -> None:
    """List the requirements on codec backends: text, reason, level, and the test that checks each.

    \b
      gmc requirements
      pytest --oracle=my_kernels:backend -k GRD-1
    """  # noqa: D301 - \b is the character by which click keeps lines as they are
    if markdown and as_data:
        raise click.UsageError("--markdown and --json exclude each other")
    click.echo(
        as_markdown() if markdown else json.dumps(as_json(), indent=1) if as_data else as_text(), nl=not markdown
    )
