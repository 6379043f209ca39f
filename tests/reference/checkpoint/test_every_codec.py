"""Compression with every codec: the claim holds everywhere, the fallback is exact, and every bit is counted."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.checkpoint.states import compressed, differences, raw, state_of
from tests.reference.guard.cases import Setting

from guarded_moments.oracle.audit import audit
from guarded_moments.reference.checkpoint import recover
from guarded_moments.reference.checkpoint.bit_rate import bit_rate, tensor_bit_rate
from guarded_moments.reference.checkpoint.encoding import encode_guarded, run_of
from guarded_moments.reference.checkpoint.file_format import to_bytes
from guarded_moments.reference.checkpoint.optimizer_state import parameters_of
from guarded_moments.reference.codecs import CODECS, GridFamily, Joint, Log8, LogGrid
from guarded_moments.reference.codecs.eight_bit import M_LEVELS, V_LEVELS, EightBit
from guarded_moments.reference.errors import UnsupportedError
from guarded_moments.reference.guard import in_domain

CHOICES = [
    *((codec, "per-tensor") for codec in CODECS),
    *((codec, grid) for codec, kind in CODECS.items() if kind.granularities for grid in ("per-row", "per-block")),
]


def plausible(rng: np.random.Generator, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Moments as after training: rows and columns of different sizes, some never touched, some odd."""
    scale = 10.0 ** (rng.uniform(-3, 0, size=shape[:1]).reshape(-1, *[1] * (len(shape) - 1)) - 3)
    gradients = rng.standard_normal((40, *shape)) * scale
    m, v = np.zeros(shape), np.zeros(shape)
    for g in gradients:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    m[-1], v[-1] = 0, 0
    moments = torch.from_numpy(m.astype(np.float32)), torch.from_numpy(v.astype(np.float32))
    odd = torch.tensor([[np.nan, 1.0], [1.0, -1.0], [-0.0, 1.0], [1e38, 1e38], [1e-3, 1e-42], [1e-42, 1e-9], [0, 1e-9]])
    for moment, values in zip(moments, odd.T, strict=True):
        moment.view(-1)[: len(odd)] = values
    return moments


@pytest.fixture(scope="module")
def native() -> dict[str, Any]:
    rng = np.random.default_rng(6)
    transposed = tuple(x.t().contiguous().t() for x in plausible(rng, 30, 20))
    return state_of(
        plausible(rng, 24, 33), plausible(rng, 700), (transposed[0], transposed[1]), plausible(rng, 8, 3, 5)
    )


@pytest.mark.parametrize(("codec", "grid"), CHOICES)
def test_the_claim_holds_and_the_rest_is_exact(native: dict[str, Any], codec: str, grid: str) -> None:
    state = compressed(native, codec=codec, grid=grid)
    found = audit(state, native)

    assert found.holds
    assert found.total("safe") > 0.3 * state.coordinates
    recovered = recover(state)
    for tensor in state.tensors:
        for name in ("exp_avg", "exp_avg_sq"):
            before, after = (x["state"][tensor.key][name] for x in (native, recovered))
            assert before.stride() == after.stride()
        pairs = [x["state"][tensor.key][name] for name in ("exp_avg", "exp_avg_sq") for x in (native, recovered)]
        exact = ~in_domain(pairs[0], pairs[2]) | ((pairs[0] == 0) & (pairs[2] == 0))
        assert int(exact.sum()) >= 4
        assert raw(pairs[0][exact]) == raw(pairs[1][exact]), "NaN payload, minus zero, and zeros"
        assert raw(pairs[2][exact]) == raw(pairs[3][exact])


@pytest.mark.parametrize("codec", CODECS)
def test_where_no_code_is_near_enough_everything_is_exact(native: dict[str, Any], codec: str) -> None:
    state = compressed(native, codec=codec, tolerance=1e-30, guard="closed")

    assert differences(recover(state), native) == []


def test_a_code_that_is_the_escape_is_escaped() -> None:
    """bfloat16's minus zero, and the most negative of a block beside a second moment that rounds to zero."""
    native = state_of(
        (torch.tensor([-1e-45, 1e-4, -1e-4]), torch.tensor([1e-7, 1e-7, 1e-7])),
        (torch.tensor([-1.0, 1.0, 0.5]), torch.tensor([1e-9, 1.0, 1.0])),
    )
    for codec in ("bf16", "blockwise8"):
        state = compressed(native, codec=codec, tolerance=1e6)  # the guard would accept anything finite
        key = 0 if codec == "bf16" else 1
        assert state.tensors[key].escaped.tolist() == [True, False, False]
        assert audit(state, native).holds
        recovered, entry = recover(state)["state"][key], native["state"][key]
        assert raw(recovered["exp_avg"][:1]) == raw(entry["exp_avg"][:1])


