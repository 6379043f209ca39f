"""Damaged files: every byte, every length; and files whose digest was put right after damage, as an attacker would."""

import hashlib
import random
import re
import time
import zlib
from collections import Counter
from pathlib import Path

import pytest
import torch
from tests.reference.checkpoint.states import compressed, state_of

from guarded_moments.reference.checkpoint import GuardedState, file_format, read, recover, write
from guarded_moments.reference.errors import FormatError, GuardedMomentsError


@pytest.fixture(scope="module")
def state() -> GuardedState:
    """A little of everything: guarded, escaped, kept, and something beside."""
    moments = torch.tensor([1e-4, float("nan"), -2e-4, 0.0, -0.0, 3e-5])
    native = state_of((moments, moments.abs()), (torch.ones(2).bfloat16(), torch.ones(2).bfloat16()))
    return compressed({"optimizer": native, "model": {"w": torch.arange(5.0)}})


def test_every_byte_flipped_and_every_length_is_noticed(
    state: GuardedState, tmp_path: Path, tried: Counter[str]
) -> None:
    path = tmp_path / "optimizer.gmc"
    write(state, path)
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(FormatError):
            read(path)
        tried["bytes flipped"] += 1
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(FormatError):
            read(path)
        tried["lengths cut to"] += 1


def with_right_digest(content: bytes) -> bytes:
    """The content with the digest that is right for it, if it still has one."""
    stated = re.search(rb'sha256\\":\\"([0-9a-f]{64})', content)
    if stated is None:
        return content
    blank = content[: stated.start(1)] + b"0" * 64 + content[stated.end(1) :]
    return content[: stated.start(1)] + hashlib.sha256(blank).hexdigest().encode() + content[stated.end(1) :]


def mutated(content: bytes, choose: random.Random) -> bytes:
    """Some bytes changed, digits of the header most of all; or a part of it that is compressed, unpacked first."""
    damaged = bytearray(content)
    header = 8 + int.from_bytes(content[:8], "little")
    for _ in range(choose.choice((1, 1, 2, 5))):
        kind = choose.randrange(3)
        if kind == 0:
            damaged[choose.randrange(8, header)] = choose.choice(b'0123456789-.,:[]{}"aeFU')
        elif kind == 1:
            damaged[choose.randrange(header, len(damaged))] ^= 1 << choose.randrange(8)
        else:
            streams = [m.start() for m in re.finditer(b"\x78[\x01\xda]", bytes(damaged[header:]))]
            begin = header + choose.choice(streams or [0])
            try:
                unzipper = zlib.decompressobj()
                inner = bytearray(unzipper.decompress(bytes(damaged[begin:])))
                end = len(damaged) - len(unzipper.unused_data)
                inner[choose.randrange(len(inner))] = choose.choice(b'0123456789-.,:[]{}"ae\x80\xff')
                packed = zlib.compress(bytes(inner), 9)
                if len(packed) == end - begin:  # the header's sizes still hold
                    damaged[begin:end] = packed
            except (zlib.error, ValueError):
                continue
    return with_right_digest(bytes(damaged))


@pytest.mark.timeout(200)
def test_files_damaged_before_their_digest_was_taken_never_do_more_than_raise(
    state: GuardedState, tried: Counter[str], seed: int, budget: int
) -> None:
    """They may be files of another state; but nothing hangs, runs, or fails in any other way than by saying so."""
    content, choose = file_format.to_bytes(state), random.Random(seed)  # noqa: S311 - no secret
    until = time.monotonic() + (2 if budget == 1 else 90)
    accepted = 0
    while time.monotonic() < until:
        damaged = mutated(content, choose)
        try:
            recover(file_format.from_bytes(damaged))
            accepted += 1
        except GuardedMomentsError:
            pass
        tried["files with a right digest over damage"] += 1
    assert accepted > 0, "the digest was never right"
