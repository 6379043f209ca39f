"""Audits of claims beyond the first update: what holds, what does not, and what is said where nothing is claimed."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.oracle.cli.checkpoints import rewritten, trained

from guarded_moments.oracle.audit import Audit, audit
from guarded_moments.reference.checkpoint import GuardedState, compress, read, write
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.claim import Horizon
from guarded_moments.reference.errors import FormatError

TOLERANCE = 0.005
TIGHT = 0.002  #: at which some coordinates are accepted for few updates alone
SMALL = 0.001  #: of a file that keeps it at the first update, and not at later ones
TEN = Horizon(10)


@pytest.fixture(scope="module")
def native() -> StateDict:
    return trained()


def compressed(native: StateDict, horizon: Horizon, **options: object) -> GuardedState:
    return compress(native, **{"tolerance": TOLERANCE, "grad_bound": math.inf, "horizon": horizon, **options})  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=[TEN, Horizon.ALL], ids=str)
def state(native: StateDict, request: pytest.FixtureRequest) -> GuardedState:
    return compressed(native, request.param)


def test_what_was_compressed_holds(state: GuardedState, native: StateDict) -> None:
    found = audit(state, native)
    assert found.holds
    assert found.total("safe") == found.coordinates - state.escapes
    assert found.total("safe") > 0
    assert found.total("needless_escapes") == 0
    assert found.afterwards.as_json()["claimed"]


def test_a_longer_horizon_escapes_more(native: StateDict) -> None:
    """With the same grids: each horizon's own suit it a little better."""
    grids = compressed(native, Horizon.FIRST, tolerance=TIGHT)
    horizons = (Horizon.FIRST, TEN, Horizon(50), Horizon.ALL)
    escapes = [compressed(native, horizon, tolerance=TIGHT, grids_from=grids).escapes for horizon in horizons]
    assert escapes == sorted(set(escapes)), escapes
    assert escapes[0] == grids.escapes


def test_a_file_that_claims_more_than_it_keeps_is_found_out(native: StateDict) -> None:
    lying = replace(compress(native, tolerance=SMALL, grad_bound=math.inf), horizon=Horizon(50))
    found = audit(lying, native)
    assert not found.holds
    assert found.total("violations") > 0
    later = [finding for finding in found.findings if finding.update > 1]
    assert later, found.findings
    for finding in later:
        assert finding.deviation is not None
        assert finding.deviation > SMALL, finding
        assert finding.as_json()["update"] == finding.update


def test_for_all_updates_what_is_not_bounded_is_no_pass(native: StateDict) -> None:
    lying = replace(compressed(native, Horizon.FIRST), horizon=Horizon.ALL)
    found = audit(lying, native)
    assert not found.holds
    assert found.total("violations") + found.total("undecided") > 0
    assert found.total("safe") + found.total("violations") + found.total("undecided") == (
        found.total("coordinates") - found.total("escapes")
    )


def test_the_last_update_comes_near_the_tolerance(native: StateDict) -> None:
    found = audit(compressed(native, TEN), native)
    assert found.closest_later is not None
    assert found.closest_later.update == 10
    assert found.closest_later.deviation is not None
    assert 0.3 * TOLERANCE < found.closest_later.deviation <= TOLERANCE


def test_later_updates_are_bounded_where_they_are_not_claimed(native: StateDict) -> None:
    found = audit(compressed(native, Horizon.FIRST), native)
    after = found.afterwards
    assert after.largest is not None
    assert after.factor is not None
    assert after.total is not None
    assert after.largest > TOLERANCE
    assert after.total < 1000 * after.largest
    assert any("one sequence of gradients" in sentence for sentence in after.sentences())
    assert not after.as_json()["claimed"]


def test_with_a_finite_bound_no_factor_follows(native: StateDict) -> None:
    found = audit(compress(native, tolerance=TOLERANCE, grad_bound=1.0), native)
    assert found.afterwards.factor is None
    assert found.afterwards.largest is not None


def test_betas_without_a_bound_say_so() -> None:
    native = trained(betas=(0.95, 0.9))
    found: Audit = audit(compressed(native, TEN), native)
    assert found.holds
    assert found.afterwards.sentences() == ["no bound for all later updates: beta1**2 is not below beta2"]


@pytest.mark.parametrize("horizon", [TEN, Horizon.ALL], ids=str)
@pytest.mark.parametrize("codec", ["bf16", "joint", "blockwise8"])
def test_every_codec_has_horizons(native: StateDict, codec: str, horizon: Horizon) -> None:
    assert audit(compressed(native, horizon, codec=codec), native).holds


def test_kernels_make_no_difference(native: StateDict) -> None:
    one, other = (compressed(native, TEN, kernels=kernels) for kernels in ("reference", "compiled"))
    for a, b in zip(one.tensors, other.tensors, strict=True):
        assert torch.equal(a.m_codes, b.m_codes)
        assert torch.equal(a.escapes, b.escapes)


def test_a_file_keeps_its_horizon(state: GuardedState, tmp_path: Path) -> None:
    path = tmp_path / "state.gmc"
    write(state, path)
    assert read(path).horizon == state.horizon


def test_a_horizon_that_its_certificate_does_not_have_is_damage(native: StateDict, tmp_path: Path) -> None:
    path = tmp_path / "state.gmc"
    write(compressed(native, Horizon.FIRST), path)
    rewritten(path, b'\\"horizon\\":\\"1\\"', b'\\"horizon\\":\\"9\\"')
    with pytest.raises(FormatError, match="certificate is not about what it holds"):
        read(path)
