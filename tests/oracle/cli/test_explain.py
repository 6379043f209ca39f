"""`gmc explain`: what it prints is what the library found, what the file holds, and what torch computes."""

import copy
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from tests.oracle.cli.checkpoints import trained, updates
from tests.oracle.cli.conftest import Job
from tests.oracle.cli.running import CLAIM, Ran, float_of, gmc, run_well
from torch import nn

from guarded_moments.oracle.explain import Explanation, explain
from guarded_moments.reference import IMPLEMENTATIONS, Claim, GradientBound, Hyperparameters, Tolerance, read, write
from guarded_moments.reference.checkpoint.optimizer_state import StateDict
from guarded_moments.reference.codecs import Log8, LogGrid
from guarded_moments.reference.codecs.log8 import M_LEVELS, V_LEVELS
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.implementations import capability_of_this_machine

M, V = "-0x1.8p-12", "0x1.2p-22"
DEFAULTS = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, decoupled=True)
GRIDS = Log8(LogGrid.spanning(-22.0, -8.0, M_LEVELS), LogGrid.spanning(-36.0, -16.0, V_LEVELS))
VALUE = re.compile(r"-?0x[0-9a-f.]+p[+-]\d+ \[[0-9a-f]{8}\]")


class Row(NamedTuple):
    """One line of the table of operations."""

    name: str
    native: float
    recovered: float


def rows(ran: Ran) -> list[Row]:
    """The operations that were printed."""
    found = []
    for line in ran.out.splitlines():
        if re.match(r"t\d+ ", line):
            native, recovered = VALUE.findall(line)
            found.append(Row(line.split()[0], float_of(native), float_of(recovered)))
    return found


def pair(ran: Ran, label: str) -> tuple[float, float]:
    """Both moments of the native or the recovered line, whose decimal and hexadecimal notations must agree."""
    found = re.fullmatch(rf"m (\S+) = ({VALUE.pattern}), v (\S+) = ({VALUE.pattern})", ran.line(label))
    assert found is not None, ran.line(label)
    assert (float(found[1]), float(found[3])) == (float_of(found[2]), float_of(found[4]))
    return float(found[1]), float(found[3])


def gradient(ran: Ran) -> float:
    found = re.search(rf"\n +g = (\S+) = ({VALUE.pattern})\n", ran.out)
    assert found is not None, ran.out
    assert float(found[1]) == float_of(found[2])
    return float(found[1])


def moved_by_torch(ran: Ran, group: dict[str, Any], step: int, options: dict[str, Any]) -> tuple[float, float]:
    """What torch's optimizer adds to a parameter at the printed gradient, from the printed moments.

    Args:
        ran: what explain printed.
        group: hyperparameters.
        step: number of the update.
        options: of torch.optim.AdamW.
    """
    results = []
    for label in ("native", "recovered"):
        m, v = pair(ran, label)
        state_dict: StateDict = copy.deepcopy(
            torch.optim.AdamW([nn.Parameter(torch.zeros(16))], **options).state_dict()
        )
        state_dict["param_groups"][0].update(group, weight_decay=0.0)
        moments = {"exp_avg": torch.full((16,), m), "exp_avg_sq": torch.full((16,), v)}
        state_dict["state"] = {0: {"step": torch.tensor(step - 1.0), **moments}}
        moved = updates(state_dict, gradient(ran))[0]
        assert torch.equal(moved, moved[:1].expand(16)) or options.get("fused"), moved
        results.append(moved[0].item())  # in the fused kernel's body
    return results[0], results[1]


def found_by_library(tolerance: float = 0.01, grad_bound: float = 1.0, **fields: float) -> Explanation:
    implementation = f"torch-2.13-cpu-{capability_of_this_machine()}/single"
    claim = Claim(Tolerance(tolerance), GradientBound(grad_bound), implementation)
    m, v = fields.get("m", float.fromhex(M)), fields.get("v", float.fromhex(V))
    return explain(claim, DEFAULTS, 1000.0, GRIDS, m, v)


