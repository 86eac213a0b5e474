"""Strategies worth comparing, by name.

In: words such as `continual-counting:16`.  Out: strategies; a number after the colon is the number
of bands, the height or the number of buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mmcc import strategies
from mmcc.design._tuned import TunedBlt
from mmcc.errors import StrategyError, shown, suggestion, whole
from mmcc.sampling._families import MOST_DIGITS
from mmcc.strategies import Toeplitz
from mmcc.strategies._base import Strategy

MOST_DENSE = 2048
"""Default strategies without few bands are left out above this many steps: minutes a row."""
MANY_PARTS = 4
"""With fewer participations a BLT is tuned slowly and bands do as well."""
FEW, MANY = 16, 100
"""Bands of the default banded strategies, at most."""


def first_bands(steps: int, bands: int) -> Toeplitz:
    """The first square-root coefficients (those of `continual_counting`) as bands."""
    bands = whole("bands", bands, 1, steps)
    return strategies.toeplitz(strategies.continual_counting(bands).coefficients, steps)


Maker = Callable[..., Strategy | TunedBlt]
PLAIN: Mapping[str, Maker] = {
    "identity": strategies.identity,
    "continual-counting": strategies.continual_counting,
    "binary-tree": strategies.binary_tree,
    "optimal": strategies.optimal,
    "blt": strategies.blt,
    "tuned-blt": TunedBlt,
}
SIZED: Mapping[str, Maker] = {
    "continual-counting": first_bands,
    "tree-restart": strategies.tree_restart,
    "banded": strategies.banded,
    "banded-toeplitz": strategies.banded_toeplitz,
    "banded-inverse": strategies.banded_inverse,
    "blt": strategies.blt,
}
WORDS = (*PLAIN, *(f"{name}:N" for name in SIZED))


def strategy(word: str, steps: int) -> Strategy | TunedBlt:
    """The strategy that a word means."""
    name, colon, size = word.partition(":")
    known = SIZED if colon else PLAIN
    if name not in known:
        if name in SIZED or name in PLAIN:
            need = f"needs a size, such as {name}:8" if name in SIZED else "takes no size"
            raise StrategyError(f"{word!r}: {name} {need}.")
        raise StrategyError(f"unknown strategy {word!r}; {suggestion(word, WORDS)}")
    if not colon:
        return known[name](steps)
    if not (size.isascii() and size.isdigit() and len(size) <= MOST_DIGITS):
        raise StrategyError(
            f"{shown(word)} needs a whole number after the colon, not {shown(size)}."
        )
    return known[name](steps, int(size))


def default_words(steps: int, rate: float) -> tuple[str, ...]:
    """Strategies that may win at this length and rate, within minutes."""
    longest = round(min(1 / rate, float(steps)))
    bands = dict.fromkeys(b for b in (min(FEW, longest), min(MANY, longest)) if b > 1)
    banded = (f"continual-counting:{b}" for b in bands)
    dense = ("continual-counting",) if steps <= MOST_DENSE else ()
    tuned = ("tuned-blt",) if steps > 1 and steps * rate >= MANY_PARTS else ()
    return ("identity", *dense, *banded, *tuned)
