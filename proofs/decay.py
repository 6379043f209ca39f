"""Weight decay: the theorem of a family at the gradient that enters, and what of a step no state has a part in.

The gradient of the theorem is any number of magnitude at most the bound.  `reference.adam.make_effective_gradient` and
`make_shrunk` are run once on the parameter and the gradient of the loss, which both states share:

    L2          entering == g + weight_decay*p, rounded as the op model says;     kept == p
    decoupled   entering == g;                      kept == p*shrink, rounded as the op model says
    hypotheses  those of the theorem, with `entering` in place of `g`: so it is |entering| that the bound is on
    conclusion  |(kept + U_hat) - (kept + U)| is bounded as in the theorem: the parameters, before they are rounded

With maximize the loss's gradient is `-g` in all of this, exactly.

Claimed: nothing is written down a second time here but the sums `kept + U`.  That a step is made of these parts and of
the update alone is compared on symbols (`tests/proofs/test_decay.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

from guarded_moments.proofs.atoms import Atom
from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.statement import Family, Statement, normalised, scalars_of
from guarded_moments.proofs.symbolic import RoundedArithmetic
from guarded_moments.reference.adam import Decay, make_effective_gradient, make_shrunk
from guarded_moments.reference.implementations import IMPLEMENTATIONS
from guarded_moments.reference.op_models import OpModel


class Form(NamedTuple):
    """A way in which the op models of one family decay a parameter."""

    decay: Decay
    model: OpModel  #: one that has it

    @property
    def name(self) -> str:
        """The decay and how it is rounded, as words."""
        rounded = self.model.l2_decay if self.decay is Decay.L2 else self.model.decoupled_decay
        return f"{self.decay.value}/{rounded.name}".lower()


def forms(family: Family) -> tuple[Form, ...]:
    """Every form of an op model of the family, each once, by name."""
    models = (model for implementation in IMPLEMENTATIONS.values() for model in implementation.models)
    found: dict[str, Form] = {}
    for model in models:
        if replace(family, model=model).name == family.name:
            for form in (Form(Decay.L2, model), Form(Decay.DECOUPLED, model)):
                found.setdefault(form.name, form)
    return tuple(found[name] for name in sorted(found))


class Stated(Protocol):
    """A statement about both updates of a family, at any gradient."""

    @property
    def hypotheses(self) -> frozenset[Atom]:
        """About `g`, among others."""
        ...

    @property
    def conclusion(self) -> tuple[Atom, ...]:
        """Of the difference of both updates."""
        ...


class Decayed(NamedTuple):
    """The statement about one family and one form of decay."""

    hypotheses: frozenset[Atom]
    conclusion: tuple[Atom, ...]
    entering: Polynomial
    kept: Polynomial


def entering_and_kept(family: Family, form: Form, shared: Definitions) -> tuple[Polynomial, Polynomial]:
    """Run the sources on a parameter `p` and a gradient `g` of the loss: what enters, and what `U` is added to."""
    options, op = replace(family.options, decay=form.decay), RoundedArithmetic(shared)
    scalars, (p, g) = scalars_of(family), (Polynomial.variable(name) for name in "pg")
    entering = make_effective_gradient(op, form.model, options)(p, g, scalars)
    return entering, make_shrunk(op, form.model, options)(p, scalars)


def decayed(stated: Statement, form: Form, of_updates: Stated) -> Decayed:
    """The statement of a family at the gradient that enters, about what the parameter becomes."""
    shared = Definitions("decay_")
    entering, kept = entering_and_kept(stated.family, form, shared)
    values = {"g": entering}
    about_g = frozenset(atom for atom in of_updates.hypotheses if "g" in atom.polynomial.variables)
    at_entering = normalised([*shared.atoms, *(atom.substitute(values) for atom in about_g)])
    hypotheses = (of_updates.hypotheses - about_g) | at_entering
    # The atoms are about U_hat - U; that of the parameters is the same polynomial, since both states keep the same.
    native, recovered = (one.update.substitute(values) for one in (stated.native, stated.recovered))
    if (kept + recovered) - (kept + native) != recovered - native:
        raise AssertionError(kept)
    conclusion = tuple(atom.substitute(values).normal() for atom in of_updates.conclusion)
    return Decayed(hypotheses, conclusion, entering, kept)
