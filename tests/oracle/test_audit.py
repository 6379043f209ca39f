"""The audit of whole files: against enumeration of every gradient, against real optimizers, and on files that lie."""

import copy
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tests.oracle.cli.checkpoints import accepted, changed, levels_up, numel, trained, updates, with_codes, with_tensor
from torch import Tensor, nn

from guarded_moments.oracle.audit import Audit, Part, PartAudit, audit, audit_part, position_of, reasons_of, whole
from guarded_moments.oracle.worst_case import decision, supremum
from guarded_moments.reference.adam import Scalars, make_update
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.checkpoint import GuardedState, compress, recover
from guarded_moments.reference.checkpoint.encoding import scalars_of
from guarded_moments.reference.checkpoint.guarded import Kernels
from guarded_moments.reference.checkpoint.optimizer_state import (
    Parameter,
    StateDict,
    in_memory_order,
    is_dense,
    parameters_of,
)
from guarded_moments.reference.checkpoint.state import GuardedTensor
from guarded_moments.reference.claim import GradientBound
from guarded_moments.reference.codecs.log8 import ESCAPE
from guarded_moments.reference.errors import CheckpointError, PlatformError
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard import in_domain, signed_cells
from guarded_moments.reference.implementations import IMPLEMENTATIONS

TOLERANCE, LR = 0.01, 1e-3
#: Its 513 magnitudes can all be tried, on every coordinate.
TINY = 2.0**-140


@pytest.fixture(scope="module")
def native() -> StateDict:
    return trained()


@pytest.fixture(scope="module")
def state(native: StateDict) -> GuardedState:
    return compress(native, tolerance=TOLERANCE, grad_bound=1.0)


@pytest.fixture(scope="module")
def result(state: GuardedState, native: StateDict) -> Audit:
    return audit(state, native)


def worst_of_all(
    name: str, parameter: Parameter, states: tuple[Tensor, ...], grad_bound: float
) -> npt.NDArray[np.float64]:
    """The largest deviation of each coordinate over every binary32 gradient within a bound, in learning rates."""
    implementation, options = IMPLEMENTATIONS[name], parameter.hyperparameters.options
    last = int(np.float32(grad_bound).view(np.int32))
    every = np.arange(last + 1, dtype=np.int32).view(np.float32)
    g = np.concatenate([every, -every])[None, :]
    op = NumpyBinary32()
    scalars = Scalars(*(op.constant(value) for value in scalars_of(parameter, implementation, LR)))
    worst = np.zeros(len(states[0]))
    assigned = implementation.assign(len(worst), options).numpy()
    for index, model in enumerate(implementation.models):
        where = assigned == index
        m, v, m_hat, v_hat = (np.repeat(moment.numpy()[where, None], g.size, axis=1) for moment in states)
        update = make_update(op, model, options)
        one, other = (update(*state, np.repeat(g, len(m), axis=0), scalars) for state in ((m, v), (m_hat, v_hat)))
        worst[where] = np.abs(other.astype(np.float64) - one.astype(np.float64)).max(axis=1, initial=0.0)
    return worst / LR


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        *((name, "reference") for name in sorted(IMPLEMENTATIONS)),
        ("torch-2.13-cpu-avx2/fused", "compiled"),
        ("torch-2.14-cuda/single", "compiled"),
    ],
)
def test_every_verdict_agrees_with_enumeration(name: str, kernels: Kernels, native: StateDict) -> None:
    encoded = compress(native, tolerance=TOLERANCE, grad_bound=TINY, implementation=name)
    for index in range(4):  # one level up: some still keep the claim, some do not
        encoded = with_codes(encoded, index, accepted(encoded, index), levels_up(1))

    found = audit(encoded, native, kernels=kernels)

    closest = 0.0
    for tensor, parameter, of_tensor in zip(encoded.tensors, parameters_of(native), found.tensors, strict=True):
        pair = (in_memory_order(parameter.m), in_memory_order(parameter.v))
        worst = worst_of_all(name, parameter, (*pair, *tensor.decode()), TINY)
        violates = np.array(
            [Fraction(deviation) * Fraction(LR) > Fraction(TOLERANCE) * Fraction(LR) for deviation in worst]
        )
        escaped = tensor.escaped.numpy()
        assert not violates[escaped].any()
        assert (of_tensor.violations, of_tensor.undecided) == (violates.sum(), 0), tensor.where
        assert of_tensor.safe == (~violates & ~escaped).sum(), tensor.where
        encodable = torch.from_numpy(escaped) & in_domain(*pair)
        instead = tensor.codec.decode(*tensor.codec.encode(*pair))
        without = worst_of_all(name, parameter, (*pair, *instead), TINY)[encodable.numpy()]
        assert of_tensor.needless_escapes == (without <= TOLERANCE).sum(), tensor.where
        largest = float(worst[~escaped].max())
        closest = max(closest, largest)
        assert largest <= of_tensor.max_deviation_upper, tensor.where
        assert of_tensor.max_deviation <= largest * (1 + 1e-15), tensor.where
    assert found.closest is not None
    assert found.closest.deviation == max(tensor.max_deviation for tensor in found.tensors)
    assert closest * (1 - 2e-4) <= max(tensor.max_deviation for tensor in found.tensors) <= closest * (1 + 1e-15)
    assert 0 < found.total("violations") < found.total("coordinates"), "both kinds occur"


