"""Variance of each step's estimate from a tree, at sigma = 1.

In: a tree, a decoder, and a lower-triangular workload A: the coefficients of a Toeplitz one, or
rows.  Out: the squared norms of the rows of A B (B C = I).
Rounding: plain floating point; sums of squares, except for one difference where steps are cut off.

Online and causal Honaker: node k of level h is part of every prefix estimate from the step that
completes it until its parent is complete (right children never, roots forever).  So row t of A
gives it the weight  d = A[t, first] - A[t, end].  Its estimate and that of a node g levels up share
the variance  (1 - w) ... (1 - w) v  of the lower one, so the variance of row t is

    sum over used nodes of  d_h (v_h d_h + 2 S_h),
    S_h = (1 - w_h) (S_(h-1) of both children + v_(h-1) d_(h-1) of the left child).

Full least squares: C^T C of a complete tree has the Haar wavelets as eigenvectors, with the
eigenvalue 2^l - 1 for a wavelet on a node of level l and 2^(H+1) - 1 for the constant.

For a Toeplitz A all of this depends only on the time since the node was complete, so a level costs
O(n): sums along a stride.  Each row costs O(n).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.errors import MethodError, whole
from mmcc.strategies._base import FULL, HONAKER, ONLINE

if TYPE_CHECKING:
    from mmcc.strategies._tree import Tree

MAX_LEVELS = 41


def level_weights(levels: int, decoder: str = HONAKER) -> FloatArray:
    """The weight w_h of a node's own release, by level; 1 - w_h goes to each of its children."""
    levels = whole("levels", levels, 1, MAX_LEVELS)
    if decoder == ONLINE:
        return np.ones(levels)
    if decoder == HONAKER:
        return 1 / (2 - 0.5 ** np.arange(levels))
    raise MethodError(f"decoder={decoder!r} has no weights by level: only {ONLINE} and {HONAKER}.")


def level_variances(weights: FloatArray) -> FloatArray:
    """Variance of a node's estimate, by level, at sigma = 1: w_h^2 + 2 (1 - w_h)^2 v_(h-1)."""
    variances = np.ones(weights.size)
    for h in range(1, weights.size):
        variances[h] = weights[h] ** 2 + 2 * (1 - weights[h]) ** 2 * variances[h - 1]
    return variances


def toeplitz_variances(tree: Tree, decoder: str, coefficients: FloatArray) -> FloatArray:
    """Variance of each step for the workload A[t, s] = coefficients[t - s]."""
    if decoder == FULL:
        return _full_toeplitz(tree, coefficients)
    return _causal_toeplitz(tree, level_weights(tree.levels, decoder), coefficients)


def schedule_variances(
    tree: Tree, decoder: str, learning_rates: FloatArray, momentum: float
) -> FloatArray:
    """Variance of each step for SGD with learning rates and momentum; not for the full decoder."""
    from mmcc.strategies._recurrences import scheduled_tree  # compiles

    weights = level_weights(tree.levels, decoder)
    found = scheduled_tree(learning_rates, momentum, weights, level_variances(weights))
    return np.asarray(found)


def row_variances(tree: Tree, decoder: str, rows: FloatArray) -> FloatArray:
    """Variance of each of the given rows of A."""
    if decoder == FULL:
        return _full_rows(tree, rows)
    return _causal_rows(tree, level_weights(tree.levels, decoder), rows)


def prefix_weights(tree: Tree, decoder: str) -> FloatArray:
    """The weight of each release in the estimate of each prefix; not for the full decoder."""
    prefixes = np.zeros((tree.steps, tree.rows))
    weights = level_weights(tree.levels, decoder)
    top = tree.levels - 1
    estimates = np.zeros((0, tree.rows))
    for level in range(tree.levels):
        nodes = tree.steps >> level
        own = np.zeros((nodes, tree.rows))
        own[np.arange(nodes), tree.node_rows(level)] = weights[level]
        if level:
            children = estimates[0 : 2 * nodes : 2] + estimates[1 : 2 * nodes : 2]
            own += (1 - weights[level]) * children
        estimates = own
        for node in range(0, nodes, 1 if level == top else 2):
            first = (node + 1) << level
            end = tree.steps + 1 if level == top else first + (1 << level)
            prefixes[first - 1 : end - 1] += estimates[node]
    return prefixes


