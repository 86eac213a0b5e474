r"""Chains that dominate a Toeplitz strategy's Gram matrix.

In: strategy and rounds.  Out: a `Spectrum`, from which chains are made at any sigma.
Rounding: the chain's Gram matrix lies above the strategy's, rounding included.

Delta, both adjacencies, is non-decreasing in every entry of the Gram matrix and in the Loewner
order (more rows released).  The columns of the first group, the worst, have inner products of at
most g_k = sum_i c_i c_{i+bk}, the Gram matrix of full rows past the end, with the symbol

    f(t) = g_0 + 2 sum_k g_k cos(k t) >= 0.

*Loewner.*  kappa rho^|k| + omega 1{k=0} has the symbol kappa K(t) + omega with Poisson's kernel
K(t) = (1 - rho^2)/(1 - 2 rho cos t + rho^2), so omega = max_t [f(t) - kappa K(t)] dominates.
Between two nodes D apart the difference is at most the larger end plus D^2/8 times a bound on its
second derivative; |K''| <= 10 rho (1 - rho^2)/(1 - 2 rho cos t + rho^2)^2.
*Entrywise.*  kappa rho^k >= g_k for all k >= 1 and kappa + omega >= g_0.
*Mixed.*  Some g_k are raised first, entrywise, and the result is dominated in Loewner order: from G
to G + D, D the positive semidefinite difference, then entrywise up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import fft

from mmcc._arrays import FloatArray, own_arrays
from mmcc.accounting._bounds.reveal.chains.chain import Chain
from mmcc.accounting._bounds.reveal.inversion import ROUND, UP
from mmcc.sampling import Renewal, Rounds
from mmcc.strategies._toeplitz import Toeplitz

SMALLEST_DIAGONAL = 1e-10
"""A smaller g_0 / sigma^2 is raised to this: cells in x must be wider than rounding."""
LEAST_WHITE = 0.04
"""Least white fraction of the diagonal, which makes integrals over q exact on a grid."""
OVERSAMPLED, FEWEST_FREQUENCIES, MOST_FREQUENCIES = 64, 2**14, 2**22
EASY_GROWTH = 110.0
"""Largest growth (see `Chain.growth`) with blocks of one step: about 160 states."""
LONGEST_BLOCK = 4096
SLOWEST_ALONE = 0.998
"""Slower decays need longer blocks, because single steps would need too many states."""
MOST_LIFTED = 1.25
"""The largest factor by which a block may raise kappa."""
SMALLEST_PRODUCT = 1e-300
"""Smaller products of decays are raised to this, which has a finite logarithm."""
FINE_NODES = 400
"""The number of nodes in which a frequency grows by a factor e, for symbols in closed form."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Kappa in units where sigma is one, rho, and by how much g_1, g_2, ... are raised first."""

    shared: float
    decay: float
    raised: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The symbol f at frequencies from 0 to pi, and a bound on |f''| between neighbours."""

    columns: int
    nodes: FloatArray
    heights: FloatArray
    curvatures: FloatArray
    lags: FloatArray
    """g_0, g_1, ...: exact or rounded up; beyond the last the entries fall like `decay`^k."""
    decay: float = 0.0
    exact: Shape | None = None
    """The shape that equals the strategy's Gram matrix, if there is one."""

    def __post_init__(self) -> None:
        own_arrays(self, "nodes", "heights", "curvatures", "lags")

    @property
    def correlated(self) -> bool:
        """Whether the Gram matrix is more than its diagonal."""
        return self.columns > 1 and bool(self.lags[1:].any())

    def white(self, shape: Shape) -> float:
        """The omega for this kappa and rho, from the better of the two orders."""
        return min(self._loewner(shape), self._entrywise(shape))

    def _loewner(self, shape: Shape) -> float:
        kernel, curvature = poisson_kernel(self.nodes, shape.decay)
        over = self.heights - shape.shared * kernel
        bend = self.curvatures + shape.shared * curvature[:-1]
        if shape.raised:
            places, raised = np.arange(1.0, len(shape.raised) + 1), 2 * np.array(shape.raised)
            over = over + np.cos(np.multiply.outer(self.nodes, places)) @ raised
            bend = bend + float(places**2 @ raised) * UP
        gap = np.diff(self.nodes) ** 2 / 8 * bend
        slack = 64 * ROUND * (float(self.heights[0]) + shape.shared * float(kernel[0]))
        slack += 64 * ROUND * (len(shape.raised) + 1) ** 2 * math.fsum(shape.raised)
        return float(np.max(np.maximum(over[1:], over[:-1]) + gap)) + slack

    def _entrywise(self, shape: Shape) -> float:
        """The omega from the entrywise order; infinite if a lag exceeds the chain's."""
        if shape.decay < self.decay:
            return math.inf
        powers = shape.decay ** np.arange(float(self.lags.size))
        if (self.lags[1:] > shape.shared * (powers[1:] * (1 - 2 * ROUND * self.lags.size))).any():
            return math.inf
        return max(float(self.lags[0]) - shape.shared, 0.0)

    def chain(
        self, shape: Shape, sigma: float, prior: FloatArray, renewal: Renewal | None = None
    ) -> Chain | None:
        """The dominating chain at sigma; None if kappa and rho do not make one.

        The block is the shortest that keeps the growth, and with it the number of states, low:
        between steps of blocks J and K, rho^|j-l| <= rho^{1-L} (rho^L)^|J-K|.  With a gap between
        participations blocks have one step.
        """
        gap, warm = (1, False) if renewal is None else (renewal.gap, renewal.stationary)
        scale = UP / sigma / sigma
        if not self.correlated:
            diagonal = max(float(self.lags[0]) * scale, SMALLEST_DIAGONAL)
            return Chain(self.columns, 1, 0.0, 0.0, diagonal, prior, gap, warm)
        if not (0 < shape.decay < 1 and 0 < shape.shared < math.inf):
            return None
        if gap > 1 and shape.decay > SLOWEST_ALONE:
            return None
        shared, white = shape.shared * scale, max(self.white(shape), 0.0) * scale
        chains = []
        block = 1
        while block <= (min(LONGEST_BLOCK, self.columns) if gap == 1 else 1):
            lifted, slow = shared * shape.decay ** (1 - block) * UP, shape.decay**block * UP
            if not slow < 1 or (block > 1 and lifted > MOST_LIFTED * shared):
                break
            least = max(LEAST_WHITE / (1 - LEAST_WHITE) * lifted, SMALLEST_DIAGONAL)
            rest = max(white - (lifted - shared), least) * UP
            count = -(-self.columns // block)
            chains.append(Chain(count, block, lifted, slow, rest, prior, gap, warm))
            block *= 2
        if not chains:
            return None
        enough = max(EASY_GROWTH, 1.2 * min(chain.growth for chain in chains))
        return next(chain for chain in chains if chain.growth <= enough)


def poisson_kernel(nodes: FloatArray, decay: float) -> tuple[FloatArray, FloatArray]:
    """K at the nodes, and a bound on |K''| beyond each node, which falls with the frequency."""
    gap = (1 - decay) * (1 - decay) + 4 * decay * np.sin(0.5 * nodes) ** 2
    mass = (1 - decay) * (1 + decay)
    return mass / gap, 10 * decay * mass / gap**2 * UP


def spectrum_of(strategy: Toeplitz, rounds: Rounds) -> Spectrum:
    """The spectrum of the first group of steps, which is the worst as most rows follow it."""
    columns = rounds.count(strategy.steps)
    buffers = strategy.buffer_numbers
    if buffers is not None and columns > 1:
        return _buffered(columns, rounds.separation, strategy.steps, *buffers)
    return _banded(columns, rounds.separation, strategy.coefficients)


def buffered_gram(
    separation: int, steps: int, decay: FloatArray, scale: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """g_0, the a_i and r_i^b: g_k = sum_i a_i r_i^{bk} for k >= 1, rounded up.

    a_i = w_i/r_i + w_i sum_m w_m/(1 - r_i r_m).  Sums over rows that are left for the first column:
    with m = n - 1 - b of them at distance one, w_i w_m r_i^k (1 - (r_i r_m)^m)/(1 - r_i r_m) is an
    upper bound for k >= 1.
    """
    products = np.maximum(np.multiply.outer(decay, decay), SMALLEST_PRODUCT)
    weights = np.multiply.outer(scale, scale)
    with np.errstate(under="ignore"):
        whole = weights * -np.expm1((steps - 1) * np.log(products)) / (1 - products)
        part = weights * -np.expm1(max(steps - 1 - separation, 0) * np.log(products))
        part /= 1 - products
    # A rounding of r_i r_m counts once for every row.
    grown = UP * (1 + 8 * ROUND * min(steps, 1 / (1 - float(products.max()))))
    diagonal = (1 + float(whole.sum())) * grown
    shares = (scale / decay + part.sum(axis=1)) * grown
    # The largest number below one is at least any power of a decay.
    decays = np.minimum(decay**separation * (1 + 4 * ROUND * separation), 1 - ROUND / 2)
    return diagonal, shares, decays


def _buffered(
    columns: int, separation: int, steps: int, decay: FloatArray, scale: FloatArray
) -> Spectrum:
    """The spectrum of a BLT, by Poisson kernels."""
    diagonal, shares, decays = buffered_gram(separation, steps, decay, scale)
    nodes = _fine_nodes(float(decays.max()))
    heights = np.full(nodes.size, diagonal - float(shares.sum()))
    curvatures = np.zeros(nodes.size - 1)
    for share, rate in zip(shares, decays, strict=True):
        kernel, curvature = poisson_kernel(nodes, float(rate))
        heights += share * kernel
        curvatures += share * curvature[:-1]
    lag = float(shares @ decays)
    error = 64 * ROUND * float(heights[0])
    lags = np.array([diagonal * UP, lag * UP])
    exact = Shape(float(shares[0]), float(decays[0])) if shares.size == 1 else None
    return Spectrum(columns, nodes, heights + error, curvatures, lags, float(decays.max()), exact)


def _fine_nodes(decay: float) -> FloatArray:
    """Frequencies that are dense where Poisson's kernel with this decay varies."""
    width = 1 - decay
    linear = np.linspace(0, width, FINE_NODES)
    count = math.ceil(FINE_NODES * max(math.log(math.pi / width), 1.0))
    return np.concatenate([linear, np.geomspace(width, math.pi, count)[1:-1], [math.pi]])


def _banded(columns: int, separation: int, coefficients: FloatArray) -> Spectrum:
    """The spectrum of a banded strategy, by Fourier transforms of the inner products."""
    lags = _inner_products(coefficients, separation, columns)
    size = max(min(OVERSAMPLED * lags.size, MOST_FREQUENCIES), 4 * lags.size, FEWEST_FREQUENCIES)
    size = fft.next_fast_len(size, real=True)
    places = np.arange(float(lags.size))
    # Cosine sums at 2 pi j / size, j up to size / 2; rounding is small beside the sum of moduli.
    heights, second = (
        2 * np.real(fft.rfft(sequence, size)) - sequence[0] for sequence in (lags, places**2 * lags)
    )
    total, third = float(lags.sum()), 2 * float(places**3 @ lags)
    nodes = 2 * math.pi / size * np.arange(float(heights.size))
    rounding = 64 * ROUND * math.log2(size)
    bends = np.abs(second) + rounding * float(places**2 @ lags)
    step = 2 * math.pi / size
    curvatures = np.maximum(bends[1:], bends[:-1]) + 0.5 * step * third
    if nodes[-1] < math.pi:  # an odd size: the symbol is symmetric from the last node to pi
        nodes[-1] = math.pi
        heights[-1] += 0.5 * step * step * float(curvatures[-1])
    return Spectrum(columns, nodes, heights + rounding * total, curvatures * UP, lags * UP)


def _inner_products(coefficients: FloatArray, separation: int, columns: int) -> FloatArray:
    """g_k = sum_i c_i c_{i+bk}, rounded up."""
    c = coefficients
    places = range(0, c.size, separation)[:columns]
    if len(places) <= 2048:
        lags = np.array([float(c[: c.size - k] @ c[k:]) for k in places])
        return lags * (1 + 2 * c.size * ROUND)
    size = fft.next_fast_len(2 * c.size, real=True)
    spectrum = fft.rfft(c, size)
    found = fft.irfft((spectrum * spectrum.conj()).real, size)[: c.size : separation][:columns]
    return np.maximum(found, 0.0) + 64 * ROUND * math.log2(size) * float(c @ c)
