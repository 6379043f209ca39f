"""What is judged: a codec backend, as the operations that the requirements call.

A backend decodes and encodes on grids that it is given, guards with constants that it is given, computes the first
update of an op model that it is given, and compresses a whole optimizer state to bytes and back.  Shapes and dtypes are
the reference's: flat float32 moments, uint8 codes.

Claimed: nothing; `ReferenceBackend` forwards to `reference` and is judged like any other.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from guarded_moments.reference.adam import Scalars, StepOptions, make_step, make_update
from guarded_moments.reference.arithmetic import TorchBinary32
from guarded_moments.reference.checkpoint import compress, recover
from guarded_moments.reference.checkpoint.file_format import from_bytes, to_bytes
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.checkpoint.state import decoded
from guarded_moments.reference.codecs import Log8, LogGrid, Ratio8
from guarded_moments.reference.codecs.log8 import M_LEVELS, V_LEVELS
from guarded_moments.reference.guard import GuardConstants, closed_form_guard
from guarded_moments.reference.op_models import OpModel


class Grids(NamedTuple):
    """The grids of one tensor."""

    m: LogGrid
    v: LogGrid


class RatioGrid(NamedTuple):
    """What `ratio8` has of one tensor."""

    v: LogGrid  #: of the second moment; origin and pitch are even
    step: float  #: of the ratio, a value of bfloat16


class Codes(NamedTuple):
    """The stored bytes of coordinates: two uint8 tensors of shape (n,)."""

    m: Tensor
    v: Tensor


class Moments(NamedTuple):
    """The moments of coordinates: two float32 tensors of shape (n,)."""

    m: Tensor
    v: Tensor


class Stepped(NamedTuple):
    """A parameter and its moments after a step: three float32 tensors of shape (n,)."""

    p: Tensor
    m: Tensor
    v: Tensor


class Backend(Protocol):
    """A codec with its guard and its first update.

    An author's object needs only the operations that it claims: what is not there is reported as not claimed.  It may
    also have these attributes, all optional:

        name                shown in reports and in the names of tests
        device              where it wants its tensors, such as "cuda:0"; otherwise, and by default, on the CPU
        from_dlpack         makes an array of its own from a tensor (`jax.dlpack.from_dlpack`); answers of any type with
                            `__dlpack__` are taken
        op_models           names of the op models (`gmc ops`) that its guard and its update are for; by default all
        not_claimed         requirements that it does not claim to meet, each with the reason in words
        expected_failures   requirements that are known to fail for now, each with the reason in words
    """

    name: str

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        """Codes of both moments, unguarded.

        Args:
            m: finite, shape (n,).
            v: finite and non-negative, shape (n,).
            grids: of the tensor.
        """
        ...

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        """The recovered moments; an escape decodes to zero here."""
        ...

    def encode_ratio(self, m: Tensor, v: Tensor, grid: RatioGrid) -> Codes:
        """Codes of both moments in `ratio8`, unguarded; arguments as `encode`."""
        ...

    def decode_ratio(self, codes: Codes, grid: RatioGrid) -> Moments:
        """What codes of `ratio8` stand for, none of them the escape."""
        ...

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        """Where the claim is guaranteed: bool, shape (n,).

        Args:
            constants: hyperparameters, tolerance and gradient bound of the claim.
            m: native first moments, any float32.
            v: native second moments, any float32.
            m_hat: recovered first moments.
            v_hat: recovered second moments.
        """
        ...

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        """What one step adds to the parameter before the parameter is rounded; shape (n,).

        float32; but float64, the exact product, where the op model does not round the update by itself
        (`not model.rounds_update`: CUDA's unfused paths add it to the parameter in one fma).

        Args:
            model: the op model.
            options: the choices that are made once per tensor.
            scalars: the kernel's constants, binary32 values.
            m: first moments, any float32.
            v: second moments, any float32.
            g: gradients as they enter the moments, any float32.
        """
        ...

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        """An optimizer's state, encoded, guarded and with its escapes."""
        ...

    def recover(self, content: bytes) -> StateDict:
        """The state that `optimizer.load_state_dict` takes."""
        ...

    def round_trip(self, m: Tensor, v: Tensor) -> Moments:
        """Both moments of one tensor in the codec's own format and back, unguarded.

        Args:
            m: finite, shape (n,).
            v: finite and non-negative, shape (n,).
        """
        ...

    def first_step(
        self,
        model: OpModel,
        options: StepOptions,
        scalars: Scalars[float],
        codes: Codes,
        escapes: Tensor,
        grids: Grids,
        p: Tensor,
        g: Tensor,
    ) -> Stepped:
        """The first step after recovery in one: decoding, the exact pairs in their places, and the whole Adam step.

        Args:
            model: the op model that every coordinate follows.
            options: the choices that are made once per tensor, weight decay among them; never amsgrad.
            scalars: the kernel's constants, binary32 values.
            codes: of the tensor, the escape among them.
            escapes: the pairs that are kept exactly, in order, shape (escapes, 2).
            grids: of the tensor.
            p: the parameter, any float32, shape (n,).
            g: its gradient, any float32, shape (n,).
        """
        ...


class ReferenceBackend:
    """The package's own reference."""

    name = "reference"

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        """See `Backend`."""
        return Codes(*Log8(grids.m, grids.v).encode(m, v))

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        """See `Backend`."""
        return Moments(*Log8(grids.m, grids.v).decode(codes.m, codes.v))

    def encode_ratio(self, m: Tensor, v: Tensor, grid: RatioGrid) -> Codes:
        """See `Backend`."""
        return Codes(*Ratio8(grid.v, torch.tensor([grid.step])).encode(m, v))

    def decode_ratio(self, codes: Codes, grid: RatioGrid) -> Moments:
        """See `Backend`."""
        return Moments(*Ratio8(grid.v, torch.tensor([grid.step])).decode(codes.m, codes.v))

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        """See `Backend`."""
        return closed_form_guard(constants, m, v, m_hat, v_hat)

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        """See `Backend`."""
        op = TorchBinary32()
        constants: Scalars[torch.Tensor] = Scalars(*(op.constant(value) for value in scalars))
        return make_update(op, model, options)(m, v, g, constants)

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        """See `Backend`."""
        return to_bytes(compress(state_dict, tolerance=tolerance, grad_bound=gradient_bound))

    def recover(self, content: bytes) -> StateDict:
        """See `Backend`."""
        return recover(from_bytes(content))

    def round_trip(self, m: Tensor, v: Tensor) -> Moments:
        """See `Backend`: on grids from the least to the largest magnitude."""
        grids = [_spanning(magnitudes, levels) for magnitudes, levels in ((m.abs(), M_LEVELS), (v, V_LEVELS))]
        codec = Log8(*grids)
        return Moments(*codec.decode(*codec.encode(m, v)))

    def first_step(
        self,
        model: OpModel,
        options: StepOptions,
        scalars: Scalars[float],
        codes: Codes,
        escapes: Tensor,
        grids: Grids,
        p: Tensor,
        g: Tensor,
    ) -> Stepped:
        """See `Backend`."""
        op = TorchBinary32()
        constants: Scalars[torch.Tensor] = Scalars(*(op.constant(value) for value in scalars))
        m, v = decoded(Log8(grids.m, grids.v), *codes, escapes)
        after = make_step(op, model, options)(p, g, m, v, v, constants)
        return Stepped(after.p, after.m, after.v)


def _spanning(magnitudes: Tensor, levels: int) -> LogGrid:
    usable = magnitudes[magnitudes > 0].double().log2()
    low, high = (float(usable.min()), float(usable.max())) if len(usable) else (-1.0, 0.0)
    return LogGrid.spanning(low, max(high, low + 1.0), levels)
