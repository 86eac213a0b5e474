"""Bounds on the chaos orders from two on: sum_(r >= 2) s^r T_r for sets of at most kmax steps.

In: a `Rest`.  Out: `HighOrders.totals`, for each kmax and each s of `S`, in units of Z^2;
`excluded(kmax)`, what the sets that are left out may add to E(X - E)_+.

The weights omega_S are replaced by Z B(S), B independent participation with probabilities u, and
B by Poisson counts, in sums of convex functions only (docs/theory.md).  Rounding: upwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.projection.phases import leave_one_out, poisson_binomial
from mmcc.accounting._bounds.projection.rest import SLACK, TINY, Rest

SERIES, SHORT_SERIES = 24, 16
"""Entrywise powers of G' that are summed, an even number; the rest is bounded by a remainder.

With many classes fewer powers are summed: entries are small then, and each power costs a product.
"""
MANY_CLASSES = 600
STRETCH = (1.5, 2.0, 3.0, 4.0, 6.0)
S = np.array([1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 28, 34, 40.0])
"""Nelson's inequality is used at l = s + 1; s = 1 is the variance."""
SMOOTH_S = (1.0, 2.0, 3.0, 5.0, 8.0, 14.0)
"""Values of s at which the bound for many participations is computed."""
SMOOTH_ORDERS = 16
MANY = 4.0
"""That bound is useful only if sets are larger than this on average."""
BINS = 200
FOLLOWED = 160
"""Largest sets treated member by member; larger ones have only the bound for many."""
EXACT_TRACE = 600
"""Most columns for which tr (U G')^4 is computed, at every `TRACE_STRIDE`-th node."""
TRACE_STRIDE = 8
ONE_BY_ONE = 100_000
"""Most columns for which copies of a column are treated one by one, each with a rounding."""


