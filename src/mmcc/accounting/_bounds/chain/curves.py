"""Certified curves of a Toeplitz strategy that a chain dominates.

In: strategy, independent rounds, sigma.  Out: `Answer`, both adjacencies.
Rounding: results are upper bounds; infinite where nothing could be certified.

The Gram matrix is dominated by that of a Markov chain plus white noise (`domination`), the
likelihood ratio by a product of one-step factors (`factors`), the chain by one on a lattice
(`lattice`); moments are powers of a transfer matrix (`operator`) and give delta by a Mellin
inversion (`inversion`).  The cost grows with the logarithm of the number of steps.  Proofs:
docs/theory-chain.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from mmcc.accounting._bounds.base import Answer
from mmcc.accounting._bounds.chain.domination import UP, Profile, profile_of
from mmcc.accounting._bounds.chain.lattice import FINE, Lattice, lattice_for
from mmcc.accounting._bounds.chain.operator import moments
from mmcc.accounting._bounds.chain.settings import HOPELESS, Setting, good_settings
from mmcc.accounting._bounds.reveal.inversion import Inversion, line_for
from mmcc.accounting._gaussian import bound_gaussian_delta, bound_gaussian_epsilon
from mmcc.accounting._parallel import Progress
from mmcc.sampling import Rounds
from mmcc.strategies._toeplitz import Toeplitz

MAX_DIAGONAL = 60.0
"""Squared column norm over sigma^2 above which no amplification is looked for."""
BLUR = 5e-4
"""What smoothing may cost in epsilon, relative to the larger of epsilon and a deviation."""
DROP = 9.0
"""The integrand is followed until its smoothing factor has fallen by e^-DROP."""
PERIODS = 6.0
"""Period of the Fourier sum in standard deviations of log X."""
LEFT = 7.0
MAX_NODES = 1500
SMALLEST_GUESS, LARGEST_GUESS = 1e-200, 0.5
TURNS = 8


def bound_epsilon(
    strategy: Toeplitz,
    rounds: Rounds,
    sigma: float,
    delta: float,
    progress: Progress | None = None,
) -> Answer:
    """Certified epsilons at delta; infinite where the chain certifies none."""
    if rounds.probability == 1:
        exact = bound_gaussian_epsilon(_ratio(strategy, rounds, sigma), delta)
        return Answer(exact, exact, notes={"every step is taken part in": "Gaussian mechanism"})
    profile = profile_of(strategy, rounds, sigma)
    found = {"remove": math.inf, "add": math.inf}
    notes: dict[str, Any] = {"remove": {}, "add": {}}
    for count, adjacency in enumerate(found):
        if progress is not None:
            progress(f"chain, {adjacency}", count)
        for curve in _curves(profile, rounds.probability, adjacency, delta):
            value = curve.epsilon(delta)
            if value < found[adjacency]:
                found[adjacency], notes[adjacency] = value, curve.notes()
    return Answer(found["remove"], found["add"], notes=notes)


def bound_delta(
    strategy: Toeplitz,
    rounds: Rounds,
    sigma: float,
    epsilon: float,
    progress: Progress | None = None,
) -> Answer:
    """Certified deltas at epsilon; 1 where the chain certifies nothing.

    The setting is chosen for a guess at delta, which is what the last setting gave.
    """
    if rounds.probability == 1:
        exact = bound_gaussian_delta(_ratio(strategy, rounds, sigma), epsilon)
        return Answer(exact, exact, notes={"every step is taken part in": "Gaussian mechanism"})
    profile = profile_of(strategy, rounds, sigma)
    found = {"remove": 1.0, "add": 1.0}
    notes: dict[str, Any] = {"remove": {}, "add": {}}
    for count, adjacency in enumerate(found):
        guess = 1e-5
        for turn in range(TURNS):
            if progress is not None:
                progress(f"chain, {adjacency}", count + turn / TURNS)
            wanted = 1.0
            for curve in _curves(profile, rounds.probability, adjacency, guess):
                value = curve.delta(epsilon)
                wanted = min(wanted, curve.inversion.excess(epsilon))
                if value < found[adjacency]:
                    found[adjacency], notes[adjacency] = value, curve.notes()
            wanted = min(max(wanted, SMALLEST_GUESS), LARGEST_GUESS)
            if abs(math.log(wanted / guess)) < 0.2:
                break
            guess = wanted
    return Answer(found["remove"], found["add"], notes=notes)


class Curve:
    """A certified delta(epsilon) of one adjacency."""

    def __init__(self, setting: Setting, lattice: Lattice, inversion: Inversion) -> None:
        self.setting = setting
        self.lattice = lattice
        self.inversion = inversion

    def delta(self, epsilon: float) -> float:
        """(1 - kappa)^-n times (what the lattice holds and what leaves it)."""
        total = self.inversion.excess(epsilon) + self.lattice.exits
        return min(total * math.exp(self.lattice.inflation) * UP, 1.0)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon found at which delta is certified, by bisection."""
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, max(self.setting.epsilon, 1e-12)
        while not self.delta(high) <= delta:
            low, high = high, 2 * high
            if high > HOPELESS:
                return math.inf
        while high - low > 1e-9 * high:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high

    def notes(self) -> dict[str, Any]:
        """The choices behind the number."""
        chain, tangent = self.setting.chain, self.setting.tangent
        return {
            "rho": chain.decay,
            "s": chain.share,
            "block": chain.block,
            "cap": tangent.cap,
            "q": (float(tangent.q.min()), float(tangent.q.max())),
            "order": self.inversion.line.order,
            "exits": self.lattice.exits,
            "states": self.lattice.states.size,
            "nodes": self.inversion.line.count,
        }


