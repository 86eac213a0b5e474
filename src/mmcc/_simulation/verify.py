r"""Epsilon verified by simulation: a guarantee with a declared chance of error, inside delta.

In: strategy, scheme, sigma, epsilon, delta, the chance of a wrong verdict.  Out: a `Guarantee` of
the kind "verified", or a refusal that says what the simulation suggests.
Rounding: delta, losses and weights upwards, wealth downwards.

For every group of examples and both adjacencies, a trial (`trials`) has to show that

    E[X] < delta - failure - chance - dropped,

X of an `experiment` on the revealed pair, `chance` that of the event which a `Relaxed` scheme
leaves out.  The verdict passes if all trials pass.  If (epsilon, delta - failure) does not hold,
one fixed claim is false, and its trial passes with probability at most the level: no union bound.
docs/theory-verify.md has the proofs, and says in which sense the error is inside delta.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import overload

import numpy as np

from mmcc._simulation.betting import needed
from mmcc._simulation.claims import MAX_SAMPLES, Claim, Work, restored
from mmcc._simulation.experiments import experiment_for
from mmcc._simulation.record import (
    PASSED,
    Attempt,
    Record,
    level_of,
    made_now,
    new_seed,
    written,
)
from mmcc._simulation.refusals import refused_by_pilots, refused_by_verdict
from mmcc._simulation.replay import check_drawn
from mmcc._simulation.trials import FEWEST, Pilot, Progressed, Trial, look, rough, run
from mmcc.accounting._guarantee import Estimate, Guarantee, adjacency_of
from mmcc.accounting._parallel import Progress, one_thread
from mmcc.errors import NotVerifiedError, ParameterError, whole
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy

MAX_SEED = 2**63
LONG = 2e5
"""Pilots with more samples are announced before they start."""


@overload
def verify(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    epsilon: float,
    delta: float,
    failure: float = ...,
    group_size: int = ...,
    samples: int | None = ...,
    seed: None = ...,
    record: str | os.PathLike[str] | None = ...,
    executor: Executor | None = ...,
    progress: Progress | None = ...,
) -> Guarantee: ...


@overload
def verify(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    epsilon: float,
    delta: float,
    failure: float = ...,
    group_size: int = ...,
    samples: int | None = ...,
    seed: int,
    record: None = ...,
    executor: Executor | None = ...,
    progress: Progress | None = ...,
) -> Estimate: ...


def verify(
    strategy: Strategy,
    sampling: Scheme,
    *,
    sigma: float,
    epsilon: float,
    delta: float,
    failure: float = 1e-9,
    group_size: int = 1,
    samples: int | None = None,
    seed: int | None = None,
    record: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Guarantee | Estimate:
    """Show by simulation that a mechanism is (epsilon, delta)-private, or refuse.

    The chance of a wrong verdict is at most `failure`, which is part of delta.  Its random numbers
    come from a seed of the operating system; with a `seed` of the caller's the same numbers can be
    repeated, and the result is an `Estimate`.  Attempt i about a strategy and a scheme gets the
    chance failure 2^-i: `record`, a file, keeps all attempts, resumes one that was interrupted and
    can be replayed (`mmcc.replay`); without it this process remembers them.

    A pilot reports the cost to `progress`.  What would take more than `samples` is refused.
    """
    most = MAX_SAMPLES if samples is None else whole("samples", samples, 1, MAX_SAMPLES)
    work = Work(executor, progress, most)
    if seed is not None and record is not None:
        raise ParameterError(
            "a record holds verdicts, and a seed of the caller's gives none. Leave out seed, or "
            "record."
        )
    numbers = {"sigma": sigma, "epsilon": epsilon, "delta": delta, "failure": failure}
    claim = Claim.about(strategy, sampling, group_size, **numbers)
    with one_thread():
        if seed is not None:
            return _estimate(claim, whole("seed", seed, 0, MAX_SEED), work)
        return _verdict(claim, Record(record), work)


def _verdict(claim: Claim, book: Record, work: Work) -> Guarantee:
    """From the record if it knows the answer, resumed if it has begun, or made now."""
    known = book.find(claim.question)
    if known is not None:
        attempt = restored(claim, known, str(book.path))
        check_drawn(attempt, work, str(book.path))
        if known["verdict"] == PASSED:
            return claim.guarantee(attempt)
        book.go_on(attempt)
        pilots = None
    else:
        number = book.next_number(claim.question)
        attempt, pilots = _prepared(claim, number, new_seed(), new_seed(), work)
        book.begin(attempt)
    try:
        _run(attempt, work, lambda: book.save(due=False))
    finally:
        book.save()
    if not attempt.passed:
        raise refused_by_verdict(claim, attempt, pilots)
    return claim.guarantee(attempt)


def _estimate(claim: Claim, seed: int, work: Work) -> Estimate:
    """The same with the caller's seed: it could have been chosen, so nothing is promised."""
    attempt, pilots = _prepared(claim, 1, 2 * seed + 1, 2 * seed, work)
    _run(attempt, work, lambda: None)
    if not attempt.passed:
        raise refused_by_verdict(claim, attempt, pilots)
    asked = claim.question
    return Estimate(
        epsilon=asked.epsilon,
        low=0.0,
        high=asked.epsilon,
        confidence=1 - asked.failure,
        samples=attempt.samples + attempt.pilot_samples,
        effective=float(attempt.samples),
        delta=asked.delta,
        sigma=asked.sigma,
        method="a verification with a seed of the caller's, which is no verdict",
        strategy=asked.strategy,
        sampling=repr(claim.problem.scheme),
        seed=seed,
        adjacency=adjacency_of(asked.group_size),
    )


