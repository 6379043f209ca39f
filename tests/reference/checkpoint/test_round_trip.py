"""Real checkpoints through compress, file, recover and a real optimizer: bits, and the first update."""

import copy
import hashlib
import json
import math
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.checkpoint.states import (
    DATA,
    LEARNING_RATE,
    OP_MODEL,
    SAMPLES,
    compressed,
    differences,
    optimizer_for,
    sample,
    state_of,
    without_moments,
)
from torch import Tensor

from guarded_moments.reference.checkpoint import GuardedState, compress, read, recover, write
from guarded_moments.reference.checkpoint.file_format import from_bytes, to_bytes
from guarded_moments.reference.checkpoint.state import digest_of
from guarded_moments.reference.errors import CheckpointError, PlatformError
from guarded_moments.reference.implementations import IMPLEMENTATIONS, capability_of_this_machine

TOLERANCE = 0.01


@pytest.fixture
def native_kernels() -> None:
    """Skips where the op model of this machine's torch is not known."""
    try:
        capability_of_this_machine()
    except PlatformError as error:
        pytest.skip(str(error))


def choices(name: str) -> dict[str, Any]:
    return {"lr": LEARNING_RATE[name]} if name in LEARNING_RATE else {}


@pytest.mark.parametrize("name", SAMPLES)
def test_everything_but_the_guarded_moments_is_recovered_bit_for_bit(name: str) -> None:
    native = sample(name)
    state = compressed(native, **choices(name))

    recovered = recover(from_bytes(to_bytes(state)))

    kept = differences(without_moments(native, state), without_moments(recovered, state))
    assert kept == []
    for tensor in state.tensors:
        for moment in ("exp_avg", "exp_avg_sq"):
            before, after = (s["state"][tensor.key][moment] for s in (native, recovered))
            assert (before.dtype, before.shape, before.stride()) == (after.dtype, after.shape, after.stride())
    assert [list(entry) for entry in native["state"].values()] == [list(e) for e in recovered["state"].values()]


@pytest.mark.parametrize("name", SAMPLES)
def test_escapes_are_native_and_the_rest_is_close(name: str) -> None:
    native = sample(name)
    state = compressed(native, **choices(name))
    recovered = recover(state)
    for tensor in state.tensors:
        m, v, m_hat, v_hat = (
            s["state"][tensor.key][moment].reshape(-1)
            for s in (native, recovered)
            for moment in ("exp_avg", "exp_avg_sq")
        )
        escaped = tensor.escaped
        assert torch.equal(m[escaped].view(torch.int32), m_hat[escaped].view(torch.int32))
        assert torch.equal(v[escaped].view(torch.int32), v_hat[escaped].view(torch.int32))
        assert bool(torch.isclose(v, v_hat, rtol=0.5, atol=1e-24).all())  # far below eps squared
        assert sum(tensor.reasons.values()) == int(escaped.sum()) == len(tensor.escapes)
    assert state.coordinates == sum(entry["exp_avg"].numel() for entry in native["state"].values())


def test_samples_are_guarded_and_kept_as_they_should_be() -> None:
    found = {}
    for name in SAMPLES:
        state = compressed(sample(name), **choices(name))
        found[name] = (len(state.tensors), sorted({kept.because for kept in state.kept}), len(state.kept))

    assert found == {
        "plain_adam_optimizer": (4, [], 0),
        "plain_adamw_2groups_tensorlr_optimizer": (4, [], 0),
        "plain_adamw_fused": (4, [], 0),
        "plain_adamw_foreach": (4, [], 0),
        "plain_adamw_named_amsgrad": (4, [], 0),
        "plain_adamw_bf16params": (0, ["bfloat16 moments"], 4),
        "plain_adamw_unstepped": (0, [], 0),
        "old_int_step": (4, [], 0),
        "fsdp2_full_optim": (4, [], 0),
        "hf_trainer_optimizer_3_of_28": (3, [], 0),
    }


