"""One trajectory: how far the update that an op model computes is from the update over the reals.

    |U_fl + step*M*H| <= step*(slack_moment*|m|*H0 + slack_reciprocal*H0 + slack_gradient) + slack_floor

with `M = (1-w)*m + w*g`, `H = 1/(S + eps)`, `S = sqrt(radicand*v + curvature*g*g)`, and `H0` the same at `g = 0`.

Errors are carried through the roundings of the op model in the order in which its source makes them; nothing here knows
an op model by name.
"""

from __future__ import annotations

from typing import NamedTuple

from guarded_moments.proofs.atoms import Atom, Relation
from guarded_moments.proofs.derive.context import Context, Stated, at_least, within
from guarded_moments.proofs.derive.toolbox import Toolbox, magnitude_of
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.recording import Proved
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.statement import NATIVE, STATE, Statement, preconditions
from guarded_moments.proofs.symbolic import Definitions, Rounding, polynomial_of
from guarded_moments.reference.guard.slack import UpdateError
from guarded_moments.reference.op_models import Update

ZERO, ONE = Polynomial(), Polynomial.constant(1)
_POWERS = ("", "u ", "u u ", "u u u ", "u u u u ", "u u u u u ")


class Tracked(NamedTuple):
    """`|exact| <= magnitude` and `|result - exact| <= error`."""

    exact: Polynomial
    magnitude: Polynomial
    error: Polynomial


def derive_trajectory(tools: Toolbox, stated: Statement) -> list[Proved]:
    """Derive the native trajectory of a family; the recovered one is an instance of it."""
    return _Derivation(tools, stated).run()


