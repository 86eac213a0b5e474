r"""Moments of the revealed likelihood ratio if participations are a gap apart.

In: a lattice of a chain with a gap b.  Out: E_P~[Lhat^z] on the lattice for many z at once.
Rounding: errors are stated relative to the moment at the real part of z (`Moments.error`).

A blocked step reveals nothing: its factor is 1.  Backwards in time let v_t be the measure on states
after the last t steps, the first of which is open.  That step is idle, or it is taken and blocks b
- 1 others (all up to the end of the run if fewer are left; then its state has the law of the
entrance).  With I and T the weights of an open step and K_s the moves,

    v_t = (v_{t-1} I) K_0 + (u_t T) K_1,     u_t = v_{t-b} K^{b-1}  (t >= b),  v_0  (t < b).

The total of a run of n steps is E_n, the mass of the expressions in brackets at t = n.  If the run
starts in the stationary law, exactly the first r steps are blocked with chance p / (1 + (b - 1) p),
for each r = 1, ..., b - 1, and E_{n-r} covers the rest (E_0 = 1 if all steps are blocked).

*Jumps.*  Let al be the real part.  If v_s(al) = lambda (1 +- e) v_{s-1}(al) entrywise for b
successive s, then the same holds for all later ones, since weights are not negative.  If |v_s - mu
v_{s-1}| <= e' v_s(al) for b successive s, then the same holds for all later ones; so for |mu| <=
lambda (1 - e) and any m |v_{s+m} - mu^m v_s| <= m e' v_{s+m}(al).  So a run that has settled needs
no more steps.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mmcc._arrays import ComplexArray, FloatArray
from mmcc.accounting._bounds.reveal.chains.chain import Chain
from mmcc.accounting._bounds.reveal.chains.lattice import Lattice
from mmcc.accounting._bounds.reveal.chains.operator import (
    LARGEST_ERROR,
    LEAST,
    LOG2,
    SILENT,
    site,
    site_rounding,
)
from mmcc.accounting._bounds.reveal.inversion import ROUND, Moments

LOOK = 32
"""The fewest steps between two checks whether the run has settled."""
SETTLED, NEARLY_SETTLED = 1e-9, 1e-3
"""The relative error of a moment that jumps may cost: if it is certified, and for choices."""
PATIENCE = 2000
"""Steps, or hundredths of gaps, after which runs for choices jump at any cost."""
FLOOR = 2e-15
"""Vectors do not settle beyond rounding."""
SMALL = 1e-40
"""The smallest size of a vector after a step from size one, lest its least entries underflow."""
FAR = 1000
"""Summands smaller by this many binary digits are left out."""
MOST_KEPT, FEWEST = 2**24, 16
"""Most numbers of the relevant past kept at once, and the fewest powers they must cover."""
TURNS = 200
"""Steps after which the middle of a run has converged well enough for choices."""

Array = np.ndarray[Any, Any]
"""An array of real or complex numbers."""


@dataclass(slots=True)
class Vector:
    """values[a, z] times 2^exponent."""

    values: Array
    exponent: int

    def times(self, matrix: FloatArray) -> Vector:
        """matrix^T values: the real matrix meets real and imaginary parts alike."""
        parts = self.values.view(float) if np.iscomplexobj(self.values) else self.values
        return Vector((matrix.T @ parts).view(self.values.dtype), self.exponent)

    def scaled(self, weights: Array, exponent: int) -> Vector:
        """The vector weighted state by state, by numbers with an exponent of their own."""
        return Vector(self.values * weights, self.exponent + exponent)

    def normal(self) -> Vector:
        """The same vector, scaled so that the largest entry of the real power is near one."""
        shift = math.frexp(float(self.values[:, 0].real.max()))[1]
        return Vector(self.values * math.ldexp(1.0, -shift), self.exponent + shift)

    def at(self, exponent: int) -> Array:
        """The values relative to another exponent; zero if they are too small."""
        shift = self.exponent - exponent
        return self.values * (math.ldexp(1.0, shift) if shift > -FAR else 0.0)


def add(first: Vector, second: Vector) -> Vector:
    """The sum of two vectors."""
    exponent = max(first.exponent, second.exponent)
    return Vector(first.at(exponent) + second.at(exponent), exponent)


class Run:
    """The recursion, step by step, for the columns of the `alive` powers."""

    def __init__(self, lattice: Lattice, chain: Chain, idle: Array, taken: Array, exponent: int):
        self.lattice, self.chain = lattice, chain
        self.idle, self.taken, self.exponent = idle, taken, exponent
        self.alive = np.arange(idle.shape[1])
        start = np.repeat(lattice.entrance[:, None], idle.shape[1], axis=1).astype(idle.dtype)
        self.entrance = Vector(start, 0)
        self.time = 0
        self.jumped = 0
        self.cost = 0.0
        self.least = float(start[:, 0].real.min() / start[:, 0].real.max())
        self.log_jump = 0.0
        self.past = deque([self.entrance], maxlen=chain.gap + 1)
        ones = np.ones((1, idle.shape[1]), idle.dtype)
        self.totals = deque([Vector(ones, 0)], maxlen=chain.gap)

    def advance(self) -> None:
        """Advance by one step."""
        gap = self.chain.gap
        self.time += 1
        source = self.past[-gap].times(self.lattice.pause) if self.time >= gap else self.entrance
        idle = self.past[-1].scaled(self.idle, self.exponent)
        taken = source.scaled(self.taken, self.exponent)
        self.totals.append(
            add(*(Vector(w.values.sum(axis=0, keepdims=True), w.exponent) for w in (idle, taken)))
        )
        found = add(idle.times(self.lattice.kernels[0]), taken.times(self.lattice.kernels[1]))
        real = found.values[:, 0].real
        top = float(real.max())
        self.least = min(self.least, float(real.min()) / top if SMALL < top < math.inf else 0.0)
        self.past.append(found.normal() if self.least else found)

    def finish(self, allowed: float, patience: float = math.inf) -> None:
        """Run all steps, or until numbers get too small; jumps cost `allowed`, later anything."""
        pace = max(LOOK, self.chain.gap)
        while self.time < self.chain.steps and self.least > LEAST:
            self.advance()
            if self.time % pace == 0 and not self.jumped:
                self.look(allowed if self.time < patience else math.inf)

    def look(self, allowed: float) -> None:
        """Drop powers that are negligible; if all is settled, jump to b steps before the end."""
        gap = self.chain.gap
        far = self.chain.steps - gap - self.time
        if self.time <= gap or far <= gap + LOOK:
            return
        self._leave_out()
        past = list(self.past)
        pairs = list(pairwise(past))
        if max(abs(new.exponent - old.exponent) for old, new in pairs) > FAR:
            self.least = 0.0  # no moment within the range of floats
            return
        turns = [math.ldexp(1.0, new.exponent - old.exponent) for old, new in pairs]
        growths = [
            turn * new.values[:, 0].real / old.values[:, 0].real
            for (old, new), turn in zip(pairs, turns, strict=True)
        ]
        low, high = float(np.min(growths)), float(np.max(growths))
        growth, spread = 0.5 * (low + high), (high - low) / (high + low)
        if not far * max(spread - FLOOR, 0.0) <= allowed:
            return
        factors = self._factors(low)
        apart = 0.0
        for (old, new), turn in zip(pairs, turns, strict=True):
            gaps = np.abs(new.values - factors / turn * old.values) / new.values[:, :1].real
            apart = max(apart, float(gaps.max()))
        if far * max(apart - FLOOR, 0.0) <= allowed:
            self._jump(far, growth, factors, 2 * spread + apart + 8 * ROUND)

    def _factors(self, most: float) -> Array:
        """The factor mu of each power by least squares, at most `most` in size."""
        old, new = self.past[-2], self.past[-1]
        turn = math.ldexp(1.0, new.exponent - old.exponent)
        size = np.maximum((np.abs(old.values) ** 2).sum(axis=0), 1e-300)
        found = turn * (old.values.conj() * new.values).sum(axis=0) / size
        return np.asarray(found * np.minimum(1.0, most / np.maximum(np.abs(found), 1e-300)))

    def _jump(self, far: int, growth: float, factors: Array, error: float) -> None:
        phases = np.exp(far * np.log(np.where(factors == 0, 1e-300, factors) / growth))
        phases[0] = 1.0
        self.past = deque(
            (Vector(vector.values * phases, vector.exponent) for vector in self.past),
            maxlen=self.past.maxlen,
        )
        self.time += far
        self.jumped = far
        self.log_jump = far * math.log(growth)
        self.cost += math.expm1(min(far * (error + 16 * ROUND), 1.0))

    def _leave_out(self) -> None:
        """Drop powers whose vectors are negligible in all of the relevant past; they stay so."""
        ratios = [np.abs(v.values) / v.values[:, :1].real for v in self.past]
        keep = np.max([ratio.max(axis=0) for ratio in ratios], axis=0) >= math.exp(-SILENT)
        keep[0] = True
        if keep.all():
            return
        self.alive = self.alive[keep]
        self.idle, self.taken = self.idle[:, keep], self.taken[:, keep]
        for queue in (self.past, self.totals):
            for place, vector in enumerate(queue):
                values = np.ascontiguousarray(vector.values[:, keep])
                queue[place] = Vector(values, vector.exponent)
        self.entrance = Vector(np.ascontiguousarray(self.entrance.values[:, keep]), 0)

    def total(self) -> Vector:
        """E_n, or the mixture over the steps that are blocked at the start."""
        chain, found = self.chain, self.totals[-1]
        if not chain.stationary:
            return found
        chance = float(chain.prior[1])
        for rest in list(self.totals)[-2::-1]:
            found = add(found, Vector(chance * rest.values, rest.exponent))
        whole = max(chain.gap - 1 - self.time, 0)  # starts that block the run to its end
        found = add(found, Vector(np.full_like(found.values, chance * whole), 0))
        return Vector(found.values / (1 + (chain.gap - 1) * chance), found.exponent)


def rough_moment(lattice: Lattice, chain: Chain, power: float) -> float:
    """Roughly the logarithm of E[Lhat^power], for making choices; infinite beyond floats."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        run, _ = _run(lattice, chain, np.array([power]))
        patience = max(PATIENCE, PATIENCE // 100 * min(chain.gap, chain.steps))
        run.finish(NEARLY_SETTLED, patience)
        total = run.total()
    value = float(total.values[0, 0])
    if not (run.least > LEAST and 0 < value < math.inf):
        return math.inf
    return math.log(value) + total.exponent * LOG2 + run.log_jump


def moments(
    lattice: Lattice, chain: Chain, powers: ComplexArray, allowed: float = SETTLED
) -> Moments | None:
    """E[Lhat^z] for z in `powers`, all with the real part of the first, which is real.

    None if the numbers leave the range of floats, the relevant past is too long to keep, or
    rounding dominates.
    """
    size = MOST_KEPT // (lattice.states.size * (min(chain.gap, chain.steps) + 2))
    if size < min(FEWEST, powers.size):
        return None
    parts: list[ComplexArray] = []
    first, scale, error = 1.0 + 0j, 0.0, 0.0
    for start in range(0, powers.size, size - 1):
        # The real power goes first in every batch: it sets the common scale.
        batch = powers[start : start + size - 1]
        batch = batch if start == 0 else np.concatenate([powers[:1], batch])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            found = _batch(lattice, chain, batch, allowed)
        if found is None:
            return None
        if start == 0:
            first = found.values[0]
            parts, scale, error = [found.values], found.log_scale, found.error
        else:  # in the scale of the first batch, by the moment in both
            parts.append(found.values[1:] * (first / found.values[0]))
            error = max(error, 2 * (error + found.error))
    return Moments(np.concatenate(parts), scale, error) if error < LARGEST_ERROR else None


def _batch(lattice: Lattice, chain: Chain, powers: ComplexArray, allowed: float) -> Moments | None:
    z: Array = powers.real if not powers.imag.any() else powers
    run, slip = _run(lattice, chain, z)
    run.finish(allowed)
    if not run.least > LEAST:
        return None
    total = run.total()
    values = np.zeros(z.size, dtype=complex)
    values[run.alive] = total.values[0]
    product = 8 * ROUND * (lattice.states.size + 8)
    steps = (chain.steps + 2) * (site_rounding(lattice.logs, powers) + 2 * product + slip)
    steps += 8 * ROUND * (chain.gap if chain.stationary else 0) + run.cost
    error = math.expm1(min(2 * steps, 700.0)) + 2 * math.exp(-SILENT)
    if not (error < LARGEST_ERROR and values[0].real > 0 and np.isfinite(values).all()):
        return None
    log_scale = total.exponent * LOG2 + run.log_jump
    magnitude = abs(total.exponent) + abs(run.log_jump)
    return Moments(values, log_scale + 128 * ROUND * magnitude, error)


def _run(lattice: Lattice, chain: Chain, z: Array) -> tuple[Run, float]:
    """A run at its end, and the error of writing the scale of a step as a power of two."""
    mean, shift = site(lattice.logs, lattice.masses, z)
    exponent = round(shift / LOG2)
    usual = float(lattice.entrance @ mean[0, 0, 0].real)
    size = math.frexp(usual)[1]  # a step should leave a vector about as large as before
    mean = mean[:, :, 0] * np.ldexp(math.exp(shift - exponent * LOG2), -size)
    idle, taken = (np.ascontiguousarray(mean[:, s].T) for s in range(2))
    return Run(lattice, chain, idle, taken, exponent + size), 8 * ROUND * (1 + abs(shift))


def output_weights(lattice: Lattice, chain: Chain, power: float) -> FloatArray:
    """weights[s, i]: how much s and the cell i of outputs matter to the moment of this power.

    They combine what comes before and after an open step in the middle of a long run, without the
    cell's own factor.
    """
    turns = min(chain.steps, max(TURNS, 4 * min(chain.gap, chain.steps)))
    idle, taken = (kernel.T for kernel in lattice.kernels)
    ahead = deque([Vector(np.ones((lattice.states.size, 1)), 0)], maxlen=chain.gap)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        run, _ = _run(lattice, chain, np.array([power]))
        for turn in range(1, turns + 1):
            run.advance()
            new = ahead[-1].times(idle).scaled(run.idle, run.exponent)
            if turn >= chain.gap:
                some = ahead[0].times(taken).scaled(run.taken, run.exponent)
                new = add(new, some.times(lattice.pause.T))
            ahead.append(new.normal())
        before = run.past[-1]
        later = run.past[-chain.gap].times(lattice.pause) if turns >= chain.gap else run.entrance
        exponent = max(before.exponent, later.exponent)
        lefts = (before.at(exponent)[:, 0].real, later.at(exponent)[:, 0].real)
    cells = lattice.places.size
    masses = lattice.masses[:, 0, :, :cells] + lattice.masses[:, 0, :, cells : 2 * cells]
    rights = (lattice.kernels @ ahead[-1].values[:, 0].real)[:2]
    return np.asarray(np.einsum("sa,sai,sa->si", lefts, masses, rights))
