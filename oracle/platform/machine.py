"""Which machine this is, as far as it decides the bits of `torch.sqrt`: CPU, torch, its kernels, its vector library.

Claimed: nothing about bits.  Two machines of one key are expected to compute alike, no more; so a certificate is also
checked against a spot fingerprint when it is loaded.
"""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import astuple, dataclass
from pathlib import Path

import torch

_CPU_INFO = Path("/proc/cpuinfo")
#: What names a CPU there, on x86 and on ARM; a hypervisor may call very different CPUs by one model name.
_CPU_FIELDS = (
    ("vendor_id", "{}"),
    ("model name", "{}"),
    ("cpu family", "family {}"),
    ("model", "model {}"),
    ("stepping", "stepping {}"),
    ("CPU implementer", "implementer {}"),
    ("CPU part", "part {}"),
)


@dataclass(frozen=True)
class Machine:
    """In words, for reports; together they are the key of a certificate."""

    cpu: str
    capability: str  #: the kernels that torch's dispatcher chose in this process
    torch: str
    library: str  #: the vector library that the unfused kernels call
    settings: str  #: environment variables that move that library to other kernels

    @property
    def key(self) -> str:
        """16 hexadecimal digits that name this machine's certificate."""
        return hashlib.sha256("\n".join(map(str, astuple(self))).encode()).hexdigest()[:16]


def this_machine() -> Machine:
    """Of this process: the capability may be forced by its environment."""
    capability = torch.backends.cpu.get_cpu_capability()
    settings = sorted(name for name in os.environ if name.startswith("MKL_") and not name.endswith("_NUM_THREADS"))
    return Machine(
        cpu=_cpu(),
        capability=capability,
        torch=str(torch.__version__),
        library=_vector_library(),
        settings=" ".join(f"{name}={os.environ[name]}" for name in settings) or "none",
    )


def _cpu() -> str:
    try:
        text = _CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    first, _, _ = text.partition("\n\n")
    given = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
    words = [form.format(given[name]) for name, form in _CPU_FIELDS if name in given]
    return ", ".join(words) or platform.machine()


def _vector_library() -> str:
    for line in torch.__config__.show().splitlines():
        if "Math Kernel Library" in line:
            return line.strip().removeprefix("- ")
    return "none named by torch"
