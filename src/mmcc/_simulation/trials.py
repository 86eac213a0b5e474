r"""Testing one claim: E[X] < mean, for one group of examples and one adjacency.

In: an experiment, the mean to stay below, a level, two seeds.  Out: passed or not, block by block.
Rounding: that of `betting`; what is also counted (sums, times) is for hints and print.

A pilot with its own randomness chooses the bets and the number of samples to expect.  The trial
draws blocks: block b of trial t has the generator of (seed, t, b), and blocks count in their order,
wherever they were drawn.  So the same seed gives the same verdict, bit for bit, with any number of
workers, and a trial can be continued from the blocks that are known.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from scipy import optimize

from mmcc._arrays import FloatArray
from mmcc._simulation.betting import Bets, added, best_bet, bets_around, needed
from mmcc._simulation.experiments import Experiment
from mmcc.accounting._parallel import one_thread, spread

WORK = 2**26
LEAST_BLOCK, MOST_BLOCK = 2**8, 2**18
"""Columns times samples of a block, and samples: a few seconds, fixed before anything is timed."""
MANY = 64
"""A trial has about this many blocks or more, unless they would be smaller than the least."""
FIRST = 2**12
ERROR = 0.35
"""Standard error, relative to the gap that is to be shown, at which a pilot ends."""
FEWEST, MOST = 8.0, 200.0
"""Samples of a pilot, in units of `rough`."""
SURE = 3.0
"""Standard errors above the mean asked for at which the trial is hopeless."""
PATIENCE = 4.0
"""A trial may take this many times the expected samples."""
AHEAD, MOST_AHEAD = 64, 1024
"""Blocks in progress at once."""
PASSING = 0.85
"""Delta of the pair over the delta asked for at which a verdict should pass in time."""


@dataclass(frozen=True, slots=True)
class Block:
    """What a block of samples contributes."""

    logs: tuple[float, ...]
    """Log wealth of each bet, rounded down."""
    mass: float
    """Sum of X."""
    squares: float
    """Sum of X^2."""
    seconds: float = field(default=0.0, compare=False)
    """Processor time where it was drawn."""


@dataclass(frozen=True, eq=False)
class Pilot:
    """Results of a first look; none of them count for the verdict."""

    experiment: Experiment
    mean: float
    """The mean to stay below."""
    count: int
    losses: FloatArray
    """The losses above epsilon."""
    weights: FloatArray
    """Their weights."""
    seconds: float
    """Processor time of a sample."""

    def delta(self, epsilon: float | None = None) -> tuple[float, float]:
        """Approximate E[X] at the experiment's epsilon or a larger one, and its standard error."""
        at = self.experiment.epsilon if epsilon is None else epsilon
        values = self.experiment.values(self.losses, self.weights, at)
        mean = float(values.sum()) / self.count
        spread = float(np.square(values).sum()) / self.count
        return mean, math.sqrt(spread / self.count)

    def passing(self, factor: float = 1.0) -> float:
        """Approximately the smallest epsilon that would pass; `factor` corrects the pilot's means.

        Infinite if there is hardly any noise, so that rounding leaves nothing to show.
        """
        low = self.experiment.epsilon
        goal = PASSING * self.mean

        def excess(epsilon: float) -> float:
            return self.delta(epsilon)[0] * factor - goal

        if excess(low) <= 0 or not self.losses.size:
            return low
        high = (float(self.losses.max()) + self.experiment.pair.rounding) * (1 + 2.0**-40)
        if not (high < math.inf and excess(high) <= 0):
            return math.inf
        return float(optimize.brentq(excess, low, high, xtol=1e-6 * (1 + high)))

    def enough(self, fewest: float = FEWEST) -> bool:
        """Whether bets can be chosen, or the trial is hopeless."""
        (mean, error), unit = self.delta(), rough(self.experiment, self.mean)
        if self.count < fewest * unit:
            return False
        if fewest > FEWEST:
            return True  # a search that compares pilots wants equal sizes
        clear = error <= ERROR * (self.mean - mean)
        return clear or mean - SURE * error >= self.mean or self.count >= MOST * unit

    @property
    def hopeless(self) -> bool:
        """Whether a verdict would very probably be refused."""
        return self.delta()[0] >= self.mean

    @property
    def size(self) -> float:
        """The best bet; 0 if there is none."""
        zeros = self.count - self.losses.size
        return best_bet(self._values(), zeros, self.mean, self.experiment.largest)

    def samples(self, level: float) -> int:
        """The expected number of samples."""
        bets = bets_around(self.size, self.mean, self.experiment.largest)
        logs = bets.log_wealth(self._values(), self.count - self.losses.size)
        grown = zip(bets.weights, logs, strict=True)
        times = [(needed(level) - math.log(w)) / g for w, g in grown if g > 0]
        return math.ceil(min(times) * self.count) if times else 10**18

    def _values(self) -> FloatArray:
        return self.experiment.values(self.losses, self.weights, self.experiment.epsilon)


def rough(experiment: Experiment, mean: float) -> float:
    """Samples in which an X of the largest size may occur once; never more than without weights.

    A pilot that is too small for rare weights chooses poor bets, and the trial is refused.
    """
    return min(experiment.largest, 1.0) / mean


