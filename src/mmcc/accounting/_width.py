"""What would bring the two certified ends of a bracket together.

In: a mechanism whose ends are far apart.  Out: sentences; nothing here is a certificate.
"""

from __future__ import annotations

from mmcc.accounting._best_bound import amplified
from mmcc.accounting._bounds import Problem
from mmcc.strategies import blt

PLENTY = 5.0
"""Noise, in column norms, from which on the ends lie close together (docs/tightness.md)."""

CLOSE_UP_TO = 8.0
"""The largest epsilon at which BLTs of one buffer are known to be accounted for closely (there)."""


def remedies_for(problem: Problem, asked: str, epsilon: float) -> list[str]:
    """As far as that is known.

    `asked` is the number asked for, `epsilon` the one that is given, or its lower end.
    """
    scheme, steps = problem.scheme, problem.steps
    column = problem.strategy.sensitivity(steps)
    found = []
    if problem.sigma < PLENTY * column:
        more = "a smaller epsilon, which takes more noise" if asked == "sigma" else "more noise"
        found.append(f"{more} (a noise multiplier of {PLENTY:g} is plenty)")
    if problem.group_size > 1:
        return found
    single = problem.with_strategy(blt(steps, decay=[0.5], scale=[0.5]))
    if epsilon <= CLOSE_UP_TO and not _close(problem) and _close(single):
        found.append("a BLT of one buffer (strategy blt)")
    if scheme.random and scheme.chances(steps) is not None:
        found.append("a simulation with a declared chance of error (mmcc verify)")
    return found


def _close(problem: Problem) -> bool:
    """Whether a bound that applies is known to lose little."""
    return any(bound.close(problem) for bound in amplified(problem))
