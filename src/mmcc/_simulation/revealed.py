r"""Estimates from dominating pairs: both ends of delta from the same draws, tilted towards them.

In: a `ColumnPair`, an adjacency, delta.  Out: batches whose means lie above and below delta.  Plain
floating point: nothing here is a bound.

*Above.*  Beside the own participations s_0 of an output draw K fakes s_1 .. s_K from the kernel
q(s | y), and take Z = (Lhat(s_0) + ... + Lhat(s_K)) / (K + 1) for the likelihood ratio.  Under Q~
all K + 1 are fakes; under P~ the own one has a place at random among them.  Then Z is the ratio of
the two laws of (y, s_0, ..., s_K):

    1/(K+1) sum_k pi(s_k) N(A s_k, I)(dy) prod_(j != k) q(s_j | y) = Z Q(dy) prod_j q(s_j | y),

and both have P and Q as laws of y, so E_P~ (1 - e^eps / Z)_+ >= delta, and so for add.  Without the
own path, Z is an estimate of dP/dQ and no bound.  As K grows, Z becomes dP/dQ.

*Below.*  Any test of y, with coins of its own, gives a lower bound: for the event T that the mean
of Lhat(s_1) .. Lhat(s_K) exceeds e^eps, which knows nothing of s_0,

    delta >= P(T) - e^eps Q(T) = E_P~ [(1 - e^eps / Lhat(s_0)) 1_T].

For add T is that the mean falls below e^-eps, and E_Q~ [(1 - e^eps Lhat(s_0)) 1_T] is below delta.

*Tilts.*  s and the noise z are drawn from another law, whose ratio to P~ is known: the odds of
column l times exp(theta + kappa sum_(i<l) G_il s_i), z ~ N(A(alpha s + beta 1), I); for add
z ~ N(beta A 1, I).  The four numbers are fitted by cross-entropy: they maximise the likelihood of
outputs weighted by what they contribute, at levels of epsilon that rise to the one looked for.  A
part of the outputs is drawn as the pair has them, so that weights stay bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mmcc._arrays import FloatArray
from mmcc._simulation import reveal_loops as loops
from mmcc._simulation.batches import Batch
from mmcc._simulation.intervals import falls_to
from mmcc._simulation.one_example import Mechanism
from mmcc._simulation.pairs import MOST_COLUMNS, NONE, ColumnPair, check_chances
from mmcc.errors import PrecisionError

NUMBERS = 2**17
MOST_POINTS, LEAST_POINTS = 64, 8
PLAIN_SHARE = 0.1
"""Of the outputs, drawn as the pair has them."""
MOST_COPIES = 16
TURNS, ENOUGH = 14, 3
"""Fits of the tilt at most; and how many at the epsilon looked for."""
FIT, MOST_FIT = 16, 64
"""Batches for a fit: twice as many where these do not reach the epsilon looked for, and again."""
LEAST_FIT = 30.0
"""Outputs of equal weight at which a level is trusted."""
KEPT = 0.3
"""Of the last tilt, against noise."""
LARGEST, STEEPEST = 1e5, 300.0
STATES = 64
"""Of an automaton, and bands where there are many columns."""


@dataclass(frozen=True, eq=False)
class RevealPlan:
    """Everything that a batch needs but its index."""

    pair: ColumnPair
    remove: bool
    epsilons: FloatArray
    tilt: tuple[float, float, float, float]
    """Theta, kappa, alpha, beta."""
    count: int
    """Fakes beside the own participations."""
    points: int
    seed: int
    stage: int

    unbiased = False

    @property
    def mechanism(self) -> Mechanism:
        """The pair's."""
        return self.pair.mechanism

    @property
    def words(self) -> str:
        """How the likelihood ratio comes about."""
        fakes = "one fake" if self.count == 1 else f"{self.count} fakes"
        return f"participations revealed one by one, {fakes} for each output"

    def at_most(self, count: int) -> int:
        """So many fakes, if they are not too many."""
        return min(count, MOST_COPIES)

    def run(self, index: int) -> Batch:
        """Fresh outputs, all from the seed and the batch's index."""
        drawn = draw(self, index)
        sign = 1.0 if self.remove else -1.0
        losses = sign * drawn.losses
        both = sign * _log_mean(np.column_stack([drawn.losses, drawn.fakes]))
        seen = sign * _log_mean(drawn.fakes)
        weights = np.exp(drawn.log_weights)[:, None]
        above = -weights * np.expm1(np.minimum(self.epsilons - both[:, None], 0.0))
        below = -weights * np.expm1(np.minimum(self.epsilons - losses[:, None], STEEPEST))
        below = np.where(seen[:, None] > self.epsilons, below, 0.0)
        values = np.stack([above, above, below, below], axis=2)
        return Batch(values, np.zeros((len(weights), 1)))


