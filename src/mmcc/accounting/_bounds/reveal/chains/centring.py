r"""How fake participations are drawn from an output: a free setting, chosen well.

In: a chain on a lattice, an order.  Out: a `Centring`.
Rounding: none; every centring is valid.

Given an output x at a step, the fake number of participations is s with chance

    q_s(x) = g_s(x) e^{-m_s(x)} / F(x),    g_s = pi_s e^{s x - s^2 g_0/2},   F = sum_s g_s e^{-m_s},

m_0 = 0, and the likelihood ratio gets the factor g_s / q_s = F e^{m_s}.  The m_s(x) may be any
functions; m_s = s times the mean of what later participations add to x is a good start.  With the
leading eigenvectors of the operator at order al, let A_s(x) be the weight of (s, x) without the
factor.  What minimises sum_s A_s (g_s/q_s)^{al-1} (remove) or sum_s A_s (g_s/q_s)^{-al} (add) is

    m_s = (1/al) [log(g_s/A_s) - log(g_0/A_0)],   m_s = (1/(al-1)) [log(A_s/g_s) - log(A_0/g_0)].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray, own_arrays
from mmcc.accounting._bounds.reveal.chains.chain import Chain

WORTH = 1e-25
"""Weights below this fraction of the largest are ignored in choosing centres."""


@dataclass(frozen=True, eq=False, slots=True)
class Centring:
    """`centres[s - 1]` at the outputs `places`, s >= 1; linear between them, constant beyond."""

    places: FloatArray
    centres: FloatArray

    def __post_init__(self) -> None:
        own_arrays(self, "places", "centres")

    def at(self, outputs: FloatArray) -> FloatArray:
        """m_s(x) for every s, including 0."""
        rows = [np.interp(outputs, self.places, row) for row in self.centres]
        return np.array([np.zeros(outputs.size), *rows])

    @property
    def lowest(self) -> FloatArray:
        """The smallest m_s of each s >= 1."""
        return np.asarray(self.centres.min(axis=1))


def mean_centring(chain: Chain) -> Centring:
    """The centring by what later participations add on average."""
    return Centring(np.zeros(1), chain.later * np.arange(1.0, chain.prior.size)[:, None])


def best_centring(
    prior: FloatArray,
    diagonal: float,
    places: FloatArray,
    weights: FloatArray,
    adjacency: str,
    order: float,
) -> Centring | None:
    """The best centring for weights[s, i] of s and the output places[i]; None if useless."""
    counts = np.arange(float(prior.size))[:, None]
    worth = (weights > WORTH * weights.max()).all(axis=0)
    if not worth.any():
        return None
    places, weights = places[worth], weights[:, worth]
    with np.errstate(divide="ignore"):
        logs = np.log(prior)[:, None] - 0.5 * counts**2 * diagonal
    odds = logs + counts * places - np.log(weights)
    centres = (odds[1:] - odds[0]) / (order if adjacency == "remove" else 1 - order)
    return Centring(places, centres)
