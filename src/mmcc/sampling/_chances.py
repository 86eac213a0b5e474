r"""Who takes part, column by column: the law of one example's participations as an automaton.

In: what a scheme knows.  Out: the chance to take part in the next column given all columns before;
and the same law tilted, pi(s) exp(sum_l tau_l s_l) / E[exp(sum_l tau_l s_l)], by backward messages.
Rounding: plain floating point; chances of a tilted law have a relative error of about 1e-15 a
column.

A history enters through a state: a whole number that starts at 0, from which the chance of the next
column follows and which the next column changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmcc._arrays import BoolArray, FloatArray, IntArray, own_arrays
from mmcc.errors import SamplingError

MOST_ENTRIES = 2**22
"""Largest size of an automaton; schemes that would need a larger one offer none."""


@dataclass(frozen=True, eq=False, slots=True)
class Chances:
    """The chance to take part in each column (of one group), given the columns before it.

    In column l and state k it is `probability[min(l, rows - 1), k]`: a single row holds for every
    column, and the last row for all columns that have none.  The first state is 0; `after[k]` has
    the next state without a participation, and the next state with one.
    """

    probability: FloatArray
    after: IntArray

    def __post_init__(self) -> None:
        own_arrays(self, "probability")
        after = np.array(self.after, dtype=np.int64)
        after.setflags(write=False)
        object.__setattr__(self, "after", after)
        chances = self.probability
        if chances.ndim != 2 or not chances.size or after.shape != (chances.shape[1], 2):
            raise SamplingError(
                "chances need an array of probabilities, columns by states, and for each state the "
                f"two that may follow; got the shapes {chances.shape} and {after.shape}."
            )
        if not ((chances >= 0) & (chances <= 1)).all():
            raise SamplingError("chances must be probabilities, from 0 to 1.")
        if after.min() < 0 or after.max() >= len(after):
            raise SamplingError(
                f"states are numbered from 0 to {len(after) - 1}, but `after` names one "
                "outside that range."
            )

    @classmethod
    def constant(cls, probability: float) -> Chances:
        """Independent columns, all with the same chance."""
        return cls(np.array([[probability]]), np.zeros((1, 2), np.int64))

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self.after)

    def row(self, column: int) -> FloatArray:
        """The chance of a participation in this column, for each state."""
        return np.asarray(self.probability[min(column, len(self.probability) - 1)])

    def rates(self, columns: int) -> FloatArray:
        """The unconditional chance to take part in each column."""
        if self.states == 1:
            short = self.probability[:columns, 0]
            return np.concatenate([short, np.full(columns - short.size, self.probability[-1, 0])])
        found, law = np.empty(columns), np.zeros(self.states)
        law[0] = 1.0
        for column in range(columns):
            taking = law * self.row(column)
            found[column] = taking.sum()
            law = self._advance(law - taking, taking)
        return found

    def counts(self, columns: int, most: int) -> FloatArray:
        """Law of the number of participations in the first l columns, a row for l = 0, 1, ...

        Numbers of `most` >= 1 and more are counted as `most`.
        """
        found = np.zeros((columns + 1, most + 1))
        found[0, 0] = 1.0
        law = np.zeros((self.states, most + 1))
        law[0, 0] = 1.0
        for column in range(columns):
            taking = law * self.row(column)[:, None]
            idle = law - taking
            taking[:, most] += taking[:, most - 1]
            taking[:, 1:most] = taking[:, : most - 1]
            taking[:, 0] = 0.0
            law = np.zeros_like(law)
            np.add.at(law, self.after[:, 0], idle)
            np.add.at(law, self.after[:, 1], taking)
            found[column + 1] = law.sum(axis=0)
        return found

    def forecast(self, columns: int) -> FloatArray:
        """From each state, the chance to take part in each of the next `columns` columns.

        Defined for chances that are the same in every column, that is, for a single row.
        """
        assert len(self.probability) == 1
        found, ahead = np.empty((columns, self.states)), self.probability[0]
        stay = 1 - self.probability[0]
        for column in range(columns):
            found[column] = ahead
            ahead = stay * ahead[self.after[:, 0]] + self.probability[0] * ahead[self.after[:, 1]]
        return np.ascontiguousarray(found.T)

    def _advance(self, idle: FloatArray, taking: FloatArray) -> FloatArray:
        return np.asarray(
            np.bincount(self.after[:, 0], idle, self.states)
            + np.bincount(self.after[:, 1], taking, self.states)
        )

    def possible(self, marks: IntArray) -> BoolArray:
        """Whether each row of zeros and ones (one per column) has positive probability."""
        states, found = np.zeros(len(marks), np.int64), np.ones(len(marks), np.bool_)
        for column in range(marks.shape[1]):
            taking = marks[:, column]
            chance = self.row(column)[states]
            found &= np.where(taking == 1, chance > 0, chance < 1)
            states = self.after[states, taking]
        return found

    def tilted(self, weights: FloatArray) -> tuple[float, Chances]:
        """Log of E[e^(sum_l tau_l s_l)], and the law tilted by the `weights` tau of its columns.

        B_l(k) = E[e^(sum_(j >= l) tau_j s_j) | state k before column l] follows from the last
        column back, and the tilted chance is p e^(tau_l) B_(l+1)(after taking part) / B_l(k).
        """
        columns = len(weights)
        chances = np.empty((columns, self.states))
        ahead = np.zeros(self.states)
        with np.errstate(divide="ignore"):
            for column in reversed(range(columns)):
                chance = self.row(column)
                taking = np.log(chance) + weights[column] + ahead[self.after[:, 1]]
                idle = np.log1p(-chance) + ahead[self.after[:, 0]]
                ahead = np.logaddexp(idle, taking)
                chances[column] = np.exp(taking - ahead)
        return float(ahead[0]), Chances(np.minimum(chances, 1.0), self.after)
