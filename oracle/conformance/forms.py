"""FMT: the form of answers and of bytes.

Trusted: the reference's reader and writer, for exchange with them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from guarded_moments.oracle.conformance.backend import Codes
from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.oracle.conformance.inputs import GRIDS, ordinary_states
from guarded_moments.oracle.conformance.optimizer_states import Pair, state_dict
from guarded_moments.oracle.conformance.requirements import Level, Requirement, Trial
from guarded_moments.reference.checkpoint import compress, recover
from guarded_moments.reference.checkpoint.comparison import first_difference
from guarded_moments.reference.checkpoint.file_format import from_bytes, to_bytes
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.errors import GuardedMomentsError

_SIZES = (0, 1, 33, 1000)
_CLAIM = {"tolerance": 0.01, "gradient_bound": 1.0}
_SETTINGS = {"lr": 1e-3}


def answers_have_their_form(trial: Trial) -> None:
    """FMT-1.  The shape and the dtype of each answer are looked at wherever one is taken."""
    for size in _SIZES:
        m, v = ordinary_states(trial.generator(f"FMT-1 {size}"), size)
        for operation, inputs, call in _calls(trial, m, v):
            before = [tensor.clone() for tensor in inputs]
            call()
            for index, (old, new) in enumerate(zip(before, inputs, strict=True)):
                if not torch.equal(old, new):
                    raise NonConformance(
                        f"{operation} wrote to its input number {index + 1}", f"size  {size}", "inputs are only read"
                    )


def _calls(trial: Trial, m: Tensor, v: Tensor) -> Iterator[tuple[str, list[Tensor], Callable[[], object]]]:
    """Every operation that the backend has on tensors, with its inputs."""
    backend, scene = trial.backend, trial.scenes[0]
    codes = Codes(torch.ones(len(m), dtype=torch.uint8), torch.ones(len(m), dtype=torch.uint8))
    if backend.offers("encode"):
        yield "encode", [m, v], lambda: backend.encode(m, v, GRIDS[0])
    if backend.offers("decode"):
        yield "decode", [*codes], lambda: backend.decode(codes, GRIDS[0])
    if backend.offers("guard"):
        yield "guard", [m, v], lambda: backend.guard(scene.constants, m, v, m, v)
    if backend.offers("first_update"):
        model = scene.models[0]
        yield (
            "first_update",
            [m, v],
            lambda: backend.first_update(model, scene.options, scene.scalars, m, v, m),
        )
    if backend.offers("round_trip") and len(m):
        yield "round_trip", [m, v], lambda: backend.round_trip(m, v)


def _state(trial: Trial, purpose: str) -> StateDict:
    generator = trial.generator(purpose)
    moments: list[Pair] = [ordinary_states(generator, size) for size in (257, 64)]
    return state_dict(moments, 10, _SETTINGS)


def bytes_are_a_function_of_the_state(trial: Trial) -> None:
    """FMT-2."""
    state = _state(trial, "FMT-2")
    before = copy.deepcopy(state)
    first, second = (trial.backend.compress(state, **_CLAIM) for _ in range(2))
    where = first_difference(before, state)
    if where is not None:
        raise NonConformance("compress changed the state that it was given", f"differs  {where}")
    if first != second:
        same = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(first))
        raise NonConformance(
            "compressing one state twice gave two sequences of bytes",
            f"bytes    {len(first)} and {len(second)}",
            f"differs  from byte {same}",
        )
    where = first_difference(trial.backend.recover(first), trial.backend.recover(first))
    if where is not None:
        raise NonConformance("recovering the same bytes twice gave two states", f"differs  {where}")


def files_are_exchanged_with_the_reference(trial: Trial) -> None:
    """FMT-3."""
    state = _state(trial, "FMT-3")
    theirs = trial.backend.compress(state, **_CLAIM)
    try:
        read = recover(from_bytes(theirs))
    except GuardedMomentsError as error:
        raise NonConformance("the reference cannot read what the backend wrote", f"it says  {error}") from None
    where = first_difference(trial.backend.recover(theirs), read)
    if where is not None:
        raise NonConformance("the reference reads another state from the backend's bytes", f"differs  {where}")
    ours = to_bytes(compress(state, tolerance=_CLAIM["tolerance"], grad_bound=_CLAIM["gradient_bound"]))
    where = first_difference(recover(from_bytes(ours)), trial.backend.recover(ours))
    if where is not None:
        raise NonConformance("the backend reads another state from the reference's bytes", f"differs  {where}")


REQUIREMENTS = (
    Requirement(
        "FMT-1",
        "Answers have the shapes and dtypes of the protocol, for tensors of no element too, and inputs are only read.",
        "A moment that a guard overwrites is then encoded.",
        Level.SOUND,
        answers_have_their_form,
        needs=(),
    ),
    Requirement(
        "FMT-2",
        "The same state gives the same bytes and the same bytes the same state; compressing does not change the state.",
        "Checkpoints are compared by their digests, and a run that saves goes on from the very state it saved.",
        Level.SOUND,
        bytes_are_a_function_of_the_state,
        needs=("compress", "recover"),
    ),
    Requirement(
        "FMT-3",
        "What the backend writes the reference reads to the same state, and the other way round.",
        "A checkpoint outlives the program that wrote it.",
        Level.REPRODUCIBLE,
        files_are_exchanged_with_the_reference,
        needs=("compress", "recover"),
    ),
)
