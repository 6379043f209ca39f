"""What an author meets: an empty folder, twenty lines, `pytest --oracle`; and what the documentation shows of it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.oracle.cli.running import run_well

PAGE = (Path(__file__).parents[3] / "docs" / "conformance.md").read_text(encoding="utf-8")

#: The same module with the closed form in place of the wrong comparison.
RIGHT = """
import torch

class ClosedForm:
    name = "my-kernels"

    def guard(self, k, m, v, m_hat, v_hat):
        usable = [(a.abs() < 2.0**60) & (b >= 0) & (b < 2.0**100) for a, b in ((m, v), (m_hat, v_hat))]
        m, v, m_hat, v_hat = (moment.double() for moment in (m, v, m_hat, v_hat))
        root, root_hat = (k.radicand * v).sqrt(), (k.radicand * v_hat).sqrt()
        h, h_hat = 1 / (root + k.eps), 1 / (root_hat + k.eps)
        first = k.complement * (m_hat - m).abs() * h_hat
        second = k.complement * m.abs() * (h_hat - h).abs()
        far = k.gap_cap * (root_hat - root).abs() * torch.minimum(h, h_hat)
        third = k.w * torch.minimum(k.gradient_bound * (h_hat - h).abs(), far)
        rounding = sum((k.slack_moment * x.abs() + k.slack_reciprocal) * y for x, y in ((m, h), (m_hat, h_hat)))
        total = k.step * (first + second + third + rounding + 2 * k.slack_gradient) + 2 * k.slack_floor
        return (total * (1 + 1e-9) <= k.threshold) & usable[0] & usable[1]

backend = ClosedForm()
"""


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language in the documentation."""
    every: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for written, text in every if written == language]


def judged(folder: Path, module: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Bare `pytest`, in a folder with nothing but the module."""
    (folder / "my_kernels.py").write_text(module, encoding="utf-8")
    command = [str(Path(sys.executable).parent / "pytest"), "--oracle=my_kernels:backend", *options]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """The run that the documentation shows."""
    return judged(tmp_path_factory.mktemp("wrong"), blocks("python")[1], "-k", "GRD-1", "-p", "no:cacheprovider")


def test_the_wrong_guard_fails_with_what_the_documentation_shows(wrong: subprocess.CompletedProcess[str]) -> None:
    assert wrong.returncode == 1
    (shown,) = blocks("")
    assert shown.strip("\n") in wrong.stdout, wrong.stdout
    assert "Traceback" not in wrong.stdout + wrong.stderr


def test_the_last_line_shows_the_counterexample_again(wrong: subprocess.CompletedProcess[str]) -> None:
    # A set of one: where CI is set, pytest's summary says the whole message once more.
    (line,) = set(re.findall(r"see +(gmc explain .*)", wrong.stdout))
    (deviation,) = set(re.findall(r"update deviates by (\S+) lr", wrong.stdout))
    printed = run_well(*shlex.split(line)[1:]).out
    assert "UNSAFE: this gradient violates the claim" in printed
    assert f"{float(deviation):.6g}" in re.sub(r"(\d\.\d{5})\d*", lambda number: f"{float(number[0]):.6g}", printed)
    last = re.findall(r"\[[0-9a-f]{8}\]", wrong.stdout.split("see ")[0])[-2:]
    assert all(pattern in printed for pattern in last), "both updates, bit for bit"


def test_the_right_guard_passes(tmp_path: Path) -> None:
    done = judged(tmp_path, RIGHT)
    assert done.returncode == 0, done.stdout
    assert re.search(r"oracle: my-kernels: 7 holds; \d+ not claimed", done.stdout)


def test_the_command_lines_shown_are_ones_that_pytest_takes(pytestconfig: pytest.Config) -> None:
    shown = re.findall(r"(--(?:oracle|junit)[a-z-]*)", PAGE)
    assert {"--oracle", "--oracle-device", "--oracle-report"} <= set(shown)
    for option in set(shown) - {"--junit-xml"}:
        assert pytestconfig.getoption(option, default="absent") != "absent", option
