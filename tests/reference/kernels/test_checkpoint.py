"""Whole checkpoints: whichever computes them, the file and what is recovered from it are the same bytes."""

from typing import Any

import pytest
import torch
from tests.oracle.cli.running import CLAIM, run_well

from guarded_moments.reference.checkpoint import compress, guarded, recover
from guarded_moments.reference.checkpoint.comparison import first_difference
from guarded_moments.reference.checkpoint.file_format import to_bytes
from guarded_moments.reference.checkpoint.guarded import Kernels
from guarded_moments.reference.codecs import Codec
from guarded_moments.reference.kernels.codecs import Kernel

BOTH: tuple[Kernels, ...] = ("reference", "compiled")


def trained() -> dict[str, Any]:
    """A state with a tensor in another memory order and one of odd size."""
    generator = torch.Generator().manual_seed(1)
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((40, 30), (77,))]
    parameters.append(torch.nn.Parameter(torch.zeros(20, 30).t()))
    optimizer = torch.optim.AdamW(parameters)
    for _ in range(3):
        for parameter in parameters:
            parameter.grad = 1e-2 * torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return optimizer.state_dict()


@pytest.mark.parametrize("codec", ["log8", "lin8", "bf16", "joint", "ratio8"])
@pytest.mark.parametrize("guard", ["exact", "closed"])
def test_files_and_moments_are_the_same(codec: str, guard: Any) -> None:  # noqa: ANN401 - one of two words
    native, tolerance = trained(), 0.004 if codec == "ratio8" else 0.01
    by = {
        kernels: compress(native, tolerance=tolerance, grad_bound=1.0, codec=codec, guard=guard, kernels=kernels)
        for kernels in BOTH
    }
    assert to_bytes(by["compiled"]) == to_bytes(by["reference"])
    assert by["compiled"].escapes > 0 or codec == "bf16"
    theirs, ours = (recover(by["reference"], kernels=kernels) for kernels in BOTH)
    assert first_difference(theirs, ours) is None


def test_the_loops_are_used_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Codec] = []
    of = Kernel.of

    def noted(codec: Codec) -> Kernel | None:
        used.append(codec)
        return of(codec)

    monkeypatch.setattr(Kernel, "of", staticmethod(noted))
    native = trained()
    claim: dict[str, Any] = {"tolerance": 0.01, "grad_bound": 1.0, "guard": "closed"}
    recover(compress(native, **claim))
    assert not used, "a few coordinates"
    monkeypatch.setattr(guarded, "WORTH_COMPILING_ENCODE", 1)
    state = compress(native, **claim)
    assert len(used) == len(state.tensors)
    monkeypatch.setattr(guarded, "WORTH_COMPILING_DECODE", 1)
    recover(state)
    assert len(used) == 2 * len(state.tensors)


def test_the_command_line_chooses(tmp_path: Any) -> None:  # noqa: ANN401 - pytest's
    torch.save(trained(), tmp_path / "optimizer.pt")
    for name in ("reference", "compiled"):
        file = tmp_path / f"{name}.gmc"
        run_well("compress", tmp_path / "optimizer.pt", file, *CLAIM, "--implementation", name)
        run_well("recover", file, tmp_path / f"{name}.pt", "--implementation", name)
    assert (tmp_path / "compiled.gmc").read_bytes() == (tmp_path / "reference.gmc").read_bytes()
    states = [torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("reference", "compiled")]
    assert first_difference(*states) is None
