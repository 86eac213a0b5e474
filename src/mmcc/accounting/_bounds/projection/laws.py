"""The line and the rest that belong to a law of the participation set."""

from __future__ import annotations

from collections.abc import Callable

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.projection.bins import BinsLine, BinsRest
from mmcc.accounting._bounds.projection.epochs import EpochLine, EpochRest
from mmcc.accounting._bounds.projection.line import AnyLine, Chance, Line
from mmcc.accounting._bounds.projection.rest import PoissonRest, Rest
from mmcc.sampling import Allocation
from mmcc.strategies._gram import DenseGram, Gram


def line_of(a: FloatArray, counts: FloatArray, p: Chance) -> AnyLine:
    """The mechanism along a direction with these overlaps."""
    if p is None:
        return BinsLine(a)
    if isinstance(p, Allocation):
        return EpochLine(a, a.size // p.epoch_steps, p.participations)
    return Line(a, counts, p)


def rest_of(
    gram: Gram,
    a: FloatArray,
    p: Chance,
    direction: FloatArray,
    nodes: Callable[[AnyLine], FloatArray],
) -> Rest:
    """Weights and moments orthogonal to the direction, at the nodes chosen for its line."""
    line = line_of(a, gram.counts, p)
    weights = line.weights(nodes(line))
    if isinstance(line, Line):
        return PoissonRest(gram, line, weights, direction)
    assert isinstance(gram, DenseGram)
    if isinstance(line, EpochLine):
        return EpochRest(gram, line, weights, direction)
    return BinsRest(gram, line, weights, direction)
