"""Which op model an element follows, by its place; which implementation a machine and a param_group have."""

import pytest
import torch

from guarded_moments.reference.adam import Decay, StepOptions
from guarded_moments.reference.errors import PlatformError, UnsupportedError
from guarded_moments.reference.implementations import (
    IMPLEMENTATIONS,
    Evidence,
    Implementation,
    capability_of_this_machine,
    implementation_for,
    implementation_named,
    platform_description,
)
from guarded_moments.reference.op_models import L2Decay

PLAIN = StepOptions()
CUDA_WITH_SLOTS = implementation_named("torch-2.14-cuda-sm75-sm90/fused")


def cpu(path: str) -> Implementation:
    return implementation_named(f"torch-2.13-cpu-avx2/{path}")


@pytest.mark.parametrize(("numel", "tail"), [(0, 0), (1, 1), (7, 7), (8, 0), (9, 1), (23, 7), (100_003, 3)])
def test_the_fused_tail_is_what_fills_no_vector(numel: int, tail: int) -> None:
    for threads in (1, 2, 64):
        assigned = cpu("fused").assign(numel, PLAIN, threads)
        assert assigned.shape == (numel,)
        assert assigned.tolist() == [0] * (numel - tail) + [1] * tail


@pytest.mark.parametrize(
    ("numel", "threads", "tails"),
    [
        (0, 1, []),
        (15, 1, [(0, 15)]),
        (16, 1, []),
        (17, 4, [(16, 17)]),
        (32_767, 2, [(32_752, 32_767)]),  # too small to split
        (32_769, 2, [(16_384, 16_385)]),  # chunks of 16,385 and 16,384
        (100_003, 1, [(100_000, 100_003)]),
        (100_003, 2, [(50_000, 50_002), (100_002, 100_003)]),  # chunks of 50,002 and 50,001
        (100_003, 64, [(24_992, 25_001), (49_993, 50_002), (74_994, 75_003), (99_995, 100_003)]),  # 4 chunks
    ],
)
def test_the_unfused_tails_end_each_threads_chunk(numel: int, threads: int, tails: list[tuple[int, int]]) -> None:
    expected = torch.zeros(numel, dtype=torch.int64)
    for begin, end in tails:
        expected[begin:end] = 1
    for path in ("single", "foreach"):
        assert torch.equal(cpu(path).assign(numel, PLAIN, threads), expected)


def test_the_number_of_threads_is_torchs_unless_given(threads: None) -> None:
    for number in (1, 2):
        torch.set_num_threads(number)
        assert torch.equal(cpu("single").assign(100_003, PLAIN), cpu("single").assign(100_003, PLAIN, number))


#: Emulated from machine code, sm_75 to sm_90: which of a thread's four elements contract `g + wd*p` (F) or not (S).
SLOTS = {
    "minimize": (StepOptions(decay=Decay.L2), "SFFF"),
    "maximize": (StepOptions(decay=Decay.L2, maximize=True), "SSSS"),
    "amsgrad": (StepOptions(decay=Decay.L2, amsgrad=True), "FFFF"),
    "amsgrad and maximize": (StepOptions(decay=Decay.L2, amsgrad=True, maximize=True), "FFFF"),
    "decoupled": (StepOptions(decay=Decay.DECOUPLED), "FFFF"),
    "no decay": (PLAIN, "FFFF"),
}


@pytest.mark.parametrize(("options", "slots"), SLOTS.values(), ids=SLOTS)
def test_the_slots_of_cudas_fused_decay(options: StepOptions, slots: str) -> None:
    def contractions(numel: int) -> str:
        letters = {L2Decay.FMA: "F", L2Decay.SEPARATE: "S"}
        models = [letters[model.l2_decay] for model in CUDA_WITH_SLOTS.models]
        return "".join(models[index] for index in CUDA_WITH_SLOTS.assign(numel, options).tolist())

    assert contractions(4096) == slots * 1024, "vectorised: a thread's elements are neighbours"
    block = "".join(slot * 512 for slot in slots)
    assert contractions(2047) == block[:2047], "not vectorised: they are a block's threads apart"
    chunk = block * 32  # 65,536 elements, after which a tensor starts anew
    assert contractions(70_001) == (chunk + chunk)[:70_001]


