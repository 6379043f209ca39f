"""Whole files: the file must be the native's own; then it is cut into parts, which any executor may decide.

A part goes to another process as bytes of its own, so that workers need neither the files nor memory for more than a
part; a few parts a worker are on their way at a time.

Claimed: counts add up to the coordinates of the checkpoint; parts are cut and merged in the order of the file, so that
equal files give equal results on any executor.  Trusted: the executor runs this package's `audit_part`.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

from guarded_moments.oracle.audit.later import Later
from guarded_moments.oracle.audit.part import Part, audit_part, machine_in_words
from guarded_moments.oracle.audit.results import Audit, PartAudit, TensorAudit
from guarded_moments.reference.checkpoint.comparison import first_difference
from guarded_moments.reference.checkpoint.encoding import constants_of, later_guard_of, scalars_of
from guarded_moments.reference.checkpoint.guarded import Kernels, by_kernels
from guarded_moments.reference.checkpoint.layouts import Place
from guarded_moments.reference.checkpoint.optimizer_state import MOMENTS, Parameter, in_memory_order, parameters_of
from guarded_moments.reference.checkpoint.state import GuardedState, GuardedTensor, digest_of
from guarded_moments.reference.errors import CheckpointError
from guarded_moments.reference.horizon import Run
from guarded_moments.reference.implementations import implementation_named, platform_description
from guarded_moments.reference.platform import require_subnormals

#: Coordinates of a part: some five megabytes on their way to a worker, a second or so of work.
PART = 1 << 19
#: Coordinates of a file from which compiling pays: a search takes four seconds to compile, and saves 7 us a coordinate.
WORTH_COMPILING_AUDIT = 1 << 21
#: Parts that are on their way at a time, unless the caller knows how many workers there are.
AHEAD = 16


def audit(
    state: GuardedState,
    native: Mapping[str, Any],
    progress: Callable[[int, int], None] | None = None,
    *,
    executor: Executor | None = None,
    ahead: int = AHEAD,
    kernels: Kernels = "auto",
) -> Audit:
    """Check every coordinate of `state` against the checkpoint it was made from.

    Args:
        state: a read `.gmc` file.
        native: the native checkpoint.
        progress: called with coordinates done and in all.
        executor: decides the parts, in any processes that have this package; by default this process does.
        ahead: parts given to the executor before the first of them is waited for.
        kernels: what clears most coordinates: the search compiled, the one in torch, or by default the compiled one
            where compiling it pays, from `WORTH_COMPILING_AUDIT` coordinates on.  Neither contradicts the other; of
            deviations within a ten-thousandth of the largest either may be called the closest.

    Raises:
        CheckpointError: `native` is not the checkpoint that the file was made from.
        PlatformError: this process, or one of the executor's, flushes subnormals.
        concurrent.futures.BrokenExecutor: the executor lost a process and does not begin again.
    """
    require_subnormals()
    require_own(state, native)
    claims = [state.claim_for(tensor) for tensor in state.tensors]
    result = Audit(
        claims=sorted({claim.sentence() for claim in claims}),
        not_claimed=claims[0].not_claimed() if claims else "",
        platform=platform_description(),
        horizon=str(state.horizon),
        tolerance=state.tolerance.value,
    )
    for kept in state.kept:
        result.kept[kept.because] = result.kept.get(kept.because, 0) + kept.numel
    result.tensors = [TensorAudit(tensor.where, tensor.implementation) for tensor in state.tensors]
    compiled, parameters = by_kernels(kernels, state.coordinates, WORTH_COMPILING_AUDIT), _parameters(native)
    for tensor in state.tensors:
        later = _later(state, tensor, parameters[tensor.place, tensor.key])
        result.factors.append(later.factor)
        result.summed_updates = later.drift_updates
    done, machines = sum(result.kept.values()), {machine_in_words()}
    for place, part in _decided(_parts(state, parameters, compiled=compiled), executor, ahead):
        result.add(place, part)
        machines.add(part.machine)
        done += part.found.coordinates
        if progress is not None:
            progress(done, state.coordinates)
    result.elsewhere = sorted(machines - {machine_in_words()})
    return result


def require_own(state: GuardedState, native: Mapping[str, Any]) -> None:
    """Refuse a native checkpoint that differs in any bit from the one the file was made from.

    This also establishes that what `recover` will give back beside the moments (steps, param_groups, everything else)
    is what the claim was audited with.

    Raises:
        CheckpointError: naming the first difference.
    """
    parameters = _parameters(native)
    guarded = frozenset((*tensor.place, "state", tensor.key, moment) for tensor in state.tensors for moment in MOMENTS)
    difference = first_difference(dict(state.skeleton), dict(native), guarded)
    if difference is not None:
        raise CheckpointError(f"not the file's own native checkpoint: {difference} differs")
    for tensor in state.tensors:
        parameter = parameters.get((tensor.place, tensor.key))
        if parameter is None or (tensor.shape, tensor.stride) != (tuple(parameter.m.shape), parameter.m.stride()):
            raise CheckpointError(f"not the file's own native checkpoint: {tensor.where} has another shape or layout")
        if tensor.next_step != parameter.next_step:
            raise CheckpointError(f"not the file's own native checkpoint: {tensor.where} is at another step")
        if tensor.native_digest != digest_of(parameter.m, parameter.v):
            raise CheckpointError(f"not the file's own native checkpoint: {tensor.where} has other moments")


def _parameters(native: Mapping[str, Any]) -> dict[tuple[Place, int | str], Parameter]:
    return {(parameter.place, parameter.key): parameter for parameter in parameters_of(native)}


def _parts(
    state: GuardedState, parameters: Mapping[tuple[Place, int | str], Parameter], *, compiled: bool
) -> Iterator[tuple[int, Part]]:
    """The parts of all tensors, with the places of their tensors."""
    for place, tensor in enumerate(state.tensors):
        for part in _stretches(state, tensor, parameters[tensor.place, tensor.key], compiled=compiled):
            yield place, part


def _stretches(state: GuardedState, tensor: GuardedTensor, parameter: Parameter, *, compiled: bool) -> Iterator[Part]:
    implementation = implementation_named(tensor.implementation)
    options = parameter.hyperparameters.options
    constants = constants_of(parameter, state.claim_for(tensor), implementation, tensor.lr)
    scalars = scalars_of(parameter, implementation, tensor.lr)
    m, v = in_memory_order(parameter.m), in_memory_order(parameter.v)
    v_max = None if parameter.v_max is None else in_memory_order(parameter.v_max)
    escaped_before = 0
    for begin in range(0, tensor.numel, PART):
        own = slice(begin, min(begin + PART, tensor.numel))
        m_codes, v_codes = tensor.m_codes[own], tensor.v_codes[own]
        escaped = int(tensor.codec.escaped(m_codes, v_codes).sum())
        yield Part(
            where=tensor.where,
            shape=tensor.shape,
            stride=tensor.stride,
            implementation=tensor.implementation,
            lr=tensor.lr,
            constants=constants,
            scalars=scalars,
            options=options,
            later=_later(state, tensor, parameter),
            codec=tensor.codec,
            begin=begin,
            m=m[own],
            v=v[own],
            m_codes=m_codes,
            v_codes=v_codes,
            escapes=tensor.escapes[escaped_before : escaped_before + escaped],
            regions=implementation.update_regions(options, tensor.numel, own),
            compiled=compiled,
            v_max=None if v_max is None else v_max[own],
        )
        escaped_before += escaped


def _later(state: GuardedState, tensor: GuardedTensor, parameter: Parameter) -> Later:
    implementation, claim = implementation_named(tensor.implementation), state.claim_for(tensor)
    run = Run(implementation, parameter.hyperparameters, tensor.next_step, tensor.lr)
    return Later(claim, run, later_guard_of(parameter, claim, implementation, tensor.lr))


def _decided(
    parts: Iterator[tuple[int, Part]], executor: Executor | None, ahead: int
) -> Iterator[tuple[int, PartAudit]]:
    """What is found in each part, in their order."""
    if executor is None:
        yield from ((place, audit_part(part)) for place, part in parts)
        return
    waiting: deque[tuple[int, Future[PartAudit]]] = deque()
    for place, part in parts:
        waiting.append((place, executor.submit(_audit_packed, _packed(part))))
        if len(waiting) >= ahead:
            first, future = waiting.popleft()
            yield first, future.result()
    yield from ((place, future.result()) for place, future in waiting)


def _packed(part: Part) -> bytes:
    """A part as bytes, with its own coordinates only: a slice would be pickled with the tensor that it is of."""
    names = ("m", "v", "m_codes", "v_codes", "escapes", "v_max")
    own: dict[str, Any] = {name: value.clone() for name in names if (value := getattr(part, name)) is not None}
    return pickle.dumps(replace(part, **own, regions=[(model, where.clone()) for model, where in part.regions]))


def _audit_packed(content: bytes) -> PartAudit:
    """In a worker."""
    part: Part = pickle.loads(content)  # noqa: S301 - from `_packed`, handed over by the executor
    return audit_part(part)