@dataclass(frozen=True, eq=False)
class Drawn:
    """Outputs: their weights, log Lhat of the own participations and of fakes, what fits a tilt."""

    log_weights: FloatArray
    losses: FloatArray
    fakes: FloatArray
    figures: FloatArray


def draw(plan: RevealPlan, index: int) -> Drawn:
    """Tilted outputs and what is revealed of them."""
    rng = np.random.default_rng(np.random.SeedSequence(plan.seed, spawn_key=(plan.stage, index)))
    pair, points = plan.pair, plan.points
    noise = pair._noise(points, rng)
    tilted = (np.arange(points) >= round(PLAIN_SHARE * points)).astype(np.int64)
    taken, sums = NONE, pair.sums
    if plan.remove:
        taken = np.empty(noise.shape, np.int64)
        kicks = pair.kicks
        figures = loops.draw_tilted(
            noise,
            rng,
            tilted,
            *pair.law,
            kicks.flat,
            kicks.starts,
            kicks.reach,
            sums,
            np.array(plan.tilt),
            taken,
        )
        ratios = figures[:, 0]
    else:
        beta = plan.tilt[3]
        noise += beta * tilted[:, None] * sums
        figures = noise.sum(axis=1)[:, None]
        ratios = beta * figures[:, 0] - 0.5 * beta**2 * sums.sum()
    weights = -np.logaddexp(ratios + math.log1p(-PLAIN_SHARE), math.log(PLAIN_SHARE))
    losses = pair.reveal(noise.copy(), plan.remove, rng, taken)
    fakes = [pair.reveal(noise.copy(), False, rng, NONE) for _ in range(plan.count)]
    return Drawn(weights, losses, np.array(fakes).reshape(plan.count, points).T, figures)


def _log_mean(logs: FloatArray) -> FloatArray:
    top = logs.max(axis=1, keepdims=True)
    return np.asarray(top[:, 0] + np.log(np.exp(logs - top).mean(axis=1)))


def pair_to_reveal(mechanism: Mechanism) -> ColumnPair | None:
    """The pair, where columns can be revealed one by one and are not too many."""
    chances = mechanism.scheme.chances(mechanism.strategy.steps)
    strategy = mechanism.strategy
    bands = math.inf if strategy.toeplitz is None else strategy.toeplitz.bands
    many = mechanism.columns > MOST_COLUMNS and bands > STATES
    if chances is None or chances.states > STATES or many or mechanism.scheme.setting:
        return None
    check_chances(mechanism, chances)
    return ColumnPair(mechanism, chances)


@dataclass(frozen=True)
class Found:
    """A level of epsilon, whether it is the one looked for, and the tilt that fits it."""

    epsilon: float
    reached: bool
    tilt: tuple[float, float, float, float]