def test_the_compiled_search_comes_to_the_same_result(result: Audit, state: GuardedState, native: StateDict) -> None:
    found = audit(state, native, kernels="compiled")

    for ours, theirs in zip(found.tensors, result.tensors, strict=True):
        assert ours.max_deviation == pytest.approx(theirs.max_deviation, rel=2e-4)
        assert ours.max_deviation <= ours.max_deviation_upper
        counts = [replace(audited, max_deviation=0.0, max_deviation_upper=0.0) for audited in (ours, theirs)]
        assert counts[0] == counts[1]


def test_large_files_are_searched_in_compiled_code(
    state: GuardedState, native: StateDict, monkeypatch: pytest.MonkeyPatch
) -> None:
    for worth, used in ((1, True), (state.coordinates + 1, False)):
        seen: list[bool] = []

        def noted(part: Part, seen: list[bool] = seen) -> PartAudit:
            seen.append(part.compiled)
            return audit_part(part)

        monkeypatch.setattr(whole, "WORTH_COMPILING_AUDIT", worth)
        monkeypatch.setattr(whole, "audit_part", noted)
        audit(state, native)
        assert set(seen) == {used}


def test_counts_add_up(result: Audit, state: GuardedState, native: StateDict) -> None:
    assert result.holds
    assert result.coordinates == state.coordinates == numel(native)
    for tensor in result.tensors:
        assert tensor.safe + tensor.violations + tensor.undecided + tensor.escapes == tensor.coordinates
    assert result.total("escapes") == state.escapes
    assert reasons_of(result) == {"not within tolerance": state.escapes}
    assert result.claims == [state.claim_for(state.tensors[0]).sentence()]


def test_progress_reaches_the_whole(state: GuardedState, native: StateDict) -> None:
    seen: list[tuple[int, int]] = []

    audit(state, native, lambda done, total: seen.append((done, total)))

    assert [total for _, total in seen] == [numel(native)] * len(seen)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (numel(native), numel(native))


