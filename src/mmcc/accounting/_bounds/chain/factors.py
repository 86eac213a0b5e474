r"""Local bounds on the likelihood ratio of the chain: a product of factors of one step each.

In: chain, lattice.  Out: `Factors` with X <= prod (remove) or X >= prod (add), at every point.
Rounding: logarithms are rounded away from the truth, up for remove and down for add.

With F(u) = 1 - p + p e^{u - g/2}, r = p e^{u - g/2} / F and S a set of participations drawn with
independent chances r_j,

    X = prod_j F(u_j) * E[e^{-cross}],      cross = sum over pairs j < l in S of G^_jl.

*Remove.*  Chances may be lowered to r' <= r, and with eta from `strength`

    E[e^{-cross}] <= exp(-eta sum_{j<l} G^_jl r'_j r'_l).

Let R be the chain's correlation matrix and t_J the sum of r' over block J: the exponent is
-k (t^T R t - sum_j r'_j^2), k = eta s g / 2.  For any q, t^T R t >= 2 q^T t - q^T R^-1 q, and
q^T R^-1 q = q_1^2 + sum_J (q_{J+1} - rho q_J)^2 / (1 - rho^2).  So for q_J = q(v_J) and
r' = min(r, q, cap),

    log X <= k q_1^2 + sum_j [ log F - k (2 q r' - r'^2) ]
                     + sum_J k (q_{J+1} - rho q_J)^2 / (1 - rho^2).

Given v, the exponential of [...] is a convex function of e^u.
*Add.*  By Gibbs' inequality with any chances r~, and r~_j r~_l <= (r~_j^2 + r~_l^2)/2,

    log X >= sum_j max_r~ [ log(1-p) + r~ th_j + H(r~) - r~^2 row_sum/2 ],

th = u - g/2 + log(p/(1-p)), H the entropy.  The exponential of [...] is concave in e^u.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.chain.domination import ROUND, UP, Chain
from mmcc.accounting._bounds.chain.lattice import Lattice
from mmcc.accounting._bounds.chain.operator import Factors


def strength(chain: Chain, cap: float) -> float:
    """The eta with E[e^{-cross}] <= exp(-eta sum_{j<l} G^_jl r_j r_l) for all chances r <= cap.

    Two proofs, the larger eta.  With c the row sum of G^ off the diagonal:
    Finner: pair weights G^_jl / c add up to at most 1 at each step; eta = (1-e^{-c})/c.
    Janson: mark each pair with chance f q G^_jl <= 1 - e^{-G^_jl}, q <= 1, f = (1-e^{-G*})/G* for
    the largest entry G*.  E[e^{-cross}] is at most the chance that no marked pair lies in S, which
    is at most exp(-mu + Delta/2), and Delta/2 <= q f c cap mu; eta = f q (1 - q f c cap).
    """
    if chain.share == 0:
        return 0.0
    c = chain.row_sum
    finner = -math.expm1(-c) / c
    marked = -math.expm1(-chain.nearest) / chain.nearest
    crowd = marked * c * cap
    thinning = min(1.0, 0.5 / crowd) if crowd > 0 else 1.0
    janson = marked * thinning * (1 - thinning * crowd)
    return max(finner, janson) / UP**4


def tilted(chain: Chain, logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log F(u) and r(u); u = -infinity gives log(1-p) and 0."""
    p = chain.probability
    chosen = math.log(p) + (logs - 0.5 * chain.diagonal)
    log_f = np.logaddexp(math.log1p(-p), chosen)
    return log_f, np.exp(chosen - log_f)


def _rounding(chain: Chain, logs: FloatArray, r: FloatArray) -> FloatArray:
    """Rounding of log F and the like: each part's own, weighed with its derivative."""
    p = chain.probability
    idle = -math.log1p(-p)
    size = np.where(np.isfinite(logs), np.abs(logs), 0.0) + chain.diagonal - math.log(p) + idle
    return 16 * ROUND * (r * size + idle + p)


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
        """The chances r' = min(r, q, cap) for each state and output."""
        return np.minimum(chances[None, :], np.minimum(self.q, self.cap)[:, None])


def remove_factors(chain: Chain, lattice: Lattice, tangent: Tangent) -> Factors:
    """Upper factors."""
    log_f, r = tilted(chain, lattice.logs)
    q, lowered = tangent.q, tangent.lowered(r)
    k = 0.5 * strength(chain, tangent.cap) * chain.common
    step = log_f - k * lowered * (2 * q[:, None] - lowered) * (1 - 16 * ROUND)
    step += _rounding(chain, lattice.logs, r)
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
    for _ in range(60):  # in the logit, where field - logit - row_sum r falls
        middle = 0.5 * (low + high)
        short = field - middle - chain.row_sum * special.expit(middle) > 0
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    r, idle = special.expit(low), special.expit(-low)
    entropy = r * np.log1p(np.exp(-low)) + idle * np.log1p(np.exp(low))
    best = math.log1p(-p) + r * field + entropy - 0.5 * chain.row_sum * r * r
    size = r * (np.abs(low) + chain.row_sum)
    best -= 16 * ROUND * size + 2 * _rounding(chain, logs, r)
    step = np.concatenate([[math.log1p(-p) * (1 + 4 * ROUND)], best])
    states = lattice.states.size
    still = np.zeros((states, states))
    return Factors(np.zeros(states), np.tile(step, (states, 1)), still)
