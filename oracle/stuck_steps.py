"""Tensors whose update number no longer grows: a float32 `step` of 2**24 plus one is 2**24.

torch goes on with that number, and so do the constants here (`hyperparameters.next_step`): nothing is wrong with the
claim, but a reader of a report should know that the number in it is not a count of updates any more.
"""

from __future__ import annotations

from collections import Counter

from guarded_moments.reference.checkpoint import GuardedState


def stuck_steps(state: GuardedState) -> list[str]:
    """A line for each number at which guarded tensors are stuck."""
    stuck: Counter[float] = Counter()
    for tensor in state.tensors:
        done = float(state.entry_of(tensor)["step"])
        if done == tensor.next_step:
            stuck[done] += 1
    return [
        f"step      {count:,} tensor{'s' if count > 1 else ''} stuck at step {done:,.0f}: adding one is rounded away, "
        "and torch repeats that number"
        for done, count in sorted(stuck.items())
    ]
