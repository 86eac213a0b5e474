"""Certified epsilons and deltas of a Toeplitz strategy under random allocation.

In: strategy, the length of an epoch, sigma.  Out: `Answer`.
Rounding: results are upper bounds; infinite (delta: 1) where nothing could be certified.

The Gram matrix is dominated by a chain's, chosen as if participation were independent from step to
step; then one epoch at a time is revealed (`lattice`, `kernels`), moments come from Laplace
transforms (`moments`) and give delta by a Mellin inversion.  The cost grows with the length of an
epoch.  Proofs: docs/theory-allocation-chains.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from mmcc.accounting._bounds.reveal.chains.chain import Chain, binomial_prior
from mmcc.accounting._bounds.reveal.chains.curve import (
    DROP,
    EXIT_SHARE,
    LEFT,
    PERIODS,
    powers,
    renyi_epsilon,
)
from mmcc.accounting._bounds.reveal.chains.domination import Shape, spectrum_of
from mmcc.accounting._bounds.reveal.chains.upper import ChainProblem
from mmcc.accounting._bounds.reveal.epochs.lattice import epoch_lattice
from mmcc.accounting._bounds.reveal.epochs.moments import (
    TERMS,
    gap_for,
    moments,
    ray_for,
    taylor,
    transform,
    whole_moment,
)
from mmcc.accounting._bounds.reveal.inversion import Curve, Inversion, Line
from mmcc.accounting._parallel import Progress
from mmcc.sampling import Rounds
from mmcc.strategies._toeplitz import Toeplitz

LARGEST_EXCESS = 0.4
"""Largest excess of the order over one, because Laplace transforms lose digits at large orders."""
BLUR = 1e-3
"""What smoothing may cost in epsilon, relative to the larger of epsilon and a deviation."""
UNSEEN = 1e-3
"""The fraction of delta that the end of the line may cost."""
ALLOWED = 0.01
"""The fraction of delta that rounding may cost at the highest frequencies."""
ACCURACY, FINEST = 1e-4, 1e-13
"""The fraction of delta that each error of a moment may cost, and the finest accuracy used."""
MOST_WORK, MOST_ENTRIES = 4e11, 2e7
"""Most multiplications (a few minutes), and most numbers that are kept."""
LEAST_VARIANCE = 1e-10
MOST_NODES = 3000


@dataclass(frozen=True, eq=False, slots=True)
class EpochProblem(ChainProblem):
    """A chain problem with participation in one step of every `length`."""

    alike: ClassVar[float] = 2.0
    length: int = 1

    def _curves(self, shape: Shape, adjacency: str, delta: float) -> Iterator[Curve]:
        chain = self.spectrum.chain(shape, self.sigma, self.prior)
        fits = chain is not None and chain.block == 1 and self.in_range
        curve = epoch_curve(chain, self.length, adjacency, delta) if chain and fits else None
        if curve is not None:
            yield curve


def allocation_problem(
    strategy: Toeplitz, length: int, sigma: float, progress: Progress | None = None
) -> EpochProblem:
    """The problem of a mechanism in which each example takes part once in every epoch."""
    rounds = Rounds(1 / length, 1)
    prior = binomial_prior(1, rounds.probability)
    return EpochProblem(spectrum_of(strategy, rounds), prior, sigma, progress, length=length)


def epoch_curve(chain: Chain, length: int, adjacency: str, delta: float) -> Curve | None:
    """A curve that is tight near delta; None if it would take too long or errors dominate."""
    lattice = epoch_lattice(chain, length, adjacency, EXIT_SHARE * delta)
    if lattice is None:
        return None
    epochs = chain.steps // length
    series = taylor(lattice)
    logs = [whole_moment(lattice, series, epochs, k) for k in range(1, TERMS)]
    rough, best = min((renyi_epsilon(log, k, delta), k) for k, log in enumerate(logs, start=2))
    line = line_near(best, rough, logs[0], delta)
    zeta = -powers(adjacency, line.nodes())
    zeta = zeta.real + 1j * np.abs(zeta.imag)
    accuracy = max(ACCURACY * delta / epochs, FINEST)
    gap = gap_for(lattice, series, zeta, epochs, ALLOWED * delta)
    ray = ray_for(lattice, series, zeta, gap, accuracy)
    entries = ray.count * float(lattice.states.size) ** 2
    if entries > MOST_ENTRIES or entries * lattice.states.size * length > MOST_WORK:
        return None
    found = moments(transform(lattice, series, ray), epochs, zeta)
    if found is None:
        return None
    if adjacency == "remove":  # Lhat^{z-1} has the power -zeta, zeta = 1 - z
        found = replace(found, values=found.values.conj())
    notes = {
        "kappa": chain.shared,
        "rho": chain.decay,
        "omega": chain.white,
        "epochs": epochs,
        "order": line.order,
        "exits": lattice.exits,
        "states": lattice.states.size,
        "nodes": line.count,
        "rates": ray.count,
    }
    return Curve(Inversion(line, found), lattice.exits, lattice.inflation, rough, notes)


def line_near(best: float, rough: float, variance: float, delta: float) -> Line:
    """The line on which to take moments, for `best`, the best order, and `rough`, about epsilon.

    Smoothing costs as much as at the best order; the line ends where its end is negligible.
    """
    deviation, excess = (
        math.sqrt(max(variance, LEAST_VARIANCE)),
        min(0.3 * (best - 1), LARGEST_EXCESS),
    )
    smoothing = 2 * BLUR * max(rough, deviation) / best
    period = max(PERIODS * deviation, (math.log(1 / delta) + LEFT) / excess)
    step = 2 * math.pi / period
    smoothing = max(smoothing, 2 * DROP / (MOST_NODES * step) ** 2)  # else the line is too long
    size = excess * (0.5 * (1 + excess) * variance - rough)
    seen = math.log(UNSEEN * delta) - size
    last = 1 / math.sqrt(smoothing)
    while -0.5 * smoothing * last * last - math.log(math.pi * smoothing * last**3) > seen:
        last *= 1.02
    return Line(1 + excess, step, math.ceil(last / step) + 1, smoothing)
