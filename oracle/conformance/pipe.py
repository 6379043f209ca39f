"""A backend in any language: a program that is asked on its standard input and answers on its standard output.

Lines of words, every number as hexadecimal digits of its bits, in the manner of Berkeley TestFloat.  A request is one
line that says what is asked and how many elements follow, then one line an element; the answer is one line an element.

    hello 1                                          -> operations NAME ...
                                                        op-models NAME ...      (optional)
    encode LOW STEP LEVELS LOW STEP LEVELS N         M V     (8 digits each)         -> MC VC   (2 digits each)
    decode LOW STEP LEVELS LOW STEP LEVELS N         MC VC                           -> M V
    encode_ratio LOW STEP LEVELS STEP N              M V                             -> MC VC   (the last of 8 digits)
    decode_ratio LOW STEP LEVELS STEP N              MC VC                           -> M V
    guard NAME=BITS ... N                            M V M_HAT V_HAT                 -> 0 or 1
    first_update CHOICE=WORD ... NAME=BITS ... N     M V G                           -> U       (8, or 16 exact)

The answer to `hello` ends with an empty line.  `NAME=BITS` are binary64 (16 digits) for grids and the guard, binary32
(8 digits) for the step's constants.  The program ends when its input does.

Claimed: the program is judged like any other backend; a program that dies, hangs or answers in another form is reported
in words.  `compress`, `recover` and `round_trip` have no form here and are not claimed.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import shlex
import struct
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

import numpy as np
import torch
from torch import Tensor

from guarded_moments.oracle.conformance.adapting import OPERATIONS, BackendError
from guarded_moments.oracle.conformance.backend import Codes, Grids, Moments, RatioGrid
from guarded_moments.oracle.conformance.findings import NonConformance
from guarded_moments.reference.adam import Scalars, StepOptions
from guarded_moments.reference.codecs import LogGrid
from guarded_moments.reference.floats import bits_of
from guarded_moments.reference.guard import GuardConstants
from guarded_moments.reference.op_models import OpModel

VERSION = 1
#: What a program can be asked.
ASKED = OPERATIONS[:6]
#: Fields of an op model that its first update depends on.
CHOICES = ("interpolation", "from_end", "second_moment", "square_root", "correction", "update")
_TIMEOUT = 60.0  #: seconds without a line
_SHOWN = 60


class PipeBackend:
    """A program, started once and asked as often as the checks like."""

    def __init__(self, command: Sequence[str], timeout: float = _TIMEOUT) -> None:
        """Start the program and ask what it does.

        Args:
            command: the program and its arguments.
            timeout: seconds without a line after which it is given up.

        Raises:
            BackendError: it cannot be started, or does not answer `hello`.
        """
        self.name = shlex.join(command)
        self._timeout = timeout
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603 - the command is the user's
        except OSError as error:
            raise BackendError(f"{self.name}: cannot be started: {error.strerror or error}") from None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        atexit.register(self.close)
        try:
            self._operations, op_models = self._hello()
        except BackendError:
            self.close()
            raise
        self.op_models = op_models or None
        self.not_claimed: dict[str, str] = {}
        for name in ASKED:
            if name not in self._operations:
                setattr(self, name, None)  # so that it is not offered

    def close(self) -> None:
        """End the program."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        atexit.unregister(self.close)

    def encode(self, m: Tensor, v: Tensor, grids: Grids) -> Codes:
        """See `Backend`."""
        answers = self._ask(f"encode {grid_words(grids)}", words(m, v), len(m))
        return Codes(*_columns(answers, 2, np.uint8))

    def decode(self, codes: Codes, grids: Grids) -> Moments:
        """See `Backend`."""
        answers = self._ask(f"decode {grid_words(grids)}", words(*codes), len(codes.m))
        return Moments(*_columns(answers, 2, np.float32))

    def encode_ratio(self, m: Tensor, v: Tensor, grid: RatioGrid) -> Codes:
        """See `Backend`."""
        answers = self._ask(f"encode_ratio {ratio_words(grid)}", words(m, v), len(m))
        return Codes(*_columns(answers, 2, np.uint8))

    def decode_ratio(self, codes: Codes, grid: RatioGrid) -> Moments:
        """See `Backend`."""
        answers = self._ask(f"decode_ratio {ratio_words(grid)}", words(*codes), len(codes.m))
        return Moments(*_columns(answers, 2, np.float32))

    def guard(self, constants: GuardConstants[float], m: Tensor, v: Tensor, m_hat: Tensor, v_hat: Tensor) -> Tensor:
        """See `Backend`."""
        answers = self._ask(f"guard {constant_words(constants)}", words(m, v, m_hat, v_hat), len(m))
        bad = next((line for line in answers if line not in {"0", "1"}), None)
        if bad is not None:
            raise NonConformance(f"guard answered {bad[:_SHOWN]!r}, not 0 or 1")
        return torch.tensor([line == "1" for line in answers], dtype=torch.bool)

    def first_update(
        self, model: OpModel, options: StepOptions, scalars: Scalars[float], m: Tensor, v: Tensor, g: Tensor
    ) -> Tensor:
        """See `Backend`."""
        request = f"first_update {step_words(model, options, scalars)}"
        answers = self._ask(request, words(m, v, g), len(m))
        (updates,) = _columns(answers, 1, np.float32 if model.rounds_update else np.float64)
        return updates

    def _hello(self) -> tuple[list[str], list[str]]:
        self._send(f"hello {VERSION}\n")
        said: dict[str, list[str]] = {}
        while line := self._line():
            key, *rest = line.split()
            said[key] = rest
        unknown = [name for name in said.get("operations", []) if name not in ASKED]
        if "operations" not in said or unknown:
            raise BackendError(
                f"{self.name}: answered hello with {said}, expected a line 'operations' and some of "
                f"{', '.join(ASKED)}, and an empty line"
            )
        return said["operations"], said.get("op-models", [])

    def _ask(self, request: str, elements: Iterator[str], count: int) -> list[str]:
        text = "\n".join([f"{request} {count}", *elements]) + "\n"
        sender = threading.Thread(
            target=self._send, args=(text,), daemon=True
        )  # it may block on a program that answers
        sender.start()
        try:
            return [self._line() for _ in range(count)]
        except BackendError as error:
            raise NonConformance(
                f"the program answered too little to {request.split(maxsplit=1)[0]}", f"said  {error}"
            ) from None

    def _send(self, text: str) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # seen as an end of its answers
                self._process.stdin.write(text)
                self._process.stdin.flush()

    def _line(self) -> str:
        try:
            line = self._lines.get(timeout=self._timeout)
        except queue.Empty:
            raise BackendError(f"{self.name}: no line for {self._timeout:g} seconds") from None
        if line is None:
            self._lines.put(None)
            raise BackendError(f"{self.name}: ended with status {self._process.wait()}")
        return line

    def _read(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                self._lines.put(line.strip())
        self._lines.put(None)


def words(*columns: Tensor) -> Iterator[str]:
    """One line an element: the bits of each column."""
    texts = []
    for column in columns:
        array = column.contiguous().numpy()
        bits = array if array.dtype == np.uint8 else array.view(np.uint32)
        texts.append([f"{int(value):0{2 * bits.itemsize}x}" for value in bits])
    return (" ".join(row) for row in zip(*texts, strict=True))


def _columns(lines: Sequence[str], count: int, dtype: type[np.generic]) -> list[Tensor]:
    """The numbers that the lines hold, a tensor for each column."""
    size = np.dtype(dtype).itemsize
    whole = []
    for line in lines:
        cells = line.split()
        try:
            if len(cells) != count or any(len(cell) != 2 * size for cell in cells):
                raise ValueError  # noqa: TRY301 - told below, with what is no number at all
            whole.append([bytes.fromhex(cell) for cell in cells])
        except ValueError:
            raise NonConformance(
                f"the program answered {line[:_SHOWN]!r}, expected {count} times {2 * size} hexadecimal digits"
            ) from None
    columns = []
    for index in range(count):
        content = b"".join(row[index] for row in whole)
        array = np.frombuffer(content, dtype=np.dtype(dtype).newbyteorder(">")).astype(dtype)
        columns.append(torch.from_numpy(array))
    return columns


def binary64(value: float) -> str:
    """The bits of a binary64: 16 hexadecimal digits."""
    return struct.pack(">d", value).hex()


def grid_words(grids: Grids) -> str:
    """Both grids: lowest exponent and step as binary64, and the number of levels in decimal."""
    return f"{_one_grid(grids.m)} {_one_grid(grids.v)}"


def ratio_words(grid: RatioGrid) -> str:
    """The second moment's grid likewise, and the ratio's step as binary32."""
    return f"{_one_grid(grid.v)} {bits_of(grid.step):08x}"


def _one_grid(grid: LogGrid) -> str:
    return f"{binary64(grid.low)} {binary64(grid.step)} {grid.levels}"


def constant_words(constants: GuardConstants[float]) -> str:
    """The guard's constants by their names."""
    return " ".join(f"{name}={binary64(value)}" for name, value in constants._asdict().items())


def step_words(model: OpModel, options: StepOptions, scalars: Scalars[float]) -> str:
    """The op model's choices and the step's constants by their names."""
    choices: Iterable[tuple[str, Enum]] = ((name, getattr(model, name)) for name in CHOICES)
    chosen = [f"{name}={choice.name}" for name, choice in choices]
    chosen.append(f"interpolate_from_end={int(options.interpolate_from_end)}")
    return " ".join([*chosen, *(f"{name}={bits_of(value):08x}" for name, value in scalars._asdict().items())])
