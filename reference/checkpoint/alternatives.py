"""The joint search: other codes than the nearest, where the guard rejects these.

Claimed: a coordinate takes the first of its codec's alternatives that the closed form accepts.  All of them are judged
at once, and of no other coordinates, so that the cost is that of judging the rejected ones over again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from guarded_moments.reference.codecs import Codec, Codes
from guarded_moments.reference.guard import GuardConstants, closed_form_guard


def take_alternatives(
    codec: Codec, constants: GuardConstants[float], m: Tensor, v: Tensor, codes: Codes, rejected: Tensor, start: int
) -> Tensor:
    """Where an alternative is accepted, bool (n,); there it is written to `codes`.

    Args:
        codec: of the tensor.
        constants: of the guard.
        m: first moments, float32, (n,).
        v: second moments, likewise.
        codes: the nearest.
        rejected: where the guard is defined and rejects them, bool (n,).
        start: place of the first coordinate in its tensor.
    """
    taken = torch.zeros_like(rejected)
    # A codec with parameters of its own for each run of coordinates knows them by their places.
    looked_at = torch.arange(len(m)) if codec.parameter_tensors() else rejected.nonzero().flatten()
    tried = list(codec.alternatives(Codes(*(code[looked_at] for code in codes))))
    if not tried:
        return taken
    at = rejected[looked_at].nonzero().flatten()
    places = looked_at[at]
    decoded = zip(*((moment[at] for moment in codec.decode(*other, start)) for other in tried), strict=True)
    natives = (moment[places].repeat(len(tried)) for moment in (m, v))
    accepted = closed_form_guard(constants, *natives, *map(torch.cat, decoded)).view(len(tried), -1)
    better = accepted.any(dim=0)
    first, at, places = accepted.int().argmax(dim=0)[better], at[better], places[better]
    taken[places] = True
    for code, others in zip(codes, zip(*tried, strict=True), strict=True):
        code[places] = torch.stack(others)[first, at]
    return taken
