"""Train a small language model, to have a real state of AdamW to compress.

The text is one that every machine has: the source files of Python's own standard library, read as bytes.
The model is a decoder-only transformer, trained the way such models are: AdamW in two parameter groups
(weight decay on matrices, none on biases and norms), gradients clipped to a norm of 1.

What makes its state worth compressing is its variety. Rows of the embedding whose byte never occurs keep
moments of exactly zero; the bias of the attention keys has a gradient of zero but for rounding, so its
second moment is tiny; matrices, norms and biases differ by orders of magnitude.

With the same settings and versions, one machine gives the same files, bit for bit.
"""

import hashlib
import json
import platform
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from torch import Tensor, nn
from torch.nn import functional

BYTES = 256  # the vocabulary
OPTIMIZER, MODEL, RECORD = "optimizer.pt", "model.pt", "training.json"
console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


@dataclass(frozen=True)
class Settings:
    """Everything that decides the result, besides the text, the versions and the machine."""

    steps: int
    seed: int
    fused: bool
    batch: int = 32  #: sequences in a step
    context: int = 64  #: bytes that the model sees
    width: int = 128
    heads: int = 4
    blocks: int = 3
    learning_rate: float = 1e-3  #: constant: the state must not end with a learning rate of zero
    weight_decay: float = 0.1  #: of the matrices
    gradient_norm: float = 1.0  #: where gradients are clipped
    text_limit: int = 1_000_000  #: bytes of text


class Block(nn.Module):
    """Causal self-attention, then a layer of twice two linear maps, each added to its input."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.heads = settings.heads
        self.norm1 = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """From ``(batch, length, width)`` to the same shape; a position sees itself and those before it."""
        batch, length, width = x.shape
        split = self.query_key_value(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, length, width))
        widened: Tensor = functional.gelu(self.expand(self.norm2(x)))
        return x.add(self.contract(widened))


class LanguageModel(nn.Module):
    """A decoder-only transformer over bytes."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.bytes = nn.Embedding(BYTES, settings.width)
        self.positions = nn.Embedding(settings.context, settings.width)
        self.blocks = nn.ModuleList(Block(settings) for _ in range(settings.blocks))
        self.norm = nn.LayerNorm(settings.width)
        self.head = nn.Linear(settings.width, BYTES)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, text: Tensor) -> Tensor:
        """From ``(batch, length)`` bytes to ``(batch, length, 256)`` logits of the byte after each."""
        x = self.bytes(text) + self.positions.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def read_text(limit: int) -> bytes:
    """The modules at the top of the standard library, in the order of their names, up to ``limit`` bytes.

    Raises:
        click.ClickException: This Python was installed without its sources.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    text = bytearray()
    for path in sorted(folder.glob("*.py")):
        text += path.read_bytes()
        if len(text) >= limit:
            return bytes(text[:limit])
    raise click.ClickException(
        f"{folder}: {len(text):,} bytes of Python sources, {limit:,} are needed: "
        "this Python seems to be installed without the sources of its standard library"
    )


def make_model(settings: Settings) -> LanguageModel:
    """The model before its first step, the same for the same seed."""
    torch.manual_seed(settings.seed)
    return LanguageModel(settings)


def make_optimizer(model: LanguageModel, settings: Settings) -> torch.optim.AdamW:
    """AdamW over named parameters in two groups, so that its state names every tensor."""
    named = list(model.named_parameters())
    groups: list[dict[str, Any]] = [
        {"params": [(name, p) for name, p in named if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [(name, p) for name, p in named if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=settings.fused or None)


class Batches:
    """Sequences drawn from a text, the same for the same seed."""

    def __init__(self, text: bytes, settings: Settings, seed: int) -> None:
        self._data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        self._window = torch.arange(settings.context + 1)
        self._draws = torch.Generator().manual_seed(seed)
        self._settings = settings

    def draw(self) -> Tensor:
        """The next sequences, ``(batch, context + 1)``."""
        settings = self._settings
        starts = torch.randint(len(self._data) - settings.context, (settings.batch, 1), generator=self._draws)
        return self._data[starts + self._window]


def make_gradients(model: LanguageModel, sequences: Tensor, settings: Settings) -> float:
    """Put the clipped gradients of a batch into the parameters.

    Returns:
        The loss, in nats a byte.
    """
    logits = model(sequences[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten())
    model.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), settings.gradient_norm)
    return loss.item()


def train(model: LanguageModel, optimizer: torch.optim.AdamW, text: bytes, settings: Settings) -> list[float]:
    """Train in place, with a progress bar.

    Returns:
        The loss of each step, in nats a byte.
    """
    batches = Batches(text, settings, settings.seed)
    losses: list[float] = []
    columns = (
        TextColumn("training"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=settings.steps, loss=float("nan"))
        for _ in range(settings.steps):
            losses.append(make_gradients(model, batches.draw(), settings))
            optimizer.step()
            progress.update(task, advance=1, loss=losses[-1])
    return losses


class Resumed:
    """The training at one of its checkpoints, without the optimizer's state: what `gmc trajectory --training` takes."""

    def __init__(self, folder: Path, order: int) -> None:
        """Read a folder that this program wrote; ``order`` is the seed of the batches to come."""
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        self._settings = Settings(**record["settings"])
        self._model = make_model(self._settings)
        self._model.load_state_dict(torch.load(folder / MODEL, weights_only=True))
        self.optimizer = make_optimizer(self._model, self._settings)
        self._batches = Batches(read_text(self._settings.text_limit), self._settings, order)

    def gradients(self, update: int) -> float:  # noqa: ARG002 - batches are drawn in order
        """Put the gradients of the next update into the parameters; returns the loss, in nats a byte."""
        return make_gradients(self._model, self._batches.draw(), self._settings)


