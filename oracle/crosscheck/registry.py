"""Every adapter, in the order of the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from guarded_moments.oracle.crosscheck.adapter import Adapter
from guarded_moments.oracle.crosscheck.bitsandbytes_adam import BitsandbytesAdam
from guarded_moments.oracle.crosscheck.optax_adam import OptaxAdam
from guarded_moments.oracle.crosscheck.torch_adam import TorchAdam
from guarded_moments.oracle.crosscheck.torch_compiled import TorchCompiled
from guarded_moments.oracle.crosscheck.torchao_adam import TorchaoAdam
from guarded_moments.reference.errors import UnsupportedError

ADAPTERS: Mapping[str, Adapter] = MappingProxyType(
    {
        adapter.name: adapter
        for adapter in (
            TorchAdam("single", {}),
            TorchAdam("foreach", {"foreach": True}),
            TorchAdam("fused", {"fused": True}),
            TorchCompiled(),
            TorchCompiled(foreach=True),
            OptaxAdam("adam", jit=False),
            OptaxAdam("adam", jit=True),
            OptaxAdam("adamw", jit=False),
            OptaxAdam("adamw", jit=True),
            TorchaoAdam("AdamW8bit", 1, "torchao AdamW8bit, float32 state", "torchao-adamw-float32"),
            TorchaoAdam("AdamW8bit", 256, "torchao AdamW8bit", "torchao-adamw-8bit"),
            TorchaoAdam("AdamWFp8", 256, "torchao AdamWFp8", "torchao-adamw-fp8"),
            TorchaoAdam("AdamW4bit", 128, "torchao AdamW4bit", "torchao-adamw-4bit"),
            BitsandbytesAdam(32),
            BitsandbytesAdam(8),
        )
    }
)


def adapters_named(names: Iterable[str]) -> list[str]:
    """The names in the table's order, each once; all of them for none.

    Raises:
        UnsupportedError: there is no adapter of a name; the message lists those there are.
    """
    asked = set(names)
    for name in sorted(asked):
        if name not in ADAPTERS:
            msg = f"no implementation {name!r} is known to the cross-check; known are: {', '.join(ADAPTERS)}"
            raise UnsupportedError(msg)
    return [name for name in ADAPTERS if not asked or name in asked]
