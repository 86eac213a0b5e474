"""Strategies worth comparing, by the words of `mmcc compare`."""

from __future__ import annotations

from mmcc.strategies._registry import CONTINUAL_COUNTING, IDENTITY, TUNED_BLT

MOST_DENSE = 2048
"""Default strategies without few bands are left out above this many steps: minutes a row."""
MANY_PARTS = 4
"""With fewer participations a BLT is tuned slowly and bands do as well."""
FEW, MANY = 16, 100
"""Bands of the default banded strategies, at most."""


def default_words(steps: int, rate: float) -> tuple[str, ...]:
    """Strategies that may win at this length and rate, within minutes."""
    longest = round(min(1 / rate, float(steps)))
    bands = dict.fromkeys(b for b in (min(FEW, longest), min(MANY, longest)) if b > 1)
    banded = (f"{CONTINUAL_COUNTING.name}:{b}" for b in bands)
    dense = (CONTINUAL_COUNTING.name,) if steps <= MOST_DENSE else ()
    tuned = (TUNED_BLT.name,) if steps > 1 and steps * rate >= MANY_PARTS else ()
    return (IDENTITY.name, *dense, *banded, *tuned)