def test_the_closest_call_is_at_its_place(result: Audit, state: GuardedState, native: StateDict) -> None:
    closest = result.closest
    assert closest is not None
    key = next(tensor.key for tensor in state.tensors if tensor.where == closest.where)
    recovered = recover(state)
    for moments, entry in (((closest.m, closest.v), native), ((closest.m_hat, closest.v_hat), recovered)):
        at = tuple(entry["state"][key][name][closest.position].item() for name in ("exp_avg", "exp_avg_sq"))
        assert at == moments
    assert closest.gradient is not None
    one, other = (updates(entry, closest.gradient)[int(key)][closest.position].item() for entry in (native, recovered))
    assert abs(other - one) / LR == pytest.approx(closest.deviation, rel=1e-15)
    data = closest.as_json()
    assert data["m"] == hex_of(closest.m)
    assert data["gradient"] == hex_of(closest.gradient)
    assert data["position"] == list(closest.position)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(()),
        torch.zeros(7),
        torch.zeros(3, 5),
        torch.zeros(5, 3).t(),
        torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.zeros(2, 3, 4).permute(2, 0, 1),
        torch.zeros(1, 4, 1, 3).transpose(1, 3),
        torch.zeros(1, 1),
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)} by {tensor.stride()}",
)
def test_a_position_is_where_the_element_lies(tensor: Tensor) -> None:
    assert is_dense(tensor.shape, tensor.stride())
    flat = in_memory_order(tensor)
    for offset in range(tensor.numel()):
        flat.zero_()
        flat[offset] = 1

        position = position_of(tensor.shape, tensor.stride(), offset)

        assert len(position) == tensor.ndim
        assert tensor[position] == 1, (offset, position)


def test_a_layout_other_than_rows_is_audited_at_the_right_places() -> None:
    parameter = nn.Parameter(torch.randn(6, 11, generator=torch.Generator().manual_seed(3)).t())
    optimizer = torch.optim.AdamW([parameter], lr=LR)
    for _ in range(5):
        parameter.grad = torch.linspace(-1, 1, 66).view(6, 11).t() * 1e-2
        optimizer.step()
    native = copy.deepcopy(optimizer.state_dict())
    encoded = compress(native, tolerance=TOLERANCE, grad_bound=1.0)
    (tensor,) = encoded.tensors
    assert tensor.stride == (1, 11)
    chosen = accepted(encoded, 0)[-1]

    found = audit(with_codes(encoded, 0, [chosen], lambda codes: codes ^ 0x80), native)

    (violation,) = found.findings
    assert native["state"][0]["exp_avg"][violation.position].item() == violation.m
    assert violation.m_hat == -violation.m or (violation.m_hat < 0) != (violation.m < 0)


def test_the_tail_of_a_fused_kernel_is_judged_by_its_own_op_model(rng: np.random.Generator) -> None:
    """Tensors too short for a vector: each finding's deviation is the real fused kernel's, to the last bit."""
    parameters = [nn.Parameter(torch.zeros(7)) for _ in range(8)]
    # With this beta2 both summands of the second moment matter, and so does which of them is rounded first.
    optimizer = torch.optim.AdamW(parameters, lr=LR, betas=(0.9, 0.6), fused=True)
    for parameter in parameters:
        parameter.grad = torch.from_numpy(rng.standard_normal(7).astype(np.float32)) * 1e-3
    optimizer.step()
    native = copy.deepcopy(optimizer.state_dict())
    for entry in native["state"].values():  # a small first moment: only a large gradient shows a wrong second one
        entry["exp_avg"] *= 1e-3
        entry["step"] += 100
    encoded = compress(native, tolerance=TOLERANCE, grad_bound=1.0)
    for index, tensor in enumerate(encoded.tensors):
        shifted = torch.where(tensor.v_codes < 128, tensor.v_codes + 20, tensor.v_codes - 20)
        encoded = with_tensor(encoded, index, v_codes=torch.where(tensor.escaped, tensor.v_codes, shifted))

    found = audit(encoded, native)

    recovered, nonzero = recover(encoded), 0
    for finding in found.findings:
        assert finding.gradient is not None
        key = next(int(tensor.key) for tensor in encoded.tensors if tensor.where == finding.where)
        one, other = (updates(entry, finding.gradient)[key][finding.position].item() for entry in (native, recovered))
        what = f"{finding.where}{finding.position}, g {hex_of(finding.gradient)}"
        assert abs(other - one) / LR == pytest.approx(finding.deviation, rel=1e-15), what
        nonzero += finding.gradient != 0
    assert nonzero == len(found.findings) == 10


