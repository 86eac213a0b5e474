"""Claim: the noise of step t is row t of sigma C^-1 z, for every strategy that the library makes.

Truth: dense inverses, and for trees least squares or the largest nodes, written out in noise_cases.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases.noise import CASES, MADE, UnitVectors, decoded
from cases.samples import sampled

import mmcc.training._noise
from mmcc import strategies, utility
from mmcc.training import NoiseStream
from mmcc.training._randomness import KeystreamNormals

COORDINATES = 100_000
FAR = 7.0
"""Standard errors: over the 10^4 entries compared a right program is beyond it with 3e-8."""


@pytest.fixture
def unit_vectors(monkeypatch):
    monkeypatch.setattr(mmcc.training._noise, "normals", lambda *_: UnitVectors())


@pytest.mark.parametrize("options", [{}, {"block": 7}, {"block": 1}], ids=str)
@pytest.mark.parametrize(("name", "decoder"), CASES)
def test_the_stream_is_the_decoders_matrix(name, decoder, options, unit_vectors):
    strategy = MADE[name]()
    stream = NoiseStream(strategy, 1.7, strategy.rows, decoder=decoder, **options)
    found = np.array(list(stream))
    assert found.shape == (strategy.steps, strategy.rows)
    np.testing.assert_allclose(found, 1.7 * decoded(strategy, decoder), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "decoder", "generator"), sampled(CASES, ["device", "philox", "chacha"], strength=1)
)
def test_covariance_over_many_coordinates(name, decoder, generator):
    if generator == "chacha":
        pytest.importorskip("cryptography")
    strategy = MADE[name]()
    stream = NoiseStream(strategy, 2.5, COORDINATES, seed=11, decoder=decoder, generator=generator)
    found = np.array(list(stream))
    matrix = 2.5 * decoded(strategy, decoder)
    expected = matrix @ matrix.T
    own = np.diag(expected)
    error = np.sqrt((np.outer(own, own) + expected**2) / COORDINATES)
    assert np.abs((found @ found.T / COORDINATES - expected) / error).max() < FAR
    assert np.abs(found.mean(axis=1) / np.sqrt(own / COORDINATES)).max() < FAR


@pytest.mark.parametrize(("name", "decoder"), CASES)
def test_prefix_sums_have_the_error_that_utility_says(name, decoder, unit_vectors):
    strategy = MADE[name]()
    stream = NoiseStream(strategy, 3.0, strategy.rows, decoder=decoder)
    errors = np.linalg.norm(np.cumsum(list(stream), axis=0), axis=1)
    rmse = utility.rmse(strategy, 3.0, decoder=decoder)
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(rmse, rel=1e-9)
    assert errors.max() == pytest.approx(
        utility.max_error(strategy, 3.0, decoder=decoder), rel=1e-9
    )


@pytest.mark.parametrize("bands", [2, 9])
def test_coordinates_that_cross_pieces_are_treated_alike(bands):
    """More coordinates than a piece: C w = sigma z in each of them."""
    strategy = strategies.banded_toeplitz(20, bands)
    stream = NoiseStream(strategy, 2.0, 3 * mmcc.training._noise.PIECE + 5, seed=4)
    fresh = np.array([stream.fresh(row) for row in range(20)])
    outputs = np.array(list(stream))
    np.testing.assert_allclose(strategy.to_dense() @ outputs, 2.0 * fresh, rtol=0, atol=1e-12)


def test_fresh_noise_of_a_tree_is_that_of_its_nodes():
    strategy = strategies.binary_tree(13)
    stream = NoiseStream(strategy, 2.0, 5, seed=4)
    fresh = np.array([stream.fresh(row) for row in range(strategy.rows)])
    expected = 2.0 * decoded(strategy, "honaker") @ fresh
    np.testing.assert_allclose(np.array(list(stream)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "decoder"), CASES)
def test_single_precision_follows_double_precision(name, decoder):
    strategy = MADE[name]()
    double = np.array(list(NoiseStream(strategy, 2.0, 500, 8, decoder=decoder)))
    single = np.array(list(NoiseStream(strategy, 2.0, 500, 8, decoder=decoder, dtype=np.float32)))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-5)


def test_long_runs_do_not_drift():
    """Twenty thousand steps of a BLT in single precision: C w is still sigma z."""
    strategy = strategies.blt(20_000, 3)
    stream = NoiseStream(strategy, 1.0, 4, seed=1, dtype=np.float32)
    fresh = np.array([stream.fresh(row) for row in range(19_000, 20_000)])
    outputs = np.array(list(stream), dtype=np.float64)
    encoded = np.array([strategy.encode(outputs.T)]).squeeze().T
    assert np.abs(encoded[19_000:] - fresh).max() < 1e-4


AGAIN = [
    (name, decoder)
    for name, decoder in CASES
    if decoder == "online" or "inverse" in name or name in ("identity", "one step", "dense")
]


@pytest.mark.parametrize("generator", ["device", "philox"])
@pytest.mark.parametrize(("name", "decoder"), AGAIN)
def test_noise_that_is_made_again_has_the_bits_of_noise_that_is_kept(name, decoder, generator):
    strategy, size = MADE[name](), mmcc.training._noise.PIECE + 5
    options = {"decoder": decoder, "generator": generator, "dtype": np.float32}
    kept = NoiseStream(strategy, 1.3, size, 5, **options)
    again = NoiseStream(strategy, 1.3, size, 5, memory="regenerate", **options)
    assert all(np.array_equal(*pair) for pair in zip(kept, again, strict=True))


@pytest.mark.parametrize(("name", "decoder"), AGAIN)
def test_noise_that_is_made_again_goes_on_from_the_key(name, decoder):
    strategy = MADE[name]()

    def stream(seed):
        return NoiseStream(strategy, 1.3, 7, seed, decoder=decoder, memory="regenerate")

    whole, running = np.array(list(stream(5))), stream(5)
    for position in range(strategy.steps):
        state, other = running.state(), stream(6)
        assert state["buffers"].size == 0
        other.restore(state)
        assert np.array_equal(next(other), whole[position])
        next(running)


def test_fresh_vectors_that_are_made_again(monkeypatch):
    """As many as C^-1 has bands; two on average and at most one a level for a tree."""
    drawn = []
    real = KeystreamNormals.fill
    monkeypatch.setattr(
        KeystreamNormals, "fill", lambda own, row, *rest: drawn.append(row) or real(own, row, *rest)
    )
    list(NoiseStream(strategies.banded_inverse(20, 3), 1.0, 5, memory="regenerate"))
    assert len(drawn) == 1 + 2 + 18 * 3
    drawn.clear()
    tree = NoiseStream(strategies.binary_tree(64), 1.0, 5, memory="regenerate", decoder="online")
    counts = []
    for _ in tree:
        counts.append(len(drawn))
        drawn.clear()
    assert sum(counts) <= 2 * 64
    assert max(counts) == 7
