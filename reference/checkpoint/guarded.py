"""Compressing an optimizer's state_dict and recovering it: the product, as two functions on values in memory.

Claimed: for every coordinate that is not escaped, the guard accepted the *decoded* pair, so that the claim holds for
it; every escaped coordinate and everything else in the state_dict is recovered bit for bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import metadata
from typing import Any, Literal

import torch

from guarded_moments.reference.checkpoint.encoding import Encoding, Granularity, kernel_of, rate_of
from guarded_moments.reference.checkpoint.layouts import at, entry_at, places_of, with_own_states
from guarded_moments.reference.checkpoint.optimizer_state import (
    MOMENTS,
    Parameter,
    StateDict,
    contents_of,
)
from guarded_moments.reference.checkpoint.spool import Spool
from guarded_moments.reference.checkpoint.state import GuardedState, GuardedTensor, KeptTensor, spooled
from guarded_moments.reference.claim import Claim, GradientBound, Horizon, Tolerance
from guarded_moments.reference.codecs import CODECS, Codec, Codes
from guarded_moments.reference.errors import GuardedMomentsError, InvalidClaimError, UnsupportedError
from guarded_moments.reference.implementations import Implementation, implementation_for, implementation_named
from guarded_moments.reference.platform import one_torch_thread, require_subnormals

#: Tensors of one state from which compiling the search for grids pays: it takes as long as searching for so many.
WORTH_COMPILING = 32
#: What computes codes and moments; both give the same bits.  `auto`: the compiled loops where compiling them pays.
Kernels = Literal["auto", "reference", "compiled"]
#: Coordinates of a checkpoint from which that is so: the loops save about 0.2 us a coordinate, and take 4 s to compile;
#: when recovering they save 7 ns, and take one second with numba's import.
WORTH_COMPILING_ENCODE = 1 << 24
WORTH_COMPILING_DECODE = 1 << 27
#: Called with coordinates done and in all.
Progress = Callable[[int, int], None]


def compress(
    checkpoint: Mapping[str, Any],
    *,
    tolerance: float,
    grad_bound: float | Sequence[float],
    codec: str = "log8",
    grid: Granularity = "per-tensor",
    grids_from: GuardedState | None = None,
    guard: Literal["exact", "closed"] = "exact",
    implementation: str | None = None,
    lr: float | None = None,
    horizon: Horizon = Horizon.FIRST,
    kernels: Kernels = "auto",
    progress: Progress | None = None,
    spool: Spool | None = None,
) -> GuardedState:
    """Encode both moments of every parameter, and keep exactly every coordinate that the guard does not accept.

    Args:
        checkpoint: `optimizer.state_dict()` of `torch.optim.Adam` or `AdamW`, or a dictionary that holds one or more of
            them, at any depth, beside anything else that `torch.load(weights_only=True)` can read.
        tolerance: `tau`, in learning rates, positive and finite.
        grad_bound: `G`, the largest magnitude of a gradient as it enters the moments; may be infinite.  Or one for each
            param_group of the checkpoint's optimizers, in order.  `clipping` has those of torch's clipping.
        codec: a name in `codecs.CODECS`.
        grid: what has grids of its own: a tensor, a row of it, or 256 coordinates; for the codecs that have grids.
        grids_from: an earlier checkpoint's state, whose grids are taken again for every parameter that has the same
            key and number of coordinates there, in the same codec; choosing them is then saved.
        guard: `exact` searches the worst gradient of what the closed form rejects; `closed` does not, and so escapes
            more coordinates, a little faster.
        implementation: name of the op model of the run that will resume; by default the one this machine's CPU
            would use for each param_group.
        lr: learning rate of the first update after recovery, where it differs from the checkpoint's.  By default
            a group's own, or its `initial_lr` where a finished schedule left 0.  A longer horizon takes it for every
            update.
        horizon: the updates that are guaranteed, for every sequence of gradients that the native and the recovered run
            share: the first; each of a number of updates, in binary32; or all, the later ones in exact arithmetic.
        kernels: what computes the codes: the compiled loops, the reference they are compared with, or by default the
            loops where compiling them pays, from `WORTH_COMPILING_ENCODE` coordinates on.  The result is the same, bit
            for bit.  There are loops for `log8`, `lin8` and `ratio8` with grids per tensor, and for `bf16`; other
            codecs, and horizons beyond the first update, are computed by the reference in any case.
        progress: called with coordinates done and in all.
        spool: gives the memory for codes; what is not guarded is then shared with the checkpoint, which must not change
            before the state is written.  By default ordinary memory, and copies.

    Raises:
        CheckpointError: the state is not Adam's or inconsistent.
        InvalidClaimError: a tolerance or bound that makes no claim.
        UnsupportedError: something valid that is not handled, by name.
        PlatformError: this process flushes subnormals.
    """
    require_subnormals()
    tau = Tolerance(tolerance)
    bound, own_bounds = _bounds(checkpoint, grad_bound)
    named = None if implementation is None else implementation_named(implementation)
    kind = _codec_named(codec, grid)
    earlier = {} if grids_from is None else {(tensor.place, tensor.key): tensor for tensor in grids_from.tensors}
    parameters, foreign = contents_of(checkpoint)
    total, done = sum(p.numel for p in parameters), 0
    compiled = sum(parameter.kept_because is None for parameter in parameters) >= WORTH_COMPILING
    compiled_codes = by_kernels(kernels, total, WORTH_COMPILING_ENCODE)
    skeleton = with_own_states(checkpoint)
    tensors = []
    kept = [KeptTensor(other.key, other.where, other.numel, f"a state of {other.owner}") for other in foreign]
    for parameter in parameters:
        if parameter.kept_because is None:
            model = named or _implementation_of(parameter)
            own_bound = own_bounds.get(id(parameter.param_group))
            encoding = Encoding(
                claim=Claim(tau, own_bound or bound, model.name, horizon),
                implementation=model,
                lr=rate_of(parameter) if lr is None else lr,
                kind=kind,
                granularity=grid,
                exact=guard == "exact",
                compiled=compiled,
                kernels=compiled_codes,
                many=by_kernels("auto", total, WORTH_COMPILING_ENCODE),
                threads=torch.get_num_threads(),
                previous=_reused(kind, parameter, earlier.get((parameter.place, parameter.key))),
            )
            with one_torch_thread():
                tensor = replace(encoding.apply(parameter), own_bound=own_bound)
            tensors.append(tensor if spool is None else spooled(tensor, spool))
            entry_at(skeleton, parameter.place, parameter.key).update(dict.fromkeys(MOMENTS))
        else:
            kept.append(KeptTensor(parameter.key, parameter.where, parameter.numel, parameter.kept_because))
        done += parameter.numel
        if progress is not None:
            progress(done, total)
    if spool is None:  # a copy: a live optimizer steps its own tensors in place
        skeleton = copy.deepcopy(skeleton)
    return GuardedState(tau, bound, tuple(tensors), tuple(kept), skeleton, guard, _programs(), horizon)


def _programs() -> dict[str, str]:
    """Versions of what computes codes and judges them."""
    return {name: _version(name) for name in ("guarded-moments", "numpy", "torch")}


@cache
def _version(name: str) -> str:
    return metadata.version(name)


def _bounds(
    checkpoint: Mapping[str, Any], grad_bound: float | Sequence[float]
) -> tuple[GradientBound, dict[int, GradientBound]]:
    """The bound of all that have none of their own, the smallest; and those of param_groups, by identity."""
    if not isinstance(grad_bound, Sequence):
        return GradientBound(grad_bound), {}
    groups = [group for place in places_of(checkpoint) for group in at(checkpoint, place)["param_groups"]]
    if len(grad_bound) != len(groups):
        msg = (
            f"grad-bound is {len(grad_bound)} numbers, and there are {len(groups)} param_groups: expected one for all, "
            "or one for each in order"
        )
        raise InvalidClaimError(msg)
    bounds = [GradientBound(bound) for bound in grad_bound]
    smallest = min(bounds, key=lambda bound: bound.value)
    different = [(group, bound) for group, bound in zip(groups, bounds, strict=True) if bound != smallest]
    return smallest, {id(group): bound for group, bound in different}


def _codec_named(name: str, grid: Granularity) -> type[Codec]:
    if name not in CODECS:
        raise UnsupportedError(f"codec {name!r} is not known; there are {', '.join(CODECS)}")
    if grid != "per-tensor" and not CODECS[name].granularities:
        choosing = ", ".join(codec for codec, kind in CODECS.items() if kind.granularities)
        raise UnsupportedError(f"codec {name} has no grids to choose {grid}; these have: {choosing}")
    return CODECS[name]


def _implementation_of(parameter: Parameter) -> Implementation:
    try:
        return implementation_for(parameter.param_group)
    except GuardedMomentsError as error:
        raise type(error)(f"{parameter.where}: {error}") from None


def _reused(kind: type[Codec], parameter: Parameter, earlier: GuardedTensor | None) -> Codec | None:
    """The earlier tensor's codec, if it can stand for this parameter's."""
    if earlier is None or not kind.reusable or type(earlier.codec) is not kind or earlier.numel != parameter.numel:
        return None
    return earlier.codec


def by_kernels(kernels: Kernels, coordinates: int, worth: int) -> bool:
    """Whether the compiled loops are to compute so many coordinates."""
    return kernels == "compiled" or (kernels == "auto" and coordinates >= worth)


def recover(
    state: GuardedState, spool: Spool | None = None, kernels: Kernels = "auto", progress: Progress | None = None
) -> StateDict:
    """The checkpoint again, as its optimizers take it: decoded moments, everything else bit for bit.

    Args:
        state: a compressed checkpoint.
        spool: gives the memory for moments; what was not guarded is then shared with the state.
        kernels: what computes the moments, as in `compress`.
        progress: called with coordinates done and in all.

    Raises:
        UnsupportedError: a file of several versions ahead slipped through (an entry that is already filled).
    """
    recovered = copy.deepcopy(state.skeleton) if spool is None else with_own_states(state.skeleton)
    spool = spool or Spool()
    compiled = by_kernels(kernels, state.coordinates, WORTH_COMPILING_DECODE)
    total, done = sum(tensor.numel for tensor in state.tensors), 0
    for tensor in state.tensors:
        entry = entry_at(recovered, tensor.place, tensor.key)
        kernel = kernel_of(tensor.codec) if compiled else None
        if kernel is None:
            m, v = tensor.decode()
            moments = spool.moved(m), spool.moved(v)
        else:
            codes = Codes(tensor.m_codes, tensor.v_codes)
            m, v = (spool.empty(tensor.numel, torch.float32) for _ in MOMENTS)
            moments = kernel.recovered(codes, tensor.escapes, torch.get_num_threads(), (m, v))
        for name, flat in zip(MOMENTS, moments, strict=True):
            if entry[name] is not None:
                msg = f"{tensor.where}: {name} is stored twice"
                raise UnsupportedError(msg)
            entry[name] = flat.as_strided(tensor.shape, tensor.stride)
        done += tensor.numel
        if progress is not None:
            progress(done, total)
    return recovered
