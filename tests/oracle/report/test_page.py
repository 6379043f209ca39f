"""The page as bytes: one file without scripts or requests, names escaped, small, the same for the same facts."""

import copy
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.oracle.cli.running import contents, gmc
from tests.oracle.report.conftest import HOSTILE, Reported, earlier_report, report

from guarded_moments.oracle.cli import audit_report
from guarded_moments.oracle.report import Evidence, difference, page
from guarded_moments.oracle.report.difference import SHOWN
from guarded_moments.oracle.report.facts import VERSION
from guarded_moments.oracle.report.page import ROWS, visible
from guarded_moments.reference.errors import CheckpointError

LIMIT = 300_000  #: bytes
VOID = {"meta", "link", "br"}
SECTIONS = (
    "The claim",
    "Verdict",
    "What is assumed, and who checked it",
    "What is not covered",
    "Trusted base",
    "From the claim to the evidence",
    "Lemmas",
    "Tensors",
    "Distributions",
    "The 10 coordinates nearest the tolerance",
    "Run it again",
)


class Read(HTMLParser):
    """Elements, attributes and text of a page; that every element is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.headings: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """The beginning of an element."""
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "h2":
            self.headings.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element that is closed at once."""
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        """The end of the innermost."""
        assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        """Text, all of it and that of headings."""
        self.text += data
        if self._open and self._open[-1] == "h2":
            self.headings[-1] += data


def harmless(text: str) -> Read:
    """A page that runs nothing and asks for nothing, read."""
    found = Read(text)
    assert not {"script", "img", "iframe", "object", "embed", "base", "form", "i"} & set(found.tags)
    assert [name for name, _ in found.attributes if name.startswith("on")] == []
    targets = {value for name, value in found.attributes if name in {"href", "src", "action", "data", "srcset"}}
    assert all(target.startswith("#") or target == "data:," for target in targets), targets
    identifiers = [value for name, value in found.attributes if name == "id"]
    assert len(identifiers) == len(set(identifiers))
    assert {target[1:] for target in targets if target.startswith("#")} <= set(identifiers)
    assert not re.search(r"url\(|@import", text)
    return found


def test_the_page_runs_nothing_asks_for_nothing_and_has_all_sections_in_order(reported: Reported) -> None:
    found = harmless(reported.page)

    assert tuple(found.headings) == SECTIONS
    assert "default-src 'none'" in reported.page
    assert len(reported.page.encode()) < LIMIT


def test_every_name_of_the_checkpoint_is_shown_escaped(reported: Reported) -> None:
    found = Read(reported.page)

    assert "<script>alert(1)</script>" in found.text
    assert '"><img src=x onerror=alert(2)>' in found.text
    assert "{{ 7*7 }}&amp;\\u{202e}gnp.exe\\u{a}next" in found.text
    assert "half \\u{d800} of a pair" in found.text
    assert "<script" not in reported.page
    assert "\u202e" not in reported.page
    assert {row["where"].split("(", 1)[1][:-1] for row in reported.facts["tensors"]["shown"]} == set(HOSTILE)


def test_what_cannot_be_seen_becomes_visible() -> None:
    assert visible("a\x00\u200b\u202e\u2066é<") == "a\\u{0}\\u{200b}\\u{202e}\\u{2066}é<"


def test_the_same_facts_give_the_same_bytes_and_so_do_two_runs(
    reported: Reported, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_report, "evidence", lambda: evidence)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    before = {name: content for name, content in contents(reported.folder).items() if name.startswith("report")}
    command = reported.facts["run"]["command"]
    report(reported.folder, "--force")
    after = {name: content for name, content in contents(reported.folder).items() if name.startswith("report")}

    assert page(reported.facts) == page(copy.deepcopy(reported.facts))
    forced = f"{command} --force".encode()
    assert {name: content.replace(forced, command.encode()) for name, content in after.items()} == before


def test_the_time_is_in_the_page_unless_two_runs_must_be_equal(reported: Reported) -> None:
    timed = copy.deepcopy(reported.facts)
    timed["run"]["seconds"] = 12.34

    assert reported.facts["run"]["seconds"] is None
    assert "Took 12.3 s" in page(timed)


