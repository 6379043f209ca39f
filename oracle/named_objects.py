"""From a name to the object: `module:attribute`, or `folder/file.py:attribute`.

Claimed: whatever is wrong with a name is said in one line.  A file is loaded under a private name, so that a
`reference.py` or `utils.py` beside it becomes nobody else's module.  Trusted: nothing; but the module's code runs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from types import ModuleType


class UnloadableError(Exception):
    """A name that leads to no object; the text is one line."""


def attribute_at(spec: str, folders: Sequence[Path]) -> object:
    """What `module:attribute` or `folder/file.py:attribute` names.

    Args:
        spec: with dots in the attribute, if need be.
        folders: where modules and files are looked for, besides where Python looks.

    Raises:
        UnloadableError: it cannot be imported, or there is none; the text is one line.
    """
    place, _, attribute = spec.rpartition(":")
    module = _file(spec, place, folders) if place.endswith(".py") else _module(spec, place, folders)
    return _attribute(spec, module, attribute)


def _module(spec: str, name: str, folders: Sequence[Path]) -> ModuleType:
    with _found_in(folders):
        try:
            return importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise UnloadableError(f"{spec}: cannot import {name}: {in_one_line(error)}") from error


def _file(spec: str, name: str, folders: Sequence[Path]) -> ModuleType:
    path = next((path for folder in folders if (path := folder / name).is_file()), None)
    if path is None:
        raise UnloadableError(f"{spec}: there is no file {name}")
    private = f"_guarded_moments_oracle_{abs(hash(path.resolve())):x}"
    plan = util.spec_from_file_location(private, path)
    if plan is None or plan.loader is None:
        raise UnloadableError(f"{spec}: {name} is no Python file")
    module = util.module_from_spec(plan)
    sys.modules[private] = module  # as dataclasses and pickle want it
    with _found_in([path.parent]):
        try:
            plan.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[private]
            raise UnloadableError(f"{spec}: cannot load {name}: {in_one_line(error)}") from error
    return module


def _attribute(spec: str, found: object, path: str) -> object:
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise UnloadableError(f"{spec}: there is no {path} in it") from None
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


def in_one_line(error: BaseException) -> str:
    """The kind of an error and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
