"""From what stands behind `--oracle` to backends.

That is `module:attribute`, `folder/file.py:attribute`, `pipe:PROGRAM ARGUMENTS`, or a registered name.  Registered are
the built-in backends and the entry points of the group `guarded_moments.backends`, by which an installed package makes
its own known.

Claimed: whatever is wrong with a name is said in one line; see `named_objects`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata, util
from pathlib import Path
from types import MappingProxyType

from guarded_moments.oracle.conformance.adapting import Adapted, BackendError
from guarded_moments.oracle.conformance.backend import ReferenceBackend
from guarded_moments.oracle.conformance.compiled_backend import CompiledBackend
from guarded_moments.oracle.conformance.pipe import PipeBackend
from guarded_moments.oracle.named_objects import UnloadableError, attribute_at, in_one_line

#: Entry points of this group name objects as `--oracle` does: `my_kernel = "my_package.oracle:backend"`.
GROUP = "guarded_moments.backends"
#: What is judged where no backend is named.
ALL = "all"
_PIPE = "pipe:"

#: Needs the extra of that name.
_TRITON = "triton"


def _triton() -> object:
    from guarded_moments.oracle.conformance.triton_backend import TritonBackend  # noqa: PLC0415 - an extra

    return TritonBackend()


_BUILT_IN: Mapping[str, Callable[[], object]] = MappingProxyType(
    {
        "reference": ReferenceBackend,
        "compiled": CompiledBackend,
        **({_TRITON: _triton} if util.find_spec(_TRITON) else {}),
    }
)


def load(spec: str, folders: Sequence[Path], device: str | None = None) -> list[Adapted]:
    """The backends that a specification names, ready to be judged.

    Args:
        spec: `module:attribute`, `file.py:attribute`, `pipe:PROGRAM ARGUMENTS`, a registered name, or `all`.
        folders: where modules and files are looked for, besides where Python looks.
        device: in place of their own.

    Raises:
        BackendError: there is none, it cannot be loaded, or it is no backend; the text is one line.
    """
    if spec == ALL:
        return [backend for name in registered() for backend in load(name, folders, device)]
    if spec.startswith(_PIPE):
        return [Adapted(PipeBackend(shlex.split(spec.removeprefix(_PIPE)) or [""]))]
    try:
        found = attribute_at(spec, folders) if ":" in spec else _registered(spec)
    except UnloadableError as error:
        raise BackendError(str(error)) from error.__cause__
    try:
        if isinstance(found, type):
            found = found()
        return [Adapted(found, device, name=spec.rpartition(":")[2])]
    except BackendError as error:
        raise BackendError(f"{spec} {error}") from None
    except (Exception, SystemExit) as error:
        raise BackendError(f"{spec} cannot be made: {in_one_line(error)}") from error


def registered() -> list[str]:
    """The names of the backends that this machine has, the built-in ones first."""
    return [
        *_BUILT_IN,
        *sorted(entry.name for entry in metadata.entry_points(group=GROUP) if entry.name not in _BUILT_IN),
    ]


def _registered(name: str) -> object:
    if name in _BUILT_IN:
        return _BUILT_IN[name]()
    if name == _TRITON:
        raise BackendError("triton is not installed: pip install 'guarded-moments[triton]'")
    for entry in metadata.entry_points(group=GROUP, name=name):
        try:
            return entry.load()
        except (Exception, SystemExit) as error:
            raise BackendError(f"{name}: entry point {entry.value} cannot be loaded: {in_one_line(error)}") from error
    raise BackendError(
        f"{name!r} names no backend: expected module:attribute, file.py:attribute, pipe:PROGRAM, {ALL}, or one of "
        f"{', '.join(registered())}"
    )
