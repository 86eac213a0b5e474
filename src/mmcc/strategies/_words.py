"""Strategies from text: words with or without a size, and the repr of a strategy.

In: "blt:2", "dp-sgd", "blt(8, decay=[0.5], scale=[0.2])".  Out: the strategy, made by its
constructor, which checks its arguments.  Files are read elsewhere.
"""

from __future__ import annotations

from typing import Any

from mmcc._calls import looks_like_call, read_call
from mmcc.errors import StrategyError, shown, suggestion
from mmcc.strategies._registry import TYPED, compared_words, from_word

CALLS = {entry.python: entry for entry in TYPED.values()}
"""The functions whose calls can be read."""


def is_word(text: str) -> bool:
    """Whether this is the name of a strategy, with or without a size."""
    return text.partition(":")[0].lower() in {word.partition(":")[0] for word in compared_words()}


def from_text(text: str, steps: int) -> Any:
    """The strategy that a word means for this many steps, or whose repr is the text."""
    return from_call(text) if looks_like_call(text) else from_word(text, steps)


def from_call(text: str) -> Any:
    """The strategy whose repr is the text."""
    call = read_call(text, "strategies")
    if call is None:
        raise StrategyError(
            f"{shown(text)} cannot be read as a strategy: only names and numbers can, and a long "
            "list must not be shortened. Give a word such as continual-counting:16, or a file."
        )
    entry = CALLS.get(call.name)
    if entry is None:
        raise StrategyError(
            f"unknown strategy {call.name!r}; {suggestion(call.name, tuple(CALLS))}"
        )
    try:
        return entry.make(*call.values, **call.named)
    except TypeError as wrong:
        raise StrategyError(f"{shown(text)} is not a valid call of {call.name}: {wrong}.") from None
