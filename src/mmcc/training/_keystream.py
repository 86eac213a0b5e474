r"""Standard normals from the ChaCha20 keystream, compiled for the CPU.

In: a key of 256 bits, a row, a place in the row.  Out: the row's numbers from that place on.
Rounding: below.  Nothing is contracted or reordered, so that float32 and float64 numbers have the
same bits on every processor, and on every device whose + - * / and square root are IEEE 754's
(`mmcc.training._torch_keystream` does the same with torch).

Row r is the keystream of RFC 8439 with r as the nonce.  Numbers come in tiles of 1024: tile s has
the blocks 128 s to 128 s + 127, one a lane.  The 16 words of a block are four pairs of normals;
pair p of lane l stands at  128 p + l  and  128 (p + 4) + l  of the tile.  So a number depends on
(key, row, place) alone.  Two places never share a block, nor do two rows.

A pair is made of four words a, b, c, d by Box and Muller,

    v = ((a mod 2^31) 2^31 + floor(b / 2) + 1/2) 2^-63,  between 0 and 1/2, with 62 bits,
    E = -ln v  if a < 2^31,  else  -ln(1 - v);            R = sqrt(2 E),
    t = a number between -1/2 and 1/2 from the lower 30 bits of c and the upper 31 of d,
    (x, y) = R (cos, sin)(pi t / 2), rotated by a quarter turn and by a half turn as the upper bits
    of c say.

E is exponential and the angle uniform, so x and y are independent standard normals but for

- the finite number of bits: |x| <= sqrt(128 ln 2) = 9.4194, and a normal exceeds this with
  probability 4.6e-21;  for every w, where v >= w (all but a fraction w of the pairs) R is within
  2^-64 / (w R) of one that is exactly Rayleigh, and the angle is within 2^-61;
- rounding: x differs from what these formulas say by at most 2^-22 R in float32 and 2^-51 R in
  float64.

ln(1 + f) is a series in f / (2 + f), with 1 + f between sqrt(1/2) and sqrt(2); where 1 - v is in
that range f = -v, which keeps all bits of a small E.  Sine and cosine are their Taylor series.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

LANES = 128
TILE = 8 * LANES
"""Numbers that are made together."""
MAX_NUMBERS = 2**35
"""The most numbers in a row: the counter of blocks has 32 bits."""
LARGEST = math.sqrt(128 * math.log(2.0))
"""No number is larger in absolute value."""
CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
ROOT_HALF = 0x3F3504F3
"""The bits of sqrt(1/2) in float32."""
ONE_TO_HALF = 0x3F800000 - ROOT_HALF
LN2 = math.log(2.0)

Series = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...], float]
"""Coefficients for ln, sin and cos, and ln 2, in one type."""


def series(kind: type[np.floating[Any]], terms: int, turns: int) -> Series:
    """Rounded to a type: atanh(s) / s = 1 + s^2 (1/3 + s^2 / 5 + ...), and sin, cos of pi t / 2."""
    quarter = math.pi / 2
    log = [1 / (2 * k + 3) for k in range(terms)]
    sine = [(-1) ** k * quarter ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(turns)]
    cosine = [(-1) ** k * quarter ** (2 * k) / math.factorial(2 * k) for k in range(1, turns + 1)]
    return (*(tuple(kind(c) for c in part) for part in (log, sine, cosine)), kind(LN2))  # type: ignore[return-value]


SINGLE, DOUBLE = series(np.float32, 4, 5), series(np.float64, 10, 9)
"""Numbers of terms for which the remainder is less than half a unit in the last place."""
SERIES = {"float32": SINGLE, "float64": DOUBLE}

F = TypeVar("F", bound=Callable[..., Any])
U, S, F32 = np.uint32, np.int32, np.float32


def _compiled(function: F) -> F:
    """Compile without the interpreter lock, and cache the machine code between runs."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def _inlined(function: F) -> F:
    """Compile into the calling loop, which otherwise would not work on several lanes at once."""
    return cast(F, numba.njit(nogil=True, error_model="numpy", forceinline=True)(function))


@_inlined
def _quarter_round(a: Any, b: Any, c: Any, d: Any) -> Any:
    a = U(a + b)
    d = U(d ^ a)
    d = U(U(d << U(16)) | U(d >> U(16)))
    c = U(c + d)
    b = U(b ^ c)
    b = U(U(b << U(12)) | U(b >> U(20)))
    a = U(a + b)
    d = U(d ^ a)
    d = U(U(d << U(8)) | U(d >> U(24)))
    c = U(c + d)
    b = U(b ^ c)
    b = U(U(b << U(7)) | U(b >> U(25)))
    return a, b, c, d


@_inlined
def _double_round(words: Any) -> Any:
    x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15 = words
    x0, x4, x8, x12 = _quarter_round(x0, x4, x8, x12)
    x1, x5, x9, x13 = _quarter_round(x1, x5, x9, x13)
    x2, x6, x10, x14 = _quarter_round(x2, x6, x10, x14)
    x3, x7, x11, x15 = _quarter_round(x3, x7, x11, x15)
    x0, x5, x10, x15 = _quarter_round(x0, x5, x10, x15)
    x1, x6, x11, x12 = _quarter_round(x1, x6, x11, x12)
    x2, x7, x8, x13 = _quarter_round(x2, x7, x8, x13)
    x3, x4, x9, x14 = _quarter_round(x3, x4, x9, x14)
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15


