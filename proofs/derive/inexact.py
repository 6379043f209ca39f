"""One update that starts from moments which are off already: the theorem of a first update, and what the start adds.

The trajectory of the binary32 state is that of `derive.trajectory`, and its moments those of `derive.denominator` and
`derive.trajectory`; here they are compared with the formula's from its own state.  In the notation of `proofs.later`,
with `St` and `Ht` for the root and the reciprocal that belong to the binary32 state:

    |St - S| <= (r/2 + r*r/2)*S + sqrt(beta2*E)/b,    |Ht - H| <= distance*Ht,    Ht <= H/(1 - distance)
"""

from __future__ import annotations

from guarded_moments.proofs.derive.context import Context, at_least, within
from guarded_moments.proofs.derive.stating import compared
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.derive.trajectory import Trajectory
from guarded_moments.proofs.later import Inexact, new_moments
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.statement import Statement

_SUBSTITUTED = Hints(ladder=((1, 99, 2),))


def derive_inexact(tools: Toolbox, stated: Statement, later: Inexact) -> list[Proved]:
    """Derive the statement of one family.

    Raises:
        DerivationError: it needs a hypothesis that the statement does not have, or concludes something else.
    """
    own = Trajectory(tools, stated)
    update = own.run()
    return compared(_Inexact(tools, stated, later, own).run(update), later)