def test_what_is_printed_is_what_the_library_found() -> None:
    ran = run_well("explain", "--m", M, "--v", V, *CLAIM)

    found = found_by_library()
    assert ran.line("claim") == found.claim.sentence()
    assert ran.line("update ") == f"number 1000, step size {found.constants.step:.8g}"
    assert pair(ran, "native") == (found.m, found.v) == (float.fromhex(M), float.fromhex(V))
    assert ran.line("codes") == f"m 0x{found.m_code:02x}, v 0x{found.v_code:02x}"
    assert pair(ran, "recovered") == (found.m_hat, found.v_hat)
    assert found.terms is not None
    for name, value in zip(
        ("(1-w)|m_hat-m| H(v_hat)", "(1-w)|m| |H(v)-H(v_hat)|", "w P", "rounding of both"), found.terms, strict=True
    ):
        assert ran.line(f"            {name}") == f"{value:.8g}"
    assert ran.line("            bound") == f"{found.bound:.8g}  against 0.01: ESCAPES"
    assert ran.line("worst") == "UNSAFE: this gradient violates the claim"
    assert gradient(ran) == found.worst_gradient
    deviation = f"{found.worst_deviation:.10g} lr, bit-exact; certainly at most {found.worst_upper:.10g}"
    assert ran.line("            deviation") == deviation
    traces = zip(found.native_trace, found.recovered_trace, strict=True)
    assert rows(ran) == [Row(native.name, native.result, recovered.result) for native, recovered in traces]
    for operation in found.native_trace:
        assert re.search(rf"^{operation.name} +{re.escape(operation.formula)} ", ran.out, re.MULTILINE), operation


@pytest.mark.parametrize("path", ["single", "foreach", "fused"])
@pytest.mark.parametrize(
    ("m", "v", "options", "group"),
    [
        (M, V, (), {}),
        ("0x1.23p-10", "0x1.5p-19", ("--grad-bound", "inf"), {}),
        ("-3e-5", "2e-9", ("--step", "3"), {}),
        ("1e-3", "0", ("--tolerance", "10"), {}),
        ("2e-4", "1e-7", ("--beta1", "0.3", "--beta2", "0.9"), {"betas": (0.3, 0.9)}),
        ("2e-4", "1e-7", ("--lr", "0x1p-9", "--eps", "1e-4"), {"lr": 2.0**-9, "eps": 1e-4}),
    ],
    ids=["plain", "any gradient", "early", "zero", "betas", "lr and eps"],
)
def test_the_last_operation_is_the_update_that_torch_makes(
    path: str, m: str, v: str, options: tuple[str, ...], group: dict[str, Any]
) -> None:
    model = f"torch-2.13-cpu-{capability_of_this_machine()}/{path}"
    ran = run_well("explain", "--m", m, "--v", v, *CLAIM, "--op-model", model, *options)

    step = int(options[1]) if "--step" in options else 1000
    group = dict[str, Any](lr=1e-3, betas=(0.9, 0.999), eps=1e-8) | group
    moved = moved_by_torch(ran, group, step, {} if path == "single" else {path: True})

    last = rows(ran)[-1]
    assert (last.native.hex(), last.recovered.hex()) == (moved[0].hex(), moved[1].hex())
    worst = abs(last.recovered - last.native) / float(group["lr"])
    assert ran.line("            deviation").startswith(f"{worst:.10g} lr, bit-exact")


@pytest.mark.parametrize("name", sorted(IMPLEMENTATIONS))
def test_every_op_model_is_explained_to_the_last_bit(name: str) -> None:
    claim = Claim(Tolerance(0.01), GradientBound(1.0), name)
    found = explain(claim, DEFAULTS, 1000.0, GRIDS, float.fromhex(M), float.fromhex(V))

    ran = run_well("explain", "--m", M, "--v", V, *CLAIM, "--op-model", name)

    last = next(line for line in ran.out.splitlines() if line.startswith(found.native_trace[-1].name))
    printed = [float.fromhex(text) for text in re.findall(r"-?0x[0-9a-f.]+p[+-]\d+", last)]
    expected = [trace[-1].result for trace in (found.native_trace, found.recovered_trace)]
    assert [value.hex() for value in printed] == [value.hex() for value in expected]
    assert name in ran.line("claim")


