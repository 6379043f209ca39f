"""The lemmas, one a file, found by looking into this folder.

Each file defines ``LEMMA``, named like the file; its docstring opens with the lemma's statement, then
gives it in mathematics, says why it is needed, and why its twin fails.  To add a lemma, add a file.  What
the lemmas build up to is listed in `RESULTS`: every lemma is needed by one of these, or by another lemma.
"""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from guarded_moments.proofs.lemma import Lemma, LemmaError

#: What lemmas lead up to, with its meaning; these names may stand in `Lemma.needed_by`.
RESULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "rounding_slack": "how far one binary32 update strays from the update in real arithmetic",
        "closed_form_guard": "the bound on the difference of the two real updates in closed form",
        "binary32_filter": "what the filter in binary32 in front of the closed form may decide",
        "exact_guard": "that bound by branch and bound over cells of gradients",
        "worst_case": "the search for the exact worst case, by cells that are bounded by slopes as well",
        "first_update_theorem": "the claim about the two binary32 updates",
        "later_updates": "the claims about the updates after the first, under a sequence of gradients",
    }
)


def all_lemmas() -> tuple[Lemma, ...]:
    """Find all lemmas.

    Returns:
        The lemmas, sorted by name.

    Raises:
        LemmaError: if a file defines no lemma or one of another name, or the lemmas do not fit
            together (see `fit_together`).
    """
    return fit_together(_load(module.name) for module in pkgutil.iter_modules(__path__))


def fit_together(lemmas: Iterable[Lemma]) -> tuple[Lemma, ...]:
    """Check that lemmas have different names and that everything they are needed by exists.

    Args:
        lemmas: the lemmas, in any order.

    Returns:
        The lemmas, sorted by name.

    Raises:
        LemmaError: if a name is taken twice, or a lemma is needed by something unknown or by itself,
            directly or through others.
    """
    named: dict[str, Lemma] = {}
    for lemma in lemmas:
        if lemma.name in named or lemma.name in RESULTS:
            raise LemmaError(f"two things are called {lemma.name!r}")
        named[lemma.name] = lemma
    for lemma in named.values():
        for user in lemma.needed_by:
            if user not in named and user not in RESULTS:
                raise LemmaError(f"lemma {lemma.name!r} is needed by {user!r}, which does not exist")
            if lemma.name in _users(user, named):
                raise LemmaError(f"lemma {lemma.name!r} is needed by {user!r}, which it needs")
    return tuple(named[name] for name in sorted(named))


def _users(name: str, named: Mapping[str, Lemma]) -> set[str]:
    """Everything that a lemma or result is needed for, itself included."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        user = waiting.pop()
        if user not in found:
            found.add(user)
            waiting.extend(named[user].needed_by if user in named else ())
    return found


def _load(module_name: str) -> Lemma:
    """The lemma that one file of this folder defines."""
    module = importlib.import_module(f"{__name__}.{module_name}")
    lemma = getattr(module, "LEMMA", None)
    if not isinstance(lemma, Lemma):
        raise LemmaError(f"{module.__name__} defines no LEMMA")
    if lemma.name != module_name:
        raise LemmaError(f"{module.__name__} defines a lemma of another name: {lemma.name!r}")
    return lemma
