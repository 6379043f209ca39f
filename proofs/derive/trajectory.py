"""One trajectory: how far the update that an op model computes is from the update over the reals.

    |U_fl + step*M*H| <= the slack of `derive.update_slack`

with `M = (1-w)*m + w*g`, `H = 1/(S + eps)` and `S = sqrt(radicand*v + curvature*g*g)`.  The errors of the first moment
and of the denominator come from `derive.carrying` and `derive.denominator`; here they meet in the quotient.
"""

from __future__ import annotations

from guarded_moments.proofs.derive.carrying import POWERS, ZERO, Carrying
from guarded_moments.proofs.derive.context import at_least
from guarded_moments.proofs.derive.denominator import derive_denominator, derive_largest, derive_second_moment
from guarded_moments.proofs.derive.toolbox import Toolbox
from guarded_moments.proofs.derive.update_slack import derive_slack
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.statement import Statement
from guarded_moments.reference.op_models import Update


def derive_trajectory(tools: Toolbox, stated: Statement) -> list[Proved]:
    """Derive the native trajectory of a family; the recovered one is an instance of it."""
    return Trajectory(tools, stated).run()


class Trajectory(Carrying):
    """The derivation, part by part; what is shown of both moments stays in its context."""

    def run(self) -> list[Proved]:
        """Derive the bound on the update."""
        roundings = self.stated.native.roundings
        definitions = self.stated.native.definitions
        at_root = next(i for i, r in enumerate(roundings) if len(definitions.operands(r.exact)) == 1)
        (under_root,) = definitions.operands(roundings[at_root].exact)
        for rounding in roundings[:at_root]:
            self.carry(rounding)
        if self.stated.family.options.amsgrad:
            (new_v,) = (x for x in definitions.operands(under_root) if x != Polynomial.variable("v_max"))
            derive_second_moment(self, new_v)
            derive_largest(self, under_root)
        else:
            derive_second_moment(self, under_root)
        derive_denominator(self, roundings[at_root:])
        return self._update()

    def _update(self) -> list[Proved]:
        """`|U + step*M*H| <= the slack`."""
        c, tools, trajectory = self.c, self.tools, self.stated.native
        *_, last = trajectory.roundings
        numerator, divisor = trajectory.definitions.operands(last.exact)
        multiplied = next(
            (r for r in trajectory.roundings if r.result == numerator and r.exact.variables & {"step"}), None
        )
        new_m = next(iter((multiplied.exact if multiplied else numerator).variables - {"step"}))
        self._first_moment(new_m)
        # d is positive, and 1/d near H.
        c.names |= {"m1": Polynomial.variable(new_m), "y": Polynomial.constant(self.sign) * last.exact, "p": numerator}
        (exists,) = c.use(tools.lemma("0 < d", "abs(d - D) <= r*D", "r < 1", "0 < D"), d="d", D="S + eps", r="rho")
        c.assume("0 < i", "i*d == 1")
        near = tools.lemmas("reciprocal_of_denominator")
        c.use(near, d="d", D="S + eps", rho="rho", H="H", i="i", j="amplification")
        twice = self.stated.family.model.update is Update.DIVIDE_TWICE
        c.names["j"] = c.poly("step*i" if twice else "i")  # what the numerator is multiplied with
        c.names["d0"] = Polynomial.constant(self.sign) * divisor
        quotient = tools.lemma("y == p*s*i", "y*d == p", "i*(s*d) == 1")
        c.use(quotient, y="y", p="p", i="i", d="d0", s="step" if twice else "1")
        # |m1*i - M*H| <= (Em + rho*K)*i
        c.use(tools.scaled_magnitude, x="m1 - M", a="Em", c="i")
        c.use(tools.product_magnitude, x="M", a="K", y="i - H", b="rho*i")
        c.use(tools.sum_magnitude, x="(m1 - M)*i", a="Em*i", y="M*(i - H)", b="K*(rho*i)")
        c.use(tools.own_magnitude, x="step")
        c.use(tools.product_magnitude, x="step", a="step", y="(m1 - M)*i + M*(i - H)", b="Em*i + K*(rho*i)")
        c.use(tools.sum_magnitude, x="M", a="K", y="m1 - M", b="Em")
        # The roundings after the denominator, of -step*m1*i.
        if multiplied is not None:
            c.use(tools.product_magnitude, x="step", a="step", y="m1", b="K + Em")
            error = self.round(multiplied, c.poly("-step*m1"), c.poly("step*(K + Em)"), ZERO)
            c.use(tools.scaled_magnitude, x="p + step*m1", a=error, c="i")
            c.use(tools.scaled_magnitude, x="step*m1", a="step*(K + Em)", c="i")
            same = tools.lemma("abs(y - X) <= z", "abs(x - X) <= z", "y == x")
            c.use(same, y="y", x="p*i", X="-step*m1*i", z=error * c.poly("i"))
            rounded = self.round(last, c.poly("-step*m1*i"), c.poly("step*(K + Em)*i"), error * c.poly("i"))
        else:
            c.use(tools.product, x="step", y="i")
            c.use(tools.scaled_magnitude, x="m1", a="K + Em", c="j")
            same = tools.lemma("abs(y - X) <= z", "0 <= z", "y == X")
            c.use(same, y="y", X="m1*j", z="0")
            rounded = self.round(last, c.poly("m1*j"), c.poly("(K + Em)*j"), ZERO, self.sign)
            if not twice:
                result = Polynomial.constant(self.sign) * last.result
                c.use(tools.product_magnitude, x="step", a="step", y=result - c.poly("m1*i"), b=rounded)
                rounded = c.poly("step") * rounded
        c.names["U"] = trajectory.update
        c.use(tools.sum_magnitude, x="U + step*m1*i", a=rounded, y="-step*((m1 - M)*i + M*(i - H))",
              b="step*(Em*i + K*(rho*i))")  # fmt: skip
        shown = derive_slack(self, rounded + c.poly("step*(Em*i + K*(rho*i))"), multiplies=multiplied is not None)
        return [tools.prover.recording.eliminate_reciprocal(one, "i", c.poly("d"), exists) for one in shown]

    def _first_moment(self, new_m: str) -> None:
        """`|m' - M| <= Em` in the shape that the slack has."""
        c, tools = self.c, self.tools
        c.names |= {name: c.poly(text) for name, text in _FIRST_MOMENT.items()}
        fused = self.stated.family.is_plain_fused
        c.names["rate"] = c.poly("u + u**2" if fused else "2*u + 3*u**2 + u**3")
        c.names["rest"] = c.poly("n" if fused else "(2 + u)*n")
        c.names["Em"] = c.poly("u*K + rate*(w*R) + rest")
        error = self.tracked[new_m].error
        facts = {"u": "0 < u", "n": "0 <= n", "w": "0 <= w", "h": "w <= 1", "m": "0 <= am", "g": "0 <= ag"}
        kinds = ["n", "h m", "w m", "w g", "h g"]
        if self.stated.family.options.interpolate_from_end:
            facts["half"] = "1/2 <= w"
            kinds += ["half m", "half g"]
        c.collect(at_least(c.poly("Em"), error), facts, [power + kind for power in POWERS for kind in kinds])
        c.use(tools.looser, x=Polynomial.variable(new_m) - c.poly("M"), y=error, z="Em")


_FIRST_MOMENT = {"M": "(1-w)*m + w*g", "K": "(1-w)*am + w*ag", "R": "ag + am"}
