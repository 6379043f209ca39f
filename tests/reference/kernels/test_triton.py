"""The Triton kernels: interpreted, against the reference's bits; compiled for a GPU, by the instructions in them."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from tests.reference.kernels.inputs import any_bits, codecs, constants, trained, turning_points
from torch import Tensor

from guarded_moments.oracle.conformance import Adapted, NonConformance, Trial, requirement
from guarded_moments.reference.adam import Decay, StepOptions
from guarded_moments.reference.codecs import Codec, Codes, Escaped
from guarded_moments.reference.errors import FormatError, UnsupportedError
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.implementations import IMPLEMENTATIONS
from guarded_moments.reference.kernels.codecs import Kernel
from guarded_moments.reference.kernels.first_step import FirstStep
from guarded_moments.reference.op_models import Interpolation, OpModel, SecondMoment, SquareRoot, Update

triton: Any = pytest.importorskip("triton", reason="needs the extra triton")
tl: Any = pytest.importorskip("triton.language")

from guarded_moments.oracle.conformance.triton_backend import TritonBackend  # noqa: E402 - with the extra
from guarded_moments.reference.arithmetic import triton_operations  # noqa: E402
from guarded_moments.reference.kernels import triton_formulas, triton_kernels  # noqa: E402
from guarded_moments.reference.kernels.loops import Halves, OnBits, OnTable  # noqa: E402
from guarded_moments.reference.kernels.triton_codecs import TritonKernel  # noqa: E402
from guarded_moments.reference.kernels.triton_loops import domain, loops_for  # noqa: E402

CODECS = {f"{codec.name}-{place}": codec for place, codec in enumerate(codecs()) if codec.name != "ratio8"}
MODELS = {
    model.name: model
    for known in IMPLEMENTATIONS.values()
    for model in known.models
    if model.square_root is SquareRoot.CORRECT
}
ADAMW = StepOptions(decay=Decay.DECOUPLED)
#: A GPU's own place, or the interpreter's.
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]

pytestmark = pytest.mark.timeout(400)  # the interpreter, and compiling before it
each_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
each_device = pytest.mark.parametrize("device", DEVICES)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test makes with a changed arithmetic is not the next one's."""
    yield
    for made in (triton_formulas.make_judge, triton_formulas.make_step_at, triton_formulas.make_update_at):
        made.cache_clear()


def kernels_of(codec: Codec, device: str) -> tuple[TritonKernel, Kernel]:
    ours, loops = TritonKernel.of(codec, device), Kernel.of(codec)
    assert ours is not None
    assert loops is not None
    return ours, loops


def require_same(ours: Escaped, theirs: Escaped) -> None:
    for name, a, b in zip("mv", ours.codes, theirs.codes, strict=True):
        apart = (a.cpu().long() != b.long()).nonzero().flatten().tolist()
        assert not apart, f"{name} code {int(a[apart[0]])} at {apart[0]}, not {int(b[apart[0]])}"
    assert torch.equal(ours.escapes.cpu().view(torch.int32), theirs.escapes.view(torch.int32))


@each_device
@each_codec
def test_codes_escapes_and_moments_are_the_reference_s(codec: Codec, device: str, rng: np.random.Generator) -> None:
    """The compiled loops stand for the reference here, with which `test_codecs` compares them."""
    ours, loops = kernels_of(codec, device)
    m, v = turning_points(codec)
    for given, expected in zip(ours.encode(m.to(device), v.to(device)), loops.encode(m, v), strict=True):
        assert torch.equal(given.cpu().long(), expected.long())
    for draw, count in ((trained, 3001), (any_bits, 3001), *((trained, size) for size in (0, 1, 7, 70))):
        m, v = draw(rng, count)
        expected_pairs = loops.guarded(constants(), m, v)
        found = ours.guarded(constants(), m.to(device), v.to(device))
        require_same(found, expected_pairs)
        for a, b in zip(ours.recovered(*found), loops.recovered(*expected_pairs), strict=True):
            assert torch.equal(a.cpu().view(torch.int32), b.view(torch.int32))


@pytest.mark.parametrize("identifier", ["OPS-1", "OPS-2", "DEC-1", "ENC-1", "GRD-2", "GRD-3", "REC-4"])
def test_the_kit_s_requirements_hold(identifier: str) -> None:
    """A few of them; `pytest --oracle=triton` judges by all."""
    requirement(identifier).judge(Trial(Adapted(TritonBackend()), 1))


