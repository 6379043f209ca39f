"""From `module:callable` to a subject.

Claimed: whatever is wrong with the name is said in one line.  The module is imported, so its code runs.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import torch

from guarded_moments.oracle.identify.optimizer import Flags, OptimizerSubject
from guarded_moments.oracle.identify.subject import FunctionSubject, KernelError, Subject


def load_subject(target: str, flags: Flags | None = None, device: str = "cpu") -> Subject:
    """The kernel that `target` names.

    Args:
        target: `module:attribute`, with dots in both; a function under `FunctionSubject`'s protocol, or a
            `torch.optim.Optimizer` class.  Modules in the current folder are found.
        flags: for an optimizer class.
        device: where its tensors live.

    Raises:
        KernelError: it cannot be found, or is neither.
    """
    flags = Flags() if flags is None else flags
    _check_device(device)
    found = _attribute(target)
    if isinstance(found, type) and issubclass(found, torch.optim.Optimizer):
        return OptimizerSubject(found, target, flags, device)
    if flags != Flags():
        raise KernelError(f"{target} is no torch.optim.Optimizer class, so {flags} does not apply")
    if not callable(found):
        raise KernelError(f"{target} is a {type(found).__name__}, expected a function or a torch.optim.Optimizer class")
    return FunctionSubject(found, target, device)


def _attribute(target: str) -> object:
    module_name, colon, path = target.partition(":")
    if not colon or not module_name or not path:
        raise KernelError(f"{target!r} names no kernel: expected module:callable, such as torch.optim:AdamW")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        text = (str(error).strip().splitlines() or ["without a message"])[0]
        raise KernelError(
            f"{target}: module {module_name} cannot be imported: {type(error).__name__}: {text}"
        ) from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise KernelError(f"{target}: {module_name} has no {path}") from None
    return found


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        text = str(error).strip().splitlines()[0]
        raise KernelError(f"device {device!r} cannot be used: {text}") from None
