r"""The likelihood ratio of a run with the canary to one without.

In: a strategy, a decoder, a scheme, sigma.  Out: a matrix that whitens the released noise, and the
logarithm of

    X(g) = sum_S pi_S exp(<y, A_S> - |A_S|^2 / 2),   y = A g,   A_S = A 1_S.

The noise of the releases g is N(0, Sigma); A is any matrix with A Sigma A^T = I.  For a square C
that is C / sigma, for a tree the inverse of a triangular factor of Sigma = sigma^2 B B^T.
Plain floating point: any statistic gives a valid bound, a better one a larger bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from mmcc._arrays import FloatArray
from mmcc._simulation.one_example import Mechanism
from mmcc._simulation.set_lists import SetList, all_sets, draw_sets
from mmcc._simulation.transfer_matrix import Chain, chain_of
from mmcc.sampling import Participations, Scheme
from mmcc.strategies._base import EXACT, Strategy
from mmcc.strategies._decoders import decoder_matrix

SETS = 4096
"""Participation sets that are drawn where they cannot be enumerated."""
TABLE = 2**22
"""Numbers held at once when sets are summed up."""


def whitener(strategy: Strategy, sigma: float, decoder: str | None) -> FloatArray:
    """A lower triangular A: A times the noise of all steps is standard normal and independent."""
    if EXACT in strategy.decoders:
        return strategy.to_dense() / sigma
    _, root = np.linalg.qr(decoder_matrix(strategy, decoder).T)  # root^T root = B B^T
    return np.asarray(solve_triangular(root, np.eye(strategy.steps), trans="T")) / sigma


def spread(white: FloatArray) -> float:
    """The largest ratio of a step's standard deviation to the one that remains given earlier steps.

    With A lower triangular the noise is A^-1 times white noise, of which step t adds 1 / A_tt.
    """
    deviations = np.linalg.norm(solve_triangular(white, np.eye(len(white)), lower=True), axis=1)
    return float(np.max(deviations * np.abs(np.diagonal(white))))


@dataclass(frozen=True, eq=False)
class Released(Mechanism):
    """The observer's mechanism: A in place of C / sigma; its entries may have any signs."""

    matrix: FloatArray = field(kw_only=True)

    @cached_property
    def gram(self) -> FloatArray:
        own = self.matrix[:, self.group :: self.separation]
        return np.asarray(own.T @ own)

    def adjoint(self, outputs: FloatArray) -> FloatArray:
        return np.ascontiguousarray(outputs @ self.matrix[:, self.group :: self.separation])

    def squared_norms(self, sets: Participations) -> FloatArray:
        members = np.zeros((len(sets), self.columns))
        members[np.repeat(np.arange(len(sets)), sets.sizes()), sets.steps] = 1.0
        return np.asarray((members @ self.gram * members).sum(axis=1))


@dataclass(frozen=True, eq=False, slots=True)
class LikelihoodRatio:
    """The test statistic for the examples of one group."""

    mechanism: Released
    sets: SetList | None
    chain: Chain | None
    description: str

    def logs(self, white: FloatArray) -> FloatArray:
        """Logarithm of X for whitened releases, one release a row."""
        shadows = self.mechanism.adjoint(white)
        if self.chain is not None:
            only = np.array([self.chain.renewal.probability])
            return np.asarray(self.chain.log_ratios(shadows, only)[:, 0])
        assert self.sets is not None
        every = np.arange(len(self.sets))
        members = self.sets.members(every, self.mechanism.columns).T
        weights = self.sets.logs - self.sets.squares / 2
        height = max(1, TABLE // len(every))
        parts = [
            logsumexp(shadows[first : first + height] @ members + weights, axis=1)
            for first in range(0, len(shadows), height)
        ]
        return np.concatenate(parts)


def likelihood_ratio(
    strategy: Strategy,
    scheme: Scheme,
    sigma: float,
    group: int,
    white: FloatArray,
    generator: np.random.Generator,
) -> LikelihoodRatio:
    """The exact ratio where it can be computed, otherwise that of a mixture over drawn sets."""
    mechanism = Released(strategy, scheme, sigma, group, matrix=white)
    sets = all_sets(mechanism)
    if sets is not None and len(sets) <= SETS:
        return LikelihoodRatio(mechanism, sets, None, f"likelihood ratio, all {len(sets)} sets")
    chain = chain_of(mechanism)
    if chain is not None:
        return LikelihoodRatio(mechanism, None, chain, "likelihood ratio, exact by a chain")
    tilts = () if scheme.renewal is None else (scheme.renewal.probability,)
    sets = draw_sets(mechanism, SETS, tilts, generator)
    return LikelihoodRatio(mechanism, sets, None, f"likelihood ratio, {SETS} drawn sets")