class _Inexact:
    """The context in which the binary32 state and the formula's meet."""

    def __init__(self, tools: Toolbox, stated: Statement, later: Inexact, own: Trajectory) -> None:
        self.tools, self.stated, self.own = tools, stated, own
        self.new_m, self.new_v = new_moments(stated)
        names = dict(later.names) | {"m": Polynomial.variable("native_m"), "v": Polynomial.variable("native_v")}
        c = self.c = Context(tools.prover, sorted(later.hypotheses, key=str), names=names)
        exact = stated.exact
        c.names["e"] = exact.root_above(c.poly("beta2*E"))
        c.names["t"] = exact.quotient(c.poly("e"), c.poly("b"))
        c.names["f"] = exact.quotient(c.poly("t"), c.poly("eps"))
        c.names["ru"] = exact.root_above(c.poly("c"))
        c.names["rb"] = exact.quotient(c.poly("ru"), c.poly("b"))
        c.names["below"] = exact.quotient(c.poly("c"), c.poly("ru"))
        c.names["share_of_g"] = exact.quotient(c.poly("w*b"), c.poly("below"))
        c.assume(*exact.atoms)
        c.assume("0 < j", "j*(1 - distance) == 1")
        c.assume("0 <= am", "am*am == m*m", "0 <= St", "St*St == rad*v + curv*ag*ag", "0 < Ht", "Ht*(St + eps) == 1")

    def run(self, update: list[Proved]) -> list[Proved]:
        """Both moments, the magnitude of the first, and the update."""
        self._signs()
        moments = [*self._first_moment(), *self._second_moment(), *self._magnitude()]
        self._denominator()
        return [self._eliminated(one) for one in [*moments, *self._update(update)]]

    def _signs(self) -> None:
        c, tools = self.c, self.tools
        if c.poly("b") != c.poly("root"):
            c.use(tools.positive_quotient, d="root", p="1", q="b")
        c.use(tools.positive_product, x="b", y="b")
        c.use(tools.nonnegative_quotient, d="b*b", p="beta2", q="rad")
        c.use(tools.positive_quotient, d="b*b", p="c", q="curv")
        c.by("0 <= curv", "0 < curv")
        magnitude = tools.lemma("abs(x) <= a", "0 <= a", "a*a == x*x")
        c.use(magnitude, x="m", a="am")
        c.use(magnitude, x="g", a="ag")
        c.by("0 <= A", "abs(M) <= A")
        c.by("0 <= Z", "abs(m - M) <= Z")
        c.by("0 <= K", "abs(complement*M + w*g) <= K")
        c.by("0 <= 1 - w", "w <= 1")
        reached = tools.lemma("a <= A + Z", "0 <= a", "a*a == m*m", "abs(M) <= A", "abs(m - M) <= Z",
                              hints=Hints(ladder=((2, 2, 1),)))  # fmt: skip
        c.use(reached, a="am", A="A", Z="Z", m="m", M="M")

    def _first_moment(self) -> list[Proved]:
        """From what the update adds of its own."""
        c, t = self.c, self.own.c
        shown = [t.known_fact(atom.normal()) for atom in within(self.new_m - t.poly("M"), t.poly("Em"))]
        for one in shown:
            c.add(c.discharged(one))
        c.names |= {name: t.poly(name) for name in ("rate", "rest")}
        c.names["ek"] = c.poly("u*(1 - w) + w*rate")
        c.collect("0 <= rate", {"u": "0 < u"}, ["u", "u u", "u u u"])
        c.collect("0 <= ek", {"u": "0 < u", "h": "0 <= 1 - w", "w": "0 <= w", "k": "0 <= rate"}, ["u h", "w k"])
        grows = self.tools.lemmas("first_moment_error_grows")
        return c.use(grows, m="m", M="M", y=self.new_m, b="1 - w", s="w*g", n="am", A="A", Z="Z", e="ek",
                     f="(u + rate)*w*ag + rest")  # fmt: skip

    def _second_moment(self) -> list[Proved]:
        """Likewise."""
        c, t = self.c, self.own.c
        own = t.poly("kappa*V + v_floor")
        for atom in within(self.new_v - t.poly("V"), own):
            c.add(c.discharged(t.known_fact(atom.normal())))
        c.names |= {"kappa": t.poly("kappa"), "v_floor": t.poly("v_floor")}
        c.add(c.discharged(t.known_fact(t.atoms("0 <= kappa")[0])))
        c.collect("0 <= c*ag*ag", {"c": "0 < c", "g": "0 <= ag"}, ["c g g"])
        grows = self.tools.lemmas("second_moment_error_grows")
        return c.use(grows, v="v", V="V", y=self.new_v, b="beta2", s="c*ag*ag", r="r", E="E", k="kappa", f="v_floor")

    def _magnitude(self) -> list[Proved]:
        c, tools = self.c, self.tools
        c.use(tools.scaled_magnitude, x="M", a="A", c="1 - w")
        c.use(tools.scaled_magnitude, x="g", a="ag", c="w")
        return c.use(tools.sum_magnitude, x="M*(1 - w)", a="A*(1 - w)", y="g*w", b="ag*w")

    def _denominator(self) -> None:
        """How far the reciprocal of the binary32 state's exact denominator is from the formula's."""
        c, tools = self.c, self.tools
        roots = {"S": "S*S == rad*V + curv*ag*ag", "St": "St*St == rad*v + curv*ag*ag"}
        defined = ("rad*b*b == beta2", "curv*b*b == c")
        for root, value in (("S", "V"), ("St", "v")):
            c.use(tools.product, x=root, y="b")
            c.by(f"{root}*b*{root}*b == beta2*{value} + c*ag*ag", roots[root], *defined, hints=_SUBSTITUTED)
        c.collect("0 <= r*c*ag*ag", {"r": "0 <= r", "c": "0 < c", "g": "0 <= ag"}, ["r c g g"])
        c.use(tools.scaled_magnitude, x="v - V", a="r*V + E", c="beta2")
        known = (
            "abs((v - V)*beta2) <= (r*V + E)*beta2",
            "S*b*S*b == beta2*V + c*ag*ag",
            "St*b*St*b == beta2*v + c*ag*ag",
            "0 <= r*c*ag*ag",
        )
        goal = "abs(St*b*St*b - S*b*S*b) <= r*(S*b)*(S*b) + beta2*E"
        c.by(goal, *known, hints=Hints(ladder=((1, 99, 0), (1, 99, 1), (1, 99, 2))))
        c.use(tools.lemmas("square_root_error"), y="St*b*St*b", s="St*b", S="S*b", k="r", E="beta2*E", e="e")
        c.names["half"] = c.poly("r/2 + r*r/2")
        c.by("0 <= t", "0 <= e", "0 < b", "t*b == e")
        divided = tools.lemma("abs(x) <= h*y + t", "0 < b", "abs(x*b) <= h*(y*b) + e", "t*b == e")
        c.use(divided, x="St - S", h="half", y="S", t="t", b="b", e="e")
        c.use(tools.nonnegative_quotient, d="eps", p="t", q="f")
        facts = {"S": "0 <= S", "r": "0 <= r", "eps": "0 < eps", "f": "0 <= f", "is": "f*eps == t"}
        c.collect(at_least(c.poly("distance*(S + eps)"), c.poly("half*S + t")), facts, ["r eps", "r r eps", "f S"])
        c.use(tools.looser, x="St - S", y="half*S + t", z="distance*(S + eps)")
        c.by("0 < S + eps", "0 <= S", "0 < eps")
        near = tools.lemmas("reciprocal_of_denominator")
        c.use(near, d="St + eps", D="S + eps", rho="distance", H="H", i="Ht", j="j")
        c.collect("0 <= distance", {"r": "0 <= r", "f": "0 <= f"}, ["r", "r r", "f"])

    def _update(self, update: list[Proved]) -> list[Proved]:
        c, tools = self.c, self.tools
        c.use(tools.lemma("0 < r", "0 <= r", "c <= r*r", "0 < c"), r="ru", c="c")
        c.use(tools.positive_quotient, d="ru", p="c", q="below")
        c.use(tools.positive_quotient, d="b", p="ru", q="rb")
        c.by("below*ru <= ru*ru", "below*ru == c", "c <= ru*ru")
        c.use(tools.factor_removed, x="below", y="ru", t="ru")
        for one, other in (("w", "ag"), ("w*ag", "Ht"), ("rb", "ag"), ("rb*ag", "Ht")):
            c.use(tools.product, x=one, y=other)
        # share_of_g*rb is w*b/below*(ru/b), at least w.
        same = tools.lemma("k*r*y*d == w*u*y", "k*d == w*b", "r*b == u", hints=Hints(ladder=((1, 4, 3),)))
        c.use(same, k="share_of_g", r="rb", y="ag*Ht", d="below", w="w", b="b", u="ru")
        facts = {"wg": "0 <= w*ag*Ht", "less": "below <= ru", "is": "share_of_g*rb*(ag*Ht)*below == w*ru*(ag*Ht)"}
        c.collect("(w*ag*Ht)*below <= (share_of_g*(rb*ag*Ht))*below", facts, ["wg less"])
        c.use(tools.factor_removed, x="w*ag*Ht", y="share_of_g*(rb*ag*Ht)", t="below")
        c.by("Ht <= Ht", "0 < Ht")
        c.use(update, S="St", H="Ht", Hm="Ht", z="rb*ag*Ht")
        c.names["Mt"] = c.poly("(1 - w)*m + w*g")
        # Of the moments before the update, in what the update adds of its own.
        c.names["own"] = c.poly("slack_moment*(A + Z) + slack_gradient*rb*ag + slack_reciprocal")
        facts = {"step": "0 < step", "s": "0 <= slack_moment", "a": "am <= A + Z", "H": "0 < Ht"}
        most = c.poly("step*own*Ht + slack_floor")
        first = c.poly("step*(slack_moment*am*Ht + slack_reciprocal*Ht + slack_gradient*(rb*ag*Ht)) + slack_floor")
        c.collect(at_least(most, first), facts, ["step s a H"])
        c.use(tools.looser, x="U + step*Mt*Ht", y=first, z=most)
        # Of the formula's update.
        c.by("0 <= Ht", "0 < Ht")
        c.use(tools.product, x="1 - w", y="Ht")
        c.use(tools.scaled_magnitude, x="m - M", a="Z", c="(1 - w)*Ht")
        c.use(tools.product_magnitude, x="(1 - w)*M + w*g", a="K", y="Ht - H", b="distance*Ht")
        c.use(tools.sum_magnitude, x="(m - M)*((1 - w)*Ht)", a="Z*((1 - w)*Ht)", y="((1 - w)*M + w*g)*(Ht - H)",
              b="K*(distance*Ht)")  # fmt: skip
        c.use(tools.own_magnitude, x="step")
        apart = c.poly("(m - M)*((1 - w)*Ht) + ((1 - w)*M + w*g)*(Ht - H)")
        c.use(tools.product_magnitude, x="step", a="step", y=-apart, b="Z*((1 - w)*Ht) + K*(distance*Ht)")
        c.use(tools.sum_magnitude, x="U + step*Mt*Ht", a=most, y=-(c.poly("step") * apart),
              b="step*(Z*((1 - w)*Ht) + K*(distance*Ht))")  # fmt: skip
        c.names["all"] = c.poly("own + (1 - w)*Z + distance*K")
        signs = {"s": "0 <= slack_moment", "A": "0 <= A", "Z": "0 <= Z", "g": "0 <= slack_gradient", "rb": "0 < rb"}
        signs |= {"ag": "0 <= ag", "c": "0 <= slack_reciprocal", "h": "0 <= 1 - w", "d": "0 <= distance", "K": "0 <= K"}
        c.collect("0 <= all", signs, ["s A", "s Z", "g rb ag", "c", "h Z", "d K"])
        same = tools.lemma("a == s*j", "a*d == s", "j*d == 1", hints=Hints(ladder=((1, 3, 2),)))
        c.use(same, a="apart", s="all", j="j", d="1 - distance")
        total = c.poly("step*all*Ht + slack_floor")
        wanted = c.poly("step*apart*H + floor")
        facts = {"step": "0 < step", "all": "0 <= all", "H": "Ht <= j*H", "is": "apart == all*j"}
        c.collect(at_least(wanted, total), facts, ["step all H"])
        moved = c.poly("U + step*(complement*M + w*g)*H")
        return c.use(tools.looser, x=moved, y=total, z=wanted)

    def _eliminated(self, proved: Proved) -> Proved:
        c, recording = self.c, self.tools.prover.recording
        (nearer,) = c.by("0 < 1 - distance", "distance < 1")
        proved = recording.eliminate_reciprocal(proved, "j", c.poly("1 - distance"), nearer)
        (positive,) = c.by("0 < St + eps", "0 <= St", "0 < eps")
        proved = recording.eliminate_reciprocal(proved, "Ht", c.poly("St + eps"), positive)
        facts = {"rad": "0 <= rad", "curv": "0 <= curv", "v": "0 <= v", "g": "0 <= ag"}
        (exists,) = c.collect("0 <= rad*v + curv*ag*ag", facts, ["rad v", "curv g g"])
        proved = recording.eliminate_root(proved, "St", c.poly("rad*v + curv*ag*ag"), exists)
        (square,) = self.tools.lemma("0 <= m*m", hints=Hints(squares=(Polynomial.variable("m"),)))
        square = recording.instantiate(square, {"m": c.poly("m")})
        return recording.eliminate_root(proved, "am", c.poly("m*m"), square)
