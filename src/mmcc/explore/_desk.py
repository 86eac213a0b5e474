"""One thread that answers the questions of all pages, by priority, then the latest first.

In: hashable questions.  Out: what is known after a moment.  A page that still wants an answer asks
again; questions that nobody has repeated lately are dropped, so pages do not wait for each other's
old questions, and a closed page costs nothing.  There is one thread because the accounting is not
shared.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from mmcc.accounting._parallel import Progress
from mmcc.errors import MmccError

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")

FRESH = 1.5
"""Seconds after which a question that was not repeated comes after all others."""
LEASE = 10.0
"""Seconds after which it is dropped."""
KEPT = 2048
"""Answers that are remembered."""
RETRIED = 3.0
"""Seconds after which a fault is forgotten: those waiting see it, and later questions try again."""


class AbandonedError(Exception):
    """Nobody is waiting for the answer any more."""


class UnexpectedError(MmccError):
    """A fault of the program, reported in one sentence."""


class Desk(Generic[Question, Answer]):
    """A queue of questions; `ask` returns the answers that are known."""

    def __init__(self, answer: Callable[[Question, Progress], Answer]) -> None:
        self._answer = answer
        self._wanted: dict[Question, tuple[int, float]] = {}
        """Open questions: minus the position in its request, and when it was last asked for."""
        self._known: OrderedDict[Question, Answer | MmccError] = OrderedDict()
        self._faults: dict[Question, float] = {}
        """Answers that are faults, such as a temporary lack of memory, and since when."""
        self._news = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="mmcc explore", daemon=True)
        self._thread.start()

    def ask(
        self, questions: Sequence[Question], seconds: float
    ) -> dict[Question, Answer | MmccError]:
        """The answers known after at most so many seconds; errors are answers too."""
        end = time.monotonic() + seconds
        with self._news:
            self._forget_faults()
            while True:
                now = time.monotonic()
                for place, question in enumerate(questions):
                    if question in self._known:
                        self._known.move_to_end(question)
                    else:
                        self._wanted[question] = (-place, now)
                self._news.notify_all()
                found = {q: self._known[q] for q in questions if q in self._known}
                if len(found) == len(set(questions)) or now >= end:
                    return found
                self._news.wait(end - now)

    def close(self) -> None:
        """Stop answering; the current question is abandoned when it can be."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def _work(self) -> None:
        while (question := self._next()) is not None:
            answer: Answer | MmccError
            try:
                answer = self._answer(question, lambda *_, asked=question: self._check(asked))
            except AbandonedError:
                continue
            except MmccError as refusal:
                answer = refusal
            except Exception as fault:
                logging.getLogger(__name__).exception("no answer to %r", question)
                answer = UnexpectedError(
                    f"this could not be computed ({type(fault).__name__}); please report it with "
                    "the command below."
                )
            with self._news:
                self._wanted.pop(question, None)
                self._known[question] = answer
                if isinstance(answer, UnexpectedError):
                    self._faults[question] = time.monotonic()
                while len(self._known) > KEPT:
                    self._known.popitem(last=False)
                self._news.notify_all()

    def _forget_faults(self) -> None:
        limit = time.monotonic() - RETRIED
        for question in [q for q, when in self._faults.items() if when < limit]:
            del self._faults[question]
            self._known.pop(question, None)

    def _next(self) -> Question | None:
        """Wait for a question: the first in its request, and of those the last asked for."""
        with self._news:
            while not self._closed:
                now = time.monotonic()
                limit = now - LEASE
                self._wanted = {q: when for q, when in self._wanted.items() if when[1] > limit}
                if self._wanted:
                    return max(self._wanted, key=lambda q: self._urgency(q, now))
                self._news.wait()
        return None

    def _urgency(self, question: Question, now: float) -> tuple[bool, int, float]:
        place, when = self._wanted[question]
        return when > now - FRESH, place, when

    def _check(self, question: Question) -> None:
        """Called by the accounting from time to time."""
        with self._news:
            when = self._wanted.get(question)
            if self._closed or when is None or when[1] < time.monotonic() - LEASE:
                self._wanted.pop(question, None)
                raise AbandonedError
