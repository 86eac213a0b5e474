"""Independent work on any `concurrent.futures.Executor`, in order and with bounded memory."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")

Progress = Callable[[str, float], None]
"""A function called with what is being done and how many pieces of it are finished."""

CHUNK = 32
IN_FLIGHT = 16


def spread(
    function: Callable[[T], R],
    items: Iterable[T],
    executor: Executor | None,
    chunk: int = CHUNK,
    ahead: int = IN_FLIGHT,
) -> Iterator[R]:
    """Yield function(item) for each item, in order.

    With an executor, items are sent in chunks, and at most `ahead` chunks are pending, so items may
    be made lazily and memory stays bounded.
    """
    if executor is None:
        yield from map(function, items)
        return
    waiting: deque[Future[list[R]]] = deque()
    source = iter(items)
    try:
        while some := list(islice(source, chunk)):
            waiting.append(executor.submit(_run, function, some))
            if len(waiting) >= ahead:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run matrix products on one thread: for small ones, starting more costs more than it saves."""
    with _libraries(len(sys.modules)).limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _libraries(_: int) -> ThreadpoolController:
    """The controller of the loaded libraries, cached because finding them is slow."""
    return ThreadpoolController()


def _run(function: Callable[[T], R], items: list[T]) -> list[R]:
    return [function(item) for item in items]