def test_a_negation_that_loses_the_sign_of_zero_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded: what Triton makes of `-a` is `0 - a`."""

    def negate(a: Any) -> Any:  # noqa: ANN401 - Triton's
        return -a

    monkeypatch.setattr(triton_operations, "_negate", negate)
    triton_formulas.make_update_at.cache_clear()
    with pytest.raises(NonConformance, match="zero of the other sign"):
        requirement("OPS-2").judge(Trial(Adapted(TritonBackend()), 1))


def test_what_has_no_kernels_is_refused() -> None:
    platform = IMPLEMENTATIONS["torch-2.13-cpu-avx2/single"].body
    with pytest.raises(UnsupportedError, match="vector library's, which Triton has not"):
        triton_formulas.make_update_at(platform, ADAMW, interpreted=True)
    kernel, _ = kernels_of(CODECS["lin8-1"], "cpu")
    codes = kernel.encode(torch.ones(5), torch.ones(5))
    with pytest.raises(FormatError, match="0 codes stand for exact pairs, of which there are 1"):
        kernel.recovered(codes, torch.ones(1, 2))
    scalars = IMPLEMENTATIONS["torch-2.13-cpu-avx2/fused"].models[0]
    with pytest.raises(UnsupportedError, match="amsgrad"):
        kernel.step(scalars, StepOptions(amsgrad=True), None, codes, torch.empty(0, 2), *[torch.ones(5)] * 2)  # type: ignore[arg-type]  # refused before it is read


# What follows compiles for a GPU that need not be there.

#: Of a GPU of this generation, and the lanes of a warp.
TARGET = ("cuda", 90, 32)
_FLOAT = re.compile(r"^\s*(?:@!?%p\d+\s+)?((?:[a-z]\w*)(?:\.\w+)*?\.f(?:16|32|64)(?:\.\w+)*)\s", re.MULTILINE)
_EXACT = re.compile(r"(?:abs|min|max|neg|setp\.\w+|selp|mov|ld|st|cvt\.f64)\b")
_ROUNDED = re.compile(r"(add|sub|mul|div|sqrt|fma)\.rn\.f(32|64)")
_POINTERS = {
    "m_codes_ptr": "*u8",
    "v_codes_ptr": "*u8",
    "codes_ptr": "*u8",
    "bits_ptr": "*i32",
    "m_grid_ptr": "*i32",
    "v_grid_ptr": "*i32",
    "grid_ptr": "*i32",
    "before_ptr": "*i64",
    "n": "i64",
}


_CODES = {"M_MASK": 0x7F, "V_MASK": 0xFF, "ESCAPE": 0x80}


def instructions(
    kernel: Callable[..., Any], constants: Mapping[str, Any], types: Mapping[str, str], *, contracted: bool = False
) -> Counter[str]:
    """The floating-point instructions of a kernel's machine code (PTX), which rounds as each says."""
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 - with the extra
    from triton.compiler import ASTSource  # noqa: PLC0415 - as above

    function = triton_operations.jit(kernel)
    held = {**constants, "BLOCK": 1024}
    signature = {name: "constexpr" if name in held else _POINTERS.get(name, "*fp32") for name in function.arg_names}
    source = ASTSource(function, signature | dict(types), held)
    options = {**triton_operations.OPTIONS, **({"enable_fp_fusion": True} if contracted else {})}
    compiled = triton.compile(source, target=GPUTarget(*TARGET), options=options)
    return Counter(_FLOAT.findall(compiled.asm["ptx"]))


def not_rounded_once(found: Counter[str]) -> list[str]:
    """The instructions that are neither exact nor correctly rounded: approximate, flushing, or of unsaid rounding."""
    return sorted(name for name in found if not _ROUNDED.fullmatch(name) and not _EXACT.match(name))


def fused(found: Counter[str]) -> int:
    """How many products are fused with a sum."""
    return sum(count for name, count in found.items() if name.startswith("fma"))


