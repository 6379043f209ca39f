"""The certificate of a square root: true of this machine's, and refused to roots with one fault each."""

import hashlib
import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.oracle.cli.running import gmc
from tests.reference.arithmetic import exact_binary32
from tests.strategies import INFINITY, NAN, SMALLEST_NORMAL, floats_of
from torch import Tensor

from guarded_moments.oracle.platform import (
    Certificate,
    RootEvidence,
    certificate_path,
    certify_root,
    keep,
    machine,
    platform_certificate,
    root,
    root_placement,
    this_machine,
)
from guarded_moments.oracle.platform.arithmetic_evidence import ArithmeticEvidence
from guarded_moments.oracle.platform.exact_root import nearest_root, root_error
from guarded_moments.oracle.platform.first_call import FirstCalls, first_calls
from guarded_moments.oracle.platform.root_placement import placement
from guarded_moments.oracle.platform.root_sweep import (
    BLOCK,
    MARGIN,
    Root,
    complete_blocks,
    quick_blocks,
    sweep,
    wrong_beyond_finite,
)
from guarded_moments.reference.floats import square_root_down, square_root_up

POSITIVE = st.one_of(
    st.integers(1, INFINITY - 1),
    st.integers(1, 2 * SMALLEST_NORMAL),
    st.integers(1, 2**12 - 1).map(lambda root: int(np.float32(root**2).view(np.uint32))),
)
#: Subnormals, the last of them and the first normals, and from 1 to beyond 2.
BLOCKS = [0, SMALLEST_NORMAL - BLOCK, SMALLEST_NORMAL, 0x3F800000, 0x3FFF0000, 0x40000000, INFINITY - BLOCK]
SQUARE = 0x40100000  #: 2.25, whose root is exact
INEXACT = 0x40000000  #: 2


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def _one_thread(threads: None) -> None:
    torch.set_num_threads(1)


def correct(values: Tensor) -> Tensor:
    """The correctly rounded root."""
    return values.double().sqrt().float()


def moved(at: int, by: int) -> Root:
    """The correctly rounded root, but for one input: its root is that many units away."""

    def faulty(values: Tensor) -> Tensor:
        bits = correct(values).view(torch.int32)
        return (bits + by * (values.view(torch.int32) == at).int()).view(torch.float32)

    return faulty


@given(POSITIVE)
def test_the_nearest_root_by_integers_is_that_of_exact_rationals(bits: int) -> None:
    assert nearest_root(bits) == exact_binary32.sqrt(float(floats_of(bits)))


def test_the_root_of_zero_is_zero() -> None:
    assert nearest_root(0) == 0


@given(POSITIVE, st.integers(-3, 3))
def test_the_error_by_integers_encloses_that_of_a_finer_root(bits: int, away: int) -> None:
    candidate = nearest_root(bits) + away
    low, high = root_error(bits, candidate)
    value, got = Fraction(float(floats_of(bits))), Fraction(float(floats_of(candidate)))
    finest, coarsest = square_root_down(value), square_root_up(value)
    unit = Fraction(2) ** (math.frexp(float(coarsest if coarsest**2 == value else finest))[1] - 24)
    assert high - low < Fraction(1, 2**80)
    assert low <= max(abs(got - finest), abs(got - coarsest)) / unit
    assert high >= min(abs(got - finest), abs(got - coarsest)) / unit
    assert (high <= Fraction(1, 2)) if away == 0 else (low >= Fraction(1, 4))


def test_the_correct_root_has_half_a_unit_of_error_and_nothing_else() -> None:
    found = sweep(correct, BLOCKS)
    values = np.concatenate([np.arange(first, first + BLOCK, dtype=np.uint32) for first in BLOCKS]).view(np.float32)
    assert (found.inputs, found.below, found.above, found.farthest, found.falls) == (len(BLOCKS) * BLOCK, 0, 0, 0, 0)
    assert found.first_off is None
    assert (found.numpy_off, found.own_off) == (0, 0)
    assert 0.4999 < found.error < 0.5 + 2 * MARGIN
    assert 0.9 < found.relative < 1
    assert found.fingerprint == hashlib.sha256(np.sqrt(values).astype("<f4").tobytes()).hexdigest()


