"""`gmc peers`: other packages' 8-bit optimizers, judged by the conformance kit."""

from __future__ import annotations

import click

from guarded_moments.oracle.crosscheck.peers import judged, markdown, peers


@click.command("peers")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the inputs.")
def command(seed: int) -> int:
    """Judge the codecs of bitsandbytes and torchao that are installed, and print a page with what holds and what not.

    \b
      pip install 'guarded-moments[crosscheck]'
      gmc peers > peers.md
    """  # noqa: D301 - \b is the character by which click keeps lines as they are
    found = peers()
    if not found:
        raise click.ClickException("neither bitsandbytes nor torchao is installed; they are in the extra 'crosscheck'")
    results = {}
    for peer in found:
        results[peer.name] = judged(peer, seed)
        click.echo(f"{peer.name}: {', '.join(j.status.value for j in results[peer.name])}", err=True)
    versions = "; ".join(dict.fromkeys(peer.adapter.versions() for peer in found))
    click.echo(markdown(results, versions), nl=False)
    return 0
