"""Delta of small mechanisms: every component summed, one output integrated exactly.

Nothing here imports mmcc.  With A = C / sigma, P = sum_S pi_S N(A_S, I), Q = N(0, I), E = e^epsilon
and any unit vector d with all a_S = <d, A_S> >= 0, let y = t d + z and

    X_t(z) = sum_S c_S(z) exp(t a_S - a_S^2/2),   c_S(z) = pi_S exp(<z, A'_S> - |A'_S|^2/2).

X_t(z) increases with t, so given z the integral over t needs one root, X_t(z) = E for "remove" and
1/E for "add".  With w_S = c_S exp(t a_S - a_S^2/2) there and Mills' ratio M(x) = Phi(-x)/phi(x),

    remove   int phi(t) (X_t - E)_+ dt     =   phi(t) sum_S w_S (M(t - a_S) - M(t)),
    add      E int phi(t) (1/E - X_t)_+ dt = E phi(t) sum_S w_S (M(-t) - M(a_S - t)),

sums of non-negative terms.  Only z is sampled: from Gaussians around the places where the integrand
is large, fitted to it in a pilot run, with P's and Q's own law of z mixed in, so that the weights
are bounded.  Points are Latin hypercubes, 32 independent ones, so the standard error is that of
their means.  An estimate that cannot be trusted is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from oracles.truth import log_sum, participation_sets

CUBES = 32
FIRST, LAST = 2**6, 2**16
"""Points in each cube: doubled from the first until the error is small, at most to the last."""
PILOT = 2**12
CENTRES = 8
"""Gaussians of the proposal for participation sets, which are close to each other."""
BATCH = 2**19
"""Samples times sets that are held at once."""
LEAST_EFFECTIVE = 300.0
LARGEST_SHARE = 0.05
ROUNDING = 1e-11


class UnreliableError(ArithmeticError):
    """The sample does not cover the integrand well enough, or too many points would be needed."""


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error, and how many samples of equal weight it is worth."""

    mean: float
    error: float
    effective: float


def enumerated_delta(
    matrix: np.ndarray,
    probability: float,
    sigma: float,
    epsilon: float,
    adjacency: str,
    *,
    columns: Sequence[int] | None = None,
    relative: float = 0.002,
    absolute: float = 0.0,
    seed: int = 0,
    direction: np.ndarray | None = None,
) -> Estimate:
    """Delta at epsilon, to the larger of the two accuracies (standard errors).

    `columns` are the steps at which the example may take part (one group of cyclic Poisson).
    `direction` are weights of the columns: d lies along that sum of them.
    """
    scaled = np.asarray(matrix, dtype=float) / sigma
    scaled = scaled if columns is None else scaled[:, list(columns)]
    scaled = _flattened(scaled)
    sets, logs = participation_sets(scaled.shape[1], probability)
    along = None if direction is None else scaled @ direction
    return _mixture_delta(
        sets @ scaled.T,
        logs,
        sets.any(axis=1),
        epsilon,
        adjacency,
        along,
        relative,
        absolute,
        seed,
        CENTRES,
    )


def mixture_delta(
    components: np.ndarray,
    weights: np.ndarray,
    epsilon: float,
    adjacency: str,
    *,
    relative: float = 0.002,
    absolute: float = 0.0,
    seed: int = 0,
    direction: np.ndarray | None = None,
) -> Estimate:
    """The same for any P = sum_k weights_k N(components_k, I), components >= 0, one a row.

    `direction` are weights of the components: d lies along that sum of them.
    """
    shifts = _flattened(np.asarray(components, dtype=float).T).T
    logs = np.log(np.asarray(weights, dtype=float))
    along = None if direction is None else direction @ shifts
    return _mixture_delta(
        shifts,
        logs,
        shifts.any(axis=1),
        epsilon,
        adjacency,
        along,
        relative,
        absolute,
        seed,
        max(CENTRES, len(logs)),  # components may be far apart: no peak may be left out
    )


