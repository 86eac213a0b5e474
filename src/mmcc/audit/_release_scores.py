"""Scores of canaries from what was released in their directions, step after step.

In: the mechanism as it was accounted, releases in units of the clip norm.  Out: for each canary
the log-likelihood ratio of its releases, being in the data against being left out.
Rounding: plain floating point; any score gives a valid audit, a better one a larger bound.

A canary has a direction of its own in which it contributes 1 wherever it takes part, and others
nothing: what is released there is x + noise, as in `mmcc.audit.audit`.  A scheme in which examples
are not independent is scored by the independent scheme that it is close to.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from mmcc._arrays import FloatArray
from mmcc.audit._guesses import MODEL
from mmcc.audit._statistic import LikelihoodRatio, likelihood_ratio, whitener
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy


class ReleaseScores:
    """The scores of releases of one mechanism."""

    def __init__(
        self,
        strategy: Strategy,
        scheme: Scheme,
        sigma: float,
        decoder: str | None,
        generator: np.random.Generator,
    ) -> None:
        relaxed = scheme.relaxed(strategy.steps)
        self.strategy, self.sigma = strategy, sigma
        self.scheme = scheme if relaxed is None else relaxed.scheme
        self.white = whitener(strategy, sigma, decoder)
        self._generator = generator
        self._ratios: dict[int, LikelihoodRatio] = {}

    def of(self, released: FloatArray, group: int | None = 0) -> FloatArray:
        """One score per row; with None a canary's group is unknown, where groups take turns."""
        white = released @ self.white.T
        if group is not None:
            return self._ratio(group).logs(white)
        groups = range(self.scheme.stride(self.strategy.steps))
        return np.asarray(logsumexp([self._ratio(one).logs(white) for one in groups], axis=0))

    def model(self, group: int) -> tuple[FloatArray, FloatArray]:
        """Scores of canaries that are in the data and of others, if all is as accounted."""
        steps = self.strategy.steps
        noise = self._generator.standard_normal((2, MODEL, steps))
        sets = self.scheme.draw(steps, MODEL, self._generator, group)
        presence = np.zeros((MODEL, steps))
        presence[sets.owners(), sets.steps] = 1.0
        noise[0] += presence @ self.white.T
        ratio = self._ratio(group)
        return ratio.logs(noise[0]), ratio.logs(noise[1])

    @property
    def description(self) -> str:
        """How the scores are computed."""
        return "; ".join(dict.fromkeys(ratio.description for ratio in self._ratios.values()))

    def _ratio(self, group: int) -> LikelihoodRatio:
        if group not in self._ratios:
            self._ratios[group] = likelihood_ratio(
                self.strategy, self.scheme, self.sigma, group, self.white, self._generator
            )
        return self._ratios[group]
