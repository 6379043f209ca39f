"""Checkpoints as trainers save them: every state of an optimizer is found, and all that is beside it comes back."""

import copy
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.checkpoint.states import (
    DATA,
    LARGER_SAMPLES,
    compressed,
    differences,
    raw,
    state_of,
    without_moments,
)

from guarded_moments.reference.checkpoint import load_checkpoint, load_state_dict, parameters_of, recover
from guarded_moments.reference.checkpoint.file_format import bytes_beside, from_bytes, to_bytes, write
from guarded_moments.reference.checkpoint.layouts import apart, at, in_words, places_of, replaced, together
from guarded_moments.reference.errors import CheckpointError

ONES = (torch.ones(3), torch.ones(3))
ADAM = state_of((torch.full((5,), 1e-3), torch.full((5,), 1e-6)))
MUON = {"state": {0: {"momentum_buffer": torch.ones(2, 3)}, 1: {"momentum_buffer": torch.ones(4)}}, "param_groups": []}


def around_the_file(checkpoint: dict[str, Any]) -> dict[str, Any]:
    recovered: dict[str, Any] = recover(from_bytes(to_bytes(compressed(checkpoint))))
    return recovered


@pytest.mark.parametrize("name", LARGER_SAMPLES)
def test_a_trainers_checkpoint_comes_back_whole(name: str) -> None:
    place, native = LARGER_SAMPLES[name], load_checkpoint(DATA / name)
    state = compressed(native)

    recovered = recover(from_bytes(to_bytes(state)))

    assert places_of(native) == [place]
    assert {tensor.place for tensor in state.tensors} == {place}
    assert len(state.tensors) == 4
    assert differences(without_moments(native, state), without_moments(recovered, state)) == []
    for key in range(4):
        ours, theirs = (at(checkpoint, place)["state"][key]["exp_avg"] for checkpoint in (recovered, native))
        assert torch.allclose(ours, theirs, rtol=0.2, atol=float(theirs.abs().max()) / 50), key


@pytest.mark.parametrize("name", LARGER_SAMPLES)
def test_only_the_optimizers_state_may_be_asked_for(name: str) -> None:
    assert differences(load_state_dict(DATA / name), at(load_checkpoint(DATA / name), LARGER_SAMPLES[name])) == []


@pytest.mark.parametrize("name", LARGER_SAMPLES)
def test_the_codes_do_not_depend_on_what_is_beside(name: str) -> None:
    whole, alone = compressed(load_checkpoint(DATA / name)), compressed(load_state_dict(DATA / name))

    for one, other in zip(whole.tensors, alone.tensors, strict=True):
        for part in ("m_codes", "v_codes", "escapes"):
            assert raw(getattr(one, part)) == raw(getattr(other, part)), (one.where, part)
        assert one.where == f"{in_words(LARGER_SAMPLES[name])}.{other.where}"


def test_weights_are_kept_by_class_order_and_bits() -> None:
    weights = OrderedDict(
        b=torch.tensor([float("nan"), -0.0]).bfloat16(), a=torch.arange(6, dtype=torch.int8).view(2, 3).t()
    )
    weights._metadata = OrderedDict(version=1)  # type: ignore[attr-defined]  # as Module.state_dict leaves it
    native = {"model": weights, "optimizer": ADAM, "rng": torch.get_rng_state(), "best": -0.0, "done": (1, [None, "x"])}

    recovered = around_the_file(native)

    assert list(recovered) == list(native)
    assert type(recovered["model"]) is OrderedDict
    assert vars(recovered["model"])["_metadata"] == OrderedDict(version=1)
    for key in ("model", "rng", "best", "done"):
        assert differences(recovered[key], native[key], key) == []


def test_several_optimizers_are_compressed_each_in_its_place() -> None:
    discriminator = state_of((torch.full((7,), 1e-2), torch.full((7,), 1e-4)), lr=1e-4)
    native = {"optimizers": {"generator": ADAM, "discriminator": discriminator}, "step": 3}

    state = compressed(native)
    recovered = recover(from_bytes(to_bytes(state)))

    assert [(t.where, t.numel, t.lr) for t in state.tensors] == [
        ("optimizers['generator'].state[0]", 5, 1e-3),
        ("optimizers['discriminator'].state[0]", 7, 1e-4),
    ]
    assert state.group_of(state.tensors[1])["lr"] == 1e-4
    assert differences(without_moments(native, state), without_moments(recovered, state)) == []


