r"""Estimates from dominating pairs: both ends of delta from the same draws, tilted towards them.

In: a `ColumnPair`, an adjacency, delta.  Out: batches whose means are above and below delta.  Plain
floating point: nothing here is a bound.

*Above.*  Besides the true participations s_0 of an output, draw K fakes s_1 .. s_K from the kernel
q(s | y), and use Z = (Lhat(s_0) + ... + Lhat(s_K)) / (K + 1) as the likelihood ratio.  Under Q~ all
K + 1 are fakes; under P~ the true one has a random place among them.  Then Z is the ratio of
the two laws of (y, s_0, ..., s_K):

    1/(K+1) sum_k pi(s_k) N(A s_k, I)(dy) prod_(j != k) q(s_j | y) = Z Q(dy) prod_j q(s_j | y),

and both have P and Q as laws of y, so E_P~ (1 - e^eps / Z)_+ >= delta, and likewise for add.
Without the true path, Z is an estimate of dP/dQ and no bound.  As K grows, Z approaches dP/dQ.

*Below.*  Any test of y, with coins of its own, gives a lower bound: for the event T that the mean
of Lhat(s_1) .. Lhat(s_K) exceeds e^eps, which knows nothing of s_0,

    delta >= P(T) - e^eps Q(T) = E_P~ [(1 - e^eps / Lhat(s_0)) 1_T].

For add T is that the mean falls below e^-eps, and E_Q~ [(1 - e^eps Lhat(s_0)) 1_T] is below delta.

*Proposals.*  For remove, outputs are drawn as if participations were more likely or did more:
y = A' s' + z, A' = gamma A, where s' has other odds, law pi'.  With the kernel q' of that mechanism
and its ratio Lhat',

    E_P~ f(y, s) = E [f(y, s) Lhat(y, s) / Lhat'(y, s')],  s' ~ pi', y = A' s' + z, s ~ q(. | y),

for pi'(s') N(A' s', I)(dy) q(s | y) = Lhat' Q(dy) q'(s' | y) q(s | y) and P~(dy, s) q'(s' | y) =
Lhat Q(dy) q(s | y) q'(s' | y).  Where kernels are good, weights are those of the outputs alone,
X / X'.  Several such laws are mixed: an output drawn from one of them gets fakes of the others, and
the weight is Lhat over the mean of their ratios.  So K + 1 fakes of the scheme's own law stand for
s_0, ..., s_K, in any order.  Shares are fitted in the pilot to the contributions of outputs; the
scheme's own law keeps one, so that weights stay bounded.  For add, z ~ N(beta A 1, I) for some
beta < 0, and for 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mmcc._arrays import FloatArray
from mmcc._simulation import reveal_loops as loops
from mmcc._simulation.batches import Batch
from mmcc._simulation.chance_checks import check_chances
from mmcc._simulation.intervals import falls_to
from mmcc._simulation.kicks import MOST_COLUMNS
from mmcc._simulation.one_example import Mechanism
from mmcc._simulation.pairs import NONE, ColumnPair
from mmcc.errors import PrecisionError

NUMBERS = 2**17
MOST_POINTS, LEAST_POINTS = 64, 16
OWN_SHARE = 0.1
"""The share of outputs drawn from the pair's own law."""
MOST_COPIES = 16
FACTOR, MOST_FACTORS, MOST_CHANCE = 1.6, 12, 0.95
"""Odds that are tried: the factor between them, how many, and the largest probability."""
FEW_COLUMNS, SIZES = 256, (1.5, 2.2, 3.2)
KEPT = 3
"""Components besides the own law."""
FIT = 16
"""Batches for a fit."""
TURNS = 8
LARGEST, STEEPEST = 1e5, 300.0
STATES = 64
"""Most states of an automaton, and most bands if there are many columns."""
FEW_PARTICIPATIONS = 3.0
"""Below this mean number of participations, lists of sets are as good or better."""
FEW_COLUMNS = 16
"""Up to this many, lists hold every set that matters."""
SPAN = np.array([0.85, 0.93, 1.0, 1.07, 1.15])


