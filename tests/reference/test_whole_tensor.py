"""Blocks and regions change nothing but the time."""

import numpy as np
import pytest
import torch
from tests.reference.against_torch import TORCH, differing, step_of
from tests.strategies import wild_states

from guarded_moments.reference import whole_tensor
from guarded_moments.reference.adam import Decay, StepOptions
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS
from guarded_moments.reference.scalars import kernel_scalars
from guarded_moments.reference.whole_tensor import WholeTensor

pytestmark = pytest.mark.usefixtures("one_thread")

ADAM = Hyperparameters(lr=1e-3, beta1=0.3, beta2=0.999, eps=1e-8, weight_decay=0.1, decoupled=False)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize("numpy", [False, True], ids=["torch", "numpy"])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_each_element_has_the_step_of_its_op_model(
    name: str, *, numpy: bool, amsgrad: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = 512
    monkeypatch.setattr(whole_tensor, "BLOCK", block)
    implementation = IMPLEMENTATIONS[name]
    scalars = implementation.scalars(ADAM, 7)
    for options in (
        StepOptions(interpolate_from_end=True, decay=Decay.L2, amsgrad=amsgrad),
        StepOptions(decay=Decay.DECOUPLED, amsgrad=amsgrad, maximize=True),
    ):
        step = WholeTensor(implementation, options, scalars, numpy=numpy)
        for numel in (0, 1, 23, block - 1, block, block + 9, 4 * block):
            states = wild_states(numel, rng)
            p, g, m, v, v_max = states
            result = step(p, g, m, v, v_max) if amsgrad else step(p, g, m, v)
            after = torch.stack(result)
            assigned = implementation.assign(numel, options)
            for index, model in enumerate(implementation.models):
                where = assigned == index
                expected = step_of(TORCH, model, options, scalars, states[:, where])
                rows = 4 if amsgrad else 3
                assert not differing(after[:rows, where], expected[:rows]).any(), (numel, index)


def test_results_are_new_and_have_the_shape_of_the_parameter(rng: np.random.Generator) -> None:
    implementation = IMPLEMENTATIONS["torch-2.13-cpu-avx2/fused"]
    step = WholeTensor(implementation, StepOptions(), kernel_scalars(ADAM, 7))
    for shape in ((), (0, 3), (5, 7)):
        count = int(np.prod(shape))
        tensors = [row.reshape(shape) for row in wild_states(count, rng)[:4]]
        before = [tensor.clone() for tensor in tensors]
        result = step(*tensors)
        assert all(tensor.shape == shape for tensor in result)
        assert not any(differing(a, b).any() for a, b in zip(tensors, before, strict=True))
        assert not {tensor.data_ptr() for tensor in result[:3]} & {tensor.data_ptr() for tensor in tensors} - {0}


@pytest.mark.parametrize("name", ["p", "g", "m", "v", "v_max"])
def test_tensors_that_are_not_contiguous_are_refused(name: str, rng: np.random.Generator) -> None:
    tensors = dict(zip(("p", "g", "m", "v", "v_max"), wild_states(24, rng).view(5, 4, 6), strict=True))
    tensors[name] = tensors[name].t().contiguous().t()
    step = WholeTensor(IMPLEMENTATIONS["torch-2.13-cpu-avx2/fused"], StepOptions(amsgrad=True), kernel_scalars(ADAM, 7))
    with pytest.raises(UnsupportedError, match=rf"^{name} is not contiguous \(strides \(1, 4\)\)"):
        step(**tensors)
