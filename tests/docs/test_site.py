"""The site: built strictly where mkdocs is installed; everywhere, all pages are in it and all links lead somewhere."""

import os
import re
import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest
from tests.docs.documents import DOCS, ROOT

PAGES = sorted(DOCS.rglob("*.md"))
README = ROOT / "README.md"


def text_of(path: Path) -> str:
    """A page without its blocks of code, in which brackets are no links."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", [README, *PAGES], ids=lambda path: path.stem)
def test_every_link_of_a_page_leads_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[\w-]+)?\)", text_of(path))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_page_is_in_the_navigation_once() -> None:
    configured = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r": ([\w/-]+\.md)$", configured, re.MULTILINE)
    assert sorted(listed) == [path.relative_to(DOCS).as_posix() for path in PAGES]


@pytest.mark.skipif(util.find_spec("material") is None, reason="mkdocs-material is not installed: extra 'docs'")
def test_the_site_is_built_without_a_warning_and_asks_nothing_of_a_network(tmp_path: Path) -> None:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "true"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]

    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    built = {page.relative_to(tmp_path / "site").with_suffix(".md").as_posix() for page in tmp_path.rglob("*.html")}
    assert {path.relative_to(DOCS).as_posix() for path in PAGES} <= built
    for page in tmp_path.rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        asked = re.findall(r'<(?:script|img|iframe)[^>]* src="(https?:[^"]+)"', html)
        asked += re.findall(r'<link[^>]* rel="(?:stylesheet|preconnect|icon)"[^>]* href="(https?:[^"]+)"', html)
        assert asked == [], page


def test_the_command_that_builds_it_is_named() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "mkdocs build --strict" in makefile
    assert shutil.which("make") is None or "make docs" in README.read_text(encoding="utf-8")
