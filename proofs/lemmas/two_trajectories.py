"""The two binary32 updates differ by at most the real difference and the rounding of each.

    |Uh - U| <= T,  |Fh - Uh| <= sh,  |F - U| <= s   =>   |Fh - F| <= T + s + sh

The triangle inequality, used last: T is the closed form or the cell bound times the step, s and
sh the rounding slacks of native and recovered state.

The twin fails: without the slack of the recovered update the bound is false.
"""

from typing import Final

from guarded_moments.proofs.lemma import Lemma

LEMMA: Final = Lemma(
    name="two_trajectories",
    statement="The two binary32 updates differ by at most the real difference and the rounding of each.",
    variables={
        "U": "real native update [lr]",
        "Uh": "real recovered update [lr]",
        "F": "binary32 native update [lr]",
        "Fh": "binary32 recovered update [lr]",
        "T": "bound on the real difference [lr]",
        "s": "rounding slack of the native update [lr]",
        "sh": "rounding slack of the recovered update [lr]",
    },
    given=(
        "abs(Uh - U) <= T",
        "abs(Fh - Uh) <= sh",
        "abs(F - U) <= s",
    ),
    then="abs(Fh - F) <= T + s + sh",
    twin="abs(Fh - F) <= T + s",
    needed_by=("first_update_theorem",),
)
