"""Other implementations of Adam beside the op models: which they follow, and how far from it they are.

Each adapter runs another package's own optimizer as it is; nothing of another package is rewritten here.
"""

from guarded_moments.oracle.crosscheck.adapter import Adapter, After
from guarded_moments.oracle.crosscheck.registry import ADAPTERS, adapters_named
from guarded_moments.oracle.crosscheck.report import Measured, NotMeasured, Report, cross_check
from guarded_moments.oracle.crosscheck.states import SEED, State, special_states, trained_states
from guarded_moments.oracle.crosscheck.table import markdown

__all__ = [
    "ADAPTERS",
    "SEED",
    "Adapter",
    "After",
    "Measured",
    "NotMeasured",
    "Report",
    "State",
    "adapters_named",
    "cross_check",
    "markdown",
    "special_states",
    "trained_states",
]
