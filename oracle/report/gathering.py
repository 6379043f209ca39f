"""What the report shows of coordinates, gathered while the audit has a file at hand; small, whatever the file's size.

A share of the guarded coordinates is drawn by a fixed rule of their count (no seed, no generator), for the
distributions; the nearest to the tolerance and the smallest second moments are looked for in all of them.

Claimed: codes are counted over every guarded coordinate; each drawn deviation is bit-exact at its gradient, which is
the worst in real arithmetic to a part in a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from guarded_moments.oracle.report.against_torch import AgainstTorch
from guarded_moments.oracle.report.beyond_bound import BeyondBound
from guarded_moments.oracle.report.followed import Followed, Stretch
from guarded_moments.oracle.report.nearest import Nearest
from guarded_moments.oracle.worst_case.decision import BLOCK
from guarded_moments.reference.checkpoint.encoding import constants_of
from guarded_moments.reference.checkpoint.optimizer_state import Parameter, in_memory_order, parameters_of
from guarded_moments.reference.checkpoint.state import GuardedState, GuardedTensor
from guarded_moments.reference.claim import Claim
from guarded_moments.reference.guard import in_domain
from guarded_moments.reference.guard.enclosure import enclose
from guarded_moments.reference.guard.search import States, largest_gradient
from guarded_moments.reference.implementations import implementation_named
from guarded_moments.reference.platform import one_torch_thread, require_subnormals

DRAWN = 1 << 14  #: coordinates at most whose worst case is in the distributions
SMALLEST = 4  #: coordinates with the smallest second moments that are kept
DEVIATION_BINS = 50  #: of `deviation / tau`, from 0 to 1
GRADIENT_OCTAVES = 32  #: of `|g| / G`, from 1 down
CODE_BITS = 6  #: leading bits of a code that the counts tell apart
_GAP = 1e-3
_GOLDEN = 2654435761  #: Knuth's multiplicative hash: neighbours are spread evenly over all 32-bit numbers
_RANGE = 1 << 32


class Gatherer:
    """Takes files one after the other."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.nearest, self.beyond_bound, self.against_torch = Nearest(), BeyondBound(), AgainstTorch()
        self.smallest: list[Followed] = []
        self.guarded = 0  #: coordinates stored in codes, so far
        self.codes = {name: torch.zeros(1 << CODE_BITS, dtype=torch.int64) for name in ("m", "v")}
        self.tensors: list[dict[str, Any]] = []  #: what the audit does not know of each
        self.claims: list[Claim] = []  #: of each
        self._one_in = 1
        self._hash = torch.empty(0, dtype=torch.int64)
        self._share = torch.empty(0, dtype=torch.float64)  #: deviation over tau
        self._gradient = torch.empty(0, dtype=torch.float64)  #: |g| over the largest of the claim

    def add(
        self, state: GuardedState, native: Mapping[str, Any], progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Look at a file that the audit has found to be `native`'s own.

        Args:
            state: the file.
            native: the checkpoint that it was made from.
            progress: called with coordinates done and in all.

        Raises:
            PlatformError: this process flushes subnormals.
        """
        require_subnormals()
        parameters = {(parameter.place, parameter.key): parameter for parameter in parameters_of(native)}
        done = 0
        for tensor in state.tensors:
            with one_torch_thread():
                self._count_codes(tensor)
                self.against_torch.add(tensor, parameters[tensor.place, tensor.key])
                for stretch in stretches(state, tensor, parameters[tensor.place, tensor.key]):
                    self.nearest.add(tensor, stretch)
                    self.beyond_bound.add(tensor, stretch)
                    self._keep_smallest(tensor, stretch)
                    self._draw(stretch)
            hyperparameters = parameters[tensor.place, tensor.key].hyperparameters
            self.claims.append(state.claim_for(tensor))
            self.tensors.append(
                {
                    "where": tensor.where,
                    "shape": list(tensor.shape),
                    "codec": tensor.codec.name,
                    "code_bytes": sum(part.nbytes for part in tensor.stored),
                    "next_step": tensor.next_step,
                    "lr": tensor.lr,
                    "beta1": hyperparameters.beta1,
                    "beta2": hyperparameters.beta2,
                    "eps": hyperparameters.eps,
                }
            )
            done += tensor.numel
            if progress is not None:
                progress(done, state.coordinates)

    def deviations(self) -> Tensor:
        """Drawn coordinates in each bin of deviation over tolerance; what exceeds it is in one more; int64."""
        bins = (self._share * DEVIATION_BINS).ceil().clamp(min=1) - 1
        return bins.clamp(max=DEVIATION_BINS).to(torch.int64).bincount(minlength=DEVIATION_BINS + 1)

    def gradients(self) -> Tensor:
        """Drawn coordinates by how many octaves their worst gradient is below the largest of the claim; int64."""
        octaves = (-self._gradient.log2()).floor().clamp(0, GRADIENT_OCTAVES - 1)
        return octaves.to(torch.int64).bincount(minlength=GRADIENT_OCTAVES)

    @property
    def drawn(self) -> int:
        """Coordinates in the distributions."""
        return len(self._share)

    def _count_codes(self, tensor: GuardedTensor) -> None:
        stored = ~tensor.escaped
        bits = 8 * tensor.codec.code_type.itemsize
        for name, codes in (("m", tensor.m_codes), ("v", tensor.v_codes)):
            leading = (codes[stored].to(torch.int64) & ((1 << bits) - 1)) >> (bits - CODE_BITS)
            self.codes[name] += leading.bincount(minlength=1 << CODE_BITS)

    def _keep_smallest(self, tensor: GuardedTensor, stretch: Stretch) -> None:
        v = torch.where(stretch.states.v > 0, stretch.states.v, torch.inf)
        for index in v.topk(min(SMALLEST, len(v)), largest=False).indices.tolist():
            self.smallest.append(Followed.of(tensor, stretch, index, 0.0, 0.0))
        self.smallest = sorted(self.smallest, key=lambda one: (one.numbers[1], one.name))[:SMALLEST]

    def _draw(self, stretch: Stretch) -> None:
        count = len(stretch.states.m)
        place = torch.arange(self.guarded, self.guarded + count)
        self.guarded += count
        hashed = (place * _GOLDEN) % _RANGE
        drawn = (hashed < _RANGE // self._one_in).nonzero().flatten()
        limit, tolerance = largest_gradient(stretch.constants), stretch.claim.tolerance.value * stretch.lr
        for begin in range(0, len(drawn), BLOCK):
            index = drawn[begin : begin + BLOCK]
            states = stretch.states.select(index)
            gradient = enclose(stretch.constants, states, relative_gap=_GAP).gradient.float()
            deviation = stretch.trajectories.deviations(states, gradient)
            self._hash = torch.cat([self._hash, hashed[index]])
            self._share = torch.cat([self._share, deviation / tolerance])
            self._gradient = torch.cat([self._gradient, gradient.double().abs() / limit])
        while len(self._hash) > DRAWN:
            self._one_in *= 2
            kept = self._hash < _RANGE // self._one_in
            self._hash, self._share, self._gradient = self._hash[kept], self._share[kept], self._gradient[kept]


def stretches(state: GuardedState, tensor: GuardedTensor, parameter: Parameter) -> Iterator[Stretch]:
    """The coordinates of a tensor that are stored in codes and in the guard's domain, by op model.

    None of a tensor with amsgrad: no worst case of its coordinates is searched for, and they are not followed.
    """
    if parameter.v_max is not None:
        return
    claim = state.claim_for(tensor)
    implementation = implementation_named(tensor.implementation)
    options = parameter.hyperparameters.options
    native = States(in_memory_order(parameter.m), in_memory_order(parameter.v), *tensor.decode())
    inside = ~tensor.escaped & in_domain(native.m, native.v) & in_domain(native.m_hat, native.v_hat)
    constants = constants_of(parameter, claim, implementation, tensor.lr)
    for model, region in implementation.update_regions(options, tensor.numel):
        positions = (region & inside).nonzero().flatten()
        if len(positions):
            yield Stretch(
                tensor.where,
                claim,
                tensor.lr,
                parameter,
                model,
                options,
                constants,
                native.select(positions),
                positions,
            )
