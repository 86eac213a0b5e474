r"""Delta curves of mechanisms, as certified points, and privacy losses that dominate them.

In: a mechanism, or points of its curve.  Out: points, or masses on a grid.  Rounding: upwards.

If h(x) is the curve of a pair (P, Q) at x = e^epsilon, that of (Q, P) is 1 - x + x h(1/x).  So dots
(e^epsilon, delta) of both adjacencies at epsilon >= 0 are dots of each one at all their +-epsilon.
`mmcc.accounting._losses.dots` connects them to a pair that dominates the mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mmcc._methods import TIGHT
from mmcc.accounting._guarantee import assumes_more
from mmcc.errors import NothingCertifiedError, PrecisionError, real
from mmcc.ledger._entries import DeltaDot, Fingerprint, Planned
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy

if TYPE_CHECKING:
    from mmcc._arrays import FloatArray, IntArray
    from mmcc.accounting._guarantee import Guarantee
    from mmcc.accounting._losses.grid import GridLoss
    from mmcc.accounting._parallel import Progress

DOTS = 40
"""A curve has between this many points and twice as many."""
END = 1e-4
"""Share of delta at which a curve ends; the remaining mass has infinite loss."""
LEAST_DELTA = 1e-195
"""The least delta of a planned run: `END` of it must exceed the least delta of the accounting."""
FARTHEST = 600.0
"""The largest epsilon for which e^epsilon fits into a float."""
FINEST = 2.0**-45
"""The finest grid: with a finer one, the rounding of e^epsilon would dominate."""


def planned(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    delta: float,
    fingerprint: str | Mapping[str, str],
    mechanism: str | None = None,
    method: str = TIGHT,
    progress: Progress | None = None,
) -> Planned:
    """A run for a plan: its guarantee at `delta`, and points of its delta curve.

    `fingerprint` is the one with which the run will begin, and `method` that of its guarantee: runs
    of `mmcc.training` under Shuffle have "unamplified".  Every point holds under the assumptions of
    the guarantee.  Each is a question to the accounting, so strategies that take a second per
    question take up to a minute in all.
    """
    from mmcc.accounting import _questions as solve  # numba takes a second
    from mmcc.accounting._bounds import PLAIN

    delta = real("delta", delta, LEAST_DELTA, 1)
    found = solve.epsilon(strategy, sampling, sigma=sigma, delta=delta, method=method)

    def ask(question: Callable[..., Guarantee], **at: float) -> Guarantee:
        """Use the method until it assumes too much; then unamplified, which assumes least."""
        nonlocal method
        asked = question(strategy, sampling, sigma=sigma, method=method, **at)
        if not assumes_more(asked, found):
            return asked
        method = PLAIN.name
        return question(strategy, sampling, sigma=sigma, method=method, **at)

    try:
        far = ask(solve.epsilon, delta=END * delta)
    except NothingCertifiedError:  # no such delta is certified: the curve ends at the guarantee
        far = found
    dots: list[DeltaDot] = []
    if 0 < far.epsilon <= FARTHEST:
        spacing = 2.0 ** math.floor(math.log2(far.epsilon / DOTS))  # multiples are exact
        for place in range(math.ceil(far.epsilon / spacing) + 1):
            epsilon = place * spacing
            dots.append(DeltaDot(epsilon, *_sides(ask(solve.delta, epsilon=epsilon))))
            if progress is not None:
                progress("dots of the delta curve", len(dots))
    printed: Fingerprint = fingerprint if isinstance(fingerprint, str) else dict(fingerprint)
    return Planned(mechanism or f"{strategy!r}, {sampling!r}", printed, found, tuple(dots))


def _sides(found: Guarantee) -> tuple[float, float]:
    """Certified deltas of both adjacencies, each for every group of examples."""
    details = found.details
    if "remove" in details:
        return details["remove"], details["add"]
    return found.delta, found.delta


def dots_of(run: Planned) -> tuple[DeltaDot, ...]:
    """All points of a planned run that fit on a grid: those of its curve, and its guarantee."""
    pair = run.guarantee
    dots = run.curve
    if pair.epsilon <= FARTHEST:
        dots = (*dots, DeltaDot(pair.epsilon, pair.delta, pair.delta))
    near = tuple(dot for dot in dots if dot.epsilon <= FARTHEST)
    if not near:
        raise PrecisionError(f"an epsilon of {pair.epsilon:g} is too large for a grid of losses.")
    return near


def common_spacing(curves: Sequence[Sequence[DeltaDot]]) -> float:
    """A power of two, fine enough for the shortest curve and not too fine for the longest."""
    tops = [max(dot.epsilon for dot in curve) for curve in curves]
    shortest = min((top for top in tops if top > 0), default=1.0)
    wanted = max(shortest * 2.0**-12, max(tops) * 2.0**-19, FINEST)
    return float(2.0 ** math.floor(math.log2(wanted)))


def losses_above(dots: Sequence[DeltaDot], spacing: float, remove: bool) -> GridLoss:
    """Privacy losses on a grid whose delta curve is above that of the mechanism of the points."""
    from mmcc.accounting._losses.dots import connect  # scipy and numba take a second

    return connect(*_lowest(dots, spacing, remove), spacing)


def _lowest(dots: Sequence[DeltaDot], spacing: float, remove: bool) -> tuple[IntArray, FloatArray]:
    """Grid indices, possibly negative, with the smallest height known at each, rounded up.

    A point moves up to the next index: a curve that never rises is at most as high there.
    """
    lowest: dict[int, float] = {}
    for dot in dots:
        place = max(math.ceil(dot.epsilon / spacing), 1)
        here, mirrored = (dot.remove, dot.add) if remove else (dot.add, dot.remove)
        at = place * spacing
        height = (-math.expm1(-at) + math.exp(-at) * mirrored) * (1 + 1e-15)
        for key, value in ((place, here), (-place, height)):
            lowest[key] = min(lowest.get(key, 1.0), value)
    if any(dot.epsilon == 0 for dot in dots):
        lowest[0] = min(min(dot.remove, dot.add) for dot in dots if dot.epsilon == 0)
    places = sorted(lowest)
    return np.array(places), np.array([lowest[place] for place in places])
