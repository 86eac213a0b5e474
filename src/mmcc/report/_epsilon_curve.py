"""The epsilon-delta curve of a mechanism around one delta, as certified dots.

In: a mechanism and the bracket at the delta that was asked for.  Out: dots, by increasing delta.
Rounding: upper ends upwards, lower ends downwards.  Every dot holds under what the guarantee
assumes.

The curve h(x) = sup_A P(A) - x Q(A), x = e^epsilon, is convex, for several groups of examples and
both adjacencies too, as a maximum of convex curves.  So between two dots it lies below their chord
in x, which is certified as well.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mmcc._arrays import FloatArray
from mmcc.accounting._bounds import PLAIN
from mmcc.accounting._guarantee import Bracket, assumes_more
from mmcc.accounting._parallel import Progress
from mmcc.accounting._questions import MIN_DELTA, bracket
from mmcc.errors import MmccError
from mmcc.report._facts import Dot
from mmcc.sampling import Scheme
from mmcc.strategies._base import Order, Strategy

DECADES = (1, -1, 2, -2, 3, -3, 4, -4)
"""Where dots lie, from the delta asked for: near ones first."""
LARGEST = 0.1
SMALLEST = max(1e-30, MIN_DELTA)
SECONDS = 5.0
"""For all dots but the one that was asked for."""


def dots_around(
    asked: Bracket,
    strategy: Strategy,
    scheme: Scheme,
    *,
    order: Order | None = None,
    seconds: float = SECONDS,
    took: float = 0.0,
    progress: Progress | None = None,
) -> tuple[Dot, ...]:
    """The dot that was asked for, and as many around it as the time allows.

    `took` are the seconds of the dot that was asked for.  A question is not begun if one like the
    last would end too late.
    """
    found = [_dot(asked)]
    guarantee = asked.guarantee
    given: dict[str, Any] = {"sigma": guarantee.sigma, "progress": progress}
    given["group_size"] = guarantee.group_size
    start, last = time.monotonic(), took
    for decades in DECADES:
        delta = float(f"{guarantee.delta * 10.0**decades:.9g}")
        began = time.monotonic()
        if began + last > start + seconds:
            break
        if not SMALLEST <= delta <= LARGEST:
            continue
        try:
            other = bracket(
                strategy, scheme, delta=delta, method=guarantee.method, order=order, **given
            )
            if assumes_more(other.guarantee, guarantee):
                other = bracket(strategy, scheme, delta=delta, method=PLAIN.name, **given)
        except MmccError:  # the answer stands; this dot cannot be certified
            continue
        finally:
            last = time.monotonic() - began
        found.append(_dot(other))
        if progress is not None:
            progress("dots of the curve", len(found))
    return tuple(sorted(found, key=lambda dot: dot.delta))


def bound_between(dots: Sequence[Dot], points: int = 24) -> tuple[FloatArray, FloatArray]:
    """Epsilons and certified deltas on the chords in e^epsilon from dot to dot."""
    lowest: dict[float, float] = {}
    for dot in dots:
        lowest[dot.upper] = min(lowest.get(dot.upper, 1.0), dot.delta)
    corners = sorted(lowest.items())
    epsilons: list[float] = []
    deltas: list[float] = []
    for (left, high), (right, low) in pairwise(corners):
        between = np.linspace(left, right, points)
        # The share of e^epsilon from left to right, without numbers that do not fit.
        share = np.expm1(between - left) * math.exp(left - right) / -math.expm1(left - right)
        epsilons += between.tolist()
        deltas += (high + (low - high) * np.clip(share, 0.0, 1.0)).tolist()
    return np.array(epsilons), np.array(deltas)


def _dot(found: Bracket) -> Dot:
    return Dot(found.guarantee.delta, found.lower, found.upper)
