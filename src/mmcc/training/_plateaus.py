"""Learning rates that are set by what a run shows on its way.

In: torch's ReduceLROnPlateau, in use with the optimizer of a run.  Out: a warning, once a run.
Any number from the training data that moves the learning rate is a release, and carries no noise.
Which data the number comes from cannot be seen.
"""

from __future__ import annotations

import warnings
import weakref
from functools import wraps
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

_WATCHED: weakref.WeakKeyDictionary[Optimizer, list[bool]] = weakref.WeakKeyDictionary()
"""Optimizers of runs, with whether the run's warning was given."""


def warn_of_plateaus(*optimizers: Optimizer) -> None:
    """Warn when the rate of one of these, which are of one run, is set by a plateau."""
    told = [False]
    for optimizer in optimizers:
        _WATCHED[optimizer] = told
    if not hasattr(ReduceLROnPlateau.step, "__wrapped__"):
        # A schedule says nothing to its optimizer, so that it can only be seen here.
        ReduceLROnPlateau.step = _watched(ReduceLROnPlateau.step)  # type: ignore[method-assign]


def _watched(step: Any) -> Any:
    @wraps(step)
    def watched(self: ReduceLROnPlateau, *args: Any, **kwargs: Any) -> Any:
        told = _WATCHED.get(self.optimizer)
        if told is not None and not told[0]:
            told[0] = True
            warnings.warn(
                "ReduceLROnPlateau sets the learning rate by the number it is given: if that comes "
                "from the training data, it is a release without noise, which the guarantee does "
                "not cover. Use a schedule that is fixed in advance, or other data.",
                stacklevel=2,
            )
        return step(self, *args, **kwargs)

    return watched
