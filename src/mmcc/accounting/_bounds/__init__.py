"""What can be proven about a mechanism: one module or package for each bound.

`BOUNDS` lists all of this package; `mmcc.accounting._best_bound` decides which of them to ask.  A
user-defined bound takes part once it is registered.
"""

from __future__ import annotations

from mmcc._methods import OLD_NAMES, TIGHT
from mmcc.accounting._bounds.base import Answer, Bound, Cost, Groups, LowerEnd, Problem
from mmcc.accounting._bounds.cascade import Cascade
from mmcc.accounting._bounds.groups import ByCounts, GroupLemma
from mmcc.accounting._bounds.mmcc import Mmcc
from mmcc.accounting._bounds.projection import Projection
from mmcc.accounting._bounds.relaxation import ByRelaxation
from mmcc.accounting._bounds.reveal import Reveal
from mmcc.accounting._bounds.unamplified import ChanceToTakePart, Unamplified
from mmcc.errors import MethodError, suggestion

__all__ = (
    "BOUNDS",
    "CHANCE",
    "PLAIN",
    "Answer",
    "Bound",
    "ByCounts",
    "ByRelaxation",
    "Cost",
    "GroupLemma",
    "Groups",
    "LowerEnd",
    "Mmcc",
    "Problem",
    "bound_named",
    "known_bounds",
    "register",
    "unregister",
)

PLAIN = Unamplified()
"""The bound that makes no use of sampling."""
CHANCE = ChanceToTakePart()
BOUNDS: tuple[Bound, ...] = (PLAIN, Mmcc(), Cascade(), Projection(), Reveal(), GroupLemma())
"""The bounds of this package, without those that users registered."""
_registered: list[Bound] = []


def register(bound: Bound) -> None:
    """Let a user-defined bound take part, under its own name, in every question from now on.

    Guarantees then rely on that bound's proof; each names the bound that gave its number.
    """
    if not isinstance(bound, Bound):
        raise MethodError(
            f"a bound must be an instance of a subclass of mmcc.accounting.Bound, got {bound!r}."
        )
    if not isinstance(getattr(bound, "name", None), str) or not bound.name or bound.name == TIGHT:
        raise MethodError(f"a bound needs a name of its own, a string other than {TIGHT!r}.")
    if bound.name in (known.name for known in known_bounds()):
        raise MethodError(f"there already is a bound {bound.name!r}; give yours another name.")
    _registered.append(bound)


def unregister(bound: Bound) -> None:
    """Undo `register`."""
    if bound not in _registered:
        raise MethodError(f"{bound!r} is not registered; there is nothing to undo.")
    _registered.remove(bound)


def known_bounds() -> tuple[Bound, ...]:
    """All bounds, with the registered ones last."""
    return (*BOUNDS, *_registered)


def bound_named(name: str) -> Bound:
    """The bound that a method name refers to."""
    known = {bound.name: bound for bound in known_bounds()}
    current = OLD_NAMES.get(name, name)
    if current not in known:
        raise MethodError(f"unknown method {name!r}; {suggestion(name, tuple(known))}")
    return known[current]