def test_joint_rescues_some_and_leaves_the_others_alone(rng: np.random.Generator) -> None:
    m, v = plausible(rng, 200, 200)
    case = Setting(step=41.0, tolerance=0.02).case()
    grids = LogGrid.spanning(-24, -6, M_LEVELS), LogGrid.spanning(-40, -12, V_LEVELS)
    nearest, nearest_accepted = encode_guarded(Log8(*grids), case.constants, m.flatten(), v.flatten(), exact=False)
    joint, accepted = encode_guarded(Joint(*grids), case.constants, m.flatten(), v.flatten(), exact=False)

    rescued = accepted & ~nearest_accepted
    assert bool((accepted >= nearest_accepted).all())
    assert 0 < int(rescued.sum()) < 0.01 * len(accepted)
    for before, after in zip(nearest, joint, strict=True):
        assert torch.equal(before[~rescued], after[~rescued])
        assert bool(((before.int() - after.int()).abs() <= 1).all())
    m_hat, v_hat = Joint(*grids).decode(*joint)
    assert bool(case.guard(m.flatten(), v.flatten(), m_hat, v_hat)[accepted].all())


@pytest.mark.parametrize(("codec", "grid"), CHOICES)
def test_the_bit_rate_is_the_size_of_the_file(codec: str, grid: str) -> None:
    rng = np.random.default_rng(7)
    native = state_of(plausible(rng, 300, 260), plausible(rng, 4000))
    state = compressed(native, codec=codec, grid=grid, guard="closed")
    rate = bit_rate(state)

    assert rate.total == pytest.approx(8 * len(to_bytes(state)) / state.coordinates, rel=0.01)
    assert rate.codes < 16 if codec == "entropy" else rate.codes == (32 if codec == "bf16" else 16)
    assert rate.escapes == 64 * state.escapes / state.coordinates
    assert (rate.parameters > 0) == (grid != "per-tensor" or codec in {"blockwise8", "entropy"})
    tensors = sum(tensor_bit_rate(tensor) * tensor.numel for tensor in state.tensors)
    assert tensors / state.coordinates == pytest.approx(rate.total - rate.metadata)


def test_grids_of_an_earlier_checkpoint_are_taken_where_they_suit(native: dict[str, Any]) -> None:
    earlier = compressed(native)
    other = state_of(*((e["exp_avg"] * 2, e["exp_avg_sq"] * 4) for e in native["state"].values()))
    other["state"][1] = {key: x[:600] if key != "step" else x for key, x in other["state"][1].items()}

    again = compressed(other, grids_from=earlier)

    same = [one.codec == before.codec for one, before in zip(again.tensors, earlier.tensors, strict=True)]
    assert same == [True, False, True, True], "the second has another size"
    assert audit(again, other).holds
    for codec in ("lin8", "bf16", "blockwise8", "ratio8", "entropy"):
        assert audit(compressed(other, codec=codec, grids_from=earlier), other).holds
    blocks = compressed(other, codec="blockwise8", grids_from=compressed(native, codec="blockwise8"))
    assert differences(recover(blocks), recover(compressed(other, codec="blockwise8"))) == [], "scales are the data's"


def test_runs_are_rows_in_memory_or_blocks() -> None:
    shapes = {(24, 100): 100, (24, 33): 66, (700,): None, (1, 50): None, (8, 3, 5): 75}
    for shape, row in shapes.items():
        (parameter,) = parameters_of(state_of((torch.ones(shape), torch.ones(shape))))
        assert [run_of(parameter, g) for g in ("per-tensor", "per-row", "per-block")] == [None, row, 256], shape
    (parameter,) = parameters_of(state_of((torch.ones(80, 90).t(), torch.ones(80, 90).t())))
    assert run_of(parameter, "per-row") == 90, "the slowest axis in memory counts, not the first"


def test_a_row_has_grids_of_its_own(native: dict[str, Any]) -> None:
    state = compressed(native, grid="per-row")
    for tensor, groups in zip(state.tensors, (12, None, 7, 2), strict=True):
        assert isinstance(tensor.codec, EightBit)
        grid = tensor.codec.m_grid
        assert (len(grid.origins) if isinstance(grid, GridFamily) else None) == groups


def test_choices_that_are_none_are_named(native: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"codec 'zip' is not known; there are log8, lin8"):
        compressed(native, codec="zip")
    with pytest.raises(UnsupportedError, match=r"codec bf16 has no grids to choose per-row; these have: log8, lin8"):
        compressed(native, codec="bf16", grid="per-row")
