"""REC: slips of a step that decodes as it goes."""

# ruff: noqa: D102 - the docstring of a class says what its one method gets wrong

from typing import Any

import torch
from tests.meta.seeding import caught_by

from guarded_moments.oracle.conformance import Codes, ReferenceBackend, Stepped
from guarded_moments.reference.codecs.log8 import ESCAPE


class _Changed(ReferenceBackend):
    """The first step with something else given or answered."""

    def first_step(self, *given: Any) -> Stepped:  # noqa: ANN401 - passed on
        return super().first_step(*self.changed(*given))

    def changed(self, *given: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as above
        return given


@caught_by("REC-4")
class EscapesStepFromZero(_Changed):
    """The exact pairs are put in their places after the step, which saw zeros there."""

    def changed(self, *given: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as above
        *others, escapes, grids, p, g = given
        return *others, torch.zeros_like(escapes), grids, p, g


@caught_by("REC-4")
class EscapesCountedByBlock(_Changed):
    """Each block of 512 begins again with the first exact pair."""

    def changed(self, *given: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as above
        *others, codes, escapes, grids, p, g = given
        places = (codes.m == ESCAPE).nonzero().flatten()
        block = places // 512
        first = torch.searchsorted(block, block)
        return *others, codes, escapes[torch.arange(len(places)) - first], grids, p, g


@caught_by("REC-4")
class DecayForgotten(_Changed):
    """The fused pass leaves weight decay out."""

    def changed(self, *given: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as above
        model, options, scalars, *others = given
        return model, options, scalars._replace(shrink=1.0, decay_product=0.0, weight_decay=0.0), *others


@caught_by("REC-4")
class UpdateRoundedFirst(_Changed):
    """The update is rounded before it is added, where the op model fuses its last product with the sum."""

    def first_step(self, *given: Any) -> Stepped:  # noqa: ANN401 - as above
        model, _, _, _, _, _, p, _ = given
        right = super().first_step(*given)
        bare = super().first_step(*given[:6], torch.zeros_like(p), given[7])
        return right if model.rounds_update else right._replace(p=p + bare.p)


@caught_by("REC-4")
class MomentsOfBeforeTheStep(ReferenceBackend):
    """The recovered moments are handed on, and the step's own are lost."""

    def first_step(self, *given: Any) -> Stepped:  # noqa: ANN401 - as above
        _, _, _, codes, escapes, grids, *_ = given
        m, v = super().decode(codes, grids)
        escaped = codes.m == ESCAPE
        m[escaped], v[escaped] = escapes[:, 0], escapes[:, 1]
        return super().first_step(*given)._replace(m=m, v=v)


@caught_by("REC-4")
class CodesShiftedAtTheTail(_Changed):
    """The last elements, which no whole vector holds, decode the codes of their neighbours."""

    def changed(self, *given: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as above
        *others, codes, escapes, grids, p, g = given
        v, begin = codes.v.clone(), len(p) - len(p) % 8
        v[begin:] = codes.v.roll(1)[begin:]
        return *others, Codes(codes.m, v), escapes, grids, p, g
