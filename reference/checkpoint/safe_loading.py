"""Checkpoints written by `torch.save`, read without executing anything in them.

A file larger than what `spool` takes of ordinary memory is mapped: its tensors are read when they are used, so that it
must not be overwritten in place meanwhile.

Claimed: a file is loaded by `torch.load(weights_only=True)` or refused; no class or function that a file names is
imported or called beyond torch's own list of safe ones.  Trusted: that list, and torch's restricted unpickler.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from guarded_moments.reference.checkpoint.layouts import at, in_words, places_of
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.checkpoint.spool import MEMORY
from guarded_moments.reference.checkpoint.storages import ADVICE, storage_in
from guarded_moments.reference.errors import CheckpointError

#: Classes named in a refusal; a pickled model can need hundreds.
_NAMED = 8


def load_state_dict(path: Path) -> StateDict:
    """Read the one optimizer state_dict of a file, wherever it lies in it.

    Raises:
        CheckpointError: as `load_checkpoint`; or the file holds several optimizers.
    """
    checkpoint = load_checkpoint(path)
    places = places_of(checkpoint)
    if len(places) > 1:
        msg = f"{path}: holds the states of {len(places)} optimizers: {', '.join(map(in_words, places))}"
        raise CheckpointError(msg)
    state_dict: StateDict = at(checkpoint, places[0])
    return state_dict


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint that holds at least one optimizer's state, and all that is beside it.

    Raises:
        CheckpointError: the file is missing, damaged, no checkpoint, without an optimizer's state, or needs classes
            that would have to be executed.
    """
    _require_readable(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old pickles, which are read all the same
            mapped = path.stat().st_size > MEMORY and zipfile.is_zipfile(path)  # old pickles cannot be
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped or None)
    except pickle.UnpicklingError as error:
        msg = f"{path}: {_why_not_loadable(path, error)}"
        raise CheckpointError(msg) from None
    except Exception as error:  # noqa: BLE001 - damage makes the unpickler fail in any way it likes
        msg = f"{path}: is no checkpoint of torch.save, or is damaged ({_first_line(error)})"
        raise CheckpointError(msg) from None
    if not isinstance(loaded, dict):
        msg = f"{path}: holds a {type(loaded).__name__}, expected a dictionary with an optimizer's state_dict"
        raise CheckpointError(msg)
    if (place := storage_in(loaded)) is not None:
        msg = f"{path}: holds a storage at {place}, {ADVICE}"
        raise CheckpointError(msg)
    if not places_of(loaded):
        keys = ", ".join(repr(key) for key in list(loaded)[:_NAMED])
        msg = (
            f"{path}: has no 'state' and 'param_groups', and nothing in it has: there is no optimizer's state_dict "
            f"(found {keys or 'nothing'})"
        )
        raise CheckpointError(msg)
    return loaded


def _require_readable(path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except IsADirectoryError:
        msg = f"{path}: is a directory, expected a file of torch.save"
        raise CheckpointError(msg) from None
    except FileNotFoundError:
        msg = f"{path}: there is no such file"
        raise CheckpointError(msg) from None
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror or error}"
        raise CheckpointError(msg) from None


def _why_not_loadable(path: Path, error: Exception) -> str:
    """Name the classes that a safe load refuses and say what to do, or say that the file is no checkpoint."""
    classes = _unsafe_classes(path, error)
    if classes:
        named = ", ".join(classes[:_NAMED]) + (f" and {len(classes) - _NAMED} more" if len(classes) > _NAMED else "")
        return f"holds objects that only unsafe loading could restore: {named}; {_what_to_do(classes)}"
    if zipfile.is_zipfile(path):
        return f"is no checkpoint of torch.save, or is damaged ({_first_line(error)})"
    return "is no checkpoint of torch.save, or is damaged"


def _unsafe_classes(path: Path, error: Exception) -> list[str]:
    """The classes and functions that the file names and a safe load refuses; none is imported to find out."""
    try:
        if zipfile.is_zipfile(path):
            return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception:  # noqa: BLE001, S110 - damage, as above; then the error itself may name one
        pass
    return re.findall(r"Unsupported (?:global: GLOBAL|class) ([\w.]+)", str(error))[:1]


def _what_to_do(classes: list[str]) -> str:
    if any("torch.distributed" in name for name in classes):
        return (
            "these are one rank's shards: save get_optimizer_state_dict(model, optimizer, "
            "options=StateDictOptions(full_state_dict=True)) of torch.distributed.checkpoint.state_dict"
        )
    if any(name.startswith("torchao.") for name in classes):
        return (
            "this is a state of a torchao optimizer, whose moments are quantised already: there is nothing to compress"
        )
    return (
        "where it was written, save optimizer.state_dict() alone with torch.save, or replace these objects by "
        "tensors, numbers and strings"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
