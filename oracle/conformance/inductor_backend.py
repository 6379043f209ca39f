"""The functions that torch compiles, as a backend: `backend` of this module, which `--oracle` takes by its name.

It is judged like any other; compiling takes up to a minute, so that bare `--oracle` leaves it out.
"""

from __future__ import annotations

from torch import Tensor

from guarded_moments.oracle.conformance.backend import Codes, Grids, Moments
from guarded_moments.reference.codecs import Codes as CodecCodes
from guarded_moments.reference.codecs import Log8
from guarded_moments.reference.guard import GuardConstants
from guarded_moments.reference.kernels.inductor import InductorKernel, guard


class InductorBackend:
    """Codes and guard by `torch.compile`."""

    name = "inductor"

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        """See `Backend`."""
        return Codes(*_kernel(grids).encode(m, v))

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        """See `Backend`."""
        return Moments(*_kernel(grids).decode(CodecCodes(*codes)))

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        """See `Backend`: the closed form."""
        return guard(constants, m, v, m_hat, v_hat)


def _kernel(grids: Grids) -> InductorKernel:
    kernel = InductorKernel.of(Log8(grids.m, grids.v))
    if kernel is None:  # log8 with a grid a moment is compiled
        raise AssertionError(grids)
    return kernel


backend = InductorBackend()
