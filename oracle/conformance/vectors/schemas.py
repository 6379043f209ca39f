"""The JSON schemas (draft 7) of vectors and of answers: one for each kind, written beside the vectors."""

from __future__ import annotations

from typing import Any

from guarded_moments.oracle.conformance.vectors.group import FLAGS, KINDS, VERSION

_DRAFT = "http://json-schema.org/draft-07/schema#"


def _hexadecimal(width: int, *, or_exact: bool = False) -> dict[str, Any]:
    if width == 1:
        return {"type": "string", "enum": ["0", "1"]}
    exact = "|[0-9a-f]{16}" if or_exact else ""
    return {"type": "string", "pattern": f"^([0-9a-f]{{{width}}}{exact})$"}


def _object(properties: dict[str, Any], **more: object) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }


def _answers(kind: str) -> dict[str, Any]:
    return _object(
        {name: _hexadecimal(width, or_exact=kind == "first_update") for name, width in KINDS[kind].answers.items()}
    )


def of_vectors(kind: str) -> dict[str, Any]:
    """The schema of the file of one kind of question."""
    flag = {"type": "string", "enum": list(FLAGS)}
    vector = _object(
        {
            "id": {"type": "integer", "minimum": 0},
            "input": _object({name: _hexadecimal(width) for name, width in KINDS[kind].inputs.items()}),
            "expected": _answers(kind),
            "flags": {"type": "array", "items": flag, "minItems": 1},
        }
    )
    group = _object(
        {
            "name": {"type": "string"},
            "request": {"type": "string", "description": "the line of `gmc pipe` that asks these, without the count"},
            "about": {"type": "string"},
            "vectors": {"type": "array", "items": vector},
        }
    )
    explained = _object({"effect": {"type": "string"}, "requirement": {"type": "string"}})
    return {
        "$schema": _DRAFT,
        "title": f"test vectors: {kind}",
        **_object(
            {
                "$schema": {"type": "string"},
                "version": {"const": VERSION},
                "generator": {"type": "string"},
                "kind": {"const": kind},
                "requirements": {"type": "array", "items": {"type": "string"}},
                "flags": {"type": "object", "additionalProperties": explained},
                "groups": {"type": "array", "items": group},
            }
        ),
    }


def of_answers() -> dict[str, Any]:
    """The schema of answers in JSON: for each kind, each group's name, the answers in the order of its vectors."""
    kinds = {
        kind: {"type": "object", "additionalProperties": {"type": "array", "items": _answers(kind)}} for kind in KINDS
    }
    return {
        "$schema": _DRAFT,
        "title": "answers to test vectors",
        "type": "object",
        "properties": {"version": {"const": VERSION}, **kinds},
        "required": ["version"],
        "additionalProperties": False,
    }