def test_hexadecimal_and_decimal_are_the_same_value() -> None:
    in_hexadecimal = run_well(
        "explain", "--m", "0x1.8p-12", "--v", "0x1p-22", "--tolerance", "0x1p-6", "--grad-bound", "0x1p0"
    )
    in_decimal = run_well(
        "explain",
        "--m",
        "0.0003662109375",
        "--v",
        "2.384185791015625e-07",
        "--tolerance",
        "0.015625",
        "--grad-bound",
        "1",
    )

    assert in_hexadecimal == in_decimal


def test_what_is_no_binary32_value_is_rounded_and_the_result_shown() -> None:
    ran = run_well("explain", "--m", "0.1", "--v", "1e-60", *CLAIM)

    assert pair(ran, "native") == (torch.tensor(0.1).item(), 0.0)


@pytest.mark.parametrize(
    ("m", "v"),
    [
        ("nan", "1e-8"),
        ("inf", "1e-8"),
        ("1e300", "1e-8"),
        ("1e-4", "-1e-8"),
        ("1e-4", "-0.0"),
        ("-0.0", "0"),
        ("1e-4", "1e38"),
    ],
)
def test_what_the_guard_does_not_cover_is_said(m: str, v: str) -> None:
    ran = run_well("explain", "--m", m, "--v", v, *CLAIM)

    assert ran.line("guard").startswith("ESCAPES: ")
    assert "worst" not in ran.out
    assert rows(ran) == []


@pytest.mark.parametrize("guard", ["exact", "closed"])
@pytest.mark.usefixtures("here")
def test_a_file_gives_grids_hyperparameters_and_step(job: Job, guard: str) -> None:
    run_well("compress", "optimizer.pt", "guarded.gmc", *CLAIM, "--guard", guard)
    tensor = read(Path("guarded.gmc")).tensors[1]
    entry = job.state_dict["state"][tensor.key]
    m_hats, v_hats = tensor.decode()
    first = [*(~tensor.escaped).nonzero().flatten().tolist()[:5], *tensor.escaped.nonzero().flatten().tolist()[:5]]
    assert len(first) == 10
    for index in first:
        m, v = (entry[name].flatten()[index].item() for name in ("exp_avg", "exp_avg_sq"))
        ran = run_well("explain", "--m", m.hex(), "--v", v.hex(), *CLAIM, "--like", "guarded.gmc", "--tensor", 1)

        assert ran.line("update ").startswith(f"number {tensor.next_step:g}, ")
        assert pair(ran, "native") == (m, v)
        escaped = bool(tensor.escaped[index])
        by_closed_form = ran.line("            bound").endswith("ACCEPTS")
        assert by_closed_form == (not escaped) if guard == "closed" else by_closed_form <= (not escaped)
        if not escaped:
            assert ran.line("codes") == f"m 0x{tensor.m_codes[index]:02x}, v 0x{tensor.v_codes[index]:02x}"
            assert pair(ran, "recovered") == (m_hats[index].item(), v_hats[index].item())
            assert ran.line("worst").startswith("SAFE")


def test_options_override_the_file(job: Job) -> None:
    for option, value, shown in (("--step", "77", "number 77, "), ("--lr", "0.5", "number 13, step size 0.")):
        ran = run_well("explain", "--m", M, "--v", V, *CLAIM, "--like", job.compressed, option, value)

        assert ran.line("update ").startswith(shown)