def wrong_escape(tensor: GuardedTensor) -> GuardedTensor:
    escapes = tensor.escapes.clone()
    escapes.view(torch.int32)[0, 0] ^= 1
    return replace(tensor, escapes=escapes)


def sign_of_zero_lost(tensor: GuardedTensor) -> GuardedTensor:
    codes = tensor.m_codes.clone()
    codes[0] = 0
    return replace(tensor, m_codes=codes, escapes=tensor.escapes[1:])


def test_an_escape_must_be_the_native_pair(state: GuardedState, native: StateDict) -> None:
    wrong = replace(state, tensors=(wrong_escape(state.tensors[0]), *state.tensors[1:]))

    found = audit(wrong, native)

    assert (found.total("violations"), found.holds) == (1, False)
    (violation,) = found.findings
    assert (violation.gradient, violation.deviation) == (None, None)
    assert violation.as_json()["gradient"] is None


def test_a_zero_that_loses_its_sign_is_a_violation() -> None:
    def minus_zero(state_dict: StateDict) -> None:
        for moment in ("exp_avg", "exp_avg_sq"):
            state_dict["state"][0][moment][0, 0] = 0.0
        state_dict["state"][0]["exp_avg"][0, 0] = -0.0

    native = changed(trained(), minus_zero)
    encoded = compress(native, tolerance=TOLERANCE, grad_bound=1.0)
    assert encoded.tensors[0].escaped[0]

    found = audit(replace(encoded, tensors=(sign_of_zero_lost(encoded.tensors[0]), *encoded.tensors[1:])), native)

    assert found.total("violations") == 1
    assert found.findings[0].position == (0, 0)


def test_wild_codes_are_never_called_safe_wrongly(
    native: StateDict, state: GuardedState, rng: np.random.Generator
) -> None:
    """A file of random codes: whatever real steps show to deviate is among the violations."""
    tensors = []
    for tensor in state.tensors:
        codes = torch.from_numpy(rng.integers(256, size=(2, tensor.numel), dtype=np.uint8))
        codes[0][codes[0] == ESCAPE] = 1
        keep = torch.from_numpy(rng.random(tensor.numel) < 0.7)
        near = (
            torch.where(keep & ~tensor.escaped, tensor.m_codes, codes[0]),
            torch.where(keep, tensor.v_codes, codes[1]),
        )
        tensors.append(replace(tensor, m_codes=near[0], v_codes=near[1], escapes=torch.empty(0, 2)))
    wild = replace(state, tensors=tuple(tensors))

    found = audit(wild, native)

    recovered = recover(wild)
    worst = {tensor.key: torch.zeros(tensor.shape, dtype=torch.float64) for tensor in tensors}
    for exponent in range(-30, 1):
        for sign in (1.0, -1.0):
            one, other = (updates(state_dict, sign * 2.0**exponent) for state_dict in (native, recovered))
            for key, deviation in worst.items():
                new = (other[int(key)].double() - one[int(key)].double()).abs() / LR
                worst[key] = torch.maximum(deviation, new)
    for of_tensor, deviation in zip(found.tensors, worst.values(), strict=True):
        assert of_tensor.undecided == 0
        assert int((deviation > TOLERANCE).sum()) <= of_tensor.violations
        assert float(deviation.max()) <= of_tensor.max_deviation_upper
        assert of_tensor.safe + of_tensor.violations == of_tensor.coordinates
    assert len(found.findings) == 10
    for finding in found.findings:
        assert finding.deviation is not None
        assert finding.deviation > TOLERANCE