def _curves(profile: Profile, probability: float, adjacency: str, delta: float) -> Iterator[Curve]:
    """Curves that are good near this delta; none if nothing can be certified."""
    if not profile.diagonal <= MAX_DIAGONAL:
        return
    for setting in good_settings(profile, probability, adjacency, delta):
        if setting.epsilon < HOPELESS:
            lattice = lattice_for(setting.chain, adjacency, setting.exit_share * delta, FINE)
            curve = None if lattice is None else _curve(setting, lattice, delta)
            if curve is not None:
                yield curve


def _curve(setting: Setting, lattice: Lattice, delta: float) -> Curve | None:
    """The curve of one setting; None if its moments leave the range of floats."""
    order, deviation = _saddle(setting, lattice, delta)
    blur = BLUR * max(setting.epsilon, deviation)
    # Aliases from the left weigh e^{-(order-1) period} at most, which must be small next to delta.
    period = max(PERIODS * deviation, (math.log(1 / delta) + LEFT) / (order - 1))
    line = line_for(order, period, blur, DROP)
    if line.count > MAX_NODES:
        line = line_for(order, period, blur * (line.count / MAX_NODES) ** 2, DROP)
    powers = line.nodes() if setting.adjacency == "remove" else 1 - line.nodes()
    found = moments(lattice, setting.factors(lattice), setting.chain, powers)
    return None if found is None else Curve(setting, lattice, Inversion(line, found))


def _saddle(setting: Setting, lattice: Lattice, delta: float) -> tuple[float, float]:
    """An order for the inversion and the deviation of log X there, from second differences.

    Just below the order at which moments explode the deviation is huge; a smaller order is better.
    """
    factors = setting.factors(lattice)
    order, deviation = setting.order, 1.0
    for _ in range(12):
        step = 0.05 * (order - 1)
        low, middle, high = (
            setting.log_moment(lattice, factors, order + shift) for shift in (-step, 0.0, step)
        )
        variance = (low - 2 * middle + high) / step**2
        if variance > 0 and math.sqrt(variance) * (order - 1) < 2 * math.sqrt(-math.log(delta)) + 4:
            return order, math.sqrt(variance)
        deviation = math.log(1 / delta) / (order - 1)
        order = 1 + 0.85 * (order - 1)
    return order, deviation


def _ratio(strategy: Toeplitz, rounds: Rounds, sigma: float) -> float:
    return strategy.sensitivity(rounds.separation) / sigma * UP
