"""Vectors as files: JSON of each kind with its schema, the same as a stream for a program, and safetensors in bulk.

decode.json encode.json guard.json first_update.json     explained, one vector after the other
schemas/*.schema.json                                     of those, and of answers
requests.txt                                              the same questions, for a program's standard input
bulk.safetensors                                          more of them, a tensor a column, expected answers beside
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch

from guarded_moments.oracle.conformance.pipe import VERSION as PIPE_VERSION
from guarded_moments.oracle.conformance.vectors import schemas
from guarded_moments.oracle.conformance.vectors.group import (
    FLAGS,
    KINDS,
    VERSION,
    Group,
    VectorError,
    digits,
    from_digits,
)

REQUESTS, BULK = "requests.txt", "bulk.safetensors"
_INPUT_TYPES = {2: torch.uint8, 8: torch.float32}


def write_vectors(folder: Path, explained: Sequence[Group], bulk: Sequence[Group]) -> list[Path]:
    """Write a new folder of vectors; returns the files.

    Raises:
        VectorError: the folder exists and is not empty, or cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise VectorError(f"{folder}: exists and is not an empty folder")
    generator = f"guarded-moments {metadata.version('guarded-moments')}"
    contents: dict[str, bytes] = {
        f"{kind}.json": _json(_as_json(kind, [group for group in explained if group.kind == kind], generator))
        for kind in KINDS
    }
    for kind in KINDS:
        contents[f"schemas/{kind}.schema.json"] = _json(schemas.of_vectors(kind))
    contents["schemas/answers.schema.json"] = _json(schemas.of_answers())
    contents[REQUESTS] = _requests(explained).encode()
    contents[BULK] = _bulk(bulk, generator)
    try:
        for name, content in contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as error:
        raise VectorError(f"{folder}: cannot be written: {error.strerror}") from None
    return [folder / name for name in contents]


def read_vectors(folder: Path, *, bulk: bool = False) -> list[Group]:
    """Read the explained vectors of a folder, or those in bulk.

    Raises:
        VectorError: it holds none.
    """
    try:
        if bulk:
            return _from_bulk((folder / BULK).read_bytes())
        return [group for kind in KINDS for group in _from_json(json.loads((folder / f"{kind}.json").read_bytes()))]
    except OSError as error:
        raise VectorError(f"{error.filename}: {error.strerror}: expected a folder of gmc vectors generate") from None
    except (ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise VectorError(f"{folder}: holds files that are no vectors of this version ({error!r})") from None


def _json(content: object) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def _as_json(kind: str, groups: Sequence[Group], generator: str) -> dict[str, Any]:
    used = {flag for group in groups for flags in group.flags for flag in flags}
    return {
        "$schema": f"schemas/{kind}.schema.json",
        "version": VERSION,
        "generator": generator,
        "kind": kind,
        "requirements": list(KINDS[kind].requirements),
        "flags": {name: flag._asdict() for name, flag in FLAGS.items() if name in used},
        "groups": [
            {"name": group.name, "request": group.request, "about": group.about, "vectors": _vectors(group)}
            for group in groups
        ],
    }


def _vectors(group: Group) -> list[dict[str, Any]]:
    inputs = {name: digits(column) for name, column in group.inputs.items()}
    answers = {name: digits(column) for name, column in group.answers.items()}
    return [
        {
            "id": index,
            "input": {name: column[index] for name, column in inputs.items()},
            "expected": {name: column[index] for name, column in answers.items()},
            "flags": list(group.flags[index]),
        }
        for index in range(group.count)
    ]


def _from_json(content: dict[str, Any]) -> list[Group]:
    kind = content["kind"]
    groups = []
    for entry in content["groups"]:
        vectors = entry["vectors"]
        inputs = {
            name: from_digits([vector["input"][name] for vector in vectors], _INPUT_TYPES[width])
            for name, width in KINDS[kind].inputs.items()
        }
        answers = {}
        for name, width in KINDS[kind].answers.items():
            texts = [vector["expected"][name] for vector in vectors]
            answers[name] = from_digits(texts, _answer_type(width, texts))
        flags = tuple(tuple(vector["flags"]) for vector in vectors)
        groups.append(Group(kind, entry["name"], entry["request"], entry["about"], inputs, answers, flags))
    return groups


def _answer_type(width: int, texts: Sequence[str]) -> torch.dtype:
    if width == 8 and texts and len(texts[0]) == 16:  # noqa: PLR2004 - digits of a binary32 and of a binary64
        return torch.float64
    return {1: torch.int8, 2: torch.uint8, 8: torch.float32}[width]


def _requests(groups: Sequence[Group]) -> str:
    lines = [f"hello {PIPE_VERSION}"]
    for group in groups:
        lines.append(f"{group.request} {group.count}")
        lines += [" ".join(row) for row in zip(*(digits(column) for column in group.inputs.values()), strict=True)]
    return "\n".join(lines) + "\n"


def _bulk(groups: Sequence[Group], generator: str) -> bytes:
    tensors, described = {}, []
    for group in groups:
        described.append(
            {
                "kind": group.kind,
                "name": group.name,
                "request": group.request,
                "about": group.about,
                "count": group.count,
            }
        )
        for role, columns in (("input", group.inputs), ("expected", group.answers)):
            for name, column in columns.items():
                tensors[f"{group.kind}/{group.name}/{role}/{name}"] = column.clone(
                    memory_format=torch.contiguous_format
                )
    metadata_ = {"generator": generator, "version": str(VERSION), "groups": json.dumps(described)}
    return safetensors.torch.save(tensors, metadata_)


def _from_bulk(content: bytes) -> list[Group]:
    size = int.from_bytes(content[:8], "little")
    described = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["groups"])
    tensors = safetensors.torch.load(content)
    groups = []
    for entry in described:
        at = f"{entry['kind']}/{entry['name']}"
        inputs = {name: tensors[f"{at}/input/{name}"] for name in KINDS[entry["kind"]].inputs}
        answers = {name: tensors[f"{at}/expected/{name}"] for name in KINDS[entry["kind"]].answers}
        flags = (("Ordinary",),) * entry["count"]
        groups.append(Group(entry["kind"], entry["name"], entry["request"], entry["about"], inputs, answers, flags))
    return groups