def test_one_optimizer_is_not_chosen_among_several(tmp_path: Path) -> None:
    torch.save({"a": ADAM, "b": ADAM}, tmp_path / "two.pt")

    with pytest.raises(CheckpointError, match=r"two\.pt: holds the states of 2 optimizers: a, b"):
        load_state_dict(tmp_path / "two.pt")


@pytest.mark.parametrize("order", [1, -1])
def test_another_optimizer_beside_adam_is_kept_and_said(order: int) -> None:
    native = dict([("muon", MUON), ("adamw", ADAM)][::order])

    state = compressed(native)

    assert [(k.where, k.numel, k.because) for k in state.kept] == [
        ("muon.state[0]", 6, "a state of SGD with momentum, or Muon"),
        ("muon.state[1]", 4, "a state of SGD with momentum, or Muon"),
    ]
    assert state.coordinates == 15
    assert differences(recover(state)["muon"], MUON) == []


def test_optimizers_of_which_none_is_adam_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"^a: parameter 0 has no 'exp_avg': .* SGD with momentum, or Muon$"):
        compressed({"a": MUON, "b": MUON})


def test_a_damaged_adam_beside_a_whole_one_is_no_other_optimizer() -> None:
    damaged = state_of(ONES, ONES)
    del damaged["state"][1]["exp_avg_sq"]

    with pytest.raises(CheckpointError, match=r"^b: parameter 1 has no 'exp_avg_sq'"):
        compressed({"a": ADAM, "b": damaged})


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("bnb_adamw8bit", "a bitsandbytes optimizer, whose moments are quantised already"),
        ("hf_trainer_adafactor_optimizer", "Adafactor (transformers)"),
    ],
)
def test_a_state_that_is_not_adams_is_refused_by_its_name(name: str, found: str) -> None:
    with pytest.raises(CheckpointError, match="this is not a state of Adam or AdamW") as caught:
        parameters_of(load_checkpoint(DATA / f"{name}.pt"))
    assert found in str(caught.value)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("torchao_adamw8bit.pt", "torchao.optim.subclass_8bit.OptimState8bit; this is a state of a torchao optimizer"),
        ("lightning_hparam_object.ckpt", "torch.nn.modules.loss.MSELoss; where it was written, save"),
        ("lightning_fp32_weightsonly.ckpt", "there is no optimizer's state_dict (found 'epoch', 'global_step'"),
    ],
)
def test_a_file_that_cannot_be_read_safely_or_has_no_optimizer_says_what_it_has(name: str, found: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(DATA / name)
    assert found in str(caught.value)


def test_the_bytes_beside_are_counted(tmp_path: Path) -> None:
    for name, checkpoint in (("bare", ADAM), ("whole", {"optimizer": ADAM, "model": torch.randn(1000)})):
        write(compressed(checkpoint), tmp_path / f"{name}.gmc")

    assert bytes_beside(tmp_path / "bare.gmc") == 0
    assert bytes_beside(tmp_path / "whole.gmc") > 3000
    sizes = [(tmp_path / f"{name}.gmc").stat().st_size for name in ("bare", "whole")]
    assert abs(sizes[1] - bytes_beside(tmp_path / "whole.gmc") - sizes[0]) < 500


Pair = namedtuple("Pair", "left right")  # noqa: PYI024 - a plain one, as checkpoints hold

STATES = st.builds(lambda key: {"state": {key: {}}, "param_groups": []}, st.integers(0, 9))
CHECKPOINTS = st.recursive(
    STATES | st.integers() | st.text(max_size=3) | st.none(),
    lambda parts: st.one_of(
        st.dictionaries(st.text(max_size=3) | st.integers(0, 3), parts, max_size=4),
        st.lists(parts, max_size=4),
        st.tuples(parts, parts),
        st.builds(Pair, parts, parts),
        st.dictionaries(st.text(max_size=2), parts, max_size=3).map(OrderedDict),
    ),
    max_leaves=12,
)


@given(CHECKPOINTS)
def test_taking_the_states_out_and_putting_them_in_changes_nothing(checkpoint: object) -> None:
    before = copy.deepcopy(checkpoint)

    beside, states = apart(checkpoint)

    assert places_of(beside) == []
    assert all(at(checkpoint, place) is state for place, state in states)
    assert differences(together(beside, states), before) == []
    assert differences(checkpoint, before) == [], "the checkpoint itself is left as it was"


@given(CHECKPOINTS)
def test_replacing_changes_one_place_only(checkpoint: object) -> None:
    for place in places_of(checkpoint):
        changed = replaced(checkpoint, place, "here")
        assert at(changed, place) == "here"
        assert differences(replaced(changed, place, at(checkpoint, place)), checkpoint) == []
