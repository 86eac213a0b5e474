"""The longest |C 1_S| over participation sets that are not evenly spaced.

In: the matrix of inner products G = C^T C >= 0.  Out: upper bounds on max_S 1_S^T G 1_S.
For each column j the most that a set can add to it, c_j = max_S sum_(l in S) G_jl; then the most
that a set can collect of these, max_S sum_(j in S) c_j.  Sums of non-negative terms.
"""

from __future__ import annotations

import numpy as np

from mmcc._arrays import FloatArray


def largest_apart(gram: FloatArray, separation: int) -> float:
    """Sets whose steps are at least `separation` apart: dynamic programming, O(n^2)."""
    return float(_most_apart(_most_apart(gram, separation)[None, :], separation)[0])


def largest_shuffled(gram: FloatArray, epoch_steps: int, times: int = 1) -> float:
    """Sets with so many steps in each epoch."""
    most = _most_in_epochs(gram, epoch_steps, times)
    return float(_most_in_epochs(most[None], epoch_steps, times)[0])


def _most_in_epochs(rows: FloatArray, epoch_steps: int, times: int) -> FloatArray:
    """The largest sum of so many entries of each epoch, in every row."""
    epochs = rows.reshape(len(rows), -1, epoch_steps)
    if times == 1:
        return np.asarray(epochs.max(axis=2).sum(axis=1))
    largest = np.partition(epochs, epoch_steps - times, axis=2)[:, :, epoch_steps - times :]
    return np.asarray(largest.sum(axis=(1, 2)))


def _most_apart(rows: FloatArray, separation: int) -> FloatArray:
    """The largest sum of entries at least `separation` apart, in every row."""
    steps = rows.shape[1]
    best = np.zeros((steps + 1, len(rows)))  # best[l]: of the first l entries
    for step in range(steps):
        taken = rows[:, step] + best[max(step + 1 - separation, 0)]
        np.maximum(best[step], taken, out=best[step + 1])
    return np.asarray(best[-1])
