"""Runs of the real objects: a noise stream and participants, stopped and resumed on the way.

In: what the run consists of, a seed.  Out: the noise of every step, the batches of every step.
Many runs cost one stream: its coordinates are independent runs of the noise, and the examples of
one population are independent runs of the sampler.  Every other stream is saved at a random step,
and continued from what was saved by newly made objects.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mmcc._arrays import FloatArray, IntArray
from mmcc.errors import ParameterError
from mmcc.sampling import Scheme
from mmcc.strategies._base import Strategy

COMPARED = 3
"""Steps that a stopped run still makes after it was saved: a resumed run must repeat them."""


class Noise(Protocol):
    """What an audit needs of a noise stream."""

    def __next__(self) -> FloatArray: ...

    def state(self) -> Mapping[str, Any]: ...

    def restore(self, state: Any) -> None: ...


class Batches(Protocol):
    """What an audit needs of participants."""

    def at(self, step: int) -> IntArray: ...

    def state(self) -> Mapping[str, Any]: ...

    def restore(self, state: Any) -> None: ...


class MakeNoise(Protocol):
    """The signature of `mmcc.training.NoiseStream`."""

    def __call__(
        self, strategy: Strategy, sigma: float, shape: int, seed: int, *, decoder: str | None
    ) -> Noise: ...


class MakeBatches(Protocol):
    """The signature of `mmcc.training.Participants`."""

    def __call__(self, scheme: Scheme, steps: int, examples: int, seed: int) -> Batches: ...


@dataclass(frozen=True, eq=False, slots=True)
class Played:
    """One stream and one population, from the first step to the last."""

    noise: FloatArray
    """The noise: one coordinate a row, one step a column."""
    batches: list[IntArray]
    resumed: bool
    same_noise: bool
    """Whether the noise of steps made twice, before and after the stop, was the same."""
    same_batches: bool
    """Whether their batches were the same."""


@dataclass(frozen=True, eq=False, slots=True)
class Stage:
    """The mechanism and the objects that are played."""

    strategy: Strategy
    scheme: Scheme
    sigma: float
    decoder: str | None
    coordinates: int
    examples: int
    stream: MakeNoise
    participants: MakeBatches

    def play(self, seed: int, stop: int | None, other: int) -> Played:
        """All steps; with a `stop` the run is saved there and resumed by objects of another seed.

        Noise and sampler are given the same number: their keys must be unrelated nevertheless.
        """
        steps = self.strategy.steps
        stream, batches = self._start(seed)
        noise: list[FloatArray] = []
        drawn: list[IntArray] = []
        same_noise = same_batches = True
        for step in range(steps):
            if step == stop:
                saved = copy.deepcopy((stream.state(), batches.state()))
                lost = [
                    (_noise(stream, later), np.array(batches.at(later)))
                    for later in range(step, min(step + COMPARED, steps))
                ]
                stream, batches = self._start(other)
                stream.restore(saved[0])
                batches.restore(saved[1])
            noise.append(_noise(stream, step))
            drawn.append(np.array(batches.at(step)))
            if stop is not None and 0 <= step - stop < COMPARED:
                same_noise &= np.array_equal(noise[step], lost[step - stop][0])
                same_batches &= np.array_equal(drawn[step], lost[step - stop][1])
        return Played(np.array(noise).T, drawn, stop is not None, same_noise, same_batches)

    def _start(self, seed: int) -> tuple[Noise, Batches]:
        shape, steps = self.coordinates, self.strategy.steps
        return (
            self.stream(self.strategy, self.sigma, shape, seed, decoder=self.decoder),
            self.participants(self.scheme, steps, self.examples, seed),
        )

    def many(self, count: int, generator: np.random.Generator) -> Iterator[Played]:
        """Independent runs, every other one resumed."""
        steps = self.strategy.steps
        for index in range(count):
            seed, other = (int.from_bytes(generator.bytes(16), "little") for _ in range(2))
            stop = int(generator.integers(min(1, steps - 1), steps)) if index % 2 else None
            yield self.play(seed, stop, other)


def _noise(stream: Noise, step: int) -> FloatArray:
    try:
        return np.array(next(stream))
    except StopIteration:
        raise ParameterError(
            f"the noise stream has no noise for step {step}, which was accounted: it is not a "
            "stream of this mechanism, or lost its position when it was resumed."
        ) from None
