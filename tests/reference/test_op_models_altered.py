"""Every op model of the family, altered in any one choice, computes other bits somewhere; or it says why not.

Here the altered model stands beside the unaltered one; beside torch's own kernels, and found by identification without
a hint, alterations are in `test_op_models` and `oracle/identify/test_family`.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch
from tests.reference.against_torch import TORCH, alterations, differing, step_of
from tests.strategies import wild_states, zeros_and_ones
from torch import Tensor

from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.arithmetic import TorchBinary32
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS, Implementation, Placement
from guarded_moments.reference.op_models import Interpolation, OpModel

pytestmark = pytest.mark.usefixtures("one_thread")

STATES = 6000


def settings(implementation: Implementation) -> Iterator[tuple[StepOptions, Scalars[float]]]:
    """Each option that a choice is about, from either end, with a denominator of zero and without."""
    for beta1, decoupled, eps in product((0.0, 0.9), (False, True), (0.0, 1e-8)):
        h = Hyperparameters(1e-3, beta1, 0.999, eps, weight_decay=0.1, decoupled=decoupled, amsgrad=True)
        yield h.options, implementation.scalars(h, 10)


def why_the_same(model: OpModel, change: str, roots: Tensor) -> str:
    """The reason why an alteration changes no bit of any step; empty if it must."""
    if change.startswith("from_end") and model.interpolation is Interpolation.FMA_TWICE:
        return "this interpolation has no weight of g - m, so it is written from neither end"
    op = TorchBinary32()
    if change.startswith("square_root") and not differing(op.sqrt(roots), op.platform_sqrt(roots)).any():
        return "torch.sqrt of this machine is the correctly rounded root"
    return ""


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_every_alteration_of_every_op_model_computes_other_bits(name: str, rng: np.random.Generator) -> None:
    implementation = IMPLEMENTATIONS[name]
    states = torch.cat((wild_states(STATES, rng), zeros_and_ones(STATES, rng)), dim=1)
    for model in implementation.models:
        expected = [step_of(TORCH, model, options, scalars, states) for options, scalars in settings(implementation)]
        for change, altered in alterations(model):
            told_apart = sum(
                int(differing(step_of(TORCH, altered, options, scalars, states), unaltered).any(dim=0).sum())
                for (options, scalars), unaltered in zip(settings(implementation), expected, strict=True)
            )
            reason = why_the_same(model, change, expected[0][3])
            assert (told_apart == 0) is bool(reason), f"{model.name}, {change}: {told_apart} differ; {reason}"


UNFUSED = [name for name, known in IMPLEMENTATIONS.items() if known.placement is Placement.LAST_OF_CHUNK]


@pytest.mark.parametrize("name", UNFUSED)
def test_body_and_tail_of_unfused_kernels_differ_in_the_sign_of_zero_alone(name: str, rng: np.random.Generator) -> None:
    """So the size of an update, which is all a guarantee is about, does not depend on which loop an element is in.

    A parameter with strides of its own, which no optimizer's state_dict shows, mixes the loops.
    """
    implementation = IMPLEMENTATIONS[name]
    body, tail = implementation.models
    states = torch.cat((wild_states(20_000, rng), zeros_and_ones(STATES, rng)), dim=1)
    seen = 0
    for options, scalars in settings(implementation):
        one, other = (step_of(TORCH, model, options, scalars, states) for model in (body, tail))
        wrong = differing(one, other)
        seen += int(wrong[1:].sum())
        assert bool((one[1:][wrong[1:]] == 0).all())
        assert bool((other[1:][wrong[1:]] == 0).all())
        assert not wrong[0, ~(states[0] == 0) & (one[0] != 0)].any()
    assert seen > 0, "the two forms are never told apart here"