@pytest.mark.parametrize("initial", [None, 0.0, -1.0, math.nan, math.inf, "fast"])
def test_a_learning_rate_of_zero_is_refused_with_the_way_out(initial: object) -> None:
    native = sample("hf_trainer_optimizer_3_of_28")
    for group in native["param_groups"]:
        group["initial_lr"] = initial

    with pytest.raises(CheckpointError, match=r"state\[10\]: lr is 0, .*pass the learning rate") as caught:
        compressed(native)
    assert "\n" not in str(caught.value)

    assert {tensor.lr for tensor in compressed(native, lr=1e-4).tensors} == {1e-4}


@pytest.mark.parametrize("tensor", [False, True])
def test_at_a_learning_rate_of_zero_the_claim_counts_in_the_initial_one(*, tensor: bool) -> None:
    native = sample("hf_trainer_optimizer_3_of_28")
    for group in native["param_groups"]:
        group["initial_lr"] = torch.tensor(2.0**-14) if tensor else 2.0**-14

    state = compressed(native)

    assert {tensor.lr for tensor in state.tensors} == {2.0**-14}
    assert {group["lr"] for group in recover(state)["param_groups"]} == {0.0}, "the stored rate stays what it was"


def gradients(native: Tensor, bound: float, rng: np.random.Generator) -> Tensor:
    """One gradient a coordinate: anywhere within the bound, or of the size of the moment, or zero, or the bound."""
    size, count = native.shape, native.numel()
    anywhere = bound * 10.0 ** rng.uniform(-12, 0, count)
    near = np.abs(native.detach().numpy().reshape(-1)) * 10.0 ** rng.uniform(-2, 4, count)
    magnitude = np.choose(rng.integers(4, size=count), (anywhere, near, np.zeros(count), np.full(count, bound)))
    g = np.minimum(magnitude, bound) * rng.choice([-1, 1], count)
    return torch.from_numpy(g.astype(np.float32)).reshape(size)


def first_updates(state_dict: dict[str, Any], grads: dict[int | str, Tensor]) -> dict[int | str, Tensor]:
    """What a real optimizer adds to parameters that are zero; decay, if any, is zero then."""
    optimizer = optimizer_for(state_dict)
    parameters: dict[int | str, Tensor] = {}
    for saved, group in zip(state_dict["param_groups"], optimizer.param_groups, strict=True):
        parameters |= dict(zip(saved["params"], group["params"], strict=True))
    for key, gradient in grads.items():
        parameters[key].grad = gradient.clone()
    optimizer.step()
    return {key: parameters[key].detach() for key in grads}


def largest_deviation(native: dict[str, Any], state: GuardedState, rng: np.random.Generator, draws: int) -> Fraction:
    """Over many gradients, through torch, in learning rates."""
    recovered, worst = recover(state), Fraction(0)
    keys = [tensor.key for tensor in state.tensors]
    for _ in range(draws):
        grads = {key: gradients(native["state"][key]["exp_avg"], state.gradient_bound.value, rng) for key in keys}
        ours, theirs = first_updates(recovered, grads), first_updates(native, grads)
        for tensor in state.tensors:
            difference = (ours[tensor.key].double() - theirs[tensor.key].double()).abs().max()
            worst = max(worst, Fraction(float(difference)) / Fraction(tensor.lr))
    return worst


def with_learning_rate(state_dict: dict[str, Any], name: str) -> dict[str, Any]:
    """As the run that resumes will have it."""
    changed = copy.deepcopy(state_dict)
    for group in changed["param_groups"]:
        group["lr"] = LEARNING_RATE.get(name, group["lr"])
    return changed


@pytest.mark.parametrize("name", [name for name in SAMPLES if "bf16" not in name and "unstepped" not in name])
@pytest.mark.usefixtures("native_kernels")
def test_the_first_update_after_recovery_is_within_the_tolerance(
    name: str, rng: np.random.Generator, budget: int
) -> None:
    native = with_learning_rate(sample(name), name)
    state = compress(native, tolerance=TOLERANCE, grad_bound=1.0)

    worst = largest_deviation(native, state, rng, 40 * budget)

    assert 0 < worst <= Fraction(TOLERANCE), float(worst)


