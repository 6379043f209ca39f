"""The picture of `gmc explain --plot`: one coordinate's deviation against the gradient."""

from __future__ import annotations

from pathlib import Path

from guarded_moments.oracle.deviation_curve import Curve
from guarded_moments.oracle.explain import Explanation
from guarded_moments.oracle.pictures import figure
from guarded_moments.oracle.worst_case import Verdict

_SIZE = (9.0, 5.0)  #: width and height in inches


def draw(found: Explanation, curve: Curve, path: Path, kind: str) -> None:
    """Draw the deviation, the tolerance, the closed-form bound, the cells of the search and the worst gradient.

    Args:
        found: the coordinate's explanation.
        curve: its samples and cells.
        path: where to write.
        kind: png, svg or pdf.
    """
    lr = found.lr
    drawn, axes = figure(*_SIZE)
    for sign in (1.0, -1.0):
        for low, high, upper in zip(*(part.tolist() for part in curve[2:5]), strict=True):
            ends = [sign * low, sign * high]
            axes.fill_between(ends, 0, upper / lr, color="tab:blue", alpha=0.12, linewidth=0.6)
    axes.fill_between([], [], color="tab:blue", alpha=0.25, label=f"bound on each of {2 * len(curve.cell_low)} cells")
    axes.plot(curve.gradient.tolist(), (curve.deviation / lr).tolist(), color="tab:blue", label="deviation, bit-exact")
    axes.axhline(found.claim.tolerance.value, color="tab:red", label=f"tolerance {found.claim.tolerance.value:g}")
    if found.bound is not None:
        axes.axhline(found.bound, color="tab:orange", linestyle="--", label=f"closed-form bound {found.bound:.4g}")
    if found.worst_gradient is not None:
        axes.plot([found.worst_gradient], [found.worst_deviation], "o", color="black", label="worst gradient found")
    axes.set_xscale("symlog", linthresh=curve.scale / 64)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("gradient (symmetric logarithmic)")
    axes.set_ylabel("deviation of the update, in learning rates")
    verdict = "" if found.verdict is None else Verdict(found.verdict).name
    axes.set_title(f"m {found.m:.6g} -> {found.m_hat:.6g}, v {found.v:.6g} -> {found.v_hat:.6g}: {verdict}")
    axes.legend(loc="lower center", fontsize="small")
    drawn.savefig(path, format=kind)
