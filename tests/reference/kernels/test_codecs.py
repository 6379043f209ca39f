"""The compiled loops against the reference, bit for bit: codes, escapes and recovered moments."""

from collections import Counter

import numpy as np
import pytest
import torch
from tests.reference.kernels.inputs import any_bits, codecs, constants, trained, turning_points
from torch import Tensor

from guarded_moments.reference.checkpoint.comparison import same_bits
from guarded_moments.reference.checkpoint.encoding import encode_guarded, taken_back
from guarded_moments.reference.checkpoint.state import decoded
from guarded_moments.reference.codecs import (
    Codec,
    Codes,
    Escaped,
    FloatGrid,
    GridFamily,
    Joint,
    Lin8,
    Log8,
    LogGrid,
    Ratio8,
)
from guarded_moments.reference.errors import FormatError
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.kernels import stretches
from guarded_moments.reference.kernels.codecs import Kernel
from guarded_moments.reference.kernels.loops import OnBits

CODECS = {f"{codec.name}-{place}": codec for place, codec in enumerate(codecs())}
TRAINED = [codec for name, codec in CODECS.items() if name in {"log8-0", "lin8-1", "bf16-8", "ratio8-9"}]

each_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def kernel_of(codec: Codec) -> Kernel:
    kernel = Kernel.of(codec)
    assert kernel is not None, codec
    return kernel


def by_reference(codec: Codec, m: Tensor, v: Tensor, *, exact: bool = False, tolerance: float = 0.01) -> Escaped:
    codes, accepted = encode_guarded(codec, constants(tolerance), m, v, exact=exact)
    return Escaped(codec.escape(codes, ~accepted), torch.stack([m[~accepted], v[~accepted]], dim=1))


def require_same(ours: Escaped, theirs: Escaped, m: Tensor, v: Tensor) -> None:
    for name, a, b in zip("mv", ours.codes, theirs.codes, strict=True):
        apart = (a.long() != b.long()).nonzero().flatten()
        state = [hex_of(float(x[apart[0]])) for x in (m, v)] if len(apart) else ()
        assert not len(apart), f"{name} code {int(a[apart[0]])}, reference {int(b[apart[0]])}, of {state}"
    assert same_bits(ours.escapes, theirs.escapes), (len(ours.escapes), len(theirs.escapes))


def require_same_as_reference(codec: Codec, m: Tensor, v: Tensor, threads: int = 1) -> None:
    theirs, kernel = by_reference(codec, m, v), kernel_of(codec)
    require_same(kernel.guarded(constants(), m, v, threads), theirs, m, v)
    for name, a, b in zip(
        "mv", kernel.recovered(*theirs, threads), decoded(codec, *theirs.codes, theirs.escapes), strict=True
    ):
        assert same_bits(a, b), f"recovered {name}"


@each_codec
def test_where_an_encoder_decides(codec: Codec) -> None:
    m, v = turning_points(codec)
    for moment, ours, theirs in zip((m, v), kernel_of(codec).encode(m, v), codec.encode(m, v), strict=True):
        apart = (ours.long() != theirs.long()).nonzero().flatten()
        wrong = [(hex_of(float(moment[i])), int(ours[i]), int(theirs[i])) for i in apart[:1]]
        assert not wrong, wrong


@each_codec
def test_what_every_code_decodes_to(codec: Codec) -> None:
    """Codes that no encoder writes too."""
    every = torch.arange(torch.iinfo(codec.code_type).max + 1).to(codec.code_type)
    pairs = Codes(every.repeat(256), every.repeat_interleave(256))
    codes = Codes(every, torch.from_numpy(every.numpy()[::-1].copy())) if len(every) > 256 else pairs
    for ours, theirs in zip(kernel_of(codec).decode(codes), codec.decode(*codes), strict=True):
        apart = (ours.view(torch.int32) != theirs.view(torch.int32)).nonzero().flatten()
        wrong = [([int(c[i]) for c in codes], hex_of(float(ours[i])), hex_of(float(theirs[i]))) for i in apart[:1]]
        assert not wrong, wrong


@each_codec
def test_moments_of_every_kind(codec: Codec, rng: np.random.Generator, budget: int, compared: Counter[str]) -> None:
    """With --oracle a hundred million values in all."""
    rounds, count = (1, 20_000) if budget == 1 else (8, 1 << 20)
    for _ in range(rounds):
        for draw in (trained, any_bits):
            m, v = draw(rng, count)
            require_same_as_reference(codec, m, v)
            compared[f"kernels, {codec.name}"] += 2 * count


@pytest.mark.parametrize("codec", TRAINED, ids=lambda codec: codec.name)
def test_sizes_alignments_strides_and_threads(
    codec: Codec, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    m, v = trained(rng, 5000)
    m[::7] *= 40  # some to escape in every block
    for size in (*range(71), 511, 512, 513, 1023, 1025):
        require_same_as_reference(codec, m[:size], v[:size])
        require_same_as_reference(codec, m[3 : 3 + size], v[1 : 1 + size])
    require_same_as_reference(codec, m[::2], v[::2])
    monkeypatch.setattr(stretches, "STRETCH", 1000)
    for threads in (1, 2):
        require_same_as_reference(codec, m, v, threads)


@pytest.mark.parametrize("codec", TRAINED, ids=lambda codec: codec.name)
def test_what_the_search_clears_is_taken_back(codec: Codec, rng: np.random.Generator) -> None:
    m, v = trained(rng, 20_000)
    m[:2000], v[:2000] = any_bits(rng, 2000)
    tolerance = {"bf16": 1e-3, "ratio8": 3e-3}.get(codec.name, 0.01)
    closed = kernel_of(codec).guarded(constants(tolerance), m, v)
    exact = taken_back(codec, constants(tolerance), closed)
    assert len(exact.escapes) < len(closed.escapes)
    require_same(exact, by_reference(codec, m, v, exact=True, tolerance=tolerance), m, v)


def test_families_and_joint_have_no_loops() -> None:
    origins, pitches = torch.tensor([0, 65536]), torch.tensor([6000, 6000])
    m_grid, v_grid = (GridFamily(LogGrid, origins, pitches, levels, 256) for levels in (127, 255))
    assert Kernel.of(Log8(m_grid, v_grid)) is None
    single = CODECS["log8-0"]
    assert isinstance(single, Log8)
    assert Kernel.of(Joint(single.m_grid, single.v_grid)) is None
    assert Kernel.of(Ratio8(v_grid, torch.ones(2))) is None


@pytest.mark.parametrize("escapes", [0, 2])
def test_a_wrong_number_of_escapes_is_refused(escapes: int) -> None:
    codec = CODECS["lin8-1"]
    codes = codec.escape(codec.encode(torch.ones(9), torch.ones(9)), torch.arange(9) == 4)
    with pytest.raises(FormatError, match=f"1 codes stand for exact pairs, of which there are {escapes}"):
        kernel_of(codec).recovered(codes, torch.zeros(escapes, 2))


def test_a_quotient_by_a_rounded_reciprocal_is_caught() -> None:
    """Seeded: lin8's division approximated in binary32."""
    codec = Lin8(FloatGrid.spanning(-22.0, -8.0, 127), FloatGrid.spanning(-44.0, -16.0, 255))
    kernel = kernel_of(codec)
    assert isinstance(kernel._v, OnBits)
    kernel._v = kernel._v._replace(inverse=np.float64(np.nextafter(np.float32(kernel._v.inverse), np.float32(1))))
    m, v = turning_points(codec)
    assert not torch.equal(kernel.encode(m, v).v, codec.encode(m, v).v)
