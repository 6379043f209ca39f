"""The denominator of one trajectory: how far what divides the first moment is from the exact one.

    |v' - V| <= kappa*V + v_floor,    |d - D| <= rho*D,    V = beta2*v + c*g*g,    D = sqrt(V)/b + eps

however the bias correction is applied, and with the step size in it where the op model divides twice.
"""

from __future__ import annotations

from guarded_moments.proofs.derive.carrying import ONE, POWERS, Carrying
from guarded_moments.proofs.derive.context import at_least, within
from guarded_moments.proofs.polynomials import Polynomial
from guarded_moments.proofs.search import Hints
from guarded_moments.proofs.symbolic import Rounding
from guarded_moments.reference.op_models import Update


def derive_second_moment(t: Carrying, new_v: Polynomial) -> None:
    """`|v' - V| <= kappa*V + v_floor`, `V = beta2*v + c*|g|*|g|`; then the same of its root."""
    c, tools = t.c, t.tools
    c.names["V"], c.names["v1"] = c.poly("beta2*v + c*ag*ag"), new_v
    ((monomial, _),) = new_v.terms
    known = t.tracked[monomial[0][0]]
    c.use(tools.lemmas("underflow_of_gradient"), l="share", k="c", E="underflow", n="n", x="ag")
    c.by(within(new_v - c.poly("V"), known.error), within(new_v - known.exact, known.error), "ag*ag == g*g")
    c.use(tools.positive_product, x="4*share", y="c")
    c.use(tools.own_square_quotient, E="underflow", x="4*share*c", n="n")
    facts = {"u": "0 < u", "n": "0 <= n", "B": "0 <= beta2", "v": "0 <= v", "c": "0 < c", "g": "0 <= ag"}
    facts |= {"E": "0 <= underflow", "mean": "n*ag <= share*c*ag*ag + underflow", "most": "c <= 1"}
    kinds = ("B v", "c g g", "n", "E", "mean", "most n")
    products = [power + kind for power in POWERS for kind in kinds]
    c.collect(at_least(c.poly("kappa*V + v_floor"), known.error), facts, products)
    c.use(tools.looser, x=new_v - c.poly("V"), y=known.error, z="kappa*V + v_floor")


def derive_largest(t: Carrying, largest: Polynomial) -> None:
    """With amsgrad: the same of the larger of `v_max` and either, which then take the places of `v1` and `V`."""
    c, tools = t.c, t.tools
    c.names["largest"] = largest
    c.use(tools.positive_product, x="b", y="b")
    defined = ("rad*b*b == beta2", "curv*b*b == c")
    c.by("(rad*v + curv*ag*ag)*(b*b) == V", *defined, hints=Hints(ladder=((1, 99, 2),)))
    c.by("top*(b*b) == v_max", "top*b*b == v_max")
    scaled = tools.lemma("a <= y*s", "x <= y", "0 < s", "x*s == a")
    for part, of in (("top", "v_max"), ("rad*v + curv*ag*ag", "V")):
        c.use(scaled, x=part, y="Y", s="b*b", a=of)
    either = tools.lemma("(y*s - a)*(y*s - d) == 0", "(y - x)*(y - z) == 0", "x*s == a", "z*s == d", hints=_SCALED)
    c.use(either, x="top", z="rad*v + curv*ag*ag", y="Y", s="b*b", a="v_max", d="V")
    c.collect("0 <= V", {"B": "0 <= beta2", "v": "0 <= v", "c": "0 < c", "g": "0 <= ag"}, ["B v", "c g g"])
    _nonnegative_errors(t)
    c.use(tools.lemmas("maximum_keeps_error"), w="v_max", x="v1", V="V", p="largest", P="Y*(b*b)",
          k="kappa", e="v_floor")  # fmt: skip
    c.by("S*b*S*b == Y*(b*b)", "S*S == Y", hints=Hints(ladder=((1, 99, 2),)))
    c.names |= {"v1": largest, "V": c.poly("Y*(b*b)")}


_SCALED = Hints(ladder=((1, 99, 2), (1, 99, 3), (1, 99, 4)))


def _nonnegative_errors(t: Carrying) -> None:
    """`0 <= kappa` and `0 <= v_floor`."""
    c = t.c
    c.collect("0 <= kappa", {"u": "0 < u"}, POWERS[1:])
    facts = {"u": "0 < u", "n": "0 <= n", "E": "0 <= underflow"}
    c.collect("0 <= v_floor", facts, [power + kind for power in POWERS for kind in ("n", "E")])