def resume(checkpoint: Path, order: int) -> Resumed:
    """The training whose optimizer's state was saved as ``checkpoint``, with batches of that order."""
    return Resumed(checkpoint.parent, order)


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def describe(settings: Settings, text: bytes) -> dict[str, Any]:
    """What a kept result must agree on, to stand for the run that is asked for."""
    return {
        "settings": asdict(settings),
        "text_sha256": hashlib.sha256(text).hexdigest(),
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)},
    }


def kept_record(folder: Path, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """The record of an earlier run with the same result, if its files are all there and unchanged."""
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        files: dict[str, str] = record["sha256"]
        unchanged = all(digest(folder / name) == files[name] for name in (OPTIMIZER, MODEL))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return record if unchanged and all(record.get(key) == value for key, value in wanted.items()) else None


def save(folder: Path, model: LanguageModel, optimizer: torch.optim.AdamW, record: dict[str, Any]) -> None:
    """Write the three files whole: beside their place first, then renamed, the record last."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as name:
        partial = Path(name)
        torch.save(optimizer.state_dict(), partial / OPTIMIZER)
        torch.save(model.state_dict(), partial / MODEL)
        record["sha256"] = {file: digest(partial / file) for file in (OPTIMIZER, MODEL)}
        (partial / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        for file in (OPTIMIZER, MODEL, RECORD):
            (partial / file).replace(folder / file)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread.

    The result then does not depend on the number of cores; and a model this small gains little from a second
    thread, and loses much on a busy machine, where the threads wait for each other in every operation.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def named_file_errors(folder: Path) -> Iterator[None]:
    """Turn an operating system's error into one line that names the folder."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror or error}") from error


@click.command(epilog="Next: gmc compress FOLDER/optimizer.pt FOLDER/optimizer.gmc --tolerance 0.01 --grad-bound 1.0")
@click.option(
    "--output-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/main-job"),
    show_default=True,
    help="Folder for optimizer.pt, model.pt and training.json; made if missing.",
)
@click.option("--steps", type=click.IntRange(min=1), default=400, show_default=True, help="Optimizer steps.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of weights and batches.")
@click.option("--fused", is_flag=True, help="Use AdamW's fused kernel, which rounds differently.")
@click.option("--retrain", is_flag=True, help="Train even if the files of the same run are there.")
def main(*, output_dir: Path, steps: int, seed: int, fused: bool, retrain: bool) -> None:
    """Train a small language model on Python's own standard library and save the state of its AdamW.

    Writes optimizer.pt (what optimizer.state_dict() gave), model.pt (the weights) and training.json
    (settings, versions, losses, digests). An earlier run of the same settings, text and versions is kept,
    and training skipped.
    """
    settings = Settings(steps=steps, seed=seed, fused=fused)
    text = read_text(settings.text_limit)
    wanted = describe(settings, text)
    kept = None if retrain else kept_record(output_dir, wanted)
    if kept is not None:
        console.print(
            f"kept {output_dir / OPTIMIZER}, trained before: {kept['coordinates']:,} coordinates, "
            f"{steps} steps (--retrain trains again)"
        )
        return
    with named_file_errors(output_dir):
        output_dir.mkdir(parents=True, exist_ok=True)
    model = make_model(settings)
    optimizer = make_optimizer(model, settings)
    coordinates = sum(parameter.numel() for parameter in model.parameters())
    console.print(f"a transformer of {coordinates:,} coordinates, {len(text):,} bytes of text, {steps} steps")
    started = time.perf_counter()
    with one_thread():
        losses = train(model, optimizer, text, settings)
    seconds = time.perf_counter() - started
    record = {
        **wanted,
        "coordinates": coordinates,
        "seconds": round(seconds, 1),
        "losses": losses,
    }
    with named_file_errors(output_dir):
        save(output_dir, model, optimizer, record)
    console.print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} nats a byte in {seconds:.0f} s")
    console.print(f"wrote {output_dir / OPTIMIZER}")


if __name__ == "__main__":
    main()
