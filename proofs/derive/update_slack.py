"""From the errors of one trajectory to the slack of the guard, in the shape in which the guard has it.

    |U_fl + step*M*H| <= step*(slack_moment*|m|*Hm + slack_reciprocal*Hm + slack_gradient*z) + slack_floor

for every `Hm >= H` and every `z` with `w*|g|*H <= share_of_g*z`, where `share_of_g = w*b/sqrt(c)`, rounded up.  Over
all gradients `Hm` is `H` at `g = 0` and `z` is 1; on a cell both come from its ends.
"""

from __future__ import annotations

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.definitions import Definitions
from guarded_moments.proofs.derive.carrying import POWERS, ZERO, Carrying
from guarded_moments.proofs.derive.context import Stated, at_least
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.reference.guard.slack import RoundingSlack
from guarded_moments.reference.op_models import Update

_FACTORS = {"CM": "u + rho + quotient*(1 + u)", "CR": "(1 + quotient)*rate", "CN": "(1 + quotient)*rest"}


def derive_slack(t: Carrying, error: Polynomial, *, multiplies: bool) -> list[Proved]:
    """From `|U + step*M*H| <= error` to the slack.

    Args:
        t: the trajectory, in whose context the error is known.
        error: of the update.
        multiplies: whether the op model multiplies with the step size before it divides.
    """
    _in_shape(t, error, multiplies=multiplies)
    _signs(t)
    c, tools = t.c, t.tools
    c.use(tools.collected, a="step", C="CM", D="CR", E="CN", x="K", y="w*R", i="i", j="amplification*H",
          X="amplification*((1-w)*am*Hm + share_of_g*z)", Y="amplification*(w*am*Hm + share_of_g*z)",
          J="amplification*Hm")  # fmt: skip
    c.use(tools.transitive, x="i", y="amplification*H", z="amplification*Hm")
    c.use(tools.scaled, x="i", y="amplification*Hm", c="zd")
    slack = c.poly("step*(slack_moment*am*Hm + slack_reciprocal*Hm + slack_gradient*z) + slack_floor")
    gathered = "CM*((1-w)*am*Hm + share_of_g*z) + CR*(w*am*Hm + share_of_g*z) + CN*Hm"
    c.names["collected"] = c.poly(f"step*amplification*({gathered})")
    needed: dict[str, Stated] = {f"slack_{name}": f"needed_{name} <= slack_{name}" for name in RoundingSlack._fields}
    c.assume(*needed.values())
    if multiplies:
        needed["divided"] = _definition(c.poly("(1 + u)*n*amplification"), t.stated.exact, c.poly("step"))
    needed |= {"a": "0 < step", "m": "0 <= am", "Hm": "0 < Hm", "z": "0 <= z"}
    products = ["a m Hm slack_moment", "a Hm slack_reciprocal", "a z slack_gradient", "slack_floor"]
    c.collect(at_least(slack, c.poly("collected + zd*amplification*Hm + zc")), needed, products)
    first, second = c.poly("step*(CM*K + CR*(w*R) + CN)*i"), c.poly("zd*i")
    sums = tools.lemma("abs(x) <= z", "abs(x) <= a + b + e", "a <= p", "b <= q", "p + q + e <= z")
    return c.use(sums, x="U + step*M*H", a=first, b=second, e="zc", p="collected", q="zd*amplification*Hm", z=slack)


def _in_shape(t: Carrying, error: Polynomial, *, multiplies: bool) -> None:
    """The error as a sum over what multiplies the state, the gradient, and neither."""
    c, tools = t.c, t.tools
    twice = t.stated.family.model.update is Update.DIVIDE_TWICE
    c.names["quotient"] = c.poly("u" if twice else "2*u + u**2")
    c.names |= {name: c.poly(text) for name, text in _FACTORS.items()}
    c.names["zd"] = c.poly("(1 + u)*n") if multiplies else ZERO
    c.names["zc"] = c.poly("n") if multiplies else c.poly("(1 + u)*step*n + n")
    signs = {"u": "0 < u", "n": "0 <= n", "step": "0 < step", "i": "0 < i", "h": "w <= 1", "w": "0 <= w"}
    signs |= {"m": "0 <= am", "g": "0 <= ag"}
    kinds = [f"{kind} i" for kind in ("h m", "w m", "w g", "h g", "n")] + ["n"]
    kinds += [f"step {kind}" for kind in kinds]
    target = c.poly("step*(CM*K + CR*(w*R) + CN)*i + zd*i + zc")
    c.collect(at_least(target, error), signs, [p + k for p in POWERS for k in kinds])
    c.use(tools.looser, x="U + step*M*H", y=error, z=target)
    c.collect("0 <= K", signs, ["h m", "w g"])
    c.collect("0 <= w*R", signs, ["w m", "w g"])
    c.collect("0 <= zd", signs, ["n", "u n"])


def _signs(t: Carrying) -> None:
    """What multiplies the state is at most what it is with `Hm`, what multiplies `g` its share, and all signs."""
    c, tools = t.c, t.tools
    c.assume("H <= Hm", "0 <= z", "w*ag*H <= share_of_g*z")
    c.by("0 < Hm", "0 < H", "H <= Hm")
    c.use(tools.positive_quotient, d="1 - rho", p="1", q="amplification")
    for one, other in (("am", "Hm"), ("ag", "H")):
        c.use(tools.product, x=one, y=other)
    facts = {"w": "0 <= w", "h": "w <= 1", "m": "0 <= am", "below": "H <= Hm", "share": "w*ag*H <= share_of_g*z"}
    c.collect("K*H <= (1-w)*am*Hm + share_of_g*z", facts, ["h m below", "share"])
    c.collect("w*R*H <= w*am*Hm + share_of_g*z", facts, ["w m below", "share"])
    for large, small in (("(1-w)*am*Hm + share_of_g*z", "K*H"), ("w*am*Hm + share_of_g*z", "w*R*H"), ("Hm", "H")):
        c.use(tools.scaled, x=small, y=large, c="amplification")
    c.collect("0 <= of_sum", {"u": "0 < u", "f": "0 <= f"}, [*(" ".join(["u"] * n) for n in range(1, 11)), "f"])
    more = {"fn": "0 <= fn"} if t.stated.family.model.update is Update.DIVIDE_TWICE else {}
    c.collect("0 <= rho", {"u": "0 < u", "of_sum": "0 <= of_sum"} | more, ["u", "of_sum", "u of_sum", *more])
    c.collect("0 <= CM", {"u": "0 < u", "rho": "0 <= rho"}, [*POWERS[1:], "rho"])
    c.collect("0 <= CR", {"u": "0 < u"}, POWERS[1:])
    c.collect("0 <= CN", {"u": "0 < u", "n": "0 <= n"}, [p + "n" for p in POWERS])


def _definition(dividend: Polynomial, exact: Definitions, divisor: Polynomial) -> Atom:
    """The definition of a quotient of the exact constants."""
    return Atom(exact.quotient(dividend, divisor) * divisor - dividend, Relation.EQUAL).normal()
