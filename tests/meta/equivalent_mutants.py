"""Mutants of the guard that no test can tell from it, since they change nothing that is claimed: each with the reason.

By module and reason, a line of code as it is in the source and the change; what is listed here and killed all the same,
or is no longer there, does not belong.
"""

EQUIVALENT: dict[str, dict[str, list[tuple[str, str]]]] = {
    "closed_form": {
        "one rounding too many is counted: less is accepted, if anything": [
            ("return round_up(inflation(count + 1))  # and one for the product with this factor", "1 to 2"),
        ],
    },
    "constants": {
        "what is counted is roundings, whatever the number": [
            ("return GuardConstants(*(op.constant(0.0) for _ in GuardConstants._fields))", "0.0 to 1.0"),
        ],
        "a default, for those who ask of other constants": [
            ("threshold: Fraction = Fraction(0),", "0 to 1"),
            ("gradient_bound: Fraction = Fraction(0),", "0 to 1"),
        ],
        "any number below every root": [
            ("TINY = 2.0**-1000", "1000 to 1001"),
        ],
    },
    "search": {
        "given up one split sooner: less is accepted, if anything": [
            (
                "exceeded[cells.coordinate[cells.floats_inside <= 1]] = True  # neighbours: nothing is left to split",
                "1 to 2",
            ),
        ],
        "at zero both are one number": [
            ("return torch.where(gradient < 0, minus, plus).clamp_(min=0)", "Lt to LtE"),
        ],
        "at a tie either sign attains it": [
            ("sign = torch.where(plus[row, column] >= minus[row, column], 1.0, -1.0)", "GtE to Gt"),
            ("return halves, torch.maximum(plus, minus), torch.where(plus >= minus, middle, -middle)", "GtE to Gt"),
        ],
        "a name's number": [
            ("SPENT = 2", "2 to 3"),
        ],
        "from where cells are split and not enumerated; both are exact": [
            ("ENUMERABLE = 512", "512 to 513"),
        ],
        "at equality alone: less is accepted, if anything": [
            ("exceeded = best > allowed", "Gt to GtE"),
            ("exceeded |= best > allowed", "Gt to GtE"),
            ("cells = cells.select(upper > allowed[cells.coordinate])", "Gt to GtE"),
            ("keep = (bounds.upper(lows, highs) > cutoff(best)) & wide", "Gt to GtE"),
        ],
        "a budget: what is beyond it is not accepted": [
            ("def cleared(constants: GuardConstants[float], states: States, rounds: int = 60) -> Cleared:", "60 to 61"),
        ],
        "a sign is 1 or -1": [
            ("return Partition(Cells(coordinate, low, high), best, g[row, column] * sign)", "Mult to Div"),
        ],
        "all cells are one gradient then": [
            ("wide[-1] |= highs.g[-1] == 0", "1 to 2"),
        ],
        "a mark": [
            (
                "return (torch.zeros_like(cutoff).index_fill_(0, partition.cells.coordinate, 1.0) > 0).nonzero().flatten()",
                "1.0 to 2.0",
            ),
        ],
    },
    "exact": {
        "where compiling pays; both ways decide alike": [
            ("WORTH_COMPILING = 1 << 20", "1 to 2"),
            ("WORTH_COMPILING = 1 << 20", "20 to 21"),
            ("compiled = len(judged) >= WORTH_COMPILING if compiled is None else compiled", "GtE to Gt"),
        ],
        "how many are searched together": [
            ("_TORCH_BLOCK = 1 << 12", "1 to 2"),
            ("_TORCH_BLOCK = 1 << 12", "12 to 13"),
        ],
        "more is searched again, to the same end": [
            (
                "within = (~found.cleared & (found.best * constants.step <= constants.threshold)).nonzero().flatten()",
                "BitAnd to BitOr",
            ),
        ],
        "at equality alone: less is accepted, if anything": [
            (
                "within = (~found.cleared & (found.best * constants.step <= constants.threshold)).nonzero().flatten()",
                "LtE to Lt",
            ),
        ],
        "one block of no coordinates in any case": [
            (
                "blocks = [states.slice(begin, begin + _TORCH_BLOCK) for begin in range(0, max(1, len(states.m)), _TORCH_BLOCK)]",
                "1 to 2",
            ),
        ],
        "a cell of three gradients is left as it is: less is accepted, if anything": [
            ("left = uncleared(constants, states.select(index), shortest=1).cells.coordinate", "1 to 2"),
        ],
    },
    "enclosure": {
        "a budget: what is beyond it is in the upper end": [
            ("rounds: int = 200,", "200 to 201"),
        ],
        "at equality alone: more is split, to the same end": [
            (
                "cells = cells.select(bounds.upper(cells.low, cells.high, cells.coordinate) > cutoff(best)[cells.coordinate])",
                "Gt to GtE",
            ),
        ],
    },
    "cut": {
        "where cells end decides how long a search takes, and nothing else": [
            ("FIRST_ENDS = (0.0, 0.3, 0.6, 1.0, 1.7, 3.5, 9.0)", "1.7 to 2.7"),
            ("FIRST_ENDS = (0.0, 0.3, 0.6, 1.0, 1.7, 3.5, 9.0)", "3.5 to 4.5"),
            ("FIRST_ENDS = (0.0, 0.3, 0.6, 1.0, 1.7, 3.5, 9.0)", "9.0 to 10.0"),
        ],
    },
    "binary32_filter": {
        "how many are remembered": [
            ("@lru_cache(maxsize=64)", "64 to 65"),
        ],
        "what a filter does not judge the guard does, alike": [
            ("_ORDINARY = (Ordinary(2.0**10, 2.0**-80, 2.0**20), Ordinary(2.0**10, 2.0**-60, 2.0**10))", "10 to 11"),
            ("_ORDINARY = (Ordinary(2.0**10, 2.0**-80, 2.0**20), Ordinary(2.0**10, 2.0**-60, 2.0**10))", "20 to 21"),
            ("_ORDINARY = (Ordinary(2.0**10, 2.0**-80, 2.0**20), Ordinary(2.0**10, 2.0**-60, 2.0**10))", "60 to 61"),
            ("_ORDINARY = (Ordinary(2.0**10, 2.0**-80, 2.0**20), Ordinary(2.0**10, 2.0**-60, 2.0**10))", "80 to 81"),
        ],
        "it leaves everything to the guard": [
            ("return Filter(held, np.float32(-np.inf), np.float32(np.inf), _ORDINARY[0])", "0 to 1"),
        ],
        "at equality alone: more is left to the guard": [
            (
                "return np.nextafter(nearest, np.float32(-np.inf)) if Fraction(float(nearest)) > value else nearest",
                "Gt to GtE",
            ),
        ],
    },
    "compiled_search": {
        "a budget: what is beyond it is not accepted": [
            ("MAX_CELLS = 20_000", "20000 to 20001"),
            ("_STACK = 512  #: cells waiting at a time; depth-first, each split adds one", "512 to 513"),
            ("cells = 0", "0 to 1"),
            ("cells += 1", "1 to 2"),
            ("if cells > MAX_CELLS or top + 2 > _STACK:", "Gt to GtE"),
            ("if cells > MAX_CELLS or top + 2 > _STACK:", "2 to 3"),
        ],
        "how many are remembered": [
            ("@lru_cache(maxsize=1)", "1 to 2"),
        ],
        "a column that nothing uses": [
            ("lows, highs = np.empty((_STACK, 3)), np.empty((_STACK, 3))", "3 to 4"),
        ],
        "a cell of no width is asked about, to the same end": [
            ("if g <= low.g and (j < len(ends) or g > 0.0):  # no width, and covered by its neighbours", "0.0 to 1.0"),
        ],
        "which half comes first": [
            ("a, b = (low, cut) if half == 0 else (cut, high)", "0 to 1"),
        ],
        "at a tie either sign attains it": [
            ("outcome[i], gradient[i] = exceeded, np.float32(g if plus >= minus else -g)", "GtE to Gt"),
        ],
        "at equality alone: less is accepted, if anything": [
            ("if at_zero > allowed:", "Gt to GtE"),
            ("if upper_of(k, terms.shift, terms.pull, a, b) > allowed:", "Gt to GtE"),
            ("if max(plus, minus) > allowed:", "Gt to GtE"),
            ("if upper_of(k, terms.shift, terms.pull, low, high) > allowed:", "Gt to GtE"),
        ],
    },
    "signed_cells": {
        "a budget: what is beyond it is left as it is": [
            ("MAX_ROUNDS = 400", "400 to 401"),
            ("MAX_CELLS = 1 << 12", "1 to 2"),
            ("MAX_CELLS = 1 << 12", "12 to 13"),
            ("found.spent.logical_or_(cells.coordinate.bincount(minlength=n) > MAX_CELLS)", "Gt to GtE"),
        ],
        "at equality alone: less is cleared, if anything": [
            ("cells = cells.select(bounds.highest(cells) > constants.threshold)", "Gt to GtE"),
            (
                "done = (at_ends > constants.threshold) | (cells.floats_inside <= shortest) | found.spent[cells.coordinate]",
                "Gt to GtE",
            ),
        ],
        "all cells are one gradient then": [
            ("keep[-1] |= ends[-1] == 0  # zero is all there is: no cell has a width", "1 to 2"),
        ],
        "below every value": [
            ("torch.full((n,), -1.0, dtype=torch.float64),", "1.0 to 2.0"),
        ],
        "another gradient of the same value": [
            ("attains = (values >= value[cells.coordinate]) & (values > found.value[cells.coordinate])", "Gt to GtE"),
        ],
        "a sign is 1 or -1": [
            ("by_slopes = torch.where(cells.sign > 0, plus, minus)", "Gt to GtE"),
            ("upper = torch.where(cells.sign > 0, plus, minus)", "Gt to GtE"),
            ("return torch.where(sign > 0, plus, minus) * self._step", "Gt to GtE"),
        ],
    },
    "cell_slack": {
        "one rounding too many is counted: less is accepted, if anything": [
            (
                "return round_up(inflation(deviation_roundings() + 1))  # and one for the product with this factor",
                "1 to 2",
            ),
        ],
    },
    "overflow": {
        "how many are remembered": [
            ("@lru_cache(maxsize=64)  # tensors of one param_group share everything that matters here", "64 to 65"),
        ],
    },
    "binary64_range": {
        "how wide a case is": [
            ("BAND = 64", "64 to 65"),
        ],
        "a number far above every exponent in either case": [
            ("_NEVER, _NO_NUMBER = 1 << 40, 1 << 30", "1 to 2"),
            ("_NEVER, _NO_NUMBER = 1 << 40, 1 << 30", "40 to 41"),
            ("_NEVER, _NO_NUMBER = 1 << 40, 1 << 30", "30 to 31"),
            (
                "if not smaller or not bool(positive.all()) or max(a.high.max(), b.high.max()) >= _NO_NUMBER // 2:",
                "2 to 3",
            ),
        ],
        "how many are remembered": [
            ("@lru_cache(maxsize=64)  # tensors of one param_group share everything that matters here", "64 to 65"),
        ],
        "at a number far above every exponent": [
            (
                "if not smaller or not bool(positive.all()) or max(a.high.max(), b.high.max()) >= _NO_NUMBER // 2:",
                "GtE to Gt",
            ),
            (
                'raise OutOfRangeError("a divisor may be zero" if most >= _NO_NUMBER // 2 else f"2**{most} overflows")',
                "GtE to Gt",
            ),
            (
                'raise OutOfRangeError("a divisor may be zero" if most >= _NO_NUMBER // 2 else f"2**{most} overflows")',
                "2 to 3",
            ),
        ],
        "the ends of a band differ": [
            ("return exponents(low, high, np.ones_like(low), low > high, grid)", "Gt to GtE"),
        ],
        "they are -149 and 60": [
            (
                "m, m_hat = (exponents(least_exponent, most, np.array(0), most > least, least_exponent) for _ in range(2))",
                "Gt to GtE",
            ),
        ],
        "a band that is wider: more is refused, if anything": [
            ("gradients = _bands(least, max(least + 1, math.frexp(gradient_bound)[1]))", "1 to 2"),
        ],
        "where one alone may be zero, the next line decides": [
            (
                "grown = np.where(a.zero | b.zero, np.minimum(a.low, b.low), np.maximum(a.low, b.low))",
                "BitOr to BitAnd",
            ),
        ],
    },
    "claim_constants": {
        "a learning rate of zero gives a step size of zero": [
            ("if not (lr > 0 and all(math.isfinite(x) for x in scalars) and scalars.step != 0):", "Gt to GtE"),
        ],
    },
}
