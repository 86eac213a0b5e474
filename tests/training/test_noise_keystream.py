"""Claim: `device` noise is ChaCha20's keystream, turned into normals as the docstring says.

Truth: RFC 8439, the formulas in extended precision,
exact normal probabilities.
"""

from __future__ import annotations

import hashlib
import os
import platform
import struct
import subprocess
import sys

import numpy as np
import pytest
from oracles.chacha import chacha_block
from scipy import stats

from mmcc.errors import ParameterError
from mmcc.training import _keystream as keystream
from mmcc.training._randomness import KeystreamNormals, normals, probe

KEY = bytes(range(32))
KINDS = {"float32": 2.0**-22, "float64": 2.0**-51}
"""How far numbers are from the formulas, in units of the radius."""
EXTREMES = [0, 1, 2, 2**24, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**31 + 1, 3 * 2**30, 2**32 - 1]


def words_of(row: int, block: int, count: int) -> np.ndarray:
    found = np.empty((16, count), np.uint32)
    keystream.keystream(KeystreamNormals(KEY).words, np.uint64(row), block, found)
    return found


def pairs(words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y and R of columns (a, b, c, d), by the formulas."""
    real = np.longdouble
    a, b, c, d = words
    v = ((a % 2**31).astype(real) * 2**31 + (b // 2).astype(real) + real(0.5)) * real(2) ** -63
    upper = a >= 2**31
    radius = np.sqrt(-2 * np.where(upper, np.log1p(-v), np.log(v)))
    low = (c % 2**30).astype(np.int64)
    low = np.where(low >= 2**29, low - 2**30, low)  # two's complement of 30 bits
    t = low.astype(real) * real(2) ** -30
    t += ((d // 2).astype(real) + real(0.5)) * real(2) ** -61
    angle = t * real("1.57079632679489661923132169163975")
    x, y = np.cos(angle), np.sin(angle)
    swapped, turned = c >= 2**31, np.where(c % 2**31 >= 2**30, 1, -1)
    x, y = np.where(swapped, y, x), np.where(swapped, x, y)
    return turned * radius * x, turned * radius * y, radius


def normals_of(words: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """x and y of the same columns, as the kernel makes them."""
    four = np.tile(words, (4, 1)).astype(np.uint32)
    found = np.full((8, words.shape[1]), np.nan, kind)
    keystream.to_normals(four, found, keystream.SERIES[kind])
    assert all(np.array_equal(found[0], found[pair]) for pair in range(4))
    return found[0], found[4]


@pytest.mark.parametrize(
    ("row", "block"), [(0, 0), (1, 5), (2**32 + 7, 2**31 - 2), (2**64 - 1, 2**32 - 9)]
)
def test_words_are_those_of_the_cipher(row, block):
    nonce = row.to_bytes(12, "little")
    expected = [struct.unpack("<16I", chacha_block(KEY, block + k, nonce)) for k in range(9)]
    assert np.array_equal(words_of(row, block, 9).T, expected)


def test_the_example_of_the_rfc():
    """Section 2.3.2: block 1, nonce 00:00:00:09:00:00:00:4a:00:00:00:00."""
    row = int.from_bytes(bytes.fromhex("000000090000004a"), "little")
    found = words_of(row, 1, 1).astype("<u4").tobytes()
    assert found.hex().startswith("10f1e7e4d13b5915500fdd1fa32071c4")


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_the_formulas(kind):
    random = np.random.default_rng(3).integers(0, 2**32, (4, 200_000), dtype=np.uint32)
    grid = np.array(np.meshgrid(*[EXTREMES] * 4), np.uint32).reshape(4, -1)
    small = random[:, :50_000].copy()
    small[0] >>= np.random.default_rng(4).integers(0, 32, 50_000).astype(np.uint32)  # far out
    for words in (random, grid, small):
        x, y, radius = pairs(words)
        for found, expected in zip(normals_of(words, kind), (x, y), strict=True):
            assert (np.abs(found - expected) <= KINDS[kind] * radius).all()


@pytest.mark.parametrize("kind", KINDS)
def test_no_number_is_larger_than_stated_or_infinite(kind):
    x, y = normals_of(np.array(np.meshgrid(*[EXTREMES] * 4), np.uint32).reshape(4, -1), kind)
    both = np.abs(np.concatenate([x, y]))
    assert np.isfinite(both).all()
    assert 9.419 < both.max() <= keystream.LARGEST * (1 + 2.0**-20)


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_number_stands(kind):
    """Pair p of lane l of tile s is block 128 s + l, words 4 p and on; x first, y 512 later."""
    row, tile, source = 12, 3, KeystreamNormals(KEY)
    found = np.empty(1024, kind)
    source.fill(row, found, 1024 * tile)
    nonce = row.to_bytes(12, "little")
    for pair, lane in [(0, 0), (1, 5), (2, 127), (3, 64)]:
        block = struct.unpack("<16I", chacha_block(KEY, 128 * tile + lane, nonce))
        words = np.array(block[4 * pair : 4 * pair + 4], np.uint32)[:, None]
        x, y = normals_of(words, kind)
        assert found[128 * pair + lane] == x[0]
        assert found[512 + 128 * pair + lane] == y[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [0, 1, 1023, 1024, 70_001, 2**33 + 77])
def test_a_part_of_a_row_is_a_part_of_the_row(kind, start):
    source = normals(5, "device")
    long = np.empty(140_000, kind)
    source.fill(9, long, start)
    for skipped, size in [(0, 1), (1, 1), (100, 1024), (1024, 1024), (999, 100_003)]:
        part = np.empty(size, kind)
        source.fill(9, part, start + skipped)
        assert np.array_equal(part, long[skipped : skipped + size])


def test_both_types_have_the_same_noise():
    source = normals(5, "device")
    single, double = np.empty(300_000, np.float32), np.empty(300_000)
    source.fill(3, single)
    source.fill(3, double)
    assert 0 < np.abs(single - double).max() < 4e-6


def law(drawn: np.ndarray) -> None:
    """Standard normals, in the middle and far out; 5.5 standard errors, chances below 1e-6."""
    size = drawn.size
    edges = np.concatenate([[-np.inf], np.arange(-4.5, 4.6, 0.25), [np.inf]])
    counts, _ = np.histogram(drawn, edges)
    expected = size * np.diff(stats.norm.cdf(edges))
    assert expected.min() > 1
    assert stats.chi2.sf(np.sum((counts - expected) ** 2 / expected), counts.size - 1) > 1e-6
    assert stats.kstest(drawn, stats.norm.cdf).pvalue > 1e-6
    for power, moment, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        assert abs(np.mean(drawn**power) - moment) < 5.5 * np.sqrt(variance / size)
    for far in (3.0, 4.0, 5.0):
        mean = 2 * size * stats.norm.sf(far)
        count = int(np.sum(np.abs(drawn) > far))
        assert stats.poisson.sf(count - 1, mean) > 1e-6
        assert stats.poisson.cdf(count, mean) > 1e-6


@pytest.mark.parametrize("size", [10**6, pytest.param(10**7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_law(kind, size):
    drawn = np.empty(size, kind)
    normals(5, "device").fill(3, drawn, 12_345)
    law(drawn.astype(np.float64))


@pytest.mark.slow
def test_law_far_out():
    """2 10^9 numbers in float32: about 1150 beyond 5, 4 beyond 6."""
    source, drawn = normals(6, "device"), np.empty(10**7, np.float32)
    beyond = np.zeros(3)
    for row in range(200):
        source.fill(row, drawn)
        beyond += [np.sum(np.abs(drawn) > far) for far in (4.5, 5.0, 6.0)]
    means = 2 * 200 * drawn.size * stats.norm.sf([4.5, 5.0, 6.0])
    assert (stats.poisson.sf(beyond - 1, means) > 1e-6).all()
    assert (stats.poisson.cdf(beyond, means) > 1e-6).all()


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_independent_where_they_share_a_block_a_lane_or_a_place(kind):
    """Products of numbers, and of their squares, over 10^5 pairs: 6 standard errors."""
    size, source = 100 * 1024, normals(8, "device")
    rows = np.empty((6, size), kind)
    for row, drawn in enumerate(rows):
        source.fill(row << 32 if row > 3 else row, drawn)
    other = np.empty(size, kind)
    normals(9, "device").fill(0, other)
    rows = rows.astype(np.float64)
    lags = [(rows[0, lag:], rows[0, :-lag]) for lag in (1, 2, 127, 128, 256, 384, 512, 640, 1024)]
    across = [(rows[k], rows[k + 1]) for k in range(5)] + [(rows[0], other)]
    for one, two in (*lags, *across):
        assert abs(np.mean(one * two)) < 6 / np.sqrt(one.size)
        assert abs(np.mean((one**2 - 1) * (two**2 - 1))) < 6 * 2 / np.sqrt(one.size)
    assert np.unique(rows).size > (0.9 if kind == "float32" else 0.99999) * rows.size


def test_the_key_has_256_bits_and_all_of_them_count():
    base = np.empty(64)
    KeystreamNormals(KEY).fill(0, base)
    for place in range(32):
        key = bytearray(KEY)
        key[place] ^= 1 << place % 8
        other = np.empty(64)
        KeystreamNormals(bytes(key)).fill(0, other)
        assert not np.any(other == base)


def test_a_row_that_is_too_long_is_refused():
    with pytest.raises(ParameterError, match="numbers in a row of noise"):
        KeystreamNormals(KEY).fill(0, np.empty(2), 2**35 - 1)


def test_a_probe_sees_both_types(monkeypatch):
    source = normals(1, "device")
    before = probe(source)
    real = keystream.FILL["float32"]

    def changed(key, row, start, numbers):
        real(key, row, start, numbers)
        numbers *= -1

    monkeypatch.setitem(keystream.FILL, "float32", changed)
    assert probe(source) != before


CODE = """
import numpy as np, hashlib
from mmcc.training._randomness import normals
for kind in ("float32", "float64"):
    drawn = np.empty(200_000, kind)
    normals(5, "device").fill(3, drawn, 7)
    print(hashlib.sha256(drawn.tobytes()).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of its processors")
@pytest.mark.parametrize("processor", ["x86-64", "nehalem", "haswell"])
def test_bits_are_the_same_whatever_the_compiler_may_use(processor, tmp_path):
    expected = []
    for kind in KINDS:
        drawn = np.empty(200_000, kind)
        normals(5, "device").fill(3, drawn, 7)
        expected.append(hashlib.sha256(drawn.tobytes()).hexdigest())
    told = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    path = os.pathsep.join(part for part in sys.path if part)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE],
        env={**os.environ, **told, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == expected
