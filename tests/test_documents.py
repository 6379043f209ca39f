"""What `docs/` shows is run: its Python blocks, and the commands on checkpoints with the form of their output."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.oracle.cli.checkpoints import trained
from tests.oracle.cli.running import run_well

DOCS = Path(__file__).parents[1] / "docs"
RUN = ("choosing.md", "in-training.md")


def blocks(language: str) -> list[str]:
    """The fenced blocks of the documents that stand alone."""
    texts = [(DOCS / name).read_text(encoding="utf-8") for name in RUN]
    return [
        block for text in texts for block in re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    ]


@pytest.mark.parametrize("block", [block for block in blocks("python") if "import torch" in block])
def test_python_blocks_run(block: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], cwd=tmp_path, check=False, capture_output=True, text=True
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def masked(text: str) -> list[str]:
    """Lines without numbers, and without the spaces that their widths make."""
    return [re.sub(r"\s+", " ", re.sub(r"\d[\d,.]*", "N", line)).strip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("block", blocks("console"))
def test_what_commands_are_said_to_print_they_print(block: str, tmp_path: Path) -> None:
    command, shown = block.removeprefix("$ ").split("\n", 1)
    torch.save(trained(), tmp_path / "optimizer.pt")
    _, *words = command.split()
    words = [str(tmp_path / "optimizer.pt") if word.endswith("optimizer.pt") else word for word in words]

    printed = masked(run_well(*words, "--coordinates", "100", "--tolerance", "0.1").out)
    assert [line for line in masked(shown) if line not in printed] == []
