"""Replaying records of verdicts: a check of their content, never a verdict.

In: a record.  Out: whether its verdicts follow from its blocks, and its blocks from its seeds.
Rounding: none; blocks are compared to the last bit, and last digits of other processors are noted.

`replay` replays all of a record, or as much as is asked for.  `check_drawn` redraws a few blocks of
an attempt before a guarantee is read from it or it continues: the digest alone proves little.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mmcc._simulation.claims import Claim, Work, restored
from mmcc._simulation.record import PASSED, Attempt, Question, read, read_mechanism
from mmcc._simulation.trials import Block, draw_block
from mmcc.accounting._guarantee import Guarantee
from mmcc.accounting._parallel import Progress, one_thread, spread
from mmcc.errors import MmccError, RecordError, whole
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy
from mmcc.strategies._records import strategy_digest

CLOSE = 1e-9
"""Sums that differ by less than this, relatively, are of the same samples."""
CHECKED = 16
"""How many blocks of a trial, at random, are drawn again before its record is believed."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The check of one attempt of a record."""

    number: int
    question: Question
    verdict: str
    """The verdict that follows from the blocks: open, passed or refused."""
    level: float
    samples: int
    blocks: int
    replayed: int
    """Blocks that were drawn again."""
    differing: int
    """How many of these came out differently."""
    exact: bool
    """Whether all of them came out the same to the last bit."""
    guarantee: Guarantee | None
    """The guarantee, if it passed and no block differs; it was promised then, not now."""

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        asked = self.question
        return {
            "attempt": self.number,
            "verdict": self.verdict,
            "epsilon": asked.epsilon,
            "delta": asked.delta,
            "sigma": asked.sigma,
            "failure": asked.failure,
            "level": self.level,
            "strategy": asked.strategy,
            "sampling": asked.sampling,
            "group_size": asked.group_size,
            "samples": self.samples,
            "blocks": self.blocks,
            "replayed": self.replayed,
            "differing": self.differing,
            "exact": self.exact,
        }


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of replaying a record: a check of it, not a verdict."""

    file: str
    attempts: tuple[Replayed, ...]

    @property
    def agrees(self) -> bool:
        """Whether no block came out differently."""
        return not any(attempt.differing for attempt in self.attempts)

    def __str__(self) -> str:
        lines = [
            f"attempt {one.number}: ({one.question.epsilon:g}, {one.question.delta:g}) of "
            f"{one.question.strategy}, {one.question.sampling}, sigma {one.question.sigma:g}: "
            f"{one.verdict}; {one.samples} samples; {one.replayed} of {one.blocks} blocks drawn "
            f"again, {one.differing} came out differently"
            for one in self.attempts
        ]
        what = "agrees with its seeds" if self.agrees else "does NOT agree with its seeds"
        return "\n".join([f"{self.file}: the record {what}; this is a check, no verdict", *lines])

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "file": self.file,
            "agrees": self.agrees,
            "verdict": None,
            "attempts": [attempt.to_dict() for attempt in self.attempts],
        }


def replay(
    record: str | os.PathLike[str],
    strategy: Strategy | None = None,
    sampling: Scheme | None = None,
    *,
    blocks: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Replay:
    """Replay a record of `mmcc.verify`: a check of it, which never makes a new verdict.

    Every verdict is derived again from its blocks, and the blocks are drawn again from their seeds:
    all of them, or `blocks` of each attempt at random.  Strategy and scheme are needed if the
    record could not hold them.
    """
    work = Work(executor, progress)
    most = None if blocks is None else whole("blocks", blocks, 0, 10**12)
    path = Path(record)
    stored = read(path)["attempts"]
    with one_thread():
        try:
            found = tuple(
                _replayed(claim, attempt, most, work)
                for claim, attempt in _attempts(stored, strategy, sampling, path.name)
            )
        except MmccError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
            raise RecordError(f"{path.name!r} does not describe verdicts: {problem!r}.") from None
    return Replay(str(path), found)


def _attempts(
    stored: list[Mapping[str, Any]], strategy: Strategy | None, scheme: Scheme | None, name: str
) -> Iterator[tuple[Claim, Attempt]]:
    """The attempts with their claims."""
    for one in stored:
        asked = Question(**one["question"])
        drawn, released = scheme, strategy
        if released is None or drawn is None:
            kept = read_mechanism(one["mechanism"], name)
            released, drawn = released or kept[0], drawn or kept[1]
        claim = Claim.about(
            released,
            drawn,
            asked.group_size,
            sigma=asked.sigma,
            epsilon=asked.epsilon,
            delta=asked.delta,
            failure=asked.failure,
        )
        if claim.question != asked:
            raise RecordError(
                f"attempt {one['number']} of {name!r} is about {asked.strategy} under "
                f"{asked.sampling}, not about the mechanism given "
                f"({strategy_digest(released)[:12]} where it has {asked.digest[:12]})."
            )
        yield claim, restored(claim, one, name)


def _replayed(claim: Claim, attempt: Attempt, most: int | None, work: Work) -> Replayed:
    replayed, differing, exact = _drawn_again(attempt, most, work)
    verdict = {None: "open", True: PASSED, False: "refused"}[attempt.passed]
    return Replayed(
        attempt.number,
        attempt.question,
        verdict,
        attempt.level,
        attempt.samples,
        sum(len(state.blocks) for state in attempt.states),
        replayed,
        differing,
        exact,
        claim.guarantee(attempt) if attempt.passed and not differing else None,
    )


def check_drawn(attempt: Attempt, work: Work, name: str) -> None:
    """Refuse an attempt of a record with blocks that its seed does not give, as far as is seen."""
    replayed, differing, _ = _drawn_again(attempt, CHECKED, work)
    if differing:
        made = ", ".join(f"{key} {value}" for key, value in attempt.made.items() if key != "time")
        raise RecordError(
            f"{differing} of {replayed} blocks of {name!r} that were drawn again are not what its "
            f"seed gives: it was edited, or made by other versions ({made}). Nothing is verified "
            "by it. Use another record; mmcc.replay says which attempts differ."
        )


def _drawn_again(attempt: Attempt, most: int | None, work: Work) -> tuple[int, int, bool]:
    """How many blocks were, how many came out otherwise, whether all agree to the last bit."""
    differing = replayed = 0
    exact = True
    for place, state in enumerate(attempt.states):
        trial, known = state.trial, state.blocks
        chosen = _chosen(len(known), most)
        draw = partial(draw_block, trial.experiment, trial.bets, trial.block, attempt.seed, place)
        for index, block in zip(chosen, spread(draw, chosen, work.executor, 1), strict=True):
            replayed += 1
            exact &= block == known[index]
            differing += not _close(block, known[index])
            work.tell("blocks drawn again", replayed)
    return replayed, differing, exact


def _chosen(count: int, most: int | None) -> list[int]:
    """All block indices, or so many at random, which nobody could predict."""
    if most is None or most >= count:
        return list(range(count))
    return sorted(secrets.SystemRandom().sample(range(count), most))


def _close(one: Block, other: Block) -> bool:
    pairs = zip((*one.logs, one.mass), (*other.logs, other.mass), strict=True)
    return all(abs(a - b) <= CLOSE * (1 + abs(a)) for a, b in pairs)
