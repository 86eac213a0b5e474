r"""Composed losses in a window, and the answers that are read off them.

In: the output of `compose`.  Out: epsilon(delta), delta(epsilon).
Rounding: upper bounds; `lower_delta` is a lower bound.

With l the losses, m~ their tilted masses, lam the tilt and K the cumulant there,

    delta(eps) = sum_l m~(l) e^(K - lam l) (1 - e^(eps - l))_+
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import PrecisionError

EPS = 2.0**-53
WINDOW_TAIL = 1e-12
"""Largest fraction of the tilted law that may lie above the window."""
FARTHEST = 300.0
"""If K - lam eps is larger than this, the tilt gives no useful answer."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: epsilon at a delta, or delta at an epsilon."""

    epsilon: float | None = None
    delta: float | None = None
    floor: float = 0.0
    """An epsilon below this need not be exact, because the caller takes the maximum with it."""


@dataclass(frozen=True, eq=False, slots=True)
class Composed:
    """The composed loss in a window, tilted; valid for every epsilon from `lowest` up."""

    losses: FloatArray
    tilted: FloatArray
    tilt: float
    cumulant: float
    infinite: float
    """Mass at infinity and above the window."""
    error: float
    """Bound on the 2-norm of the transforms' error in `tilted`."""
    relative: float
    """Bound on the relative error of tilting and of the cumulant."""
    below: float = 1.0
    """Bound on the mass below the window, which reappears in it."""

    @property
    def lowest(self) -> float:
        return float(self.losses[0])

    def answer(self, question: Question) -> float:
        """Upper bound on the number asked for; infinity if no epsilon in the window suffices."""
        if question.epsilon is not None:
            return self.delta(question.epsilon)
        assert question.delta is not None
        if self.lowest <= 0.0 and self.delta(0.0) <= question.delta:
            return 0.0
        return max(self.epsilon(question.delta), 0.0)

    def delta(self, epsilon: float) -> float:
        """Upper bound on delta at an epsilon in the window."""
        return self._upper(epsilon, whole=False)

    def chance(self, threshold: float) -> float:
        """Upper bound on the chance of a loss above a threshold in the window."""
        return self._upper(threshold, whole=True)

    def lower_delta(self, epsilon: float) -> float:
        """Lower bound on delta, if the parts' masses and losses were rounded down."""
        return self._lower(epsilon, whole=False)

    def lower_chance(self, threshold: float) -> float:
        """Lower bound on the chance of a loss above a threshold, if masses were rounded down."""
        return self._lower(threshold, whole=True)

    def _upper(self, epsilon: float, whole: bool) -> float:
        if not epsilon >= self.lowest:
            raise PrecisionError(f"epsilon {epsilon:g} lies below the composed window.")
        if self.cumulant - self.tilt * epsilon > FARTHEST:
            return 1.0
        total, slack, rounding = self._above(epsilon, whole)
        if math.isnan(total):
            return 1.0
        return min((max(total, 0.0) + slack) * (1 + 2 * rounding) + self.infinite, 1.0)

    def _lower(self, epsilon: float, whole: bool) -> float:
        """Lower bound on delta, or on the whole mass of the losses above epsilon.

        Three things are subtracted: rounding; mass from below the window, which counts e^(-tilt W)
        times its size; and mass from above, at most WINDOW_TAIL of the tilted law, as if it lay at
        epsilon.
        """
        if epsilon >= self.losses[-1] or self.cumulant - self.tilt * epsilon > FARTHEST:
            return 0.0
        total, slack, rounding = self._above(epsilon, whole)
        window = float(self.losses[-1] - self.losses[0])
        wrapped = self.below * math.exp(-self.tilt * window)
        wrapped += 2 * WINDOW_TAIL * math.exp(self.cumulant - self.tilt * epsilon)
        return (total - slack) * (1 - 2 * rounding) - wrapped - slack * rounding

    def _above(self, epsilon: float, whole: bool = False) -> tuple[float, float, float]:
        """The sum over the losses above epsilon, its error from the transforms, and from rounding.

        With `whole` it is the sum of their masses, not of what they add to delta.
        """
        start = int(np.searchsorted(self.losses, epsilon, side="right"))
        losses = self.losses[start:]
        weights = np.exp(self.cumulant - self.tilt * losses)
        if not whole:
            weights *= -np.expm1(epsilon - losses)
        total = float(np.dot(self.tilted[start:], weights))
        slack = self.error * float(np.linalg.norm(weights))
        return total, slack, self._rounding(4 * losses.size)

    def _rounding(self, operations: int) -> float:
        """Relative error of a sum with `operations` roundings, including those of tilting."""
        return self.relative + (operations + 16 * (1 + abs(self.cumulant))) * EPS

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        r"""Upper bounds on delta at many increasing epsilons, in one pass; 1 below the window.

        With W_i = sum_(l > e_i) m(l) e^(e_i - l), g = e_(i+1) - e_i, all terms positive:
        d_i = d_(i+1) + (1 - e^-g) W_(i+1) + sum_(e_i < l <= e_(i+1)) m(l) (1 - e^(e_i - l)).
        """
        deltas = np.ones(epsilons.size)
        usable = self.cumulant - self.tilt * epsilons <= FARTHEST
        usable &= epsilons >= self.lowest
        if not usable.any():
            return deltas
        at = epsilons[usable]
        start = int(np.searchsorted(self.losses, at[0], side="right"))
        losses = self.losses[start:]
        weights = np.exp(self.cumulant - self.tilt * losses)
        masses = np.maximum(self.tilted[start:], 0.0) * weights
        edges = np.append(np.searchsorted(losses, at, side="right"), losses.size)
        owner = np.repeat(np.arange(at.size), np.diff(edges))
        gaps = at[owner] - losses
        near = np.bincount(owner, masses * -np.expm1(gaps), at.size)
        carried = np.bincount(owner, masses * np.exp(gaps), at.size)
        squares = np.bincount(owner, weights**2, at.size)
        for i in range(at.size - 2, -1, -1):
            gap = at[i] - at[i + 1]
            near[i] += near[i + 1] - math.expm1(gap) * carried[i + 1]
            carried[i] += math.exp(gap) * carried[i + 1]
            squares[i] += squares[i + 1]
        slack = self.error * np.sqrt(squares)
        # As for one epsilon, plus three roundings per step of the recursion.
        rounding = self._rounding(4 * losses.size + 8 * at.size)
        deltas[usable] = (near + slack) * (1 + 2 * rounding) + self.infinite
        return np.asarray(np.minimum(deltas, 1.0))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon in the window with delta(epsilon) <= delta, infinity if none."""
        if self.delta(float(self.losses[-1])) > delta:
            return math.inf
        place = self._guess(delta)
        low, high = -1, self.losses.size - 1
        for step in (2**k for k in range(self.losses.size.bit_length() + 1)):
            if self.delta(float(self.losses[place])) <= delta:
                high, place = place, max(place - step, 0)
            else:
                low, place = place, min(place + step, high)
            if not low < place < high:
                break
        while high - low > 1 and high > 0:
            middle = (low + high) // 2
            if self.delta(float(self.losses[middle])) <= delta:
                high = middle
            else:
                low = middle
        if high == 0:
            return self.lowest
        return self._between(low, high, delta)

    def slope(self, epsilon: float) -> float:
        """Roughly how fast log delta falls at an epsilon in the window, for choosing a grid."""
        here = self.delta(epsilon)
        step = float(self.losses[1] - self.losses[0]) / 16
        there = self.delta(epsilon + step)
        if not 0 < there < here:
            return self.tilt
        return math.log(here / there) / step

    def _guess(self, delta: float) -> int:
        """The index at which delta(epsilon) is roughly delta, from suffix sums."""
        exponents = np.minimum(self.cumulant - self.tilt * self.losses, FARTHEST)
        masses = np.maximum(self.tilted, 0.0) * np.exp(exponents)
        tails = np.cumsum(masses[::-1])[::-1]
        spacing = float(self.losses[1] - self.losses[0])
        fall = np.exp(-np.minimum(np.arange(self.losses.size) * spacing, 600.0))
        weighted = np.cumsum((masses * fall)[::-1])[::-1] / fall
        over = np.flatnonzero(tails - weighted > delta)
        return min(int(over[-1]) + 1 if over.size else 0, self.losses.size - 2)

    def _between(self, low: int, high: int, delta: float) -> float:
        """The epsilon between two grid points, where delta is linear in e^epsilon."""
        left, right = float(self.losses[low]), float(self.losses[high])
        over, under = self.delta(left), self.delta(right)
        share = (over - delta) / (over - under) if over > under else 1.0
        found = left + math.log1p(min(share + 1e-9, 1.0) * math.expm1(right - left))
        return found if self.delta(found) <= delta else right