@dataclass(frozen=True, eq=False)
class RevealPlan:
    """Everything that a batch needs except its index."""

    pair: ColumnPair
    remove: bool
    epsilons: FloatArray
    choices: tuple[tuple[float, float], ...]
    """For remove: factors of the odds, and gamma.  For add: beta, and 1."""
    shares: tuple[float, ...]
    count: int
    """Fakes besides the true participations."""
    points: int
    seed: int
    stage: int

    unbiased = False

    @property
    def mechanism(self) -> Mechanism:
        """The pair's mechanism."""
        return self.pair.mechanism

    @property
    def words(self) -> str:
        """How the likelihood ratio is computed."""
        fakes = "one fake" if self.count == 1 else f"{self.count} fakes"
        return f"participations revealed one by one, {fakes} for each output"

    @cached_property
    def others(self) -> list[ColumnPair]:
        """The mechanisms that outputs are drawn from."""
        return [self.pair.louder(*choice) for choice in self.choices]

    def at_most(self, count: int) -> int:
        """So many fakes, but no more than are allowed."""
        return min(count, MOST_COPIES)

    def run(self, index: int) -> Batch:
        """Fresh outputs, all from the seed and the batch's index."""
        drawn = draw(self, index)
        return Batch(gains(drawn, self.epsilons, self.remove), drawn.densities)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Outputs: densities over Q's, of each law and of the mixture; log Lhat of K + 1 fakes."""

    densities: FloatArray
    density: FloatArray
    fakes: FloatArray


def gains(drawn: Drawn, epsilons: FloatArray, remove: bool) -> FloatArray:
    """What each output adds to the means above (twice) and below (twice), at each epsilon.

    Above, with Z the mean of all Lhat: (Z - e^eps)_+ for remove, (1 - e^eps Z)_+ for add, over
    the density that outputs were drawn with.  Below, the mean over k of the same with Lhat_k
    instead of Z, without the cut and where the mean of the others passes the test.
    """
    fakes, base = drawn.fakes, -drawn.density
    top = fakes.max(axis=1, keepdims=True)
    ratios = np.exp(fakes - top)
    total = ratios.sum(axis=1, keepdims=True)
    number = fakes.shape[1]
    both = (top + np.log(total / number))[:, 0]
    with np.errstate(divide="ignore"):
        rest = top + np.log(np.maximum(total - ratios, 0.0) / max(number - 1, 1))
    above = np.empty((len(fakes), epsilons.size))
    below = np.empty_like(above)
    for k, epsilon in enumerate(epsilons):
        if remove:
            weight = np.exp(np.minimum(base + both, STEEPEST))
            above[:, k] = -weight * np.expm1(np.minimum(epsilon - both, 0.0))
            each = np.exp(np.minimum(base[:, None] + fakes, STEEPEST))
            each -= np.exp(np.minimum(base + epsilon, STEEPEST))[:, None]
            below[:, k] = np.where(rest > epsilon, each, 0.0).mean(axis=1)
        else:
            weight = np.exp(base)
            above[:, k] = -weight * np.expm1(np.minimum(epsilon + both, 0.0))
            each = -weight[:, None] * np.expm1(np.minimum(epsilon + fakes, STEEPEST))
            below[:, k] = np.where(rest < -epsilon, each, 0.0).mean(axis=1)
    return np.stack([above, above, below, below], axis=2)