def test_the_claim_is_checked_for_the_gradients_that_the_file_states(native: StateDict) -> None:
    """A claim about more gradients than the encoder saw may be false: here only a large one shows a wrong `v`."""
    narrow = compress(native, tolerance=TOLERANCE, grad_bound=TINY)
    entry, codes = native["state"][0], narrow.tensors[0].v_codes.clone()
    ratio = (entry["exp_avg"].abs() / entry["exp_avg_sq"].sqrt()).flatten()
    chosen = int(torch.where(narrow.tensors[0].escaped, torch.inf, ratio).argmin())
    codes[chosen] = codes[chosen] + 10 if codes[chosen] < 200 else codes[chosen] - 10
    narrow = with_tensor(narrow, 0, v_codes=codes)

    assert audit(narrow, native).holds
    found = audit(replace(narrow, gradient_bound=GradientBound(1.0)), native)

    assert found.total("violations") >= 1
    violation = next(finding for finding in found.findings if finding.position == (chosen // 13, chosen % 13))
    assert violation.gradient is not None
    assert TINY < abs(violation.gradient) <= 1.0


def test_what_the_budget_leaves_is_undecided_and_does_not_hold(
    state: GuardedState, native: StateDict, result: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    upper = max(tensor.max_deviation_upper for tensor in result.tensors)
    near = replace(state, tolerance=replace(state.tolerance, value=upper))
    assert audit(near, native).holds
    for module in (signed_cells, decision):
        monkeypatch.setattr(module, "MAX_ROUNDS", 0)
    assert audit(near, native).holds, "what the decision leaves open the exact worst case settles"
    monkeypatch.setattr(supremum, "settle", lambda *_: None)

    found = audit(near, native)

    assert found.total("undecided") > 0
    assert found.total("violations") == 0
    assert not found.holds


@pytest.mark.parametrize(
    ("names", "change"),
    [
        ("state[0]['step']", lambda s: s["state"][0].update(step=s["state"][0]["step"] + 1)),
        ("state[0] (0.weight)", lambda s: s["state"][0]["exp_avg"].mul_(-1)),
        ("state[1] (2.weight)", lambda s: s["state"][1]["exp_avg_sq"].mul_(2)),
        ("param_groups[0]['lr']", lambda s: s["param_groups"][0].update(lr=2e-3)),
        ("param_groups[1]['betas'][0]", lambda s: s["param_groups"][1].update(betas=(0.8, 0.999))),
        ("param_groups[0]['maximize']", lambda s: s["param_groups"][0].update(maximize=True)),
        ("state[3]", lambda s: s["state"].pop(3)),
    ],
)
def test_another_native_checkpoint_is_refused(
    state: GuardedState, native: StateDict, names: str, change: Callable[[StateDict], object]
) -> None:
    def apply(state_dict: StateDict) -> None:
        change(state_dict)

    with pytest.raises(CheckpointError, match="not the file's own native checkpoint") as refusal:
        audit(state, changed(native, apply))

    assert names in str(refusal.value)


def test_a_skeleton_that_is_not_the_natives_is_refused(state: GuardedState, native: StateDict) -> None:
    skeleton = copy.deepcopy(state.skeleton)
    skeleton["state"][1]["step"] += 1

    with pytest.raises(CheckpointError, match=r"state\[1\]\['step'\]"):
        audit(replace(state, skeleton=skeleton), native)


@pytest.mark.parametrize("field", ["next_step", "stride", "shape", "native_digest"])
def test_a_tensors_own_record_must_agree(state: GuardedState, native: StateDict, field: str) -> None:
    others = {"next_step": 14.0, "stride": (1, 17), "shape": (13, 17), "native_digest": "0" * 16}

    with pytest.raises(CheckpointError, match=r"state\[0\] \(0.weight\)"):
        audit(with_tensor(state, 0, **{field: others[field]}), native)


def test_flush_to_zero_is_refused(state: GuardedState, native: StateDict, threads: None) -> None:
    torch.set_num_threads(1)
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush")
    try:
        with pytest.raises(PlatformError, match="flush-to-zero"):
            audit(state, native)
    finally:
        torch.set_flush_denormal(False)