class _Derivation:
    """The derivation, part by part; each part leaves what it shows in the context."""

    def __init__(self, tools: Toolbox, stated: Statement) -> None:
        self.tools, self.stated = tools, stated
        exact = stated.exact
        fields = {**stated.real._asdict(), **stated.denominator._asdict()}
        names = {name: polynomial_of(value) for name, value in fields.items()}
        names["b"] = names.pop("root")  # the kernel's own `root` keeps its name: it may be the reciprocal
        names |= {"rad": stated.constants.radicand, "curv": stated.constants.curvature}
        names |= {f"needed_{name}": polynomial_of(value) for name, value in stated.error._asdict().items()}
        names |= {name: Polynomial.variable(NATIVE + name) for name in STATE}
        # The same operands give the same variables as in the run of the source.
        names["e"] = exact.bounding_root(names["v_floor"], above=True)
        names["t"] = exact.quotient(names["e"], names["b"])
        names["f"] = exact.quotient(names["floor"], names["eps"])
        names["amplification"] = exact.quotient(ONE, ONE - names["rho"])
        names["below"] = exact.bounding_root(names["c"], above=False)
        names["share_of_g"] = exact.quotient(names["w"] * names["b"], names["below"])
        self.c = Context(tools.prover, names=names)
        self.c.assume(*(text.replace(NATIVE, "") for text in preconditions(stated.family) if "recovered" not in text))
        self.c.assume(*stated.native.definitions.atoms, *exact.atoms, "rho < 1")
        self.c.assume("0 <= am", "am*am == m*m", "0 <= ag", "ag*ag == g*g")
        self.c.assume("0 <= A", "A*A == rad*v", "0 < H0", "H0*(A + eps) == 1")
        self.c.assume("0 <= S", "S*S == rad*v + curv*ag*ag", "0 < H", "H*(S + eps) == 1")
        self._tracked: dict[str, Tracked] = {}
        self._bounds: dict[Polynomial, Polynomial] = {}

    def run(self) -> list[Proved]:
        roundings = self.stated.native.roundings
        definitions = self.stated.native.definitions
        at_root = next(i for i, r in enumerate(roundings) if len(definitions.operands(r.exact)) == 1)
        (new_v,) = definitions.operands(roundings[at_root].exact)
        self._signs()
        for rounding in roundings[:at_root]:
            self._carry(rounding)
        self._second_moment(new_v)
        self._denominator(roundings[at_root:])
        return self._update()

    def _signs(self) -> None:
        c, tools = self.c, self.tools
        magnitude = tools.lemma("abs(x) <= a", "0 <= a", "a*a == x*x")
        c.use(magnitude, x="g", a="ag")
        c.use(magnitude, x="m", a="am")
        if c.poly("b") != c.poly("root"):
            c.use(tools.positive_quotient, d="root", p="1", q="b")
        c.use(tools.own_magnitude, x="1 - w")
        c.use(tools.product, x="beta2", y="v")
        c.use(tools.own_magnitude, x="beta2*v")
        c.use(tools.lemmas("first_moment_bound"), n="am", r="ag", m="m", w="w")
        self._bounds = {c.poly(x): c.poly(k) for x, k in (("g", "ag"), ("m", "am"), ("1 - w", "1 - w"))}
        self._bounds[c.poly("beta2*v")] = c.poly("beta2*v")
        self._bounds[c.poly("(1-w)*m + w*g")] = c.poly("(1-w)*am + w*ag")

    def _carry(self, rounding: Rounding) -> None:
        """Carry errors through one rounding whose exact result is linear in rounded results."""
        c, tools = self.c, self.tools
        parts: dict[str | None, Polynomial] = {}
        for monomial, value in rounding.exact.terms:
            of = next((name for name, _ in monomial if name in self._tracked), None)
            rest = tuple(pair for pair in monomial if pair[0] != of)
            parts[of] = parts.get(of, ZERO) + Polynomial.of([(rest, value)])
        exact = rounding.exact.substitute({name: known.exact for name, known in self._tracked.items()})
        difference = error = ZERO
        reached = parts.pop(None, ZERO)
        magnitude = ZERO if exact in self._bounds else magnitude_of(c, tools, reached, self._bounds)
        for name, factor in parts.items():
            assert name is not None  # noqa: S101 - it was just taken out
            known, variable = self._tracked[name], Polynomial.variable(name)
            most = magnitude_of(c, tools, factor, self._bounds)
            c.use(tools.product_magnitude, x=factor, a=most, y=variable - known.exact, b=known.error)
            c.use(tools.sum_magnitude, x=difference, a=error, y=factor * (variable - known.exact), b=most * known.error)
            difference, error = difference + factor * (variable - known.exact), error + most * known.error
            if exact not in self._bounds:
                c.use(tools.product_magnitude, x=factor, a=most, y=known.exact, b=known.magnitude)
                c.use(tools.sum_magnitude, x=reached, a=magnitude, y=factor * known.exact, b=most * known.magnitude)
                reached, magnitude = reached + factor * known.exact, magnitude + most * known.magnitude
        magnitude = self._bounds.get(exact, magnitude)
        self._round(rounding, exact, magnitude, error)
        ((monomial, _),) = rounding.result.terms
        carried = rounding.rate * magnitude + (ONE + rounding.rate) * error + rounding.floor
        self._tracked[monomial[0][0]] = Tracked(exact, magnitude, carried)

    def _round(
        self, rounding: Rounding, exact: Polynomial, magnitude: Polynomial, error: Polynomial, sign: int = 1
    ) -> Polynomial:
        """Show and return the error of a rounding whose operand is near `exact`; `sign` turns all of it round."""
        turned = Polynomial.constant(sign)
        self.c.use(
            self.tools.lemmas("rounded_operation"),
            X=exact,
            x=turned * rounding.exact,
            r=turned * rounding.result,
            K=magnitude,
            z=error,
            d=rounding.relative,
            h=turned * rounding.absolute,
            q=rounding.rate,
            n=rounding.floor,
        )
        return rounding.rate * magnitude + (ONE + rounding.rate) * error + rounding.floor

    def _second_moment(self, new_v: Polynomial) -> None:
        """`|v' - V| <= kappa*V + v_floor`, `V = beta2*v + c*|g|*|g|`; then the same of its root."""
        c, tools = self.c, self.tools
        c.names["V"], c.names["v1"] = c.poly("beta2*v + c*ag*ag"), new_v
        ((monomial, _),) = new_v.terms
        known = self._tracked[monomial[0][0]]
        c.use(tools.lemmas("underflow_of_gradient"), l="share", k="c", E="underflow", n="n", x="ag")
        c.by(within(new_v - c.poly("V"), known.error), within(new_v - known.exact, known.error), "ag*ag == g*g")
        c.use(tools.positive_product, x="4*share", y="c")
        c.use(tools.own_square_quotient, E="underflow", x="4*share*c", n="n")
        facts = {"u": "0 < u", "n": "0 <= n", "B": "0 <= beta2", "v": "0 <= v", "c": "0 < c", "g": "0 <= ag"}
        facts |= {"E": "0 <= underflow", "mean": "n*ag <= share*c*ag*ag + underflow", "most": "c <= 1"}
        kinds = ("B v", "c g g", "n", "E", "mean", "most n")
        products = [power + kind for power in _POWERS for kind in kinds]
        c.collect(at_least(c.poly("kappa*V + v_floor"), known.error), facts, products)
        c.use(tools.looser, x=new_v - c.poly("V"), y=known.error, z="kappa*V + v_floor")

    def _denominator(self, roundings: tuple[Rounding, ...]) -> None:
        """`|d - D| <= rho*D`, `D = S + eps`, of the divisor of the first moment (step included, if divided by it)."""
        c, tools = self.c, self.tools
        root = roundings[0]
        c.names["s"], c.names["q"] = root.exact, root.rate
        c.collect("0 <= kappa", {"u": "0 < u"}, _POWERS[1:])
        c.collect(
            "kappa <= 1",
            {"u": "0 < u", "most": "u <= 1/16"},
            ["u", *_POWERS[1:], "most", "u most", "u u most", "u u u most"],
        )
        c.use(tools.product, x="S", y="b")
        defined = ("S*S == rad*v + curv*ag*ag", "rad*b*b == beta2", "curv*b*b == c")
        c.by("S*b*S*b == V", *defined, hints=Hints(ladder=((1, 99, 2),)))
        same = tools.lemma("abs(y - X) <= k*X + E", "abs(y - Y) <= k*Y + E", "X == Y")
        c.use(same, y="v1", X="S*b*S*b", Y="V", k="kappa", E="v_floor")
        c.use(tools.lemmas("square_root_error"), y="v1", S="S*b", k="kappa", E="v_floor", e="e", s="s")
        c.names["half"] = c.poly("kappa/2 + kappa*kappa/2")
        c.use(tools.own_magnitude, x="S*b")
        self._round(root, c.poly("S*b"), c.poly("S*b"), c.poly("half*(S*b) + e"))
        # Dividing by b, however it is written.
        corrected = self._using(roundings, root.result)
        sign = self._divided(corrected, root)
        turned = Polynomial.constant(sign) * corrected.exact
        c.names["k1"] = c.poly("q + (1 + q)*half")
        c.by("((1 + q)*t)*b == (1 + q)*e", "t*b == e", hints=Hints(ladder=((1, 99, 2),)))
        corrects = tools.lemmas("bias_correction_keeps_error")
        c.use(corrects, s=root.result, S="S*b", kappa="k1", a="(1 + q)*e", p=turned, P="S", c="(1 + q)*t", b="b")
        c.use(tools.own_magnitude, x="S")
        error = self._round(corrected, c.poly("S"), c.poly("S"), c.poly("k1*S + (1 + q)*t"), sign)
        added = self._using(roundings, corrected.result)
        c.by("0 < S + eps", "0 <= S", "0 < eps")
        c.use(tools.own_magnitude, x="S + eps")
        error = self._round(added, c.poly("S + eps"), c.poly("S + eps"), error, sign)
        # What underflow added is relative to eps.
        c.by("0 <= t", "0 <= e", "0 < b", "t*b == e")
        c.collect(
            "0 <= floor", {"u": "0 < u", "n": "0 <= n", "t": "0 <= t"}, [p + k for p in _POWERS for k in ("n", "t")]
        )
        c.use(tools.nonnegative_quotient, d="eps", p="floor", q="f")
        facts = {"u": "0 < u", "S": "0 <= S", "eps": "0 < eps", "n": "0 <= n", "t": "0 <= t", "f": "0 <= f"}
        facts["divided"] = "f*eps == floor"
        powers = [" ".join(["u"] * count) for count in range(11)]
        products = [f"{power} {kind}" for power in powers for kind in ("S", "eps", "n", "t", "f S")]
        c.collect(at_least(c.poly("of_sum*(S + eps)"), error), facts, products)
        c.names["d"] = Polynomial.constant(sign) * added.result
        c.use(tools.looser, x="d - (S + eps)", y=error, z="of_sum*(S + eps)")
        self.sign = sign
        if self.stated.family.model.update is Update.DIVIDE_TWICE:
            self._divide_by_step(self._using(roundings, added.result))

    def _divide_by_step(self, divided: Rounding) -> None:
        """`|step*d' - D| <= rho*D` of the quotient `d' = -d/step`, which is rounded again."""
        c, tools = self.c, self.tools
        c.names["h"], self.sign = -divided.absolute, -self.sign
        c.by("0 <= step", "0 < step")
        c.use(tools.own_magnitude, x="step")
        c.use(tools.product_magnitude, x="step", a="step", y="h", b="n")
        turned = c.poly("-step") * divided.result
        scaled = tools.lemma("s*r == x + x*d + s*h", "r == y + y*d + h", "s*y == x")
        result, exact = -divided.result, -divided.exact
        c.use(scaled, s="step", r=result, y=exact, d=divided.relative, h="h", x="d")
        known, floor = c.poly("of_sum*(S + eps)"), c.poly("step*n")
        rounds = tools.lemmas("rounded_operation")
        c.use(rounds, X="S + eps", x="d", r=turned, K="S + eps", z=known, d=divided.relative, h="step*h",
              q=divided.rate, n=floor)  # fmt: skip
        error = divided.rate * c.poly("S + eps") + (ONE + divided.rate) * known + floor
        c.names["fn"] = self.stated.exact.quotient(c.poly("n*step"), c.poly("eps"))
        c.use(tools.product, x="n", y="step")
        c.use(tools.nonnegative_quotient, d="eps", p="n*step", q="fn")
        facts = {"S": "0 <= S", "fn": "0 <= fn", "divided": "fn*eps == n*step"}
        c.collect(at_least(c.poly("rho*(S + eps)"), error), facts, ["fn S"])
        c.names["d"] = turned
        c.use(tools.looser, x="d - (S + eps)", y=error, z="rho*(S + eps)")

    def _using(self, roundings: tuple[Rounding, ...], result: Polynomial) -> Rounding:
        """The rounding that has a result as operand, directly or in a quotient."""
        operands = self.stated.native.definitions.operands
        name = next(iter(result.variables))
        return next(r for r in roundings if name in r.exact.variables.union(*(o.variables for o in operands(r.exact))))

    def _divided(self, corrected: Rounding, root: Rounding) -> int:
        """Show `sign*x*b == s` of the exact quotient or product x, and return the sign."""
        c, scalar = self.c, Polynomial.variable("root")
        operands = self.stated.native.definitions.operands(corrected.exact)
        divisor = operands[1] if operands else scalar
        sign = 1 if scalar in {divisor, corrected.exact} or divisor == scalar else -1
        if not operands:  # multiplied with the reciprocal, which is what b is the reciprocal of
            one = self.tools.lemma("s*r*b == s", "b*r == 1")
            c.use(one, s=root.result, r=scalar, b="b")
        return sign

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
            error = self._round(multiplied, c.poly("-step*m1"), c.poly("step*(K + Em)"), ZERO)
            c.use(tools.scaled_magnitude, x="p + step*m1", a=error, c="i")
            c.use(tools.scaled_magnitude, x="step*m1", a="step*(K + Em)", c="i")
            same = tools.lemma("abs(y - X) <= z", "abs(x - X) <= z", "y == x")
            c.use(same, y="y", x="p*i", X="-step*m1*i", z=error * c.poly("i"))
            rounded = self._round(last, c.poly("-step*m1*i"), c.poly("step*(K + Em)*i"), error * c.poly("i"))
        else:
            c.use(tools.product, x="step", y="i")
            c.use(tools.scaled_magnitude, x="m1", a="K + Em", c="j")
            same = tools.lemma("abs(y - X) <= z", "0 <= z", "y == X")
            c.use(same, y="y", X="m1*j", z="0")
            rounded = self._round(last, c.poly("m1*j"), c.poly("(K + Em)*j"), ZERO, self.sign)
            if not twice:
                result = Polynomial.constant(self.sign) * last.result
                c.use(tools.product_magnitude, x="step", a="step", y=result - c.poly("m1*i"), b=rounded)
                rounded = c.poly("step") * rounded
        c.names["U"] = trajectory.update
        c.use(tools.sum_magnitude, x="U + step*m1*i", a=rounded, y="-step*((m1 - M)*i + M*(i - H))",
              b="step*(Em*i + K*(rho*i))")  # fmt: skip
        shown = self._bounded(rounded + c.poly("step*(Em*i + K*(rho*i))"), multiplied is not None)
        return [tools.prover.recording.eliminate_reciprocal(one, "i", c.poly("d"), exists) for one in shown]

    def _first_moment(self, new_m: str) -> None:
        """`|m' - M| <= Em` in the shape that the slack has."""
        c, tools = self.c, self.tools
        c.names |= {name: c.poly(text) for name, text in _FIRST_MOMENT.items()}
        fused = self.stated.family.is_plain_fused
        c.names["rate"] = c.poly("u + u**2" if fused else "2*u + 3*u**2 + u**3")
        c.names["rest"] = c.poly("n" if fused else "(2 + u)*n")
        c.names["Em"] = c.poly("u*K + rate*(w*R) + rest")
        error = self._tracked[new_m].error
        facts = {"u": "0 < u", "n": "0 <= n", "w": "0 <= w", "h": "w <= 1", "m": "0 <= am", "g": "0 <= ag"}
        kinds = ["n", "h m", "w m", "w g", "h g"]
        if self.stated.family.options.interpolate_from_end:
            facts["half"] = "1/2 <= w"
            kinds += ["half m", "half g"]
        c.collect(at_least(c.poly("Em"), error), facts, [power + kind for power in _POWERS for kind in kinds])
        c.use(tools.looser, x=Polynomial.variable(new_m) - c.poly("M"), y=error, z="Em")

    def _bounded(self, error: Polynomial, multiplies: bool) -> list[Proved]:  # noqa: FBT001 - one of two op models
        """From `|U + step*M*H| <= error` to the slack of the guard."""
        c, tools = self.c, self.tools
        self._at_zero()
        twice = self.stated.family.model.update is Update.DIVIDE_TWICE
        c.names["quotient"] = c.poly("u" if twice else "2*u + u**2")
        c.names |= {name: c.poly(text) for name, text in _FACTORS.items()}
        c.names["zd"] = c.poly("(1 + u)*n") if multiplies else ZERO
        c.names["zc"] = c.poly("n") if multiplies else c.poly("(1 + u)*step*n + n")
        signs = {"u": "0 < u", "n": "0 <= n", "step": "0 < step", "i": "0 < i", "h": "w <= 1", "w": "0 <= w"}
        signs |= {"m": "0 <= am", "g": "0 <= ag"}
        kinds = [f"{kind} i" for kind in ("h m", "w m", "w g", "h g", "n")] + ["n"]
        kinds += [f"step {kind}" for kind in kinds]
        target = c.poly("step*(CM*K + CR*(w*R) + CN)*i + zd*i + zc")
        c.collect(at_least(target, error), signs, [p + k for p in _POWERS for k in kinds])
        c.use(tools.looser, x="U + step*M*H", y=error, z=target)
        # What multiplies the state is at most what it is at g = 0, and what multiplies g at most its share.
        for name in ("am*H0", "ag*H"):
            c.use(tools.product, x=name.split("*")[0], y=name.split("*")[1])
        facts = {"w": "0 <= w", "h": "w <= 1", "m": "0 <= am", "below": "H <= H0", "share": "w*ag*H <= share_of_g"}
        c.collect("K*H <= (1-w)*am*H0 + share_of_g", facts, ["h m below", "share"])
        c.collect("w*R*H <= w*am*H0 + share_of_g", facts, ["w m below", "share"])
        for large, small in (("(1-w)*am*H0 + share_of_g", "K*H"), ("w*am*H0 + share_of_g", "w*R*H"), ("H0", "H")):
            c.use(tools.scaled, x=small, y=large, c="amplification")
        c.collect("0 <= of_sum", {"u": "0 < u", "f": "0 <= f"}, [*(" ".join(["u"] * n) for n in range(1, 11)), "f"])
        more = {"fn": "0 <= fn"} if twice else {}
        c.collect("0 <= rho", {"u": "0 < u", "of_sum": "0 <= of_sum"} | more, ["u", "of_sum", "u of_sum", *more])
        c.collect("0 <= CM", {"u": "0 < u", "rho": "0 <= rho"}, [*_POWERS[1:], "rho"])
        c.collect("0 <= CR", {"u": "0 < u"}, _POWERS[1:])
        c.collect("0 <= CN", {"u": "0 < u", "n": "0 <= n"}, [p + "n" for p in _POWERS])
        c.collect("0 <= K", signs, ["h m", "w g"])
        c.collect("0 <= w*R", signs, ["w m", "w g"])
        c.use(tools.collected, a="step", C="CM", D="CR", E="CN", x="K", y="w*R", i="i", j="amplification*H",
              X="amplification*((1-w)*am*H0 + share_of_g)", Y="amplification*(w*am*H0 + share_of_g)",
              J="amplification*H0")  # fmt: skip
        c.use(tools.transitive, x="i", y="amplification*H", z="amplification*H0")
        c.collect("0 <= zd", signs, ["n", "u n"])
        c.use(tools.scaled, x="i", y="amplification*H0", c="zd")
        slack = c.poly("step*(slack_moment*am*H0 + slack_reciprocal*H0 + slack_gradient) + slack_floor")
        gathered = "CM*((1-w)*am*H0 + share_of_g) + CR*(w*am*H0 + share_of_g) + CN*H0"
        c.names["collected"] = c.poly(f"step*amplification*({gathered})")
        needed: dict[str, Stated] = {f"slack_{name}": f"needed_{name} <= slack_{name}" for name in UpdateError._fields}
        c.assume(*needed.values())
        if multiplies:
            needed["divided"] = _definition(c.poly("(1 + u)*n*amplification"), self.stated.exact, c.poly("step"))
        needed |= {"a": "0 < step", "m": "0 <= am", "H0": "0 < H0"}
        products = ["a m H0 slack_moment", "a H0 slack_reciprocal", "a slack_gradient", "slack_floor"]
        c.collect(at_least(slack, c.poly("collected + zd*amplification*H0 + zc")), needed, products)
        first, second = c.poly("step*(CM*K + CR*(w*R) + CN)*i"), c.poly("zd*i")
        sums = tools.lemma("abs(x) <= z", "abs(x) <= a + b + e", "a <= p", "b <= q", "p + q + e <= z")
        return c.use(sums, x="U + step*M*H", a=first, b=second, e="zc", p="collected", q="zd*amplification*H0", z=slack)

    def _at_zero(self) -> None:
        """`H <= H0`, and `w*|g|*H <= share_of_g`."""
        c, tools = self.c, self.tools
        c.use(tools.positive_product, x="b", y="b")
        c.by("0 <= b*b*curv", "curv*b*b == c", "0 < c")
        c.use(tools.nonnegative_quotient, d="b*b", p="c", q="curv")
        squares = {"A": "A*A == rad*v", "S": "S*S == rad*v + curv*ag*ag", "curv": "0 <= curv", "g": "0 <= ag"}
        c.collect("A*A <= S*S", squares, ["curv g g"])
        c.use(tools.roots, x="A", y="S")
        c.by("A + eps <= S + eps", "A <= S")
        c.by("0 < A + eps", "0 <= A", "0 < eps")
        c.use(tools.reciprocals, a="A + eps", b="S + eps", i="H0", j="H")
        c.use(tools.positive_quotient, d="1 - rho", p="1", q="amplification")
        facts = {"B": "0 <= beta2", "v": "0 <= v", "g": "0 <= ag", "c": "below*below <= c", "V": "S*b*S*b == V"}
        c.collect("(ag*below)*(ag*below) <= (S*b)*(S*b)", facts, ["B v", "g g c"])
        c.use(tools.roots, x="ag*below", y="S*b")
        facts = {
            "w": "0 <= w",
            "H": "0 < H",
            "root": "ag*below <= S*b",
            "b": "0 < b",
            "eps": "0 < eps",
            "one": "H*(S + eps) == 1",
        }
        c.collect("(w*ag*H)*below <= w*b", facts, ["w H root", "w b eps H"])
        c.use(tools.below_quotient, d="below", x="w*ag*H", p="w*b", q="share_of_g")


def _definition(dividend: Polynomial, exact: Definitions, divisor: Polynomial) -> Atom:
    """The definition of a quotient of the exact constants."""
    return Atom(exact.quotient(dividend, divisor) * divisor - dividend, Relation.EQUAL).normal()


_FACTORS = {"CM": "u + rho + quotient*(1 + u)", "CR": "(1 + quotient)*rate", "CN": "(1 + quotient)*rest"}
_FIRST_MOMENT = {"M": "(1-w)*m + w*g", "K": "(1-w)*am + w*ag", "R": "ag + am"}
