"""The worst gradient of a coordinate: whether any violates a claim, how large deviations get, and the exact supremum.

`decide` and `largest_deviation` run in torch.  `supremum.worst_case`, the exact answer, is compiled, and imported by
name, so that nothing compiles for those who do not ask for it.
"""

from guarded_moments.oracle.worst_case.amsgrad import decide_with_amsgrad, largest_with_amsgrad
from guarded_moments.oracle.worst_case.decision import (
    FEW_ENUMERATED,
    MAX_ENUMERATED,
    Certainty,
    Decisions,
    Verdict,
    decide,
)
from guarded_moments.oracle.worst_case.largest import Worst, largest_deviation

__all__ = [
    "FEW_ENUMERATED",
    "MAX_ENUMERATED",
    "Certainty",
    "Decisions",
    "Verdict",
    "Worst",
    "decide",
    "decide_with_amsgrad",
    "largest_deviation",
    "largest_with_amsgrad",
]
