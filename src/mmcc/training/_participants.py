"""Who takes part in which step: a sampling scheme played out over a data set.

In: a scheme, the number of steps and of examples, a seed.  Out: the examples of any step's batch.
Rounding: coins with a chance of at least 1/16, bins, groups and shuffles have exactly the law of
the scheme, given ideal random bits; rarer coins have it up to the order of 2^-53 for each coin.

Every answer is a pure function of the key and the step, whatever was asked before.  The key is as
secret as the data: whoever knows it knows who took part, and amplification is lost.  Philox is not
a cryptographic generator.
"""

from __future__ import annotations

import hashlib
import numbers
import secrets
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from mmcc._arrays import IntArray, read_only
from mmcc.errors import ParameterError, SamplingError, shown, whole
from mmcc.sampling import (
    MAX_STEPS,
    SCHEMES,
    BallsInBins,
    CyclicPoisson,
    MinSeparation,
    Poisson,
    Scheme,
    Shuffle,
)

MAX_EXAMPLES = 10**9
"""Keeps sums of waits within 64 bits."""
DENSE = 1 / 16
"""From this chance on every coin is tossed; rarer heads are found by the waits between them."""
REMEMBERED = 128
"""Past steps that min-separation can answer without a replay: more than any loader prefetches."""

_KEY_BYTES = 16
_TAG = b"mmcc.training.participants\0"
"""Part of every key: another tag gives other batches, and checkpoints no longer load."""
_STEP, _ARRANGEMENT, _PROBE = range(3)


