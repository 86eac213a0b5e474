"""Noise streams: what is added to the summed clipped gradients, step after step.

In: the strategy that was accounted, sigma, a shape, a seed.  Out: row t of sigma C^-1 z for step t;
for trees the change, at step t, of the noise in the decoder's prefix sums.
Rounding: z and everything computed from it is in the stream's own type; the generators of 0.9
(philox, chacha) draw z in float64.

A stream is a pure function of (key, strategy, sigma, decoder, shape).  The key is as secret as the
data: with it the noise can be subtracted.

>>> from mmcc import strategies
>>> stream = NoiseStream(strategies.binary_tree(8), sigma=2.0, shape=(3,), seed=0)
>>> [noise.shape for noise in stream] == [(3,)] * 8
True
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from mmcc._arrays import FloatArray
from mmcc.errors import ParameterError, real, whole
from mmcc.strategies._base import Strategy
from mmcc.strategies._records import strategy_digest
from mmcc.training._correlation import KEEP, Correlation, correlation
from mmcc.training._randomness import (
    DEFAULT,
    GENERATORS,
    MAX_THREADS,
    Normals,
    normals,
    normals_from,
    probe,
)
from mmcc.training._recursions import Draw, Recursion, Vectors

Noise = TypeVar("Noise")

VERSION = 1
MAX_BLOCK = 10**6
MAX_COORDINATES = 2**34
PIECE = 2**16
"""Coordinates processed at once: a few pieces fit in the cache of a core."""


class Stream(ABC, Generic[Noise]):
    """What the streams of numpy arrays and of torch tensors share: position, state, refusals."""

    def __init__(
        self,
        strategy: Strategy,
        sigma: float,
        seed: int | None,
        generator: str | None,
        plan: Correlation,
        layout: Mapping[str, Any],
        memory: str,
    ) -> None:
        self._strategy, self._sigma, self._plan = strategy, sigma, plan
        self._generator = DEFAULT if generator is None else generator
        self._named = generator is not None
        self._normals: Normals = normals(seed, self._generator)
        self._layout, self._kept = dict(layout), memory
        self._position = 0
        self._interrupted = False
        self._digest = ""

    @property
    def strategy(self) -> Strategy:
        """The strategy whose noise this is."""
        return self._strategy

    @property
    def sigma(self) -> float:
        """Standard deviation of z, in units of the clip norm."""
        return self._sigma

    @property
    def decoder(self) -> str:
        """The decoder, with the default resolved."""
        return self._plan.decoder

    @property
    def generator(self) -> str:
        """The generator of z; after `restore`, that of the state."""
        return self._generator

    @property
    def steps(self) -> int:
        """The total number of steps."""
        return self._strategy.steps

    @property
    def position(self) -> int:
        """The step whose noise comes next."""
        return self._position

    @property
    def memory(self) -> int:
        """Noise vectors held at once, including the new one; a step uses up to two more."""
        return self._plan.memory

    def __iter__(self) -> Iterator[Noise]:
        return self

    def __next__(self) -> Noise:
        if self._position >= self.steps:
            raise StopIteration
        self._check_whole()
        self._interrupted = True
        noise = self._advance(self._position)
        self._position += 1
        self._interrupted = False
        return noise

    def state(self) -> dict[str, Any]:
        """Everything needed to continue: the key, the position, the vectors kept.  A secret."""
        self._check_whole()
        made = self._normals.state()
        return {
            **self._facts(),
            "key": made["key"],
            "probe": probe(self._normals),
            "position": self._position,
            "buffers": self._buffers(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue where the stream with this state was, with the same bits and the same key."""
        found = BEFORE | {name: _plain(value) for name, value in state.items()}
        if not self._named and found.get("generator") in GENERATORS:
            generator = found["generator"]  # an earlier release's, or named since
        else:
            generator = self._generator
        missing = [name for name in (*self._facts(), *CARRIED) if name not in found]
        if missing:
            raise ParameterError(
                f"the state of a noise stream has no {missing[0]!r}: it is damaged, or the state "
                "of something else."
            )
        for name, expected in (self._facts() | {"generator": generator}).items():
            if found[name] != expected:
                raise ParameterError(
                    f"the state belongs to a noise stream with another {name} "
                    f"({_shown(found[name])}, here {_shown(expected)}). Create the stream with the "
                    "arguments that the run was started with."
                )
        position = whole("position of the state", found["position"], 0, self.steps)
        made = normals_from({"kind": generator, "key": found["key"]})
        if found["probe"] != probe(made):
            raise ParameterError(
                "the key of the state gives other numbers here than where the run was started: "
                "numpy or scipy changed, or the state is damaged. Resume with the run's versions "
                "of numpy and scipy."
            )
        self._load(found["buffers"], made)
        self._normals, self._generator = made, generator
        self._position, self._interrupted = position, False

    def _facts(self) -> dict[str, Any]:
        """What must be equal for a state to be accepted."""
        if not self._digest:
            self._digest = strategy_digest(self._strategy)
        return {
            "version": VERSION,
            "strategy": self._digest,
            "sigma": self._sigma,
            "decoder": self.decoder,
            "generator": self._generator,
            "block": self._plan.block,
            "memory": self._kept,
            **self._layout,
        }

    def _check_whole(self) -> None:
        """Refuse buffers that mix two steps: they have the wrong law."""
        if self._interrupted:
            raise ParameterError(
                f"this noise stream was interrupted in the middle of step {self._position} and "
                "its noise would no longer have the right law. Restore an earlier state."
            )

    @abstractmethod
    def _advance(self, step: int) -> Noise:
        """The noise of the next step."""

    @abstractmethod
    def _buffers(self) -> Any:
        """Copies of the vectors kept."""

    @abstractmethod
    def _load(self, buffers: Any, made: Normals) -> None:
        """Adopt the vectors of a state; if they do not fit, refuse and change nothing."""


