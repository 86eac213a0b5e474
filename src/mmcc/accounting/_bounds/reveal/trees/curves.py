"""Certified curves of a tree strategy: counts revealed from the roots down.

In: a tree, independent rounds, sigma.  Out: `Answer`, both adjacencies.
Rounding: results are upper bounds; infinite (1 for delta) where nothing could be certified.

After the evidence was used the adversary is told how many participations there are in each tree,
then in each half, and so on: the truth under P, a draw from the posterior given the node's own Haar
coefficient under Q.  The likelihood ratio is then a product of scalar mixtures, its moments follow
a recursion over heights (`moments`), and delta comes from a Mellin inversion (`inversion`).
Proofs: docs/theory-reveal.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mmcc.accounting._bounds.base import Answer
from mmcc.accounting._bounds.reveal.inversion import UP, Inversion, Line, Moments, line_for
from mmcc.accounting._bounds.reveal.trees.cuts import Cuts, cuts_for
from mmcc.accounting._bounds.reveal.trees.forest import Forest, forest_of
from mmcc.accounting._bounds.reveal.trees.moments import moments
from mmcc.accounting._bounds.reveal.trees.orders import Saddle, saddle
from mmcc.accounting._gaussian import bound_gaussian_delta, bound_gaussian_epsilon
from mmcc.accounting._parallel import Progress, one_thread
from mmcc.sampling import Rounds
from mmcc.strategies._tree import Tree

EXIT_SHARE = 0.004
"""The share of delta for counts that are not followed."""
BLUR = 5e-5
"""What smoothing may cost in epsilon, relative to the larger of epsilon and a deviation."""
DROP = 9.0
"""The integrand is followed until its smoothing factor has fallen by e^-DROP."""
MAX_NODES = 3000
MAX_ANGLE = 2000.0
"""Of the factors' phases: lattices are fine where phases turn fast."""
HOPELESS = 1e6
FIRST_GUESS, SMALLEST_GUESS, LARGEST_GUESS = 1e-5, 1e-60, 0.5
TURNS = 6
MAX_TURN = 25.0
"""Largest shift of a root's output, in deviations, that is followed: beyond, epsilon is > 100."""
ADJACENCIES = ("remove", "add")


def bound_epsilon(
    tree: Tree, rounds: Rounds, sigma: float, delta: float, progress: Progress | None = None
) -> Answer:
    """Certified epsilons at delta; infinite where nothing is certified."""
    if rounds.probability == 1:
        exact = bound_gaussian_epsilon(_ratio(tree, rounds, sigma), delta)
        return Answer(exact, exact, notes={"every step is taken part in": "Gaussian mechanism"})
    forest = forest_of(tree, rounds, sigma)
    found = {"remove": math.inf, "add": math.inf}
    notes: dict[str, Any] = {}
    for count, adjacency in enumerate(ADJACENCIES):
        if progress is not None:
            progress(f"reveal, {adjacency}", count)
        curve = curve_for(forest, adjacency, delta)
        if curve is not None:
            found[adjacency], notes[adjacency] = curve.epsilon(delta), curve.notes()
    found["add"] = min(found["add"], forest.idle)
    return Answer(found["remove"], found["add"], notes=notes)


def bound_delta(
    tree: Tree, rounds: Rounds, sigma: float, epsilon: float, progress: Progress | None = None
) -> Answer:
    """Certified deltas at epsilon; 1 where nothing is certified.

    Order and cuts are chosen for a guess at delta, which is what the last choice gave.
    """
    if rounds.probability == 1:
        exact = bound_gaussian_delta(_ratio(tree, rounds, sigma), epsilon)
        return Answer(exact, exact, notes={"every step is taken part in": "Gaussian mechanism"})
    forest = forest_of(tree, rounds, sigma)
    found = {"remove": 1.0, "add": 1.0}
    notes: dict[str, Any] = {}
    for count, adjacency in enumerate(ADJACENCIES):
        if adjacency == "add" and epsilon >= forest.idle:
            found[adjacency] = 0.0
            continue
        guess = FIRST_GUESS
        for turn in range(TURNS):
            if progress is not None:
                progress(f"reveal, {adjacency}", count + turn / TURNS)
            curve = curve_for(forest, adjacency, guess)
            if curve is None:
                break
            value = curve.delta(epsilon)
            if value < found[adjacency]:
                found[adjacency], notes[adjacency] = value, curve.notes()
            wanted = min(max(curve.inversion.excess(epsilon), SMALLEST_GUESS), LARGEST_GUESS)
            if 0.5 < wanted / guess < 20:
                break
            guess = wanted
    return Answer(found["remove"], found["add"], notes=notes)


@dataclass(frozen=True, eq=False, slots=True)
class Curve:
    """A certified delta(epsilon) of one adjacency."""

    inversion: Inversion
    cuts: Cuts
    exits: float
    guess: float
    """Roughly the epsilon for which the choices were made."""

    def delta(self, epsilon: float) -> float:
        """What is followed and what is not."""
        return min((self.inversion.excess(epsilon) + self.exits) * UP, 1.0)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon found at which delta is certified, by bisection."""
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, max(self.guess, 1e-12)
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
        return {
            "order": self.inversion.line.order,
            "exits": self.exits,
            "counts": self.cuts.counts,
            "nodes": self.inversion.line.count,
        }


def curve_for(forest: Forest, adjacency: str, delta: float) -> Curve | None:
    """A curve that is good near this delta; None if nothing can be certified."""
    cuts = cuts_for(forest, EXIT_SHARE * delta)
    if cuts is None or _largest_shift(forest, cuts) > MAX_TURN:
        return None
    with one_thread():
        chosen = saddle(forest, cuts, adjacency, delta)
        return None if chosen is None else _curve(forest, cuts, adjacency, chosen)


def _curve(forest: Forest, cuts: Cuts, adjacency: str, chosen: Saddle) -> Curve | None:
    line = _line(forest, cuts, chosen)
    order = line.order
    real = order - 1 if adjacency == "remove" else -order
    found = moments(forest, cuts.counts, real, line.nodes().imag)
    if found is None:
        return None
    if adjacency == "add":  # the power is -z: conjugate, since the law is real
        found = Moments(found.values.conj(), found.log_scale, found.error)
    exits = cuts.exits if adjacency == "remove" else 0.0
    return Curve(Inversion(line, found), cuts, exits, chosen.epsilon)


def _largest_shift(forest: Forest, cuts: Cuts) -> float:
    """What the most participations that are followed add to the output of a root."""
    return max(cuts.counts[grove.height] * grove.amplitude for grove in forest.groves)


def _line(forest: Forest, cuts: Cuts, chosen: Saddle) -> Line:
    """Smoothing costs `blur` in epsilon, or more where it would take too many or too fine nodes."""
    blur = BLUR * max(chosen.epsilon, chosen.deviation)
    line = line_for(chosen.order, chosen.period, blur, DROP)
    angle = line.step * line.count * _largest_shift(forest, cuts)
    excess = max(line.count / MAX_NODES, angle / MAX_ANGLE, 1.0)
    return line_for(chosen.order, chosen.period, blur * excess**2, DROP)


def _ratio(tree: Tree, rounds: Rounds, sigma: float) -> float:
    return tree.sensitivity(rounds.separation) / sigma * UP
