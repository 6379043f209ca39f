"""What an audit found: of a part, of a tensor, of a file, of all files of a checkpoint; each merged from the smaller.

Claimed: counts of merged results are the sums of the counts; the closest call is the largest of all, the first of equal
ones; findings keep their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from guarded_moments.oracle.audit.afterwards import Afterwards
from guarded_moments.reference.claim import Horizon
from guarded_moments.reference.floats import hex_of
from guarded_moments.reference.implementations import platform_description

#: Coordinates of a violation or of the closest call that are spelled out; the rest is counted.
SPELLED_OUT = 10
_EVALUATION = 1 + 2.0**-50  #: of two roundings


@dataclass(frozen=True)
class Finding:
    """One coordinate at one gradient, as bits."""

    where: str  #: the tensor
    position: tuple[int, ...]  #: index into the tensor
    m: float
    v: float
    m_hat: float
    v_hat: float
    gradient: float | None  #: None where no gradient is involved: an escape that is not the native pair
    deviation: float | None  #: bit-exact, in learning rates
    update: int = 1  #: after recovery; of a later one, the gradient is the last of the sequence that is worst for it

    def as_json(self) -> dict[str, Any]:
        """Plain data, values as C99 hexadecimal with bits."""
        bits = {name: hex_of(getattr(self, name)) for name in ("m", "v", "m_hat", "v_hat")}
        gradient = None if self.gradient is None else hex_of(self.gradient)
        return {
            "where": self.where,
            "position": list(self.position),
            **bits,
            "gradient": gradient,
            "deviation": self.deviation,
            **({} if self.update == 1 else {"update": self.update}),
        }


@dataclass
class TensorAudit:
    """What was found in one guarded tensor, or in a stretch of one."""

    where: str
    implementation: str
    coordinates: int = 0
    safe: int = 0
    violations: int = 0
    undecided: int = 0
    escapes: int = 0
    needless_escapes: int = 0
    undecided_escapes: int = 0
    escape_reasons: dict[str, int] = field(default_factory=dict)
    max_deviation: float = 0.0  #: attained, in learning rates
    max_deviation_upper: float = 0.0  #: no gradient of any coordinate deviates by more
    later_upper: float | None = 0.0  #: in exact arithmetic no later update deviates by more; None: no bound for all
    drift_upper: float | None = 0.0  #: nor do the first updates in sum
    first_moment_alone: float = 0.0  #: no error of a first moment alone moves the first update by more

    def add(self, other: TensorAudit) -> None:
        """Take in what was found in another stretch of the same tensor."""
        for name in ("coordinates", "safe", "violations", "undecided", "escapes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.needless_escapes += other.needless_escapes
        self.undecided_escapes += other.undecided_escapes
        for reason, count in other.escape_reasons.items():
            self.escape_reasons[reason] = self.escape_reasons.get(reason, 0) + count
        self.max_deviation = max(self.max_deviation, other.max_deviation)
        self.max_deviation_upper = max(self.max_deviation_upper, other.max_deviation_upper)
        self.later_upper = _larger(self.later_upper, other.later_upper)
        self.drift_upper = _larger(self.drift_upper, other.drift_upper)
        self.first_moment_alone = max(self.first_moment_alone, other.first_moment_alone)


def _larger(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


@dataclass
class PartAudit:
    """What was found in one part: small, whatever its size."""

    found: TensorAudit
    findings: list[Finding] = field(default_factory=list)  #: the first violations
    closest: Finding | None = None  #: the largest deviation among the guarded coordinates
    closest_later: Finding | None = None  #: the largest seen at the last update of a longer horizon
    machine: str = ""  #: where it was decided, with its op models' platform


@dataclass
class Audit:
    """The result for a whole file."""

    claims: list[str]
    not_claimed: str
    platform: str
    tensors: list[TensorAudit] = field(default_factory=list)
    kept: dict[str, int] = field(default_factory=dict)  #: coordinates of tensors stored whole, by reason
    findings: list[Finding] = field(default_factory=list)  #: the first violations
    closest: Finding | None = None  #: the largest deviation among the guarded coordinates
    closest_later: Finding | None = None  #: the largest seen at the last update of a longer horizon
    elsewhere: list[str] = field(default_factory=list)  #: machines other than this one on which parts were decided
    horizon: str = str(Horizon.FIRST)  #: of the claim
    summed_updates: int = 0  #: that `drift_upper` of the tensors is about
    factors: list[float | None] = field(default_factory=list)  #: of each tensor, see `Afterwards`
    tolerance: float = 0.0  #: of the claim

    @property
    def afterwards(self) -> Afterwards:
        """What is known of later updates."""
        largest, total = (
            None if None in bounds else max((bound for bound in bounds if bound is not None), default=0.0)
            for bounds in ([t.later_upper for t in self.tensors], [t.drift_upper for t in self.tensors])
        )
        known = [factor for factor in self.factors if factor is not None]
        factor = max(known) if known and len(known) == len(self.factors) else None
        alone = max((tensor.first_moment_alone for tensor in self.tensors), default=0.0)
        implied = self.tolerance if alone <= self.tolerance else self.tolerance + alone
        return Afterwards(
            horizon=self.horizon,
            largest=largest,
            total=total,
            updates=self.summed_updates,
            factor=factor,
            implied=None if factor is None else factor * implied * _EVALUATION,
        )

    def total(self, name: str) -> int:
        """A count, over all guarded tensors."""
        return sum(int(getattr(tensor, name)) for tensor in self.tensors)

    @property
    def coordinates(self) -> int:
        """All coordinates of the checkpoint, those of tensors kept whole included."""
        return self.total("coordinates") + sum(self.kept.values())

    @property
    def holds(self) -> bool:
        """Whether the claim was established for every coordinate."""
        return self.total("violations") == 0 and self.total("undecided") == 0

    def add(self, place: int, part: PartAudit) -> None:
        """Take in a part of the tensor at that place; parts come in the order of the file."""
        self.tensors[place].add(part.found)
        self.findings = [*self.findings, *part.findings][:SPELLED_OUT]
        self.closest = closer(self.closest, part.closest)
        self.closest_later = closer(self.closest_later, part.closest_later)


def closer(one: Finding | None, other: Finding | None) -> Finding | None:
    """The one with the larger deviation, of equal ones the first."""
    if one is None or other is None:
        return one or other
    return other if (other.deviation or 0.0) > (one.deviation or 0.0) else one


def combined(results: Sequence[Audit]) -> Audit:
    """The audits of the files of one checkpoint as one."""
    whole = Audit(
        claims=sorted({claim for result in results for claim in result.claims}),
        not_claimed=next((result.not_claimed for result in results if result.not_claimed), ""),
        platform=platform_description(),
        tensors=[tensor for result in results for tensor in result.tensors],
        findings=[finding for result in results for finding in result.findings][:SPELLED_OUT],
        elsewhere=sorted({machine for result in results for machine in result.elsewhere}),
        horizon=next((result.horizon for result in results), str(Horizon.FIRST)),
        summed_updates=max((result.summed_updates for result in results), default=0),
        tolerance=max((result.tolerance for result in results), default=0.0),
        factors=[factor for result in results for factor in result.factors],
    )
    for result in results:
        for reason, count in result.kept.items():
            whole.kept[reason] = whole.kept.get(reason, 0) + count
        whole.closest = closer(whole.closest, result.closest)
        whole.closest_later = closer(whole.closest_later, result.closest_later)
    return whole


def reasons_of(result: Audit) -> dict[str, int]:
    """Escapes by reason, over all tensors."""
    total: Counter[str] = Counter()
    for tensor in result.tensors:
        total.update(tensor.escape_reasons)
    return dict(total)
