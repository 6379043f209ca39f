"""`gmc identify`: what it refuses before it calls a kernel."""

import pytest
from tests.oracle.cli.running import gmc


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("torch.optim:AdamW", "--fused", "--foreach"), "--fused and --foreach exclude each other"),
        (("torch.optim:AdamW", "--foreach", "--tensor-lr"), "takes lr and betas as numbers"),
        (("torch.optim:AdamW", "--foreach", "--tensor-betas"), "takes lr and betas as numbers"),
        (("torch.optim:AdamW", "--seed", "-1"), "-1 is not in the range x>=0"),
        (("nope",), "expected module:callable, such as torch.optim:AdamW"),
        (("torch.optim:Nope",), "torch.optim:Nope: there is no Nope in it"),
        (("torch.optim:SGD",), "takes no betas and no eps"),
        (("math:sin", "--fused"), "is no torch.optim.Optimizer class"),
        (("torch.optim:AdamW", "--device", "nowhere"), "device 'nowhere' cannot be used"),
        (("torch.optim:AdamW", "--json", "/nonexistent/found.json"), "/nonexistent"),
    ],
)
def test_what_cannot_be_identified_is_refused_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    ran = gmc("identify", *arguments)
    assert ran.status == 2
    assert message in ran.err
    assert ran.err.count("\n") == 1
