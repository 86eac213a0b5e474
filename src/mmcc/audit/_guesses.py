"""Which canaries are guessed: the highest scores as included, the lowest as left out.

In: scores, coins, how many guesses of each kind.  Out: how many are right; and, before a run, how
many guesses promise the largest bound.
The numbers of guesses must not depend on the coins or on the run: they are planned on a model of
the scores, from public facts.  Any model gives a valid audit, a better one a larger bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from mmcc._arrays import BoolArray, FloatArray
from mmcc.audit._one_run import lower_epsilon, stakes
from mmcc.errors import ParameterError, shown, whole

SHARES = 2.0 ** (-np.arange(15) / 2)
"""Fractions of half the canaries that are tried as numbers of guesses of one kind."""
ROOM = 1.25
"""A multiple of the number of guesses that, if all are right, shows more than what is claimed."""
PART = 1 / 3
"""A fraction of the canaries: if that multiple is larger, it is not required."""
MODEL = 4096
"""Scores of each kind in a model."""


@dataclass(frozen=True, slots=True)
class Guesses:
    """How many canaries are guessed to be included and how many to be left out."""

    included: int
    left_out: int

    @property
    def count(self) -> int:
        """The number of guesses of both kinds."""
        return self.included + self.left_out

    def stakes(self, canaries: int) -> float:
        """The factor of delta in the bounds."""
        return stakes(canaries, (self.included > 0) + (self.left_out > 0))

    def correct(
        self, scores: FloatArray, included: BoolArray, generator: np.random.Generator
    ) -> int:
        """How many guesses are right; equal scores come in random order.

        Their given order may reveal the coins: a file may list all included canaries first.
        """
        order = np.lexsort((generator.random(scores.size), scores))
        right = included[order[order.size - self.included :]].sum()
        return int(right) + int((~included[order[: self.left_out]]).sum())

    def lower_epsilon(self, correct: int, canaries: int, delta: float, error: float) -> float:
        """The lower bound on epsilon that this many correct guesses prove."""
        return lower_epsilon(correct, self.count, self.stakes(canaries), delta, error)


def checked_guesses(guesses: object, canaries: int) -> Guesses:
    """Two whole numbers, that together are at most the number of canaries."""
    numbers = tuple(guesses) if isinstance(guesses, Iterable) else ()
    if len(numbers) != 2:
        raise ParameterError(
            "guesses must be two whole numbers, of canaries guessed to be included and to be left "
            f"out, got {shown(guesses)}."
        )
    included = whole("guesses of included canaries", numbers[0], 0, canaries)
    left_out = whole("guesses of canaries left out", numbers[1], 0, canaries - included)
    if included + left_out == 0:
        raise ParameterError("guesses must not both be 0: nothing could be shown.")
    return Guesses(included, left_out)


def gaussian_model(mu: float) -> tuple[FloatArray, FloatArray]:
    """Scores of included canaries, N(mu, 1), and of others, N(0, 1), as if drawn evenly."""
    quantiles = ndtri((np.arange(MODEL) + 0.5) / MODEL)
    return quantiles + mu, quantiles


def planned_guesses(
    model: tuple[FloatArray, FloatArray], canaries: int, delta: float, error: float, claimed: float
) -> Guesses:
    """The numbers whose bound would be largest if the scores were as in the model.

    There are enough guesses to show more than the claimed epsilon, if a third of the canaries
    suffices for that: an audit that finds nothing should have been able to find something.
    """
    each = np.unique(np.maximum(np.round(canaries / 2 * SHARES), 1).astype(int))
    hits = [
        _share_of_right(model[0], model[1], each, canaries),
        _share_of_right(-model[1], -model[0], each, canaries),
    ]
    least = _least(canaries, delta, error, claimed)
    tried = []
    for first, right_first in zip([0, *each], [0.0, *each * hits[0]], strict=True):
        for second, right_second in zip([0, *each], [0.0, *each * hits[1]], strict=True):
            guesses = Guesses(int(first), int(second))
            if least <= guesses.count <= canaries:
                correct = math.floor(right_first + right_second)
                shown = guesses.lower_epsilon(correct, canaries, delta, error)
                tried.append((shown, guesses.count, guesses))
    return max(tried, key=lambda entry: entry[:2])[2]


def _share_of_right(
    higher: FloatArray, lower: FloatArray, each: FloatArray, canaries: int
) -> FloatArray:
    """For each number of guesses from the top, how many of them are of the higher kind."""
    both = np.concatenate([higher, lower])
    is_higher = np.arange(both.size) < higher.size
    sums = np.cumsum(is_higher[np.argsort(-both, kind="stable")])
    places = np.maximum(np.round(each * (both.size / canaries)).astype(int), 1)
    return np.asarray(sums[places - 1] / places)


def _least(canaries: int, delta: float, error: float, claimed: float) -> int:
    """Guesses that, if all are right, show more than the claim, with some margin; or one."""
    wanted = 1
    while ROOM * wanted <= PART * canaries:
        if lower_epsilon(wanted, wanted, stakes(canaries, 2), delta, error) > claimed:
            return math.ceil(ROOM * wanted)
        wanted = math.ceil(1.1 * wanted)
    return 1