def draw(plan: RevealPlan, index: int) -> Drawn:
    """Draw outputs and reveal their participations."""
    rng = np.random.default_rng(np.random.SeedSequence(plan.seed, spawn_key=(plan.stage, index)))
    pair, points = plan.pair, plan.points
    shadows = pair._noise(points, rng)
    edges = np.round(points * np.cumsum(plan.shares)).astype(np.int64)
    chosen = np.searchsorted(edges, np.arange(points), side="right")
    densities = np.empty((points, len(plan.choices)))
    if plan.remove:
        kicks = pair.kicks
        taken = np.zeros(shadows.shape, np.int64)
        for k, other in enumerate(plan.others):
            own, (_, size) = np.flatnonzero(chosen == k), plan.choices[k]
            outputs, members = shadows[own], taken[own]
            loops.draw_outputs(
                outputs, rng, *other.law, kicks.flat, kicks.starts, kicks.reach, size, members
            )
            shadows[own], taken[own] = outputs, members
        for k, other in enumerate(plan.others):
            own, rest, (_, size) = chosen == k, chosen != k, plan.choices[k]
            densities[own, k] = other.reveal(size * shadows[own], True, rng, taken[own])
            densities[rest, k] = other.reveal(size * shadows[rest], False, rng, NONE)
    else:
        betas = np.array([beta for beta, _ in plan.choices])
        shadows += np.multiply.outer(betas[chosen], pair.sums)
        along = shadows.sum(axis=1)
        densities = np.multiply.outer(along, betas) - betas**2 / 2 * pair.sums.sum()
    shares = np.diff(edges, prepend=0) / points
    with np.errstate(divide="ignore"):
        density = np.logaddexp.reduce(densities + np.log(shares), axis=1)
    fakes = [pair.reveal(shadows.copy(), False, rng, NONE) for _ in range(plan.count + 1)]
    return Drawn(densities, density, np.array(fakes).T)


def pair_to_reveal(mechanism: Mechanism) -> ColumnPair | None:
    """The pair, if columns can be revealed one by one and are not too many."""
    chances = mechanism.scheme.chances(mechanism.strategy.steps)
    strategy = mechanism.strategy
    bands = math.inf if strategy.toeplitz is None else strategy.toeplitz.bands
    many = mechanism.columns > MOST_COLUMNS and bands > STATES
    if chances is None or chances.states > STATES or many or mechanism.scheme.setting:
        return None
    check_chances(mechanism, chances)
    return ColumnPair(mechanism, chances)


def worth_revealing(pair: ColumnPair) -> bool:
    """Whether there are more participations than a list of sets can represent."""
    many = float(pair.chances.rates(pair.columns).sum()) >= FEW_PARTICIPATIONS
    return many and pair.columns > FEW_COLUMNS


