"""Strategies by text: words with or without a size, and what a strategy prints.

In: "blt:2", "dp-sgd", "blt(8, decay=[0.5], scale=[0.2])".  Out: the strategy, by its constructor,
which checks what it gets.  Files are read elsewhere.
"""

from __future__ import annotations

from typing import Any

from mmcc._calls import looks_called, read_call
from mmcc.errors import StrategyError, shown, suggestion
from mmcc.strategies._registry import TYPED, compared_words, from_word

CALLS = {entry.python: entry for entry in TYPED.values()}
"""Functions whose calls are read."""


def is_word(text: str) -> bool:
    """Whether this is the name of a strategy, with or without a size."""
    return text.partition(":")[0].lower() in {word.partition(":")[0] for word in compared_words()}


def from_text(text: str, steps: int) -> Any:
    """The strategy that a word means for so many steps, or that prints so."""
    return from_call(text) if looks_called(text) else from_word(text, steps)


def from_call(text: str) -> Any:
    """The strategy that prints so."""
    call = read_call(text, "strategies")
    if call is None:
        raise StrategyError(
            f"{shown(text)} cannot be read as a strategy: names and numbers alone are, and a long "
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
        raise StrategyError(f"{shown(text)} is no call of {call.name}: {wrong}.") from None