@pytest.mark.usefixtures("native_kernels")
def test_that_check_sees_a_coordinate_that_should_have_escaped(rng: np.random.Generator) -> None:
    """A state compressed for ten times the tolerance is beyond the smaller one."""
    native = sample("plain_adam_optimizer")
    state = compress(native, tolerance=10 * TOLERANCE, grad_bound=1.0)

    assert largest_deviation(native, state, rng, 40) > Fraction(TOLERANCE)


@pytest.mark.usefixtures("native_kernels")
@pytest.mark.parametrize("fused", [False, True])
def test_large_and_odd_shapes_through_torch(*, fused: bool, rng: np.random.Generator) -> None:
    """Several tails: 0-d, 1 element, 7, 8, 9, 1000, a matrix, and channels last where the kernel reads it right."""
    shapes: list[tuple[int, ...]] = [(), (1,), (7,), (8,), (9,), (1000,), (33, 5)]
    moments = []
    for shape in shapes:
        scale = 10.0 ** rng.uniform(-6, -2, shape)
        m, v = scale * rng.standard_normal(shape), scale**2 * rng.uniform(0.5, 2, shape)
        moments.append((torch.from_numpy(np.asarray(m)).float(), torch.from_numpy(np.asarray(v)).float()))
    if not fused:
        image = torch.from_numpy(rng.standard_normal((2, 3, 4, 5))).float().to(memory_format=torch.channels_last)
        moments.append((1e-3 * image, 1e-5 * image.square()))
    native = state_of(*moments, fused=fused)
    state = compress(native, tolerance=TOLERANCE, grad_bound=1.0)
    assert len(state.tensors) == len(moments)

    assert largest_deviation(native, state, rng, 30) <= Fraction(TOLERANCE)


def test_channels_last_comes_back_in_its_layout(rng: np.random.Generator) -> None:
    image = torch.from_numpy(rng.standard_normal((2, 3, 4, 5))).float().to(memory_format=torch.channels_last)
    transposed = torch.from_numpy(rng.standard_normal((6, 7))).float().t()
    native = state_of((1e-3 * image, 1e-5 * image.square()), (transposed, transposed.square()))
    state = compressed(native, tolerance=1e-6)  # mostly escapes: positions must match too

    recovered = recover(from_bytes(to_bytes(state)))

    assert differences(without_moments(native, state), without_moments(recovered, state)) == []
    for key in (0, 1):
        for moment in ("exp_avg", "exp_avg_sq"):
            before, after = native["state"][key][moment], recovered["state"][key][moment]
            assert before.stride() == after.stride()
            assert not before.is_contiguous()
            assert torch.equal(before.isclose(after, rtol=0.2), torch.ones_like(before, dtype=torch.bool))


@pytest.mark.parametrize("name", SAMPLES)
def test_the_file_gives_back_the_state(name: str, tmp_path: Path) -> None:
    state = compressed(sample(name), **choices(name))
    path = tmp_path / "optimizer.gmc"

    size = write(state, path)
    again = read(path)

    assert path.stat().st_size == size
    assert differences(state.skeleton, again.skeleton) == []
    assert (again.tolerance, again.gradient_bound, again.kept) == (state.tolerance, state.gradient_bound, state.kept)
    for before, after in zip(state.tensors, again.tensors, strict=True):
        for field in ("key", "where", "shape", "stride", "implementation", "next_step", "lr", "codec", "native_digest"):
            assert differences(getattr(before, field), getattr(after, field), field) == []
        for part in ("m_codes", "v_codes", "escapes"):
            assert differences(getattr(before, part), getattr(after, part), part) == []
    assert to_bytes(again) == path.read_bytes()
    assert differences(recover(state), recover(again)) == []


