"""Answers to vectors, in any of the three forms: JSON, the lines that a program wrote, or safetensors.

What is not answered is missing here, and is reported as not answered, never as right.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from guarded_moments.oracle.conformance.vectors.group import KINDS, Group, VectorError, from_digits

#: For each kind and group that was answered, its columns.
Answers = dict[tuple[str, str], dict[str, Tensor]]
_SHOWN = 60


def read_answers(path: Path, groups: Sequence[Group]) -> Answers:
    """Read answers to the groups.

    Raises:
        VectorError: the file cannot be read, or holds something that is no answer; the text says where.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise VectorError(f"{path}: {error.strerror}") from None
    if path.suffix == ".safetensors":
        return _from_safetensors(path, content, groups)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise VectorError(
            f"{path}: is no text; expected .json, .safetensors, or the lines that a program wrote"
        ) from None
    return _from_json(path, text, groups) if path.suffix == ".json" else _from_lines(path, text, groups)


def _from_lines(path: Path, text: str, groups: Sequence[Group]) -> Answers:
    lines = text.splitlines()
    claimed = list(KINDS)
    at = 0
    while at < len(lines) and lines[at].strip():
        key, *rest = lines[at].split()
        claimed = rest if key == "operations" else claimed
        at += 1
    at += 1  # the empty line that ends the answer to hello
    answers: Answers = {}
    for group in groups:
        if group.kind not in claimed:
            continue
        rows = [line.split() for line in lines[at : at + group.count]]
        if len(rows) < group.count:
            raise VectorError(f"{path}: ends within the answers to {group.kind} {group.name}, after line {len(lines)}")
        at += group.count
        answers[group.kind, group.name] = _columns(path, group, rows, at - group.count)
    if any(line.strip() for line in lines[at:]):
        raise VectorError(f"{path}: has more lines than answers, from line {at + 1} on")
    return answers


def _columns(path: Path, group: Group, rows: list[list[str]], first: int) -> dict[str, Tensor]:
    columns = {}
    for index, (name, expected) in enumerate(group.answers.items()):
        for number, row in enumerate(rows):
            if len(row) != len(group.answers):
                raise VectorError(
                    f"{path}: line {first + number + 1} is {' '.join(row)[:_SHOWN]!r}: not an answer to {group.kind}"
                )
        try:
            columns[name] = from_digits([row[index] for row in rows], expected.dtype)
        except ValueError:
            raise VectorError(
                f"{path}: lines {first + 1} to {first + len(rows)}, answers to {group.kind} {group.name}: {name} is "
                "not everywhere of the digits that it must have"
            ) from None
    return columns


def _from_json(path: Path, text: str, groups: Sequence[Group]) -> Answers:
    try:
        content: Any = json.loads(text)
        answers: Answers = {}
        for group in groups:
            given = content.get(group.kind, {}).get(group.name)
            if given is not None:
                rows = [[answer[name] for name in group.answers] for answer in given]
                if len(rows) != group.count:
                    raise VectorError(
                        f"{path}: {len(rows)} answers to {group.kind} {group.name}, which has {group.count} vectors"
                    )
                answers[group.kind, group.name] = _columns(path, group, rows, 0)
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise VectorError(f"{path}: is no answers.json ({error!r}); schemas/answers.schema.json says what is") from None
    return answers


def _from_safetensors(path: Path, content: bytes, groups: Sequence[Group]) -> Answers:
    try:
        tensors = safetensors.torch.load(content)
    except safetensors.SafetensorError as error:
        raise VectorError(f"{path}: is no safetensors file ({error})") from None
    answers: Answers = {}
    for group in groups:
        found = {}
        for name, expected in group.answers.items():
            key = f"{group.kind}/{group.name}/{name}"
            if key in tensors:
                if tensors[key].shape != expected.shape or tensors[key].dtype is not expected.dtype:
                    raise VectorError(f"{path}: {key} has another shape or dtype than the expected answer")
                found[name] = tensors[key]
        if len(found) == len(group.answers):
            answers[group.kind, group.name] = found
    return answers
