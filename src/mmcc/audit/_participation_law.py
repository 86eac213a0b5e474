r"""Whether batches have the law that was accounted.

In: a scheme, and who took part in the steps of many runs.  Out: findings with p-values.
Rounding: every count below is binomial, or a sum of independent coins that are not all alike, or
drawn without replacement; the last two are closer to their mean than the binomial law (Hoeffding
1956, 1963), so the p-values are upper bounds.

The laws are those of `Scheme.law`, written from the definitions of the schemes and independent of
`draw`.  Of N examples, N / share can be in a batch, each with its own probability for each step and
each pair of steps.  If a scheme states no law, only what holds for every scheme is checked.
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
from mmcc.sampling import Law, Scheme

DENSE = 0.05
"""From this share of participations on, products of full arrays are faster."""


@dataclass(eq=False)
class ParticipationLaw:
    """Batches as they are drawn, and the evidence against them."""

    scheme: Scheme
    steps: int
    generator: np.random.Generator
    """For the tests that need random numbers of their own."""
    examples: int = 0
    scores: list[FloatArray] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    population: int = 0
    strays: int = 0

    def __post_init__(self) -> None:
        self.law = self.scheme.law(self.steps)
        self.sizes = np.zeros(self.steps)
        self.neighbours = np.zeros(self.steps)
        self.together = np.zeros((self.steps, self.steps))
        self.numbers = np.zeros(self.steps + 1)

    def add(self, batches: list[IntArray], examples: int) -> csr_array:
        """Add the batches of one population; return who took part when, and how often."""
        times, strays = who_took_part(batches, examples)
        self.strays += strays
        self._count(times, examples)
        sizes = np.array([len(batch) for batch in batches])
        content = np.concatenate([sizes, *batches]).astype(np.int64)
        self.digests.append(hashlib.sha256(content.tobytes()).digest())
        return times

    def _count(self, times: csr_array, examples: int) -> None:
        sizes = np.asarray(times.sum(axis=0), np.float64).ravel()
        self.sizes += sizes
        self.examples += examples
        self.population = examples
        if self.law is not None:
            self.scores.append(self._scores(sizes, examples // self.law.share, self.law.rates))
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

    def _scores(self, sizes: FloatArray, trials: int, rates: FloatArray) -> FloatArray:
        """Sizes of batches as exactly normal numbers.

        With a uniform number between the two values of the distribution function, the quantile of a
        size in its law is exactly uniform.
        """
        chance = self.generator.random(self.steps) * binom.pmf(sizes, trials, rates)
        chance += binom.cdf(sizes - 1, trials, rates)
        return np.asarray(ndtri(np.clip(chance, 0.0, 1.0)))

    def findings(self) -> list[Finding]:
        """All findings."""
        law = self.law
        if law is None:
            return [self._strays()]
        held = [self._rates(law), self._pairs(law), self._numbers(law), self._sizes(law)]
        if law.independent:
            held.append(self._neighbours(law))
        return [self._strays(), *held, self._repeats(law)]

    def _strays(self) -> Finding:
        seen = f"{self.strays} examples came twice in a batch or do not exist"
        return Finding("batches are sets of examples", 0.0 if self.strays else 1.0, seen)

    def _rates(self, law: Law) -> Finding:
        trials = self.examples // law.share
        p_values = _binomial(self.sizes, trials, law.rates)
        step = int(np.argmin(p_values))
        seen = (
            f"the rate of step {step} is {self.sizes[step] / self.examples:.4g}, accounted "
            f"{law.rates[step] / law.share:.4g}"
        )
        return Finding("rate of participation", smallest(p_values), seen)

    def _pairs(self, law: Law) -> Finding:
        if self.steps == 1:
            return Finding("participation in two steps", 1.0, "there is one step")
        first, second = np.triu_indices(self.steps, 1)
        trials = self.examples // law.share
        together, accounted = self.together[first, second], law.pairs[first, second]
        p_values = _binomial(together, trials, accounted)
        worst = int(np.argmin(p_values))
        seen = (
            f"steps {first[worst]} and {second[worst]} share a rate of "
            f"{together[worst] / self.examples:.4g}, accounted "
            f"{accounted[worst] / law.share:.4g}"
        )
        return Finding("participation in two steps", smallest(p_values), seen)

    def _numbers(self, law: Law) -> Finding:
        p_values = _binomial(self.numbers, self.examples, law.numbers)
        worst = int(np.argmin(p_values))
        seen = (
            f"{self.numbers[worst] / self.examples:.4g} of the examples take part {worst} times, "
            f"accounted {law.numbers[worst]:.4g}"
        )
        return Finding("number of participations", smallest(p_values), seen)

    def _sizes(self, law: Law) -> Finding:
        """Across populations: fixed sizes vary too little, correlated examples too much."""
        squares = np.square(self.scores)
        totals, count = squares.sum(axis=0), len(squares)
        p_values = either_tail(chi2.cdf(totals, count), chi2.sf(totals, count))
        p_value = smallest(p_values)
        if law.steps_independent:
            total, freedom = totals.sum(), squares.size
            whole = either_tail(chi2.cdf(total, freedom), chi2.sf(total, freedom))
            p_value = smallest(np.array([p_value, float(whole)]))
        seen = f"sizes of batches have {squares.mean():.4g} times the accounted variance"
        return Finding("size of batches", p_value, seen)

    def _neighbours(self, law: Law) -> Finding:
        pairs = len(self.digests) * (self.population // 2)
        accounted = law.rates**2
        p_values = _binomial(self.neighbours, pairs, accounted)
        step = int(np.argmin(p_values))
        seen = (
            f"two neighbouring examples are both in step {step} at a rate of "
            f"{self.neighbours[step] / pairs:.4g}, accounted {accounted[step]:.4g}"
        )
        return Finding("independence of examples", smallest(p_values), seen)

    def _repeats(self, law: Law) -> Finding:
        count = len(self.digests)
        equal = count - len(set(self.digests))
        chance = math.exp(-law.surprise * self.population) * count * (count - 1) / 2
        seen = f"{equal} of {count} populations have the same batches as another"
        return Finding("repeats of batches", min(1.0, chance) if equal else 1.0, seen)


def _binomial(hits: FloatArray, trials: int, chances: FloatArray) -> FloatArray:
    """Two-sided p-values of counts."""
    return either_tail(binom.cdf(hits, trials, chances), binom.sf(hits - 1, trials, chances))


def who_took_part(batches: list[IntArray], examples: int) -> tuple[csr_array, int]:
    """How often each example is in each batch, and how many entries are invalid or repeated."""
    steps = np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
    members = np.concatenate(batches).astype(np.int64)
    outside = (members < 0) | (members >= examples)
    times = csr_array(
        (np.ones(int((~outside).sum())), (members[~outside], steps[~outside])),
        shape=(examples, len(batches)),
    )
    times.sum_duplicates()
    return times, int(outside.sum()) + int((times.data > 1).sum())