def _along_stride(values: FloatArray, stride: int) -> FloatArray:
    """values[y] + values[y - stride] + values[y - 2 stride] + ..."""
    if stride >= values.size:
        return values
    padded = np.zeros(-(-values.size // stride) * stride)
    padded[: values.size] = values
    return np.cumsum(padded.reshape(-1, stride), axis=0).reshape(-1)[: values.size]


def _delayed(values: FloatArray, delay: int) -> FloatArray:
    """values[y - delay], zero before the start."""
    result = np.zeros(values.size)
    result[delay:] = values[: max(values.size - delay, 0)]
    return result


def _causal_toeplitz(tree: Tree, weights: FloatArray, a: FloatArray) -> FloatArray:
    """Variances with everything as a function of u, the steps since the node was complete."""
    steps, top = tree.leaves, tree.levels - 1
    variances = level_variances(weights)
    total = np.zeros(steps)
    shared = np.zeros(steps)  # S_h(u)
    change = np.zeros(steps)  # d_h(u) of a node in use until its parent is complete
    for level in range(tree.levels):
        size = 1 << level
        ages = steps - size + 1
        if level:
            half = size // 2
            left = shared[half : half + ages] + variances[level - 1] * change[half : half + ages]
            shared = (1 - weights[level]) * (shared[:ages] + left)
        else:
            shared = shared[:ages]
        change = a[:ages] if level == top else a[:ages] - _delayed(a[:ages], size)
        found = change * (variances[level] * change + 2 * shared)
        total[size - 1 :] += _along_stride(found, size if level == top else 2 * size)
    return total


def _causal_rows(tree: Tree, weights: FloatArray, rows: FloatArray) -> FloatArray:
    """The same for given rows, with nodes as columns; right children keep weight zero."""
    steps, top = tree.leaves, tree.levels - 1
    variances = level_variances(weights)
    total = np.zeros(len(rows))
    shared = change = np.zeros(rows.shape)
    for level in range(tree.levels):
        size, nodes = 1 << level, steps >> level
        if level:
            pairs = shared + variances[level - 1] * change
            pairs = pairs[:, 0 : 2 * nodes : 2] + shared[:, 1 : 2 * nodes : 2]
            shared = (1 - weights[level]) * pairs
        change = rows[:, size - 1 : nodes * size : size].copy()
        if level < top:
            change[:, :-1] -= change[:, 1:].copy()
            change[:, 1::2] = 0.0
        total += np.einsum("rk,rk->r", change, variances[level] * change + 2 * shared)
    return total


def _full_toeplitz(tree: Tree, a: FloatArray) -> FloatArray:
    """Variances with everything as a function of y, the steps since the node's first, inclusive."""
    steps, top = tree.leaves, tree.levels - 1
    sums = np.concatenate([[0.0], np.cumsum(a)])
    total = np.zeros(steps + 1)
    for level in range(tree.levels):
        size = 1 << level
        complete = (steps >> level) * size
        within = sums - _delayed(sums, size)
        root = np.square(within) / (size * (2.0 * size - 1))
        if level:
            halves = within - 2 * _delayed(sums, size // 2) + 2 * _delayed(sums, size)
            found = np.square(halves) / (size * (size - 1.0))
        else:
            found = np.zeros(steps + 1)
        if level == top:
            found += root
        total += _along_stride(found, size)
        total[complete:] -= found[: steps + 1 - complete]  # a node that is never complete
        if level < top and steps >> level & 1:
            total[complete - size :] += root[: steps + 1 - complete + size]
    return total[1:]


def _full_rows(tree: Tree, rows: FloatArray) -> FloatArray:
    """The same for given rows, with the sums over nodes as columns."""
    steps, top = tree.leaves, tree.levels - 1
    total = np.zeros(len(rows))
    sums = rows
    for level in range(tree.levels):
        size, nodes = 1 << level, steps >> level
        if level:
            left, right = sums[:, 0 : 2 * nodes : 2], sums[:, 1 : 2 * nodes : 2]
            total += np.square(left - right).sum(axis=1) / (size * (size - 1.0))
            sums = left + right
        roots = sums if level == top else sums[:, nodes - (nodes & 1) :]
        total += np.square(roots).sum(axis=1) / (size * (2.0 * size - 1))
    return total