CARRIED = ("key", "probe", "position", "buffers")
BEFORE = {"memory": KEEP}
"""Facts that states of 0.9 do not record."""


class NoiseStream(Stream[FloatArray]):
    """The noise of each step, as numpy arrays: add it, times the clip norm, to the gradients' sum.

    `seed=None` takes a secret key from the operating system.  `generator` is `"device"` (the
    default), `"chacha"`, or `"philox"`, which is not cryptographic; if none is named, a restored
    state keeps its own.  `memory="regenerate"` regenerates old noise from the key where that is
    possible.  `block` is how many outputs are held for strategies without structure (about the
    square root of the steps unless given).
    """

    def __init__(
        self,
        strategy: Strategy,
        sigma: float,
        shape: int | Sequence[int],
        seed: int | None = None,
        *,
        decoder: str | None = None,
        generator: str | None = None,
        dtype: DTypeLike = np.float64,
        block: int | None = None,
        memory: str = KEEP,
    ) -> None:
        kind = _float_type(dtype)
        sizes = _shape(shape)
        sigma = real("sigma", sigma, 0, math.inf)
        spacing = float(np.finfo(kind).eps)
        plan = correlation(strategy, decoder, sigma, _block(block), spacing, memory)
        layout = {"shape": list(sizes), "dtype": kind.name}
        super().__init__(strategy, sigma, seed, generator, plan, layout, memory)
        self._shape, self._dtype = sizes, kind
        self._recursion = self._started(self._normals)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each step's noise."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of each step's noise."""
        return self._dtype

    def fresh(self, row: int) -> FloatArray:
        """z_row, independent standard normals: row `row` of C x + sigma z is released with it."""
        row = whole("row", row, 0, self._strategy.rows - 1)
        drawn = np.empty(math.prod(self._shape), self._dtype)
        self._normals.fill(row, drawn)
        return drawn.reshape(self._shape)

    def _started(self, made: Normals) -> Recursion:
        vectors = host_vectors(math.prod(self._shape), self._dtype, max(PIECE, made.segment))
        return self._plan.start(vectors)

    def _draw(self, row: int) -> Draw:
        return lambda piece, out: self._normals.fill(row, out, piece.start)

    def _advance(self, step: int) -> FloatArray:
        noise: FloatArray = self._recursion.noise(step, self._draw)
        return noise.reshape(self._shape)

    def _buffers(self) -> FloatArray:
        return np.array(self._recursion.buffers)

    def _load(self, buffers: Any, made: Normals) -> None:
        recursion = self._started(made)
        kept = np.asarray(buffers, dtype=self._dtype).reshape(-1, math.prod(self._shape))
        check_buffers(kept.shape, recursion.buffers.shape, bool(np.isfinite(kept).all()))
        recursion.buffers[...] = kept
        self._recursion = recursion


def host_vectors(size: int, kind: np.dtype[Any], piece: int, threads: int = MAX_THREADS) -> Vectors:
    """Vectors as numpy arrays."""
    from mmcc.training._host_sums import add_rows  # numba takes a second

    return Vectors(
        lambda count: np.zeros((count, size), kind),
        lambda count: np.empty(count, kind),
        size,
        piece,
        threads,
        add_rows,
    )


def check_buffers(found: Sequence[int], expected: Sequence[int], finite: bool) -> None:
    """Refuse vectors that cannot be part of this stream's state."""
    if tuple(found) != tuple(expected) or not finite:
        raise ParameterError(
            f"the state holds vectors of shape {tuple(found)} that do not fit the stream's "
            f"{tuple(expected)} or are not finite: it is damaged."
        )


def _plain(value: Any) -> Any:
    """Numbers and text as they were before np.savez turned them into arrays."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "iuU":
        return value.tolist()
    return value


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 16 else f"{text[:12]}..."


def _float_type(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(object)
    if kind not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise ParameterError(f"dtype must be float64 or float32, got {dtype!r}.")
    return kind


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    if not isinstance(shape, Sequence) or isinstance(shape, str):
        shape = (shape,)
    sizes = tuple(whole("shape", size, 1, MAX_COORDINATES) for size in shape)
    whole("the number of coordinates", math.prod(sizes), 1, MAX_COORDINATES)
    return sizes


def _block(block: int | None) -> int | None:
    return None if block is None else whole("block", block, 1, MAX_BLOCK)