@pytest.mark.parametrize("name", [name for name, known in IMPLEMENTATIONS.items() if len(known.models) == 1])
def test_one_op_model_is_everywhere(name: str) -> None:
    for options, _ in SLOTS.values():
        assert not IMPLEMENTATIONS[name].assign(1000, options).any()


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_the_regions_of_the_update_are_where_its_op_model_differs(name: str) -> None:
    known = IMPLEMENTATIONS[name]
    for from_end in (False, True):
        for options in (StepOptions(interpolate_from_end=from_end, decay=Decay.L2), StepOptions(from_end)):
            regions = known.update_regions(options, 1000)
            assert bool((torch.stack([mask for _, mask in regions]).sum(dim=0) == 1).all()), (
                "each element in one region"
            )
            assigned = known.assign(1000, options)
            halves = [known.update_regions(options, 1000, within) for within in (slice(0, 333), slice(333, 1000))]
            for (_, mask), *pieces in zip(regions, *halves, strict=True):
                assert torch.equal(torch.cat([piece for _, piece in pieces]), mask)
            for model, mask in regions:
                for index in assigned[mask].unique().tolist():
                    ours, theirs = known.models[index], model
                    assert ours.interpolation == theirs.interpolation
                    assert ours.second_moment == theirs.second_moment
                    assert ours.from_end == theirs.from_end or not from_end
                    assert (ours.square_root, ours.correction, ours.update) == (
                        theirs.square_root,
                        theirs.correction,
                        theirs.update,
                    )


def test_regions_are_joined_where_the_update_is_the_same() -> None:
    assert len(cpu("single").update_regions(PLAIN, 100)) == 1
    assert len(cpu("single").update_regions(StepOptions(interpolate_from_end=True), 100)) == 2
    assert len(cpu("fused").update_regions(PLAIN, 100)) == 2
    assert len(CUDA_WITH_SLOTS.update_regions(StepOptions(decay=Decay.L2), 100)) == 1


def test_every_implementation_is_found_by_its_name() -> None:
    for name, known in IMPLEMENTATIONS.items():
        assert implementation_named(name) is known
        assert known.name == name
        assert known.body is known.models[0]
        assert len(set(known.models)) == len(known.models) <= 2
        assert known.remark


def test_only_what_runs_here_is_called_measured() -> None:
    for name, known in IMPLEMENTATIONS.items():
        assert (known.evidence is Evidence.MEASURED) == ("-cpu-" in name), name


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    message = r"'torch-1.0-cpu-avx2/single' is not known.*torch-2\.13-cpu-avx2/single"
    with pytest.raises(UnsupportedError, match=message):
        implementation_named("torch-1.0-cpu-avx2/single")


@pytest.mark.parametrize(
    ("group", "path"),
    [
        ({}, "single"),
        ({"fused": None, "foreach": None}, "single"),
        ({"foreach": False, "fused": False}, "single"),
        ({"foreach": True}, "foreach"),
        ({"fused": True}, "fused"),
        ({"fused": True, "foreach": False}, "fused"),
    ],
)
def test_the_path_is_the_param_groups(group: dict[str, bool | None], path: str) -> None:
    assert implementation_for(group).name == f"torch-2.13-cpu-{capability_of_this_machine()}/{path}"


@pytest.mark.parametrize(("capability", "kernels"), [("AVX2", "avx2"), ("AVX512", "avx2"), ("DEFAULT", "default")])
def test_the_kernels_of_a_capability(capability: str, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert capability_of_this_machine() == kernels


def test_a_capability_that_nobody_measured_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "SVE256")
    with pytest.raises(PlatformError, match="SVE256 kernels, whose op sequence is not measured"):
        implementation_for({})


def test_the_platform_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    capability = torch.backends.cpu.get_cpu_capability()
    assert platform_description() == f"torch {torch.__version__}, CPU capability {capability}"
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert platform_description().endswith(" (ATEN_CPU_CAPABILITY=default)")