def test_the_counts_are_those_of_a_slow_and_obvious_count() -> None:
    def faulty(values: Tensor) -> Tensor:
        bits = values.view(torch.int32)
        away = torch.where(bits % 5 == 0, -1, torch.where(bits % 7 == 0, 2, 0)) * (bits > 0)
        return (correct(values).view(torch.int32) + away.int()).view(torch.float32)

    found = sweep(faulty, [0x3F800000])
    bits = np.arange(0x3F800000, 0x3F800000 + BLOCK, dtype=np.uint32)
    values = bits.view(np.float32)
    roots = faulty(torch.from_numpy(values)).numpy()
    distance = roots.view(np.int32) - np.sqrt(values).view(np.int32)
    exact = np.sqrt(values.astype(np.longdouble))
    error = np.abs(roots.astype(np.longdouble) - exact)
    assert (found.below, found.above) == (int((distance < 0).sum()), int((distance > 0).sum()))
    assert found.first_off == bits[distance.nonzero()[0][0]]
    assert found.farthest == 2
    assert found.falls == int((np.diff(roots) < 0).sum())
    assert found.error - MARGIN == pytest.approx(float(error.max()) * 2**23, abs=MARGIN)
    assert found.error_at == bits[error.argmax()]
    assert found.relative == pytest.approx(float((error / exact).max()) * 2**24, abs=4 * MARGIN)


@pytest.mark.parametrize("at", [1, SMALLEST_NORMAL - 1, SMALLEST_NORMAL, INEXACT, INFINITY - 1])
@pytest.mark.parametrize("by", [-2, -1, 1, 2])
def test_a_single_root_that_is_off_is_found(at: int, by: int) -> None:
    block = at - at % BLOCK
    found = sweep(moved(at, by), [block])
    assert (found.below, found.above, found.farthest, found.first_off) == (int(by < 0), int(by > 0), abs(by), at)
    low, high = root_error(at, nearest_root(at) + by)
    assert found.error_at == at
    assert low <= Fraction(found.error) <= high + 2 * Fraction(MARGIN)


def test_roots_fall_across_blocks_too() -> None:
    last_of_first = INEXACT + BLOCK - 1
    assert nearest_root(last_of_first) + 2 > nearest_root(last_of_first + 1)
    assert sweep(moved(last_of_first, 2), [INEXACT, INEXACT + BLOCK]).falls == 1
    assert sweep(moved(last_of_first, 2), [INEXACT]).falls == 0


def test_all_finite_inputs_are_in_the_complete_blocks_once() -> None:
    blocks = complete_blocks()
    assert (blocks[0], blocks[-1] + BLOCK, len(blocks) * BLOCK) == (0, INFINITY, INFINITY)
    assert set(np.diff(blocks)) == {BLOCK}


def test_the_quick_blocks_are_what_they_are_said_to_be() -> None:
    blocks = set(quick_blocks())
    assert blocks == set(complete_blocks()[::64]) | {block for block in complete_blocks() if 1 <= value_of(block) < 4}


def value_of(bits: int) -> float:
    return float(floats_of(bits))


BEYOND: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "infinity": ("infinity", lambda x, y: torch.where(x == math.inf, 3.4e38, y)),
    "one NaN": ("nan", lambda x, y: torch.where(x.view(torch.int32) == NAN + 5, 1.0, y)),
    "plus for minus zero": ("minus_zero", lambda x, y: y.abs()),
    "the magnitude of negative inputs": ("negative", lambda x, y: torch.where(x < 0, (-x).sqrt(), y)),
    "negative subnormals taken for zero": ("negative", lambda x, y: torch.where((x < 0) & (x > -1e-38), 0.0, y)),
}


def test_nothing_is_wrong_beyond_the_finite_inputs(rng: np.random.Generator) -> None:
    assert not any(wrong_beyond_finite(correct, rng)[:-1])


@pytest.mark.parametrize("fault", BEYOND)
def test_a_wrong_answer_beyond_the_finite_inputs_is_found(fault: str, rng: np.random.Generator) -> None:
    field, wrongly = BEYOND[fault]
    found = wrong_beyond_finite(lambda values: wrongly(values, correct(values)), rng)
    assert [name for name in found._fields[:-1] if getattr(found, name)] == [field]


