from __future__ import annotations

import numpy as np

from mmcc.strategies import Strategy


class Falling(Strategy):
    """Every release holds the last three gradients, the oldest with less weight each time."""

    def __init__(self, length):
        self.length = length

    @property
    def steps(self):
        return self.length

    rows = steps

    def prefix(self, steps):
        return Falling(steps)

    def _dense(self):
        weights = np.eye(self.length) + 0.5 * np.eye(self.length, k=-1)
        return weights + np.diag(0.25 / np.arange(1, self.length - 1), k=-2)
