"""Standard normals that are a pure function of (key, row): row r is the fresh noise z_r.

In: a seed, or None for a key from the operating system.  Out: `fill(row, out)`.
Rounding: numbers are drawn in float64.  They are floating-point Gaussians, not exact ones: nothing
here guards against attacks that read the lowest bits of a release.

- `philox` (default): numpy's Philox4x64, a counter-based generator with a key of 128 bits, and
  numpy's ziggurat.  The row stands in the two high words of the counter and a row has 2^128 blocks
  of its own, so no two rows ever use the same block.  It passes all statistical tests that are
  known and is NOT cryptographic: nobody has proven, or tried hard enough to refute, that its key
  cannot be found from what it gave.
- `chacha`: the ChaCha20 keystream of the `cryptography` package, a key of 256 bits, the row as
  nonce; each 64 bits become a sign and a 53-bit uniform number on the half line, which the inverse
  of the normal distribution function turns into |z|, up to 8.3.

The key is as secret as the data: who has it can subtract the noise.
"""

from __future__ import annotations

import hashlib
import importlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mmcc.arrays import FloatArray
from mmcc.errors import ParameterError, suggestion, whole

PHILOX, CHACHA = "philox", "chacha"
GENERATORS = (PHILOX, CHACHA)
KEY_BYTES = {PHILOX: 16, CHACHA: 32}
MAX_ROWS = 2**64
MAX_WORDS = 2**34
"""Numbers in a row: ChaCha20 counts 2^32 blocks of 64 bytes; half of them are left alone."""
PIECE = 2**14
"""Numbers made at once from a keystream: they stay in the cache on their way."""


class Normals(Protocol):
    """Rows of independent standard normals."""

    def fill(self, row: int, out: FloatArray) -> None:
        """Write row `row` into a contiguous array; a shorter array gets the row's beginning."""

    def state(self) -> dict[str, str]:
        """The kind and the key, from which `normals_from` makes the same rows again."""


@dataclass(frozen=True, slots=True)
class PhiloxNormals:
    """Rows from numpy's Philox."""

    key: bytes = field(repr=False)

    def fill(self, row: int, out: FloatArray) -> None:
        """Counter words 2 and 3 hold the row, words 0 and 1 count the row's blocks."""
        bits = np.random.Philox(key=int.from_bytes(self.key, "little"), counter=row << 128)
        np.random.Generator(bits).standard_normal(out=out)

    def state(self) -> dict[str, str]:
        return {"kind": PHILOX, "key": self.key.hex()}


@dataclass(frozen=True, slots=True)
class ChachaNormals:
    """Rows from the ChaCha20 keystream, 64 bits a number."""

    key: bytes = field(repr=False)

    def fill(self, row: int, out: FloatArray) -> None:
        """With k the upper 53 bits, |z| is where the upper tail is (k + 1/2) 2^-54."""
        from scipy.special import ndtri  # takes a while to import

        flat = out.reshape(-1)
        whole("numbers in a row of chacha noise", flat.size, 0, MAX_WORDS)
        stream = _keystream(self.key, row)
        plain = bytes(8 * PIECE)
        buffer = bytearray(8 * PIECE + 63)  # the package asks for room for one block more
        words = np.frombuffer(buffer, "<u8", PIECE)
        for start in range(0, flat.size, PIECE):
            piece = flat[start : start + PIECE]
            stream.update_into(memoryview(plain)[: 8 * piece.size], buffer)
            bits = words[: piece.size]
            np.multiply(bits >> np.uint64(11), 2.0**-54, out=piece)
            piece += 2.0**-55
            ndtri(piece, out=piece)
            # The lowest bit, which the uniform number does not use, is the sign.
            piece *= 1.0 - 2.0 * (bits & np.uint64(1)).astype(np.float64)

    def state(self) -> dict[str, str]:
        return {"kind": CHACHA, "key": self.key.hex()}


def normals(seed: int | None, generator: str = PHILOX) -> Normals:
    """Rows of standard normals; without a seed the key comes from the operating system.

    A seed is a non-negative integer of any size; its key is the beginning of
    SHA-256("mmcc noise <generator> <seed in hexadecimal>").  A seed that can be guessed is a key
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
            f"the key of a {kind} generator is {2 * KEY_BYTES[kind]} hexadecimal digits, and this "
            "state has something else; it is damaged or not a state of this generator."
        )
    return _made(kind, key)


def _made(kind: str, key: bytes) -> Normals:
    if kind == PHILOX:
        return PhiloxNormals(key)
    _keystream(key, 0)  # a missing package is said now and not at the first step
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


def _keystream(key: bytes, row: int) -> Any:
    """An encryptor whose output for zeros is the keystream; the nonce follows a 32-bit counter."""
    try:
        ciphers = importlib.import_module("cryptography.hazmat.primitives.ciphers")
    except ImportError as error:
        raise ParameterError(
            f"generator={CHACHA!r} needs the package cryptography: pip install 'mmcc[secure]', or "
            f"use generator={PHILOX!r}, which is not cryptographic."
        ) from error
    start = bytes(4) + row.to_bytes(12, "little")
    return ciphers.Cipher(ciphers.algorithms.ChaCha20(key, start), mode=None).encryptor()