def pilots_of(
    claim: Claim, seed: int, work: Work, fewest: float = FEWEST
) -> dict[tuple[int, bool], Pilot]:
    """A first look at every group and adjacency; `fewest` samples as in `look`."""
    pairs, drawn = claim.pairs(), 0
    found: dict[tuple[int, bool], Pilot] = {}
    for place, (group, remove) in enumerate(claim.places):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(place,)))
        experiment = experiment_for(
            claim.inner, pairs(group), remove, claim.question.epsilon, claim.delta(), rng
        )
        mean = claim.below(experiment.dropped)
        if not mean > 0:
            raise NotVerifiedError(
                f"what is dropped, {experiment.dropped + claim.chance:.3g}, leaves nothing of "
                f"delta = {claim.question.delta:g}. Use a larger delta."
            )
        least = fewest * rough(experiment, mean)
        if least > work.samples:
            raise NotVerifiedError(
                f"a pilot alone needs {least:.1e} samples, more than samples = "
                f"{work.samples:.3g}. Use a larger delta, or mmcc.epsilon.",
                samples=drawn,
            )
        if least >= LONG:
            side = "remove" if remove else "add"
            work.tell(f"a pilot of {least:.1e} samples or more comes first ({side})", drawn)
        tell = partial(_tell_pilot, work, drawn)
        pilot = look(experiment, mean, seed, place, work.executor, tell, fewest)
        drawn += pilot.count
        found[group, remove] = pilot
    return found


def _tell_pilot(work: Work, before: int, count: int) -> None:
    work.tell("samples of the pilot", before + count)


def _prepared(
    claim: Claim, number: int, seed: int, pilot_seed: int, work: Work
) -> tuple[Attempt, dict[tuple[int, bool], Pilot]]:
    """Everything fixed, and its cost reported; or a refusal, for which no verdict is drawn."""
    if not claim.delta() > 0:
        raise ParameterError(
            f"delta = {claim.question.delta:g} leaves nothing after failure and the probability "
            f"{claim.chance:.3g} of the scheme's event. Use a larger delta."
        )
    pilots = pilots_of(claim, pilot_seed, work)
    spent = sum(pilot.count for pilot in pilots.values())
    if any(pilot.hopeless for pilot in pilots.values()):
        raise refused_by_pilots(claim, pilots)
    level = level_of(claim.question.failure, number)
    trials = [Trial.after(pilot, group, level) for (group, _), pilot in pilots.items()]
    planned = sum(trial.planned * trial.block for trial in trials)
    seconds = sum(
        trial.planned * trial.block * pilot.seconds
        for trial, pilot in zip(trials, pilots.values(), strict=True)
    )
    cost = f"about {planned:.1e} samples, about {_duration(seconds)} of one processor"
    if planned > work.samples:
        raise NotVerifiedError(
            f"this needs {cost}, more than samples = {work.samples:.3g}. Allow more, or ask for a "
            "larger epsilon.",
            samples=spent,
        )
    work.tell(cost, 0)
    left = work.samples - planned
    trials = [
        replace(trial, limit=min(trial.limit, trial.planned + left // trial.block))
        for trial in trials
    ]
    question = claim.question
    attempt = Attempt(
        number,
        question,
        seed,
        pilot_seed,
        spent,
        [Progressed(trial, needed(level)) for trial in trials],
        written(claim.problem.strategy, claim.problem.scheme),
        made_now(),
    )
    return attempt, pilots


def _run(attempt: Attempt, work: Work, save: Callable[[], None]) -> None:
    """The trials one after the other, until one is refused."""
    planned = sum(state.trial.planned * state.trial.block for state in attempt.states)

    def report(_: Progressed) -> None:
        save()
        timed = [  # those of a record are not
            (block.seconds, state.trial.block)
            for state in attempt.states
            for block in state.blocks[-16:]
            if block.seconds > 0
        ]
        seconds, samples = (sum(column) for column in zip(*timed, strict=True)) if timed else (0, 1)
        left = max(planned - attempt.samples, 0) * seconds / samples
        told = f", about {_duration(left)} of processor time left" if timed else ""
        work.tell(f"samples{told}", attempt.samples)

    for place, state in enumerate(attempt.states):
        run(state, attempt.seed, place, work.executor, report)
        if state.passed is False:
            return


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1.0):.0f} s"