def _flattened(scaled: np.ndarray) -> np.ndarray:
    """Columns in as few dimensions as they need, with the same inner products."""
    _, sizes, right = np.linalg.svd(scaled, full_matrices=False)
    return (sizes[:, None] * right)[sizes > 1e-13 * sizes[0]]


def _mixture_delta(
    shifts: np.ndarray,
    logs: np.ndarray,
    moving: np.ndarray,
    epsilon: float,
    adjacency: str,
    along: np.ndarray | None,
    relative: float,
    absolute: float,
    seed: int,
    most: int,
) -> Estimate:
    idle = float(np.exp(logs[~moving]).sum())
    level = epsilon if adjacency == "remove" else -epsilon
    if idle >= math.exp(level):  # X never falls below this
        return Estimate(0.0, 0.0, math.inf)
    if adjacency == "remove":
        points, heights = _peaks_remove(shifts, logs, epsilon)
    else:
        points, distance = _peak_add(shifts, logs, epsilon)
        heights, most = np.zeros(1), float(ndtr(-distance))
        if most <= absolute:  # delta is at most the chance of the half space
            return Estimate(most / 2, most / 2, math.inf)
    frame = _frame(_posterior_mean(shifts, logs, points[:1])[0] if along is None else along)
    mixture = _Slices(
        shifts=(shifts[moving] @ frame)[:, 1:],
        slopes=np.maximum(shifts[moving] @ frame[:, 0], 0.0),
        logs=logs[moving],
        idle=idle,
        epsilon=epsilon,
        remove=adjacency == "remove",
    )
    rng = np.random.default_rng([seed, 7])
    centres = points @ frame[:, 1:]
    if not centres.shape[1]:
        value = math.exp(float(mixture.log_excess(np.zeros((1, 0)))[0][0]))
        return Estimate(value, ROUNDING * value, math.inf)
    proposal = _fitted(mixture, _first_proposal(centres, heights, most), rng)
    return _integrate(mixture, proposal, relative, absolute, rng)


# The integral over t -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Slices:
    """Sets that shift the output, split in the part along d and the rest."""

    shifts: np.ndarray
    slopes: np.ndarray
    logs: np.ndarray
    idle: float
    epsilon: float
    remove: bool

    def log_excess(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of the integral over t and of P's density of z over Q's."""
        parts = [
            self._log_excess(z[start : start + size])
            for size in [max(BATCH // len(self.logs), 1)]
            for start in range(0, len(z), size)
        ]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def _log_excess(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log_c = z @ self.shifts.T + (self.logs - (self.shifts**2).sum(axis=1) / 2)
        ratio = np.logaddexp(log_sum(log_c, axis=1), math.log(self.idle) if self.idle else -np.inf)
        a = self.slopes
        factor = math.exp(self.epsilon if self.remove else -self.epsilon)
        lines = log_c - a**2 / 2 - math.log(factor - self.idle)
        t = _root(lines, a)
        x = t[:, None] - a if self.remove else a - t[:, None]
        w = np.exp(lines + t[:, None] * a) * (factor - self.idle)
        far = x.min(axis=1) < -30
        value = np.empty(len(z))
        near = ~far
        base = t[near] if self.remove else -t[near]
        gain = w[near] * (_mills(x[near]) - _mills(base)[:, None])
        gain = gain.sum(axis=1) * (1.0 if self.remove else -math.exp(self.epsilon))
        with np.errstate(divide="ignore"):
            value[near] = np.log(gain) - t[near] ** 2 / 2 - math.log(2 * math.pi) / 2
        if far.any():
            value[far] = self._log_far(log_c[far], t[far])
        return value, ratio

    def _log_far(self, log_c: np.ndarray, t: np.ndarray) -> np.ndarray:
        """The same by normal distribution functions, where Mills' ratio overflows."""
        sign = 1.0 if self.remove else -1.0
        mixed = log_sum(log_c + log_ndtr(sign * (self.slopes - t[:, None])), axis=1)
        if self.idle:
            mixed = np.logaddexp(mixed, math.log(self.idle) + log_ndtr(-sign * t))
        alone = log_ndtr(-sign * t)
        mixed, alone = (
            (mixed, alone + self.epsilon) if self.remove else (alone, mixed + self.epsilon)
        )
        with np.errstate(divide="ignore"):
            return mixed + np.log(np.maximum(-np.expm1(np.minimum(alone - mixed, 0.0)), 0.0))


def _mills(x: np.ndarray) -> np.ndarray:
    return math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))


