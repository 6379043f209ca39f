"""Encode, guard and escape, decode, and the first step as Triton kernels: for GPUs, or in Triton's interpreter.

The formulas are those of `triton_formulas`, the kernels those of `triton_kernels`.  Where there is no GPU the same
kernels run in the interpreter, block by block in NumPy: for tests, not for speed.

    guarded   moments -> codes, the escape where the closed form does not accept     one pass
    levels    codes -> moments, exact pairs in their places                          one pass
    stepped   codes, parameter, gradient -> parameter and moments after a step       one pass

Claimed: the codes, escapes, moments and steps of the reference, bit for bit (NaN payloads of steps apart).  Trusted:
Triton's compiler; the tests read what it makes of the kernels.  Never run on a GPU by this package's authors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.arithmetic.triton_operations import running_sum
from guarded_moments.reference.codecs import Codec, Codes, Escaped
from guarded_moments.reference.errors import FormatError, UnsupportedError
from guarded_moments.reference.guard.constants import GuardConstants
from guarded_moments.reference.kernels.loops import LOOPS, OnRoots, parameters_of
from guarded_moments.reference.kernels.triton_formulas import constants_array, make_judge, make_step_at
from guarded_moments.reference.kernels.triton_kernels import (
    block_of,
    guarded_kernel,
    launch,
    level_kernel,
    nearest_kernel,
    step_kernel,
)
from guarded_moments.reference.kernels.triton_loops import Loops, domain, grid_array, loops_for
from guarded_moments.reference.op_models import OpModel

_M_MASK, _V_MASK = 0x7F, 0xFF  #: of a code's magnitude


class TritonKernel:
    """The kernels of one tensor's codec, on a GPU or interpreted on the CPU."""

    def __init__(self, codec: Codec, parameters: tuple[Any, Any], device: torch.device | str) -> None:
        self.codec, self.device = codec, torch.device(device)
        self.interpreted = self.device.type == "cpu"
        self._grids = [grid_array(grid).to(self.device) for grid in parameters]
        kind: type = type(parameters[0])
        self._loops: Loops = loops_for(kind, interpreted=self.interpreted)
        self._escape = LOOPS[type(codec)].escape

    @classmethod
    def of(cls, codec: Codec, device: torch.device | str) -> TritonKernel | None:
        """The kernels of a codec, or None: there are some where `Kernel` has loops, but for `ratio8`."""
        parameters = parameters_of(codec)
        if parameters is None or isinstance(parameters[0], OnRoots):
            return None
        return cls(codec, parameters, device)

    def encode(self, m: Tensor, v: Tensor) -> Codes:
        """Codes of both moments, unguarded; see `Codec.encode`."""
        codes = self._empty_codes(len(m))
        for moment, out, grid, mask in zip((m, v), codes, self._grids, (_M_MASK, _V_MASK), strict=True):
            bits = moment.contiguous().view(torch.int32)
            launch(nearest_kernel, len(m), self.interpreted, bits, out, grid, nearest=self._loops.nearest, MASK=mask)
        return codes

    def decode(self, codes: Codes) -> tuple[Tensor, Tensor]:
        """What codes decode to, without exact pairs; see `Codec.decode`."""
        m, v = (torch.empty(len(codes.m), dtype=torch.int32, device=self.device) for _ in range(2))
        for given, out, grid, mask in zip(codes, (m, v), self._grids, (_M_MASK, _V_MASK), strict=True):
            launch(
                level_kernel,
                len(given),
                self.interpreted,
                given.contiguous(),
                out,
                grid,
                level=self._loops.level,
                MASK=mask,
            )
        return m.view(torch.float32), v.view(torch.float32)

    def guarded(self, constants: GuardConstants[float], m: Tensor, v: Tensor) -> Escaped:
        """Codes where the closed form accepts, exact pairs elsewhere, all on the device of the moments."""
        m, v, codes = m.contiguous(), v.contiguous(), self._empty_codes(len(m))
        launch(
            guarded_kernel,
            len(m),
            self.interpreted,
            m,
            v,
            *codes,
            *self._grids,
            constants_array(constants, self.device),
            nearest=self._loops.nearest,
            level=self._loops.level,
            judge=make_judge(interpreted=self.interpreted),
            in_domain=domain(interpreted=self.interpreted),
            M_MASK=_M_MASK,
            V_MASK=_V_MASK,
            ESCAPE=self._escape,
        )
        escaped = self.codec.escaped(*codes)
        return Escaped(codes, torch.stack([m[escaped], v[escaped]], dim=1))

    def recovered(self, codes: Codes, escapes: Tensor) -> tuple[Tensor, Tensor]:
        """The recovered moments with the exact pairs in their places.

        Raises:
            FormatError: there are more or fewer escapes than codes that stand for one.
        """
        m, v = self.decode(codes)
        escaped = self.codec.escaped(*codes)
        _require_escapes(int(escaped.sum()), escapes)
        m[escaped], v[escaped] = escapes[:, 0], escapes[:, 1]
        return m, v

    def step(
        self,
        model: OpModel,
        options: StepOptions,
        scalars: Scalars[float],
        codes: Codes,
        escapes: Tensor,
        p: Tensor,
        g: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Recover and step coordinates of one op model: `p` in place, both moments after the step returned.

        Args:
            model: the op model.
            options: per-tensor choices, without amsgrad.
            scalars: the kernel's constants.
            codes: of the tensor.
            escapes: its exact pairs, float32, (escapes, 2).
            p: contiguous float32, (n,).
            g: contiguous float32, (n,).

        Raises:
            UnsupportedError: amsgrad, or an op model whose root is a platform's.
            FormatError: there are more or fewer escapes than codes that stand for one.
        """
        if options.amsgrad:
            raise UnsupportedError("amsgrad: the fused pass reads no third moment; recover the state, then step")
        block = block_of(self.interpreted)
        escaped = self.codec.escaped(*codes)
        counts = torch.nn.functional.pad(escaped, (0, -len(p) % block)).view(-1, block).sum(dim=1)
        _require_escapes(int(counts.sum()), escapes)
        m, v = torch.empty_like(p), torch.empty_like(p)
        launch(
            step_kernel,
            len(p),
            self.interpreted,
            *(given.contiguous() for given in codes),
            escapes.contiguous(),
            counts.cumsum(0) - counts,
            p,
            g,
            m,
            v,
            *self._grids,
            torch.tensor(list(scalars), dtype=torch.float32, device=self.device),
            level=self._loops.level,
            running=running_sum(interpreted=self.interpreted),
            step=make_step_at(model, options, interpreted=self.interpreted),
            M_MASK=_M_MASK,
            V_MASK=_V_MASK,
            ESCAPE=self._escape,
        )
        return m, v

    def _empty_codes(self, count: int) -> Codes:
        return Codes(*(torch.empty(count, dtype=self.codec.code_type, device=self.device) for _ in range(2)))


def _require_escapes(count: int, escapes: Tensor) -> None:
    if count != len(escapes):
        raise FormatError(f"{count} codes stand for exact pairs, of which there are {len(escapes)}")
