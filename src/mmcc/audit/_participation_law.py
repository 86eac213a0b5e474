r"""Whether batches have the law that was accounted.

In: a scheme, and who took part in the steps of many runs.  Out: findings with p-values.
Rounding: every count below is binomial, or a sum of independent coins that are not all alike, or
drawn without replacement; the last two are closer to their mean than the binomial law (Hoeffding
1956, 1963), so the p-values are upper bounds.

Laws are written from the definitions of the schemes; `draw` has no part in them.  Of N examples,
N / share can be in a batch (`CyclicPoisson`: a group; `Shuffle`: exactly the batch), each with
chance r_t, and in two batches with chance r_st.  Under `MinSeparation`

    r_t = p (1 - r_(t-1) - ... - r_(t-b+1)),    r_st = r_s r_(t-s-b) for t >= s + b,

for an example is eligible unless it took part in the last b - 1 steps, and after a participation
at s all starts anew at s + b.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtri
from scipy.stats import binom, chi2

from mmcc._arrays import FloatArray, IntArray
from mmcc.audit._noise_law import either_tail, smallest
from mmcc.audit._result import Finding
from mmcc.sampling import BallsInBins, MinSeparation, Poisson, Scheme, Shuffle

DENSE = 0.05
"""From this share of participations on, products of full arrays are faster."""


@dataclass(frozen=True, eq=False, slots=True)
class Law:
    """The law of one example's participations, and how examples depend on each other."""

    share: int
    """One in so many examples can be in a batch; populations are multiples of it."""
    rates: FloatArray
    """For each of these and each step: the chance to be in the batch."""
    pairs: FloatArray
    """For each of these and each two steps: the chance to be in both batches."""
    numbers: FloatArray
    """Law of the number of an example's participations."""
    independent: bool
    """Examples are independent of each other."""
    steps_independent: bool
    """Sizes of different batches are independent of each other."""
    surprise: float
    """Minus log of the largest chance of one outcome, for each example, at least."""


def law(scheme: Scheme, steps: int) -> Law:
    """The exact law of a scheme."""
    places = np.arange(steps)
    if isinstance(scheme, BallsInBins | Shuffle):
        return _epochs(scheme, steps)
    p = scheme.probability
    surprise = -math.log(max(p, 1 - p))
    if isinstance(scheme, MinSeparation):
        return _separated(scheme, steps, surprise)
    same = (places[:, None] - places) % scheme.separation == 0
    short, over = divmod(steps, scheme.separation)
    counts = np.arange(steps + 1)
    longer, shorter = binom.pmf(counts, short + 1, p), binom.pmf(counts, short, p)
    part = over / scheme.separation
    if p == 1:
        surprise = _deal(scheme.separation)
    return Law(
        scheme.separation,
        np.full(steps, p),
        np.where(same, p * p, 0.0),
        part * longer + (1 - part) * shorter,
        isinstance(scheme, Poisson) or scheme.separation == 1,
        True,
        surprise / (scheme.separation if p < 1 else 1),
    )


def _separated(scheme: MinSeparation, steps: int, surprise: float) -> Law:
    p, b = scheme.probability, scheme.separation
    rates = np.zeros(steps)
    for step in range(steps):
        rates[step] = p * (1 - rates[max(0, step - b + 1) : step].sum())
    pairs = np.zeros((steps, steps))
    for step in range(steps):
        pairs[step, step + b :] = rates[step] * rates[: max(0, steps - step - b)]
    numbers = np.zeros((steps + b + 1, steps + 1))  # from a step on which it is eligible
    numbers[steps:, 0] = 1
    for step in reversed(range(steps)):
        numbers[step] = (1 - p) * numbers[step + 1]
        numbers[step, 1:] += p * numbers[step + b, :-1]
    return Law(1, rates, pairs + pairs.T, numbers[0], True, False, surprise)


def _epochs(scheme: BallsInBins | Shuffle, steps: int) -> Law:
    epochs = scheme.epochs(steps)
    length = steps // epochs
    places = np.arange(steps)
    numbers = np.zeros(steps + 1)
    numbers[epochs] = 1
    if isinstance(scheme, BallsInBins):
        same = (places[:, None] - places) % length == 0
        rates = np.full(steps, 1 / length)
        return Law(1, rates, same / length, numbers, True, False, math.log(length))
    other = places[:, None] // length != places // length
    return Law(length, np.ones(steps), other / length, numbers, False, False, _deal(length))


def _deal(parts: int) -> float:
    """Surprise of a uniformly random part of the examples, one in `parts`, for each example.

    log C(N, N / k) / N grows with N; N = k is the smallest population there is.
    """
    return math.log(parts) / parts


