r"""One epoch as a matrix from state to state, with e^{-lam F} in place of a power of F.

In: an `EpochLattice`, rates lam.  Out: K_lam[q, q'] = E[e^{-lam F}], or E[F^k]/k!.
Rounding: to nearest; `rounding` bounds the error.

K_lam = sum_s T^{s-1} M T_1 ... T_{t-s}: T is a site (the mean of e^{-lam e^x/t}) and a move, M the
marked one, T_d the site d steps after the mark and a move.  By Horner's rule, with C_m = M T_1 ...
T_m: Y_m = T Y_{m-1} + C_m, and K = Y_{t-1}.  Moves are real and the same for all rates.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import factorial

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds.reveal.epochs.lattice import EpochLattice
from mmcc.accounting._bounds.reveal.inversion import ROUND

BATCH_ENTRIES = 2**18
Times = Callable[[np.ndarray, np.ndarray], np.ndarray]


def laplace(lattice: EpochLattice, rates: np.ndarray) -> np.ndarray:
    """K_lam for each rate, real or complex: [rate, state, state]."""
    size = max(BATCH_ENTRIES // lattice.states.size**2, 1)
    parts = [
        _epoch(lattice, np.exp(-np.multiply.outer(lattice.parts, rates[i : i + size])), np.multiply)
        for i in range(0, rates.size, size)
    ]
    return np.concatenate(parts)


def powers(lattice: EpochLattice, count: int) -> FloatArray:
    """E[F^k]/k! for k < count: [k, state, state].  All terms are positive."""
    orders = np.arange(count)
    terms = np.power.outer(lattice.parts, orders) / factorial(orders)
    return np.asarray(_epoch(lattice, terms, _series_product))


def _series_product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The product of power series along the last axis, cut at their length."""
    product = first[..., :1] * second
    for k in range(1, first.shape[-1]):
        product[..., k:] += first[..., k : k + 1] * second[..., :-k]
    return np.asarray(product)


def _epoch(lattice: EpochLattice, factors: np.ndarray, times: Times) -> np.ndarray:
    """The sum over marks; factors[node, i] may be anything that `times` multiplies along i."""
    site = (lattice.masses(0) @ factors)[:, None]
    marked = lattice.marked_masses() @ factors
    # after[b, a] leads from state a to b, so moves multiply from the left.
    after = lattice.marked_move.T[:, :, None] * marked
    total = after.swapaxes(0, 1)
    for later in range(1, lattice.length):
        here = (lattice.masses(later) @ factors)[:, None]
        after = _multiply_left(lattice.move.T, times(here, after))
        total = times(site, _multiply_left(lattice.move, total)) + after.swapaxes(0, 1)
    return np.ascontiguousarray(np.moveaxis(total, -1, 0))


def _multiply_left(move: FloatArray, array: np.ndarray) -> np.ndarray:
    """The product with a real matrix on the left."""
    flat = np.ascontiguousarray(array).reshape(len(array), -1)
    product = move @ flat.view(float)
    return np.asarray(product.view(flat.dtype).reshape(array.shape))


def rounding(lattice: EpochLattice, reach: float, terms: int = 1) -> float:
    """Relative error of an epoch; `reach` bounds the exponents, `terms` are added in a product.

    A step is a sum over outputs of masses times exponentials, a product, a sum over states and one
    more addition; each of the t steps of a path adds these errors.
    """
    step = 8 * ROUND * (lattice.nodes.size + lattice.states.size + terms + 4 * reach + 100)
    return float(np.expm1(lattice.length * step))
