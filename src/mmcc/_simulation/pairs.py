"""A dominating pair whose loss is exact and cheap: columns one by one, for small dense Poisson."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds import Problem
from mmcc.errors import MethodError


class Pair(ABC):
    """delta(epsilon) <= E[(1 - e^{epsilon - loss})_+] for both adjacencies."""

    columns: int
    rounding: float = 0.0

    @abstractmethod
    def losses(self, remove: bool, count: int, rng: np.random.Generator) -> FloatArray:
        """Log Lhat under P~ (remove), -log Lhat under Q~ (add)."""


@dataclass(frozen=True, eq=False)
class Columns(Pair):
    """Columns one by one, independent of each other."""

    gram: FloatArray
    root: FloatArray
    probability: float
    rounding: float = 1e-9

    @property
    def columns(self) -> int:  # type: ignore[override]
        return len(self.gram)

    def losses(self, remove: bool, count: int, rng: np.random.Generator) -> FloatArray:
        p, gram = self.probability, self.gram
        u = rng.standard_normal((count, self.columns)) @ self.root.T
        coins = rng.random((count, self.columns))
        if remove:
            s = (coins < p).astype(float)
            u = u + s @ gram
        loss = np.zeros(count)
        for place in range(self.columns):
            x = u[:, place] - gram[place, place] / 2
            f = 1 - p + p * np.exp(x)
            loss += np.log(f)
            drawn = s[:, place] if remove else (coins[:, place] < p * np.exp(x) / f).astype(float)
            u = u - drawn[:, None] * gram[place]
        return loss if remove else -loss


def pair_of(problem: Problem, group: int = 0) -> Pair:
    """The pair of one group's columns."""
    rounds = problem.rounds
    if rounds is None:
        raise MethodError(f"no pair is known for {problem.scheme!r}.")
    matrix = problem.strategy.to_dense()[:, group :: rounds.separation] / problem.sigma
    gram = matrix.T @ matrix
    root: FloatArray = np.linalg.cholesky(gram + 1e-13 * np.eye(len(gram))).astype(np.float64)
    return Columns(gram, root, rounds.probability)
