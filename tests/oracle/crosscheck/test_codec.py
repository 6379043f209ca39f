"""What an unguarded format does to the first update is what torch does from the decoded moments."""

import pytest
import torch
from tests.oracle.crosscheck.stand_ins import StandIn, coarse

from guarded_moments.oracle.crosscheck import ADAPTERS, State, trained_states
from guarded_moments.oracle.crosscheck.codec import TOLERANCE, codec_deviation
from guarded_moments.oracle.crosscheck.report import HYPERPARAMETERS

STATES = trained_states(count=1024)[1:]


@pytest.fixture(autouse=True)
def _one_thread(threads: None) -> None:
    """As the measurements themselves; threads that wait for each other are slow where something else runs too."""
    torch.set_num_threads(1)


def update(number: int, g: float, m: float, v: float) -> float:
    """By torch's own optimizer, of eight coordinates: a whole vector."""
    state = State(number, *(torch.full((16,), value) for value in (g, m, v)))
    return float(ADAPTERS["torch-single"].step(state, HYPERPARAMETERS).p[0])


@pytest.mark.parametrize("state", STATES, ids=lambda state: f"update {state.number}")
def test_the_largest_deviation_is_what_torch_does(state: State) -> None:
    found = codec_deviation(StandIn(codec=coarse), state, HYPERPARAMETERS)
    native, recovered = (
        update(state.number, found.g, m, v) for m, v in ((found.m, found.v), (found.m_hat, found.v_hat))
    )

    assert abs(recovered - native) / HYPERPARAMETERS.lr == pytest.approx(found.probed.largest, rel=1e-15)
    assert found.probed.largest > 100  # a second moment that is gone leaves eps alone below the first


def test_probing_finds_at_least_what_the_states_gradient_shows() -> None:
    found = codec_deviation(StandIn(codec=coarse), STATES[1], HYPERPARAMETERS)

    for least, most in (
        (found.own.median, found.probed.median),
        (found.own.percentile, found.probed.percentile),
        (found.own.largest, found.probed.largest),
        (found.own.beyond, found.probed.beyond),
    ):
        assert least <= most
    assert 0 < found.own.beyond < found.probed.beyond < 1
    assert TOLERANCE == 0.01


def test_a_format_that_loses_nothing_moves_nothing() -> None:
    found = codec_deviation(StandIn(codec=lambda m, v: (m, v)), STATES[0], HYPERPARAMETERS)

    assert found.own.largest == found.probed.largest == found.probed.beyond == 0
