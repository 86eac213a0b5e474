"""The chain bound: for banded Toeplitz strategies and BLTs under independent rounds.

The Gram matrix is dominated by that of a Markov chain plus white noise, of which the moments of the
likelihood ratio are powers of a transfer matrix.  Proofs: docs/theory-chain.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from mmcc.accounting._bounds.base import Answer, Bound, Cost, Problem
from mmcc.accounting._bounds.chain.curves import bound_delta, bound_epsilon
from mmcc.accounting._parallel import one_thread
from mmcc.errors import MethodError

MAX_BANDS = 1024
"""More bands fall too slowly for a chain to be a good likeness; each costs a scalar product."""


@dataclass(frozen=True)
class ChainBound(Bound):
    """The cost grows with the logarithm of the number of steps."""

    name: ClassVar[str] = "chain"

    def refusal(self, problem: Problem) -> str | None:
        if problem.rounds is None:
            return (
                f"the chain bound is for independent rounds, as in Poisson and CyclicPoisson, and "
                f"proves nothing for {problem.scheme!r}."
            )
        strategy = problem.strategy
        toeplitz = strategy.toeplitz
        if toeplitz is None or not (toeplitz.geometric or toeplitz.bands <= MAX_BANDS):
            return (
                f"the chain bound needs a Toeplitz strategy with at most {MAX_BANDS} bands or a "
                f"BLT with one buffer, not {strategy!r}."
            )
        return None

    def cost(self, problem: Problem) -> Cost:
        return Cost.STEADY

    def close(self, problem: Problem) -> bool:
        """The chain's Gram matrix is that of a one-buffer BLT itself, so it loses little there."""
        return problem.strategy.toeplitz is not None and problem.strategy.toeplitz.geometric

    def epsilon(self, problem: Problem, delta: float) -> Answer:
        return self._ask(bound_epsilon, problem, delta)

    def delta(self, problem: Problem, epsilon: float) -> Answer:
        return self._ask(bound_delta, problem, epsilon)

    def _ask(self, question: Callable[..., Answer], problem: Problem, at: float) -> Answer:
        refused = self.refusal(problem)
        if refused is not None:
            raise MethodError(refused)
        with one_thread():
            return question(
                problem.strategy.toeplitz,
                problem.rounds,
                problem.sigma,
                at,
                problem.effort.progress,
            )
