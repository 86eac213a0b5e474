"""Claim: rows are standard normals, a pure function of (key, row), and never the same ones.

Truth: numpy's own jumps ahead, ChaCha20 written out from RFC 8439, exact normal probabilities.
"""

from __future__ import annotations

import struct
import sys

import numpy as np
import pytest
from oracles.chacha import chacha_block
from scipy import stats

from mmcc.errors import ParameterError
from mmcc.training import _randomness as randomness
from mmcc.training._randomness import GENERATORS, ChachaNormals, normals, normals_from

SAMPLES = 2_000_000
EDGES = np.concatenate([[-np.inf], np.arange(-4.75, 4.76, 0.25), [np.inf]])


def made(generator: str, seed: int | None = 5):
    if generator == "chacha":
        pytest.importorskip("cryptography")
    return normals(seed, generator)


def row_of(source, row: int, size: int) -> np.ndarray:
    out = np.empty(size)
    source.fill(row, out)
    return out


@pytest.mark.parametrize("generator", GENERATORS)
def test_law(generator):
    drawn = row_of(made(generator), 3, SAMPLES)
    assert stats.kstest(drawn, stats.norm.cdf).pvalue > 1e-6
    counts, _ = np.histogram(drawn, EDGES)
    expected = SAMPLES * np.diff(stats.norm.cdf(EDGES))
    assert expected.min() > 1  # the bins at the ends hold what lies beyond 4.75
    assert stats.chi2.sf(np.sum((counts - expected) ** 2 / expected), counts.size - 1) > 1e-6
    for power, moment, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        assert abs(np.mean(drawn**power) - moment) < 5.5 * np.sqrt(variance / SAMPLES)
    assert 4.5 < np.abs(drawn).max() < 7


@pytest.mark.parametrize("generator", GENERATORS)
def test_neighbours_are_unrelated(generator):
    source = made(generator)
    rows = np.array([row_of(source, row, 10_000) for row in range(60)])
    assert np.abs(np.corrcoef(rows) - np.eye(60)).max() < 6.5 / 100
    flat = rows.ravel()
    for lag in (1, 2, 3, 64):
        assert abs(np.mean(flat[lag:] * flat[:-lag])) < 5.5 / np.sqrt(flat.size)
    assert np.unique(rows).size == rows.size


@pytest.mark.parametrize("generator", GENERATORS)
def test_a_row_is_a_function_of_key_and_row(generator):
    source = made(generator)
    long = row_of(source, 9, 50_000)
    row_of(source, 10, 7)
    assert np.array_equal(row_of(source, 9, 50_000), long)
    assert np.array_equal(row_of(source, 9, 20_001), long[:20_001])
    assert np.array_equal(row_of(normals_from(source.state()), 9, 50_000), long)


@pytest.mark.parametrize("row", [0, 1, 2**40, 2**64 - 1])
def test_philox_segments_start_2_to_the_64_blocks_apart(row):
    source = normals(5, "philox")
    key = int.from_bytes(bytes.fromhex(source.state()["key"]), "little")
    found = row_of(source, row, 3 * 2**16 + 100)
    for segment in range(4):
        jumped = np.random.Philox(key=key)
        jumped.advance((row << 128) + (segment << 64))
        expected = np.random.Generator(jumped).standard_normal(2**16)
        part = found[segment * 2**16 : (segment + 1) * 2**16]
        assert np.array_equal(part, expected[: part.size])


@pytest.mark.parametrize("generator", GENERATORS)
def test_threads_make_no_difference(generator, monkeypatch):
    source = made(generator)
    several = row_of(source, 3, 300_001)
    monkeypatch.setattr(randomness, "MAX_THREADS", 1)
    assert np.array_equal(row_of(source, 3, 300_001), several)


def test_chacha_written_out():
    """The RFC's own example, so that what follows is the truth."""
    nonce = bytes.fromhex("000000090000004a00000000")
    assert chacha_block(bytes(range(32)), 1, nonce).hex().startswith("10f1e7e4d13b5915")


@pytest.mark.parametrize("row", [0, 1, 2**33 + 5])
def test_chacha_normals_are_those_of_the_keystream(row):
    pytest.importorskip("cryptography")
    key = bytes(range(32))
    nonce = row.to_bytes(12, "little")
    stream = b"".join(chacha_block(key, counter, nonce) for counter in range(40))
    words = np.frombuffer(stream, "<u8")
    expected = [
        (-1) ** (1 - int(word) % 2) * stats.norm.isf((int(word) // 2**11 + 0.5) / 2**54)
        for word in words
    ]
    found = row_of(ChachaNormals(key), row, words.size)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_chacha_segments_follow_each_other_in_the_keystream():
    """The ninth block of the second segment: 2^16 words are 2^13 blocks."""
    pytest.importorskip("cryptography")
    key, row = bytes(range(32)), 77
    block = chacha_block(key, 2**13 + 8, row.to_bytes(12, "little"))
    tails = [(word // 2**11 + 0.5) / 2**54 for word in struct.unpack("<8Q", block)]
    found = row_of(ChachaNormals(key), row, 2**16 + 100)[2**16 + 64 : 2**16 + 72]
    np.testing.assert_allclose(np.abs(found), stats.norm.isf(tails), rtol=1e-12)


@pytest.mark.parametrize(
    ("byte", "expected"), [(b"\x00", stats.norm.ppf(2.0**-55)), (b"\xff", 0.0)]
)
def test_chacha_has_no_infinite_normals(byte, expected, monkeypatch):
    class Stream:
        def update_into(self, plain, buffer):
            buffer[: len(plain)] = byte * len(plain)

    monkeypatch.setattr(randomness, "_keystream", lambda *_: Stream())
    found = row_of(ChachaNormals(bytes(32)), 0, 10)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("generator", GENERATORS)
def test_seeds(generator):
    made(generator)  # or skip
    keys = [normals(seed, generator).state()["key"] for seed in (0, 1, 2**64, 2**200, None, None)]
    assert len(set(keys)) == len(keys)
    assert normals(7, generator).state() == normals(np.int64(7), generator).state()
    one, other = (row_of(normals(seed, generator), 0, 100_000) for seed in (0, 1))
    assert abs(np.mean(one * other)) < 5.5 / np.sqrt(100_000)


def test_generators_have_keys_of_their_own():
    pytest.importorskip("cryptography")
    assert not normals(7, "chacha").state()["key"].startswith(normals(7, "philox").state()["key"])


@pytest.mark.parametrize("generator", GENERATORS)
def test_the_key_is_not_shown(generator):
    source = made(generator)
    assert source.state()["key"] not in repr(source)
    assert "key" not in repr(source)


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True, b"key"])
def test_seeds_that_are_none(seed):
    with pytest.raises(ParameterError, match="seed must be a whole number"):
        normals(seed)


def test_generators_that_are_none():
    with pytest.raises(ParameterError, match="did you mean 'philox'"):
        normals(1, "philx")
    with pytest.raises(ParameterError, match="hexadecimal"):
        normals_from({"kind": "philox", "key": "12"})
    with pytest.raises(ParameterError, match="hexadecimal"):
        normals_from({"kind": "philox", "key": "zz" * 16})


def test_chacha_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    with pytest.raises(ParameterError, match=r"pip install 'mmcc\[secure\]'"):
        normals(1, "chacha")