def derive_denominator(t: Carrying, roundings: tuple[Rounding, ...]) -> None:
    """`|d - D| <= rho*D`, `D = S + eps`, of the divisor of the first moment (step included, if divided by it)."""
    c, tools = t.c, t.tools
    root = roundings[0]
    c.names["s"], c.names["q"] = root.exact, root.rate
    _nonnegative_errors(t)
    c.collect(
        "kappa <= 1",
        {"u": "0 < u", "most": "u <= 1/16"},
        ["u", *POWERS[1:], "most", "u most", "u u most", "u u u most"],
    )
    c.use(tools.product, x="S", y="b")
    if not t.stated.family.options.amsgrad:
        defined = ("S*S == rad*v + curv*ag*ag", "rad*b*b == beta2", "curv*b*b == c")
        c.by("S*b*S*b == V", *defined, hints=Hints(ladder=((1, 99, 2),)))
    same = tools.lemma("abs(y - X) <= k*X + E", "abs(y - Y) <= k*Y + E", "X == Y")
    c.use(same, y="v1", X="S*b*S*b", Y="V", k="kappa", E="v_floor")
    c.use(tools.lemmas("square_root_error"), y="v1", S="S*b", k="kappa", E="v_floor", e="e", s="s")
    c.names["half"] = c.poly("kappa/2 + kappa*kappa/2")
    c.use(tools.own_magnitude, x="S*b")
    t.round(root, c.poly("S*b"), c.poly("S*b"), c.poly("half*(S*b) + e"))
    # Dividing by b, however it is written.
    corrected = _using(t, roundings, root.result)
    sign = _divided(t, corrected, root)
    turned = Polynomial.constant(sign) * corrected.exact
    c.names["k1"] = c.poly("q + (1 + q)*half")
    c.by("((1 + q)*t)*b == (1 + q)*e", "t*b == e", hints=Hints(ladder=((1, 99, 2),)))
    corrects = tools.lemmas("bias_correction_keeps_error")
    c.use(corrects, s=root.result, S="S*b", kappa="k1", a="(1 + q)*e", p=turned, P="S", c="(1 + q)*t", b="b")
    c.use(tools.own_magnitude, x="S")
    error = t.round(corrected, c.poly("S"), c.poly("S"), c.poly("k1*S + (1 + q)*t"), sign)
    added = _using(t, roundings, corrected.result)
    c.by("0 < S + eps", "0 <= S", "0 < eps")
    c.use(tools.own_magnitude, x="S + eps")
    error = t.round(added, c.poly("S + eps"), c.poly("S + eps"), error, sign)
    # What underflow added is relative to eps.
    c.by("0 <= t", "0 <= e", "0 < b", "t*b == e")
    c.collect("0 <= floor", {"u": "0 < u", "n": "0 <= n", "t": "0 <= t"}, [p + k for p in POWERS for k in ("n", "t")])
    c.use(tools.nonnegative_quotient, d="eps", p="floor", q="f")
    facts = {"u": "0 < u", "S": "0 <= S", "eps": "0 < eps", "n": "0 <= n", "t": "0 <= t", "f": "0 <= f"}
    facts["divided"] = "f*eps == floor"
    powers = [" ".join(["u"] * count) for count in range(11)]
    products = [f"{power} {kind}" for power in powers for kind in ("S", "eps", "n", "t", "f S")]
    c.collect(at_least(c.poly("of_sum*(S + eps)"), error), facts, products)
    c.names["d"] = Polynomial.constant(sign) * added.result
    c.use(tools.looser, x="d - (S + eps)", y=error, z="of_sum*(S + eps)")
    t.sign = sign
    if t.stated.family.model.update is Update.DIVIDE_TWICE:
        _divide_by_step(t, _using(t, roundings, added.result))


def _divide_by_step(t: Carrying, divided: Rounding) -> None:
    """`|step*d' - D| <= rho*D` of the quotient `d' = -d/step`, which is rounded again."""
    c, tools = t.c, t.tools
    c.names["h"], t.sign = -divided.absolute, -t.sign
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
    c.names["fn"] = t.stated.exact.quotient(c.poly("n*step"), c.poly("eps"))
    c.use(tools.product, x="n", y="step")
    c.use(tools.nonnegative_quotient, d="eps", p="n*step", q="fn")
    facts = {"S": "0 <= S", "fn": "0 <= fn", "divided": "fn*eps == n*step"}
    c.collect(at_least(c.poly("rho*(S + eps)"), error), facts, ["fn S"])
    c.names["d"] = turned
    c.use(tools.looser, x="d - (S + eps)", y=error, z="rho*(S + eps)")


def _using(t: Carrying, roundings: tuple[Rounding, ...], result: Polynomial) -> Rounding:
    """The rounding that has a result as operand, directly or in a quotient."""
    operands = t.stated.native.definitions.operands
    name = next(iter(result.variables))
    return next(r for r in roundings if name in r.exact.variables.union(*(o.variables for o in operands(r.exact))))


def _divided(t: Carrying, corrected: Rounding, root: Rounding) -> int:
    """Show `sign*x*b == s` of the exact quotient or product x, and return the sign."""
    c, scalar = t.c, Polynomial.variable("root")
    operands = t.stated.native.definitions.operands(corrected.exact)
    divisor = operands[1] if operands else scalar
    sign = 1 if scalar in {divisor, corrected.exact} or divisor == scalar else -1
    if not operands:  # multiplied with the reciprocal, which is what b is the reciprocal of
        one = t.tools.lemma("s*r*b == s", "b*r == 1")
        c.use(one, s=root.result, r=scalar, b="b")
    return sign
