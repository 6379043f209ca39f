"""The page in a real browser, headless: no message, no request but its own, readable in every form it is read in.

Needs chromium and its driver (Debian's `chromium` and `chromium-driver`) and selenium: `pip install
'guarded-moments[browser]'`.  `AXE_CORE` may name axe-core's `axe.min.js`; accessibility is then checked too.
"""

import base64
import importlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.oracle.report.conftest import Reported, earlier_report

from guarded_moments.oracle.cli import audit_report
from guarded_moments.oracle.report import difference, page

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
AXE = os.environ.get("AXE_CORE", "")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # chromium refuses to run as root with it
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-extensions",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)

pytestmark = [
    pytest.mark.skipif(BROWSER is None or DRIVER is None, reason="chromium and chromedriver are not installed"),
    pytest.mark.skipif(importlib.util.find_spec("selenium") is None, reason="selenium is not installed"),
]


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    webdriver = importlib.import_module("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # Both paths are given, so that selenium looks for no driver to download.
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield started
    started.quit()


@pytest.fixture(scope="module")
def file(reported: Reported) -> str:
    """The page with a difference view, as an address."""
    path = reported.folder / "with-changes.html"
    earlier = audit_report.read_earlier(earlier_report(reported.facts, reported.folder / "earlier.json"))
    path.write_text(page(reported.facts, difference(earlier, reported.facts)), encoding="utf-8")
    return path.as_uri()


def seen(driver: Any, file: str, *, width: int = 1000, scheme: str = "light", media: str = "screen") -> None:  # noqa: ANN401 - selenium's
    """Open the page at a width, in a scheme and for a medium."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.get(file)


def test_nothing_is_said_and_nothing_asked_for(driver: Any, file: str) -> None:  # noqa: ANN401 - as above
    driver.get_log("performance")
    seen(driver, file)

    assert driver.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert file in asked
    assert all(url == file or url.startswith("data:") for url in asked), asked
    assert driver.title == "HOLDS: audit of optimizer.gmc"


@pytest.mark.parametrize("width", [320, 360, 1000])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows(driver: Any, file: str, width: int, scheme: str) -> None:  # noqa: ANN401 - as above
    seen(driver, file, width=width, scheme=scheme)
    driver.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")

    assert driver.execute_script("return document.documentElement.scrollWidth") <= width


def test_no_table_is_cut_at_the_width_of_a_desk(driver: Any, file: str) -> None:  # noqa: ANN401 - as above
    seen(driver, file, width=1000)
    driver.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")

    cut = "return [...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth)"
    assert driver.execute_script(f"{cut}.map(one => one.getAttribute('aria-label'))") == []


def test_dark_is_dark_and_print_is_light_whole_and_open(driver: Any, file: str, tmp_path: Path) -> None:  # noqa: ANN401 - as above
    paper = "return getComputedStyle(document.body).backgroundColor"
    shown = "return document.querySelector('details table').checkVisibility({contentVisibilityAuto: true})"
    seen(driver, file, scheme="dark")
    assert driver.execute_script(paper) == "rgb(20, 24, 29)"
    assert not driver.execute_script(shown)
    seen(driver, file, scheme="dark", media="print")
    assert driver.execute_script(paper) == "rgb(255, 255, 255)"
    assert driver.execute_script(shown)
    assert driver.execute_script("return getComputedStyle(document.querySelector('thead')).display") == (
        "table-header-group"
    )
    printed = base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert printed.startswith(b"%PDF")


def test_it_reads_the_same_without_scripts(driver: Any, file: str) -> None:  # noqa: ANN401 - as above
    seen(driver, file)
    with_scripts = driver.find_element("tag name", "main").text
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        seen(driver, file)
        without = driver.find_element("tag name", "main").text
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

    assert without == with_scripts
    assert "The claim holds on every coordinate" in without
    assert "<script>alert(1)</script>" in without


def test_links_lead_to_traces(driver: Any, file: str) -> None:  # noqa: ANN401 - as above
    seen(driver, file)
    driver.find_element("link text", "trace 10").click()

    assert driver.current_url.endswith("#trace-10")
    assert driver.execute_script("return document.querySelector(':target').textContent") == "Trace 10"


@pytest.mark.skipif(not Path(AXE).is_file(), reason="AXE_CORE names no file")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1000])
def test_axe_finds_nothing(driver: Any, file: str, scheme: str, width: int) -> None:  # noqa: ANN401 - as above
    seen(driver, file, scheme=scheme, width=width)
    driver.execute_script(Path(AXE).read_text(encoding="utf-8"))
    driver.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")
    found = driver.execute_async_script("const done = arguments[arguments.length - 1]; axe.run().then(done)")

    assert len(found["passes"]) > 10
    assert [(one["id"], one["impact"], one["nodes"][0]["html"]) for one in found["violations"]] == []
