r"""Local bounds on the likelihood ratio of the chain: a product of factors of one step each.

In: chain, lattice.  Out: `Factors` with X <= prod (remove) or X >= prod (add), at every point.
Rounding: logarithms are rounded away from the truth, up for remove and down for add.

With F(u) = 1 - p + p e^{u - g/2}, r = p e^{u - g/2} / F and S the set of participations drawn with
independent chances r_j,

    X = prod_j F(u_j) * E[e^{-cross}],      cross = sum over pairs j < l in S of G^_jl.

*Remove.*  Chances may be lowered to r' <= r, and E[e^{-cross}] <= exp(-eta sum_{j<l} G^_jl r'_j r'_l),
eta by `strength`.  With R the chain's correlation matrix and any q: r'^T R r' >= 2 q^T r' - q^T R^-1 q,
and q^T R^-1 q = q_1^2 + sum_j (q_{j+1} - rho q_j)^2 / (1 - rho^2).  So for q_j = q(v_j),
r' = min(r, q, cap):

    log X <= k q_1^2 + sum_j [ log F - k (2 q r' - r'^2) ] + sum_j k (q_{j+1} - rho q_j)^2 / (1 - rho^2),

k = eta s g / 2.  Given v, exp[...] is a convex function of e^u.
*Add.*  By Gibbs' inequality with any chances r~, and r~_j r~_l <= (r~_j^2 + r~_l^2)/2,

    log X >= sum_j max_r~ [ log(1-p) + r~ th_j + H(r~) - reach r~^2 ],   th = u - g/2 + log(p/(1-p)),

H the entropy, reach = sum_{k>=1} G^_k.  Its exponential is a concave function of e^u.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from mmcc.accounting.chain.domination import ROUND, UP, Chain
from mmcc.accounting.chain.lattice import Lattice
from mmcc.accounting.chain.operator import Factors
from mmcc.arrays import FloatArray


def strength(chain: Chain, cap: float) -> float:
    r"""eta with E[e^{-cross}] <= exp(-eta sum_{j<l} G^_jl r_j r_l) for all chances r <= cap.

    Two proofs, the larger eta.  Finner: edge weights (1-rho) rho^{k-1}/2 add up to at most 1 at each
    vertex, and give (1-e^{-c})/c with c = 2 reach.  Janson: mark each pair with chance
    f q G^_jl <= 1 - e^{-G^_jl}, f = (1-e^{-G^_1})/G^_1, q <= 1; E[e^{-cross}] is at most the chance that
    no marked pair lies in S, at most exp(-mu + Delta/2), and Delta/2 <= q f c cap mu.
    """
    if chain.share == 0:
        return 0.0
    c = 2 * chain.reach
    nearest = chain.common * chain.decay
    finner = -math.expm1(-c) / c
    marked = -math.expm1(-nearest) / nearest
    crowd = marked * c * cap
    thinning = min(1.0, 0.5 / crowd) if crowd > 0 else 1.0
    janson = marked * thinning * (1 - thinning * crowd)
    return max(finner, janson) / UP**4


def tilted(chain: Chain, logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log F(u) and r(u); u = -infinity gives log(1-p) and 0."""
    exponent = logs - 0.5 * chain.diagonal
    log_f = np.log1p(chain.probability * np.expm1(exponent))
    return log_f, chain.probability * np.exp(exponent - log_f)


def _rounding(chain: Chain, logs: FloatArray) -> FloatArray:
    """Rounding of a factor's logarithm: a few units in the size of what it is made of."""
    size = np.where(np.isfinite(logs), np.abs(logs), 0.0) + chain.diagonal
    return 16 * ROUND * (size + abs(math.log1p(-chain.probability)) + 1e-3)


@dataclass(frozen=True, eq=False, slots=True)
class Tangent:
    """The free numbers of the remove bound: q >= 0 on the states of a lattice, and the cap."""

    states: FloatArray
    q: FloatArray
    cap: float

    def on(self, states: FloatArray) -> Tangent:
        """The same function q(v) on other states."""
        return Tangent(states, np.interp(states, self.states, self.q), self.cap)

    def lowered(self, chances: FloatArray) -> FloatArray:
        """r' = min(r, q, cap) for each state and output."""
        return np.minimum(chances[None, :], np.minimum(self.q, self.cap)[:, None])


def remove_factors(chain: Chain, lattice: Lattice, tangent: Tangent) -> Factors:
    """Upper factors."""
    log_f, r = tilted(chain, lattice.logs)
    q, lowered = tangent.q, tangent.lowered(r)
    k = 0.5 * strength(chain, tangent.cap) * chain.common
    step = log_f - k * lowered * (2 * q[:, None] - lowered) * (1 - 16 * ROUND)
    step += _rounding(chain, lattice.logs)
    if chain.share == 0:
        return Factors(np.zeros(1), step, np.zeros((1, 1)))
    variance = (1 - chain.decay) * (1 + chain.decay)
    move = k * (q[None, :] - chain.decay * q[:, None]) ** 2 / variance * UP
    return Factors(k * q * q * UP, step, move)


def add_factors(chain: Chain, lattice: Lattice) -> Factors:
    """Lower factors, the best chances r~ by bisection (any are valid)."""
    p = chain.probability
    logs = lattice.logs[1:]
    field = logs - 0.5 * chain.diagonal + math.log(p) - math.log1p(-p)
    low, high = np.full(logs.size, -60.0), np.full(logs.size, 60.0)
    for _ in range(60):  # in the logit, where field - logit - 2 reach r falls
        middle = 0.5 * (low + high)
        short = field - middle - 2 * chain.reach * special.expit(middle) > 0
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    r = special.expit(low)
    entropy = special.entr(r) + special.entr(special.expit(-low))
    best = math.log1p(-p) + r * field + entropy - chain.reach * UP * r * r
    size = np.abs(field) * r + chain.reach * r * r + 1e-3
    step = np.concatenate([[math.log1p(-p)], best - 16 * ROUND * size])
    step -= _rounding(chain, lattice.logs)
    states = lattice.states.size
    still = np.zeros((states, states))
    return Factors(np.zeros(states), np.tile(step, (states, 1)), still)
