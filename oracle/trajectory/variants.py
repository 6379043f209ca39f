"""The states that training is resumed from: the native one, the recovered one, and controls to compare it with.

Every variant is a state_dict of its own, so that a run may step it in place.  Parameters that the file keeps whole are
left as they are in every variant but the one without a state.

Claimed: each variant differs from the native state in what its name says, and in nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.guarded import recover
from guarded_moments.reference.checkpoint.layouts import at, places_of
from guarded_moments.reference.checkpoint.optimizer_state import MOMENTS, StateDict, in_memory_order
from guarded_moments.reference.checkpoint.state import GuardedState, GuardedTensor
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.guard import in_domain

NATIVE = "native, run again"
RECOVERED = "recovered"
ONE_ULP = "one ulp on every moment"
BFLOAT16 = "bf16 moments"
UNGUARDED = "unguarded codes"
ZEROED = "moments zeroed"
WITHOUT = "no state, step 0"
OTHER_ORDER = "native, other data order"

#: What each control is.
CONTROLS: Mapping[str, str] = MappingProxyType(
    {
        NATIVE: "the native state once more: what differs here is not due to the state",
        ONE_ULP: "every moment that is not zero, one unit in the last place further from zero: as little as can differ",
        BFLOAT16: "every moment rounded to bf16, without a guard: half the bits of native",
        UNGUARDED: "the file's own codec and grids with the nearest codes everywhere, without a guard",
        ZEROED: "both moments zero, the step kept",
        WITHOUT: "a new optimizer",
        OTHER_ORDER: "the native state with other batches",
    }
)

_Moments = tuple[Tensor, Tensor]


def variants_of(state: GuardedState, native: Mapping[str, Any]) -> dict[str, StateDict]:
    """The optimizer's state_dict of every variant, by name; those with other data have the native one.

    Args:
        state: a `.gmc` file's.
        native: the checkpoint that it was made from.

    Raises:
        UnsupportedError: the checkpoint holds several optimizers.
    """
    places = places_of(native)
    if len(places) != 1:
        raise UnsupportedError(f"the checkpoint holds {len(places)} optimizers; training with one can be resumed here")
    own: StateDict = at(native, places[0])
    recovered: StateDict = at(recover(state), places[0])
    changes: dict[str, Callable[[GuardedTensor, _Moments], _Moments]] = {
        ONE_ULP: lambda _, moments: (_outward(moments[0]), _outward(moments[1])),
        BFLOAT16: lambda _, moments: (moments[0].bfloat16().float(), moments[1].bfloat16().float()),
        UNGUARDED: _unguarded,
        ZEROED: lambda _, moments: (torch.zeros_like(moments[0]), torch.zeros_like(moments[1])),
    }
    return {
        NATIVE: own,
        RECOVERED: recovered,
        **{name: _changed(state, own, change) for name, change in changes.items()},
        WITHOUT: {**own, "state": {}},
        OTHER_ORDER: own,
    }


def _changed(state: GuardedState, own: StateDict, change: Callable[[GuardedTensor, _Moments], _Moments]) -> StateDict:
    altered = copy.deepcopy(own)
    for tensor in state.tensors:
        entry = altered["state"][tensor.key]
        flat = (in_memory_order(entry[MOMENTS[0]]), in_memory_order(entry[MOMENTS[1]]))
        for view, values in zip(flat, change(tensor, flat), strict=True):
            view.copy_(values)
    return altered


def _outward(moment: Tensor) -> Tensor:
    """One unit in the last place further from zero; zero stays zero."""
    return torch.where(moment == 0, moment, torch.nextafter(moment, moment.sign() * torch.inf))


def _unguarded(tensor: GuardedTensor, moments: _Moments) -> _Moments:
    """What the codec makes of every coordinate that it can encode at all."""
    usable, zero = in_domain(*moments), torch.zeros(())
    m, v = (torch.where(usable, moment, zero) for moment in moments)
    codes = tensor.codec.encode(m, v)
    usable &= ~tensor.codec.escaped(*codes)
    m, v = (
        torch.where(usable, decoded, moment)
        for decoded, moment in zip(tensor.codec.decode(*codes), moments, strict=True)
    )
    return m, v