@dataclass(eq=False)
class HighOrders:
    """Bounds on the chaos orders of the rest from two on, at every t."""

    rest: Rest

    @property
    def series(self) -> int:
        """The number of powers that are summed."""
        return SERIES if self.rest.gram.counts.size <= MANY_CLASSES else SHORT_SERIES

    @cached_property
    def sums(self) -> FloatArray:
        """P_r = sum_l u_l G'_jl^r: shape (orders, classes, nodes)."""
        orders = list(range(1, self.series + 1))
        return self.rest.gram.power_sums(self.rest.line.a, self.rest.weights.tilted.T, orders)

    @cached_property
    def largest(self) -> FloatArray:
        """max_j |P_r|: shape (orders, nodes)."""
        return np.asarray(np.max(np.abs(self.sums), axis=1))

    @cached_property
    def moments(self) -> FloatArray:
        """E Y_j^r / r! for Y_j = sum_l G'_jl N_l, N Poisson(u): from the cumulants P_r."""
        return _moments([self.sums[r] / math.factorial(r) for r in range(self.series)])

    @cached_property
    def sizes(self) -> int:
        """The largest set size considered; the weight of larger sets is negligible."""
        mean = float(np.max(self.mean_size))
        wanted = math.ceil(mean + 9 * math.sqrt(mean) + 24)
        return min(wanted, self.rest.gram.columns)

    @property
    def followed(self) -> int:
        """The largest set size that is treated member by member."""
        return min(self.sizes, FOLLOWED)

    @cached_property
    def masses(self) -> FloatArray:
        """P(|S| = k) under the tilted law for k = 0 .. sizes; last, the chance of more."""
        counts = self.rest.gram.counts
        copies = self.rest.gram.repeats if self.rest.gram.columns <= ONE_BY_ONE else 1
        single = counts == float(copies)
        laws = np.empty((len(self.rest.weights.t), self.sizes + 2))
        for i, u in enumerate(self.rest.weights.tilted):
            law = poisson_binomial(np.repeat(u[single], copies), self.sizes)
            for many, prob in zip(counts[~single], u[~single], strict=True):
                law = np.convolve(law, _binomial(self.sizes, int(many), prob))[: self.sizes + 1]
            laws[i, :-1] = law * (1 + SLACK)
            laws[i, -1] = self._beyond(u) if self.sizes < self.rest.gram.columns else 0.0
        return laws

    def _beyond(self, u: FloatArray) -> float:
        """sum_(|S| > sizes) B(S) (1 + |S|)^2 by Chernoff, with (1 + k)^2 <= 60 e^(k/10)."""
        x = np.linspace(0.05, 6.0, 120)
        logs = np.log1p(np.multiply.outer(np.expm1(x + 0.1), u)) @ self.rest.gram.counts
        logs -= x * (self.sizes + 1)
        return float(60 * np.exp(min(float(np.min(logs)), 700.0)))

    @cached_property
    def pairs(self) -> FloatArray:
        """sum_j u_j P(|S - j| = k - 1) E Y_j^r / r!: shape (k, nodes, orders r = 4, 6, ...)."""
        even = self.moments[4::2]
        counts = self.rest.gram.counts
        pairs = np.empty((self.followed, len(self.rest.weights.t), len(even)))
        for i, u in enumerate(self.rest.weights.tilted):
            together = leave_one_out(u, self.masses[i, : self.followed + 1]) * counts
            pairs[:, i] = together @ even[:, :, i].T
        return pairs * (1 + SLACK)

    @cached_property
    def fourth(self) -> FloatArray:
        """E (N^T G' N')^4 / 24 for independent Poisson(u) vectors: a bound on T_4 / Z^2."""
        gram, a, u = self.rest.gram, self.rest.line.a, self.rest.weights.tilted.T
        p, p2, p3, p4 = self.sums[:4]
        q, squared = gram.power_sums(a, u * p, [1, 2])
        heavy = gram.counts[:, None] * u

        def mean(x: FloatArray) -> FloatArray:
            return np.asarray(np.einsum("jt,jt->t", heavy, x))

        s, e2, f2 = mean(p), mean(p2), mean(p * p)
        total = s**4 + 2 * mean(p**4) + 8 * s * mean(p**3) + 12 * f2 * (f2 + s * s)
        total += mean(p4) + 8 * mean(p3 * p) + 6 * mean(p2 * p2) + 12 * mean(p2 * p * p)
        total += 4 * s * mean(p3) + 12 * mean(p * squared) + 24 * mean((p2 + p * p) * q)
        total += 24 * s * mean(p2 * p) + 3 * e2**2 + 6 * self._fourth_trace(e2) + 12 * e2 * f2
        total += 24 * mean(q * q) + 6 * e2 * s**2 + 24 * s * mean(p * q)
        return np.maximum(total, 0.0) / 24 * (1 + SLACK) + TINY

    def _fourth_trace(self, square: FloatArray) -> FloatArray:
        """Tr (U G')^4 or a bound: it grows with t, since u does."""
        gram, a, u = self.rest.gram, self.rest.line.a, self.rest.weights.tilted
        if not gram.free and gram.columns > EXACT_TRACE:
            radius = np.max(gram.absolute_sums(a, u.T), axis=0)
            return np.asarray(np.minimum(square, radius**2) * square)
        small = gram.rest_product(a, np.eye(a.size))
        # On class vectors G' acts as this matrix; the rest of its spectrum is known.
        traces = np.zeros(len(u))
        for start in range(0, len(u), TRACE_STRIDE):
            end = min(start + TRACE_STRIDE, len(u))
            twice = u[end - 1][:, None] * small
            twice = twice @ twice
            traces[start:end] = np.einsum("ij,ji->", twice, twice)
        for e in gram.free:
            traces += e.multiplicity * (u[:, e.index] * e.value) ** 4
        return np.minimum(traces, square**2)

    def totals(self, limits: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """sum_r s^r T_r over sets of at most kmax steps, r >= 2 and r >= 3.

        Shape (limits, S, nodes); kmax runs through the limits.  T_2 is that of all sets, which is
        larger.
        """
        t2 = self.rest.quadratic
        places = np.array(limits) - 1
        places = places[places < self.followed]
        k = np.arange(1, self.followed + 1, dtype=float)
        near = np.full((2, len(limits), len(t2)), np.inf)
        near[0, : places.size] = np.cumsum(k[:, None] ** 3 * self.pairs[:, :, 0], axis=0)[places]
        t4 = np.minimum(self.fourth, near[0])
        from_two, from_three = np.empty((2, len(limits), S.size, len(t2)))
        smooth = [self._smooth(limit) for limit in limits]
        seen = np.array([self._lower_second(limit) for limit in limits])
        with np.errstate(over="ignore", invalid="ignore"):
            for i, s in enumerate(S):
                near[1, : places.size] = np.cumsum(self._from_sixth(s, k), axis=0)[places]
                sixth = near[1]
                e2, e4 = s**2 * t2, s**4 * t4
                # Odd orders are at most the geometric mean of their even neighbours.
                odd = np.sqrt(4 / 3 * e2 * e4) + np.sqrt(6 / 5 * (e4 + sixth) * sixth)
                higher = np.nan_to_num((e4 + sixth + odd) * (1 + SLACK), nan=np.inf, posinf=np.inf)
                many = np.array(
                    [bounds.get(float(s), np.full(len(t2), np.inf)) for bounds in smooth]
                )
                from_two[:, i] = np.minimum(e2 * (1 + SLACK) + higher, many)
                beside = np.maximum(many - s**2 * seen, 0.0) + SLACK * e2
                from_three[:, i] = np.minimum(higher, beside)
        return from_two, from_three

    def _from_sixth(self, s: float, k: FloatArray) -> FloatArray:
        """Parts of sum_(r = 6, 8, ...) s^r T_r from sets of each size k: shape (sizes, nodes).

        This uses convexity over the k members of a set.
        """
        x = s * k
        orders = np.arange(6, self.series + 1, 2)
        parts = np.einsum("kr,ktr->kt", x[:, None] ** orders / k[:, None], self.pairs[:, :, 1:])
        # sum_(r > R) x^r M_r / r! <= (x / x')^(R + 2) times the whole series at x' > x, and the
        # weights of all members of sets of size k add up to k P(|S| = k).
        logs = [self._log_series(f * x) - (self.series + 2) * math.log(f) for f in STRETCH]
        with np.errstate(over="ignore"):
            left = np.exp(np.min(logs, axis=0))
        # A mass that underflowed is not zero.
        return np.asarray(parts + (self.masses[:, 1 : k.size + 1].T + 1e-300) * left)

    def _log_series(self, x: FloatArray) -> FloatArray:
        """max_j log E e^(x |Y_j|), crudely: shape (x, nodes); infinite if the series is short."""
        largest = self.largest
        orders = np.arange(1, self.series + 1)
        factorials = np.array([math.factorial(r) for r in orders], dtype=float)
        terms = x[:, None] ** orders / factorials
        exponent = terms @ largest
        ratio = x * float(self.rest.tops[0]) / (self.series + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.where(ratio < 1, ratio / (1 - ratio), np.inf)
        return np.asarray(exponent + np.multiply.outer(terms[:, -1] * beyond, largest[-1] + TINY))

    def _smooth(self, kmax: int) -> dict[float, FloatArray]:
        """The bound for many participations: the law of G' 1_S, not its worst case.

        sum_(r >= 2) s^r T_r <= E_S [ e^(s <1_S, h>) e^Q(S) - 1 - s <1_S, h> ], h = G'u, with
        Q(S) = k_0 s^2/2 sum_l u_l g_l^2, g = G' 1_S.  With U = sum_l u_l and c = k_0 s^2 U / 2,
        e^Q is at most the mean of e^(c g_l^2) with weights u_l / U: a series in even moments of
        g_l, cut at order m with the remainder factor e^(c max g^2).
        """
        if not self._smooth_parts:
            return {}
        highest = float(np.max(self.rest.line.a))
        top = float(self.rest.top_sum(np.array([float(kmax)]))[0])
        widest = max(top, kmax * highest**2)  # entries of G' are no less than -a_j a_l
        bounds = {}
        m = np.arange(1, SMOOTH_ORDERS // 2 + 1)[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            for s, (first, log_first, moments) in self._smooth_parts.items():
                c = _curvature(s * top) * s * s / 2 * self.mean_size
                terms = c**m * moments
                sums = np.cumsum(terms, axis=0)
                cut = sums - terms + terms * np.exp(c * widest**2)
                gain = np.min(np.where(np.isnan(cut), np.inf, cut), axis=0)
                bound = first + np.exp(log_first) * gain
                bounds[s] = np.where(np.isfinite(bound), bound * (1 + SLACK) + 1e-14, np.inf)
        return bounds

    @cached_property
    def mean_size(self) -> FloatArray:
        """The mean size of a set: sum_j u_j."""
        return np.asarray(self.rest.weights.tilted @ self.rest.gram.counts)

    @cached_property
    def _smooth_parts(self) -> dict[float, tuple[FloatArray, FloatArray, FloatArray]]:
        """For each s: E[e^(s <1_S, h>) - 1 - s <1_S, h>], log E e^(s <1_S, h>), moments.

        The moments are means of E g_l^2m / m! with weights u_l / U under the law of S tilted by
        e^(s <1_S, h>): participation u^ <= eta u.  Poisson counts have larger even moments; their
        cumulants are at most eta P_r, between them geometric means.
        """
        if float(np.max(self.mean_size)) < MANY:
            return {}
        gram, a, u = self.rest.gram, self.rest.line.a, self.rest.weights.tilted.T
        heavy = gram.counts[:, None] * u
        share = heavy / self.mean_size
        h = self.sums[0]
        parts = {}
        for s in SMOOTH_S:
            x = np.maximum(s * h, -700.0)
            with np.errstate(over="ignore", invalid="ignore"):
                logs = np.sum(gram.counts[:, None] * _log_mean(u, x), axis=0)
                first = np.expm1(logs) - np.sum(heavy * s * h, axis=0)
                shifted = u / (u + (1 - u) * np.exp(-x))  # no cancellation, also for u = 1
            eta = np.max(shifted / u, axis=0)
            cumulants = [np.abs(gram.rest_product(a, shifted)) + TINY]
            for r in range(2, SMOOTH_ORDERS + 1):
                even = r if r % 2 == 0 else r - 1
                size = self.sums[even - 1]
                if r % 2:
                    size = np.sqrt(size * self.sums[even + 1])
                cumulants.append(eta * size / math.factorial(r - 1))
            with np.errstate(over="ignore", invalid="ignore"):
                moments = _moments(cumulants)
            scale = [math.factorial(r) / math.factorial(r // 2) for r in range(len(moments))]
            even_moments = np.array(
                [scale[r] * np.sum(share * moments[r], axis=0) for r in range(2, len(moments), 2)]
            )
            parts[s] = (np.maximum(first, 0.0), logs, even_moments)
        return parts

    def _lower_second(self, kmax: int) -> FloatArray:
        """T_2 of sets of at most kmax steps, rounded down.

        Pairs with a larger set add at most sum_S B(S) |A'_S|^2 times the same over larger sets.
        """
        lengths = self.rest.square_length(np.arange(self.sizes + 1.0))
        parts = self.masses[:, :-1] * lengths
        beyond = self.masses[:, -1] * self.rest.tops[0]
        larger = np.sum(parts[:, kmax + 1 :], axis=1) + beyond
        everything = np.sum(parts, axis=1) + beyond
        return np.asarray(np.maximum(self.rest.lower_quadratic - larger * everything, 0.0))

    def lengths(self, first: int) -> tuple[FloatArray, FloatArray]:
        """Weights of the sets of `first` to `sizes` steps, and bounds on |A'_S|^2.

        If there are many sizes they are grouped, each group with the length of its largest.
        """
        width = max((self.sizes - first) // BINS, 1)
        starts = np.arange(first, self.sizes + 1, width)
        weights = np.add.reduceat(self.masses[:, first:-1], starts - first, axis=1)
        ends = np.minimum(starts + width - 1, self.sizes).astype(float)
        return weights, self.rest.square_length(ends)

    def excluded(self, kmax: int) -> FloatArray:
        """sum_(|S| > kmax) omega_S E(e_S less its chaos 0, 1 and 2)_+, or 0 and 1 only."""
        k = np.arange(kmax + 1, self.sizes + 1, dtype=float)
        x = self.rest.square_length(k)
        spread = np.sqrt(np.maximum(np.expm1(np.minimum(x, 700.0)) - x, 0.0)) / 2
        costs = np.minimum(_mean_excess(x), spread)
        return np.asarray(self.masses[:, kmax + 1 : -1] @ costs + self.beyond)

    @cached_property
    def beyond(self) -> FloatArray:
        """`excluded` for sets of more than `sizes` steps, by |A'_S|^2 <= |S|^2 max_j |A'_j|^2."""
        return np.asarray(self.masses[:, -1] * _mean_excess(self.rest.tops[:1])[0])


def _binomial(most: int, copies: int, prob: float) -> FloatArray:
    """P(k of `copies` copies take part), k = 0 .. most."""
    from scipy import stats  # takes a while to import, and only very many columns need it

    return np.asarray(stats.binom.pmf(np.arange(most + 1), copies, prob))


def _moments(cumulants: list[FloatArray]) -> FloatArray:
    """E Y^r / r! for r = 0, 1, ... from the cumulants kappa_r / (r - 1)!, r = 1, 2, ..."""
    moments = np.empty((len(cumulants) + 1, *cumulants[0].shape))
    moments[0] = 1.0
    for r in range(1, len(moments)):
        moments[r] = cumulants[r - 1]
        for i in range(1, r):
            moments[r] += cumulants[i - 1] * moments[r - i]
        moments[r] /= r
    return moments


def _log_mean(u: FloatArray, x: FloatArray) -> FloatArray:
    """log(1 - u + u e^x), also for u = 1."""
    change = u * np.expm1(x)
    with np.errstate(divide="ignore"):
        far = np.logaddexp(np.log1p(-u), np.log(u) + x)
    return np.where(change > -0.5, np.log1p(np.maximum(change, -0.5)), far)


def _mean_excess(square_length: FloatArray) -> FloatArray:
    """E(e^(xi - x/2) - 1 - xi - (xi^2 - x)/2)_+ <= 1 + E xi_- + E(x - xi^2)_+ / 2, xi ~ N(0, x)."""
    return np.asarray(1 + 0.4 * np.sqrt(square_length) + 0.25 * square_length)


def _curvature(x: float) -> float:
    """2 (e^x - 1 - x) / x^2, which grows with x: psi(y) <= this y^2 / 2 for y <= x."""
    if x < 1e-3:
        return 1 + x
    return 2 * (math.expm1(x) - x) / x**2 * (1 + 1e-9) if x < 700 else math.inf
