"""Certified curves of a tree strategy.

In: a tree, independent rounds, sigma.  Out: `Answer`, both adjacencies.
Rounding: results are upper bounds; infinite (1 for delta) where nothing could be certified.

Once the evidence has been used, participation is revealed to the adversary: the truth under P, a
draw from a posterior under Q.  Two ways of revealing it are tried, and the smaller bound is used:

*Haar.*  The number of participations in each tree, then in each half, and so on, each count drawn
given the node's own Haar coefficient.  The likelihood ratio is a product of scalar mixtures, and
its moments follow a recursion over heights (`moments`).  Both adjacencies.
*Leaf order.*  Column after column, each drawn given its own product with the output, minus what was
already revealed (`leaf_order`, `leaf_moments`).  This is better if a tree has few participations.

Moments become delta by a Mellin inversion (`inversion`).  Proofs: docs/theory-reveal.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from mmcc.accounting._bounds.base import NOTHING_BESIDE, Answer
from mmcc.accounting._bounds.reveal.inversion import UP, Curve, Inversion, Line, Moments, line_for
from mmcc.accounting._bounds.reveal.trees.cuts import Cuts, cuts_for
from mmcc.accounting._bounds.reveal.trees.forest import Forest, forest_of
from mmcc.accounting._bounds.reveal.trees.leaf_moments import leaf_moments, rough_leaf_moment
from mmcc.accounting._bounds.reveal.trees.leaf_order import walks_for
from mmcc.accounting._bounds.reveal.trees.moments import moments, rough_moment
from mmcc.accounting._bounds.reveal.trees.orders import Saddle, saddle
from mmcc.accounting._gaussian import bound_gaussian_delta, bound_gaussian_epsilon
from mmcc.accounting._parallel import Progress, one_thread
from mmcc.sampling import Rounds
from mmcc.strategies._tree import Tree

EXIT_SHARE = 0.004
"""The fraction of delta spent on counts above the cuts, and likewise on walks that leave."""
BLUR = 5e-5
"""What smoothing may cost in epsilon, relative to the larger of epsilon and a deviation."""
DROP = 9.0
"""The integrand is evaluated until its smoothing factor has fallen by e^-DROP."""
MAX_NODES = 3000
MAX_ANGLE = 2000.0
"""The largest phase of the factors, because fast phases need fine lattices."""
MAX_TURN = 25.0
"""The largest shift of a root's output, in standard deviations; beyond it epsilon is > 100."""
MAX_LEAF_COUNT = 30
"""The largest count in leaf order, where each pair of counts has its own matrix."""
FIRST_GUESS, SMALLEST_GUESS, LARGEST_GUESS = 1e-5, 1e-60, 0.5
TURNS = 6
ADJACENCIES = ("remove", "add")


def bound_epsilon(
    tree: Tree,
    rounds: Rounds,
    sigma: float,
    delta: float,
    progress: Progress | None = None,
    known: Answer = NOTHING_BESIDE,
) -> Answer:
    """Certified epsilons at delta; infinite if nothing is certified.

    Given what is `known`, `add` is skipped if it cannot change the promise.
    """
    if rounds.probability == 1:
        exact = bound_gaussian_epsilon(_ratio(tree, rounds, sigma), delta)
        return Answer(exact, exact, notes={"participation is certain": "Gaussian mechanism"})
    forest = forest_of(tree, rounds, sigma)
    found = {"remove": math.inf, "add": forest.idle}
    notes: dict[str, Any] = {}
    for count, adjacency in enumerate(ADJACENCIES):
        if adjacency == "add" and known.add <= min(found["remove"], known.remove):
            continue
        if progress is not None:
            progress(f"reveal, {adjacency}", count)
        for curve in _curves(forest, adjacency, delta):
            value = curve.epsilon(delta)
            if value < found[adjacency]:
                found[adjacency], notes[adjacency] = value, curve.notes
            if value == 0:
                break
    return Answer(found["remove"], found["add"], notes=notes)


def bound_delta(
    tree: Tree, rounds: Rounds, sigma: float, epsilon: float, progress: Progress | None = None
) -> Answer:
    """Certified deltas at epsilon; 1 if nothing is certified.

    Order and cuts are chosen for a guess of delta, which is the result of the previous choice.
    """
    if rounds.probability == 1:
        exact = bound_gaussian_delta(_ratio(tree, rounds, sigma), epsilon)
        return Answer(exact, exact, notes={"participation is certain": "Gaussian mechanism"})
    forest = forest_of(tree, rounds, sigma)
    found = {"remove": 1.0, "add": 0.0 if epsilon >= forest.idle else 1.0}
    notes: dict[str, Any] = {}
    for count, adjacency in enumerate(ADJACENCIES):
        guess = FIRST_GUESS
        for turn in range(TURNS if found[adjacency] else 0):
            if progress is not None:
                progress(f"reveal, {adjacency}", count + turn / TURNS)
            wanted = 1.0
            for curve in _curves(forest, adjacency, guess):
                value = curve.delta(epsilon)
                wanted = min(wanted, curve.inversion.excess(epsilon))
                if value < found[adjacency]:
                    found[adjacency], notes[adjacency] = value, curve.notes
            wanted = min(max(wanted, SMALLEST_GUESS), LARGEST_GUESS)
            if 0.5 < wanted / guess < 20:
                break
            guess = wanted
    return Answer(found["remove"], found["add"], notes=notes)


