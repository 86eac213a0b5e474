r"""One batch of the simulation: fresh participation sets, fresh outputs, exact integrals over t.

In: a `Plan`, the batch's index.  Out: means over the batch.  With A = C / sigma,
P = sum_S pi_S N(A_S, I), Q = N(0, I), X = dP/dQ and a unit vector d along a non-negative sum of
columns, write y = t d + z, a_S = <d, A_S> >= 0 and A'_S = A_S - a_S d.  Then

    X_t(z) = sum_S c_S(z) exp(t a_S - a_S^2 / 2),   c_S(z) = pi_S exp(<z, A'_S> - |A'_S|^2 / 2)

grows with t: given z, delta is that of a scalar mixture, and only z is sampled.

Two independent lists T1, T2 of sets, their weights right on average, bracket delta on average:

    above   the list T1 taken for the mechanism: (x - E)_+ is convex in the ratio x,
    below   the set of outputs where T1's ratio exceeds E, judged by T2: a fixed test.

z is drawn from a mixture over kappa: a set S from the list, z = kappa A'_S + noise; kappa = 0 is
Q's own law.  Half of the sets are drawn under P, half as the threshold along d makes them likely;
so for remove, where the contribution of z is at most P's density over Q's, weights stay bounded.
Everything is divided by the mixture's density over Q's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._simulation import set_mixtures as kernels
from mmcc._simulation.one_example import Mechanism
from mmcc._simulation.set_lists import SetList, draw_members, draw_sets, join
from mmcc._simulation.transfer_matrix import Chain

LOWEST = 10.0
"""Below -LOWEST (remove) or above LOWEST (add) t stands for every t: 1e-23 of the outputs."""
FARTHEST = 38.0
LEAST_SETS, MOST_SETS = 256, 2**16
MOST_MEMBERS = 2**23


@dataclass(frozen=True, eq=False)
class Direction:
    """The unit vector d = A w / |A w| and its overlaps a_j with the columns."""

    weights: FloatArray
    length: float
    overlaps: FloatArray
    threshold: float
    """Approximately where along d the ratio reaches its level."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """How outputs are drawn: from the component `choices[k]` with probability `shares[k]`.

    A choice is kappa: around kappa times a set's shift.  With a chain (remove) it is a probability
    of participation.  In both cases 0 is Q's own law.
    """

    choices: FloatArray
    shares: FloatArray


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that a batch needs except its index."""

    mechanism: Mechanism
    remove: bool
    epsilons: FloatArray
    direction: Direction
    proposal: Proposal
    listed: SetList | None
    """All sets, if they can be listed."""
    chain: Chain | None
    """The exact ratio by a transfer matrix, if there is one."""
    count: int
    """Sets in each list, if they are drawn."""
    tilts: tuple[float, ...]
    points: int
    """Outputs in a batch."""
    seed: int
    stage: int
    """Distinguishes stages, whose batches are independent."""

    @property
    def unbiased(self) -> bool:
        """Whether the likelihood ratio is exact."""
        return self.listed is not None or self.chain is not None

    @property
    def words(self) -> str:
        """How the likelihood ratio is computed."""
        if self.listed is not None:
            return f"exact likelihood ratio, all {len(self.listed)} participation sets"
        if self.chain is not None:
            return f"exact likelihood ratio, transfer matrix with {len(self.chain.idle)} states"
        return f"sampled participation sets, two lists of {self.count} a batch"

    def at_most(self, count: int) -> int:
        """So many sets, but no more than are allowed."""
        sizes = [self.mechanism.columns * p for p in self.tilts]
        size = sum(sizes) / len(sizes) if sizes else self.mechanism.columns**0.5
        return min(count, MOST_SETS, max(int(MOST_MEMBERS / (1 + size)), LEAST_SETS))

    def run(self, index: int) -> Batch:
        """One batch, by its index."""
        return run_batch(self, index)


@dataclass(frozen=True, eq=False)
class Batch:
    """Results of one batch: above (2) and below (2) for each output and epsilon, and densities."""

    values: FloatArray
    densities: FloatArray


@dataclass(frozen=True, eq=False)
class Prepared:
    """A list of sets seen along the direction."""

    sets: SetList
    split: int
    slopes: FloatArray
    rests: FloatArray
    classes: IntArray
    residuals: FloatArray
    centres: FloatArray
    drawn: FloatArray
    """Logarithms of the probabilities of the sets when z is drawn."""


def prepare(sets: SetList, split: int, direction: Direction) -> Prepared:
    """Split each shift into a part along d and the rest; sort sets into classes of equal slope."""
    slopes = sets.sums(direction.overlaps)
    bins = np.floor(slopes / (2 * kernels.HALF_CLASS)).astype(np.int64)
    _, classes = np.unique(bins, return_inverse=True)
    counts = np.bincount(classes)
    centres = np.bincount(classes, slopes) / counts
    residuals = slopes - centres[classes]
    residuals[np.abs(residuals) < 1e-11 * (1 + slopes)] = 0.0
    tilted = sets.logs + direction.threshold * slopes - slopes**2 / 2
    likely = np.logaddexp(tilted - kernels.log_sum(tilted), sets.logs - kernels.log_sum(sets.logs))
    return Prepared(
        sets=sets,
        split=split,
        slopes=slopes,
        rests=np.maximum(sets.squares - slopes**2, 0.0),
        classes=classes.astype(np.int64),
        residuals=residuals,
        centres=centres,
        drawn=likely - math.log(2),
    )


