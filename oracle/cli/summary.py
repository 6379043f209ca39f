"""What `gmc compress` prints at its end, summed over one file or the files of a folder."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console

from guarded_moments.oracle.cli.common import foreign_rates, percent
from guarded_moments.oracle.stuck_steps import stuck_steps
from guarded_moments.reference.checkpoint import GuardedState
from guarded_moments.reference.checkpoint.bit_rate import native_bits
from guarded_moments.reference.checkpoint.file_format import bytes_beside
from guarded_moments.reference.claim import Horizon


class Summary:
    """Counts of what was compressed and written."""

    def __init__(self) -> None:
        self._claims: set[str] = set()
        self._not_claimed: set[str] = set()
        self._later = False  #: whether any claim is about more than the first update
        self._lines: dict[str, None] = {}
        self._coordinates = self._tensors = self._escapes = 0
        self._reasons: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()
        self._bytes = self._beside = self._native_bits = 0

    def add(self, state: GuardedState, path: Path) -> None:
        """Count one state and the file it was written to."""
        claims = [state.claim_for(tensor) for tensor in state.tensors]
        self._claims |= {claim.sentence() for claim in claims}
        self._later |= state.horizon != Horizon.FIRST
        self._not_claimed |= {claim.not_claimed() for claim in claims}
        self._lines.update(dict.fromkeys((*foreign_rates(state), *stuck_steps(state))))
        self._coordinates += state.coordinates
        self._tensors += len(state.tensors) + len(state.kept)
        self._escapes += state.escapes
        self._native_bits += native_bits(state)
        for tensor in state.tensors:
            self._reasons.update(tensor.reasons)
        for whole in state.kept:
            self._kept[whole.because] += whole.numel
        self._bytes += path.stat().st_size
        self._beside += bytes_beside(path)

    @property
    def _bit_rate(self) -> float | None:
        return 8 * (self._bytes - self._beside) / self._coordinates if self._coordinates else None

    def as_json(self, output: Path, native_bytes: int, seconds: float) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "claims": sorted(self._claims),
            "not_claimed": sorted(self._not_claimed),
            "remarks": list(self._lines),
            "coordinates": self._coordinates,
            "tensors": self._tensors,
            "escapes": self._escapes,
            "escape_reasons": dict(self._reasons),
            "kept": dict(self._kept),
            "bit_rate": self._bit_rate,
            "output": str(output),
            "bytes": self._bytes,
            "bytes_beside": self._beside,
            "native_bytes": native_bytes,
            "seconds": seconds,
        }

    def print(self, console: Console, output: Path, native_bytes: int, seconds: float) -> None:
        """The lines."""
        coordinates = self._coordinates
        rate = "-" if self._bit_rate is None else f"{self._bit_rate:.2f}"
        console.print(f"claim     {'; '.join(sorted(self._claims)) or 'none'}")
        for sentence in sorted(self._not_claimed if self._later else ()):
            console.print(f"          not claimed: {sentence}")
        for line in self._lines:
            console.print(line)
        of = f"stored    {coordinates:,} coordinates of {self._tensors} tensors"
        if coordinates:
            native = f"{self._native_bits / coordinates:.4g}"
            console.print(f"{of}, {rate} bits per coordinate (native {native}), all overhead in")
        else:
            console.print(f"{of}, -")
        console.print(f"exact     {self._escapes:,} coordinates escaped ({percent(self._escapes, coordinates)})")
        for reason, count in self._reasons.most_common():
            console.print(f"            {count:,} {reason}")
        for reason, count in self._kept.most_common():
            console.print(f"kept      {count:,} coordinates whole, not covered by the guard: {reason}")
        if self._beside:
            console.print(
                f"beside    {self._beside:,} bytes for what is no optimizer's state, bit for bit, not in the bit rate"
            )
        each = 1e9 * seconds / coordinates if coordinates else 0
        console.print(f"time      {seconds:.2f} s, {each:.0f} ns a coordinate")
        console.print(f"written   {output}  {self._bytes:,} bytes, from {native_bytes:,}")
