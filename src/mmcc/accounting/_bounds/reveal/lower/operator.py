r"""Transforms of the test under P and Q: E[e^{zT}] by a transfer operator on states and loads.

In: a `Walk`, for P its `Loads`, the test's numbers f, powers z.  Out: `Transform`, or upper bounds.
Rounding: errors are stated relative to the transform at the real part of z.

With x_k(v, b) the mean of e^{zT} over the k columns that are left,

    x_{k+1}(v, b) = D_z(v) (K x_k)(v, rho b) + D'_z(v) e^{-b} (K x_k)(v, rho (b + kappa)).

All weights are positive except for the phases of e^{zf}, so |x| <= g, where g is x at Re z, and a
relative error of e per step adds up to at most ((1 + e)^n - 1) g.
*Far from the end* only a factor changes: if |x_{k+1} - lam x_k| <= r g_k and g_{k+1} >= low g_k,
then |x_{k+j} - lam^j x_k| <= (r j/low) max(1, |lam|/low)^j g_{k+j}; so one factor stands for any
number of columns.  *Silent* powers, |x| <= s g with a small s, are left out at the price of s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcc._arrays import ComplexArray, FloatArray, IntArray
from mmcc.accounting._bounds.reveal.lower.lattice import Walk
from mmcc.accounting._bounds.reveal.lower.loads import Loads, Split

ROUND = 2.0**-52
LEAST, TINIEST = 1e-250, 1e-290
"""Scaled real transforms stay above these, so no underflow goes unnoticed."""
STILL = 2e-7
"""Error, relative to the real transform, at which a factor replaces the remaining columns."""
CHECK = 12
BATCH = 2**21
"""Most numbers in one array."""
LARGEST_ERROR = 0.1

Weights = npt.NDArray[Any]
"""An array of real or complex numbers."""


@dataclass(frozen=True, eq=False, slots=True)
class Transform:
    """E[e^{z_k T}] = e^log_real (values[k] up to errors[k]); z_0 is real and values[0] is 1."""

    values: ComplexArray
    log_real: float
    errors: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Steps:
    """One operator: a walk, its loads, and the masses of the cells times e^{zf}, summed."""

    walk: Walk
    loads: Loads | None
    rest: Weights
    kick: Weights | None

    def only(self, kept: IntArray) -> Steps:
        kick = None if self.kick is None else self.kick[:, kept]
        return Steps(self.walk, self.loads, self.rest[:, kept], kick)

    @property
    def period(self) -> int:
        return 1 if self.loads is None else self.loads.period

    @property
    def end(self) -> int:
        """Under Q columns near the end are like all others, except where the chain starts."""
        return 0 if self.loads is None else self.walk.chain.end

    def first(self) -> Weights:
        """The constant 1, as a function of state, load and power."""
        nodes = 1 if self.loads is None else self.loads.nodes.size
        return np.ones((self.walk.states.size, nodes, self.rest.shape[1]), self.rest.dtype)

    def back(self, later: Weights, place: int, last: bool) -> Weights:
        """Extend the mean over the columns beyond `place` to `place` itself.

        Places count from the chain's start, which is the end of the run; `last` means none is
        beyond.
        """
        if not last:
            flat = later.reshape(later.shape[0], -1)
            real = flat.view(np.float64) if np.iscomplexobj(flat) else flat
            later = (self.walk.kernel @ real).view(flat.dtype).reshape(later.shape)
        if self.loads is None or self.kick is None:
            return later * self.rest[:, None, :]
        if place % self.loads.period == self.loads.period - 1:
            later = _divide(later, self.loads.turn)
        # Near the end kappa_l < kappa: the column's own e^{-kappa_l/2} is larger than e^{-kappa/2}.
        # Far from it the difference is ignored, which lowers the weight, so all columns are alike.
        short = self.walk.chain.shortfall(place) if place < self.end else 0.0
        lift = math.exp(0.5 * short) * (1 - 2.0**-45)
        moved = _divide(later, self.loads.kick(place))
        moved *= (self.kick * lift)[:, None, :]
        later = later * self.rest[:, None, :]
        later += moved
        return later


def _divide(values: Weights, split: Split) -> Weights:
    found = np.take(values, split.index, axis=1)
    found *= split.low[:, None]
    both = np.flatnonzero(split.high)
    if 2 * both.size < split.high.size:
        found[:, both] += values[:, split.index[both] + 1] * split.high[both, None]
        return found
    high = np.take(values, split.index + 1, axis=1)
    high *= split.high[:, None]
    found += high
    return found


def steps_for(walk: Walk, loads: Loads | None, numbers: FloatArray, powers: Weights) -> Steps:
    """The operator of e^{zT}, T the sum of `numbers`."""
    turned = np.exp(np.outer(numbers, powers))
    kick = None if walk.kick is None else walk.kick @ turned
    return Steps(walk, loads, walk.rest @ turned, kick)


@dataclass
class _Run:
    """The state of the iteration: x 2^exponent e^jumped, at a place, for the powers kept."""

    steps: Steps
    place: int
    x: Weights
    kept: IntArray
    exponent: int = 0
    jumped: float = 0.0
    fine: bool = True
    silent: dict[int, float] = field(default_factory=dict)

    def back(self, count: int) -> None:
        for _ in range(count):
            self.place -= 1
            last = self.place == self.steps.walk.chain.steps - 1
            self.x = self.steps.back(self.x, self.place, last)
            first = self.x[:, :, 0].real
            top, least = float(first.max()), float(first.min())
            if not (0 < top < math.inf and least > LEAST * top):
                self.fine = False
                return
            exponent = math.frexp(top)[1]
            self.x *= math.ldexp(1.0, -exponent)
            self.exponent += exponent

    def leave_out(self, silent: float) -> None:
        """Drop the powers that no longer matter."""
        sizes = (np.abs(self.x) / self.x[:, :, :1].real).max(axis=(0, 1))
        loud = sizes > silent
        loud[0] = True
        if not loud.all():
            for k in np.flatnonzero(~loud):
                self.silent[int(self.kept[k])] = float(sizes[k]) * (1 + 1e-6)
            chosen = np.flatnonzero(loud)
            self.kept, self.steps = self.kept[chosen], self.steps.only(chosen)
            self.x = np.ascontiguousarray(self.x[:, :, chosen])


def transform(steps: Steps, powers: ComplexArray, reach: float, silent: float) -> Transform | None:
    """E[e^{zT}] for `powers`, the first of which is real; None if beyond floating point.

    `reach` is the largest of the test's numbers in size.  Powers are processed in batches that fit
    in memory, each including the real one.
    """
    nodes = 1 if steps.loads is None else steps.loads.nodes.size
    size = max(BATCH // (steps.walk.states.size * nodes), 2)
    parts: list[Transform] = []
    for start in range(1, max(powers.size, 2), size):
        chosen = np.concatenate([[0], np.arange(start, min(start + size, powers.size))])
        part = _transform(steps.only(chosen), powers[chosen], reach, silent)
        if part is None:
            return None
        parts.append(part)
    first = parts[0]
    values = np.concatenate([first.values, *(part.values[1:] for part in parts[1:])])
    errors = np.concatenate([first.errors, *(part.errors[1:] for part in parts[1:])])
    return Transform(values, first.log_real, errors)


def _transform(steps: Steps, powers: ComplexArray, reach: float, silent: float) -> Transform | None:
    """`transform` for one batch of powers."""
    chain, period, end = steps.walk.chain, steps.period, steps.end
    run = _Run(steps, chain.steps, steps.first(), np.arange(powers.size))
    errors = np.zeros(powers.size)
    while run.fine and run.place > end:
        before, exponent = run.x, run.exponent
        run.back(min(period, run.place - end))
        if not run.fine or run.place - end < 2 * CHECK * period:
            continue
        blocks = (run.place - end) // period
        jump = _factor(before, run.x, (run.exponent - exponent) * math.log(2), blocks)
        if jump is not None:
            factor, low, error = jump
            run.x = run.x * factor
            run.jumped += blocks * low
            run.place -= blocks * period
            errors[run.kept] += error
        else:
            run.leave_out(silent)
            run.back((CHECK // period) * period)
    run.back(run.place)
    if not run.fine:
        return None
    values = np.zeros(powers.size, complex)
    values[run.kept] = np.tensordot(steps.walk.entrance, run.x[:, 0, :], (0, 0))
    for k, size in run.silent.items():
        errors[k] = size
    largest = float(np.abs(powers).max()) * reach
    one = 8 * ROUND * (largest + steps.walk.rest.shape[1] + steps.walk.states.size + 64)
    errors += math.expm1(min((chain.steps + 2) * one, 1.0))
    if not (errors[0] < LARGEST_ERROR and values[0].real > 0):
        return None
    real = float(values[0].real)
    errors = (errors + errors[0]) * (1 + 4 * errors[0])
    log_real = run.exponent * math.log(2) + run.jumped + math.log(real)
    return Transform(np.asarray(values / real, dtype=complex), log_real, errors)


def _factor(
    before: Weights, after: Weights, scale: float, blocks: int
) -> tuple[Weights, float, FloatArray] | None:
    """Factors of x and log g for `blocks` more applications, and errors; None if not yet steady."""
    grown = after[:, :, 0].real / before[:, :, 0].real
    low = float(grown.min())
    spread = float(grown.max()) / low - 1
    if spread * blocks > STILL**0.5:
        return None
    place = np.unravel_index(int(np.argmax(after[:, 0, 0].real)), (after.shape[0],))[0]
    factor = after[place, 0] / np.where(before[place, 0] == 0, 1.0, before[place, 0])
    base = before[:, :, :1].real
    residue = (np.abs(after - factor * before) / base).max(axis=(0, 1))
    sizes = np.maximum(np.abs(factor) / low, 1.0)
    with np.errstate(over="ignore"):
        errors = residue * blocks / low * sizes**blocks * (1 + 1e-6)
    if not float(errors.max()) < STILL:
        return None
    return (factor / low) ** blocks, math.log(low) + scale, errors


def bound_transforms(steps: Steps, tolerance: float = 1e-3) -> FloatArray:
    """Logarithms of upper bounds on real transforms, one for each column of weights.

    A column's largest growth from one period to the next never increases, so it bounds all later
    growth; it is used once it costs at most `tolerance` in all.  Infinite if beyond floating point.
    """
    chain, period, end = steps.walk.chain, steps.period, steps.end
    x: Weights = steps.first()
    scale = np.zeros(x.shape[2])
    lost = np.zeros(x.shape[2], dtype=bool)
    place = chain.steps
    while place > 0:
        before = x
        for _ in range(min(period, place - end) if place > end else 1):
            place -= 1
            x = steps.back(x, place, place == chain.steps - 1)
        top = x.max(axis=(0, 1))
        lost |= ~(np.isfinite(top) & (x.min(axis=(0, 1)) > TINIEST * top))
        x[:, :, lost], top[lost] = 1.0, 1.0
        if (chain.steps - place) // period % CHECK == 0 and place > end:
            grown = x / before
            blocks = (place - end) // period
            highest = grown.max(axis=(0, 1))
            if (np.log(highest / grown.min(axis=(0, 1))) * blocks).max() < tolerance:
                scale += blocks * np.log(highest)
                place -= blocks * period
        x = x / top
        scale += np.log(top)
    values = np.tensordot(steps.walk.entrance, x[:, 0, :], (0, 0))
    rounding = (chain.steps + 2) * 8 * ROUND * (steps.rest.shape[0] + 600)
    found = np.log(values) + scale + rounding + (64 + chain.steps) * ROUND * np.abs(scale)
    return np.where(lost, math.inf, found)
