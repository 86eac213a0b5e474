"""Standard normals that are a pure function of (key, row, place): row r is the fresh noise z_r.

In: a seed, or None for a key from the operating system.  Out: `fill(row, out, start)`.
Rounding: they are floating-point Gaussians, not exact ones: nothing here protects against attacks
that read the lowest bits of a release.

- `device` (default): the ChaCha20 keystream, a key of 256 bits, the row as nonce, turned into
  normals by Box and Muller in float64 or in float32, up to 9.4: `mmcc.training._keystream`, and
  `_torch_keystream` for devices other than the CPU.  Any 1024 numbers are made without the others.
- `philox`: numpy's Philox4x64, a counter-based generator with a key of 128 bits, and numpy's
  ziggurat, in float64.  The row is in the two high words of the counter, the segment of the row in
  the next, so a segment has 2^64 blocks of its own and no two ever use the same block.  Its
  statistics are good but it is NOT cryptographic: nobody has proven, or tried hard enough to
  refute, that its key cannot be recovered from its output.
- `chacha`: the ChaCha20 keystream of the `cryptography` package, a key of 256 bits, the row as
  nonce; each 64 bits become a sign and a 53-bit uniform number on the half line, which the inverse
  of the normal distribution function turns into |z|, up to 8.3.

Segments of a row are made by several threads, whose number does not change the result.

The key is as secret as the data: anyone who has it can subtract the noise.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from mmcc._arrays import FloatArray
from mmcc.errors import ParameterError, suggestion, whole

DEVICE, PHILOX, CHACHA = "device", "philox", "chacha"
GENERATORS = (DEVICE, PHILOX, CHACHA)
DESCRIPTIONS = {
    DEVICE: "device (ChaCha20, a key of 256 bits)",
    PHILOX: "philox (a key of 128 bits; not cryptographic)",
    CHACHA: "chacha (ChaCha20, a key of 256 bits)",
}
DEFAULT = DEVICE
"""The generator of new runs; a run that is resumed keeps its own."""
KEY_BYTES = {DEVICE: 32, PHILOX: 16, CHACHA: 32}
MAX_ROWS = 2**64
PROBED = 2**12
"""Numbers that `probe` looks at: enough to take the rare branches of a generator."""
WORDS_A_BLOCK = 8
MAX_WORDS = 2**34
"""The most numbers in a row: ChaCha20 counts 2^32 blocks of eight; half of them stay unused."""
SEGMENT = 2**16
"""Numbers of a row that one thread makes, one after another."""
PIECE = 2**13
"""Numbers made at once from a keystream: they stay in the cache while they are processed."""
MAX_THREADS = 8

Part = TypeVar("Part")


class Normals(Protocol):
    """Rows of independent standard normals."""

    segment: ClassVar[int]
    """Numbers that are made together: fewer of them, or parts of two tiles, cost as much."""
    types: ClassVar[tuple[str, ...]]
    """The type in which numbers are made; for others they are rounded."""
    anywhere: ClassVar[bool]
    """Whether they are made on the device that needs them, or on the CPU and copied."""

    def fill(self, row: int, out: FloatArray, start: int = 0) -> None:
        """Write the numbers `start`, `start` + 1, ... of a row into a contiguous array."""

    def state(self) -> dict[str, str]:
        """The kind and the key, from which `normals_from` makes the same rows again."""


@dataclass(frozen=True, slots=True)
class KeystreamNormals:
    """Rows from the ChaCha20 keystream, in float64 or float32."""

    key: bytes = field(repr=False)

    segment: ClassVar[int] = 1024
    types: ClassVar[tuple[str, ...]] = ("float64", "float32")
    anywhere: ClassVar[bool] = True
    words: NDArray[np.uint32] = field(init=False, repr=False, compare=False)
    """The key as 32-bit words, which the cipher takes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", np.frombuffer(self.key, "<u4").astype(np.uint32))

    def fill(self, row: int, out: Any, start: int = 0) -> None:
        """Write into an array, or into a tensor on any device."""
        from mmcc.training import _keystream  # numba takes a second

        if not isinstance(out, np.ndarray):
            from mmcc.training import _torch_keystream

            _torch_keystream.fill(self.words, row, out, start)
            return
        whole("numbers in a row of noise", start + out.size, 0, _keystream.MAX_NUMBERS)
        fill, words = _keystream.FILL[out.dtype.name], self.words

        def part(place: int) -> None:
            fill(words, np.uint64(row), start + place, out[place : place + SEGMENT])

        in_threads(part, range(0, out.size, SEGMENT))

    def state(self) -> dict[str, str]:
        return {"kind": DEVICE, "key": self.key.hex()}


@dataclass(frozen=True, slots=True)
class PhiloxNormals:
    """Rows from numpy's Philox."""

    key: bytes = field(repr=False)

    segment: ClassVar[int] = SEGMENT
    types: ClassVar[tuple[str, ...]] = ("float64",)
    anywhere: ClassVar[bool] = False

    def fill(self, row: int, out: FloatArray, start: int = 0) -> None:
        """Counter words 2 and 3 hold the row, word 1 the segment, word 0 counts its blocks."""
        key = int.from_bytes(self.key, "little")

        def segment(place: int, part: FloatArray) -> None:
            bits = np.random.Philox(key=key, counter=(row << 128) + (place << 64))
            np.random.Generator(bits).standard_normal(out=part)

        _by_segments(segment, out, start)

    def state(self) -> dict[str, str]:
        return {"kind": PHILOX, "key": self.key.hex()}


