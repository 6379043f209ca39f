"""Codes in planes: what was stored comes back, and no claim about a few bytes takes memory."""

import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.checkpoint.states import compressed, state_of
from tests.reference.checkpoint.test_file_format import refused, rewritten

from guarded_moments.reference.checkpoint import planes
from guarded_moments.reference.checkpoint.file_format import from_bytes, to_bytes
from guarded_moments.reference.checkpoint.planes import codes_of, stored
from guarded_moments.reference.codecs import Codes
from guarded_moments.reference.errors import FormatError


def codes(rng: np.random.Generator, count: int, low_bits: int, spread: float) -> torch.Tensor:
    """Around the middle, as codecs have them, and at both ends."""
    middle, top = 128 << low_bits, (256 << low_bits) - 1
    values = np.clip(np.rint(rng.normal(middle, spread, count)), 0, top).astype(np.uint16)
    values[:: max(1, count // 3)] = rng.choice([0, 1, top], len(values[:: max(1, count // 3)]))
    return torch.from_numpy(values)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(0, 70) | st.sampled_from((999, 4096)), st.integers(0, 8), st.integers(0, 8))
def test_codes_come_back(seed: int, count: int, m_bits: int, v_bits: int) -> None:
    rng = np.random.default_rng(seed)
    given_codes = Codes(codes(rng, count, m_bits, 5.0), codes(rng, count, v_bits, 60.0))

    held = stored(given_codes, (m_bits, v_bits))
    again = codes_of(held, (m_bits, v_bits), count)

    assert [part.tolist() for part in again] == [part.tolist() for part in given_codes]
    assert all(part.dtype is torch.uint8 for part in held)


def test_stretches_meet(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    given_codes = Codes(codes(rng, 1000, 3, 200.0), codes(rng, 1000, 7, 9.0))
    whole = stored(given_codes, (3, 7))
    monkeypatch.setattr(planes, "_STRETCH", 64)

    for one, other in zip(stored(given_codes, (3, 7)), whole, strict=True):
        assert torch.equal(one, other)
    again = codes_of(whole, (3, 7), 1000)
    assert [part.tolist() for part in again] == [part.tolist() for part in given_codes]


def test_the_size_is_the_entropy_of_the_leading_part_and_the_low_bits(rng: np.random.Generator) -> None:
    count, low_bits = 1 << 17, 2
    held = stored(Codes(codes(rng, count, low_bits, 70.0), codes(rng, count, low_bits, 1e-9)), (low_bits, low_bits))

    share = np.bincount(codes(np.random.default_rng(1), count, low_bits, 70.0).numpy() >> low_bits) / count
    entropy = -(share[share > 0] * np.log2(share[share > 0])).sum()
    assert 8 * len(held.m) / count == pytest.approx(entropy + low_bits, rel=0.02)
    assert 8 * len(held.v) / count == pytest.approx(1 + low_bits, rel=0.02), "Huffman's least: a bit"


def as_tensor(content: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(bytearray(content), dtype=np.uint8))


def test_what_claims_more_than_it_can_hold_is_refused_before_memory_is_taken() -> None:
    bomb = as_tensor(zlib.compress(bytes(1 << 20), 9))  # with matches: a thousandth of it
    for numel in (1 << 20, 1 << 50):
        with pytest.raises(FormatError, match="cannot hold so many"):
            codes_of(Codes(bomb, bomb), (0, 0), numel)
    with pytest.raises(FormatError, match="cannot hold so many"):
        codes_of(Codes(bomb[:3], bomb), (8, 0), 4)


@pytest.mark.parametrize("count", [63, 65, 0])
def test_more_or_fewer_codes_than_coordinates_are_refused(count: int) -> None:
    held = stored(Codes(*(torch.zeros(count, dtype=torch.int32).to(torch.uint16),) * 2), (0, 0))
    with pytest.raises((FormatError, zlib.error)):
        codes_of(held, (0, 0), 64)


def test_a_stream_that_is_none_is_refused() -> None:
    with pytest.raises(zlib.error):
        codes_of(Codes(*(torch.zeros(100, dtype=torch.uint8),) * 2), (0, 0), 64)


@pytest.fixture(scope="module")
def content() -> bytes:
    m = torch.linspace(-1e-3, 2e-3, 300).reshape(20, 15)
    return to_bytes(compressed(state_of((m, m * m)), codec="entropy"))


CHANGES = {
    "a shape beyond all memory": {"shape": [1 << 40], "stride": [1]},
    "twice the coordinates": {"shape": [600], "stride": [1]},
    "bytes of another number": {"code_bytes": [1, 1]},
    "bytes of less than none": {"code_bytes": [-5, 10]},
    "bytes of one moment": {"code_bytes": [7]},
    "bytes in words": {"code_bytes": "much"},
    "bytes of a codec that has none": {"codec": "bf16", "parameters": {}, "arrays": {}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_that_contradicts_itself_is_refused(content: bytes, change: dict[str, object]) -> None:
    assert from_bytes(content).tensors[0].codec.low_bits() is not None
    refused(rewritten(content, lambda said: said["tensors"][0].update(change)))


def test_bytes_that_are_not_said_are_refused(content: bytes) -> None:
    refused(rewritten(content, lambda said: said["tensors"][0].pop("code_bytes")))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pitch", 1001),
        ("pitch", 2),
        ("pitch", 1 << 19),
        ("pitch", 4.0),
        ("base", 1 << 40),
        ("unit", 0),
        ("low_bits", [9, 0]),
        ("low_bits", [-1, 0]),
        ("low_bits", [0]),
        ("step", 0),
        ("step", 0x7F80),
        ("step", 1 << 16),
        ("step", "one"),
    ],
)
def test_parameters_that_are_none_are_refused(content: bytes, name: str, value: object) -> None:
    refused(rewritten(content, lambda said: said["tensors"][0]["parameters"].update({name: value})))