@_inlined
def _five_double_rounds(x: Any) -> Any:
    return _double_round(_double_round(_double_round(_double_round(_double_round(x)))))


@_compiled
def keystream(key: NDArray[np.uint32], row: Any, block: int, words: NDArray[np.uint32]) -> None:
    """Words of the blocks `block`, `block` + 1, ...: a row a word, a column a block."""
    c0, c1, c2, c3 = U(CONSTANTS[0]), U(CONSTANTS[1]), U(CONSTANTS[2]), U(CONSTANTS[3])
    k0, k1, k2, k3, k4, k5, k6, k7 = key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]
    low, high, zero = U(row & np.uint64(0xFFFFFFFF)), U(row >> np.uint64(32)), U(0)
    for lane in range(words.shape[1]):
        count = U(block + lane)
        x = (c0, c1, c2, c3, k0, k1, k2, k3, k4, k5, k6, k7, count, low, high, zero)
        y = _five_double_rounds(_five_double_rounds(x))
        words[0, lane] = U(y[0] + c0)
        words[1, lane] = U(y[1] + c1)
        words[2, lane] = U(y[2] + c2)
        words[3, lane] = U(y[3] + c3)
        words[4, lane] = U(y[4] + k0)
        words[5, lane] = U(y[5] + k1)
        words[6, lane] = U(y[6] + k2)
        words[7, lane] = U(y[7] + k3)
        words[8, lane] = U(y[8] + k4)
        words[9, lane] = U(y[9] + k5)
        words[10, lane] = U(y[10] + k6)
        words[11, lane] = U(y[11] + k7)
        words[12, lane] = U(y[12] + count)
        words[13, lane] = U(y[13] + low)
        words[14, lane] = U(y[14] + high)
        words[15, lane] = y[15]


@_inlined
def _polynomial(x: Any, coefficients: Any) -> Any:
    last = len(coefficients) - 1
    value = coefficients[last]
    for k in range(last):
        value = coefficients[last - 1 - k] + x * value
    return value


@_compiled
def to_normals(words: NDArray[np.uint32], numbers: NDArray[Any], coefficients: Any) -> None:
    """Four pairs a column, in the type of `numbers`; pair p goes to rows p and p + 4."""
    real = numbers.dtype.type
    log, sine, cosine, ln2 = coefficients
    one, two = real(1.0), real(2.0)
    for pair in range(4):
        a, b, c, d = words[4 * pair], words[4 * pair + 1], words[4 * pair + 2], words[4 * pair + 3]
        first, second = numbers[pair], numbers[pair + 4]
        for i in range(words.shape[1]):
            v = real(S(a[i] & U(0x7FFFFFFF))) * real(2.0**-32)
            v = v + (real(S(b[i] >> U(1))) * real(2.0**-63) + real(2.0**-64))
            upper = (a[i] >> U(31)) != U(0)
            x = one - v if upper else v
            # x = 2^k m with m between sqrt(1/2) and sqrt(2)
            k = S(U(F32(x).view(U) + U(ONE_TO_HALF)) >> U(23)) - S(127)
            f = x * real(U(U(S(127) - k) << U(23)).view(F32)) - one
            f = -v if upper and k == S(0) else f
            s = f / (two + f)
            z = s * s
            e = -(real(k) * ln2 + two * s * (one + z * _polynomial(z, log)))
            radius = np.sqrt(e + e)
            t = real(S(S(U(c[i] << U(2))) >> S(1))) * real(2.0**-31)
            t = t + (real(S(d[i] >> U(1))) * real(2.0**-61) + real(2.0**-62))
            z = t * t
            y = t * _polynomial(z, sine)
            x = one + z * _polynomial(z, cosine)
            swapped = (c[i] & U(0x80000000)) != U(0)
            radius = radius if (c[i] & U(0x40000000)) != U(0) else -radius
            first[i] = radius * (y if swapped else x)
            second[i] = radius * (x if swapped else y)


@_inlined
def _fill(
    key: NDArray[np.uint32], row: Any, start: int, numbers: NDArray[Any], coefficients: Any
) -> None:
    """The row's numbers `start`, `start` + 1, ...: whole tiles are made, then cut."""
    words = np.empty((16, LANES), np.uint32)
    spare = np.empty((8, LANES), numbers.dtype)
    flat = spare.reshape(-1)
    stop = start + numbers.size
    for place in range(start // TILE, (stop + TILE - 1) // TILE):
        keystream(key, row, place * LANES, words)
        first, last = max(start, place * TILE), min(stop, (place + 1) * TILE)
        if last - first == TILE:
            tile = numbers[first - start : last - start].reshape((8, LANES))
            to_normals(words, tile, coefficients)
        else:
            to_normals(words, spare, coefficients)
            for k in range(first, last):
                numbers[k - start] = flat[k - place * TILE]


@_compiled
def _fill_float32(key: NDArray[np.uint32], row: Any, start: int, numbers: NDArray[Any]) -> None:
    _fill(key, row, start, numbers, SINGLE)


@_compiled
def _fill_float64(key: NDArray[np.uint32], row: Any, start: int, numbers: NDArray[Any]) -> None:
    _fill(key, row, start, numbers, DOUBLE)


FILL: dict[str, Callable[..., None]] = {"float32": _fill_float32, "float64": _fill_float64}
"""(key, row, start, numbers): write the numbers `start`, `start` + 1, ... of a row."""
