"""One-buffer BLTs made for a target: decay and scale with the least certified error.

In: a scheme and (epsilon, delta).  Out: a BLT.  Nothing here is a certificate: the parameters come
from a short search, and whoever uses them calibrates the noise afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting import _questions as solve
from mmcc.accounting._parallel import Progress
from mmcc.errors import MmccError, whole
from mmcc.sampling import Scheme
from mmcc.sampling._scheme import MAX_STEPS
from mmcc.strategies import Blt, blt

EVALUATIONS = 24
BEYOND = 1e3
"""Larger than any logarithm of an error: where a point is out of range."""
NEAR = 0.1
"""A bound within this of the target (in log epsilon) tells sigma well enough by its slope."""
SLOPE = -1.2
"""Of log epsilon against log sigma, until two evaluations tell."""
NEAREST = 6
"""Points from which sigma at the next one is predicted."""


@dataclass(frozen=True)
class TunedBlt:
    """A one-buffer BLT whose decay and scale are searched for each scheme and target."""

    steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole("steps", self.steps, 1, MAX_STEPS))

    @property
    def correlated(self) -> bool:
        """True if the noise of different steps is correlated."""
        return self.steps > 1

    def tuned(
        self,
        scheme: Scheme,
        epsilon: float,
        delta: float,
        method: str = "tight",
        progress: Progress | None = None,
    ) -> Blt:
        """The BLT with the least error among those tried: a simplex search, deterministic."""
        from scipy import optimize

        start = _start(epsilon)
        search = _Search(
            self.steps, scheme, epsilon, delta, _bound(self.steps, scheme, method), progress
        )
        optimize.minimize(
            search.error,
            start[0],
            method="Nelder-Mead",
            options={
                "initial_simplex": start,
                "xatol": 0.05,
                "fatol": 5e-4,
                "maxfev": EVALUATIONS,
            },
        )
        if search.best is None:
            raise MmccError(f"no BLT was found that reaches epsilon = {epsilon:g} here.")
        decay, scale = search.best
        return one_buffer(self.steps, decay, scale)


def _bound(steps: int, scheme: Scheme, method: str) -> str:
    """The bound that steers: the one that is cheap and closest for a BLT."""
    if method != "tight":
        return method
    return "chain" if scheme.positions(steps) is None else "projection"


def _start(epsilon: float) -> FloatArray:
    """Three points around what 20 epochs want: longer memory, smaller scale as epsilon grows."""
    turn = min(max(math.log(epsilon), -2.0), 4.0)
    x, y = 2.0 + 0.58 * turn, -1.7 - 0.3 * turn
    return np.array([[x, y], [x + 0.35, y - 0.25], [x - 0.2, y - 0.35]])


def one_buffer(steps: int, decay: float, scale: float) -> Blt:
    """The BLT with these parameters."""
    made = blt(steps, decay=[decay], scale=[scale])
    assert isinstance(made, Blt)
    return made


class _Search:
    """The certified error of a BLT against its two parameters.

    Sigma is predicted by a plane through the points near by: one evaluation there, and the slope of
    log epsilon in log sigma tells the rest, which is enough for steering.
    """

    def __init__(
        self,
        steps: int,
        scheme: Scheme,
        epsilon: float,
        delta: float,
        bound: str,
        progress: Progress | None,
    ) -> None:
        self.steps, self.scheme, self.epsilon, self.delta = steps, scheme, epsilon, delta
        self.bound, self.progress = bound, progress
        self.seen: list[tuple[float, float, float]] = []  # the point and log sigma
        self.slope = SLOPE
        self.least = math.inf
        self.best: tuple[float, float] | None = None

    def error(self, point: FloatArray) -> float:
        """Logarithm of sigma times the RMSE at sigma = 1; huge outside the range."""
        from mmcc import utility

        x, y = (float(coordinate) for coordinate in point)
        decay = -math.expm1(-x)
        scale = math.exp(y)
        if not (1e-3 <= x <= 16 and y >= -12 and scale <= decay):
            return BEYOND
        decay, scale = float(f"{decay:.6g}"), float(f"{scale:.6g}")
        encoder = one_buffer(self.steps, decay, min(scale, decay))
        sigma = self._sigma(encoder, self._predicted(x, y))
        if sigma is None:
            return BEYOND
        self.seen.append((x, y, math.log(sigma)))
        found = math.log(sigma) + math.log(utility.rmse(encoder, 1.0))
        if found < self.least:
            self.least, self.best = found, (decay, min(scale, decay))
        return found

    def _predicted(self, x: float, y: float) -> float:
        """Sigma by a plane through the nearest points, or of the nearest one."""
        if not self.seen:
            return 1.5 / math.sqrt(max(self.epsilon, 0.1))
        near = np.array(
            sorted(self.seen, key=lambda s: (s[0] - x) ** 2 + (s[1] - y) ** 2)[:NEAREST]
        )
        if len(near) < 3:
            return math.exp(float(near[0, 2]))
        plane = np.column_stack([np.ones(len(near)), near[:, 0] - x, near[:, 1] - y])
        level = float(np.linalg.lstsq(plane, near[:, 2], rcond=1e-3)[0][0])
        low, high = float(near[:, 2].min()) - 0.3, float(near[:, 2].max()) + 0.3
        return math.exp(min(max(level, low), high))

    def _sigma(self, encoder: Blt, sigma: float) -> float | None:
        """About the noise that the bound needs; None where it proves nothing."""
        last: tuple[float, float] | None = None
        for _ in range(8):
            try:
                value = solve.epsilon(
                    encoder,
                    self.scheme,
                    sigma=sigma,
                    delta=self.delta,
                    method=self.bound,
                    progress=self.progress,
                ).epsilon
            except MmccError:  # too little noise for any proof
                sigma *= 2
                continue
            excess = math.log(max(value, 1e-12) / self.epsilon)
            if last is not None and abs(math.log(sigma) - last[0]) > 1e-3:
                slope = (excess - last[1]) / (math.log(sigma) - last[0])
                self.slope = min(max(slope, -6.0), -0.5)
            last = math.log(sigma), excess
            sigma *= math.exp(min(max(-excess / self.slope, -1.5), 1.5))
            if abs(excess) <= NEAR:
                return sigma
        return None
