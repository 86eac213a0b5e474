r"""Whether noise has the law that was accounted: once whitened, it must be N(0, I) in every run.

In: white noise of many runs, piece by piece.  Out: findings with p-values.
Rounding: p-values are exact or upper bounds, with two exceptions: the sum of squared correlations,
whose first two moments are exact and whose shape is approximated by a gamma law, and the asymptotic
law of Kolmogorov.

With R the runs in rows and S = R^T R over N runs, step by step:
- S_tt is chi-square with N degrees of freedom, and their sum with n N;
- S_st / sqrt(S_ss) is standard normal for s != t, given column s;
- r_st = S_st / sqrt(S_ss S_tt) are independent of each other in pairs, and N r_st^2 has the mean
  1 and the variance 2 (N - 1) / (N + 2);
- the sum of a column over a stream, over sqrt(N), is standard normal;
- with v_k the sum of the two neighbours of coordinate k, sum_(odd k) R_kt v_kt holds every pair of
  neighbours once, and is N(0, sum_(odd k) v_kt^2) given the even coordinates;
- the sum over steps of x_t R_t over a canary that takes part x_t times is N(0, sum x_t^2).

Streams of float32 are rounded in every operation, by 2^-24 of the numbers at hand: white noise is
off by some 1e-6 (a stream refuses a strategy where that could be 1e-3).  Even if all errors had one
sign, that moves a variance over M values by 1.4e-6 sqrt(M) of its standard deviations, and the
score of Kolmogorov, sqrt(M) times a distance, by less: not by 0.01 in 10^5 runs of 64 steps.

Repeats: two values of float32 are equal by chance in any audit, so words of several neighbouring
coordinates are compared.  Given all earlier steps and all other coordinates, the density of a value
is at most 0.4 over its remaining standard deviation, and it stands on a lattice whose spacing is
eps times the largest number it was summed up from.  So it has a given value with chance at most
c = COINCIDENCE * spread * eps, where `spread` is the largest ratio of a step's standard deviation
to the remaining one.  In a pair of equal words of length k, taken in order of step and coordinate,
each of k values meets one that stands before it, also where words overlap: the chance is at most
c^k.  By Markov, m or more equal pairs have at most chance pairs c^k / m.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike
from scipy.special import kolmogorov, ndtr
from scipy.stats import chi2, norm

from mmcc._arrays import FloatArray
from mmcc.audit._result import Finding

COINCIDENCE = 64
"""0.4 times 160: no intermediate value reaches that many standard deviations."""
RARE = 1e-9
"""Words are long enough that fewer equal pairs than this are expected."""
FOLLOWED = 64
"""Coordinates of each stream whose every value is checked for repeats."""
ORDERED = 2**22
"""Values kept for the test of Kolmogorov and Smirnov."""


def either_tail(below: ArrayLike, above: ArrayLike) -> FloatArray:
    """The p-value of a test that looks at both tails."""
    return np.asarray(np.minimum(1.0, 2 * np.minimum(below, above)))


def smallest(p_values: FloatArray) -> float:
    """The p-value of the most striking of several tests, however they depend on each other.

    A p-value that is not a number could not be tested: nothing is more striking.
    """
    if np.isnan(p_values).any():
        return 0.0
    return min(1.0, float(np.min(p_values)) * p_values.size)


@dataclass(eq=False)
class Moments:
    """Sums and products of white noise, without keeping any run."""

    steps: int
    runs: int = 0
    streams: int = 0
    products: FloatArray = field(init=False)
    squared_sums: FloatArray = field(init=False)
    next_products: FloatArray = field(init=False)
    next_squares: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.products = np.zeros((self.steps, self.steps))
        self.squared_sums = np.zeros(self.steps)
        self.next_products = np.zeros(self.steps)
        self.next_squares = np.zeros(self.steps)

    def add(self, white: FloatArray) -> None:
        """Add one stream, one run a row."""
        self.runs += len(white)
        self.streams += 1
        self.products += white.T @ white
        self.squared_sums += white.sum(axis=0) ** 2 / len(white)
        odd, around = white[1::2], white[:-1:2].copy()
        around[: len(white[2::2])] += white[2::2]
        self.next_products += np.einsum("kt,kt->t", odd, around)
        self.next_squares += np.einsum("kt,kt->t", around, around)

    @property
    def neighbours(self) -> int:
        """Pairs of neighbouring coordinates."""
        return self.runs - self.streams

    def variances(self) -> FloatArray:
        """P-value of each step's variance, and of that of all steps together."""
        squares = np.append(np.diagonal(self.products), np.trace(self.products))
        freedom = self.runs * np.append(np.ones(self.steps), self.steps)
        return either_tail(chi2.cdf(squares, freedom), chi2.sf(squares, freedom))

    def correlations(self) -> FloatArray:
        """P-value of each pair of steps, the earlier one given."""
        lengths = np.sqrt(np.diagonal(self.products))
        scores = (self.products / lengths[:, None])[np.triu_indices(self.steps, 1)]
        return np.asarray(2 * norm.sf(np.abs(scores)))

    def all_correlations(self) -> float:
        """P-value of the sum of their squares; too small a sum is as striking as too large."""
        pairs = self.steps * (self.steps - 1) / 2
        if not pairs:
            return 1.0
        scale = np.sqrt(np.diagonal(self.products))
        unit = (self.products / scale[:, None] / scale)[np.triu_indices(self.steps, 1)]
        total = float(np.sum(unit**2)) * self.runs
        shape = pairs * (self.runs + 2) / (self.runs - 1)  # 2 mean^2 / variance
        score = total * shape / pairs
        return float(either_tail(chi2.cdf(score, shape), chi2.sf(score, shape)))

    def means(self) -> float:
        """P-value of all means, stream by stream: also small if coordinates move together."""
        total, count = self.squared_sums.sum(), self.steps * self.streams
        return float(either_tail(chi2.cdf(total, count), chi2.sf(total, count)))

    def between_neighbours(self) -> FloatArray:
        """P-value of each step's correlation of neighbouring coordinates."""
        return np.asarray(2 * norm.sf(np.abs(self.next_products) / np.sqrt(self.next_squares)))


