"""A compressed optimizer state as a value: what a `.gmc` file holds.

Claimed: `GuardedTensor.decode` gives back escaped pairs bit for bit, and what the codec decodes elsewhere; `digest`
tells one stored tensor from another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.checkpoint.container import as_memory, digest_of_bytes
from guarded_moments.reference.checkpoint.layouts import Place, entry_at, group_of
from guarded_moments.reference.checkpoint.optimizer_state import StateDict, in_memory_order
from guarded_moments.reference.checkpoint.planes import stored
from guarded_moments.reference.checkpoint.spool import Spool
from guarded_moments.reference.claim import Claim, GradientBound, Horizon, Tolerance
from guarded_moments.reference.codecs import Codec, Codes
from guarded_moments.reference.hyperparameters import Hyperparameters

#: Digits of a tensor's digest: half of a SHA-256, so that the digests of small tensors cost little.
_DIGEST_DIGITS = 32


@dataclass(frozen=True)
class GuardedTensor:
    """The guarded moments of one parameter; flat tensors are in the memory order of the native moments."""

    key: int | str
    where: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    implementation: str
    next_step: float
    lr: float  #: the learning rate that the tolerance counts in
    codec: Codec
    m_codes: Tensor  #: of the codec's `code_type`, (numel,)
    v_codes: Tensor  #: likewise
    escapes: Tensor  #: float32, (escapes, 2): the native pairs, in order
    native_digest: str  #: of both native moments
    reasons: Mapping[str, int] = field(default_factory=dict)  #: escapes by reason; known only to the compressor
    place: Place = ()  #: of the optimizer's state_dict in the checkpoint
    own_bound: GradientBound | None = None  #: of the gradient, where it is another than the whole state's

    @property
    def numel(self) -> int:
        """Coordinates."""
        return self.m_codes.numel()

    @cached_property
    def stored(self) -> Codes:
        """What a file holds of the codes: two tensors of uint8."""
        return stored(Codes(self.m_codes, self.v_codes), self.codec.low_bits())

    @property
    def escaped(self) -> Tensor:
        """Where the exact pair is kept: bool, (numel,)."""
        return self.codec.escaped(self.m_codes, self.v_codes)

    def digest(self) -> str:
        """See `digest_of_stored`."""
        return digest_of_stored(*self.stored, self.escapes, *self.codec.parameter_tensors().values())

    def decode(self) -> tuple[Tensor, Tensor]:
        """The recovered moments, float32, (numel,), escapes included."""
        return decoded(self.codec, self.m_codes, self.v_codes, self.escapes)


def digest_of_stored(*parts: Tensor) -> str:
    """Thirty-two hex digits over all that is stored of a tensor's moments: codes, escapes, the codec's arrays."""
    return digest_of_bytes(*map(as_memory, parts))[:_DIGEST_DIGITS]


def decoded(codec: Codec, m_codes: Tensor, v_codes: Tensor, escapes: Tensor, start: int = 0) -> tuple[Tensor, Tensor]:
    """Recovered moments of a tensor or of the stretch that starts there: decoded, exact pairs in their places."""
    m, v = codec.decode(m_codes, v_codes, start)
    escaped = codec.escaped(m_codes, v_codes)
    m[escaped], v[escaped] = escapes[:, 0], escapes[:, 1]
    return m, v


@dataclass(frozen=True)
class KeptTensor:
    """A parameter whose moments are stored exactly, whole."""

    key: int | str
    where: str
    numel: int
    because: str


@dataclass(frozen=True)
class GuardedState:
    """A compressed checkpoint: what a `.gmc` file holds."""

    tolerance: Tolerance
    gradient_bound: GradientBound
    tensors: tuple[GuardedTensor, ...]
    kept: tuple[KeptTensor, ...]
    skeleton: StateDict  #: the checkpoint with the guarded moments replaced by None
    guard: str | None = None  #: `exact` or `closed`; None where a file of an older format does not say
    made_by: Mapping[str, str] = field(default_factory=dict)  #: versions of the programs that compressed, by name
    horizon: Horizon = Horizon.FIRST  #: the updates that the claim covers

    @property
    def coordinates(self) -> int:
        """Coordinates in the state, guarded and kept."""
        return sum(t.numel for t in self.tensors) + sum(t.numel for t in self.kept)

    @property
    def escapes(self) -> int:
        """Coordinates of guarded tensors that are stored exactly."""
        return sum(len(t.escapes) for t in self.tensors)

    def claim_for(self, tensor: GuardedTensor) -> Claim:
        """What is claimed about that tensor's coordinates."""
        return Claim(self.tolerance, tensor.own_bound or self.gradient_bound, tensor.implementation, self.horizon)

    def at_rate(self, lr: float) -> GuardedState:
        """The same codes under a claim that counts in another learning rate, to audit what it would mean there."""
        return replace(self, tensors=tuple(replace(tensor, lr=lr) for tensor in self.tensors))

    def entry_of(self, tensor: GuardedTensor) -> Mapping[str, Any]:
        """What is kept of a parameter's entry in `state`."""
        return entry_at(self.skeleton, tensor.place, tensor.key)

    def group_of(self, tensor: GuardedTensor) -> Mapping[str, Any]:
        """The param_group that governs a parameter."""
        return group_of(self.skeleton, tensor.place, tensor.key)

    def hyperparameters_of(self, tensor: GuardedTensor) -> Hyperparameters:
        """What that group fixes."""
        return Hyperparameters.from_param_group(self.group_of(tensor), tensor.where)


def spooled(tensor: GuardedTensor, spool: Spool) -> GuardedTensor:
    """The same in memory of a spool's."""
    m_codes, v_codes, escapes = (spool.moved(part) for part in (tensor.m_codes, tensor.v_codes, tensor.escapes))
    return replace(tensor, m_codes=m_codes, v_codes=v_codes, escapes=escapes)


def digest_of(m: Tensor, v: Tensor) -> str:
    """Sixteen hex digits that tell one pair of native moments from another (BLAKE2b of their bytes)."""
    digest = hashlib.blake2b(digest_size=8)
    for moment in (m, v):
        digest.update(in_memory_order(moment).view(torch.uint8).numpy().data)
    return digest.hexdigest()
