"""What a check may answer instead of returning."""

from __future__ import annotations


class NonConformance(Exception):  # noqa: N818 - a finding about a backend, not an error of the program
    """A requirement that a backend does not meet, with the smallest counterexample found."""

    def __init__(self, headline: str, *details: str) -> None:
        """Say what is wrong.

        Args:
            headline: one short line.
            details: more lines: the counterexample and its traces.
        """
        super().__init__(headline, *details)

    def __str__(self) -> str:
        return "\n".join(self.args)


class Undecided(Exception):  # noqa: N818 - neither a finding nor an error
    """There is no answer, so that the requirement is neither met nor missed; this counts as a failure."""


class NotJudged(Exception):  # noqa: N818 - neither a finding nor an error
    """This machine cannot try the requirement, or the backend does not claim what it needs; the text says why."""
