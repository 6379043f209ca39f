"""From whatever an author wrote to the backend that the checks call.

An author's object needs only the operations that it claims, on its own device and, through DLPack, in its own array
type.  `Adapted` moves tensors there and back, and refuses answers of another shape or dtype before anything is read
from them.

Claimed: no value is changed on the way; a layout (strides, offset) reaches the device as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.utils.dlpack
from torch import Tensor

from guarded_moments.oracle.conformance.backend import Codes, Grids, Moments, RatioGrid, Stepped
from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.guard import GuardConstants
from guarded_moments.reference.op_models import OpModel

#: What a backend may offer; `Backend` says what each does.
OPERATIONS = (
    "encode",
    "decode",
    "encode_ratio",
    "decode_ratio",
    "guard",
    "first_update",
    "compress",
    "recover",
    "round_trip",
    "first_step",
)
_CPU = torch.device("cpu")


class BackendError(Exception):
    """An object that is no backend, or one that cannot run here; the text is one line."""


class Adapted:
    """An author's backend as the checks call it: CPU tensors in and out."""

    def __init__(self, backend: object, device: str | None = None, name: str | None = None) -> None:
        """Take an author's object.

        Args:
            backend: has at least one of `OPERATIONS`; and, where it wants, `name`, `device`, `from_dlpack`,
                `op_models`, `not_claimed` and `expected_failures`, as in `Backend`.
            device: in place of its own.
            name: where it has no name of its own.

        Raises:
            BackendError: it offers nothing, declares something that is not what it must be, or the device is not here.
        """
        self._backend: Any = backend
        self.name = str(getattr(backend, "name", name or type(backend).__name__))
        self._device = _device(device if device is not None else getattr(backend, "device", "cpu"))
        self._from_dlpack: Callable[[Tensor], Any] | None = getattr(backend, "from_dlpack", None)
        self.op_models: tuple[str, ...] | None = _names(backend, "op_models")
        self.not_claimed = _reasons(backend, "not_claimed")
        self.expected_failures = _reasons(backend, "expected_failures")
        if not any(self.offers(operation) for operation in OPERATIONS):
            kind = "class" if isinstance(backend, type) else type(backend).__name__
            raise BackendError(f"is a {kind} without any of the operations of a backend: {', '.join(OPERATIONS)}")

    @property
    def device(self) -> str:
        """Where its tensors live."""
        return str(self._device)

    def offers(self, operation: str) -> bool:
        """Whether the author wrote that operation."""
        return callable(getattr(self._backend, operation, None))

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        """See `Backend`."""
        answer = self._backend.encode(self._given(m), self._given(v), grids)
        return Codes(*self._pair("encode", answer, m.shape, torch.uint8))

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        """See `Backend`."""
        answer = self._backend.decode(Codes(*map(self._given, codes)), grids)
        return Moments(*self._pair("decode", answer, codes.m.shape, torch.float32))

    def encode_ratio(self, m: Tensor, v: Tensor, grid: RatioGrid) -> Codes:
        """See `Backend`."""
        answer = self._backend.encode_ratio(self._given(m), self._given(v), grid)
        return Codes(*self._pair("encode_ratio", answer, m.shape, torch.uint8))

    def decode_ratio(self, codes: Codes, grid: RatioGrid) -> Moments:
        """See `Backend`."""
        answer = self._backend.decode_ratio(Codes(*map(self._given, codes)), grid)
        return Moments(*self._pair("decode_ratio", answer, codes.m.shape, torch.float32))

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        """See `Backend`."""
        answer = self._backend.guard(constants, *map(self._given, (m, v, m_hat, v_hat)))
        return self._taken("guard", answer, m.shape, torch.bool)

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        """See `Backend`."""
        answer = self._backend.first_update(model, options, scalars, *map(self._given, (m, v, g)))
        dtype = torch.float32 if model.rounds_update else torch.float64
        return self._taken("first_update", answer, m.shape, dtype)

    def compress(self, state_dict: StateDict, *, tolerance: float, gradient_bound: float) -> bytes:
        """See `Backend`."""
        answer = self._backend.compress(state_dict, tolerance=tolerance, gradient_bound=gradient_bound)
        if not isinstance(answer, (bytes, bytearray, memoryview)):
            raise NonConformance(f"compress answered with a {type(answer).__name__}, not with bytes")
        return bytes(answer)

    def recover(self, content: bytes) -> StateDict:
        """See `Backend`."""
        answer: Any = self._backend.recover(content)
        if not (isinstance(answer, dict) and {"state", "param_groups"} <= answer.keys()):
            raise NonConformance("recover answered with something that is no state_dict of an optimizer")
        state: StateDict = answer
        return state

    def round_trip(self, m: Tensor, v: Tensor) -> Moments:
        """See `Backend`."""
        answer = self._backend.round_trip(self._given(m), self._given(v))
        return Moments(*self._pair("round_trip", answer, m.shape, torch.float32))

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
        given = (Codes(*map(self._given, codes)), self._given(escapes), grids, self._given(p), self._given(g))
        answer = self._backend.first_step(model, options, scalars, *given)
        try:
            parameter, m, v = answer
        except (TypeError, ValueError):
            raise NonConformance("first_step did not answer with three parts: p, m and v") from None
        return Stepped(*(self._taken("first_step", part, p.shape, torch.float32) for part in (parameter, m, v)))

    def _given(self, tensor: Tensor) -> Any:  # noqa: ANN401 - the author's own array type
        moved = _moved(tensor, self._device)
        return moved if self._from_dlpack is None else self._from_dlpack(moved)

    def _pair(self, operation: str, answer: Any, shape: torch.Size, dtype: torch.dtype) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - as above
        try:
            first, second = answer
        except (TypeError, ValueError):
            raise NonConformance(f"{operation} did not answer with a pair, one part a moment") from None
        return self._taken(operation, first, shape, dtype), self._taken(operation, second, shape, dtype)

    def _taken(self, operation: str, answer: Any, shape: torch.Size, dtype: torch.dtype) -> Tensor:  # noqa: ANN401 - as above
        if not isinstance(answer, Tensor):
            if not hasattr(answer, "__dlpack__"):
                raise NonConformance(f"{operation} answered with a {type(answer).__name__}, which is no array")
            answer = torch.utils.dlpack.from_dlpack(answer)
        if answer.dtype is not dtype or answer.shape != shape:
            raise NonConformance(
                f"{operation} answered with {_form(answer.dtype, answer.shape)}, not with {_form(dtype, shape)}"
            )
        taken: Tensor = answer.detach().to(_CPU)
        return taken


def _form(dtype: torch.dtype, shape: torch.Size) -> str:
    return f"{str(dtype).removeprefix('torch.')} of shape {tuple(shape)}"


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device, its strides and offset as they are."""
    if tensor.device == device:
        return tensor
    whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    return whole.to(device).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _device(name: object) -> torch.device:
    try:
        device = torch.device(str(name))
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        text = (str(error).strip().splitlines() or ["without a message"])[0]
        raise BackendError(f"device {name!r} cannot be used here: {text}") from None
    return device


def _names(backend: object, attribute: str) -> tuple[str, ...] | None:
    given: Any = getattr(backend, attribute, None)
    if given is None:
        return None
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise BackendError(f"declares {attribute} as {given!r}: expected names")
    return tuple(given)


def _reasons(backend: object, attribute: str) -> Mapping[str, str]:
    given: Any = getattr(backend, attribute, None) or {}
    if not isinstance(given, Mapping) or not all(isinstance(word, str) for pair in given.items() for word in pair):
        raise BackendError(f"declares {attribute} as {given!r}: expected requirements, each with the reason in words")
    return dict(given)
