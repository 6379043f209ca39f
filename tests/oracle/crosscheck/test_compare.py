"""A comparison says which op model is followed, and finds what differs from it, down to one bit of one element."""

import math

import pytest
import torch
from tests.oracle.crosscheck.stand_ins import COUNT, StandIn, coarse, flushed

from guarded_moments.oracle.crosscheck import ADAPTERS, Measured, trained_states
from guarded_moments.oracle.crosscheck.compare import distance, effect, native_implementation
from guarded_moments.oracle.crosscheck.report import HYPERPARAMETERS, CrossCheck
from guarded_moments.reference.implementations import capability_of_this_machine
from guarded_moments.reference.op_models import SquareRoot

INFINITY, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def _one_thread(threads: None) -> None:
    """As the measurements themselves; threads that wait for each other are slow where something else runs too."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def check() -> CrossCheck:
    return CrossCheck(count=COUNT)


def measured(check: CrossCheck, adapter: object) -> Measured:
    """What was seen of an adapter that must run."""
    result = check.measure(adapter)  # type: ignore[arg-type]  # an adapter
    assert isinstance(result, Measured), result
    return result


@pytest.mark.parametrize("path", ["single", "foreach", "fused"])
def test_torch_follows_the_op_model_of_its_path_bit_for_bit(check: CrossCheck, path: str) -> None:
    result = measured(check, ADAPTERS[f"torch-{path}"])
    own = f"torch-2.13-cpu-{capability_of_this_machine()}/{path}"

    assert result.special is not None
    for comparison in (result.trained, result.special):
        assert own in comparison.followed
        assert [(q.nearest.deviating, q.nearest.largest_ulps) for q in comparison.quantities] == [(0, 0)] * 3
        assert [q.nearest.compared for q in comparison.quantities] == [4 * COUNT] * 3
        assert all(q.flushed == 0 for q in comparison.quantities)
    assert all(q.subnormal > 100 for q in result.special.quantities)


def test_the_single_path_moves_no_update_and_the_fused_one_by_roundings_only(check: CrossCheck) -> None:
    single, fused = (measured(check, ADAPTERS[f"torch-{path}"]).first_update for path in ("single", "fused"))

    assert set(single) == set(fused) == {1, 10, 400, 100_000}
    assert all(found.largest == 0 for found in single.values())
    assert all(found.largest < 1e-6 for found in fused.values())


def test_op_models_are_told_apart_on_the_trained_states(check: CrossCheck) -> None:
    """But those of single and foreach, which are one."""
    prefix = f"torch-2.13-cpu-{capability_of_this_machine()}"
    assert native_implementation().body.square_root is SquareRoot.PLATFORM

    for path, same in (("single", {"single", "foreach"}), ("fused", {"fused"})):
        followed = measured(check, ADAPTERS[f"torch-{path}"]).trained.followed
        assert {name for name in followed if name.startswith(prefix)} >= {f"{prefix}/{name}" for name in same}
        assert not any("cuda" in name or "compiled" in name for name in followed)


@pytest.mark.filterwarnings("default")  # the compiler's own
@pytest.mark.timeout(600)  # it compiles C++
@pytest.mark.parametrize("path", ["compiled", "compiled-foreach"])
def test_a_compiled_step_follows_the_op_model_of_that_compiled_step(path: str, check: CrossCheck) -> None:
    result = measured(check, ADAPTERS[f"torch-{path}"])

    assert result.special is not None
    assert result.trained.followed == result.special.followed == (f"torch-2.13-cpu-avx2/{path}",)
    # Its bias corrections are binary32: 1 - f32(beta2) is off by 1.3e-5, and the root halves that.
    assert 5e-6 < result.first_update[1].largest < 8e-6


def test_one_unit_in_one_element_is_found(check: CrossCheck) -> None:
    def change(state: torch.Tensor) -> torch.Tensor:
        state = state.clone()
        state[7] = torch.nextafter(state[7], torch.tensor(INFINITY))
        return state

    result = measured(check, StandIn(lambda after: after._replace(v=change(after.v))))
    m, v, update = result.trained.quantities

    assert result.trained.followed == ()
    assert native_implementation().name in m.followed
    assert native_implementation().name in update.followed
    assert v.followed == ()
    assert v.nearest.implementation == native_implementation().name
    assert (v.nearest.deviating, v.nearest.median_ulps, v.nearest.largest_ulps) == (4, 1, 1)  # in each of four states


def test_flushed_results_are_counted(check: CrossCheck) -> None:
    result = measured(check, StandIn(lambda after: after._replace(m=flushed(after.m), v=flushed(after.v))))

    assert result.special is not None
    m, v, update = result.special.quantities
    assert m.flushed == m.subnormal > 100
    assert v.flushed == v.subnormal > 100
    assert (update.flushed, m.nearest.unlike) == (0, 0)


def test_quantised_moments_are_compared_after_the_same_encoding(check: CrossCheck) -> None:
    result = measured(check, StandIn(codec=coarse))

    assert native_implementation().name in result.trained.followed
    assert result.special is None
    assert all(found.largest == 0 for found in result.first_update.values())


def test_units_are_counted_across_zero_and_signs_of_zero_are_bits() -> None:
    tiny = 2.0**-149
    seen = torch.tensor([1.0, 0.0, tiny, NAN, 1.0, INFINITY, NAN, 2.0])
    other = torch.tensor([1.0 + 2.0**-23, -0.0, -tiny, NAN, INFINITY, 1.0, 0.0, 2.0])

    found = distance("", seen, other)

    assert (found.compared, found.deviating, found.unlike) == (8, 6, 3)
    assert (found.median_ulps, found.largest_ulps) == (1, 2)


def test_an_effect_is_in_learning_rates_and_infinite_where_only_one_is_finite() -> None:
    native = torch.zeros(1000)
    seen = native.clone()
    seen[3], seen[4] = 2e-3, -3e-3

    found = effect(seen, native, 1e-3)
    assert [found.percentile, found.largest] == pytest.approx([2, 3])
    seen[5] = NAN
    assert effect(seen, native, 1e-3).largest == INFINITY
    assert effect(torch.tensor([NAN, INFINITY]), torch.tensor([NAN, INFINITY]), 1e-3).largest == 0


def test_states_are_those_of_the_seed_and_as_training_leaves_them() -> None:
    first, again, other = (trained_states(seed, 512) for seed in (1, 1, 2))

    assert [state.number for state in first] == [1, 10, 400, 100_000]
    for state, same, different in zip(first, again, other, strict=True):
        assert torch.equal(state.g, same.g)
        assert torch.equal(state.v, same.v)
        assert not torch.equal(state.g, different.g)
    assert not first[0].m.any()
    assert not first[0].v.any()
    assert first[1].v.any()
    assert torch.equal(first[2].m, first[3].m)
    assert HYPERPARAMETERS.weight_decay == 0
