"""Lists of participation sets with weights: all of them, or drawn ones.

In: a mechanism.  Out: a `SetList` whose weights are those of P: exactly, or on average over draws.
The empty set is listed with its own probability, never drawn.  Under Poisson-like schemes sets may
be drawn with larger probabilities (`tilts`) and weighted accordingly: then large sets, which are
rare but matter at small sigma, are represented.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._simulation import set_mixtures as kernels
from mmcc._simulation.one_example import Mechanism
from mmcc.sampling import Participations, Renewal

ALL_COLUMNS = 12
"""Up to this many columns, all sets of a Poisson scheme are listed."""


@dataclass(frozen=True, eq=False, slots=True)
class SetList:
    """Sets of columns with the logarithms of their weights and |A_S|^2."""

    columns: IntArray
    edges: IntArray
    logs: FloatArray
    squares: FloatArray

    def __len__(self) -> int:
        return len(self.logs)

    def sums(self, values: FloatArray) -> FloatArray:
        """The sum of the values over the members of each set."""
        return kernels.member_sums(values, self.columns, self.edges)

    def mean(self, weights: FloatArray, columns: int) -> FloatArray:
        """sum_S weights_S 1_S."""
        spread = np.repeat(weights, np.diff(self.edges))
        return np.bincount(self.columns, spread, columns).astype(np.float64)

    def members(self, chosen: IntArray, columns: int) -> FloatArray:
        """1_S for the chosen sets, one a row."""
        marks = np.zeros((len(chosen), columns))
        for row, i in enumerate(chosen):
            marks[row, self.columns[self.edges[i] : self.edges[i + 1]]] = 1.0
        return marks


def join(first: SetList, second: SetList) -> SetList:
    """One list after the other."""
    return SetList(
        np.concatenate([first.columns, second.columns]),
        np.concatenate([first.edges, first.edges[-1] + second.edges[1:]]),
        np.concatenate([first.logs, second.logs]),
        np.concatenate([first.squares, second.squares]),
    )


def all_sets(mechanism: Mechanism) -> SetList | None:
    """Every participation set with its probability, if they are few enough to be listed."""
    renewal, columns = mechanism.renewal, mechanism.columns
    if renewal is None:
        rows = mechanism.scheme.equally_likely(mechanism.strategy.steps)
        if rows is None:
            return None
        sets = Participations.from_rows((rows - mechanism.group) // mechanism.separation)
        return _listed(mechanism, sets, np.full(len(rows), -math.log(len(rows))))
    if renewal.probability == 1.0:
        return _listed(mechanism, *_certain(renewal, columns))
    if columns > ALL_COLUMNS:
        return None
    marks = np.arange(2**columns)[:, None] >> np.arange(columns) & 1
    near = np.zeros(len(marks), bool)
    for distance in range(1, min(renewal.gap, columns)):
        near |= (marks[:, distance:] & marks[:, :-distance]).any(axis=1)
    marks = marks[~near]
    edges = np.concatenate([[0], np.cumsum(marks.sum(axis=1))])
    sets = Participations(np.nonzero(marks)[1], edges)
    return _listed(mechanism, sets, _log_probabilities(renewal, columns, sets))


def draw_sets(
    mechanism: Mechanism, count: int, tilts: Sequence[float], rng: np.random.Generator
) -> SetList:
    """`count` sets, with weights that are right on average; and the empty set, if it can occur.

    `tilts` are probabilities of participation; each gives an equal share of the sets.
    """
    renewal, columns = mechanism.renewal, mechanism.columns
    if renewal is None:
        sets = mechanism.draw(count, rng)
        return _listed(mechanism, sets, np.full(count, -math.log(count)))
    laws = [replace(renewal, probability=tilt) for tilt in tilts]
    counts = [len(part) for part in np.array_split(np.arange(count), len(laws))]
    drawn = [_draw_some(law, columns, part, rng) for law, part in zip(laws, counts, strict=True)]
    sets = Participations(
        np.concatenate([part.steps for part in drawn]),
        np.concatenate([[0], *(part.sizes() for part in drawn)]).cumsum(),
    )
    proposals = [
        _log_probabilities(law, columns, sets) - _log_some(law, columns) + math.log(n)
        for law, n in zip(laws, counts, strict=True)
        if n
    ]
    logs = _log_probabilities(renewal, columns, sets)
    logs -= np.logaddexp.reduce(proposals, axis=0)
    idle = renewal.log_idle(columns)
    edges = np.append(sets.edges, sets.edges[-1])  # the empty set
    return _listed(mechanism, Participations(sets.steps, edges), np.append(logs, idle))


def _certain(law: Renewal, columns: int) -> tuple[Participations, FloatArray]:
    """The sets of a process that takes part whenever it may: one for each start."""
    starts = range(min(law.gap, columns) if law.stationary else 1)
    sets = [np.arange(start, columns, law.gap) for start in starts]
    logs = [math.log(law.rate) if law.stationary else 0.0] * len(sets)
    if law.stationary and law.gap > columns:
        sets, logs = [*sets, np.empty(0, np.int64)], [*logs, law.log_idle(columns)]
    edges = np.cumsum([0, *(one.size for one in sets)])
    return Participations(np.concatenate(sets), edges), np.array(logs)


def draw_members(
    renewal: Renewal, columns: int, count: int, rng: np.random.Generator
) -> FloatArray:
    """1_S, one per row, for drawn sets."""
    drawn = renewal.draw(columns, count, rng)
    marks = np.zeros((count, columns))
    marks[drawn.owners(), drawn.steps] = 1.0
    return marks


def _listed(mechanism: Mechanism, sets: Participations, logs: FloatArray) -> SetList:
    steps, edges = (np.ascontiguousarray(x, np.int64) for x in (sets.steps, sets.edges))
    sets = Participations(steps, edges)
    return SetList(steps, edges, logs, mechanism.squared_norms(sets))


def _draw_some(law: Renewal, columns: int, count: int, rng: np.random.Generator) -> Participations:
    """Non-empty sets: the first member, and after it a draw of the process itself."""
    idle = math.log1p(-law.probability)
    some = law.chance(columns)
    drawn = rng.random(count) * some
    if law.stationary:  # the first is uniform up to the gap, and geometric after it
        even = law.rate * law.gap
        late = np.maximum(drawn - even, 0.0) * law.probability / law.rate
        late = np.log1p(-late / (1 - law.probability)) / idle
        first = np.where(drawn < even, drawn / law.rate, law.gap + late)
    else:
        first = np.log1p(-drawn) / idle
    starts = np.minimum(first, columns - 1).astype(np.int64)
    later = replace(law, stationary=False).draw(columns, count, rng)
    owners = later.owners()
    places = later.steps + starts[owners] + law.gap
    inside = places < columns
    owners = np.concatenate([np.arange(count), owners[inside]])
    places = np.concatenate([starts, places[inside]])
    order = np.argsort(owners, kind="stable")
    edges = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))])
    return Participations(places[order], edges)


def _log_some(law: Renewal, columns: int) -> float:
    """Logarithm of the probability of taking part at all."""
    return math.log(law.chance(columns))


def _log_probabilities(law: Renewal, columns: int, sets: Participations) -> FloatArray:
    """From members taken and eligible steps not taken; a member blocks the steps after it."""
    sizes = sets.sizes()
    reach = np.minimum(law.gap - 1, columns - 1 - sets.steps)
    blocked = np.bincount(sets.owners(), reach, len(sets)).astype(np.float64)
    idle = columns - sizes - blocked
    logs = sizes * math.log(law.probability) + idle * math.log1p(-law.probability)
    if not law.stationary:
        return np.asarray(logs)
    # A set that starts at f does so with chance rate min(1, (1-p)^(f-gap+1)), not p (1-p)^f.
    some = sizes > 0
    first = sets.steps[sets.edges[:-1][some]]
    logs[some] += math.log(law.rate / law.probability)
    logs[some] -= np.minimum(first, law.gap - 1) * math.log1p(-law.probability)
    logs[~some] = law.log_idle(columns)
    return np.asarray(logs)


def with_larger_sets(renewal: Renewal, columns: int, size: float) -> list[float]:
    """Tilts under which sets of about `size` members are common; the law itself is always one."""
    probability, gap = renewal.probability, renewal.gap
    usual = columns * probability / (1 + (gap - 1) * probability)
    if size <= 1.5 * max(usual, 1.0):
        return [probability]
    # A renewal takes gap - 1 + 1/p steps.
    wanted = 1 / max(columns / size - (gap - 1), 1.5)
    middle = math.sqrt(wanted * max(probability, 1 / columns))
    return [probability, *(t for t in (middle, wanted) if t > probability)]