@dataclass(eq=False)
class NoiseLaw:
    """Noise as it is made, with whole and resumed streams apart, and the evidence against it."""

    steps: int
    spread: float
    """The largest ratio of a step's standard deviation to what is left given earlier steps."""
    moments: dict[str, Moments] = field(default_factory=dict)
    kept: list[FloatArray] = field(default_factory=list)
    followed: list[FloatArray] = field(default_factory=list)
    overlaps: FloatArray = field(init=False)
    squares: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.overlaps = np.zeros(self.steps)
        self.squares = np.zeros(self.steps)

    def add(self, noise: FloatArray, white: FloatArray, resumed: bool) -> None:
        """Add one stream, as it came and whitened, one run a row."""
        kind = "resumed streams" if resumed else "streams played through"
        self.moments.setdefault(kind, Moments(self.steps)).add(white)
        if sum(part.size for part in self.kept) < ORDERED:
            self.kept.append(white)
        self.followed += [noise[:, -1].copy(), *noise[:FOLLOWED, :-1].T.copy()]

    def add_canaries(self, white: FloatArray, times: FloatArray) -> None:
        """Add the noise of runs with a canary, and how often it took part in each step."""
        self.overlaps += np.einsum("kt,kt->t", white, times)
        self.squares += np.einsum("kt,kt->t", times, times)

    def findings(self) -> list[Finding]:
        """All findings; noise that is zero or not a number has no scores, and fails."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return [
                self._variances(),
                self._correlations(),
                self._means(),
                self._shapes(),
                self._neighbours(),
                self._overlaps(),
                self._repeats(),
            ]

    def _variances(self) -> Finding:
        p_value = smallest(np.concatenate([part.variances() for part in self.moments.values()]))
        ratios = {
            kind: np.diagonal(part.products) / part.runs for kind, part in self.moments.items()
        }
        kind = max(ratios, key=lambda kind: float(np.max(np.abs(np.log(ratios[kind])))))
        step = int(np.argmax(np.abs(np.log(ratios[kind]))))
        seen = (
            f"white noise of step {step} has {ratios[kind][step]:.4g} times the accounted "
            f"variance in {kind}"
        )
        return Finding("variance of the noise", p_value, seen)

    def _correlations(self) -> Finding:
        if self.steps == 1:
            return Finding("correlation of the noise", 1.0, "there is one step")
        parts = list(self.moments.values())
        p_values = [smallest(part.correlations()) for part in parts]
        p_values += [part.all_correlations() for part in parts]
        found = []
        for kind, part in self.moments.items():
            scale = np.sqrt(np.diagonal(part.products))
            unit = np.triu(np.abs(part.products) / scale[:, None] / scale, 1)
            place = divmod(int(np.argmax(unit)), self.steps)
            found.append((float(unit[place]), *place, kind))
        size, first, second, kind = max(found)
        seen = (
            f"white noise of steps {first} and {second} has a correlation of {size:.3g} "
            f"in {kind}, accounted 0"
        )
        return Finding("correlation of the noise", smallest(np.array(p_values)), seen)

    def _means(self) -> Finding:
        p_value = smallest(np.array([part.means() for part in self.moments.values()]))
        total = sum(float(part.squared_sums.sum()) for part in self.moments.values())
        count = self.steps * sum(part.streams for part in self.moments.values())
        seen = f"means of streams have {total / count:.4g} times the accounted mean square"
        return Finding("mean of the noise", p_value, seen)

    def _shapes(self) -> Finding:
        ordered = np.sort(np.concatenate(self.kept), axis=0)
        runs = len(ordered)
        chances = ndtr(ordered)
        places = np.arange(runs + 1)[:, None] / runs
        distance = np.maximum(chances - places[:-1], places[1:] - chances).max(axis=0)
        p_values = kolmogorov(math.sqrt(runs) * distance)
        step = int(np.argmax(distance))
        seen = (
            f"the distribution of step {step}'s white noise is {distance[step]:.3g} away from "
            "the normal one"
        )
        return Finding("shape of the noise", smallest(p_values), seen)

    def _neighbours(self) -> Finding:
        parts = self.moments.values()
        p_value = smallest(np.concatenate([part.between_neighbours() for part in parts]))
        together = sum(part.next_products for part in parts) / sum(p.neighbours for p in parts)
        size = float(np.max(np.abs(together)))
        seen = f"neighbouring coordinates have a correlation of at most {size:.3g}, accounted 0"
        return Finding("independence of coordinates", p_value, seen)

    def _overlaps(self) -> Finding:
        scores = np.abs(self.overlaps) / np.sqrt(np.maximum(self.squares, 1))
        seen = f"noise and participation agree by at most {np.max(scores):.3g} standard deviations"
        name = "noise independent of participation"
        return Finding(name, smallest(2 * norm.sf(scores)), seen)

    def _repeats(self) -> Finding:
        values = sum(part.size for part in self.followed)
        pairs = values * (values - 1) / 2
        spacing = float(np.finfo(self.followed[0].dtype).eps)
        chance = min(COINCIDENCE * self.spread * spacing, 0.5)
        wanted = math.ceil(math.log(pairs / RARE) / -math.log(chance))
        length = min(wanted, *(part.size for part in self.followed))
        words = np.concatenate([sliding_window_view(part, length) for part in self.followed])
        ordered = words[np.lexsort(words.T)]
        equal = int(np.sum((ordered[1:] == ordered[:-1]).all(axis=1)))
        p_value = min(1.0, pairs * chance**length / equal) if equal else 1.0
        seen = f"{equal} of {len(words)} words of {length} noise values are the same as another"
        return Finding("repeats of the noise", p_value, seen)