@dataclass(frozen=True, slots=True)
class ChachaNormals:
    """Rows from the ChaCha20 keystream, 64 bits a number."""

    key: bytes = field(repr=False)

    segment: ClassVar[int] = SEGMENT
    types: ClassVar[tuple[str, ...]] = ("float64",)
    anywhere: ClassVar[bool] = False

    def fill(self, row: int, out: FloatArray, start: int = 0) -> None:
        """With k the upper 53 bits, |z| is where the upper tail is (k + 1/2) 2^-54."""
        whole("numbers in a row of chacha noise", start + out.size, 0, MAX_WORDS)

        def segment(place: int, part: FloatArray) -> None:
            stream = _keystream(self.key, row, place * SEGMENT // WORDS_A_BLOCK)
            plain = bytes(8 * PIECE)
            buffer = bytearray(8 * PIECE + 63)  # the package wants room for one more block
            words = np.frombuffer(buffer, "<u8", PIECE)
            for start in range(0, part.size, PIECE):
                piece = part[start : start + PIECE]
                stream.update_into(memoryview(plain)[: 8 * piece.size], buffer)
                _to_normals(words[: piece.size], piece)

        _by_segments(segment, out, start)

    def state(self) -> dict[str, str]:
        return {"kind": CHACHA, "key": self.key.hex()}


def normals(seed: int | None, generator: str = DEFAULT) -> Normals:
    """Rows of standard normals; without a seed the key comes from the operating system.

    A seed is a non-negative integer of any size; its key is the beginning of
    SHA-256("mmcc noise <generator> <seed in hexadecimal>").  A seed that can be guessed means a key
    that can be guessed.
    """
    _check_generator(generator)
    check_seed(seed)
    size = KEY_BYTES[generator]
    if seed is None:
        return _made(generator, secrets.token_bytes(size))
    text = f"mmcc noise {generator} {int(seed):x}"
    return _made(generator, hashlib.sha256(text.encode()).digest()[:size])


def normals_from(state: Mapping[str, Any]) -> Normals:
    """The rows whose `state()` this is."""
    kind = _check_generator(state.get("kind"))
    text = state.get("key")
    try:
        key = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES[kind]:
        raise ParameterError(
            f"the key of a {kind} generator has {2 * KEY_BYTES[kind]} hexadecimal digits, but this "
            "state has something else: it is damaged, or not a state of this generator."
        )
    return _made(kind, key)


def probe(rows: Normals) -> str:
    """A digest of numbers that no stream uses, as libraries do not promise the same ones forever.

    With other numbers from the same key, a step that is repeated after a crash would release a
    second noise, and what follows would be correlated with noise that was never added.
    """
    digest = hashlib.sha256()
    for kind in rows.types:
        sample = np.empty(PROBED, kind)
        rows.fill(MAX_ROWS - 1, sample)
        digest.update(sample.astype(sample.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def _made(kind: str, key: bytes) -> Normals:
    if kind == DEVICE:
        return KeystreamNormals(key)
    if kind == PHILOX:
        return PhiloxNormals(key)
    _keystream(key, 0, 0)  # report a missing package now and not at the first step
    return ChachaNormals(key)


def check_seed(seed: object) -> None:
    """Refuse what is neither None nor a non-negative integer."""
    if seed is None:
        return
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ParameterError(
            f"seed must be a whole number >= 0, or None for a secret key, got {seed!r}."
        )


def _check_generator(name: object) -> str:
    if not isinstance(name, str) or name not in GENERATORS:
        raise ParameterError(f"unknown generator {name!r}: {suggestion(name, GENERATORS)}")
    return name


def _by_segments(fill: Callable[[int, FloatArray], None], out: FloatArray, start: int) -> None:
    """Fill a part of a row segment by segment; segments that are cut are made from their start."""

    def part(place: int) -> None:
        first, last = max(start, place * SEGMENT), min(start + out.size, (place + 1) * SEGMENT)
        wanted = out[first - start : last - start]
        skipped = first - place * SEGMENT
        if skipped or out.dtype != np.float64:
            made = np.empty(last - place * SEGMENT)
            fill(place, made)
            wanted[...] = made[skipped:]
        else:
            fill(place, wanted)

    in_threads(part, range(start // SEGMENT, -(-(start + out.size) // SEGMENT)))


def in_threads(
    work: Callable[[Part], None], parts: Iterable[Part], most: int = MAX_THREADS
) -> None:
    """Work on all parts, in threads if there are several parts and threads."""
    parts = list(parts)
    threads = min(len(parts), os.cpu_count() or 1, MAX_THREADS, most)
    if threads <= 1:
        for part in parts:
            work(part)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, parts):
            pass  # raises what a thread has raised


def _to_normals(words: NDArray[np.uint64], out: FloatArray) -> None:
    """One normal from each word: the upper 53 bits are the tail, the lowest one is the sign."""
    from scipy.special import ndtri  # takes a while to import

    np.multiply(words >> np.uint64(11), 2.0**-54, out=out)
    out += 2.0**-55
    ndtri(out, out=out)
    out *= 1.0 - 2.0 * (words & np.uint64(1)).astype(np.float64)


def _keystream(key: bytes, row: int, block: int) -> Any:
    """An encryptor whose output for zeros is the keystream from `block` on; the row is the nonce.

    The package's nonce is the 32-bit number of the first block followed by the 96-bit nonce.
    """
    try:
        ciphers = importlib.import_module("cryptography.hazmat.primitives.ciphers")
    except ImportError as error:
        raise ParameterError(
            f"generator={CHACHA!r} needs the package cryptography: pip install 'mmcc[secure]', or "
            f"use generator={PHILOX!r}, which is not cryptographic."
        ) from error
    start = block.to_bytes(4, "little") + row.to_bytes(12, "little")
    return ciphers.Cipher(ciphers.algorithms.ChaCha20(key, start), mode=None).encryptor()
