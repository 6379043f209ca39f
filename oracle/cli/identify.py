"""`gmc identify`: which op models an Adam kernel follows."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import click

from guarded_moments.oracle.cli.common import FILE, force_option, out, progress_bar
from guarded_moments.oracle.identify import COMPILED_PLAN, Flags, Plan, as_json, identify, in_words, load_subject
from guarded_moments.reference.checkpoint.writing import check_output, replacing


@click.command("identify")
@click.argument("kernel", metavar="MODULE:CALLABLE")
@click.option("--fused", is_flag=True, help="Of an optimizer class: its fused path,")
@click.option("--foreach", is_flag=True, help="... its foreach path,")
@click.option("--compile", "compiled", is_flag=True, help="... its step by torch.compile (minutes; fewer settings),")
@click.option("--tensor-lr", is_flag=True, help="... with lr as a float32 tensor,")
@click.option("--tensor-betas", is_flag=True, help="... with betas as float32 tensors.")
@click.option("--device", default="cpu", show_default=True, help="Where the kernel's tensors live, such as cuda.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the random inputs.")
@click.option("--json", "json_file", type=FILE, metavar="FILE", help="Write the same result as JSON.")
@force_option
def command(
    kernel: str,
    fused: bool,  # noqa: FBT001 - a flag on the command line
    foreach: bool,  # noqa: FBT001 - as above
    compiled: bool,  # noqa: FBT001 - as above
    tensor_lr: bool,  # noqa: FBT001 - as above
    tensor_betas: bool,  # noqa: FBT001 - as above
    device: str,
    seed: int,
    json_file: Path | None,
    force: bool,  # noqa: FBT001 - as above
) -> int:
    """Find the op models that reproduce an Adam kernel bit for bit, or the first operation that differs.

    MODULE:CALLABLE is a torch.optim.Optimizer class, whose path the flags choose, or a function

    \b
      def kernel(p, g, m, v, step, lr, betas, eps):
          ...
          return p, m, v

    The first four are contiguous float32 tensors of one shape (n,), fresh copies that the kernel may overwrite; step is
    a float, 1.0 for the first update; lr and eps are floats, betas a tuple of two.  It returns the new parameter and
    moments, float32, shape (n,).  Options are examined if the function has arguments of these names, passed by
    keyword: weight_decay, a float, of either kind; maximize, a bool; v_max, a tensor, only in steps of amsgrad, which
    return its new value as a fourth.  An element's result may depend on its position, and on nothing of other elements.

    \b
      gmc identify torch.optim:AdamW --fused
      gmc identify torch.optim:AdamW --foreach --compile
      gmc identify my_kernels:adam_step --device cuda --json found.json

    Exit status 0 if op models of the family reproduce every value, 1 if not, 2 if the kernel cannot be called so.
    """  # noqa: D301 - click wants the very character backspace before what it is not to wrap
    if json_file is not None:
        check_output(json_file, overwrite=force)
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # what it remarks is no news to who asks for --compile
    if fused and foreach:
        raise click.UsageError("--fused and --foreach exclude each other: torch takes one of them")
    if foreach and (tensor_lr or tensor_betas):
        raise click.UsageError("torch's foreach path takes lr and betas as numbers: leave --tensor-lr or --foreach out")
    flags = Flags(fused, foreach, compiled, tensor_lr, tensor_betas)
    subject = load_subject(kernel, flags, device)
    base = COMPILED_PLAN if compiled else Plan()
    with progress_bar(f"calling {subject.name} in several settings") as progress:
        found = identify(subject, Plan(**(vars(base) | {"seed": seed})), progress)
    if json_file is not None:
        content = json.dumps(as_json(found), indent=1)
        with replacing(json_file, overwrite=force) as temporary:
            temporary.write_text(content + "\n", encoding="utf-8")
    console = out()
    for line in in_words(found):
        console.print(line)
    return 0 if found.exact else 1