def fusions_of(model: OpModel, options: StepOptions) -> int:
    """Fused products of one element's step in the op model, with decoupled decay."""
    count = {Interpolation.SEPARATE: 0, Interpolation.FMA: 1, Interpolation.FMA_TWICE: 2}[model.interpolation]
    count += {SecondMoment.SEPARATE: 0, SecondMoment.SEPARATE_SQUARE: 0, SecondMoment.FMA_TWICE: 2}.get(
        model.second_moment, 1
    )
    count += model.update is Update.DIVIDE_THEN_MULTIPLY
    return count + (options.decay is Decay.DECOUPLED and "FMA" in model.decoupled_decay.name)


def of_guarded(kind: type) -> dict[str, Any]:
    loops = loops_for(kind, interpreted=False)
    judge = triton_formulas.make_judge(interpreted=False)
    return {
        "nearest": loops.nearest,
        "level": loops.level,
        "judge": judge,
        "in_domain": domain(interpreted=False),
        **_CODES,
    }


def of_step(model: OpModel) -> dict[str, Any]:
    return {
        "level": loops_for(OnBits, interpreted=False).level,
        "running": triton_operations.running_sum(interpreted=False),
        "step": triton_formulas.make_step_at(model, ADAMW, interpreted=False),
        **_CODES,
    }


@pytest.mark.parametrize("kind", [OnTable, OnBits, Halves])
def test_the_guard_s_instructions_round_correctly_and_fuse_nothing(kind: type) -> None:
    found = instructions(triton_kernels.guarded_kernel, of_guarded(kind), {"k_ptr": "*fp64"})
    assert found["div.rn.f64"] > 0
    assert found["sqrt.rn.f64"] > 0
    assert not_rounded_once(found) == []
    assert fused(found) == 0, "the guard's bound counts each rounding"


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_step_s_instructions_are_its_op_model_s(model: OpModel) -> None:
    found = instructions(triton_kernels.step_kernel, of_step(model), {})
    lanes = found["sqrt.rn.f32"]  # one root an element
    assert lanes > 0
    assert not_rounded_once(found) == []
    assert fused(found) == lanes * fusions_of(model, ADAMW)
    divisions = 1 + (model.correction.name == "DIVIDE") + (model.update is Update.DIVIDE_TWICE)
    assert found["div.rn.f32"] == lanes * divisions


def test_contraction_is_seen() -> None:
    """Seeded: the option that Triton's versions have different defaults of."""
    model = MODELS["torch-2.13-cpu-default/fused/body"]
    assert fusions_of(model, ADAMW) == 0
    assert fused(instructions(triton_kernels.step_kernel, of_step(model), {}, contracted=True)) > 0


@pytest.mark.parametrize(
    ("name", "source", "seen"),
    [("_div_binary32", "a / b", "div.full.f32"), ("_sqrt_binary32", "tl.sqrt(a)", "sqrt.approx.ftz.f32")],
)
def test_approximate_instructions_are_seen(name: str, source: str, seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded: what one writes without a second thought."""
    wrong = {"a / b": _plain_division, "tl.sqrt(a)": _plain_root}[source]
    monkeypatch.setattr(triton_operations, name, wrong)
    triton_formulas.make_step_at.cache_clear()
    found = instructions(triton_kernels.step_kernel, of_step(MODELS["torch-2.13-cpu-default/fused/body"]), {})
    assert not_rounded_once(found) == [seen]


def _plain_division(a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typed by Triton
    return a / b


def _plain_root(a):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - as above
    return tl.sqrt(a)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_step_on_a_gpu(rng: np.random.Generator) -> None:
    """With the compiled loops' step, with which `test_first_step` compares it; more than one program."""
    m, v = trained(rng, 5000)
    ours, loops = kernels_of(CODECS["log8-0"], "cuda")
    codes, escapes = loops.guarded(constants(), m, v)
    known = IMPLEMENTATIONS["torch-2.14-cuda/foreach"]
    h = Hyperparameters(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.1, decoupled=True)
    scalars, p, g = known.scalars(h, 10.0), torch.randn(5000), 1e-3 * torch.randn(5000)
    there, *given = (x.to("cuda") for x in (p, *codes, escapes, g))
    found = ours.step(known.body, h.options, scalars, Codes(*given[:2]), given[2], there, given[3])
    expected = FirstStep(loops, known, h.options, scalars)(codes, escapes, p, g)
    pairs: list[tuple[Tensor, Tensor]] = [(there, p), *zip(found, expected, strict=True)]
    for a, b in pairs:
        assert torch.equal(a.cpu().view(torch.int32), b.view(torch.int32))
