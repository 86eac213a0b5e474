"""From a mechanism to a guarantee: bounds, tried cheapest first, and calibration of the noise.

    problem -> bounds (each: does it apply? what does it cost? epsilon, delta, lower ends)
            -> best -> guarantee

Users ask through `mmcc.epsilon` and its siblings; this package exports what a user-defined bound
needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmcc.accounting._bounds import BOUNDS, PLAIN, register, unregister
    from mmcc.accounting._bounds.base import Answer, Bound, Cost, Groups, LowerEnd, Problem

__all__ = (
    "BOUNDS",
    "PLAIN",
    "Answer",
    "Bound",
    "Cost",
    "Groups",
    "LowerEnd",
    "Problem",
    "register",
    "unregister",
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mmcc.accounting' has no attribute {name!r}")
    return getattr(import_module("mmcc.accounting._bounds"), name)  # numba takes a second
