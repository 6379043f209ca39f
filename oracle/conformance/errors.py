"""ERR: what is refused.

A refusal is any exception with a text; the other honest answer, where it is possible, is to keep everything exactly.
What may not happen is a state that is silently another.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.oracle.conformance.inputs import ordinary_states
from guarded_moments.oracle.conformance.optimizer_states import state_dict
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial
from guarded_moments.reference.checkpoint.comparison import first_difference
from guarded_moments.reference.checkpoint.optimizer_state import StateDict

_COUNT = 300
_SETTINGS = {"lr": 1e-3}
_UPDATES_DONE = 41
_FLIPS = 96
_CUTS = 24
_GOOD_CLAIM = (0.01, 1.0)
_BAD_CLAIMS = (
    (0.0, 1.0),
    (-0.01, 1.0),
    (math.inf, 1.0),
    (math.nan, 1.0),
    (0.01, 0.0),
    (0.01, -1.0),
    (0.01, math.nan),
)


def _state(trial: Trial, purpose: str, **settings: object) -> StateDict:
    moments = ordinary_states(trial.generator(purpose), _COUNT)
    return state_dict([moments], _UPDATES_DONE, {**_SETTINGS, **settings})


def answer_of(action: Callable[[], StateDict]) -> StateDict | None:
    """What the backend answered, or None where it refused.

    Raises:
        NonConformance: it refused without a word.
    """
    try:
        return action()
    except NonConformance:
        raise
    except Exception as error:  # noqa: BLE001 - any exception is a refusal
        if not str(error).strip():
            raise NonConformance(
                f"refused with a bare {type(error).__name__}", "a refusal says what is wrong, so that it can be mended"
            ) from None
        return None


def _compressing(trial: Trial, state: StateDict, claim: tuple[float, float]) -> Callable[[], StateDict]:
    def act() -> StateDict:
        content = trial.backend.compress(copy.deepcopy(state), tolerance=claim[0], gradient_bound=claim[1])
        return trial.backend.recover(content)

    return act


def claims_without_meaning_are_refused(trial: Trial) -> None:
    """ERR-1."""
    state = _state(trial, "ERR-1")
    for claim in _BAD_CLAIMS:
        if answer_of(_compressing(trial, state, claim)) is not None:
            raise NonConformance(
                f"compressed with tolerance {claim[0]!r} and gradient bound {claim[1]!r}",
                "a tolerance is positive and finite, a gradient bound positive",
            )


def _no_states_of_adam(trial: Trial) -> Iterator[tuple[str, StateDict]]:
    def changed(change: Callable[[dict[str, Any], StateDict], object]) -> StateDict:
        state = copy.deepcopy(_state(trial, "ERR-2"))
        change(state["state"][0], state)
        return state

    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    sgd = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    sgd.step()
    yield "a state of SGD with momentum", sgd.state_dict()
    yield "no exp_avg", changed(lambda entry, _: entry.pop("exp_avg"))
    yield "no exp_avg_sq", changed(lambda entry, _: entry.pop("exp_avg_sq"))
    yield "no step", changed(lambda entry, _: entry.pop("step"))
    yield "a step that is NaN", changed(lambda entry, _: entry.update(step=torch.tensor(torch.nan)))
    yield "moments of two shapes", changed(lambda entry, _: entry.update(exp_avg_sq=torch.zeros(7)))
    yield "a parameter of no group", changed(lambda _, state: state["param_groups"][0].update(params=[]))
    yield "no param_groups", changed(lambda _, state: state.pop("param_groups"))
    yield "betas out of range", changed(lambda _, state: state["param_groups"][0].update(betas=(0.9, 1.5)))


def what_is_no_state_of_adam_is_refused(trial: Trial) -> None:
    """ERR-2."""
    for words, state in _no_states_of_adam(trial):
        if answer_of(_compressing(trial, state, _GOOD_CLAIM)) is not None:
            raise NonConformance(f"compressed what is no state of Adam: {words}")


def damaged_bytes_are_refused(trial: Trial) -> None:
    """ERR-3."""
    state = _state(trial, "ERR-3")
    content = trial.backend.compress(state, tolerance=_GOOD_CLAIM[0], gradient_bound=_GOOD_CLAIM[1])
    whole = trial.backend.recover(content)
    for words, damaged in _damaged(trial.generator("ERR-3 damage"), content):
        recovered = answer_of(partial(trial.backend.recover, damaged))
        where = None if recovered is None else first_difference(whole, recovered)
        if where is not None:
            raise NonConformance(
                f"recovered another state from damaged bytes: {words}",
                f"bytes    {len(content)} in all",
                f"differs  {where}",
            )


def _damaged(generator: torch.Generator, content: bytes) -> Iterator[tuple[str, bytes]]:
    yield "none at all", b""
    yield "one more at the end", content + b"\0"
    for place in torch.randint(len(content), (_CUTS,), generator=generator).tolist():
        yield f"only the first {place}", content[:place]
    for place in torch.randint(8 * len(content), (_FLIPS,), generator=generator).tolist():
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        yield f"bit {place % 8} of byte {place // 8} flipped", bytes(changed)


def what_cannot_be_bounded_is_refused_or_kept(trial: Trial) -> None:
    """ERR-4."""
    for settings in ({"eps": 0.0}, {"lr": 0.0}):
        state = _state(trial, f"ERR-4 {settings}", **settings)
        recovered = answer_of(_compressing(trial, state, _GOOD_CLAIM))
        where = None if recovered is None else first_difference(state, recovered)
        if where is not None:
            raise NonConformance(
                f"recovered another state where nothing can be guaranteed: AdamW({settings})", f"differs  {where}"
            )


_NEEDS = ("compress", "recover")

REQUIREMENTS = (
    Requirement(
        "ERR-1",
        "A tolerance or a gradient bound that makes no claim (zero, negative, NaN; an infinite tolerance) is refused.",
        "A file that claims nothing looks like one that does.",
        Level.SOUND,
        claims_without_meaning_are_refused,
        needs=_NEEDS,
    ),
    Requirement(
        "ERR-2",
        "What is no state of Adam or AdamW, or is one with parts missing or of two shapes, is refused in words.",
        "Of another optimizer's buffers nothing is known, and a guarantee about them is made up.",
        Level.SOUND,
        what_is_no_state_of_adam_is_refused,
        needs=_NEEDS,
    ),
    Requirement(
        "ERR-3",
        "Bytes that were cut off, lengthened or changed in one bit are refused, or still give the same state.",
        "A flipped bit in a grid moves every coordinate of a tensor, and training goes on without a word.",
        Level.SOUND,
        damaged_bytes_are_refused,
        needs=_NEEDS,
    ),
    Requirement(
        "ERR-4",
        "Where no update can be bounded (eps 0, lr 0), the state is refused or kept exactly.",
        "Without eps the update is unbounded where v is zero; with an lr of zero every tolerance is trivial.",
        Level.SOUND,
        what_cannot_be_bounded_is_refused_or_kept,
        needs=_NEEDS,
    ),
)
