"""optax's Adam and AdamW on JAX's CPU backend: operation by operation, and compiled as one program by XLA."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from guarded_moments.oracle.crosscheck.adapter import Adapter, After, imported
from guarded_moments.oracle.crosscheck.states import State
from guarded_moments.reference.arithmetic import NumpyBinary32
from guarded_moments.reference.hyperparameters import Hyperparameters

_PROBES = 1 << 16
_SMALLEST_NORMAL = np.float32(2.0**-126)


@final
class OptaxAdam(Adapter):
    """`optax.adam` or `optax.adamw`."""

    packages = ("optax", "jax", "jaxlib")
    reading = (
        "m' = (1-b1)*g + b1*m; v' = (1-b2)*g^2 + b2*v; m'/bc1 / (sqrt(v'/bc2) + eps), then times -lr; "
        "bias corrections in binary32"
    )

    def __init__(self, transformation: str, *, jit: bool) -> None:
        """Run this transformation of optax, compiled or not."""
        self._transformation, self._jit = transformation, jit
        self.name = f"optax-{transformation}{'-jit' if jit else ''}"
        self.title = f"optax {transformation}, {'jit' if jit else 'eager'}"

    def step(self, state: State, hyperparameters: Hyperparameters) -> After:
        """One update of a zero parameter."""
        jax, optax = imported("jax"), imported("optax")
        with jax.default_device(jax.devices("cpu")[0]):
            optimizer = self._optimizer(optax, hyperparameters)
            p, g = jax.numpy.zeros(len(state.g), dtype=np.float32), jax.numpy.asarray(state.g.numpy())
            adam, *others = optimizer.init(p)
            adam = adam._replace(
                count=jax.numpy.asarray(state.number - 1, dtype=adam.count.dtype),
                mu=jax.numpy.asarray(state.m.numpy()),
                nu=jax.numpy.asarray(state.v.numpy()),
            )

            def step(p: Any, g: Any, held: Any) -> Any:  # noqa: ANN401 - JAX's arrays and trees of them
                updates, held = optimizer.update(g, held, p)
                return optax.apply_updates(p, updates), held[0]

            p, adam = (jax.jit(step) if self._jit else step)(p, g, (adam, *others))
        return After(state.m, state.v, *(_tensor(array) for array in (p, adam.mu, adam.nu)))

    def _optimizer(self, optax: Any, h: Hyperparameters) -> Any:  # noqa: ANN401 - of a package without annotations
        common = {"b1": h.beta1, "b2": h.beta2, "eps": h.eps}
        if self._transformation == "adamw":
            return optax.adamw(h.lr, weight_decay=h.weight_decay, **common)
        return optax.adam(h.lr, **common)

    def observations(self) -> list[str]:
        """Whether XLA contracts `a*b + c`, and whether it keeps subnormal operands and results."""
        jax = imported("jax")

        def apart(a: Any, b: Any, c: Any) -> Any:  # noqa: ANN401 - JAX's arrays
            return a * b + c

        def product(a: Any, b: Any) -> Any:  # noqa: ANN401 - as above
            return a * b

        if self._jit:
            apart, product = jax.jit(apart), jax.jit(product)
        ours, rng = NumpyBinary32(), np.random.default_rng(0)
        a, b, c = (rng.standard_normal(_PROBES).astype(np.float32) for _ in range(3))
        half, two = np.float32(0.5), np.float32(2)
        with jax.default_device(jax.devices("cpu")[0]):
            seen = np.asarray(apart(*map(jax.numpy.asarray, (a, b, c))))
            result = float(product(jax.numpy.asarray(_SMALLEST_NORMAL), half))
            operand = float(product(jax.numpy.asarray(_SMALLEST_NORMAL * half), two))
        contraction = {
            "rounded twice": ours.add(ours.mul(a, b), c),
            "rounded once (fma)": ours.fma(a, b, c),
        }
        rounding = next(
            (words for words, r in contraction.items() if np.array_equal(r, seen)), "neither way throughout"
        )
        return [
            f"a*b + c is {rounding}, on {_PROBES:,} normal values",
            f"a subnormal result is {'flushed to zero' if result == 0 else 'kept'}",
            f"a subnormal operand is {'taken as zero' if operand == 0 else 'kept'}",
        ]


def _tensor(array: Any) -> Tensor:  # noqa: ANN401 - JAX's array
    return torch.from_numpy(np.array(array, dtype=np.float32))
