"""The ways in which a kernel may form its binary32 constants.

Claimed: nothing by itself; the constants are `reference.scalars`' own, for lr and betas taken in each way that
torch's paths take them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import product

from guarded_moments.oracle.identify.setting import Setting
from guarded_moments.reference.adam import Scalars
from guarded_moments.reference.floats import round_to_binary32
from guarded_moments.reference.hyperparameters import Hyperparameters
from guarded_moments.reference.op_models import Correction
from guarded_moments.reference.scalars import Constants, kernel_scalars


class Given(Enum):
    """How a kernel takes a hyperparameter."""

    NUMBER = "a double"
    ROUNDED = "a double, rounded to binary32 first"  #: the fused CPU kernel given a tensor
    TENSOR = "a float32 tensor"


@dataclass(frozen=True)
class Rule:
    """One way to form all constants of a step."""

    constants: Constants
    lr: Given = Given.NUMBER
    betas: Given = Given.NUMBER

    def hyperparameters(self, setting: Setting) -> Hyperparameters:
        """The setting's hyperparameters, as this rule takes them."""
        return _hyperparameters(self, setting)

    def scalars(self, setting: Setting, correction: Correction) -> Scalars[float]:
        """The constants for a setting, binary32 values."""
        return _scalars(self, setting, correction)

    def __str__(self) -> str:
        taken = (("lr", self.lr), ("betas", self.betas))
        return f"{self.constants.name}" + "".join(
            f", {name} as {given.value}" for name, given in taken if given is not Given.NUMBER
        )


_NUMBER, _EITHER = (Given.NUMBER,), (Given.NUMBER, Given.TENSOR)
#: How lr and how the betas may be given.
_TAKEN: dict[Constants, tuple[tuple[Given, ...], tuple[Given, ...]]] = {
    Constants.HOST: (tuple(Given), tuple(Given)),
    Constants.DEVICE: (_NUMBER, _NUMBER),  # it rounds everything first anyway
    Constants.CAPTURABLE: (_EITHER, _EITHER),
    Constants.CAPTURABLE_FOREACH: (_EITHER, _NUMBER),  # whose step is another with betas as tensors
    Constants.COMPILED: (_EITHER, _EITHER),
    Constants.COMPILED_FOREACH: (_EITHER, _NUMBER),
}
#: Every rule, those with plain numbers first.
RULES = tuple(
    sorted(
        (Rule(constants, lr, betas) for constants, taken in _TAKEN.items() for lr, betas in product(*taken)),
        key=lambda rule: (rule.lr is not Given.NUMBER) + (rule.betas is not Given.NUMBER),
    )
)


@lru_cache(maxsize=4096)
def _hyperparameters(rule: Rule, setting: Setting) -> Hyperparameters:
    lr, beta1, beta2 = setting.lr, setting.beta1, setting.beta2
    if rule.lr is not Given.NUMBER:
        lr = round_to_binary32(lr)
    if rule.betas is not Given.NUMBER:
        beta1, beta2 = round_to_binary32(beta1), round_to_binary32(beta2)
    return Hyperparameters(
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        eps=setting.eps,
        weight_decay=setting.weight_decay,
        decoupled=False,
        amsgrad=setting.amsgrad,
        maximize=setting.maximize,
        lr_is_tensor=rule.lr is Given.TENSOR,
        betas_are_tensors=rule.betas is Given.TENSOR,
    )


@lru_cache(maxsize=4096)
def interpolates_from_end(rule: Rule, setting: Setting) -> bool:
    """Whether the weight of the gradient is at least one half."""
    return _hyperparameters(rule, setting).options.interpolate_from_end


@lru_cache(maxsize=4096)
def _scalars(rule: Rule, setting: Setting, correction: Correction) -> Scalars[float]:
    hyperparameters = rule.hyperparameters(setting)
    return kernel_scalars(hyperparameters, setting.step, rule.constants, correction)