class Participants:
    """Which of `examples` examples take part in each of `steps` steps.

    An integer seed gives the same participants every time; None takes entropy of the operating
    system.  The key is derived from the seed by SHA-256 under a tag of its own, so that noise made
    from the same integer is unrelated.
    """

    def __init__(self, scheme: Scheme, steps: int, examples: int, seed: int | None = None) -> None:
        if not isinstance(scheme, SCHEMES):
            raise SamplingError(f"a sampling scheme comes from mmcc.sampling, got {scheme!r}.")
        self.scheme = scheme
        self.steps = whole("steps", steps, 1, MAX_STEPS)
        self.examples = whole("examples", examples, 1, MAX_EXAMPLES)
        if isinstance(scheme, BallsInBins | Shuffle):
            scheme.epochs(self.steps)  # refuses steps that are not whole epochs
        self._answered: int | None = None
        self._take(_key(seed))

    def __repr__(self) -> str:
        return f"Participants({self.scheme!r}, steps={self.steps}, examples={self.examples})"

    @property
    def expected(self) -> float:
        """Expected size of a batch, a public number; see `expected_batch`."""
        return expected_batch(self.scheme, self.steps, self.examples)

    def at(self, step: int) -> IntArray:
        """Sorted indices of the examples that take part in a step; read-only, may be empty."""
        step = whole("step", step, 0, self.steps - 1)
        if step != self._answered:
            self._answer = read_only(self._drawing.at(step))
            self._answered = step
        return self._answer

    def state(self) -> dict[str, Any]:
        """All that is needed to draw the same participants again; it holds the secret key."""
        return {**self._description(), "key": self._key.hex(), "probe": _probe(self._key)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the key of a state; refused if it is of another scheme, size or generator."""
        for name, ours in self._description().items():
            if state.get(name) != ours:
                raise SamplingError(
                    f"the saved sampler has {name} {shown(state.get(name))} and this one {ours!r}: "
                    "the batches would not be those of the accounted run. Use the saved setting."
                )
        key = _key_from(state.get("key"))
        if state.get("probe") != _probe(key):
            raise SamplingError(
                f"the saved key gives other batches under numpy {np.__version__}: its random "
                "generator changed, or the state is damaged. Resume with the numpy of the run."
            )
        self._take(key)

    def _description(self) -> dict[str, Any]:
        return {"scheme": repr(self.scheme), "steps": self.steps, "examples": self.examples}

    def _take(self, key: bytes) -> None:
        self._key = key
        self._drawing = _drawing(self.scheme, self.steps, self.examples, key)
        self._answered = None


def expected_batch(scheme: Scheme, steps: int, examples: int) -> float:
    """Expected number of examples in a step; for min-separation that of the long run.

    An example under min-separation waits b - 1 steps and then 1/p on average, so it takes part in
    one of b - 1 + 1/p steps: the rate p / (1 + (b - 1) p).  All are eligible at first, so that
    the first steps are larger, up to p times the number of examples.
    """
    if isinstance(scheme, Poisson | CyclicPoisson):
        return examples * scheme.probability / scheme.separation
    if isinstance(scheme, MinSeparation):
        p = scheme.probability
        return examples * p / (1 + (scheme.separation - 1) * p)
    if isinstance(scheme, BallsInBins):
        return examples / scheme.bins
    return examples * scheme.epochs(steps) / steps


class _Drawing(Protocol):
    """A scheme played out."""

    def at(self, step: int) -> IntArray: ...


def _drawing(scheme: Scheme, steps: int, examples: int, key: bytes) -> _Drawing:
    if isinstance(scheme, Poisson):
        return _Coins(key, examples, scheme.probability)
    if isinstance(scheme, CyclicPoisson):
        return _Groups(key, examples, scheme)
    if isinstance(scheme, MinSeparation):
        return _Separated(key, examples, scheme)
    if isinstance(scheme, BallsInBins):
        return _Bins(key, examples, scheme.bins)
    return _Shuffles(key, examples, steps // scheme.epochs(steps))


class _Coins:
    """A coin for each example in each step."""

    def __init__(self, key: bytes, examples: int, probability: float) -> None:
        self.key, self.examples, self.probability = key, examples, probability

    def at(self, step: int) -> IntArray:
        return _heads(_generator(self.key, _STEP, step), self.examples, self.probability)


class _Groups:
    """A fixed deal into groups, and a coin for each example of the group that is up."""

    def __init__(self, key: bytes, examples: int, scheme: CyclicPoisson) -> None:
        self.key, self.scheme = key, scheme
        self.deal = _Deal(_generator(key, _ARRANGEMENT, 0), examples, scheme.separation)

    def at(self, step: int) -> IntArray:
        group = self.deal.part(step % self.scheme.separation)
        generator = _generator(self.key, _STEP, step)
        return np.sort(group[_heads(generator, group.size, self.scheme.probability)])


class _Separated:
    """A coin for each example in each step, which counts only if the example is eligible.

    Coins of blocked examples are tossed and not looked at: those that count are as independent as
    before, and a step costs no more than under Poisson sampling.  Who is eligible depends on all
    steps before, so that a jump back further than is remembered replays the run from its start.
    """

    def __init__(self, key: bytes, examples: int, scheme: MinSeparation) -> None:
        self.coins = _Coins(key, examples, scheme.probability)
        self.separation = scheme.separation
        self._restart()

    def at(self, step: int) -> IntArray:
        if step < self.next - len(self.recent):
            self._restart()
        while self.next <= step:
            self._advance()
        return self.recent[step - self.next]  # counted from the end

    def _restart(self) -> None:
        self.next = 0
        self.recent: deque[IntArray] = deque(maxlen=REMEMBERED)
        self.eligible_from = np.zeros(self.coins.examples, np.int64)

    def _advance(self) -> None:
        heads = self.coins.at(self.next)
        members = heads[self.eligible_from[heads] <= self.next]
        self.eligible_from[members] = self.next + self.separation
        self.recent.append(members)
        self.next += 1


class _Bins:
    """One bin for each example, drawn independently and kept for the whole run."""

    def __init__(self, key: bytes, examples: int, bins: int) -> None:
        places = _generator(key, _ARRANGEMENT, 0).integers(bins, size=examples)
        self.order = np.argsort(places, kind="stable")  # within a bin the indices stay sorted
        self.places = places[self.order]
        self.bins = bins

    def at(self, step: int) -> IntArray:
        place = step % self.bins
        first, last = np.searchsorted(self.places, [place, place + 1])
        return self.order[first:last]


class _Shuffles:
    """A new deal of all examples into the steps of each epoch."""

    def __init__(self, key: bytes, examples: int, length: int) -> None:
        self.key, self.examples, self.length = key, examples, length
        self._dealt(0)

    def at(self, step: int) -> IntArray:
        epoch, place = divmod(step, self.length)
        if epoch != self.epoch:
            self._dealt(epoch)
        return np.sort(self.deal.part(place))

    def _dealt(self, epoch: int) -> None:
        self.epoch = epoch
        generator = _generator(self.key, _ARRANGEMENT, epoch)
        self.deal = _Deal(generator, self.examples, self.length)


class _Deal:
    """A uniformly random cut of the examples into parts whose sizes differ by at most one.

    Which parts are the larger ones is random too: so an example's part is exactly uniform, also
    where the number of parts does not divide that of the examples.
    """

    def __init__(self, generator: np.random.Generator, examples: int, parts: int) -> None:
        self.order = generator.permutation(examples)
        self.size, over = divmod(examples, parts)
        self.larger = np.sort(generator.choice(parts, over, replace=False, shuffle=False))

    def part(self, part: int) -> IntArray:
        before, after = np.searchsorted(self.larger, [part, part + 1])
        return self.order[part * self.size + before : (part + 1) * self.size + after]


def _heads(generator: np.random.Generator, coins: int, probability: float) -> IntArray:
    """Sorted places of the heads among independent coins, in O(probability * coins) time.

    A chance of at least 2^-11 is a whole number of 2^-64, so the comparison of 64 random bits with
    it is exact.  Waits between heads are geometric; what goes beyond the last coin is cut off
    before it is added up, so that nothing overflows.
    """
    if probability == 1:
        return np.arange(coins)
    if probability >= DENSE:
        bits = generator.bit_generator.random_raw(coins)
        return np.flatnonzero(bits < np.uint64(int(probability * 2.0**64)))
    found: list[IntArray] = [np.empty(0, np.int64)]
    place = -1
    while place < coins - 1:
        count = 1 + int(probability * (coins - 1 - place))
        waits = np.minimum(generator.geometric(probability, count), coins + 1)
        found.append(place + np.cumsum(waits))
        place = int(found[-1][-1])
    places = np.concatenate(found)
    return places[: np.searchsorted(places, coins)]


def _generator(key: bytes, purpose: int, index: int) -> np.random.Generator:
    """Random bits for one purpose and step.

    They stand in the high words of the counter, which leaves 2^128 blocks to each before it would
    run into the next.
    """
    words = np.frombuffer(key, "<u8").astype(np.uint64)
    counter = np.array([0, 0, purpose, index], np.uint64)
    return np.random.Generator(np.random.Philox(key=words, counter=counter))


def _key(seed: int | None) -> bytes:
    if seed is None:
        return secrets.token_bytes(_KEY_BYTES)
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or seed < 0:
        raise ParameterError(f"seed must be a whole number from 0 on, or None, got {seed!r}.")
    return hashlib.sha256(_TAG + b"%x" % int(seed)).digest()[:_KEY_BYTES]


def _key_from(text: object) -> bytes:
    try:
        key = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise SamplingError(
            f"a saved sampler holds a key of {2 * _KEY_BYTES} hexadecimal digits, and this state "
            "does not: use a state made by `state()`."
        )
    return key


def _probe(key: bytes) -> str:
    """A digest of draws of every kind, for numpy does not promise the same draws for ever.

    Bins that change in the middle of a run would put an example into steps that the accounting
    rules out.  The probe's bits are used for nothing else, and a digest does not reveal the key.
    """
    generator = _generator(key, _PROBE, 0)
    draws = (
        generator.permutation(100),
        generator.choice(100, 10, replace=False, shuffle=False),
        generator.choice(10**6, 10, replace=False, shuffle=False),
        generator.integers(1000, size=100),
        generator.integers(10**12, size=100),
        generator.geometric(0.01, 100),
        generator.bit_generator.random_raw(10),
    )
    content = b"".join(np.asarray(draw).astype("<u8").tobytes() for draw in draws)
    return hashlib.sha256(_TAG + content).hexdigest()
