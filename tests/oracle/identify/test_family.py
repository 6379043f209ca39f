"""Every implementation of the family, simulated by the one step, is found to be itself, and a changed one is not."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

import numpy as np
import pytest
from tests.oracle.identify.simulated import QUICK, subject

from guarded_moments.oracle.identify import Identification, Plan, Setting, identify
from guarded_moments.oracle.identify.candidates import CHOICES, Quantity
from guarded_moments.oracle.identify.report import choices_left, in_words
from guarded_moments.reference.adam import Decay
from guarded_moments.reference.implementations import IMPLEMENTATIONS, Implementation, Placement
from guarded_moments.reference.op_models import L2Decay, OpModel

#: Which implementations have the same op models, and so the same bits: nothing could tell them apart.
SAME = [
    {"torch-2.13-cpu-avx2/single", "torch-2.13-cpu-avx2/foreach"},
    {"torch-2.13-cpu-default/single", "torch-2.13-cpu-default/foreach"},
]
#: And which have the same with decoupled decay.
SAME_DECOUPLED = [*SAME, {"torch-2.14-cuda-sm75-sm90/fused", "torch-2.14-cuda-sm100-sm120/fused"}]
ONE_OF_EACH = [name for name in IMPLEMENTATIONS if not any(name in same and name.endswith("foreach") for same in SAME)]


def names(found: Identification) -> set[str]:
    return {known.name for known, _ in found.named}


@pytest.mark.parametrize("decay", [Decay.L2, Decay.DECOUPLED])
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_an_implementation_is_found_to_be_itself(name: str, decay: Decay, compared: Counter[str]) -> None:
    found = identify(subject(IMPLEMENTATIONS[name], decay), QUICK)
    groups = SAME if decay is Decay.L2 else SAME_DECOUPLED
    assert names(found) == next((same for same in groups if name in same), {name})
    assert {rule.constants for rule in found.rules} == {IMPLEMENTATIONS[name].constants}
    assert found.nearest.altered == ()
    assert not found.differences
    compared["identified kernels with op models"] += found.compared


def test_lr_as_a_tensor_is_found_in_a_capturable_kernel() -> None:
    found = identify(subject(IMPLEMENTATIONS["torch-2.14-cuda/capturable"], lr_is_tensor=True), QUICK)
    assert names(found) == {"torch-2.14-cuda/capturable"}
    assert all(str(rule).startswith("CAPTURABLE, lr as a float32 tensor") for rule in found.rules)


def test_the_slots_of_cudas_fused_kernel_are_found_in_both_of_its_layouts() -> None:
    """Element i mod 4 where vectors fit, else blocks of 512."""
    fused = IMPLEMENTATIONS["torch-2.14-cuda-sm75-sm90/fused"]
    found = identify(subject(fused), replace(QUICK, sizes=(28, 535)))
    assert names(found) == {fused.name}
    assert found.assembly is not None
    assert found.assembly.placement is Placement.FIRST_SLOT
    first, second = (part[Quantity.GRADIENT_DECAY] for part in found.assembly.parts)
    fields = [dict(candidates[0].choices)["l2_decay"] for candidates in (first, second)]
    assert fields == [L2Decay.FMA, L2Decay.SEPARATE]


class Alteration(NamedTuple):
    """An implementation with one field of one of its op models changed."""

    changed: Implementation
    field: str
    choice: Enum
    part: int


#: What a compiler decides, contraction by contraction; and the rest.
CONTRACTIONS = ("interpolation", "second_moment", "l2_decay")
OTHER_FIELDS = ("decoupled_decay", "square_root", "correction", "update", "maximum", "from_end")


def alterations(implementation: Implementation, fields: tuple[str, ...]) -> Iterator[Alteration]:
    for part, model in enumerate(implementation.models):
        for field in fields:
            for choice in type(getattr(model, field)):
                if choice is not getattr(model, field):
                    models = list(implementation.models)
                    models[part] = replace(model, **{field: choice})
                    if implementation.placement is Placement.FIRST_SLOT and field != "l2_decay":
                        # Its parts differ only where L2 decay acts: elsewhere they are one.
                        models = [replace(other, **{field: choice}) for other in models]
                    yield Alteration(replace(implementation, models=tuple(models)), field, choice, part)


#: Enough for any one field: the constants part the ways to form them, zeros and ties show signs.
ALTERED = replace(
    QUICK,
    settings=(
        Setting(step=140),
        Setting(step=5, beta1=0.0, beta2=0.9),
        Setting(step=10, weight_decay=0.1),
        Setting(step=5, beta1=0.0, beta2=0.9, amsgrad=True),
    ),
    together=(),
    search=0,
)


def check_altered(name: str, altered: Alteration, plan: Plan) -> None:
    """The change is seen, and named beside the implementation that was changed or another that is as near."""
    original = IMPLEMENTATIONS[name]
    decay = Decay.DECOUPLED if altered.field == "decoupled_decay" else Decay.L2
    found = identify(subject(altered.changed, decay), plan)
    told = f"{name}, part {altered.part}: {altered.field} is {altered.choice}\n" + "\n".join(in_words(found))
    assert found.exact, told
    assert name not in names(found), told
    assert found.assembly is not None
    acts = found.assembly.acts
    left = [
        choices_left(quantity, part, acts)[altered.field]
        for part in found.assembly.parts
        for quantity in part
        if altered.field in choices_left(quantity, part, acts)
    ]
    assert any(altered.choice in choices for choices in left), told
    if not found.named:
        assert len(found.nearest.altered) <= len(original.models), told
        assert any(altered.field in text for text in found.nearest.altered), told


def visible(altered: Alteration, original: OpModel) -> bool:
    """Whether the changed field changes anything: some are not used, and some say the same on this machine."""
    fma_twice = original.interpolation.name == "FMA_TWICE"
    return not (altered.field == "from_end" and fma_twice)


@pytest.mark.timeout(900)  # for `--oracle`
@pytest.mark.parametrize("field", CONTRACTIONS)
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_one_altered_contraction_is_caught_and_named(
    name: str, field: str, rng: np.random.Generator, budget: int
) -> None:
    """One alteration of one contraction a kernel, drawn from those of both parts; with `--oracle` all of them."""
    if budget == 1 and field != CONTRACTIONS[ONE_OF_EACH.index(name) % len(CONTRACTIONS)]:
        pytest.skip("one contraction a kernel; --oracle alters the others too")
    every = list(alterations(IMPLEMENTATIONS[name], (field,)))
    chosen = every if budget > 1 else [every[rng.integers(len(every))]]
    for altered in chosen:
        check_altered(name, altered, ALTERED)


@pytest.mark.timeout(900)  # for `--oracle`
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_any_other_altered_field_is_caught_and_named(name: str, rng: np.random.Generator, budget: int) -> None:
    """One alteration, drawn from all; with `--oracle` all of them."""
    models = IMPLEMENTATIONS[name].models
    every = [a for a in alterations(IMPLEMENTATIONS[name], OTHER_FIELDS) if visible(a, models[a.part])]
    for altered in every if budget > 1 else [every[rng.integers(len(every))]]:
        check_altered(name, altered, ALTERED)


def test_every_choice_of_the_family_is_a_candidate() -> None:
    examined = {field for fields in CHOICES.values() for field in fields}
    assert examined | {"l2_decay", "decoupled_decay", "maximum", "name"} == set(OpModel.__dataclass_fields__)