def _root(lines: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """For each row the t with sum_S exp(lines_S + slopes_S t) = 1.

    The logarithm is convex, so Newton's method descends from any t where one term is already 1.
    """
    with np.errstate(divide="ignore", over="ignore"):
        start = np.where(slopes > 0, -lines / np.where(slopes > 0, slopes, 1.0), np.inf)
    t = start.min(axis=1)
    left = np.arange(len(t))
    for _ in range(200):
        terms = np.exp(lines[left] + slopes * t[left, None])
        total = terms.sum(axis=1)
        step = np.log(total) * total / (terms @ slopes)
        t[left] -= step
        left = left[np.abs(step) > 1e-7 * (1 + np.abs(t[left]))]
        if not left.size:
            return t
    raise UnreliableError("no root")


# Where the integrand is large --------------------------------------------------------------------


def _log_ratio(shifts: np.ndarray, logs: np.ndarray, y: np.ndarray) -> np.ndarray:
    return log_sum(y @ shifts.T + (logs - (shifts**2).sum(axis=1) / 2), axis=1)


def _posterior_mean(shifts: np.ndarray, logs: np.ndarray, y: np.ndarray) -> np.ndarray:
    logits = y @ shifts.T + (logs - (shifts**2).sum(axis=1) / 2)
    return np.exp(logits - log_sum(logits, axis=1)[:, None]) @ shifts


def _crossing(shifts, logs, start, directions, level):
    """Distances s >= 0 at which the ratio at start + s directions first crosses the level."""
    rising = _log_ratio(shifts, logs, start) < level

    def short(s):
        return (_log_ratio(shifts, logs, start + s[:, None] * directions) < level) == rising

    low, high = np.zeros(len(start)), np.ones(len(start))
    for _ in range(24):
        high = np.where(short(high), 2 * high, high)
    for _ in range(40):
        middle = (low + high) / 2
        before = short(middle)
        low, high = np.where(before, middle, low), np.where(before, high, middle)
    return high


def _peaks_remove(shifts, logs, epsilon):
    """For likely sets S the point nearest to A_S with ratio e^epsilon, the likeliest ones first."""
    likely = np.argsort(-logs)[:160] if len(logs) <= 160 else _likely(shifts, logs, epsilon)
    starts = shifts[likely]
    y = starts.copy()
    outside = _log_ratio(shifts, logs, starts) < epsilon
    for _ in range(6 if outside.any() else 0):
        direction = _posterior_mean(shifts, logs, y[outside])
        direction /= np.linalg.norm(direction, axis=1)[:, None]
        far = _crossing(shifts, logs, starts[outside], direction, epsilon)
        y[outside] = starts[outside] + far[:, None] * direction
    heights = logs[likely] - ((y - starts) ** 2).sum(axis=1) / 2
    order = np.argsort(-heights)
    return y[order], heights[order]


def _likely(shifts, logs, epsilon, most=160):
    """The sets most likely to have led to the ratio, judged along the sum of all columns."""
    direction = shifts.sum(axis=0) / np.linalg.norm(shifts.sum(axis=0))
    zero = np.zeros((1, shifts.shape[1]))
    far = _crossing(shifts, logs, zero, direction[None], epsilon)[0]
    missing = np.maximum(far - shifts @ direction, 0.0)
    return np.argsort(-(logs - missing**2 / 2))[:most]


def _peak_add(shifts, logs, epsilon):
    """The point nearest to zero with ratio e^-epsilon, and how far every such point is at least.

    The logarithm of the ratio is convex: all points below the level lie beyond any tangent plane.
    The nearest one is where the plane's own nearest point touches it.
    """
    y, best, farthest = np.zeros((1, shifts.shape[1])), np.zeros((1, shifts.shape[1])), -math.inf
    if _log_ratio(shifts, logs, y)[0] <= -epsilon:
        return y, -math.inf
    for turn in range(300):
        slope = _posterior_mean(shifts, logs, y)[0]
        excess = _log_ratio(shifts, logs, y)[0] + epsilon
        distance = (excess - slope @ y[0]) / np.linalg.norm(slope)
        move = -distance * slope / np.linalg.norm(slope) - y[0]
        if distance > farthest:
            best, farthest = y.copy(), distance
        size = np.linalg.norm(move)
        if size < 1e-6:
            break
        y[0] += min(1.0 if turn < 30 else 0.3, 1.0 / size) * move
    return best, farthest


def _frame(first: np.ndarray) -> np.ndarray:
    """An orthogonal matrix whose first column is along `first`."""
    frame = np.linalg.qr(np.column_stack([first, np.eye(len(first))]))[0]
    frame[:, 0] = first / np.linalg.norm(first)
    return frame


# Sampling z --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Proposal:
    """Gaussians with weights; P's law of z and Q's are added with a fixed share."""

    weights: np.ndarray
    centres: np.ndarray
    roots: np.ndarray
    """Cholesky factors of the covariances."""

    def draw(self, mixture: _Slices, uniform: np.ndarray) -> np.ndarray:
        """One z for each row of uniform numbers; the first of them chooses the Gaussian."""
        own = np.exp(mixture.logs - log_sum(mixture.logs))
        shares = np.concatenate([0.85 * self.weights, [0.05], 0.1 * own])
        chosen = np.searchsorted(np.cumsum(shares) / shares.sum(), uniform[:, 0], side="right")
        chosen = np.minimum(chosen, len(shares) - 1)
        normal = ndtri(np.clip(uniform[:, 1:], 1e-16, 1 - 1e-16))
        z = normal.copy()
        fitted = len(self.weights)
        for k in np.unique(chosen):
            here = chosen == k
            if k < fitted:
                z[here] = self.centres[k] + normal[here] @ self.roots[k].T
            elif k > fitted:
                z[here] = normal[here] + mixture.shifts[k - fitted - 1]
        return z

    def log_density(self, mixture: _Slices, z: np.ndarray, log_ratio: np.ndarray) -> np.ndarray:
        """Logarithm of the density over Q's; log_ratio is that of P's law of z."""
        norm = (z**2).sum(axis=1) / 2
        parts = [np.full(len(z), math.log(0.05))]
        with np.errstate(divide="ignore", invalid="ignore"):
            moving = log_ratio + np.log1p(-np.minimum(mixture.idle * np.exp(-log_ratio), 1 - 1e-15))
        parts.append(moving + math.log(0.1) - log_sum(mixture.logs))
        for weight, centre, root in zip(self.weights, self.centres, self.roots, strict=True):
            u = np.linalg.solve(root, (z - centre).T)
            log_root = np.log(np.abs(np.diag(root))).sum()
            parts.append(math.log(0.85 * weight) + norm - (u**2).sum(axis=0) / 2 - log_root)
        return log_sum(np.array(parts), axis=0)


def _cube(count: int, dimension: int, rng: np.random.Generator) -> np.ndarray:
    """A Latin hypercube: in every coordinate one point in each of `count` equal intervals."""
    order = np.argsort(rng.random((count, dimension)), axis=0)
    return (order + rng.random((count, dimension))) / count


def _sample(mixture, proposal, uniform):
    """Logarithms of the weighted integrand, and the points."""
    z = proposal.draw(mixture, uniform)
    log_excess, log_ratio = mixture.log_excess(z)
    return log_excess - proposal.log_density(mixture, z, log_ratio), z


def _first_proposal(centres: np.ndarray, heights: np.ndarray, most: int) -> _Proposal:
    """The best peaks that are not close to better ones, all a little wider than the normal law."""
    kept: list[int] = []
    for k in range(len(centres)):
        if heights[k] < heights[0] - 9 or len(kept) == most:
            break
        if all(np.linalg.norm(centres[k] - centres[i]) > 0.8 for i in kept):
            kept.append(k)
    weights = np.exp(0.5 * (heights[kept] - heights[0])) + 0.05
    roots = np.repeat(1.2 * np.eye(centres.shape[1])[None], len(kept), axis=0)
    return _Proposal(weights / weights.sum(), centres[kept], roots)


def _fitted(mixture: _Slices, proposal: _Proposal, rng: np.random.Generator) -> _Proposal:
    """The proposal with Gaussians fitted to the integrand: two pilot runs, a few steps of EM."""
    dimension = proposal.centres.shape[1]
    for _ in range(2):
        uniform = _cube(PILOT, dimension + 1, rng)
        logs, z = _sample(mixture, proposal, uniform)
        mass = np.exp(logs - logs.max())
        mass /= mass.sum()
        if 1 / (mass**2).sum() < 20:  # too poor to fit anything to
            continue
        weights, centres, roots = (
            x.copy() for x in (proposal.weights, proposal.centres, proposal.roots)
        )
        for _ in range(6):
            heights = np.array(
                [
                    math.log(w)
                    - (np.linalg.solve(r, (z - c).T) ** 2).sum(axis=0) / 2
                    - np.log(np.diag(r)).sum()
                    for w, c, r in zip(weights, centres, roots, strict=True)
                ]
            )
            shares = np.exp(heights - log_sum(heights, axis=0)) * mass
            weights = shares.sum(axis=1)
            for k in np.flatnonzero(weights > 1e-3):
                part = shares[k] / weights[k]
                blend = 0.1 + 0.9 * min(1.0, 1 / (part**2).sum() / (40 * dimension))
                centre = part @ z
                spread = (z - centre).T @ ((z - centre) * part[:, None])
                spread = blend * spread + (1 - blend) * np.eye(dimension)
                centres[k] = blend * centre + (1 - blend) * centres[k]
                roots[k] = np.linalg.cholesky(spread + 1e-6 * np.eye(dimension))
            weights = (weights + 2e-3) / (weights + 2e-3).sum()
        wide = np.concatenate([1.05 * roots, 1.5 * roots])
        proposal = _Proposal(
            np.concatenate([0.8 * weights, 0.2 * weights]), np.tile(centres, (2, 1)), wide
        )
    return proposal


def _integrate(mixture, proposal, relative, absolute, rng) -> Estimate:
    dimension = proposal.centres.shape[1] + 1
    count = FIRST
    while count <= LAST:
        means, squares, largest, top = np.empty(CUBES), 0.0, 0.0, None
        for i in range(CUBES):
            logs, _ = _sample(mixture, proposal, _cube(count, dimension, rng))
            top = float(logs.max()) if top is None else top
            gains = np.exp(logs - top)
            means[i] = gains.mean()
            squares += float((gains**2).sum())
            largest = max(largest, float(gains.max()))
        total = float(means.sum()) * count
        mean = float(means.mean())
        scale = math.exp(top)
        error = float(means.std(ddof=1)) / math.sqrt(CUBES) + ROUNDING * mean
        effective = total**2 / squares
        covered = effective >= LEAST_EFFECTIVE and largest <= LARGEST_SHARE * total
        if covered and scale * error <= max(relative * scale * mean, absolute):
            return Estimate(scale * mean, scale * error, effective)
        count *= 2
    raise UnreliableError(
        f"{scale * mean:.4g} +- {scale * error:.2g} after {CUBES * LAST} samples, "
        f"worth {effective:.0f}, the largest {largest / total:.2g} of all"
    )