@dataclass(eq=False)
class ParticipationLaw:
    """Batches as they are drawn, and what speaks against them."""

    scheme: Scheme
    steps: int
    generator: np.random.Generator
    """For the tests that need a random number of their own."""
    examples: int = 0
    scores: list[FloatArray] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    population: int = 0
    strays: int = 0

    def __post_init__(self) -> None:
        self.law = law(self.scheme, self.steps)
        self.sizes = np.zeros(self.steps)
        self.neighbours = np.zeros(self.steps)
        self.together = np.zeros((self.steps, self.steps))
        self.numbers = np.zeros(self.steps + 1)

    def add(self, batches: list[IntArray], examples: int) -> csr_array:
        """Take in the batches of one population; return who took part when, and how often."""
        steps = np.repeat(np.arange(self.steps), [len(batch) for batch in batches])
        members = np.concatenate(batches).astype(np.int64)
        outside = (members < 0) | (members >= examples)
        self.strays += int(outside.sum())
        times = csr_array(
            (np.ones(int((~outside).sum())), (members[~outside], steps[~outside])),
            shape=(examples, self.steps),
        )
        times.sum_duplicates()
        self.strays += int((times.data > 1).sum())
        self._count(times, examples)
        self.digests.append(hashlib.sha256(members.tobytes() + steps.tobytes()).digest())
        return times

    def _count(self, times: csr_array, examples: int) -> None:
        sizes = np.asarray(times.sum(axis=0)).ravel()
        self.sizes += sizes
        self.examples += examples
        self.population = examples
        trials = examples // self.law.share
        # With a uniform number between the two values of the distribution function, the place of
        # a size in its law is exactly uniform, and its score exactly normal.
        chance = self.generator.random(self.steps) * binom.pmf(sizes, trials, self.law.rates)
        chance += binom.cdf(sizes - 1, trials, self.law.rates)
        self.scores.append(np.asarray(ndtri(np.clip(chance, 0.0, 1.0))))
        here = times.sum(axis=1).astype(np.int64)
        self.numbers += np.bincount(np.minimum(here, self.steps), minlength=self.steps + 1)
        crowded = times.nnz > DENSE * examples * self.steps
        if crowded:
            table = times.toarray()
            self.together += table.T @ table
        else:
            self.together += (times.T @ times).toarray()
        even = examples // 2 * 2
        both = times[0:even:2].multiply(times[1:even:2])
        self.neighbours += np.asarray(both.sum(axis=0)).ravel()

    def findings(self) -> list[Finding]:
        """Everything looked at."""
        found = [self._strays(), self._rates(), self._pairs(), self._numbers(), self._sizes()]
        if self.law.independent:
            found.append(self._neighbours())
        return [*found, self._repeats()]

    def _strays(self) -> Finding:
        seen = f"{self.strays} examples came twice in a batch or do not exist"
        return Finding("batches are sets of examples", 0.0 if self.strays else 1.0, seen)

    def _rates(self) -> Finding:
        trials = self.examples // self.law.share
        p_values = _binomial(self.sizes, trials, self.law.rates)
        step = int(np.argmin(p_values))
        seen = (
            f"the rate of step {step} is {self.sizes[step] / self.examples:.4g}, accounted "
            f"{self.law.rates[step] / self.law.share:.4g}"
        )
        return Finding("rate of participation", smallest(p_values), seen)

    def _pairs(self) -> Finding:
        if self.steps == 1:
            return Finding("participation in two steps", 1.0, "there is one step")
        first, second = np.triu_indices(self.steps, 1)
        trials = self.examples // self.law.share
        together, accounted = self.together[first, second], self.law.pairs[first, second]
        p_values = _binomial(together, trials, accounted)
        worst = int(np.argmin(p_values))
        seen = (
            f"steps {first[worst]} and {second[worst]} share a rate of "
            f"{together[worst] / self.examples:.4g}, accounted "
            f"{accounted[worst] / self.law.share:.4g}"
        )
        return Finding("participation in two steps", smallest(p_values), seen)

    def _numbers(self) -> Finding:
        p_values = _binomial(self.numbers, self.examples, self.law.numbers)
        worst = int(np.argmin(p_values))
        seen = (
            f"{self.numbers[worst] / self.examples:.4g} of the examples take part {worst} times, "
            f"accounted {self.law.numbers[worst]:.4g}"
        )
        return Finding("number of participations", smallest(p_values), seen)

    def _sizes(self) -> Finding:
        """Over populations: fixed sizes vary too little, examples that go together too much."""
        squares = np.square(self.scores)
        totals, count = squares.sum(axis=0), len(squares)
        p_values = either_tail(chi2.cdf(totals, count), chi2.sf(totals, count))
        p_value = smallest(p_values)
        if self.law.steps_independent:
            total, freedom = totals.sum(), squares.size
            whole = either_tail(chi2.cdf(total, freedom), chi2.sf(total, freedom))
            p_value = smallest(np.array([p_value, float(whole)]))
        seen = f"sizes of batches have {squares.mean():.4g} times the accounted variance"
        return Finding("size of batches", p_value, seen)

    def _neighbours(self) -> Finding:
        pairs = len(self.digests) * (self.population // 2)
        accounted = self.law.rates**2
        p_values = _binomial(self.neighbours, pairs, accounted)
        step = int(np.argmin(p_values))
        seen = (
            f"two neighbouring examples are both in step {step} at a rate of "
            f"{self.neighbours[step] / pairs:.4g}, accounted {accounted[step]:.4g}"
        )
        return Finding("independence of examples", smallest(p_values), seen)

    def _repeats(self) -> Finding:
        count = len(self.digests)
        equal = count - len(set(self.digests))
        chance = math.exp(-self.law.surprise * self.population) * count * (count - 1) / 2
        seen = f"{equal} of {count} populations have the same batches as another"
        return Finding("repeats of batches", min(1.0, chance) if equal else 1.0, seen)


def _binomial(hits: FloatArray, trials: int, chances: FloatArray) -> FloatArray:
    """P-values of counts, both tails."""
    return either_tail(binom.cdf(hits, trials, chances), binom.sf(hits - 1, trials, chances))
