"""Records of verdicts: every attempt, what it fixed before looking, and each block that it drew.

In: attempts.  Out: one JSON file, replaced as a whole; and attempts read back.
Rounding: none; floats are written so that they are read back to the last bit.

A record is one search.  Attempt i has the chance of error failure 2^-i, whatever it is about, so
all of them together have at most `failure`.  An attempt is recorded before its first sample and
stays, whatever becomes of it.  Without a file, this process remembers the attempts that it made
about a strategy and a scheme.  Hiding an attempt, by deleting a file or starting anew, breaks the
promise; nothing here can detect that.

The digest at the end detects accidents, not intent: anyone who can write the file can make a new
one.  So what is read from a file must follow from its blocks; these must be possible, and some of
them are drawn again (`replay`).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import mmcc
from mmcc._outputs import check_place
from mmcc._simulation.betting import Bets, needed, of_one_size
from mmcc._simulation.experiments import KINDS
from mmcc._simulation.trials import MOST_BLOCK, Block, Progressed, Trial
from mmcc.errors import MmccError, ParameterError, RecordError, shown, whole
from mmcc.sampling import Scheme
from mmcc.sampling._registry import SCHEMES, identity_of, is_registered
from mmcc.strategies._base import Strategy
from mmcc.strategies._records import describe, rebuild_strategy, strategy_digest

FORMAT = 1
SUBJECT = "verdicts of mmcc"
BITS = 128
"""Bits of a seed."""
PAUSE, SHARE = 5.0, 20.0
"""Seconds between two writes, and the least multiple of the time that a write takes."""
MOST_BLOCKS = 10**19
"""The most blocks of a trial: more than can be planned."""
MOST_NUMBERS = 2**16
"""The most numbers of a strategy that is kept in the record."""
OPEN, PASSED, REFUSED = "open", "passed", "refused"
VERDICTS = {None: OPEN, True: PASSED, False: REFUSED}


@dataclass(frozen=True, slots=True)
class Question:
    """The claim to be verified."""

    strategy: str
    digest: str
    """The digest of the strategy's numbers."""
    sampling: str
    law: str
    """A digest of the scheme's stated law: the code of a user-defined scheme may change."""
    group_size: int
    sigma: float
    epsilon: float
    delta: float
    failure: float

    @classmethod
    def about(
        cls, strategy: Strategy, scheme: Scheme, group_size: int, **numbers: float
    ) -> Question:
        """The question about a mechanism."""
        return cls(
            repr(strategy),
            strategy_digest(strategy),
            identity_of(scheme),
            law_digest(scheme, strategy.steps),
            group_size,
            **numbers,
        )

    @property
    def mechanism(self) -> tuple[str, str]:
        """The key by which attempts are counted, whatever the noise, epsilon, delta and group."""
        return self.digest, self.sampling


@dataclass
class Attempt:
    """One verdict: what was fixed, and how far it has come."""

    number: int
    """The number of attempts so far, including this one."""
    question: Question
    seed: int
    pilot_seed: int
    pilot_samples: int
    states: list[Progressed]
    mechanism: Mapping[str, Any] = field(default_factory=dict)
    """Strategy and scheme, if they can be written down."""
    made: Mapping[str, str] = field(default_factory=dict)
    """The time, and the software versions."""

    @property
    def level(self) -> float:
        """Its chance of error: a power of two, so nothing is rounded."""
        return level_of(self.question.failure, self.number)

    @property
    def passed(self) -> bool | None:
        """None while it is open; one refused trial is enough to refuse it."""
        ends = [state.passed for state in self.states]
        if False in ends:
            return False
        return None if None in ends else True

    @property
    def samples(self) -> int:
        """Samples of the verdict, without the pilot's."""
        return sum(state.samples for state in self.states)

    def to_dict(self) -> dict[str, Any]:
        """The attempt, ready for JSON."""
        return {
            "number": self.number,
            "level": self.level,
            "question": {f.name: getattr(self.question, f.name) for f in fields(self.question)},
            "mechanism": dict(self.mechanism),
            "made": dict(self.made),
            "seed": f"{self.seed:x}",
            "pilot_seed": f"{self.pilot_seed:x}",
            "pilot_samples": self.pilot_samples,
            "trials": [_trial_dict(state) for state in self.states],
            "verdict": VERDICTS[self.passed],
        }


