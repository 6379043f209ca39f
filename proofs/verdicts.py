"""What a solver may find out about a claim."""

from enum import Enum


class Verdict(Enum):
    """What a solver found out about a claim."""

    PROVED = "proved"  #: no point contradicts it
    REFUTED = "refuted"  #: a point contradicts it, and is known
    UNKNOWN = "unknown"  #: neither was found within the resource limit
