"""Who takes part in which step: a sampling scheme applied to a data set.

In: a scheme, the number of steps and of examples, a seed.  Out: the examples of any step's batch.
Rounding: that of the scheme's own drawing; see `mmcc.sampling`.

Every answer is a pure function of the key and the step, whatever was asked before.  The key is as
secret as the data: anyone who knows it knows who took part, and amplification is lost.  Philox is
not a cryptographic generator.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mmcc._arrays import IntArray, read_only
from mmcc.errors import SamplingError, real, shown, whole
from mmcc.sampling import Scheme
from mmcc.sampling._participations import MAX_STEPS
from mmcc.sampling._registry import identity_of
from mmcc.sampling._scheme import checked_scheme
from mmcc.training._randomness import check_seed

MAX_EXAMPLES = 10**9
"""Keeps sums of waiting times within 64 bits."""

_KEY_BYTES = 16
_TAG = b"mmcc.training.participants\0"
"""Part of every key: another tag gives other batches, and old checkpoints no longer load."""
_STEP, _ARRANGEMENT, _PROBE = range(3)


class Participants:
    """Which of `examples` examples take part in each of `steps` steps.

    An integer seed gives the same participants every time; None takes entropy from the operating
    system.  The key is derived from the seed by SHA-256 under a tag of its own, so noise made from
    the same integer is unrelated.

    Examples that are `absent` are drawn like all others and then left out: whatever they would
    contribute is zero, and nothing changes for anyone else (`mmcc.training.Canaries`).
    """

    def __init__(
        self,
        scheme: Scheme,
        steps: int,
        examples: int,
        seed: int | None = None,
        *,
        absent: Sequence[int] | IntArray = (),
    ) -> None:
        self.scheme = checked_scheme(scheme)
        self.steps = whole("steps", steps, 1, MAX_STEPS)
        self.examples = whole("examples", examples, 1, MAX_EXAMPLES)
        self.absent = _examples_of(absent, self.examples)
        scheme.check(self.steps)
        self._answered: int | None = None
        self._take(_key(seed))

    def __repr__(self) -> str:
        return f"Participants({self.scheme!r}, steps={self.steps}, examples={self.examples})"

    @property
    def expected(self) -> float:
        """Expected size of a batch, a public number."""
        expected = self.scheme.expected_batch(self.steps, self.examples)
        return real("expected_batch", expected, 0, self.examples, closed="h")

    def at(self, step: int) -> IntArray:
        """Sorted indices of the examples that take part in a step; read-only, may be empty."""
        step = whole("step", step, 0, self.steps - 1)
        if step != self._answered:
            drawn = self.drawn(step)
            present = drawn[~np.isin(drawn, self.absent)] if self.absent.size else drawn
            self._answer = read_only(present)
            self._answered = step
        return self._answer

    def drawn(self, step: int) -> IntArray:
        """The participants drawn by the scheme, absent examples included."""
        step = whole("step", step, 0, self.steps - 1)
        return self._checked(self._drawing.at(step))

    def _checked(self, batch: IntArray) -> IntArray:
        """The batch, if it is a set of examples: one that occurs twice would count twice."""
        inside = not batch.size or (batch[0] >= 0 and batch[-1] < self.examples)
        if not inside or (np.diff(batch) <= 0).any():
            raise SamplingError(
                f"{self.scheme!r} drew a batch that is not a set of examples in increasing order. "
                "Fix its `drawing`."
            )
        return batch

    def state(self) -> dict[str, Any]:
        """Everything needed to draw the same participants again, including the secret key."""
        return {**self._description(), "key": self._key.hex(), "probe": _probe(self._key)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Adopt the key of a state; refused if it is of another scheme, size or generator."""
        saved = {"absent": "", **state}  # older states have no absent examples
        for name, ours in self._description().items():
            if saved.get(name) != ours:
                raise SamplingError(
                    f"the saved sampler has {name} {shown(saved.get(name))} and this one {ours!r}: "
                    "the batches would not be those of the accounted run. Use the saved setting."
                )
        key = _key_from(state.get("key"))
        if state.get("probe") != _probe(key):
            raise SamplingError(
                f"the saved key gives other batches under numpy {np.__version__}: its random "
                "generator changed, or the state is damaged. Resume with the run's numpy version."
            )
        self._take(key)

    def _description(self) -> dict[str, Any]:
        scheme = identity_of(self.scheme)
        described = {"scheme": scheme, "steps": self.steps, "examples": self.examples}
        return described | {"absent": digest_of(self.absent)}

    def _take(self, key: bytes) -> None:
        self._key = key
        self._drawing = self.scheme.drawing(self.steps, self.examples, _Keyed(key))
        self._answered = None


class _Keyed:
    """The random generators of one key."""

    def __init__(self, key: bytes) -> None:
        self.key = key

    def of_step(self, step: int) -> np.random.Generator:
        return _generator(self.key, _STEP, step)

    def of_arrangement(self, index: int) -> np.random.Generator:
        return _generator(self.key, _ARRANGEMENT, index)


def _generator(key: bytes, purpose: int, index: int) -> np.random.Generator:
    """A random generator for one purpose and step.

    Purpose and step are in the high words of the counter, which leaves 2^128 blocks to each before
    it would run into the next.
    """
    words = np.frombuffer(key, "<u8").astype(np.uint64)
    counter = np.array([0, 0, purpose, index], np.uint64)
    return np.random.Generator(np.random.Philox(key=words, counter=counter))


def _examples_of(absent: Sequence[int] | IntArray, examples: int) -> IntArray:
    found = np.unique(np.asarray(absent, np.int64))
    for end in found[[0, -1]] if found.size else ():
        whole("an absent example", int(end), 0, examples - 1)
    return read_only(found)


def digest_of(absent: IntArray) -> str:
    """A digest of the absent indices; empty if there are none."""
    content = absent.astype("<i8").tobytes()
    return hashlib.sha256(_TAG + content).hexdigest() if content else ""


def _key(seed: int | None) -> bytes:
    check_seed(seed)
    if seed is None:
        return secrets.token_bytes(_KEY_BYTES)
    return hashlib.sha256(_TAG + b"%x" % int(seed)).digest()[:_KEY_BYTES]


def _key_from(text: object) -> bytes:
    try:
        key = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise SamplingError(
            f"the key of a saved sampler has {2 * _KEY_BYTES} hexadecimal digits, but this state "
            "does not hold one: use a state made by `state()`."
        )
    return key


def _probe(key: bytes) -> str:
    """A digest of draws of every kind, as numpy does not promise the same draws forever.

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
