"""What torch compiles of the reference gives the reference's bits, and is compiled once for all tensors of a codec."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.reference.kernels.inputs import any_bits, codecs, constants, trained, turning_points

from guarded_moments.reference.codecs import Codec, Joint
from guarded_moments.reference.kernels import inductor
from guarded_moments.reference.kernels.codecs import Kernel
from guarded_moments.reference.kernels.inductor import InductorKernel

CODECS = list(codecs())


@pytest.fixture(autouse=True)
def with_oracle(budget: int) -> None:
    if budget == 1:
        pytest.skip("compiling takes up to half a minute a codec; --oracle runs it")


def tensors(codec: Codec, rng: np.random.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Of many sizes, alignments and strides."""
    yield turning_points(codec)
    for draw, count in ((trained, 70_001), (any_bits, 70_001)):
        yield draw(rng, count)
    m, v = trained(rng, 3000)
    yield from ((m[:size], v[:size]) for size in range(71))
    yield m[3:900], v[1:898]
    yield m[::2], v[::2]


@pytest.mark.filterwarnings("default")  # the compiler's own
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["log8", "lin8", "bf16"])
def test_the_bits_are_the_reference_s_and_nothing_is_compiled_twice(
    name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled loops stand for the reference here, with which `test_codecs` compares them."""
    monkeypatch.setattr(inductor, "STRETCH", 50_000)
    torch._dynamo.utils.counters.clear()
    for codec in (codec for codec in CODECS if codec.name == name):
        ours, loops = InductorKernel.of(codec), Kernel.of(codec)
        assert ours is not None
        assert loops is not None
        for m, v in tensors(codec, rng):
            found, expected = ours.guarded(constants(), m, v), loops.guarded(constants(), m, v)
            for a, b in zip(found.codes, expected.codes, strict=True):
                assert torch.equal(a.long(), b.long())
            assert torch.equal(found.escapes.view(torch.int32), expected.escapes.view(torch.int32))
            for a, b in zip(ours.recovered(*found), loops.recovered(*expected), strict=True):
                assert torch.equal(a.view(torch.int32), b.view(torch.int32))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2, "encode with guard, and decode"


def test_joint_is_not_compiled() -> None:
    codec = CODECS[0]
    assert InductorKernel.of(Joint(codec.m_grid, codec.v_grid)) is None  # type: ignore[attr-defined]  # log8 has them