_remembered: dict[tuple[str, str], dict[int, float]] = {}
"""Seeds and failures of the attempts that this process has made, by mechanism."""


def _remember(question: Question, seed: int) -> None:
    _remembered.setdefault(question.mechanism, {})[seed] = question.failure


class Record:
    """All attempts of a search, in a file or only in memory."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(os.path.realpath(path))
        self.attempts: list[dict[str, Any]] = []
        self._digest: str | None = None
        self._current: Attempt | None = None
        self._next = 0.0
        if self.path is not None:
            check_place(self.path, "record")
            if self.path.exists():
                content = read(self.path)
                self.attempts, self._digest = content["attempts"], content["digest"]
                for one in self.attempts:  # from now on they count in this process too
                    _remember(Question(**one["question"]), int(one["seed"], 16))

    def find(self, question: Question) -> dict[str, Any] | None:
        """The last attempt at a question, if it is open or has passed."""
        asked = {f.name: getattr(question, f.name) for f in fields(question)}
        same = [one for one in self.attempts if one["question"] == asked]
        return same[-1] if same and same[-1]["verdict"] != REFUSED else None

    def next_number(self, question: Question) -> int:
        """The number of the next attempt: after all in the record, and all of this process."""
        known = dict(_remembered.get(question.mechanism, {}))
        known |= {int(one["seed"], 16): one["question"]["failure"] for one in self.attempts}
        largest = max(known.values(), default=0.0)
        if largest > question.failure:
            raise ParameterError(
                f"earlier attempts had a chance of error of {largest:g}, which stays: failure must "
                f"be at least that, not {question.failure:g}. Use failure={largest:g}."
            )
        return len(known) + 1

    def begin(self, attempt: Attempt) -> None:
        """Record an attempt before its first sample."""
        if attempt.number != self.next_number(attempt.question):
            raise RecordError(
                "another attempt at the same mechanism began meanwhile, so this one has the wrong "
                "chance of error: nothing was drawn. Try again."
            )
        _remember(attempt.question, attempt.seed)
        self.attempts.append(attempt.to_dict())
        self.go_on(attempt)
        self.save()

    def go_on(self, attempt: Attempt) -> None:
        """From now on, add blocks to this attempt."""
        self._current = attempt

    def save(self, due: bool = True) -> None:
        """Write the file: now, or if it was not written for a while."""
        if (
            self._current is None
            or self.path is None
            or (not due and time.monotonic() < self._next)
        ):
            return
        start = time.monotonic()
        seed = f"{self._current.seed:x}"
        place = next(i for i, one in enumerate(self.attempts) if one["seed"] == seed)
        self.attempts[place] = self._current.to_dict()
        found = read(self.path)["digest"] if self.path.exists() else None
        if found != self._digest:
            raise RecordError(
                f"the record {str(self.path)!r} was changed by somebody else meanwhile: nothing "
                "more is written to it. Let one run at a time use it."
            )
        content = {"format": FORMAT, "subject": SUBJECT, "attempts": self.attempts}
        self._digest = _digest(content)
        replace_file(self.path, json.dumps({**content, "digest": self._digest}, allow_nan=False))
        now = time.monotonic()
        self._next = now + max(PAUSE, SHARE * (now - start))


def law_digest(scheme: Scheme, steps: int) -> str:
    """A digest of all that determines pairs: equal if draws come from the same law."""
    parts: list[object] = [scheme.groups, scheme.renewal, scheme.rounds(steps)]
    parts += [scheme.positions(steps), scheme.allocation(steps)]
    relaxed, chances = scheme.relaxed(steps), scheme.chances(steps)
    if relaxed is not None:
        parts += [law_digest(relaxed.scheme, steps), relaxed.chance]
    if chances is not None:
        parts += [chances.probability.shape, chances.probability.tobytes(), chances.after.tobytes()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def new_seed() -> int:
    """A seed from the operating system: nobody chose it."""
    return secrets.randbits(BITS)


def level_of(failure: float, number: int) -> float:
    """The chance of error of an attempt."""
    return failure * 2.0**-number


def written(strategy: Strategy, scheme: Scheme) -> dict[str, Any]:
    """Strategy and scheme in the form of a record; what cannot be written down is left out."""
    found: dict[str, Any] = {}
    if is_registered(scheme):
        found["sampling"] = {"name": scheme.name, "arguments": dict(scheme.arguments())}
    try:
        text, arrays = describe(strategy)
    except MmccError:
        return found
    if sum(array.size for array in arrays.values()) <= MOST_NUMBERS:
        plain = {name: np.asarray(array).tolist() for name, array in arrays.items()}
        found["strategy"] = {"record": text, "arrays": plain}
    return found


def read_mechanism(mechanism: Mapping[str, Any], name: str) -> tuple[Strategy, Scheme]:
    """Strategy and scheme of an attempt, if the record has them."""
    for part in ("strategy", "sampling"):
        if part not in mechanism:
            raise RecordError(
                f"the {part} of {name!r} is not one that a record can hold. Use mmcc.replay with "
                "strategy and sampling."
            )
    kept, drawn = mechanism["strategy"], mechanism["sampling"]
    arrays = {key: np.asarray(value, dtype=float) for key, value in kept["arrays"].items()}
    if drawn["name"] not in SCHEMES:
        raise RecordError(f"{name!r} has the unknown sampling {shown(drawn['name'])}.")
    return rebuild_strategy(kept["record"], arrays, name), SCHEMES[drawn["name"]].load()(
        **drawn["arguments"]
    )


def made_now() -> dict[str, str]:
    """The time and the software versions: others may give other last digits."""
    found = {"time": datetime.now(timezone.utc).isoformat(timespec="seconds")}
    found |= {"mmcc": mmcc.__version__, "machine": platform.machine()}
    return found | {name: version(name) for name in ("numpy", "scipy", "numba")}


def read(path: Path) -> dict[str, Any]:
    """The content of a record, if it is one and complete."""

    def refuse(why: str) -> RecordError:
        return RecordError(f"{path.name!r} is not a record of verdicts: {why}.")

    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as problem:
        raise RecordError(f"cannot read {str(path)!r}: {problem.strerror or problem}.") from None
    except (ValueError, RecursionError):
        raise refuse("it is not valid JSON") from None
    if not isinstance(content, dict) or content.get("subject") != SUBJECT:
        raise refuse("it does not say that it is one")
    if content.get("format") != FORMAT:
        raise refuse(f"format {shown(content.get('format'))} is not known")
    digest = content.get("digest")
    if digest != _digest({key: value for key, value in content.items() if key != "digest"}):
        raise refuse("it was changed after it was written (its digest does not match)")
    try:
        whole_attempts = isinstance(content["attempts"], list)
        for one in content["attempts"]:
            asked, seeds = Question(**one["question"]), (one["seed"], one["pilot_seed"])
            whole_attempts &= 0 < asked.failure < 1 and all(int(seed, 16) >= 0 for seed in seeds)
            whole_attempts &= type(one["number"]) is int
            one["verdict"], one["trials"], one["mechanism"]
    except (KeyError, TypeError, ValueError):
        whole_attempts = False
    if not whole_attempts:
        raise refuse("an attempt lacks required entries")
    _check_search(content["attempts"], path.name)
    return content


def _check_search(stored: Sequence[Mapping[str, Any]], name: str) -> None:
    """Numbers, seeds and failures must be those of one search: a lower number needs less wealth."""
    failure, seeds = 0.0, set()
    for place, one in enumerate(stored, 1):
        # Higher if a process had made attempts before: of this mechanism, not of the next.
        if one["number"] < place or one["seed"] in seeds:
            raise RecordError(f"the attempts of {name!r} are not numbered one after the other.")
        asked = one["question"]["failure"]
        if asked < failure:
            raise RecordError(
                f"attempt {one['number']} of {name!r} has a chance of error of {asked:g}, "
                f"below the {failure:g} of an earlier attempt."
            )
        failure = asked
        seeds.add(one["seed"])


def read_attempt(stored: Mapping[str, Any], problem: Any, pairs: Any, name: str) -> Attempt:
    """An attempt as recorded; its verdict is derived again from its blocks.

    `problem` is what the pairs are of, and `pairs` a function of a group.
    """
    try:
        question = Question(**stored["question"])
        level = level_of(question.failure, stored["number"])
        states = [_state(one, question, problem, pairs, level) for one in stored["trials"]]
        found = Attempt(
            stored["number"],
            question,
            int(stored["seed"], 16),
            int(stored["pilot_seed"], 16),
            stored["pilot_samples"],
            states,
            stored["mechanism"],
            stored["made"],
        )
        whole("number", found.number, 1, MOST_BLOCKS)
        whole("pilot_samples", found.pilot_samples, 0, MOST_BLOCKS)
        if found.seed == found.pilot_seed:
            raise ValueError("the pilot has the verdict's seed")
        same = json.loads(json.dumps(found.to_dict())) == dict(stored)
    except (LookupError, TypeError, ValueError, ArithmeticError) as problem_found:
        raise RecordError(f"{name!r} does not describe a verdict: {problem_found}.") from None
    if not same:
        raise RecordError(f"{name!r} does not follow from the blocks that it has.")
    return found


def _trial_dict(state: Progressed) -> dict[str, Any]:
    trial, bets = state.trial, state.trial.bets
    return {
        "group": trial.group,
        "adjacency": "remove" if trial.experiment.remove else "add",
        "experiment": trial.experiment.kind,
        "facts": trial.experiment.facts(),
        "mean": bets.mean,
        "largest": bets.largest,
        "bets": list(bets.sizes),
        "weights": list(bets.weights),
        "block": trial.block,
        "planned": trial.planned,
        "limit": trial.limit,
        "verdict": VERDICTS[state.passed],
        "blocks": [[*block.logs, block.mass, block.squares] for block in state.blocks],
    }


def _state(
    stored: Mapping[str, Any], question: Question, problem: Any, pairs: Any, level: float
) -> Progressed:
    remove = {"remove": True, "add": False}[stored["adjacency"]]
    experiment = KINDS[stored["experiment"]].from_facts(
        problem, pairs(stored["group"]), remove, question.epsilon, stored["facts"]
    )
    bets = Bets(stored["mean"], stored["largest"], tuple(stored["bets"]), tuple(stored["weights"]))
    if not of_one_size(bets):
        raise ValueError(f"no pilot chooses the bets {bets.sizes} with weights {bets.weights}")
    trial = Trial(
        stored["group"],
        experiment,
        bets,
        whole("block", stored["block"], 1, MOST_BLOCK),
        whole("planned", stored["planned"], 0, MOST_BLOCKS),
        whole("limit", stored["limit"], 1, MOST_BLOCKS),
    )
    blocks = [_block(numbers) for numbers in stored["blocks"]]
    if not all(bets.can_earn(block.logs, trial.block, block.mass) for block in blocks):
        raise ValueError("a block has more wealth than its samples can earn")
    return Progressed(trial, needed(level), blocks)


def _block(numbers: Sequence[float]) -> Block:
    *logs, mass, squares = numbers
    return Block(tuple(logs), mass, squares)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def replace_file(path: Path, text: str) -> None:
    """Replace the file by the text, as a whole or not at all, and flush it to disk."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.unlink(missing_ok=True)  # left by a run that was killed
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "w") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(fresh, path)
    except OSError as problem:
        raise RecordError(
            f"the record {str(path)!r} cannot be written: {problem.strerror or problem}."
        ) from None