@pytest.mark.parametrize("step", [8, 10])
def test_a_learning_rate_that_is_a_tensor_counts_as_one(tmp_path: Path, step: int) -> None:
    # Unfused, torch then divides it by the bias correction in binary32: another step size at these steps.
    state_dict = trained(steps=step - 1)
    for group in state_dict["param_groups"]:
        group["lr"] = torch.tensor(1e-3)
    torch.save(state_dict, tmp_path / "optimizer.pt")
    run_well("compress", tmp_path / "optimizer.pt", tmp_path / "optimizer.gmc", *CLAIM)
    m, v = (state_dict["state"][0][name][0, 0].item().hex() for name in ("exp_avg", "exp_avg_sq"))

    ran = run_well("explain", "--m", m, "--v", v, *CLAIM, "--like", tmp_path / "optimizer.gmc")

    last = rows(ran)[-1]
    moved = moved_by_torch(
        ran, {"lr": torch.tensor(1e-3), "betas": (0.9, 0.999), "eps": 1e-8}, step, {"foreach": False}
    )
    assert (last.native.hex(), last.recovered.hex()) == (moved[0].hex(), moved[1].hex())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--m", "1e-4q"), "'1e-4q' is not a number"),
        (("--m", "0x1.8p99999"), "'0x1.8p99999' is not a number"),
        (("--tolerance", "0"), "tolerance is 0.0"),
        (("--tolerance", "nan"), "tolerance is nan"),
        (("--grad-bound", "-1"), "grad-bound is -1.0"),
        (("--grad-bound", "1e30"), "above the overflow limit"),
        (("--step", "0"), "--step is 0.0"),
        (("--step", "nan"), "--step is nan"),
        (("--step", "inf"), "--step is inf"),
        (("--lr", "0"), "step size of -0.0"),
        (("--lr", "-1"), "lr is -1.0"),
        (("--lr", "nan"), "lr is nan"),
        (("--eps", "0"), "eps is 0"),
        (("--eps", "-1"), "eps is -1.0"),
        (("--beta1", "1"), "betas[0] is 1.0"),
        (("--beta2", "-0.5"), "betas[1] is -0.5"),
        (("--m-range", "nan", "0"), "--m-range is nan 0.0"),
        (("--m-range", "-8", "-22"), "--m-range is -8.0 -22.0"),
        (("--v-range", "-inf", "0"), "--v-range is -inf 0.0"),
        (("--v-range", "-8", "-8"), "--v-range is -8.0 -8.0"),
        (("--op-model", "cuda"), "op model 'cuda'"),
        (("--like", "missing.gmc"), "missing.gmc: there is no such file"),
        (("--like", "optimizer.pt"), "optimizer.pt: is no .gmc file"),
        (("--like", "optimizer.gmc", "--tensor", "4"), "optimizer.gmc: has no guarded tensor 4; it has 4"),
        (("--like", "optimizer.gmc", "--tensor", "-1"), "optimizer.gmc: has no guarded tensor -1"),
        (("--tensor", "x"), "'x' is not a valid integer"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_option_is_refused_in_one_line(here: Path, options: tuple[str, ...], says: str) -> None:
    ran = gmc("explain", "--m", M, "--v", V, *CLAIM, *options)

    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("gmc: "), ran.err
    assert ran.err.count("\n") == 1, ran.err
    assert says in ran.err


@pytest.mark.usefixtures("here")
def test_an_empty_file_has_nothing_to_explain_by(job: Job) -> None:
    write(job.state.__class__(job.state.tolerance, job.state.gradient_bound, (), (), {}), Path("empty.gmc"))

    ran = gmc("explain", "--m", M, "--v", V, *CLAIM, "--like", "empty.gmc")

    assert (ran.status, ran.err) == (2, "gmc: empty.gmc: has no guarded tensor 0; it has 0\n")


def test_bits_are_shown_of_values_of_either_sign() -> None:
    for m in (M, M.removeprefix("-")):
        ran = run_well("explain", "--m", m, "--v", V, *CLAIM)

        assert hex_of(float.fromhex(m)) in ran.line("native")
        assert len(rows(ran)) == len(found_by_library(m=float.fromhex(m)).native_trace)
