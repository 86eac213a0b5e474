r"""Whether a scheme's draws can follow its `chances`: bets against the chances.

In: a mechanism, its chances.  Out: nothing, or a refusal.  Rounding: none; this guards against
mistakes in user-defined schemes, and proves nothing when it finds none.

Sets are drawn one after the other.  A bettor who believes that column l, whose chance given
the columns before it is p, has the odds r p / (1 - p) instead of p / (1 - p) wins the factor

    r / (1 - p + p r) if column l takes part,    1 / (1 - p + p r) if not,

whose mean is 1 if the chances are right.  r may depend on all that was seen before: it is the ratio
of drawn to expected participations in earlier sets, for similar columns.  So the wealth is a
martingale, and so is the shared wealth of several bettors who sort columns in different ways; by
Ville's inequality it ever reaches e^25 with probability at most e^-25.  Chances that are 5 % off
are detected after some 30,000 participations, and so are draws that depend on each other where the
chances do not, or columns that are preferred.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc._simulation.one_example import Mechanism
from mmcc.errors import SamplingError
from mmcc.sampling import Chances
from mmcc.sampling._registry import is_registered

SOME_SETS, MOST_SETS = 64, 4096
"""Sets drawn from a scheme of the library, and from others."""
MOST_MARKS = 2**20
WON = 25.0
"""Log of the wealth at which the chances are rejected: about one in 10^10."""
PARTS = 8
RECENT = 8
LARGEST_ODDS = 64.0


def check_chances(mechanism: Mechanism, chances: Chances) -> None:
    """Refuse chances under which sets that the scheme draws are impossible, or less frequent."""
    columns, number = mechanism.columns, SOME_SETS
    if not is_registered(mechanism.scheme):
        number = min(max(MOST_MARKS // columns, SOME_SETS), MOST_SETS)
    drawn = mechanism.draw(number, np.random.default_rng(0))
    marks = np.zeros((number, columns), np.int64)
    marks[drawn.owners(), drawn.steps] = 1
    if not chances.possible(marks).all():
        raise SamplingError(
            f"{mechanism.scheme!r} draws a set that is impossible according to its `chances`. Fix "
            "one of the two: they must have the same law."
        )
    told = told_chances(chances, marks)
    won = log_wealth(marks, told)
    if won > WON:
        raise SamplingError(
            f"{mechanism.scheme!r} does not draw what its `chances` say: {number} sets have "
            f"{marks.sum()} participations where about {told.sum():.6g} are expected, and bets "
            f"based on earlier sets win e^{won:.0f}. Fix one of the two: they must have the same "
            "law."
        )


def told_chances(chances: Chances, marks: IntArray) -> FloatArray:
    """The chance of each column, given the columns of its set before it."""
    found, states = np.empty(marks.shape), np.zeros(len(marks), np.int64)
    for column in range(marks.shape[1]):
        found[:, column] = chances.row(column)[states]
        states = chances.after[states, marks[:, column]]
    return found


def log_wealth(marks: IntArray, told: FloatArray) -> float:
    """The logarithm of the largest wealth reached by all bettors together."""
    logs = np.array([_log_wealth(marks, told, kinds) for kinds in _sorted(marks, told)])
    together = np.logaddexp.reduce(logs, axis=0) - math.log(len(logs))
    return float(together.max(initial=0.0))


def _sorted(marks: IntArray, told: FloatArray) -> Iterator[IntArray]:
    """Ways to sort columns into kinds, by what is known before each of them."""
    columns = marks.shape[1]
    place = np.arange(columns)
    yield np.zeros_like(marks)
    yield np.broadcast_to(place * PARTS // columns, marks.shape)
    yield np.broadcast_to(place, marks.shape)
    before = np.zeros((len(marks), columns + 1), np.int64)
    np.cumsum(marks, axis=1, out=before[:, 1:])
    for recent in (1, 2, RECENT, columns):
        taken = before[:, :-1] - before[:, np.maximum(place - recent, 0)]
        yield np.minimum(taken, 1)
    expected = np.cumsum(told, axis=1) - told
    yield (before[:, :-1] > expected).astype(np.int64)


def _log_wealth(marks: IntArray, told: FloatArray, kinds: IntArray) -> FloatArray:
    """Log wealth after each set of a bettor who corrects each kind's odds by earlier sets."""
    number, most = len(marks), int(kinds.max()) + 1
    cells = (np.arange(number)[:, None] * most + kinds).reshape(-1)
    seen, expected = (
        np.bincount(cells, values.reshape(-1), number * most).reshape(number, most)
        for values in (marks, told)
    )
    known = np.cumsum(seen, axis=0) - seen, np.cumsum(expected, axis=0) - expected
    odds = np.clip((1 + known[0]) / (1 + known[1]), 1 / LARGEST_ODDS, LARGEST_ODDS)
    odds = np.take_along_axis(odds, kinds, axis=1)
    gains = np.where(marks == 1, np.log(odds), 0.0) - np.log1p(told * (odds - 1))
    return np.asarray(np.cumsum(gains.sum(axis=1)))
