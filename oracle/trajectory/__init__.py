"""What happens after the first update: real training, resumed from native and from other states, and how they part.

    checkpoint -> variants (recovered, controls) -> resumed training of each, and of the native state -> divergence

Nothing here is a guarantee.  A claim covers the updates of its horizon under gradients that both runs share; runs with
gradients of their own share those of the first update only.  This measures what was seen afterwards in runs of one
training, beside controls that tell how much of it any disturbance would have caused.
"""

from guarded_moments.oracle.trajectory.follow import Plan, Resumed, Trajectory, follow
from guarded_moments.oracle.trajectory.measure import Course, Point
from guarded_moments.oracle.trajectory.variants import CONTROLS, NATIVE, OTHER_ORDER, RECOVERED, variants_of

__all__ = [
    "CONTROLS",
    "NATIVE",
    "OTHER_ORDER",
    "RECOVERED",
    "Course",
    "Plan",
    "Point",
    "Resumed",
    "Trajectory",
    "follow",
    "variants_of",
]