def off(values: Tensor) -> Tensor:
    """One unit above the correctly rounded root."""
    return (correct(values).view(torch.int32) + 1).view(torch.float32)


PLACES: dict[str, Root] = {
    "in the last elements of a tensor": lambda x: (
        torch.cat((correct(x[: len(x) // 8 * 8]), off(x[len(x) // 8 * 8 :]))) if x.dim() == 1 else correct(x)
    ),
    "in small tensors": lambda x: off(x) if x.numel() < 8 else correct(x),
    "at an odd address": lambda x: off(x) if x.data_ptr() % 64 == 4 else correct(x),
    "on several threads": lambda x: off(x) if torch.get_num_threads() > 1 and x.numel() > 10**5 else correct(x),
    "in strided tensors": lambda x: correct(x) if x.is_contiguous() else off(x),
    "after a special neighbour": lambda x: off(x) if x.numel() == 3 and bool(x[0] < 1) else correct(x),
}


def test_the_correct_root_is_the_same_in_every_place(rng: np.random.Generator) -> None:
    found = placement(correct, rng)
    assert (found.differing, found.first_difference) == (0, None)
    assert found.roots > 10_000_000


@pytest.mark.parametrize("fault", PLACES)
def test_a_root_that_differs_by_place_is_found(
    fault: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_placement, "_LARGE", (4095, 100_003))
    found = placement(PLACES[fault], rng)
    assert found.differing > 0
    assert found.first_difference is not None


def test_a_settled_first_call_gives_the_roots_of_later_ones() -> None:
    found = first_calls(3)
    assert (found.processes, found.settled_processes, found.settled_differing) == (3, 3, 0)


def test_importing_the_package_makes_the_first_call_on_one_element() -> None:
    program = """
import torch
calls, true_root = [], torch.Tensor.sqrt
torch.Tensor.sqrt = lambda self: (calls.append(self.numel()), true_root(self))[1]
import guarded_moments.reference
print(calls[0])
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "1\n"


def test_this_machines_root_is_close_and_monotone(compared: Counter[str]) -> None:
    found = certify_root(quick=True)
    assert found.problems == []
    assert not found.certified, "a quick look certifies nothing"
    compared["torch.sqrt with the correctly rounded root, to a unit"] += found.finite.inputs


@pytest.mark.timeout(1800)
def test_this_machines_root_is_certified_on_all_inputs(pytestconfig: pytest.Config, compared: Counter[str]) -> None:
    if pytestconfig.getoption("--oracle", default=None) is None:
        pytest.skip("all 2^31 inputs: with --oracle")
    found = certify_root()
    assert found.certified, found.problems
    compared["torch.sqrt with the correctly rounded root, to a unit"] += found.finite.inputs


@pytest.fixture(scope="module")
def evidence() -> RootEvidence:
    """Of a correct root on all inputs, as if they had run."""
    return replace(root.examine(correct, BLOCKS, processes=0), complete=True, scope=root.ALL)


def test_a_sound_root_is_certified_only_when_all_inputs_ran(evidence: RootEvidence) -> None:
    assert evidence.certified
    assert not replace(evidence, complete=False).certified


def faulty(evidence: RootEvidence, **changes: object) -> RootEvidence:
    """With some fields of the sweep changed."""
    return replace(evidence, finite=replace(evidence.finite, **changes))  # type: ignore[arg-type]


FAULTY: dict[str, Callable[[RootEvidence], RootEvidence]] = {
    "two units off": lambda e: faulty(e, farthest=2),
    "an error above what the guard allows": lambda e: faulty(e, relative=3.01),
    "a fall": lambda e: faulty(e, falls=1),
    "NumPy's root": lambda e: faulty(e, numpy_off=1),
    "the reference's root": lambda e: faulty(e, own_off=1),
    "a NaN answered": lambda e: replace(e, beyond=e.beyond._replace(nan=1)),
    "integers that disagree": lambda e: replace(e, exact_wrong=1),
    "an error that integers do not confirm": lambda e: replace(e, error_confirmed=False),
    "a root that depends on its place": lambda e: replace(e, placement=replace(e.placement, differing=1)),
    "a first call that settles nothing": lambda e: replace(e, first_calls=FirstCalls(9, 0, 0, 9, 1)),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_each_fault_alone_prevents_the_certificate(fault: str, evidence: RootEvidence) -> None:
    wrong = FAULTY[fault](evidence)
    assert len(wrong.problems) == 1
    assert not wrong.certified
    assert "NOT certified" in wrong.sentence()


def test_a_race_in_the_first_call_is_said_and_does_not_prevent_it(evidence: RootEvidence) -> None:
    """The claim is about a settled library, and importing the package settles it."""
    raced = replace(evidence, first_calls=FirstCalls(100, 1, 3878, 100, 0))
    assert raced.certified
    assert raced.sentence().endswith("the FIRST call was wrong in 1 of 100 new processes, if on two threads")
    assert "FIRST" not in evidence.sentence()


@pytest.mark.parametrize("at", [SQUARE, INEXACT])
def test_a_root_two_units_off_is_examined_and_refused(at: int) -> None:
    found = root.examine(moved(at, -2), [at], processes=0)
    assert found.problems == ["the largest distance from the correctly rounded root is more than one unit"]
    assert found.error_confirmed


ARITHMETIC = ArithmeticEvidence({"add": 7}, {"NumpyBinary32": 0}, (), 1, "MPFR", "NumPy", 0.5, 1, "2026-01-01")


@pytest.fixture
def certificate(evidence: RootEvidence) -> Certificate:
    """Of this machine, as if its root were the correct one; its spot fingerprint is this machine's."""
    return Certificate(this_machine(), replace(evidence, spot=root.spot_fingerprint()), ARITHMETIC)


def test_a_certificate_survives_json(certificate: Certificate) -> None:
    for one in (certificate, replace(certificate, arithmetic=None), replace(certificate, root=None)):
        assert Certificate.from_json(json.loads(json.dumps(one.as_json()))) == one


def test_a_certificate_is_found_where_it_was_kept(certificate: Certificate, tmp_path: Path) -> None:
    assert platform_certificate() is None
    path = keep(certificate)
    assert path == tmp_path / "state" / "guarded-moments" / f"platform-{this_machine().key}.json"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "no temporary file is left"
    assert platform_certificate() == certificate


@pytest.mark.parametrize("home", [None, "", "relative/folder"])
def test_without_a_state_folder_it_is_below_the_home(
    home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path in the variable is to be ignored, says the standard that defines it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME") if home is None else monkeypatch.setenv("XDG_STATE_HOME", home)
    assert certificate_path().parent == tmp_path / ".local" / "state" / "guarded-moments"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1}', '{"version": 2, "machine": {}}', "\xff"])
def test_a_damaged_certificate_is_none(text: str) -> None:
    path = certificate_path()
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="latin-1")
    assert platform_certificate() is None


def test_a_certificate_of_another_machine_is_none(certificate: Certificate) -> None:
    path = keep(certificate)
    data = json.loads(path.read_text())
    data["machine"]["cpu"] = "another"
    path.write_text(json.dumps(data))
    assert platform_certificate() is None


def test_a_certificate_of_another_square_root_is_none(certificate: Certificate, evidence: RootEvidence) -> None:
    """The library may choose another kernel on what it takes for another machine."""
    keep(replace(certificate, root=replace(evidence, spot="0" * 64)))
    assert platform_certificate() is None


@pytest.mark.parametrize("change", ["cpu", "capability", "torch", "library", "settings"])
def test_the_key_depends_on_all_that_may_move_bits(change: str) -> None:
    here = this_machine()
    assert replace(here, **{change: "another"}).key != here.key


def test_settings_of_the_vector_library_are_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setenv("MKL_NUM_THREADS", "2")
    assert this_machine().settings == "MKL_CBWR=COMPATIBLE"


@pytest.mark.parametrize(
    ("text", "cpu"),
    [
        (
            "vendor_id: AuthenticAMD\nmodel: 17\nmodel name: AMD EPYC\ncpu family: 25\nstepping: 1\n\nmodel: 3",
            "AuthenticAMD, AMD EPYC, family 25, model 17, stepping 1",
        ),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n", "implementer 0x41, part 0xd40"),
    ],
)
def test_a_cpu_is_named_by_all_that_linux_says_of_it(
    text: str, cpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hypervisor gives CPUs that compute differently one model name."""
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(machine, "_CPU_INFO", tmp_path / "cpuinfo")
    assert this_machine().cpu == cpu


def test_a_cpu_has_a_name_even_where_nothing_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_CPU_INFO", tmp_path / "none")
    assert this_machine().cpu


def test_a_quick_look_keeps_what_is_better(certificate: Certificate, evidence: RootEvidence) -> None:
    quick = Certificate(certificate.machine, replace(evidence, complete=False))
    assert quick.merged(None) == quick
    assert quick.merged(certificate) == certificate
    assert quick.merged(replace(certificate, root=None)) == replace(certificate, root=quick.root)
    assert certificate.merged(quick) == certificate


def test_a_finding_against_the_root_replaces_the_certificate(certificate: Certificate, evidence: RootEvidence) -> None:
    for complete in (False, True):
        bad = Certificate(certificate.machine, faulty(replace(evidence, complete=complete), falls=1))
        assert bad.merged(certificate) == replace(bad, arithmetic=certificate.arithmetic)


def test_a_mismatch_of_the_arithmetic_prevents_the_certificate(certificate: Certificate) -> None:
    assert certificate.certified
    assert not replace(certificate, arithmetic=replace(ARITHMETIC, mismatches={"NumpyBinary32": 1})).certified


def test_the_arithmetic_alone_certifies_no_root() -> None:
    assert not Certificate(this_machine(), arithmetic=ARITHMETIC).certified


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, processes: int = 0) -> tuple[int, str, str]:
    """The command, with seven blocks for all of them and less of everything else."""
    monkeypatch.setattr(root, "complete_blocks", lambda: BLOCKS)
    monkeypatch.setattr(root, "quick_blocks", lambda: BLOCKS[:2])
    monkeypatch.setattr(root, "_NEW_PROCESSES", processes)
    monkeypatch.setattr(root_placement, "_LARGE", (4095, 65_543))
    monkeypatch.setattr(root_placement, "_THREADS", (1,))
    ran = gmc("certify-platform", *arguments)
    return ran.status, ran.out, ran.err


def test_the_command_certifies_keeps_and_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = run(monkeypatch, processes=1)
    assert (status, err) == (0, "")
    assert "after one on one thread, wrong in 0 of 1\n" in out
    assert "verdict   CERTIFIED\n" in out
    kept = platform_certificate()
    assert kept is not None
    assert kept.certified
    assert kept.root is not None
    assert f"fingerprint {kept.root.finite.fingerprint}" in out
    assert f"kept      {certificate_path()}\n" in out
    assert kept.machine.cpu in out
    assert kept.arithmetic is None


def test_a_quick_look_is_never_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, _ = run(monkeypatch, "--quick")
    assert status == 1
    assert "verdict   NOT CERTIFIED: not every input ran\n" in out
    assert root.QUICK in out
    kept = platform_certificate()
    assert kept is not None
    assert not kept.certified


def test_a_quick_look_after_a_full_run_leaves_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch)
    assert run(monkeypatch, "--quick")[0] == 1
    kept = platform_certificate()
    assert kept is not None
    assert kept.certified


def test_the_command_compares_arithmetic_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gmpy2")
    status, out, _ = run(monkeypatch, "--arithmetic", "--count", "1000", "--seed", "4", "--processes", "1")
    assert status == 0
    assert "1,000 cases of add, sub, mul, div, fma" in out
    kept = platform_certificate()
    assert kept is not None
    assert kept.arithmetic is not None
    assert (kept.arithmetic.total, kept.arithmetic.seed, kept.arithmetic.differing) == (1000, 4, 0)


def test_the_command_says_so_when_a_root_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(_: Root, blocks: list[int], **options: object) -> RootEvidence:
        return true_examine(moved(0x3F800000, 5), blocks, processes=0)

    true_examine = root.examine
    monkeypatch.setattr(root, "examine", examine)
    status, out, _ = run(monkeypatch)
    assert status == 1
    assert "verdict   NOT CERTIFIED: the largest distance" in out
    assert "largest error: 5 ulp" in out
