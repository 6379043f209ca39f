"""The JSON schema (draft 7) of a report: every field, its type, and no other field."""

from __future__ import annotations

from typing import Any

from guarded_moments.oracle.report.assurance import Word
from guarded_moments.oracle.report.facts import FORMAT, SHOWN, VERSION

_TEXT: dict[str, Any] = {"type": "string"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
#: Infinity and NaN, which JSON has not, are words.
_NUMBER: dict[str, Any] = {"type": ["number", "string"]}
#: None where there is no bound.
_NUMBER_OR_NONE: dict[str, Any] = {"type": ["number", "string", "null"]}
_YES_OR_NO: dict[str, Any] = {"type": "boolean"}
_BITS: dict[str, Any] = {"type": "string", "description": "C99 hexadecimal and the 32 bits: 0x1.800000p-12 [39c00000]"}
_WORD: dict[str, Any] = {"enum": [word.value for word in Word]}


def _object(properties: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**properties, **(optional or {})},
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _map(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


def _coordinate(optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return _object(
        {
            "where": _TEXT,
            "op_model": _TEXT,
            "position": _list(_COUNT),
            **dict.fromkeys(("m", "v", "m_hat", "v_hat", "gradient"), _BITS),
            "deviation": {"type": ["number", "string", "null"], "description": "in learning rates"},
        },
        optional,
    )


def report_schema() -> dict[str, Any]:
    """Of what `facts_of` returns."""
    texts = ("first_gradient", "parameter", "recovered_run", "native_update", "recovered_update")
    extra = {"at_update": _COUNT} | dict.fromkeys(texts, _TEXT)
    violation = _coordinate()
    violation["properties"].pop("op_model")
    violation["required"].remove("op_model")
    violation["properties"]["gradient"] = {"type": ["string", "null"]}
    operation = _object(dict.fromkeys(("name", "operation", "native", "recovered"), _TEXT))
    claimed = _list(_object(dict.fromkeys(("name", "statement", "status"), _TEXT)))
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": FORMAT,
        **_object(
            {
                "format": {"const": FORMAT},
                "version": {"const": VERSION},
                "claims": _list(_claim()),
                "verdict": _verdict(violation),
                "assumptions": _list(_object({"text": _TEXT, "word": _WORD, "checked_by": _TEXT})),
                "not_covered": _object(
                    {"cases": _list(_case(extra)), "all": _list(_TEXT), "in_a_sentence": _TEXT},
                ),
                "trusted_base": _trusted_base(),
                "assurance": _list(
                    _object({"step": _TEXT, "level": {"enum": ["0", "1"]}, "word": _WORD, "evidence": _TEXT})
                ),
                "lemmas": claimed,
                "theorems": claimed,
                "tensors": _object({"of": _COUNT, "shown": {**_list(_tensor()), "maxItems": SHOWN}}),
                "distributions": _distributions(),
                "nearest": _list(_coordinate({"trace": _list(operation), "tolerance": _NUMBER})),
                "run": _object(
                    {
                        "subject": _TEXT,
                        "command": _TEXT,
                        "seconds": {"type": ["number", "null"]},
                        "notes": _list(_TEXT),
                    }
                ),
            },
        ),
    }


def _claim() -> dict[str, Any]:
    texts = dict.fromkeys(("sentence", "horizon", "updates", "op_model", "op_model_evidence", "op_model_remark"), _TEXT)
    counts = dict.fromkeys(("gradients", "tensors", "guarded", "exact"), _COUNT)
    lists = {name: _list(_NUMBER) for name in ("learning_rates", "next_steps")}
    return _object({"tolerance": _NUMBER, "gradient_bound": _NUMBER, **texts, **counts, **lists})


def _verdict(violation: dict[str, Any]) -> dict[str, Any]:
    names = ("coordinates", "tensors", "safe", "violations", "undecided")
    counts = dict.fromkeys((*names, "escapes", "needless_escapes", "undecided_escapes"), _COUNT)
    return _object(
        {
            "word": {"enum": ["HOLDS", "DOES NOT HOLD", "UNDECIDED", "NOTHING IS GUARDED"]},
            **counts,
            "kept": _map(_COUNT),
            **dict.fromkeys(("bit_rate", "max_deviation", "max_deviation_upper"), _NUMBER),
            "violations_shown": _list(violation),
            "later": _object(
                {
                    **dict.fromkeys(("horizon", "condition"), _TEXT),
                    **dict.fromkeys(("largest", "sum", "factor", "implied"), _NUMBER_OR_NONE),
                    "updates": _COUNT,
                    "claimed": _YES_OR_NO,
                    "sentences": _list(_TEXT),
                }
            ),
        }
    )


def _case(extra: dict[str, Any]) -> dict[str, Any]:
    return _object(
        {
            "name": _TEXT,
            "what": _TEXT,
            "tolerance": _NUMBER,
            "tried": _COUNT,
            "largest": _NUMBER,
            "is_counterexample": _YES_OR_NO,
            "case": {**_coordinate(extra), "type": ["object", "null"]},
            "settled": {"type": ["string", "null"]},
        }
    )


def _trusted_base() -> dict[str, Any]:
    return _object(
        {
            "versions": _map(_TEXT),
            "files": _list(_object({"role": _TEXT, "name": _TEXT, "bytes": _COUNT, "sha256": _TEXT})),
            "machine": _map(_TEXT),
            "certificate": _list(_TEXT),
            "certified": _YES_OR_NO,
            "proof_file_sha256": _TEXT,
        }
    )


def _tensor() -> dict[str, Any]:
    counts = ("coordinates", "safe", "violations", "undecided", "escapes", "needless_escapes", "undecided_escapes")
    return _object(
        {
            **dict.fromkeys(("where", "implementation", "codec"), _TEXT),
            **dict.fromkeys((*counts, "accepted", "code_bytes"), _COUNT),
            "escape_reasons": _map(_COUNT),
            "shape": _list(_COUNT),
            **dict.fromkeys(("max_deviation", "max_deviation_upper", "bit_rate"), _NUMBER),
            **dict.fromkeys(("next_step", "lr", "beta1", "beta2", "eps"), _NUMBER),
            **dict.fromkeys(("later_upper", "drift_upper"), _NUMBER_OR_NONE),
            "first_moment_alone": _NUMBER,
        }
    )


def _distributions() -> dict[str, Any]:
    counts = _list(_COUNT)
    return _object(
        {
            "drawn": _COUNT,
            "of": _COUNT,
            "deviations": _object({"bins": _COUNT, "unit": _TEXT, "counts": counts, "above": _COUNT}),
            "gradients": _object({"octaves": _COUNT, "counts": counts}),
            "codes": _map(counts),
            "code_bits": _COUNT,
            "escapes": _map(_COUNT),
        }
    )
