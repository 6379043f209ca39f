"""`gmc certify-platform`: what the op models assume of this machine, checked on it and kept."""

from __future__ import annotations

import os
from dataclasses import replace

import click
from rich.console import Console

from guarded_moments.oracle.cli.common import out, percent, progress_bar
from guarded_moments.oracle.platform import (
    ArithmeticEvidence,
    Certificate,
    RootEvidence,
    arithmetic_evidence,
    certify_root,
    keep,
    platform_certificate,
    this_machine,
)
from guarded_moments.oracle.platform.arithmetic import gmpy2_version
from guarded_moments.oracle.platform.root import ALLOWED
from guarded_moments.reference.floats import from_bits, hex_of


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@click.command("certify-platform")
@click.option("--quick", is_flag=True, help="About 1 input in 43; certifies nothing, so the exit status is 1.")
@click.option("--arithmetic", is_flag=True, help="Compare add, sub, mul, div and fma with gmpy2, too.")
@click.option(
    "--count",
    type=click.IntRange(min=5),
    default=100_000_000,
    show_default=True,
    help="Cases of --arithmetic, an equal part of each operation.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the cases of --arithmetic.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=_cores,
    show_default="the cores",
    help="That share the cases of --arithmetic.",
)
def command(
    quick: bool,  # noqa: FBT001 - a flag on the command line
    arithmetic: bool,  # noqa: FBT001 - as above
    count: int,
    seed: int,
    processes: int,
) -> int:
    """Certify this machine's torch.sqrt on every non-negative binary32, and keep the result for audits to show.

    The unfused Adam of torch calls that root, and no standard says what it returns.  All 2^31 inputs without a sign run
    against the correctly rounded root: the largest errors, how many are off, whether it is monotone.  Exit status 0
    only if all ran, none is off by more than one unit in the last place, and the root never falls; else 1.
    """
    if arithmetic:
        gmpy2_version()  # before the long part, not after
    with progress_bar("square roots") as progress:
        root = certify_root(quick=quick, progress=progress)
    certificate = Certificate(this_machine(), root)
    if arithmetic:
        with progress_bar("cases of arithmetic") as progress:
            evidence = arithmetic_evidence(count, seed, processes, progress)
        certificate = replace(certificate, arithmetic=evidence)
    path = keep(certificate.merged(platform_certificate()))
    console = out()
    _machine(console, certificate)
    _root(console, root)
    if certificate.arithmetic is not None:
        _arithmetic(console, certificate.arithmetic)
    verdict = "CERTIFIED" if certificate.certified else "NOT CERTIFIED"
    problems = [*root.problems, *([] if root.complete else ["not every input ran"])]
    if certificate.arithmetic is not None and certificate.arithmetic.differing:
        problems.append("the arithmetic is not MPFR's")
    console.print(f"verdict   {verdict}{': ' if problems else ''}{'; '.join(problems)}")
    console.print(f"kept      {path}")
    return 0 if certificate.certified else 1


def _machine(console: Console, certificate: Certificate) -> None:
    machine = certificate.machine
    console.print(f"machine   {machine.cpu}")
    console.print(f"          torch {machine.torch}, CPU capability {machine.capability}; {machine.library}")
    if machine.settings != "none":
        console.print(f"          under {machine.settings}")
    console.print("          flush-to-zero is off in every thread")


def _root(console: Console, root: RootEvidence) -> None:
    finite, place, first = root.finite, root.placement, root.first_calls
    console.print(f"root      torch.sqrt on {root.scope}, {root.seconds:.1f} s")
    off = f"{root.off:,} of {finite.inputs:,} finite inputs ({percent(root.off, finite.inputs)})"
    console.print(f"          not correctly rounded: {off}, {finite.below:,} under, {finite.above:,} over")
    if finite.first_off is not None:
        console.print(f"          the first of them: {hex_of(from_bits(finite.first_off))}")
    console.print(
        f"          largest error: {finite.farthest} ulp of the correctly rounded root, {finite.error:.6f} ulp of the "
        f"exact root, {finite.relative:.6f} unit roundoffs ({ALLOWED:g} are assumed)"
    )
    confirmed = "confirmed" if root.error_confirmed else "NOT confirmed"
    console.print(f"          attained at {hex_of(from_bits(finite.error_at))}, {confirmed} by integers")
    console.print(f"          falls {finite.falls:,} times: {'NOT monotone' if finite.falls else 'monotone'}")
    console.print(f"          fingerprint {finite.fingerprint}")
    console.print(
        f"          infinity, NaN, minus zero, {root.beyond.negative_inputs:,} negative inputs: "
        f"{sum(root.beyond[:-1]):,} wrong"
    )
    console.print(f"          place: {place.differing:,} of {place.roots:,} roots differ elsewhere ({place.tried})")
    if first.processes:
        console.print(
            f"          first call of a process: if two threads make it, wrong in {first.differing} of "
            f"{first.processes}, by {first.farthest:,} ulp at most; after one on one thread, wrong in "
            f"{first.settled_differing} of {first.settled_processes}"
        )
    console.print(
        f"          correctly rounded are: NumPy's, off {finite.numpy_off:,} times; the reference's own, "
        f"{finite.own_off:,}; {root.exact_wrong} of {root.exact_inputs:,} are other than by integers"
    )


def _arithmetic(console: Console, evidence: ArithmeticEvidence) -> None:
    rate = evidence.total / evidence.seconds / 1e6
    console.print(f"arithmetic {evidence.sentence()}")
    console.print(
        f"          {evidence.of}; seed {evidence.seed}, {evidence.seconds:.0f} s on {evidence.processes} "
        f"processes, {rate:.2f} million cases a second"
    )
    for example in evidence.examples:
        console.print(f"          {example}")
