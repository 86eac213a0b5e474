"""Poisson sampling with batches cut at a size: for programs that need arrays of a fixed shape.

Rounding: the chance of a cut is an upper bound; rates are plain floating point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mmcc._arrays import IntArray
from mmcc.errors import SamplingError, whole
from mmcc.sampling._coins import Coins
from mmcc.sampling._participations import (
    MAX_STEPS,
    Participations,
    Renewal,
    chance_in_rounds,
    checked_probability,
)
from mmcc.sampling._poisson import Poisson
from mmcc.sampling._scheme import Bits, Drawing, Relaxed, Scheme

if TYPE_CHECKING:
    from mmcc.strategies import Strategy


@dataclass(frozen=True, slots=True)
class TruncatedPoisson(Scheme):
    """Poisson sampling in which no batch has more than `largest_batch` examples.

    If the coins of more examples come up, a uniformly random subset of them takes part.  A data set
    has at most `examples` examples; an example whose contributions are zero still takes up a place.
    """

    probability: float
    largest_batch: int
    examples: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "probability", checked_probability(self.probability))
        for name in ("largest_batch", "examples"):
            object.__setattr__(self, name, whole(name, getattr(self, name), 1, MAX_STEPS))

    @property
    def batch_rows(self) -> int:
        return min(self.largest_batch, self.examples)

    def draw(
        self, steps: int, count: int, generator: np.random.Generator, group: int = 0
    ) -> Participations:
        """Participation sets of `count` examples, each from a full data set of its own."""
        return Renewal(self.rate(steps)).draw(steps, count, generator)

    def expected_batch(self, steps: int, examples: int) -> float:
        """E min(B, L) for B ~ Bin(N, p): N p P[Bin(N - 1, p) < L] + L P[B > L]."""
        self._check_examples(examples)
        p, most = self.probability, self.largest_batch
        whole_batch = 1 - _tail(examples - 1, p, most)
        return examples * p * whole_batch + most * _tail(examples, p, most + 1)

    def rate(self, steps: int) -> float:
        """The expected share of a full data set in a batch."""
        return min(self.expected_batch(steps, self.examples) / self.examples, 1.0)

    def relaxed(self, steps: int, group_size: int = 1) -> Relaxed:
        """Poisson sampling, unless a group member's coin comes up in a full batch.

        A batch can be cut only if the coins of more than L - k of the other N - k examples come
        up. If no member's coin comes up in any such step, the run is as under Poisson sampling.
        A data set of no more than L examples is never cut (docs/samplers.md has the proof).
        """
        members = min(group_size, self.examples)
        full = bound_binomial_tail(
            self.examples - members, self.probability, self.largest_batch - members + 1
        )
        coins = steps * min(members * self.probability, 1.0) * (1 + 2.0**-51)
        chance = min(coins * full * (1 + 2.0**-51), 1.0)
        return Relaxed(
            Poisson(self.probability),
            chance,
            attained=members <= self.largest_batch,
            event="the example is drawn for a batch that is full; a larger largest_batch makes "
            "this rarer",
        )

    def chance(self, steps: int) -> float:
        return chance_in_rounds(self.probability, steps)

    def sensitivity(self, strategy: Strategy) -> float:
        """As under Poisson: participation does not depend on contributions, so only one changes."""
        return strategy.sensitivity(1)

    def drawing(self, steps: int, examples: int, bits: Bits) -> Drawing:
        self._check_examples(examples)
        return _Cut(bits, Coins(bits, examples, self.probability), self.largest_batch)

    def words(self, steps: int) -> str:
        return (
            "Truncated Poisson sampling: each example takes part in each step independently with "
            f"probability {self.probability!r}; where that makes more than {self.largest_batch} "
            f"examples, a random {self.largest_batch} of them take part. The data set has at most "
            f"{self.examples} examples."
        )

    @property
    def caution(self) -> str:
        return (
            "Batches of a fixed size are not sampled so, and a larger data set is not covered: "
            "more of its batches would be cut."
        )

    def _check_examples(self, examples: int) -> None:
        if examples > self.examples:
            raise SamplingError(
                f"the data set has {examples} examples but {self!r} allows at most "
                f"{self.examples}: more batches would be cut than were accounted for. Use "
                f"examples={examples}."
            )


class _Cut:
    """A coin for each example in each step; if too many come up, a random subset of them."""

    def __init__(self, bits: Bits, coins: Coins, most: int) -> None:
        self.bits, self.coins, self.most = bits, coins, most

    def at(self, step: int) -> IntArray:
        heads = self.coins.at(step)
        if heads.size <= self.most:
            return heads
        # A generator of its own, because the coins use a varying number of the step's bits.
        generator = self.bits.of_arrangement(step)
        kept = generator.choice(heads.size, self.most, replace=False, shuffle=False)
        return heads[np.sort(kept)]


def bound_binomial_tail(trials: int, probability: float, least: int) -> float:
    r"""Upper bound on P[Bin(m, p) >= k]: the chance of k times a geometric series.

    The chance of j + 1 is that of j times (m - j) p / ((j + 1) (1 - p)), which falls with j.  With
    the remainders of Stirling's formula (Robbins 1955), for 0 < k < m,

        P[Bin(m, p) = k] <= sqrt(m / (2 pi k (m - k))) exp(r - k log(k / mp)
                                                         - (m - k) log((m - k) / (m (1 - p)))),

    r = 1/12m - 1/(12k + 1) - 1/(12(m - k) + 1).  Each argument of a logarithm has three roundings,
    and each term of the exponent one: `margin` is more than twice what they add up to.
    """
    m, p, k = trials, probability, least
    if k <= 0:
        return 1.0
    if k > m:
        return 0.0
    if p == 1.0:
        return 1.0
    ratio = (m - k) * p / ((k + 1) * (1 - p)) * (1 + 2.0**-49)
    if not ratio < 1:
        return 1.0
    terms = [-k * math.log(k / (m * p)), -math.log1p(-ratio)]
    if k < m:
        terms += [
            -(m - k) * math.log((m - k) / (m * (1 - p))),
            0.5 * math.log(m / (2 * math.pi * k * (m - k))),
            1 / (12 * m) - 1 / (12 * k + 1) - 1 / (12 * (m - k) + 1),
        ]
    margin = 2.0**-49 * (m + sum(map(abs, terms)) + 1)
    return min(math.exp(min(math.fsum(terms) + margin, 0.0)) * (1 + 2.0**-50) + 5e-324, 1.0)


def _tail(trials: int, probability: float, least: int) -> float:
    """P[Bin(m, p) >= k] in plain floating point."""
    from scipy.special import betainc  # takes a while to import

    if least <= 0:
        return 1.0
    return float(betainc(least, trials - least + 1, probability)) if least <= trials else 0.0
