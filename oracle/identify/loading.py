"""From `module:callable` or `folder/file.py:callable` to a subject.

Claimed: whatever is wrong with the name is said in one line.  The module is imported, so its code runs.
"""

from __future__ import annotations

from pathlib import Path

import torch

from guarded_moments.oracle.identify.optimizer import Flags, OptimizerSubject
from guarded_moments.oracle.identify.subject import FunctionSubject, KernelError, Subject
from guarded_moments.oracle.named_objects import UnloadableError, attribute_at


def load_subject(target: str, flags: Flags | None = None, device: str = "cpu") -> Subject:
    """The kernel that `target` names.

    Args:
        target: `module:attribute`, with dots in both, or `folder/file.py:attribute`; a function under
            `FunctionSubject`'s protocol, or a `torch.optim.Optimizer` class.  Modules in the current folder are found.
        flags: for an optimizer class.
        device: where its tensors live.

    Raises:
        KernelError: it cannot be found, or is neither.
    """
    flags = Flags() if flags is None else flags
    _check_device(device)
    found = _named(target)
    if isinstance(found, type) and issubclass(found, torch.optim.Optimizer):
        return OptimizerSubject(found, target, flags, device)
    if flags != Flags():
        raise KernelError(f"{target} is no torch.optim.Optimizer class, so {flags} does not apply")
    if not callable(found):
        raise KernelError(f"{target} is a {type(found).__name__}, expected a function or a torch.optim.Optimizer class")
    return FunctionSubject(found, target, device)


def _named(target: str) -> object:
    place, colon, path = target.rpartition(":")
    if not colon or not place or not path:
        raise KernelError(f"{target!r} names no kernel: expected module:callable, such as torch.optim:AdamW")
    try:
        return attribute_at(target, [Path.cwd()])
    except UnloadableError as error:
        raise KernelError(str(error)) from error


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        text = str(error).strip().splitlines()[0]
        raise KernelError(f"device {device!r} cannot be used: {text}") from None
