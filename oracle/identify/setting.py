"""Under which hyperparameters, steps and sizes a kernel is called.

Claimed: nothing; a plan only says where an identification has looked, and the result quotes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Feature(Enum):
    """What a kernel may offer beyond the plain step, by the name of its argument."""

    WEIGHT_DECAY = "weight_decay"
    AMSGRAD = "v_max"
    MAXIMIZE = "maximize"


@dataclass(frozen=True)
class Setting:
    """The hyperparameters of one call, and the number of the update."""

    lr: float = 1e-3  #: in units of the parameter per unit update
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    step: float = 10.0  #: 1 for the first update
    weight_decay: float = 0.0
    amsgrad: bool = False
    maximize: bool = False

    @property
    def features(self) -> frozenset[Feature]:
        """What the call asks for beyond the plain step."""
        asked = (
            (Feature.WEIGHT_DECAY, self.weight_decay != 0),
            (Feature.AMSGRAD, self.amsgrad),
            (Feature.MAXIMIZE, self.maximize),
        )
        return frozenset(feature for feature, on in asked if on)

    def __str__(self) -> str:
        decay = f", weight_decay {self.weight_decay:g}" if self.weight_decay else ""
        extras = decay + ", amsgrad" * self.amsgrad + ", maximize" * self.maximize
        return f"step {self.step:g}, lr {self.lr:g}, betas ({self.beta1:g}, {self.beta2:g}), eps {self.eps:g}{extras}"


#: Steps at which the ways to form bias corrections differ (140 and 22 part most), and betas on both sides of one half.
PLAIN = (
    Setting(step=1),
    Setting(step=140),
    Setting(step=1000),
    Setting(step=22, lr=3e-4, beta1=0.95, beta2=0.99),
    Setting(step=3, lr=0.1, beta1=0.3, beta2=0.95, eps=1e-15),
    Setting(step=30, lr=0.01, beta1=0.5, beta2=0.98, eps=0.0),
    Setting(step=5, beta1=0.0, beta2=0.9),
)
#: Each option by itself, ...
EXTRA = (
    Setting(step=10, weight_decay=0.01),
    Setting(step=3, lr=0.1, beta1=0.3, beta2=0.95, weight_decay=0.1),
    Setting(step=10, amsgrad=True),
    Setting(step=5, beta1=0.0, beta2=0.9, amsgrad=True),
    Setting(step=10, maximize=True),
)
#: ... and together, where only whole steps are compared.
TOGETHER = (
    Setting(step=7, weight_decay=0.01, maximize=True),
    Setting(step=7, weight_decay=0.01, amsgrad=True),
    Setting(step=7, weight_decay=0.01, amsgrad=True, maximize=True),
)
#: Every remainder by 4, and several by 8 and 16; with 535 also where CUDA's kernels change slots, at 512.
SIZES = (1, 7, 16, 28, 45, 77, 535)
#: Enough for torch to split a tensor over threads.
LARGE = 70_003


@dataclass(frozen=True)
class Plan:
    """How hard to look."""

    settings: tuple[Setting, ...] = PLAIN + EXTRA
    together: tuple[Setting, ...] = TOGETHER
    sizes: tuple[int, ...] = SIZES  #: of the tensors in which every position sees every probe
    large: int = LARGE  #: size of the tensors in which whole steps are compared; 0 for none
    pool: int = 4096  #: inputs among which probes are searched, a setting
    search: int = 32768  #: inputs searched again for what the first left undecided, a setting; 0 for none
    redundancy: int = 2  #: probes that tell each pair of candidates apart, where there are as many
    seed: int = 1
    only_these_sizes: bool = False  #: cut the pool into tensors of the largest size too

    def __post_init__(self) -> None:
        """Refuse a plan with nothing to look at."""
        if not self.sizes or min(self.sizes) < 1 or not any(not setting.features for setting in self.settings):
            raise ValueError("a plan needs a size of at least 1 and a setting without weight decay or options")

    def of(self, features: frozenset[Feature]) -> tuple[Setting, ...]:
        """The settings that ask for exactly these."""
        return tuple(setting for setting in self.settings if setting.features == features)


#: For kernels that are compiled anew for each size and each hyperparameter.
COMPILED_PLAN = Plan(
    settings=(
        *PLAIN[:3],
        *(setting for setting in PLAIN if setting.beta1 in {0.0, 0.3}),
        Setting(step=10, weight_decay=0.01),
    ),
    together=(),
    sizes=(77, 535),
    large=0,
    only_these_sizes=True,
)
