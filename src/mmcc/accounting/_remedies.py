"""Suggestions that would bring the two certified ends of a bracket together.

In: a mechanism whose ends are far apart.  Out: sentences; nothing here is a certificate.
"""

from __future__ import annotations

from mmcc.accounting._best_bound import amplified
from mmcc.accounting._bounds import Problem
from mmcc.errors import StrategyError
from mmcc.strategies import blt

PLENTY = 5.0
"""From this much noise on, in column norms, the ends are close together (docs/tightness.md)."""

CLOSE_UP_TO = 8.0
"""Largest epsilon with tight accounting for BLTs of one buffer (docs/tightness.md)."""


def remedies_for(problem: Problem, asked: str, epsilon: float) -> list[str]:
    """Suggestions that would close the bracket, as far as they are known.

    `asked` names the number asked for; `epsilon` is the given epsilon, or its lower end.
    """
    scheme, steps = problem.scheme, problem.steps
    column = problem.strategy.sensitivity(steps)
    found = []
    if problem.sigma < PLENTY * column and amplified(problem):
        more = "a smaller epsilon, which takes more noise" if asked == "sigma" else "more noise"
        found.append(f"{more} (a noise multiplier of {PLENTY:g} is plenty)")
    if problem.group_size > 1:
        return found
    if epsilon <= CLOSE_UP_TO and not _close(problem) and _close_for_blts(problem):
        found.append("a BLT of one buffer (strategy blt)")
    if scheme.random and scheme.chances(steps) is not None:
        found.append("a simulation with a declared chance of error (mmcc verify)")
    return found


def _close_for_blts(problem: Problem) -> bool:
    """Whether the bracket would close with a BLT of one buffer in place of the strategy."""
    try:
        single = blt(problem.steps, decay=[0.5], scale=[0.5])
    except StrategyError:  # too many steps
        return False
    return _close(problem.with_strategy(single))


def _close(problem: Problem) -> bool:
    """Whether some applicable bound is known to lose little."""
    return any(bound.close(problem) for bound in amplified(problem))
