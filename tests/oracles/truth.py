"""Independent truth: exact or error-bounded privacy curves, by other means than the package's.

Nothing here imports mmcc.  In every function `adjacency` is "remove" (P = mixture, Q = N(0)) or
"add" (P = N(0), Q = mixture), and the value is the hockey-stick divergence

    delta(epsilon) = sup_B P(B) - e^epsilon Q(B).

    gaussian_delta, mixture_delta, product_mixture_delta   closed forms in 50 digits
    two_row_delta                                          Gram matrix of rank two, quadrature
    composed_mixture_delta                                 Mellin inversion, with its own error
    enumerated_delta                                       all participation sets, sampled outputs
    binned_lower_delta                                     a certified lower bound, by brute force
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import mpmath
import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

DIGITS = 50
ADJACENCIES = ("remove", "add")


# Closed forms ------------------------------------------------------------------------------------


def gaussian_delta(sensitivity: float, sigma: float, epsilon: float) -> mpmath.mpf:
    """Delta of the Gaussian mechanism; the two adjacencies are equal."""
    with mpmath.workdps(2 * DIGITS):
        if sensitivity == 0:
            return mpmath.mpf(max(0, 1 - mpmath.exp(epsilon)))
        s = mpmath.mpf(sigma) / mpmath.mpf(sensitivity)
        e = mpmath.mpf(epsilon)
        first = mpmath.ncdf(-e * s + 1 / (2 * s))
        return first - mpmath.exp(e) * mpmath.ncdf(-e * s - 1 / (2 * s))


def mixture_delta(
    sensitivities: Sequence[float],
    probabilities: Sequence[float],
    sigma: float,
    epsilon: float,
    adjacency: str,
) -> mpmath.mpf:
    """Delta of a scalar mixture of Gaussians: the ratio is monotone, so one root is enough.

    Probabilities are divided by their sum.  A misplaced root could only lower the value, and only
    in second order, because the root is where the derivative of P(B) - e^epsilon Q(B) vanishes.
    """
    with mpmath.workdps(2 * DIGITS):
        total = mpmath.fsum(mpmath.mpf(q) for q in probabilities)
        terms = [
            (mpmath.mpf(s) / mpmath.mpf(sigma), mpmath.mpf(q) / total)
            for s, q in zip(sensitivities, probabilities, strict=True)
            if q > 0
        ]
        factor = mpmath.exp(mpmath.mpf(epsilon))
        level = mpmath.mpf(epsilon if adjacency == "remove" else -epsilon)
        root = _ratio_root(terms, level)
        if root is None:  # the ratio lies above the level everywhere, or is constant
            above = adjacency == "remove" or all(a == 0 for a, _ in terms)
            return max(1 - factor, mpmath.mpf(0)) if above else mpmath.mpf(0)
        if adjacency == "remove":
            upper = mpmath.fsum(q * mpmath.ncdf(a - root) for a, q in terms)
            return upper - factor * mpmath.ncdf(-root)
        lower = mpmath.fsum(q * mpmath.ncdf(root - a) for a, q in terms)
        return mpmath.ncdf(root) - factor * lower


def _ratio_root(terms: list[tuple[mpmath.mpf, mpmath.mpf]], level: mpmath.mpf) -> mpmath.mpf | None:
    """The y with log sum_k q_k exp(a_k y - a_k^2/2) = level, or None."""
    idle = mpmath.fsum(q for a, q in terms if a == 0)
    if all(a == 0 for a, _ in terms) or mpmath.exp(level) <= idle:
        return None

    def excess(y: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
        parts = [(a, q * mpmath.exp(a * y - a * a / 2)) for a, q in terms]
        total = mpmath.fsum(w for _, w in parts)
        return mpmath.log(total) - level, mpmath.fsum(a * w for a, w in parts) / total

    low, high = mpmath.mpf(-1), mpmath.mpf(1)
    while excess(low)[0] > 0:
        low *= 2
    while excess(high)[0] < 0:
        high *= 2
    y = high
    for _ in range(400):  # Newton inside a shrinking bracket
        value, slope = excess(y)
        step = value / slope
        if abs(step) < mpmath.mpf(10) ** (-DIGITS) * (1 + abs(y)):
            return y - step
        low, high = (low, y) if value > 0 else (y, high)
        y = y - step if low < y - step < high else (low + high) / 2
    raise ArithmeticError("no root found")


def product_mixture_delta(
    values: Sequence[float],
    probabilities: Sequence[float],
    sigma: float,
    epsilon: float,
    adjacency: str,
) -> mpmath.mpf:
    """Delta of one row: sensitivity sum_j values_j Bern(probabilities_j), all subsets summed."""
    with mpmath.workdps(2 * DIGITS):
        sums, weights = [mpmath.mpf(0)], [mpmath.mpf(1)]
        for value, q in zip(values, probabilities, strict=True):
            sums = sums + [s + mpmath.mpf(value) for s in sums]
            weights = [w * (1 - mpmath.mpf(q)) for w in weights] + [
                w * mpmath.mpf(q) for w in weights
            ]
        return mixture_delta(sums, weights, sigma, epsilon, adjacency)


def worst(curve: Callable[..., object], *arguments: object) -> mpmath.mpf:
    """The larger of the two adjacencies of one of the curves above."""
    return max(mpmath.mpf(curve(*arguments, adjacency)) for adjacency in ADJACENCIES)


def smallest_epsilon(curve: Callable[[float], object], delta: float) -> float:
    """The epsilon >= 0 at which a non-increasing curve falls to delta, from below, to 1e-11."""

    def excess(epsilon: float) -> float:
        value = mpmath.mpf(curve(epsilon))
        return float(mpmath.log(value / delta)) if value > 0 else -1e4

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
    root = brentq(excess, 0.0 if high == 1.0 else high / 2, high, xtol=1e-13, rtol=1e-13)
    return root * (1 - 1e-11)


def log_sum(terms: np.ndarray, axis: int = -1) -> np.ndarray:
    """log sum exp along an axis, without overflow."""
    peak = terms.max(axis=axis, keepdims=True)
    return np.log(np.exp(terms - peak).sum(axis=axis)) + np.squeeze(peak, axis=axis)


# Participation sets ------------------------------------------------------------------------------


def participation_sets(
    columns: int, probability: float | Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """All 2^columns participation sets as 0/1 rows, and the logarithms of their probabilities."""
    sets = (np.arange(2**columns)[:, None] >> np.arange(columns)) & 1
    p = np.broadcast_to(np.asarray(probability, dtype=float), (columns,))
    with np.errstate(divide="ignore"):
        logs = np.where(sets == 1, np.log(p), np.log1p(-p)).sum(axis=1)
    return sets[logs > -np.inf].astype(float), logs[logs > -np.inf]


# Quadrature for Gram matrices of rank two --------------------------------------------------------


def two_row_delta(
    matrix: np.ndarray, probability: float, sigma: float, epsilon: float, adjacency: str
) -> float:
    """Delta of Poisson sampling for any non-negative C whose Gram matrix has rank two or less."""
    return sum(two_row_bracket(matrix, probability, sigma, epsilon, adjacency)) / 2


def two_row_bracket(
    matrix: np.ndarray, probability: float, sigma: float, epsilon: float, adjacency: str
) -> tuple[float, float]:
    """The same with its own error, about 1e-13 of the value where deltas are not cancelled away.

    In coordinates in which both rows are non-negative the ratio is monotone in the second output:
    the inner integral is a root and normal distribution functions, the outer one is adaptive.
    """
    scaled = np.asarray(matrix, dtype=float) / sigma
    factor = _first_quadrant(scaled)
    if not factor[1].any():
        row = np.linalg.norm(scaled, axis=0)
        exact = product_mixture_delta(row, [probability] * row.size, 1.0, epsilon, adjacency)
        return float(exact) * (1 - 1e-13), float(exact) * (1 + 1e-13)
    sets, logs = participation_sets(factor.shape[1], probability)
    return plane_bracket(sets @ factor.T, logs, epsilon, adjacency)


def bins_bracket(components: np.ndarray, epsilon: float, adjacency: str) -> tuple[float, float]:
    """Bracket of the delta of a mixture of Gaussians N(m_r, I), all as likely, <m_r, m_s> >= 0.

    One component a row; they must lie in a plane.
    """
    components = np.asarray(components, dtype=float)
    factor = _first_quadrant(components.T)
    if not factor[1].any():
        exact = mixture_delta(
            np.linalg.norm(components, axis=1),
            [1 / len(components)] * len(components),
            1.0,
            epsilon,
            adjacency,
        )
        return float(exact) * (1 - 1e-13), float(exact) * (1 + 1e-13)
    logs = np.full(len(components), -math.log(len(components)))
    return plane_bracket(factor.T, logs, epsilon, adjacency)


def plane_bracket(
    points: np.ndarray, logs: np.ndarray, epsilon: float, adjacency: str
) -> tuple[float, float]:
    """Bracket of the delta of a mixture of Gaussians around points >= 0 of the plane.

    `logs` are the logarithms of their weights.
    """
    first, second = points.T

    def slices(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        joint = logs - (y[:, None] - first) ** 2 / 2  # up to sqrt(2 pi): density of y and the set
        idle = -(y**2) / 2
        root = _second_output_root(joint - idle[:, None], second, epsilon, adjacency)
        side = 1.0 if adjacency == "remove" else -1.0
        mixed = np.exp(joint + log_ndtr(side * (second - root[:, None]))).sum(axis=1)
        alone = np.exp(idle + log_ndtr(-side * root))
        factor = math.exp(epsilon)
        return (mixed, factor * alone) if adjacency == "remove" else (alone, factor * mixed)

    area, error = _adaptive_difference(slices, -38.0, float(first.max()) + 38.0)
    root = math.sqrt(2 * math.pi)
    return (area - error) / root, (area + error) / root


def _first_quadrant(matrix: np.ndarray) -> np.ndarray:
    """A non-negative matrix with two rows and the Gram matrix of a non-negative one."""
    if matrix.shape[0] == 2:
        return matrix
    _, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    if (sizes[2:] > 1e-12 * sizes[0]).any():
        raise ValueError("the Gram matrix has rank above two")
    plane = sizes[0] * right[0] + 1j * (sizes[1] * right[1] if sizes.size > 1 else 0)
    lengths, longest = np.abs(plane), plane[np.argmax(np.abs(plane))]
    angles = np.where(lengths > 0, np.angle(plane * np.conj(longest)), 0.0)  # within 90 degrees
    angles -= angles.min()
    if angles.max() < 1e-9:
        angles[:] = 0.0
    return np.vstack([lengths * np.cos(angles), lengths * np.sin(angles)])


def _second_output_root(
    base: np.ndarray, slopes: np.ndarray, epsilon: float, adjacency: str
) -> np.ndarray:
    """For each row of `base`, the t with sum_S exp(base_S + slopes_S t - slopes_S^2/2) = e^level.

    Clipped to |t| <= 45 + slopes, where the normal tails are below 1e-300.  Delta is stationary
    at the root, so one Newton step after 32 halvings is more than enough.
    """
    level = epsilon if adjacency == "remove" else -epsilon
    low = np.full(base.shape[0], -45.0)
    high = np.full(base.shape[0], 45.0 + slopes.max())
    lines = base - slopes**2 / 2 - level
    for _ in range(32):
        middle = (low + high) / 2
        below = log_sum(lines + slopes * middle[:, None], axis=1) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    terms = lines + slopes * high[:, None]
    excess = log_sum(terms, axis=1)
    slope = np.exp(terms - excess[:, None]) @ slopes
    return np.clip(high - excess / np.maximum(slope, 1e-300), low, high)


def _adaptive_difference(
    functions: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], low: float, high: float
) -> tuple[float, float]:
    """Integral of the difference of two functions, and its error.

    Gauss-Legendre on panels that are halved until the halves agree with the whole; rounding is
    taken as 1e-14 of the two functions themselves.
    """
    nodes, weights = np.polynomial.legendre.leggauss(20)

    def panels(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        half = (right - left) / 2
        points = (left + half)[:, None] + half[:, None] * nodes
        more, less = (f.reshape(points.shape) @ weights * half for f in functions(points.ravel()))
        return more - less, more + less

    edges = np.linspace(low, high, 1 + math.ceil((high - low) / 2))
    left, right = edges[:-1], edges[1:]
    whole = panels(left, right)[0]
    area = error = 0.0
    for _ in range(40):
        middle = (left + right) / 2
        halves, sizes = panels(np.append(left, middle), np.append(middle, right))
        pairs, size = halves.reshape(2, -1).sum(axis=0), sizes.reshape(2, -1).sum(axis=0)
        gap = np.abs(pairs - whole)
        fine = gap <= 1e-14 * size + 1e-15 * abs(area + halves.sum()) + 1e-44
        area += pairs[fine].sum()
        error += (gap + 1e-14 * size)[fine].sum()
        keep = np.tile(~fine, 2)
        left, right, whole = (
            np.append(left, middle)[keep],
            np.append(middle, right)[keep],
            halves[keep],
        )
        if not left.size:
            return float(area), float(error)
    raise ArithmeticError(f"quadrature did not converge: {area} +- {error}")


# Composition of scalar mixtures, by Mellin inversion ---------------------------------------------

Part = tuple[int, Sequence[float], Sequence[float], float]  # count, sensitivities, probs, sigma


def composed_subsampled_gaussian_delta(
    count: int, sensitivity: float, probability: float, sigma: float, epsilon: float, adjacency: str
) -> tuple[float, float]:
    """Bracket of the delta of `count` composed Poisson-subsampled Gaussian mechanisms."""
    part = (count, [0.0, sensitivity], [1 - probability, probability], sigma)
    return composed_mixture_delta([part], epsilon, adjacency)


def composed_mixture_delta(
    parts: Iterable[Part], epsilon: float, adjacency: str
) -> tuple[float, float]:
    r"""Bracket (lower, upper) of the delta of independent scalar mixtures, composed.

    With M(z) = E_P[e^{z L}], L the total loss, and any c > 0,

        delta(epsilon) = 1/(2 pi i) \int_{c - i oo}^{c + i oo} e^{-z epsilon} M(z) / (z (z+1)) dz.

    c is the saddle point and both integrals are trapezoidal sums, which converge exponentially.
    The half-width is the change between two resolutions plus 1e-10 of the value.
    """
    parts = list(parts)
    if adjacency == "add" and epsilon >= _largest_add_loss(parts):
        return 0.0, 0.0
    c = _saddle(parts, epsilon, adjacency)
    coarse = _mellin(parts, epsilon, adjacency, c, refine=1.0)
    fine = _mellin(parts, epsilon, adjacency, 1.07 * c, refine=1.6)
    half = abs(coarse - fine) + 1e-10 * abs(fine)
    return float(fine - half), float(fine + half)


def _largest_add_loss(parts: list[Part]) -> float:
    """Sup of log N(0)/mixture: minus the logarithm of the weight at sensitivity zero, summed."""
    idle = [
        (count, math.fsum(q for s, q in zip(values, probabilities, strict=True) if s == 0))
        for count, values, probabilities, _ in parts
    ]
    return math.inf if any(q == 0 for _, q in idle) else -sum(n * math.log(q) for n, q in idle)


def _log_moment(parts: list[Part], z: np.ndarray, adjacency: str, refine: float) -> np.ndarray:
    """log E_P[e^{zL}] for an array of z with one real part."""
    c, highest = float(z[0].real), float(np.abs(z.imag).max())
    total = np.zeros(z.shape, dtype=complex)
    for count, sensitivities, probabilities, sigma in parts:
        a = np.asarray(sensitivities, dtype=float) / sigma
        with np.errstate(divide="ignore"):
            q = np.log(np.asarray(probabilities, dtype=float))
        reach = (c + 1) * a.max() if adjacency == "remove" else c * a.max()
        low, high = (-13.0, reach + 13.0) if adjacency == "remove" else (-reach - 13.0, 13.0)
        step = min(0.2, 0.5 / max(a.max(), 1e-9), 2.0 / ((1e-9 + a.max()) * (1 + highest))) / refine
        y = np.arange(low, high + step, step)
        loss = log_sum(q + np.outer(y, a) - a**2 / 2, axis=1)
        power = z + 1 if adjacency == "remove" else -z
        peak = power.real[0] * loss - y**2 / 2
        shift = peak.max()
        keep = peak > shift - 80
        base, loss = np.exp(peak[keep] - shift), loss[keep]
        value = np.empty(z.shape, dtype=complex)
        for block in range(0, z.size, 256):
            piece = slice(block, block + 256)
            value[piece] = np.exp(1j * np.outer(power[piece].imag, loss)) @ base
        total += count * (np.log(value * step / math.sqrt(2 * math.pi)) + shift)
    return total


def _saddle(parts: list[Part], epsilon: float, adjacency: str) -> float:
    """The c > 0 that makes the integrand on the real axis smallest, by golden section in log c."""

    def height(log_c: float) -> float:
        c = math.exp(log_c)
        moment = _log_moment(parts, np.array([complex(c)]), adjacency, 1.0)[0].real
        return float(moment) - c * epsilon - math.log(c) - math.log1p(c)

    grid = np.linspace(math.log(1e-3), math.log(2e3), 60)
    heights = []
    for point in grid:
        heights.append(height(point))
        if len(heights) > 3 and heights[-1] > min(heights) + 20:
            break
    return math.exp(grid[int(np.argmin(heights))])


def _period(parts: list[Part], epsilon: float, adjacency: str, c: float, top: float) -> float:
    """A period X of the sum at which its aliases delta(epsilon +- kX) e^{+-ckX} are negligible."""
    left = (40.0 - top) / c  # delta <= 1
    right = []
    for more in (0.03, 0.1, 0.3, 1.0, 3.0):  # delta(x) <= M(c') e^{-c' x}
        other = c + more * (1 + c)
        moment = _log_moment(parts, np.array([complex(other)]), adjacency, 1.0)[0].real
        right.append((moment - other * epsilon - top + 40.0) / (other - c))
    return max(left, min(right), 1.0)


def _mellin(parts: list[Part], epsilon: float, adjacency: str, c: float, refine: float) -> float:
    """The trapezoidal sum along Re z = c; nodes are added until the integrand has died out."""
    top = _log_moment(parts, np.array([complex(c)]), adjacency, refine)[0].real - c * epsilon
    step = 2 * math.pi / (refine * _period(parts, epsilon, adjacency, c, top))
    total, block, heights = 0.0, 128, []
    for start in range(0, 12_000, block):
        z = c + 1j * step * np.arange(start, start + block)
        terms = np.exp(_log_moment(parts, z, adjacency, refine) - z * epsilon - top) / (z * (z + 1))
        terms[0] *= 0.5 if start == 0 else 1.0
        total += float(terms.real.sum())
        heights.append(float(np.abs(terms).max()))
        if heights[-1] < 1e-15 * abs(total):
            return total * step / math.pi * math.exp(top)
        if step * start > 300 and heights[-1] > 1e-7 * heights[0]:
            break
    raise ArithmeticError("the characteristic function decays too slowly for this oracle")


def binned_lower_delta(parts: Iterable[Part], epsilon: float, adjacency: str, bins: int) -> float:
    """A lower bound for few composed mixtures: outputs are binned, which is post-processing."""
    log_p, log_q = np.zeros(1), np.zeros(1)
    for count, sensitivities, probabilities, sigma in parts:
        a = np.asarray(sensitivities, dtype=float) / sigma
        edges = np.concatenate([[-np.inf], np.linspace(-8.0, a.max() + 8.0, bins - 1), [np.inf]])
        idle = np.diff(ndtr(edges))
        mixed = sum(w * np.diff(ndtr(edges - s)) for s, w in zip(a, probabilities, strict=True))
        p, q = (mixed, idle) if adjacency == "remove" else (idle, mixed)
        with np.errstate(divide="ignore"):
            p, q = np.log(p), np.log(q)
        for _ in range(count):
            log_p = (log_p[:, None] + p).ravel()
            log_q = (log_q[:, None] + q).ravel()
    area = np.maximum(np.exp(log_p) - np.exp(epsilon + log_q), 0).sum()
    return float(area) * (1 - 1e-11)  # rounding of the bins


# Enumeration with sampled outputs ----------------------------------------------------------------


def enumerated_delta(
    matrix: np.ndarray,
    probability: float,
    sigma: float,
    epsilon: float,
    adjacency: str,
    *,
    samples: int = 2000,
    seed: int = 0,
    columns: Sequence[int] | None = None,
) -> tuple[float, float]:
    """Mean and standard error of delta, the likelihood ratio summed over all participation sets.

    `columns` are the steps at which the example may take part (one group of cyclic Poisson).
    Outputs are drawn around the places where the integrand is large and reweighed; one part of
    the proposal is P itself, so the weights are bounded and the standard error can be trusted.
    """
    scaled = np.asarray(matrix, dtype=float) / sigma
    scaled = scaled if columns is None else scaled[:, list(columns)]
    scaled = np.linalg.qr(scaled, mode="r") if scaled.shape[0] > scaled.shape[1] else scaled
    sets, logs = participation_sets(scaled.shape[1], probability)
    shifts = sets @ scaled.T
    offsets = logs - (shifts**2).sum(axis=1) / 2
    rng = np.random.default_rng(seed)

    def log_ratio(y: np.ndarray) -> np.ndarray:
        return log_sum(y @ shifts.T + offsets, axis=1)

    draw = _remove_sample if adjacency == "remove" else _add_sample
    drawn = draw(shifts, logs, offsets, log_ratio, epsilon, samples, rng)
    if drawn is None:
        return 0.0, 0.0
    ratio, proposal = drawn  # logarithms of P/Q (mixture over Gaussian) and of proposal over Q
    with np.errstate(over="ignore"):
        if adjacency == "remove":
            gain = np.exp(ratio - proposal) * np.maximum(-np.expm1(epsilon - ratio), 0)
        else:
            gain = np.exp(-proposal) * np.maximum(-np.expm1(epsilon + ratio), 0)
    return float(gain.mean()), float(gain.std(ddof=1) / math.sqrt(samples))


def _line_root(log_ratio, directions: np.ndarray, level: float, sign: float) -> np.ndarray:
    """For each unit direction the distance t >= 0 at which log_ratio(sign t d) crosses `level`."""
    high = np.ones(len(directions))
    while (short := sign * (log_ratio(sign * high[:, None] * directions) - level) < 0).any():
        high = np.where(short, 2 * high, high)
        if high.max() > 1e6:
            break
    low = np.where(high > 1, high / 2, 0.0)
    for _ in range(10):
        middle = (low + high) / 2
        short = sign * (log_ratio(sign * middle[:, None] * directions) - level) < 0
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high


def _steepest(shifts: np.ndarray, offsets: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Unit vector along the posterior mean of the shift given the output y."""
    logits = shifts @ y + offsets
    mean = np.exp(logits - log_sum(logits)) @ shifts
    return mean / np.linalg.norm(mean)


