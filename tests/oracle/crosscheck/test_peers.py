"""Other packages' codecs as backends: the wrapping itself on a stand-in, and the packages where they are installed."""

import re
from pathlib import Path
from typing import final

import pytest
import torch
from tests.oracle.cli.running import gmc
from torch import Tensor

from guarded_moments.oracle.conformance import Adapted, NonConformance, Status, Trial, judge, requirement
from guarded_moments.oracle.crosscheck import ADAPTERS
from guarded_moments.oracle.crosscheck import peers as module
from guarded_moments.oracle.crosscheck.adapter import Adapter, After
from guarded_moments.oracle.crosscheck.peers import ASKED, Peer, judged, markdown, peers
from guarded_moments.oracle.crosscheck.states import State
from guarded_moments.reference.hyperparameters import Hyperparameters

PAGE = (Path(__file__).parents[3] / "docs" / "peers.md").read_text(encoding="utf-8")


@final
class Halves(Adapter):
    """A codec that keeps eleven bits of each moment, and wants whole blocks."""

    name = title = "stand-in"
    packages = ("torch",)
    block = 256

    def step(self, state: State, hyperparameters: Hyperparameters) -> After:
        """Not called."""
        raise NotImplementedError

    def round_trip(self, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Half precision, and bfloat16 of the largest."""
        assert len(m) == len(v)
        assert len(m) % 4096 == 0
        scale = v.amax().clamp(min=2.0**-126)
        return m.half().float(), (v / scale).to(torch.bfloat16).float() * scale


@pytest.mark.parametrize(("m_scale", "v_scale"), [(0.5, 1.0), (1.0, 0.01)])
def test_a_wrong_scale_is_caught_where_the_right_one_holds(m_scale: float, v_scale: float) -> None:
    required = requirement("REC-3")
    required.judge(Trial(Adapted(Peer(Halves(), "right"))))
    with pytest.raises(NonConformance, match=r"coordinate \d+: its next update is off by [\d.]+ lr"):
        required.judge(Trial(Adapted(Peer(Halves(), "wrong", m_scale, v_scale))))


def test_an_unguarded_codec_keeps_zeros_and_not_the_tolerance() -> None:
    trial = Trial(Adapted(Peer(Halves(), "stand-in")))
    assert judge(requirement("EXA-3"), trial).status is Status.HOLDS
    assert judge(requirement("REC-1"), trial).status is Status.FAILS
    assert judge(requirement("GRD-1"), trial).status is Status.NOT_CLAIMED


def test_the_page_shows_what_fails_with_its_counterexample() -> None:
    peer = Peer(Halves(), "stand-in")
    page = markdown({peer.name: judged(peer)}, "torch")
    assert "| stand-in | " in page
    assert "### stand-in, REC-1\n\n```\nafter recovery an update differs by " in page


def test_without_the_packages_it_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ADAPTERS", {name: Absent() for name in ADAPTERS})
    ran = gmc("peers")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == "gmc: neither bitsandbytes nor torchao is installed; they are in the extra 'crosscheck'\n"


@final
class Absent(Adapter):
    """A package that is not here."""

    name = title = "absent"
    packages = ("there-is-no-such-package",)

    def step(self, state: State, hyperparameters: Hyperparameters) -> After:
        """Not called."""
        raise NotImplementedError


def test_the_documented_page_has_every_peer_and_both_scales_caught() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| (.+) \|$", PAGE, re.MULTILINE))
    at = list(ASKED).index("REC-3")
    cells = {title: re.split(r"(?<!\\) \| ", row)[at] for title, row in rows.items() if title != "codec"}
    assert cells["bitsandbytes AdamW, 8 bit"] == "holds"
    changed = [cell for title, cell in cells.items() if "scale of" in title]
    assert len(changed) == 2
    assert all(cell.startswith("fails: coordinate ") for cell in changed)
    assert {title.split()[0] for title in cells} == {"bitsandbytes", "torchao"}


@pytest.mark.filterwarnings("default")
@pytest.mark.timeout(600)
def test_bitsandbytes_is_caught_with_a_wrong_scale_only() -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is in the extra `crosscheck`, which is not installed")
    required = requirement("REC-3")
    outcomes = {peer.name: judge(required, Trial(Adapted(peer))) for peer in peers() if "bitsandbytes" in peer.name}
    assert [judgement.status for judgement in outcomes.values()] == [Status.HOLDS, Status.FAILS, Status.FAILS]
