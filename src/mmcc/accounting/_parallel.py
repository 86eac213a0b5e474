"""Independent work on any `concurrent.futures.Executor`, in order, a bounded amount at a time."""

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
"""Called with what is being done and how many pieces of it are finished."""

CHUNK = 32
IN_FLIGHT = 16


def spread(
    function: Callable[[T], R],
    items: Iterable[T],
    executor: Executor | None,
    chunk: int = CHUNK,
    ahead: int = IN_FLIGHT,
) -> Iterator[R]:
    """function(item) for each item, in order.

    With an executor the items travel in chunks, and at most `ahead` chunks are under way, so that
    items may be made lazily and memory stays bounded.
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
    """Matrix products on one thread: small ones wait longer for a second than they run."""
    with _libraries(len(sys.modules)).limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _libraries(_: int) -> ThreadpoolController:
    """Those that are loaded: to look for them takes longer than many a product, so it is kept."""
    return ThreadpoolController()


def _run(function: Callable[[T], R], items: list[T]) -> list[R]:
    return [function(item) for item in items]
