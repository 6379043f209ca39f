"""The kit as a test class, for a repository that wants it among its own tests and without an option.

    from guarded_moments.oracle.conformance.suite import ConformanceSuite

    class TestMyKernels(ConformanceSuite):
        backend = MyKernels()

Claimed: one test a requirement, with the outcomes of `pytest --oracle`.
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from guarded_moments.oracle.conformance.adapting import Adapted
from guarded_moments.oracle.conformance.catalogue import REQUIREMENTS, requirement
from guarded_moments.oracle.conformance.judgement import judge
from guarded_moments.oracle.conformance.requirements import Trial
from guarded_moments.oracle.pytest_plugin import conclude


class ConformanceSuite:
    """Derive a class whose name begins with `Test`, and give it a `backend`."""

    backend: ClassVar[object]  #: as in `Backend`: an object with the operations that it claims
    device: ClassVar[str | None] = None  #: in place of the backend's own
    seed: ClassVar[int] = 1
    budget: ClassVar[float] = 0.0  #: seconds a requirement
    op_models: ClassVar[tuple[str, ...]] = ()

    @pytest.mark.parametrize("identifier", [known.identifier for known in REQUIREMENTS])
    def test_requirement(self, identifier: str) -> None:
        """Judge the backend by one requirement."""
        adapted = Adapted(self.backend, self.device, name=type(self).__name__)
        judgement = judge(requirement(identifier), Trial(adapted, self.seed, self.op_models), self.budget)
        if judgement.fails:
            pytest.fail(judgement.in_full(), pytrace=False)
        conclude(judgement, identifier, "expected")