def _curves(forest: Forest, adjacency: str, delta: float) -> Iterator[Curve]:
    """Curves that are tight near this delta; none if nothing can be certified."""
    with one_thread():
        for make in (haar_curve, leaf_curve):
            curve = make(forest, adjacency, delta)
            if curve is not None:
                yield curve


def haar_curve(forest: Forest, adjacency: str, delta: float) -> Curve | None:
    """The curve with counts revealed from the roots down; None if nothing can be certified."""
    cuts = cuts_for(forest, EXIT_SHARE * delta)
    if cuts is None or not _largest_shift(forest, cuts) <= MAX_TURN:
        return None

    def at(order: float) -> float:
        return rough_moment(forest, cuts.counts, _power(adjacency, order))

    chosen = saddle(at, delta)
    if chosen is None:
        return None
    line = _line(chosen, _largest_shift(forest, cuts))
    if line is None:
        return None
    found = moments(forest, cuts.counts, _power(adjacency, line.order), line.nodes().imag)
    if found is None:
        return None
    found = _at_z(adjacency, found)
    exits = cuts.exits if adjacency == "remove" else 0.0
    notes = {"order of revealing": "Haar", **_notes(line, cuts, exits)}
    return Curve(Inversion(line, found), exits, 0.0, chosen.epsilon, notes)


def leaf_curve(forest: Forest, adjacency: str, delta: float) -> Curve | None:
    """The curve with columns revealed in the order of the leaves; None if nothing is certified.

    Under `add` exits are counted by Q~, whose mass on a tree is at most e^idle_tree times that of
    P~.
    """
    growth = 1.0 if adjacency == "remove" else math.exp(min(forest.idle_tree, 700.0))
    cuts = cuts_for(forest, EXIT_SHARE * delta / growth)
    if cuts is None or max(cuts.counts) > MAX_LEAF_COUNT:
        return None
    walks = walks_for(forest, EXIT_SHARE * delta / growth)
    if walks is None:
        return None

    def at(order: float) -> float:
        return rough_leaf_moment(walks, cuts.counts, _power(adjacency, order))

    chosen = saddle(at, delta)
    if chosen is None:
        return None
    line = _line(chosen, 2 * max(math.sqrt(walk.own) for walk, _ in walks))
    if line is None:
        return None
    found = leaf_moments(walks, cuts.counts, _power(adjacency, line.order), line.nodes().imag)
    if found is None:
        return None
    found = _at_z(adjacency, found)
    inflation = math.fsum(count * walk.inflation for walk, count in walks)
    exits = cuts.exits + math.fsum(count * walk.exits for walk, count in walks)
    exits *= growth * math.exp(inflation) * UP  # on the grid
    notes = {"order of revealing": "leaves", **_notes(line, cuts, exits)}
    return Curve(Inversion(line, found), exits, inflation, chosen.epsilon, notes)


def _power(adjacency: str, order: float) -> float:
    """The power of Lhat, under P~, whose mean is E[X^order]: X is Lhat under Q~, or 1/Lhat."""
    return order - 1 if adjacency == "remove" else -order


def _at_z(adjacency: str, found: Moments) -> Moments:
    """Moments at z from those at the power plus i om: for `add` the power is -z."""
    if adjacency == "remove":
        return found
    return Moments(found.values.conj(), found.log_scale, found.error)


def _notes(line: Line, cuts: Cuts, exits: float) -> dict[str, Any]:
    """The settings behind the number."""
    return {"order": line.order, "exits": exits, "counts": list(cuts.counts), "nodes": line.count}


def _largest_shift(forest: Forest, cuts: Cuts) -> float:
    """The largest shift of a root's output, by the most participations within the cuts."""
    return max(cuts.counts[grove.height] * grove.amplitude for grove in forest.groves)


def _line(chosen: Saddle, turn: float) -> Line | None:
    """A line whose smoothing costs `blur` in epsilon, or more if nodes would be too many or fine.

    None if it would cost so much that nothing is left.
    """
    blur = BLUR * max(chosen.epsilon, chosen.deviation)
    line = line_for(chosen.order, chosen.period, blur, DROP)
    angle = line.step * line.count * turn
    excess = max(line.count / MAX_NODES, angle / MAX_ANGLE, 1.0)
    blur *= excess**2
    return line_for(chosen.order, chosen.period, blur, DROP) if blur * chosen.order < 50 else None


def _ratio(tree: Tree, rounds: Rounds, sigma: float) -> float:
    return tree.sensitivity(rounds.separation) / sigma * UP