def look(
    experiment: Experiment,
    mean: float,
    seed: int,
    place: int,
    executor: Executor | None,
    report: Callable[[int], None],
    fewest: float = FEWEST,
) -> Pilot:
    """A pilot that is large enough to choose bets; it doubles until it is.

    `fewest` samples are in units of `rough`.
    """
    size = block_size(experiment)
    found = Pilot(experiment, mean, 0, np.zeros(0), np.zeros(0), 0.0)
    first = 0
    while not (found.count and found.enough(fewest)):
        least = math.ceil(fewest * rough(experiment, mean)) - found.count
        wanted = max(FIRST, size // 4, found.count, least)
        jobs = range(first, first + -(-wanted // size))
        each = min(size, wanted)
        looked = partial(_look, experiment, each, seed, place)
        for losses, weights, seconds in spread(looked, jobs, executor, 1, MOST_AHEAD):
            count = found.count + each
            found = Pilot(
                experiment,
                mean,
                count,
                np.concatenate([found.losses, losses]),
                np.concatenate([found.weights, weights]),
                (found.seconds * found.count + seconds) / count,
            )
            report(count)
        first = jobs.stop
    return found


@dataclass(frozen=True, eq=False)
class Trial:
    """Everything fixed before the verdict's first sample."""

    group: int
    experiment: Experiment
    bets: Bets
    block: int
    """Samples of a block."""
    planned: int
    """The expected number of blocks."""
    limit: int
    """The number of blocks after which the trial is given up."""

    @classmethod
    def after(cls, pilot: Pilot, group: int, level: float) -> Trial:
        """The trial that a pilot suggests; its limit is a few times what the pilot expects."""
        experiment = pilot.experiment
        samples = pilot.samples(level)
        least = max(LEAST_BLOCK, 2 ** math.floor(math.log2(samples / MANY + 1)))
        block = min(block_size(experiment), least)
        planned = -(-samples // block)
        bets = bets_around(pilot.size, pilot.mean, experiment.largest)
        return cls(group, experiment, bets, block, planned, math.ceil(PATIENCE * planned) + 1)


@dataclass
class Progressed:
    """A trial so far: the blocks in their order, and what follows from them."""

    trial: Trial
    need: float
    """The log wealth at which it passes."""
    blocks: list[Block] = field(default_factory=list)
    passed: bool | None = None
    """None while it is open."""

    def __post_init__(self) -> None:
        self._totals = [0.0] * len(self.trial.bets.sizes)
        self._mass = self._squares = 0.0
        known, self.blocks = self.blocks, []
        for block in known:
            self.add(block)

    @property
    def wealth(self) -> float:
        """Log wealth, rounded down."""
        return self.trial.bets.together(self._totals)

    @property
    def samples(self) -> int:
        """Samples drawn so far."""
        return len(self.blocks) * self.trial.block

    def add(self, block: Block) -> None:
        """Add the next block."""
        if self.passed is not None:
            raise ValueError("a trial that has ended takes no more blocks.")
        self._totals = added(self._totals, block.logs)
        self.blocks.append(block)
        self._mass += block.mass
        self._squares += block.squares
        if self.wealth >= self.need:
            self.passed = True
        elif len(self.blocks) >= self.trial.limit or self._in_vain():
            self.passed = False

    def delta(self) -> tuple[float, float]:
        """Approximate E[X], and its standard error."""
        count = max(self.samples, 1)
        return self._mass / count, math.sqrt(self._squares) / count

    def _in_vain(self) -> bool:
        """Whether to give up: refusing is always sound."""
        mean, error = self.delta()
        some = 16 * len(self.blocks) >= self.trial.planned
        return some and mean - SURE * error >= self.trial.bets.mean


def run(
    state: Progressed,
    seed: int,
    place: int,
    executor: Executor | None,
    report: Callable[[Progressed], None],
) -> None:
    """Blocks in their order until the trial has ended."""
    trial = state.trial
    if state.passed is not None:
        return
    jobs = range(len(state.blocks), trial.limit)
    ahead = min(max(AHEAD, trial.planned // 4), MOST_AHEAD)
    draw = partial(draw_block, trial.experiment, trial.bets, trial.block, seed, place)
    for block in spread(draw, jobs, executor, 1, ahead):
        state.add(block)
        report(state)
        if state.passed is not None:
            return


def draw_block(
    experiment: Experiment, bets: Bets, size: int, seed: int, place: int, index: int
) -> Block:
    """One block: the same wherever it is drawn."""
    start = time.process_time()
    with one_thread():
        values = experiment.draw(size, _generator(seed, place, index))
    logs = tuple(bets.log_wealth(values))
    some = values[values > 0]
    mass, squares = math.fsum(some.tolist()), math.fsum(np.square(some).tolist())
    return Block(logs, mass, squares, time.process_time() - start)


def block_size(experiment: Experiment) -> int:
    """Samples of a block, a power of two."""
    wanted = 2 ** math.floor(math.log2(WORK / max(experiment.pair.columns, 1)))
    return int(min(max(wanted, LEAST_BLOCK), MOST_BLOCK))


def _look(
    experiment: Experiment, size: int, seed: int, place: int, index: int
) -> tuple[FloatArray, FloatArray, float]:
    start = time.process_time()
    with one_thread():
        losses, weights = experiment.sample(size, _generator(seed, place, index))
    above = experiment.values(losses, weights, experiment.epsilon) > 0
    return losses[above], weights[above], time.process_time() - start


def _generator(seed: int, place: int, index: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(place, index)))