def explore_pair(
    pair: ColumnPair, remove: bool, delta: float, seed: int
) -> tuple[float, float, float, RevealPlan]:
    """Epsilon with its error, the gap between above and below, and a plan for the main run."""
    size = max(min(NUMBERS // (pair.mechanism.strategy.rows + pair.columns), MOST_POINTS), 1)
    choices = _louder(pair) if remove else _shifted(pair)
    plan = RevealPlan(
        pair,
        remove,
        np.zeros(1),
        choices,
        tuple([1 / len(choices)] * len(choices)),
        1,
        max(size, LEAST_POINTS),
        seed,
        int(remove),
    )
    level, plan = _fit(replace(plan, stage=10 + plan.stage), delta)
    plan = _fewer(plan)
    level, plan = _fit(replace(plan, stage=10 + plan.stage), delta)
    return _last_look(replace(plan, stage=10 + plan.stage), delta, level)


def _louder(pair: ColumnPair) -> tuple[tuple[float, float], ...]:
    """The own law first, then increasing odds; and longer columns, if there are few."""
    chances = pair.chances.probability
    most = float(chances.max(initial=0.0, where=chances < 1))
    factors = [1.0]
    while len(factors) < MOST_FACTORS and most > 0:
        odds = most * factors[-1] * FACTOR
        if odds / (1 - most + odds) > MOST_CHANCE:
            break
        factors.append(factors[-1] * FACTOR)
    choices = [(factor, 1.0) for factor in factors]
    if pair.columns <= FEW_COLUMNS:
        choices += [(factor, size) for size in SIZES for factor in factors[::3]]
    return tuple(choices)


def _shifted(pair: ColumnPair) -> tuple[tuple[float, float], ...]:
    """Betas that shift z by given numbers of standard deviations along -A 1."""
    length = math.sqrt(float(pair.sums.sum()))
    return tuple((-x / length, 1.0) for x in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0))


def _fit(plan: RevealPlan, delta: float) -> tuple[float, RevealPlan]:
    """Epsilon, and shares that bring the proposal closest to the outputs' contributions."""
    drawn = [draw(plan, index) for index in range(FIT)]
    every = Drawn(
        np.concatenate([some.densities for some in drawn]),
        np.concatenate([some.density for some in drawn]),
        np.concatenate([some.fakes for some in drawn]),
    )
    low, high = 0.0, max(float((every.fakes if plan.remove else -every.fakes).max()), 0.0)
    for _ in range(40):
        middle = 0.5 * (low + high)
        if gains(every, np.array([middle]), plan.remove)[:, 0, 0].mean() > delta:
            low = middle
        else:
            high = middle
    mass = gains(every, np.array([low]), plan.remove)[:, 0, 0]
    if not mass.sum() > 0:
        return low, plan
    shares = np.array(plan.shares)
    for _ in range(50):
        parts = every.densities + np.log(np.maximum(shares, 1e-12))
        parts = np.exp(parts - np.logaddexp.reduce(parts, axis=1)[:, None])
        shares = np.maximum(mass @ parts / mass.sum(), 1e-12)
        shares /= shares.sum()
    shares[0] = max(shares[0], OWN_SHARE)
    return low, replace(plan, shares=tuple(shares / shares.sum()))


def _fewer(plan: RevealPlan) -> RevealPlan:
    """The components with the largest shares, and the own law."""
    best = sorted(np.argsort(plan.shares[1:])[::-1][:KEPT] + 1)
    kept = [0, *best]
    shares = np.array([max(plan.shares[k], 0.05) for k in kept])
    return replace(
        plan,
        choices=tuple(plan.choices[k] for k in kept),
        shares=tuple(shares / shares.sum()),
    )


def _last_look(
    plan: RevealPlan, delta: float, level: float
) -> tuple[float, float, float, RevealPlan]:
    """Epsilon above and below with one fake."""
    centre = max(level, 1e-3)
    for attempt in range(TURNS):
        plan = replace(
            plan, epsilons=np.concatenate([[0.0], centre * SPAN]), stage=plan.stage + 10 * attempt
        )
        batches = [plan.run(index) for index in range(2 * FIT)]
        means = np.array([batch.values.mean(axis=0) for batch in batches])
        above, below = means[:, :, 0], means[:, :, 2]
        epsilon = falls_to(above.mean(axis=0), plan.epsilons, delta)
        if epsilon is not None and (epsilon == 0.0 or epsilon > plan.epsilons[1]):
            break
        centre *= 1.25 if epsilon is None else 0.8
        if centre > LARGEST:
            break
    if epsilon is None:
        raise PrecisionError(
            "simulated outputs do not show where epsilon lies: their weights have collapsed. "
            "Use a larger sigma, or mmcc.epsilon."
        )
    place = int(np.clip(np.searchsorted(plan.epsilons, epsilon), 1, plan.epsilons.size - 1))
    curve = above.mean(axis=0)
    step = plan.epsilons[place] - plan.epsilons[place - 1]
    slope = max((curve[place - 1] - curve[place]) / step, 1e-3 * delta)
    error = above[:, place].std(ddof=1) / math.sqrt(len(batches)) / slope
    gap = max((above - below)[:, place].mean(), 0.0) / slope
    return epsilon, float(error), float(gap), replace(plan, stage=200 + int(plan.remove))