def test_a_checkpoint_of_many_long_names_still_fits(reported: Reported) -> None:
    large: dict[str, Any] = copy.deepcopy(reported.facts)
    rows = large["tensors"]["shown"]
    large["tensors"] = {"of": 90_000, "shown": [{**rows[0], "where": "<\u202e" * 5000} for _ in range(100)]}
    for row in large["nearest"]:
        row["where"] = "<\u202e" * 5000
    large["verdict"]["violations_shown"] = [{**row} for row in large["nearest"]]
    large["run"]["notes"] = ["lr        0.1, as given"] * 5000
    large["trusted_base"]["files"] *= 2000
    earlier = copy.deepcopy(large)
    for place, row in enumerate(earlier["tensors"]["shown"]):
        row["where"] = f"{place}" + "<" * 5000
    text = page(large, difference(earlier, large))

    assert f"{ROWS} of 90,000 guarded tensors" in text
    assert f"tensors: {SHOWN} of 101 changes" in text
    harmless(text)
    assert len(text.encode()) < LIMIT


def test_a_verdict_that_does_not_hold_is_the_first_thing_said(reported: Reported) -> None:
    failing = copy.deepcopy(reported.facts)
    failing["verdict"]["word"] = "DOES NOT HOLD"
    text = page(failing)

    assert "<h1>The claim does not hold</h1>" in text
    assert "<title>DOES NOT HOLD: audit of optimizer.gmc</title>" in text


def test_the_difference_view_shows_what_changed(reported: Reported, tmp_path: Path) -> None:
    earlier = earlier_report(reported.facts, tmp_path / "earlier.json")
    changes = difference(audit_report.read_earlier(earlier), reported.facts)
    kinds = {kind["kind"]: kind["rows"] for kind in changes["kinds"]}

    assert set(kinds) == {"the verdict", "how steps are known", "versions", "tensors"}
    escapes = reported.facts["verdict"]["escapes"]
    assert kinds["the verdict"] == [{"what": "escapes", "before": f"{escapes + 1:,}", "after": f"{escapes:,}"}]
    assert kinds["how steps are known"][0]["before"] == "unknown"
    assert len(kinds["tensors"]) == 2
    found = harmless(page(reported.facts, changes))
    assert "2.12.0<b>" in found.text
    assert "<i>gone</i>" in found.text
    with pytest.raises(CheckpointError, match="is damaged"):
        difference({"format": reported.facts["format"], "version": VERSION}, reported.facts)
    assert page(reported.facts, difference(reported.facts, reported.facts)).count("has changed") == 1


def test_another_update_or_learning_rate_is_a_change_of_the_claim(reported: Reported) -> None:
    earlier = copy.deepcopy(reported.facts)
    (claim,) = reported.facts["claims"]
    earlier["claims"][0] |= {"next_steps": [7.0], "learning_rates": [0.5]}
    (kind,) = difference(earlier, reported.facts)["kinds"]

    assert kind["kind"] == "the claim"
    after = [", ".join(f"{x:.8g}" for x in claim[name]) for name in ("learning_rates", "next_steps")]
    assert [(row["before"], row["after"]) for row in kind["rows"]] == [("0.5", after[0]), ("7", after[1])]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "is no guarded-moments audit report"),
        ('{"format": "guarded-moments audit report", "version": 1}', "of version 2"),
    ],
)
def test_what_is_no_earlier_report_is_refused(
    content: str, said: str, reported: Reported, evidence: Evidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_report, "evidence", lambda: evidence)
    earlier = tmp_path / "earlier.json"
    earlier.write_text(content, encoding="utf-8")
    files = (reported.folder / "optimizer.gmc", "--native", reported.folder / "optimizer.pt")
    ran = gmc("audit", *files, "--report", tmp_path / "r.html", "--compare", earlier)

    assert ran.status == 2
    assert ran.err.startswith(f"gmc: {earlier}: ")
    assert said in ran.err
    assert set(contents(tmp_path)) == {"earlier.json"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--report", "report.txt"), "ends in .html or .json"),
        (("--report", "r.html", "--report", "r.html"), "is asked for twice"),
        (("--report", "optimizer.json"), "exists already"),
        (("--report", "r.json", "--compare", "optimizer.json"), "--report FILE.html"),
        (("--report", "r.html", "--compare", "missing.json"), "missing.json: No such file"),
        (("--report", "r.html", "--json", "r.html"), "r.html"),
    ],
)
def test_a_report_that_cannot_be_is_refused_before_any_work(
    options: tuple[str, ...], said: str, reported: Reported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("optimizer.json").write_text("{}", encoding="utf-8")
    files = (reported.folder / "optimizer.gmc", "--native", reported.folder / "optimizer.pt")
    ran = gmc("audit", *files, *options)

    assert (ran.status, ran.err.count("\n")) == (2, 1), ran
    assert said in ran.err
    assert set(contents(tmp_path)) == {"optimizer.json"}
