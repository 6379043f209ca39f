"""The fused first step: recovery, then the step of torch or of the op model, bit for bit."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.kernels.inputs import any_bits, codecs, constants, trained
from torch import Tensor

from guarded_moments.reference.arithmetic.compiled_binary32 import CompiledBinary32
from guarded_moments.reference.checkpoint import compress, first_step, recover
from guarded_moments.reference.checkpoint.state import decoded
from guarded_moments.reference.codecs import Codec
from guarded_moments.reference.errors import FormatError, UnsupportedError
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS, Implementation, Placement
from guarded_moments.reference.kernels import first_step as fused
from guarded_moments.reference.kernels import stretches
from guarded_moments.reference.kernels.codecs import Kernel
from guarded_moments.reference.kernels.first_step import FirstStep
from guarded_moments.reference.kernels.guarding import inlined
from guarded_moments.reference.op_models import Interpolation
from guarded_moments.reference.whole_tensor import WholeTensor

CODECS = {codec.name: codec for codec in reversed(list(codecs()))}  # of each name the first
ADAM = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=True)
ADAM_WITH_DECAY = replace(ADAM, weight_decay=0.1, decoupled=False)
FUSED = IMPLEMENTATIONS["torch-2.13-cpu-avx2/fused"]
#: Body and tail differ in whether a product is fused, and in the sign of a zero; the former also at every fourth place.
PLACED = {
    "fused": (FUSED, ADAM_WITH_DECAY),
    "fused, every fourth": (replace(FUSED, placement=Placement.FIRST_SLOT), ADAM_WITH_DECAY),
    "single": (IMPLEMENTATIONS["torch-2.13-cpu-default/single"], replace(ADAM, beta1=0.3)),
}
BODY_ALONE = replace(FUSED, models=(FUSED.body,), placement=Placement.NOWHERE)


def settings(budget: int) -> Iterator[tuple[Implementation, Hyperparameters]]:
    """With --oracle every implementation, with and without each kind of weight decay."""
    yield from PLACED.values()
    for implementation in IMPLEMENTATIONS.values() if budget > 1 else ():
        yield implementation, replace(ADAM, maximize=True)
        yield implementation, replace(ADAM, weight_decay=0.1)
        yield implementation, replace(ADAM_WITH_DECAY, beta1=0.3)


def drawn(rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Moments of which some escape, a parameter and a gradient, some of any bits."""
    m, v = trained(rng, count)
    p, g = (torch.from_numpy(rng.normal(0, scale, count).astype(np.float32)) for scale in (1e-2, 1e-4))
    few = slice(0, count // 8)
    wild = [any_bits(rng, len(m[few])) for _ in range(2)]
    m[few], v[few] = wild[0]
    p[few], g[few] = wild[1]
    shuffled = torch.from_numpy(rng.permutation(count))
    return m[shuffled], v[shuffled], p[shuffled], g[shuffled]


def require_same(ours: Tensor, theirs: Tensor, what: str) -> None:
    apart = ((ours.view(torch.int32) != theirs.view(torch.int32)) & ~(ours.isnan() & theirs.isnan())).nonzero()
    where = int(apart[0]) if len(apart) else 0
    assert not len(apart), f"{what}[{where}] {hex_of(float(ours[where]))}, not {hex_of(float(theirs[where]))}"


def require_step(
    codec: Codec, implementation: Implementation, h: Hyperparameters, given: tuple[Tensor, ...], threads: int = 1
) -> None:
    """The fused step's results are the reference's recovery and step."""
    m, v, p, g = given
    kernel, scalars = Kernel.of(codec), implementation.scalars(h, 10.0)
    assert kernel is not None
    codes, escapes = kernel.guarded(constants(), m, v)
    after = WholeTensor(implementation, h.options, scalars, threads=threads)(p, g, *decoded(codec, *codes, escapes))
    mine, step = p.clone(), FirstStep(kernel, implementation, h.options, scalars)
    moments = step(codes, escapes, mine, g, workers=threads, threads=threads)
    for name, ours, theirs in zip("pmv", (mine, *moments), (after.p, after.m, after.v), strict=True):
        require_same(ours, theirs, f"{implementation.name}, {len(p)}, {threads} threads: {name}")


@pytest.mark.timeout(1800)  # for `--oracle`
@pytest.mark.parametrize("name", CODECS)
def test_it_is_recovery_then_the_step(name: str, rng: np.random.Generator, budget: int, compared: Counter[str]) -> None:
    """With --oracle a hundred million values in all."""
    if budget == 1 and name != "lin8":
        pytest.skip("compiling takes seconds a codec; --oracle runs it")
    count = 20_003 if budget == 1 else 1 << 19
    for implementation, h in settings(budget):
        require_step(CODECS[name], implementation, h, drawn(rng, count))
        compared[f"first step, {name}"] += 3 * count


@pytest.mark.parametrize("placed", PLACED)
def test_sizes_stretches_and_threads(placed: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    implementation, h = PLACED[placed]
    m, v, p, g = drawn(rng, 70_000)
    for size in (*range(71), 511, 512, 513):
        require_step(CODECS["lin8"], implementation, h, (m[:size], v[:size], p[:size], g[:size]))
    monkeypatch.setattr(stretches, "STRETCH", 9_999)
    monkeypatch.setattr(fused, "ROOT_STRETCH", 3_000)
    for threads in (1, 2):
        require_step(CODECS["lin8"], implementation, h, (m, v, p, g), threads)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("path", ["single", "fused"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernels", ["reference", "compiled"])
def test_it_is_recover_and_torch_step(path: str, threads: int, kernels: Any) -> None:  # noqa: ANN401 - one of two words
    """On this machine's own op model, from the state to the parameter, another memory order included."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(threads)
    parameters = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((33, 7), (40_003,))]
    if path == "single":  # moments of torch's fused step are contiguous
        parameters.append(torch.nn.Parameter(torch.randn((20, 30), generator=generator).t()))
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=path == "fused", weight_decay=0.1)
    for _ in range(3):
        for parameter in parameters:
            parameter.grad = 1e-2 * torch.randn_like(parameter)
        optimizer.step()
    state = compress(optimizer.state_dict(), tolerance=0.01, grad_bound=1.0, codec="lin8")
    assert state.escapes > 0
    optimizer.load_state_dict(recover(state))
    before = [parameter.detach().clone() for parameter in parameters]
    optimizer.step()
    for tensor, parameter, stepped in zip(state.tensors, parameters, before, strict=True):
        assert parameter.grad is not None
        moments = first_step(state, tensor, stepped, parameter.grad, kernels=kernels)
        own = optimizer.state[parameter]
        after = (parameter.detach(), own["exp_avg"], own["exp_avg_sq"])
        for name, ours, theirs in zip("pmv", (stepped, *moments), after, strict=True):
            assert ours.stride() == theirs.stride()
            require_same(ours.flatten(), theirs.flatten(), f"{tensor.where}: {name}")


def test_a_contracted_product_is_caught(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded: `m + w*(g - m)` in one rounding where the op model has two."""
    compiled = fused._compiled
    monkeypatch.setattr(fused, "_compiled", lambda kind, _, options: compiled(kind, FUSED.body, options))
    separate = replace(FUSED.body, interpolation=Interpolation.SEPARATE)
    with pytest.raises(AssertionError, match=r"[mp]\[\d+\]"):
        require_step(CODECS["lin8"], replace(BODY_ALONE, models=(separate,)), ADAM_WITH_DECAY, drawn(rng, 4_000))


def test_a_quotient_by_a_rounded_reciprocal_is_caught(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded: `a * (1/b)` for `a / b`."""

    class Approximate:
        """The arithmetic with another division."""

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a compiled function
            return getattr(CompiledBinary32, name)

        @staticmethod
        @inlined
        def div(a: Any, b: Any) -> Any:  # noqa: ANN401 - typed by numba
            return a * (np.float32(1) / b)

    monkeypatch.setattr(fused, "CompiledBinary32", Approximate)
    monkeypatch.setattr(fused, "_compiled", fused._compiled.__wrapped__)  # neither from the cache nor into it
    with pytest.raises(AssertionError, match=r"p\[\d+\]"):
        require_step(CODECS["lin8"], BODY_ALONE, ADAM_WITH_DECAY, drawn(rng, 4_000))


def test_what_it_cannot_step_is_refused() -> None:
    kernel = Kernel.of(CODECS["lin8"])
    assert kernel is not None
    scalars = FUSED.scalars(ADAM, 10.0)
    with pytest.raises(UnsupportedError, match="amsgrad"):
        FirstStep(kernel, FUSED, replace(ADAM, amsgrad=True).options, scalars)
    step = FirstStep(kernel, FUSED, ADAM.options, scalars)
    codes = kernel.encode(torch.ones(6), torch.ones(6))
    refusal = r"g is torch.float32, \(3,\), strides \(2,\): expected contiguous float32, \(6,\)"
    with pytest.raises(ValueError, match=refusal):
        step(codes, torch.empty(0, 2), torch.ones(6), torch.ones(6)[::2])
    with pytest.raises(FormatError, match="0 codes stand for exact pairs, of which there are 1"):
        step(codes, torch.ones(1, 2), torch.ones(6), torch.ones(6))


def test_another_shape_or_dtype_is_refused() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3, 4))
    optimizer = torch.optim.AdamW([parameter])
    parameter.grad = torch.ones(3, 4)
    optimizer.step()
    state = compress(optimizer.state_dict(), tolerance=0.01, grad_bound=1.0)
    (tensor,) = state.tensors
    needed = r"its moments are torch.float32, \(3, 4\), strides \(4, 1\)"
    for wrong in (torch.zeros(4, 3), torch.zeros(3, 4).double()):
        with pytest.raises(UnsupportedError, match=rf"state\[0\]: the parameter is .*{needed}"):
            first_step(state, tensor, wrong, torch.ones(3, 4))
    with pytest.raises(UnsupportedError, match=rf"the gradient is .*strides \(1, 3\); {needed}"):
        first_step(state, tensor, torch.zeros(3, 4), torch.ones(4, 3).t())
