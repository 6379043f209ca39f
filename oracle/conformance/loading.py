"""From what stands behind `--oracle` to backends.

That is `module:attribute`, `folder/file.py:attribute`, `pipe:PROGRAM ARGUMENTS`, or a registered name.  Registered are
the built-in backends and the entry points of the group `guarded_moments.backends`, by which an installed package makes
its own known.

Claimed: whatever is wrong with a name is said in one line.  A file is loaded under a private name, so that a
`reference.py` or `utils.py` beside it becomes nobody else's module.  Trusted: nothing; but the module's code runs.
"""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata, util
from pathlib import Path
from types import MappingProxyType, ModuleType

from guarded_moments.oracle.conformance.adapting import Adapted, BackendError
from guarded_moments.oracle.conformance.backend import ReferenceBackend
from guarded_moments.oracle.conformance.compiled_backend import CompiledBackend
from guarded_moments.oracle.conformance.pipe import PipeBackend

#: Entry points of this group name objects as `--oracle` does: `my_kernel = "my_package.oracle:backend"`.
GROUP = "guarded_moments.backends"
#: What is judged where no backend is named.
ALL = "all"
_PIPE = "pipe:"

_BUILT_IN: Mapping[str, Callable[[], object]] = MappingProxyType(
    {"reference": ReferenceBackend, "compiled": CompiledBackend}
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
    found = attribute_at(spec, folders) if ":" in spec else _registered(spec)
    try:
        if isinstance(found, type):
            found = found()
        return [Adapted(found, device, name=spec.rpartition(":")[2])]
    except BackendError as error:
        raise BackendError(f"{spec} {error}") from None
    except (Exception, SystemExit) as error:
        raise BackendError(f"{spec} cannot be made: {_in_one_line(error)}") from error


def attribute_at(spec: str, folders: Sequence[Path]) -> object:
    """What `module:attribute` or `folder/file.py:attribute` names.

    Args:
        spec: with dots in the attribute, if need be.
        folders: where modules and files are looked for, besides where Python looks.

    Raises:
        BackendError: it cannot be imported, or there is none; the text is one line.
    """
    place, _, attribute = spec.rpartition(":")
    module = _file(spec, place, folders) if place.endswith(".py") else _module(spec, place, folders)
    return _attribute(spec, module, attribute)


def registered() -> list[str]:
    """The names of the backends that this machine has, the built-in ones first."""
    return [
        *_BUILT_IN,
        *sorted(entry.name for entry in metadata.entry_points(group=GROUP) if entry.name not in _BUILT_IN),
    ]


def _registered(name: str) -> object:
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    for entry in metadata.entry_points(group=GROUP, name=name):
        try:
            return entry.load()
        except (Exception, SystemExit) as error:
            raise BackendError(f"{name}: entry point {entry.value} cannot be loaded: {_in_one_line(error)}") from error
    raise BackendError(
        f"{name!r} names no backend: expected module:attribute, file.py:attribute, pipe:PROGRAM, {ALL}, or one of "
        f"{', '.join(registered())}"
    )


def _module(spec: str, name: str, folders: Sequence[Path]) -> ModuleType:
    with _found_in(folders):
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise BackendError(f"{spec}: cannot import {name}: {_in_one_line(error)}") from error


def _file(spec: str, name: str, folders: Sequence[Path]) -> ModuleType:
    path = next((path for folder in folders if (path := folder / name).is_file()), None)
    if path is None:
        raise BackendError(f"{spec}: there is no file {name}")
    private = f"_guarded_moments_oracle_{abs(hash(path.resolve())):x}"
    plan = util.spec_from_file_location(private, path)
    if plan is None or plan.loader is None:
        raise BackendError(f"{spec}: {name} is no Python file")
    module = util.module_from_spec(plan)
    sys.modules[private] = module  # as dataclasses and pickle want it
    with _found_in([path.parent]):
        try:
            plan.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[private]
            raise BackendError(f"{spec}: cannot load {name}: {_in_one_line(error)}") from error
    return module


def _attribute(spec: str, found: object, path: str) -> object:
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise BackendError(f"{spec}: there is no {path} in it") from None
    return found


@contextmanager
def _found_in(folders: Sequence[Path]) -> Iterator[None]:
    """Python also looks for modules in these folders, last, as long as this lasts."""
    added = [text for folder in folders if (text := str(folder)) not in sys.path]
    sys.path.extend(added)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for text in added:
            sys.path.remove(text)


def _in_one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