def test_recovering_twice_gives_the_same_and_shares_nothing() -> None:
    """An optimizer steps its tensors in place: what it loaded must not be what the file's state holds."""
    state = compressed(sample("plain_adam_optimizer"))
    first = recover(state)
    kept = copy.deepcopy(first)

    optimizer = optimizer_for(first)
    optimizer.load_state_dict(first)  # the very tensors
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()

    assert differences(first, kept) != []
    assert differences(recover(state), kept) == []


@pytest.mark.usefixtures("native_kernels")
def test_a_live_optimizer_does_not_change_what_was_compressed() -> None:
    parameters = [torch.nn.Parameter(torch.ones(20)), torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))]
    optimizer = torch.optim.AdamW(parameters)

    def step() -> None:
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()

    step()
    state = compress(optimizer.state_dict(), tolerance=TOLERANCE, grad_bound=1.0)
    before = copy.deepcopy(recover(state))
    native = copy.deepcopy(optimizer.state_dict())
    compress(optimizer.state_dict(), tolerance=TOLERANCE, grad_bound=1.0)
    assert differences(native, optimizer.state_dict()) == [], "compressing changed the optimizer"

    step()

    assert differences(recover(state), before) == []


def test_the_digest_tells_native_moments_apart() -> None:
    m, v = torch.tensor([1.0, math.nan, 0.0]), torch.tensor([1.0, 2.0, 0.0])
    digest = digest_of(m, v)
    assert digest_of(m.clone(), v.clone()) == digest

    seen = {digest, digest_of(v, m)}
    for moment in (m, v):
        for bit in range(8 * 12):
            other = moment.clone()
            other.view(torch.uint8)[bit // 8] ^= 1 << bit % 8
            seen.add(digest_of(*(other if one is moment else one for one in (m, v))))
    assert len(seen) == 2 + 2 * 8 * 12


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_every_op_model_can_be_claimed_about(implementation: str) -> None:
    native = sample("plain_adam_optimizer")

    state = compressed(native, implementation=implementation)

    assert {tensor.implementation for tensor in state.tensors} == {implementation}
    assert 0 < state.escapes < 0.2 * state.coordinates
    assert differences(recover(from_bytes(to_bytes(state))), recover(state)) == []


IN_ANOTHER_PROCESS = """
import hashlib, json, sys, torch
from pathlib import Path
from guarded_moments.reference.checkpoint import compress, load_state_dict
from guarded_moments.reference.checkpoint.file_format import to_bytes
from guarded_moments.reference.errors import GuardedMomentsError
torch.set_num_threads(int(sys.argv[3]))
states = [load_state_dict(Path(path)) for path in sys.argv[4:]]
choices = {"tolerance": 0.01, "grad_bound": 1.0, "implementation": sys.argv[1], "lr": float(sys.argv[2])}
digests = [hashlib.sha256(to_bytes(compress(state, **choices))).hexdigest() for state in states]
torch.set_flush_denormal(True)
try:
    compress(states[0], **choices)
    said = "nothing"
except GuardedMomentsError as error:
    said = f"{type(error).__name__}: {error}"
print(json.dumps({"digests": digests, "flushed": said}))
"""


@pytest.fixture(scope="module")
def elsewhere() -> list[dict[str, Any]]:
    """What two other processes, with other hash seeds and threads, make of the samples."""
    paths = [str(DATA / f"{name}.pt") for name in SAMPLES]
    done = []
    for threads in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", IN_ANOTHER_PROCESS, OP_MODEL, "5e-5", threads, *paths],
            env={**os.environ, "PYTHONHASHSEED": threads},
            check=True,
            capture_output=True,
            text=True,
        )
        done.append(json.loads(run.stdout))
    return done


def test_every_process_writes_the_same_bytes(elsewhere: list[dict[str, Any]]) -> None:
    here = [hashlib.sha256(to_bytes(compressed(sample(name), lr=5e-5))).hexdigest() for name in SAMPLES]

    assert [run["digests"] for run in elsewhere] == [here, here]


def test_flush_to_zero_is_refused(elsewhere: list[dict[str, Any]]) -> None:
    for run in elsewhere:
        assert run["flushed"].startswith("PlatformError: flush-to-zero is switched on")
