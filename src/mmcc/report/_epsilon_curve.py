"""The epsilon-delta curve of a mechanism around one delta, as certified points.

In: a mechanism and the bracket at the delta that was asked for.  Out: points, by increasing delta,
and a note for each that cannot be certified.
Rounding: upper ends upwards, lower ends downwards.  Every point holds under the assumptions of the
guarantee.  The deltas are fixed: a report does not depend on how busy the machine is.
"""

from __future__ import annotations

from typing import Any

from mmcc.accounting._bounds import PLAIN
from mmcc.accounting._guarantee import Bracket, assumes_more
from mmcc.accounting._parallel import Progress
from mmcc.accounting._questions import MIN_DELTA, bracket
from mmcc.errors import MmccError
from mmcc.report._facts import Dot
from mmcc.sampling import Scheme
from mmcc.strategies._base import Order, Strategy

DECADES = (1, -1, 2, -2, 3, -3)
"""Where the points are, in powers of ten from the delta asked for: near ones first."""
LARGEST = 0.1
SMALLEST = max(1e-30, MIN_DELTA)


def dots_around(
    asked: Bracket,
    strategy: Strategy,
    scheme: Scheme,
    *,
    order: Order | None = None,
    progress: Progress | None = None,
) -> tuple[tuple[Dot, ...], tuple[str, ...]]:
    """The point that was asked for and those around it, and why any is missing."""
    found, missing = [_dot(asked)], []
    guarantee = asked.guarantee
    given: dict[str, Any] = {"sigma": guarantee.sigma, "progress": progress}
    given["group_size"] = guarantee.group_size
    for decades in DECADES:
        delta = float(f"{guarantee.delta * 10.0**decades:.9g}")
        if not SMALLEST <= delta <= LARGEST:
            continue
        try:
            other = bracket(
                strategy, scheme, delta=delta, method=guarantee.method, order=order, **given
            )
            if assumes_more(other.guarantee, guarantee):
                other = bracket(strategy, scheme, delta=delta, method=PLAIN.name, **given)
        except MmccError as problem:  # the answer stands without this point
            missing.append(f"Nothing is certified at δ = {delta!r}: {problem}")
            continue
        found.append(_dot(other))
        if progress is not None:
            progress("points of the curve", len(found))
    return tuple(sorted(found, key=lambda dot: dot.delta)), tuple(missing)


def _dot(found: Bracket) -> Dot:
    return Dot(found.guarantee.delta, found.lower, found.upper)
