"""Sequences of gradients that an adversary finds, and those of real training, against what is claimed of them."""

import math

import numpy as np
import pytest
import torch
from tests.reference.horizon.runs import constants_of, run_of
from tests.reference.horizon.test_guard import states_of
from torch import Tensor, nn

from guarded_moments.oracle.later_updates import deviations, worst_sequence
from guarded_moments.reference.checkpoint import compress
from guarded_moments.reference.checkpoint.optimizer_state import in_memory_order, parameters_of
from guarded_moments.reference.claim import LARGEST_GRADIENT, Horizon
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.guard.enclosure import enclose
from guarded_moments.reference.guard.search import States, slack_of
from guarded_moments.reference.horizon import Run
from guarded_moments.reference.implementations import implementation_named

TOLERANCE = 0.01


def climbed(run: Run, states: States, updates: int, rounds: int, rng: np.random.Generator) -> Tensor:
    """Sequences that gradient ascent finds, from random starts, knowing nothing of the theory; float32 (updates, n).

    In binary64, on the formula; magnitudes are searched as logarithms beside the signs that they began with.
    """
    reals = [run.real(update) for update in range(1, updates + 1)]
    m, v, m_hat, v_hat = (moment.double() for moment in states)
    shape = (updates, len(m))
    logs = torch.from_numpy(rng.uniform(-1, 4, shape)) + v.sqrt().log()
    signs = torch.from_numpy(np.broadcast_to(rng.choice([-1.0, 1.0], len(m)), shape).copy())
    logs.requires_grad_()
    ascent = torch.optim.Adam([logs], lr=0.2)
    for done in range(rounds):
        ascent.param_groups[0]["lr"] = 0.2 * (1 - done / rounds) + 1e-3
        gradients = signs * logs.exp()
        moments = [(m, v), (m_hat, v_hat)]
        for real, g in zip(reals, gradients, strict=True):
            w, kept, c, beta2 = (float(getattr(real, name)) for name in ("w", "complement", "c", "beta2"))
            moments = [(kept * first + w * g, beta2 * second + c * g * g) for first, second in moments]
        last = reals[-1]
        (a, b), (a_hat, b_hat) = moments
        apart = a_hat / (b_hat.sqrt() / float(last.root) + float(last.eps))
        apart = apart - a / (b.sqrt() / float(last.root) + float(last.eps))
        loss = -(apart.abs() / states.v.sqrt().double().clamp(min=1)).sum()
        ascent.zero_grad()
        (loss * 1e3).backward()
        ascent.step()
    return (signs * logs.exp()).detach().clamp(-LARGEST_GRADIENT, LARGEST_GRADIENT).float()


@pytest.mark.parametrize("updates", [2, 8])
def test_an_adversary_reaches_the_supremum_and_never_exceeds_it(
    updates: int, rng: np.random.Generator, budget: int
) -> None:
    run, states = run_of(), states_of(rng, 24)
    constants = constants_of(run, updates)[-1]
    supremum = enclose(constants, states, relative_gap=1e-5)
    allowed = supremum.upper + slack_of(constants, states)
    reached = torch.zeros(len(states.m), dtype=torch.float64)
    for _ in range(3 * budget):
        gradients = climbed(run, states, updates, 250, rng)
        found = deviations(run, run.implementation.body, states, gradients)[-1]
        assert bool((found <= allowed).all()), [hex_of(float(g)) for g in gradients[:, int((found - allowed).argmax())]]
        reached = torch.maximum(reached, found)
    share = reached / supremum.upper
    assert float(share.median()) > 0.99, share
    assert float(share.max()) > 0.999, share


def test_the_worst_sequences_attain_the_supremum(rng: np.random.Generator, budget: int) -> None:
    run, states = run_of(), states_of(rng, 100 * budget)
    constants = constants_of(run, 100)
    for update in (1, 2, 10, 100):
        supremum = enclose(constants[update - 1], states, relative_gap=1e-5)
        gradients = worst_sequence(constants[update - 1], run, states, update, LARGEST_GRADIENT)
        found = deviations(run, run.implementation.body, states, gradients)[-1]
        assert bool((found <= supremum.upper + slack_of(constants[update - 1], states)).all())
        assert float((found / supremum.upper).min()) > 0.99, update


def small_model(generator: torch.Generator) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 6))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return model


@pytest.mark.parametrize("horizon", [Horizon(100), Horizon.ALL], ids=str)
def test_real_gradients_of_training_keep_the_claim_on_every_coordinate(horizon: Horizon, budget: int) -> None:
    """Open loop: the native run's gradients drive both states, for some hundred updates, bit for bit."""
    generator = torch.Generator().manual_seed(5)
    model = small_model(generator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, foreach=False)

    def trained(updates: int) -> list[list[Tensor]]:
        drawn = []
        for _ in range(updates):
            optimizer.zero_grad()
            inputs = torch.randn(32, 16, generator=generator)
            (model(inputs) - inputs[:, :6] * inputs[:, 6:12]).square().mean().backward()
            gradients = [parameter.grad for parameter in model.parameters()]
            drawn.append([g.clone() for g in gradients if g is not None])
            optimizer.step()
        return drawn

    trained(60)
    native = optimizer.state_dict()
    state = compress(native, tolerance=TOLERANCE, grad_bound=math.inf, horizon=horizon)
    parameters = list(parameters_of(native))
    kept = [States(in_memory_order(p.m).clone(), in_memory_order(p.v).clone(), *t.decode())
            for p, t in zip(parameters, state.tensors, strict=True)]  # fmt: skip
    gradients = trained(100 if horizon.updates else 100 * (1 + budget))
    closest = accepted = 0.0
    for place, (parameter, tensor, states) in enumerate(zip(parameters, state.tensors, kept, strict=True)):
        run = Run(implementation_named(tensor.implementation), parameter.hyperparameters, tensor.next_step, tensor.lr)
        sequence = torch.stack([in_memory_order(step[place]) for step in gradients])
        for model_of, where in run.implementation.update_regions(parameter.hyperparameters.options, parameter.numel):
            found = deviations(run, model_of, states.select(where), sequence[:, where]) / run.lr
            closest = max(closest, float(found.max()) if found.numel() else 0.0)
        accepted += int((~tensor.escaped).sum())
    assert accepted > 0.1 * state.coordinates
    assert 0.1 * TOLERANCE < closest <= TOLERANCE
