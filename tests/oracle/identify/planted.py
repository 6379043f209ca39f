"""Adam steps with a fault: what no op model of the family computes.  Plain torch, as such kernels are written."""

import torch
from torch import Tensor

Betas = tuple[float, float]
After = tuple[Tensor, Tensor, Tensor]


def _moments(g: Tensor, m: Tensor, v: Tensor, betas: Betas) -> None:
    m.lerp_(g, 1 - betas[0])
    v.mul_(betas[1]).addcmul_(g, g, value=1 - betas[1])


def sound(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float) -> After:
    """No fault: torch's own unfused step."""
    _moments(g, m, v, betas)
    root = (1 - betas[1] ** step) ** 0.5
    p.addcdiv_(m, v.sqrt().div_(root).add_(eps), value=-lr / (1 - betas[0] ** step))
    return p, m, v


def eps_inside_the_root(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float
) -> After:
    _moments(g, m, v, betas)
    root = (1 - betas[1] ** step) ** 0.5
    return p.addcdiv(m, v.add(eps**2).sqrt_().div_(root), value=-lr / (1 - betas[0] ** step)), m, v


def without_bias_correction(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float
) -> After:
    _moments(g, m, v, betas)
    return p.addcdiv(m, v.sqrt().add_(eps), value=-lr), m, v


def in_binary64(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float) -> After:
    p, m, v = sound(p.double(), g.double(), m.double(), v.double(), step, lr, betas, eps)
    return p.float(), m.float(), v.float()


def with_a_reciprocal_root(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float
) -> After:
    _moments(g, m, v, betas)
    root = (1 - betas[1] ** step) ** 0.5
    denominator = v.mul(v.rsqrt()).div_(root).add_(eps)
    return p.addcdiv(m, denominator, value=-lr / (1 - betas[0] ** step)), m, v


def with_rounded_betas(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float
) -> After:
    """`1 - f32(beta)` in the moments, but the bias corrections from doubles."""
    w, c = (float(1 - torch.tensor(beta, dtype=torch.float32)) for beta in betas)
    m.lerp_(g, w)
    v.mul_(betas[1]).addcmul_(g, g, value=c)
    root = (1 - betas[1] ** step) ** 0.5
    return p.addcdiv(m, v.sqrt().div_(root).add_(eps), value=-lr / (1 - betas[0] ** step)), m, v


def with_one_constant_rounded(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float
) -> After:
    """`1 - f32(beta2)` in the second moment alone."""
    m.lerp_(g, 1 - betas[0])
    v.mul_(betas[1]).addcmul_(g, g, value=float(1 - torch.tensor(betas[1], dtype=torch.float32)))
    root = (1 - betas[1] ** step) ** 0.5
    return p.addcdiv(m, v.sqrt().div_(root).add_(eps), value=-lr / (1 - betas[0] ** step)), m, v


def skipping_overflow(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float
) -> After:
    """Leaves a parameter alone where the second moment overflowed."""
    before = p.clone()
    p, m, v = sound(p, g, m, v, step, lr, betas, eps)
    return torch.where(v.isinf(), before, p), m, v


def every_third_uncontracted(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float
) -> After:
    """The second moment by another op model at every third element."""
    c, beta2 = (torch.tensor(value, dtype=torch.float32) for value in (1 - betas[1], betas[1]))
    other = v * beta2 + (c * g) * g
    _moments(g, m, v, betas)
    v[::3] = other[::3]
    root = (1 - betas[1] ** step) ** 0.5
    return p.addcdiv(m, v.sqrt().div_(root).add_(eps), value=-lr / (1 - betas[0] ** step)), m, v


def ignoring_its_options(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    step: float,
    lr: float,
    betas: Betas,
    eps: float,
    weight_decay: float = 0.0,
    *,
    maximize: bool = False,
    v_max: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Takes every option and does nothing with it."""
    after = sound(p, g, m, v, step, lr, betas, eps)
    return after if v_max is None else (*after, v_max)


def otherwise_with_both_options(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    step: float,
    lr: float,
    betas: Betas,
    eps: float,
    *,
    weight_decay: float = 0.0,
    maximize: bool = False,
) -> After:
    """Sound with either option; with both the decay is left out."""
    if not maximize:
        p = p * (1 - lr * weight_decay)
    return sound(p, -g if maximize else g, m, v, step, lr, betas, eps)


#: Kernels that break the protocol, with what the one line must say.


def raising(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float) -> After:
    raise RuntimeError("no such kernel image\nfor this device")


def returning_one(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float
) -> Tensor:
    return p


def returning_two(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float
) -> tuple[Tensor, Tensor]:
    return m, v


def returning_doubles(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float
) -> After:
    return p, m, v.double()


def returning_numbers(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float
) -> tuple[Tensor, Tensor, float]:
    return p, m, 0.0


def reshaping(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float) -> After:
    return p, m.unsqueeze(0), v


def shortening(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float) -> After:
    return p[:-1], m, v


def taking_too_few(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> After:
    return p, m, v


def random_bits(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: float, lr: float, betas: Betas, eps: float) -> After:
    return p + torch.rand(len(p)), m, v


not_callable = 3