def explore_pair(
    pair: ColumnPair, remove: bool, delta: float, seed: int
) -> tuple[float, float, float, RevealPlan]:
    """Epsilon with its error, the gap between above and below, and a plan for the main run."""
    size = max(min(NUMBERS // (pair.mechanism.strategy.rows + pair.columns), MOST_POINTS), 1)
    plan = RevealPlan(
        pair, remove, np.zeros(1), (0.0, 0.0, 0.0, 0.0), 0, max(size, LEAST_POINTS), seed, 0
    )
    level, at_goal, batches = 0.0, 0, FIT
    for turn in range(TURNS):
        plan = replace(plan, stage=10 * (turn + 1) + int(remove))
        found = _fit(plan, delta, batches)
        plan = replace(plan, tilt=found.tilt)
        at_goal += found.reached
        if at_goal == ENOUGH:
            break
        if found.epsilon < 1.2 * level and not found.reached:
            batches = min(2 * batches, MOST_FIT)
        level = found.epsilon
    last = replace(plan, count=1, stage=5 + int(remove))
    return _last_look(last, delta, found.epsilon, 2 * batches)


def _fit(plan: RevealPlan, delta: float, count: int) -> Found:
    """One step of cross-entropy, at the epsilon looked for or as far as these outputs show it."""
    batches = [draw(plan, index) for index in range(count)]
    log_weights = np.concatenate([batch.log_weights for batch in batches])
    losses = np.concatenate([batch.losses for batch in batches])
    losses = losses if plan.remove else -losses
    weights = np.exp(log_weights)

    def gains(epsilon: float) -> FloatArray:
        return np.asarray(-weights * np.expm1(np.minimum(epsilon - losses, 0.0)))

    def effective(gain: FloatArray) -> float:
        square = float(np.square(gain).sum())
        return float(gain.sum()) ** 2 / square if square > 0 else 0.0

    low, high = 0.0, max(float(losses.max()), 0.0)
    for _ in range(40):
        middle = 0.5 * (low + high)
        if gains(middle).mean() > delta:
            low = middle
        else:
            high = middle
    epsilon = low
    reached = effective(gains(epsilon)) >= LEAST_FIT or epsilon == 0.0
    if not reached:
        low, high = 0.0, epsilon
        for _ in range(30):
            middle = 0.5 * (low + high)
            if effective(gains(middle)) >= LEAST_FIT:
                low = middle
            else:
                high = middle
        epsilon = low
    parts = gains(epsilon)
    if not parts.sum() > 0:
        return Found(epsilon, reached, plan.tilt)
    figures = np.concatenate([batch.figures for batch in batches])
    mean = parts @ figures / parts.sum()
    return Found(epsilon, reached, _tilt(plan, mean))


def _tilt(plan: RevealPlan, mean: FloatArray) -> tuple[float, float, float, float]:
    """The tilt that makes the weighted outputs most likely.

    One step of Newton's method for the odds, least squares for the shift of the noise.
    """
    whole = float(plan.pair.sums.sum())
    theta, kappa, alpha, beta = plan.tilt
    if not plan.remove:
        return 0.0, 0.0, 0.0, KEPT * beta + (1 - KEPT) * float(mean[0]) / whole
    curvature = np.array([[mean[3], mean[4]], [mean[4], mean[5]]])
    curvature += np.diag([1e-9 + 1e-3 * mean[3], 1e-9 + 1e-3 * mean[5]])
    step = np.linalg.solve(curvature, mean[1:3])
    step *= min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-12))
    table = np.array([[mean[8], mean[9]], [mean[9], whole]])
    table += np.diag([1e-9 + 1e-3 * mean[8], 1e-6 * whole])
    shift = np.linalg.solve(table, mean[6:8])
    return (
        theta + float(step[0]),
        kappa + float(step[1]),
        KEPT * alpha + (1 - KEPT) * float(shift[0]),
        KEPT * beta + (1 - KEPT) * float(shift[1]),
    )


SPAN = np.array([0.85, 0.93, 1.0, 1.07, 1.15])


def _last_look(
    plan: RevealPlan, delta: float, level: float, count: int
) -> tuple[float, float, float, RevealPlan]:
    """Epsilon above and below with one fake."""
    centre = max(level, 1e-3)
    for attempt in range(12):
        plan = replace(
            plan, epsilons=np.concatenate([[0.0], centre * SPAN]), stage=plan.stage + 10 * attempt
        )
        batches = [plan.run(index) for index in range(count)]
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