def run_batch(plan: Plan, index: int) -> Batch:
    """Fresh sets, fresh outputs, all from the seed and the batch's index."""
    rng = np.random.default_rng(np.random.SeedSequence(plan.seed, spawn_key=(plan.stage, index)))
    if plan.chain is not None and plan.remove:
        return _chain_batch(plan, plan.chain, rng)
    prepared = prepare(*_sets(plan, rng), plan.direction)
    shadows = _shadows(plan, prepared, rng)
    if plan.chain is None:
        return _slices(plan, prepared, shadows)
    direction = plan.direction
    values = plan.chain.integrals(shadows, direction.overlaps, direction.threshold, plan.epsilons)
    return Batch(np.repeat(values[:, :, None], 4, axis=2), np.zeros((len(shadows), 1)))


def _chain_batch(plan: Plan, chain: Chain, rng: np.random.Generator) -> Batch:
    """Remove, exact ratio: whole outputs y under other probabilities of participation."""
    mechanism, points = plan.mechanism, plan.points
    choices = plan.proposal.choices
    chosen = _systematic(plan.proposal.shares, points, rng)
    outputs = rng.standard_normal((points, mechanism.strategy.rows))
    for k in np.unique(chosen[choices[chosen] > 0]):
        here = np.flatnonzero(chosen == k)
        law = replace(chain.renewal, probability=float(choices[k]))
        members = draw_members(law, mechanism.columns, len(here), rng)
        outputs[here] += mechanism.encode(members)
    shadows = mechanism.adjoint(outputs)
    densities = chain.log_ratios(shadows, choices)
    weights = -np.logaddexp.reduce(densities + np.log(plan.proposal.shares), axis=1)
    ratios = chain.log_ratios(shadows, np.array([chain.renewal.probability]))
    gain = -np.expm1(np.minimum(plan.epsilons - ratios, 0.0))
    values = np.exp(weights[:, None] + ratios) * gain
    return Batch(np.repeat(values[:, :, None], 4, axis=2), densities)


def _sets(plan: Plan, rng: np.random.Generator) -> tuple[SetList, int]:
    if plan.listed is not None:
        return plan.listed, len(plan.listed)
    first = draw_sets(plan.mechanism, plan.count, plan.tilts, rng)
    if plan.chain is not None:
        return first, len(first)
    second = draw_sets(plan.mechanism, plan.count, plan.tilts, rng)
    return join(first, second), len(first)


def _shadows(plan: Plan, prepared: Prepared, rng: np.random.Generator) -> FloatArray:
    """<z, A_j> for every column j, one z a row."""
    mechanism, direction, points = plan.mechanism, plan.direction, plan.points
    kappas = plan.proposal.choices[_systematic(plan.proposal.shares, points, rng)]
    chosen = rng.permutation(_systematic(np.exp(prepared.drawn), points, rng))
    outputs = rng.standard_normal((points, mechanism.strategy.rows))
    moved = np.flatnonzero(kappas)
    if moved.size:
        members = prepared.sets.members(chosen[moved], mechanism.columns)
        outputs[moved] += mechanism.encode(kappas[moved, None] * members)
    shadows = mechanism.adjoint(outputs)
    along = shadows @ direction.weights / direction.length
    return np.asarray(shadows - along[:, None] * direction.overlaps)


def _systematic(shares: FloatArray, points: int, rng: np.random.Generator) -> IntArray:
    """Indices, each chosen points * share times up to rounding."""
    sums = np.cumsum(shares)
    places = (np.arange(points) + rng.random()) / points * sums[-1]
    found = np.searchsorted(sums, places, side="right")
    return np.asarray(np.minimum(found, len(shares) - 1), np.int64)


def _slices(plan: Plan, prepared: Prepared, shadows: FloatArray) -> Batch:
    left, right = limits(plan.remove, float(prepared.slopes.max()))
    values, densities = kernels.slices(
        shadows,
        prepared.sets.columns,
        prepared.sets.edges,
        prepared.sets.logs,
        prepared.rests,
        prepared.classes,
        prepared.residuals,
        prepared.centres,
        prepared.split,
        prepared.drawn,
        plan.proposal.choices,
        plan.proposal.shares,
        plan.epsilons,
        plan.remove,
        left,
        right,
        plan.direction.threshold,
    )
    return Batch(values, densities)


def limits(remove: bool, steepest: float) -> tuple[float, float]:
    """The range in which the threshold along d is searched for."""
    return (-LOWEST, steepest + FARTHEST) if remove else (-FARTHEST, steepest + LOWEST)
