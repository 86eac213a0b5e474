r"""Composition of privacy losses: FFT on a tilted grid, every error bounded and added to delta.

In: independent grid losses with their multiplicities.  Out: `Composed`, or an answer read off it.
Rounding: upper bounds.

With L the sum of the losses and K(lam) = log E[e^(lam L)], the tilted masses m~ = m e^(lam l - K)
are centred where delta is decided, so a rounding error of the FFT, which is relative to the mass
one of m~, is relative to delta.  Wrapping around the window only adds mass; mass above the window
is added by Chernoff's bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from mmcc._arrays import ComplexArray, FloatArray
from mmcc.accounting._losses.composed import EPS, WINDOW_TAIL, Composed, Question
from mmcc.accounting._losses.grid import GridLoss
from mmcc.errors import PrecisionError

FFT_CONSTANT = 8.0
"""Error of one transform of length N: at most FFT_CONSTANT log2(N) 2^-53 times the 1-norm of the
data for each value, and times the 2-norm for the 2-norm (a butterfly's own constant is below 5;
lengths have no prime factor above 5, so every transform is made of butterflies)."""
MAX_POINTS = 2**26
COMFORTABLE_POINTS = 2**21
MAX_RETRIES = 12
FLATTER = (1.0, 1e-3)
"""Multiples of the tilt: flatter tilts are tried if the first did not work."""
NO_ANSWER = 0.999
"""A delta above this is considered no answer."""
FAN = 4

Parts = Sequence[tuple[GridLoss, int]]
Cumulant = Callable[[float], float]


def read_off(parts: Parts, question: Question, tilt: float, about: float) -> tuple[float, Composed]:
    """The answer, which is an upper bound, and the composed losses from which it was read.

    Every tilt gives a certified answer; flatter ones are tried if the first answer is far above
    `about`, the epsilon expected, or if its delta is useless.
    """
    at = question.epsilon
    composed = compose(parts, tilt, math.inf if at is None else at)
    found = composed.answer(question)
    enough = 1.5 * about if at is None else NO_ANSWER
    for other in FLATTER:
        if found <= enough:
            break
        try:
            another = compose(parts, other, composed.lowest if at is None else at)
        except PrecisionError:
            break
        if (value := another.answer(question)) < found:
            found, composed = value, another
    if not math.isfinite(found):
        raise PrecisionError(
            f"delta = {question.delta:g} is below the mass that truncation and round-off leave at "
            f"infinity ({composed.infinite:.2g}). Use a larger delta."
        )
    return found, composed


def cumulant_of(parts: Parts) -> Cumulant:
    """The log moment generating function of the finite part of the composed loss."""
    counts = np.array([count for _, count in parts], dtype=np.float64)
    starts = np.cumsum([0, *(loss.masses.size for loss, _ in parts)])[:-1]
    losses = np.concatenate([loss.losses for loss, _ in parts])
    masses = np.concatenate([loss.masses for loss, _ in parts])
    with np.errstate(divide="ignore"):
        logs = np.log(masses)
    sizes = np.array([loss.masses.size for loss, _ in parts])

    def cumulant(tilt: float) -> float:
        exponents = logs + tilt * losses
        peaks = np.maximum.reduceat(exponents, starts)
        sums = np.add.reduceat(np.exp(exponents - np.repeat(peaks, sizes)), starts)
        return float(np.dot(counts, peaks + np.log(sums)))

    return cumulant


def compose(parts: Parts, tilt: float, lowest: float) -> Composed:
    """Compose all parts, tilted by about `tilt`, in a window that starts at `lowest` or below.

    Any tilt is valid.  If a rare huge loss dominates the tilted law, the window would be wide; a
    smaller tilt avoids that.
    """
    spacing = parts[0][0].spacing
    cumulant = cumulant_of(parts)
    for _ in range(MAX_RETRIES):
        centre = cumulant(tilt)
        top, bottom, outside = _window(cumulant, tilt, centre, spacing, parts)
        first = math.floor(min(bottom, lowest) / spacing) - 1
        size = fast_length(max(math.ceil(top / spacing) - first, 0) + 2)
        if size <= COMFORTABLE_POINTS:
            break
        tilt /= 1.5
    if size > MAX_POINTS:
        raise PrecisionError(
            f"the composition needs {size} grid points, because the losses of the parts differ too "
            "much in size for one grid. Use a larger delta, or a larger spacing."
        )
    spectrum, error, offset = _spectrum(parts, tilt, size)
    tilted = np.fft.irfft(spectrum, size)
    error += FFT_CONSTANT * math.log2(size) * EPS * float(np.linalg.norm(tilted))
    tilted = np.roll(tilted, (offset - first) % size)
    losses = np.arange(first, first + size, dtype=np.float64) * spacing
    above = outside * math.exp(min(centre - tilt * float(losses[-1]), 700.0))
    infinite = math.fsum(loss.infinite * count for loss, count in parts) + above
    # Logarithms and exponents of the tilted masses, then the sum of all cumulants.
    operations = math.fsum(
        count * (800 + abs(tilt) * spacing * (loss.masses.size + 4 * abs(loss.first)))
        for loss, count in parts
    )
    relative = 2 * EPS * (operations + len(parts) * (1 + abs(centre)))
    below = 0.0 if first <= sum(count * loss.first for loss, count in parts) else 1.0
    return Composed(losses, tilted, tilt, centre, infinite * (1 + 1e-12), error, relative, below)


def _window(
    cumulant: Cumulant, tilt: float, centre: float, spacing: float, parts: Parts
) -> tuple[float, float, float]:
    """The ends of the window, and a bound on the tilted mass above its top.

    The top comes from Chernoff's bound.  Mass below the bottom reappears W = top - bottom higher,
    weighted by e^(-tilt W): the bottom need only be low enough to make it negligible beside delta.
    """
    step = 1e-3 * max(tilt, 1.0)
    ahead, behind = cumulant(tilt + step), cumulant(tilt - step)
    mean = (ahead - behind) / (2 * step)
    deviation = math.sqrt(max((ahead - 2 * centre + behind) / step**2, spacing**2))
    depth = -math.log(WINDOW_TAIL)
    best = math.sqrt(2 * depth) / deviation
    top = _descend(lambda s: (cumulant(tilt + s) - centre + depth) / s, best, 0.5)
    bottom = -_descend(lambda s: (cumulant(tilt - s) - centre + depth) / s, best, 2.0)
    harmless = top - (2 * depth + max(tilt * mean - centre, 0.0)) / tilt
    bottom = max(bottom, min(mean - 8 * deviation, harmless))
    highest = sum(count * float(loss.losses[-1]) for loss, count in parts)
    lowest = sum(count * float(loss.losses[0]) for loss, count in parts)
    return min(top, highest), max(bottom, lowest), WINDOW_TAIL * (1 + 1e-6)


def _descend(value: Callable[[float], float], start: float, factor: float) -> float:
    """The smallest value at start, start * factor, ... before it rises again."""
    best = value(start)
    for power in range(1, 12):
        found = value(start * factor**power)
        if not found < best:
            break
        best = found
    return best


def _spectrum(parts: Parts, tilt: float, size: int) -> tuple[ComplexArray, float, int]:
    """The product of the transforms of the tilted parts, its error, and the sum of their offsets.

    Each value F of a transform of masses with sum one has an error of at most e =
    FFT_CONSTANT log2(N) 2^-53, so the product of F_i^c_i is off by at most
    prod (|F_i| + e)^c_i times sum c_i (e / (|F_i| + e) + 8 2^-53), the last for the powers.
    """
    offset = sum(count * loss.first for loss, count in parts)
    once = [_tilt(loss, tilt) for loss, count in parts if count == 1]
    once, error = _convolve_short(once, size)
    pieces = [(weights, 1) for weights in once]
    pieces += [(_tilt(loss, tilt), count) for loss, count in parts if count > 1]
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    envelope = np.zeros(size // 2 + 1)
    sensitivity = np.zeros(size // 2 + 1)
    unit = FFT_CONSTANT * math.log2(size) * EPS
    for weights, count in pieces:
        folded = np.zeros(size)
        for start in range(0, weights.size, size):
            piece = weights[start : start + size]
            folded[: piece.size] += piece
        values = np.fft.rfft(folded)
        largest = np.abs(values) + unit
        envelope += count * np.log(largest)
        sensitivity += count * (unit / largest + 8 * EPS)
        spectrum *= values if count == 1 else _power(values, count)
    # Half the spectrum is kept, so every frequency but the ends counts twice.
    error += math.sqrt(2 / size) * float(np.linalg.norm(np.exp(envelope) * sensitivity))
    return spectrum, error, offset


def _tilt(loss: GridLoss, tilt: float) -> FloatArray:
    """The masses times e^(tilt loss), scaled to a sum of one."""
    with np.errstate(divide="ignore"):
        exponents = np.log(loss.masses) + tilt * loss.losses
    weights = np.exp(exponents - exponents.max())
    return np.asarray(weights / weights.sum())


def _convolve_short(arrays: list[FloatArray], size: int) -> tuple[list[FloatArray], float]:
    """Convolve short arrays in groups of FAN while that is cheaper than a long transform of each.

    Convolving with masses of sum one does not enlarge the 2-norm of an error, so errors add up.
    """
    error = 0.0
    while len(arrays) > FAN:
        longest = max(array.size for array in arrays)
        length = fast_length(FAN * longest)
        if 2 * length > size:
            break
        unit = FFT_CONSTANT * math.log2(length) * EPS
        arrays.sort(key=lambda array: array.size)
        shorter = []
        for start in range(0, len(arrays), FAN):
            group = arrays[start : start + FAN]
            rows = np.zeros((len(group), length))
            for row, array in zip(rows, group, strict=True):
                row[: array.size] = array
                error += unit * float(np.linalg.norm(array))
            product = np.fft.irfft(np.prod(np.fft.rfft(rows, axis=1), axis=0), length)
            error += unit * float(np.linalg.norm(product))
            shorter.append(product[: sum(array.size - 1 for array in group) + 1])
        arrays = shorter
    return arrays, error


def _power(values: ComplexArray, count: int) -> ComplexArray:
    """Values ** count for |values| <= 1; error at most 4 count 2^-53."""
    size = np.minimum(np.abs(values), 1.0)
    return np.asarray(size**count * np.exp(1j * (count * np.angle(values))))


def fast_length(size: int) -> int:
    """The next even length of the form 2^a 3^b 5^c."""
    best = 1 << max(size - 1, 1).bit_length()
    for five in (1, 5, 25, 125):
        for three in (1, 3, 9, 27):
            length = five * three * 2
            while length < size:
                length *= 2
            best = min(best, length)
    return best