def _remove_sample(shifts, logs, offsets, log_ratio, epsilon, samples, rng):
    """Half of the outputs from P, half around points of the boundary ratio = e^epsilon."""
    norms = np.linalg.norm(shifts, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = np.maximum((epsilon - logs) / norms + norms / 2, norms)
        score = np.where(norms > 0, logs - (alone - norms) ** 2 / 2, -np.inf)
    chosen = [k for k in np.argsort(-score)[:24] if norms[k] > 0]
    directions = [shifts[k] / norms[k] for k in chosen]
    point = np.zeros(shifts.shape[1])
    for _ in range(6):
        directions.append(_steepest(shifts, offsets, point))
        point = directions[-1] * _line_root(log_ratio, directions[-1][None], epsilon, 1.0)[0]
    units = np.array(directions)
    far = _line_root(log_ratio, units, epsilon, 1.0)
    far[: len(chosen)] = np.maximum(far[: len(chosen)], norms[chosen])
    centres = far[:, None] * units
    height = log_ratio(centres) - far**2 / 2
    weights = 0.8 * np.exp(height - log_sum(height)) + 0.2 / len(centres)
    from_p = rng.random(samples) < 0.5
    picked = rng.choice(len(centres), size=samples, p=weights / weights.sum())
    sets = rng.choice(len(shifts), size=samples, p=np.exp(logs - log_sum(logs)))
    y = rng.standard_normal((samples, shifts.shape[1]))
    y += np.where(from_p[:, None], shifts[sets], centres[picked])
    ratio = log_ratio(y)
    around = log_sum(y @ centres.T - far**2 / 2 + np.log(weights), axis=1)
    return ratio, np.logaddexp(ratio, around) + math.log(0.5)


def _add_sample(shifts, logs, offsets, log_ratio, epsilon, samples, rng):
    """Outputs from N(0) and around the nearest point with ratio = e^-epsilon, if there is one."""
    idle = log_sum(logs[~shifts.any(axis=1)]) if (~shifts.any(axis=1)).any() else -np.inf
    if idle >= -epsilon:
        return None
    point, centres = np.zeros(shifts.shape[1]), [np.zeros(shifts.shape[1])]
    for _ in range(12):
        direction = _steepest(shifts, offsets, point)
        point = -direction * _line_root(log_ratio, direction[None], -epsilon, -1.0)[0]
    centres = np.array([0 * point, point, 1.1 * point + 0.3 * point / np.linalg.norm(point)])
    weights = np.array([0.2, 0.5, 0.3])
    picked = rng.choice(3, size=samples, p=weights)
    y = centres[picked] + rng.standard_normal((samples, shifts.shape[1]))
    around = log_sum(y @ centres.T - (centres**2).sum(axis=1) / 2 + np.log(weights), axis=1)
    return log_ratio(y), around
