"""The numbers of `_keystream`, made by torch's own operations where the parameters are.

In: a key, a row, a place in it, a tensor.  Out: the tensor filled with the row's numbers from that
place on.  Rounding: that of `_keystream`, operation by operation.  The bits are the same where
+ - * / and the square root are IEEE 754's; otherwise they differ in the last places (torch's square
root is not IEEE 754's on CPUs with MKL).  `check` compares a device with the host, because a faulty
device would make noise of another law.

A step of the cipher works on the four rows of the state of all blocks at once, in 32-bit integers
that wrap around.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mmcc.errors import PrecisionError
from mmcc.training import _keystream as host
from mmcc.training._randomness import KeystreamNormals

PIECE = 2**22
"""Numbers made at once: each takes about 40 bytes in the process."""
CLOSE = 2.0**-18
"""How far a device may be from the host in float32, in units of the largest number: rounding."""


def fill(key: NDArray[np.uint32], row: int, out: Tensor, start: int) -> None:
    """Write the numbers `start`, `start` + 1, ... of a row into a tensor of one dimension."""
    if out.is_meta:
        return  # a tensor without storage has no numbers
    stop = start + out.numel()
    step = PIECE // host.TILE
    for first in range(start // host.TILE, -(-stop // host.TILE), step):
        tiles = min(step, -(-stop // host.TILE) - first)
        words = keystream(key, row, first * host.LANES, tiles * host.LANES, out.device)
        numbers = to_normals(words, out.dtype).reshape(-1)
        low, high = max(start, first * host.TILE), min(stop, (first + tiles) * host.TILE)
        out[low - start : high - start] = numbers[
            low - first * host.TILE : high - first * host.TILE
        ]


def keystream(
    key: NDArray[np.uint32], row: int, block: int, count: int, device: torch.device
) -> Tensor:
    """Words of `count` blocks: row, word of the row and block of the state, as signed integers."""
    counts = torch.arange(block, block + count, device=device)  # below 2^32
    counts = torch.where(counts < 2**31, counts, counts - 2**32).to(torch.int32)
    nonce = [row % 2**32, row >> 32, 0]
    fixed = [*host.CONSTANTS, *(int(word) for word in key), 0, *nonce]
    column = torch.tensor([word - (word >> 31 << 32) for word in fixed], dtype=torch.int32)
    start = column.to(device).view(4, 4, 1).repeat(1, 1, count)
    start[3, 0] = counts
    a, b, c, d = start.clone()
    for _ in range(10):
        _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0)
        _quarter_rounds(a, b, c, d)
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return start.add_(torch.stack([a, b, c, d]))


def _quarter_rounds(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> None:
    for one, two, three, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        one.add_(two)
        three.bitwise_xor_(one)
        low = _shifted(three, 32 - bits)
        three.bitwise_left_shift_(bits).bitwise_or_(low)


def _shifted(words: Tensor, bits: int) -> Tensor:
    """A logical shift to the right."""
    return (words >> bits).bitwise_and_((1 << 32 - bits) - 1)


def to_normals(words: Tensor, kind: torch.dtype) -> Tensor:
    """Tiles of normals, in the order of the row: tile, place of the pair's number, lane."""
    a, b, c, d = words.unbind(1)
    log, sine, cosine, ln2 = series(kind)
    v = (a & 0x7FFFFFFF).to(kind) * 2.0**-32
    v = v + (_shifted(b, 1).to(kind) * 2.0**-63 + 2.0**-64)
    upper = a < 0
    x = torch.where(upper, 1.0 - v, v)
    k = ((x.to(torch.float32).view(torch.int32) + host.ONE_TO_HALF) >> 23) - 127
    f = x * ((127 - k) << 23).view(torch.float32).to(kind) - 1.0
    f = torch.where(upper & (k == 0), -v, f)
    s = f / (f + 2.0)
    z = s * s
    e = -(k.to(kind) * ln2 + s * 2.0 * (z * _polynomial(z, log) + 1.0))
    radius = root(e + e)
    t = ((c << 2) >> 1).to(kind) * 2.0**-31
    t = t + (_shifted(d, 1).to(kind) * 2.0**-61 + 2.0**-62)
    z = t * t
    y = t * _polynomial(z, sine)
    x = z * _polynomial(z, cosine) + 1.0
    radius = torch.where((c & 0x40000000) != 0, radius, -radius)
    swapped = c < 0
    first, second = torch.where(swapped, y, x), torch.where(swapped, x, y)
    pairs = torch.cat([radius * first, radius * second])
    return pairs.view(8, -1, host.LANES).transpose(0, 1)


def root(x: Tensor) -> Tensor:
    """The square root; torch's own, from MKL, may be off by a unit in the last place."""
    return torch.sqrt(x)


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    value = x * coefficients[-1] + coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        value = x * value + coefficient
    return value


@cache
def series(kind: torch.dtype) -> Any:
    """The host's coefficients in a type, as Python numbers."""
    *parts, ln2 = host.SERIES[str(kind).removeprefix("torch.")]
    return (*(tuple(float(c) for c in part) for part in parts), float(ln2))


@cache
def check(device: torch.device, kind: torch.dtype) -> None:
    """Refuse a device whose numbers differ from the host's."""
    normals = KeystreamNormals(bytes(range(32)))
    ours = np.empty(host.TILE, str(kind).removeprefix("torch."))
    theirs = torch.empty(host.TILE, dtype=kind, device=device)
    row, start = 2**63 + 5, 2**34 - host.TILE  # signs and carries of all integers
    normals.fill(row, ours, start)
    normals.fill(row, theirs, start)
    apart = float((theirs.cpu() - torch.from_numpy(ours)).abs().max())
    if not apart <= CLOSE * host.LARGEST:
        raise PrecisionError(
            f"the generator makes other numbers on {device} than on the CPU (by up to {apart:.3g}),"
            " so its noise may have another law there. Use generator='philox', which draws on the "
            "CPU."
        )
