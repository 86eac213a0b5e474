"""Claim: the reveal bound of chains never goes below the truth, and neither does a step of it.

Truths: Gram matrices written out; enumeration of all participation sets, one output integrated and
four standard errors allowed; quadrature without tolerance where columns lie in a plane; the exact
likelihood of long bands, simulated (`oracles.band_likelihood`).
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from cases import reveal
from cases.reveal import counting_bands, log_uniform, random_toeplitz
from cases.samples import first, sampled
from oracles import band_likelihood, enumeration, truth

from mmcc import sampling, strategies
from mmcc.accounting._bounds.reveal.chains.chain import Chain, binomial_prior
from mmcc.accounting._bounds.reveal.chains.domination import Shape, Spectrum, spectrum_of
from mmcc.accounting._bounds.reveal.chains.shapes import good_shapes

# ------------------------------------------------------------------------------ random mechanisms


def scheme_of(probability: float, separation: int) -> sampling.Scheme:
    if separation == 1:
        return sampling.Poisson(probability)
    return sampling.CyclicPoisson(probability, separation)


# ------------------------------------------------------------------------------------- domination


def chain_matrix(chain: Chain) -> np.ndarray:
    """The Gram matrix, written out."""
    place = np.arange(chain.steps) // chain.block
    common = chain.shared * chain.decay ** np.abs(place[:, None] - place)
    return common + chain.white * np.eye(chain.steps)


def full_lags(strategy: strategies.Toeplitz, separation: int, columns: int) -> np.ndarray:
    """Inner products of columns none of which is cut at the end.

    Of BLTs only as many rows are counted as the first column has, or, for k >= 1, the pair of the
    first two: entrywise more than what is there.
    """
    buffers = strategy.buffer_numbers
    places = separation * np.arange(columns)
    if buffers is None:
        c = strategy.coefficients
        ends = np.concatenate([c, np.zeros(int(places[-1]) + 1)])
        return np.array([c @ ends[k : k + c.size] for k in places])
    decay, scale = buffers
    powers = np.arange(strategy.steps + int(places[-1]))
    ends = np.concatenate([[1.0], (scale[:, None] * decay[:, None] ** powers).sum(axis=0)])
    rows = strategy.steps - separation
    found = [ends[:rows] @ ends[k : k + rows] for k in places]
    found[0] = float(ends[: strategy.steps] @ ends[: strategy.steps])
    return np.array(found)


def random_shape(rng: np.random.Generator, spectrum: Spectrum) -> Shape:
    decay = 1 - log_uniform(rng, 1e-3, 0.95)
    return Shape(log_uniform(rng, 0.01, 3) * float(spectrum.lags[0]), decay)


@pytest.mark.parametrize("seed", first(range(40), 12))
def test_the_chain_dominates_in_one_order_or_the_other(seed):
    """Past the end: more rows or larger entries.  Then a Loewner step, or an entrywise one."""
    rng = np.random.default_rng([seed, 1])
    steps, separation = int(rng.integers(2, 60)), int(rng.integers(1, 4))
    strategy = random_toeplitz(rng, steps)
    rounds = sampling.Rounds(0.1, separation)
    spectrum = spectrum_of(strategy, rounds)
    dense = strategy.to_dense()[:, ::separation]
    truly, columns = dense.T @ dense, dense.shape[1]
    assert spectrum.columns == columns
    place = np.abs(np.subtract.outer(np.arange(columns), np.arange(columns)))
    whole = full_lags(strategy, separation, columns)[place]
    if strategy.buffer_numbers is None:
        assert np.linalg.eigvalsh(whole - truly).min() >= -1e-12 * np.trace(whole)
    assert (whole >= truly * (1 - 1e-13)).all()
    for shape in (random_shape(rng, spectrum), *good_shapes(spectrum, 2.0)):
        common = shape.shared * shape.decay**place
        loewner, entrywise = spectrum._loewner(shape), spectrum._entrywise(shape)
        raised = np.array([0.0, *shape.raised, *np.zeros(columns)])[place]
        assert (raised >= 0).all()
        below = np.linalg.eigvalsh(common + loewner * np.eye(columns) - whole - raised).min()
        assert below >= -1e-12 * np.trace(whole)
        if math.isfinite(entrywise):
            assert (common + entrywise * np.eye(columns) >= whole * (1 - 1e-13)).all()
        assert spectrum.white(shape) == min(loewner, entrywise)


@pytest.mark.parametrize("seed", range(40))
def test_entries_below_those_of_a_chain_are_found_and_no_others(seed):
    rng = np.random.default_rng([seed, 2])
    steps = int(rng.integers(3, 30))
    strategy = random_toeplitz(rng, steps)
    spectrum = spectrum_of(strategy, sampling.Rounds(0.1, 1))
    lags = full_lags(strategy, 1, steps)
    decay = float(rng.uniform(max(spectrum.decay, 0.3), 1))
    least = float(np.max(lags[1:] / decay ** np.arange(1, steps))) or 1.0
    above = spectrum._entrywise(Shape(least * (1 + 1e-6), decay))
    assert above == pytest.approx(max(lags[0] - least, 0), rel=1e-5, abs=1e-5 * lags[0])
    if lags[1:].any() and lags[1] / decay == least:
        assert spectrum._entrywise(Shape(least * (1 - 1e-6), decay)) == math.inf
    if spectrum.decay:
        assert spectrum._entrywise(Shape(1e9, spectrum.decay * (1 - 1e-6))) == math.inf


@pytest.mark.parametrize("seed", first(range(40), 12))
def test_nothing_sticks_out_between_frequencies(seed):
    """Omega against the same difference at frequencies fifty times as dense: no tolerance."""
    rng = np.random.default_rng([seed, 3])
    steps, separation = int(rng.integers(2, 80)), int(rng.integers(1, 3))
    strategy = random_toeplitz(rng, steps)
    spectrum = spectrum_of(strategy, sampling.Rounds(0.1, separation))
    own = full_lags(strategy, separation, 3000 if spectrum.decay else spectrum.columns)
    for shape in (random_shape(rng, spectrum), *good_shapes(spectrum, 2.0)):
        lags = np.zeros(max(own.size, len(shape.raised) + 1))
        lags[: own.size] = own
        lags[1 : len(shape.raised) + 1] += shape.raised
        omega = spectrum._loewner(shape)
        kernel = (1 - shape.decay**2) / (
            1 - 2 * shape.decay * np.cos(spectrum.nodes) + shape.decay**2
        )
        waves = np.cos(np.multiply.outer(spectrum.nodes, np.arange(1, len(shape.raised) + 1)))
        heights = spectrum.heights + 2 * waves @ np.array(shape.raised)
        worst = int(np.argmax(heights - shape.shared * kernel))
        ends = spectrum.nodes[max(worst - 1, 0)], spectrum.nodes[min(worst + 1, kernel.size - 1)]
        fine = np.concatenate([np.linspace(*ends, 101), rng.uniform(0, np.pi, 100)])
        rest = np.array([lags[0], *(2 * lags[1:])])
        rest -= shape.shared * np.array([1.0, *(2 * shape.decay ** np.arange(1, lags.size))])
        over = np.cos(np.multiply.outer(fine, np.arange(lags.size))) @ rest
        # Where the sum of the chain's powers is cut off it is too small by this.
        cut = 2 * shape.shared * shape.decay**lags.size / (1 - shape.decay)
        assert over.max() - cut <= omega


@pytest.mark.parametrize(("decay", "scale"), [(0.995, 0.02), (0.999, 0.05), (0.9999, 0.01)])
def test_blocks_dominate_the_chain_of_single_steps(decay, scale):
    strategy = strategies.blt(3000, decay=[decay], scale=[scale])
    spectrum = spectrum_of(strategy, sampling.Rounds(0.01, 1))
    found = spectrum.chain(spectrum.exact, 2.0, binomial_prior(1, 0.01))
    assert found.block > 1
    assert found.steps >= 3000
    columns = strategy.to_dense()[:, :300] / 2.0
    matrix = chain_matrix(found)[:300, :300]
    single = spectrum.exact.shared * spectrum.exact.decay ** np.arange(300.0) / 4
    assert (matrix >= columns.T @ columns).all()
    assert (matrix[0, 1:] >= single[1:]).all()
    assert matrix[0, 0] >= single[0] + spectrum.white(spectrum.exact) / 4


@pytest.mark.parametrize("decay", [1 - 1e-6, 1 - 1e-9, 1 - 2.0**-53])
@pytest.mark.parametrize("steps", [3, 1000, 10**6])
def test_slow_decays_have_inner_products_that_are_large_enough(decay, steps):
    """sum r^2k over the rows, with many digits."""
    strategy = strategies.blt(steps, decay=[decay], scale=[0.5])
    spectrum = spectrum_of(strategy, sampling.Rounds(0.1, 1))
    with mpmath.workdps(60):
        r = mpmath.mpf(decay)
        square = mpmath.mpf(0.25) / (1 - r * r)
        diagonal = 1 + square * (1 - r ** (2 * steps - 2))
        first = mpmath.mpf(0.5) + square * r * (1 - r ** (2 * steps - 4))
        assert diagonal <= spectrum.lags[0] <= diagonal * (1 + mpmath.mpf(1e-7))
        assert first <= spectrum.lags[1] <= first * (1 + mpmath.mpf(1e-7))
        share = first / r
        assert spectrum.heights[0] >= diagonal - share + share * (1 + r) / (1 - r) * (1 - 1e-15)
        assert spectrum.exact.shared * mpmath.mpf(spectrum.exact.decay) >= first
    assert decay <= spectrum.decay < 1


# ---------------------------------------------------------------------------------- the whole bound


def check_against_enumeration(seed: int, relative: float) -> None:
    rng = np.random.default_rng([seed, 5])
    steps = int(rng.integers(1, 8))
    separation = 1 if rng.random() < 0.6 else int(rng.integers(1, steps + 1))
    strategy = random_toeplitz(rng, steps)
    p, sigma = log_uniform(rng, 0.02, 0.95), log_uniform(rng, 0.5, 30)
    delta = float(10 ** rng.uniform(-9, -2))
    found = reveal.bound_epsilon(strategy, scheme_of(p, separation), sigma, delta)
    for adjacency, epsilon in (("remove", found.remove), ("add", found.add)):
        assert epsilon >= 0
        if not math.isfinite(epsilon):
            continue
        try:
            exact = enumeration.enumerated_delta(
                strategy.to_dense(),
                p,
                sigma,
                epsilon,
                adjacency,
                columns=range(0, steps, separation),
                relative=relative,
                seed=seed,
            )
        except enumeration.UnreliableError:
            continue
        assert exact.mean - 4 * exact.error <= delta


@pytest.mark.parametrize("seed", first(range(24), 8))
def test_epsilon_is_never_below_enumeration(seed):
    check_against_enumeration(seed, relative=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24, 424))
def test_epsilon_is_never_below_enumeration_many(seed):
    check_against_enumeration(seed, relative=0.003)


@pytest.mark.parametrize("seed", first(range(6), 2))
def test_two_columns_against_quadrature(seed):
    """No sampling here, so no tolerance: the truth is a quadrature with its own error."""
    rng = np.random.default_rng([seed, 78])
    separation = int(rng.integers(1, 4))
    strategy = random_toeplitz(rng, 2 * separation)
    p, sigma = log_uniform(rng, 0.02, 0.95), log_uniform(rng, 0.5, 30)
    matrix = strategy.to_dense()[:, ::separation]
    for level in (0.3, 1.0):
        epsilon = level * p / sigma * (1 + 1 / sigma)
        found = reveal.bound_delta(strategy, scheme_of(p, separation), sigma, epsilon)
        for adjacency, bound in (("remove", found.remove), ("add", found.add)):
            low, _ = truth.two_row_bracket(matrix, p, sigma, epsilon, adjacency)
            assert low <= bound


@pytest.mark.parametrize(("p", "sigma", "epsilon"), first([(0.1, 1.5, 0.2), (0.4, 4.0, 0.3)], 1))
def test_three_columns_in_a_plane_against_quadrature(p, sigma, epsilon):
    """Two of three rows, so less is released than the bound counts: still below, no tolerance."""
    strategy = strategies.toeplitz([1.0, 1.0], 3)
    matrix = strategy.to_dense()[1:]
    found = reveal.bound_delta(strategy, sampling.Poisson(p), sigma, epsilon)
    for adjacency, bound in (("remove", found.remove), ("add", found.add)):
        low, _ = truth.two_row_bracket(matrix, p, sigma, epsilon, adjacency)
        assert 0 <= low <= bound


@pytest.mark.parametrize(
    ("sigma", "delta", "remove", "add"),
    [(1, 1e-5, 6.8836, 1.3154), (1, 1e-6, 7.8254, 1.3402), (4, 1e-6, 1.1833, 0.7184)],
)
def test_two_steps_against_known_numbers(sigma, delta, remove, add):
    found = reveal.bound_epsilon(
        strategies.toeplitz([1, 0.5], 2), sampling.Poisson(0.5), sigma, delta
    )
    assert found.remove >= remove - 5e-5
    assert found.add >= add - 5e-5


@pytest.mark.parametrize(
    ("count", "p", "sigma", "adjacency"),
    sampled([(200, 0.05, 1.0), (2000, 0.01, 0.8), (30, 0.5, 5.0)], truth.ADJACENCIES, strength=1),
)
def test_independent_noise_against_exact_composition(count, p, sigma, adjacency):
    delta = 1e-6
    found = reveal.bound_epsilon(strategies.identity(count), sampling.Poisson(p), sigma, delta)
    epsilon = getattr(found, adjacency)
    low, _ = truth.composed_subsampled_gaussian_delta(count, 1.0, p, sigma, epsilon, adjacency)
    assert low <= delta
    near, _ = truth.composed_subsampled_gaussian_delta(
        count, 1.0, p, sigma, 0.998 * epsilon, adjacency
    )
    assert near > delta  # nothing is dominated here: what is left is rounding


def check_long_bands(bands, steps, p, sigma, delta, samples):
    strategy = counting_bands(bands, steps)
    found = reveal.bound_epsilon(strategy, sampling.Poisson(p), sigma, delta)
    mean, error = band_likelihood.simulated_delta(
        strategy.coefficients, steps, p, sigma, found.remove, samples=samples, seed=bands
    )
    assert error < 0.2 * mean
    assert mean - 4 * error <= delta


def test_long_bands_against_the_simulated_likelihood():
    check_long_bands(2, 500, 0.02, 2.2, 1e-2, samples=4_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bands", "steps", "p", "sigma"),
    [
        (2, 1000, 0.02, 1.5),
        (2, 2000, 0.01, 5.0),
        (4, 500, 0.02, 2.5),
        (4, 2000, 0.01, 1.5),
        (8, 1000, 0.01, 3.03),
        (8, 2000, 0.01, 1.78),
    ],
)
@pytest.mark.parametrize("delta", [1e-2, 1e-4])
def test_more_long_bands_against_the_simulated_likelihood(bands, steps, p, sigma, delta):
    samples = min(40_000, 10**9 // (steps * 2**bands))
    check_long_bands(bands, steps, p, sigma, delta, samples)


def test_delta_and_epsilon_agree():
    strategy = strategies.blt(500, decay=[0.9], scale=[0.2])
    scheme = sampling.Poisson(0.02)
    epsilon = reveal.bound_epsilon(strategy, scheme, 3.0, 1e-6)
    for side in truth.ADJACENCIES:
        delta = reveal.bound_delta(strategy, scheme, 3.0, getattr(epsilon, side))
        assert 0.98e-6 <= getattr(delta, side) <= 1.02e-6


def test_more_steps_and_more_noise_move_the_right_way():
    scheme = sampling.Poisson(0.02)

    def value(steps: int, sigma: float) -> float:
        strategy = strategies.blt(steps, decay=[0.9], scale=[0.2])
        return reveal.bound_epsilon(strategy, scheme, sigma, 1e-6).value

    assert value(200, 3.0) < value(400, 3.0)
    assert value(400, 3.2) < value(400, 3.0)


@pytest.mark.parametrize(
    ("strategy", "p", "sigma", "delta"),
    [
        (strategies.toeplitz([1, 0.5], 10**12), 1e-8, 1.0, 1e-5),
        (strategies.toeplitz([1, 0.5], 100), 0.5, 1e-40, 1e-5),
        (strategies.toeplitz([1, 0.5], 100), 0.5, 1e12, 1e-5),
        (strategies.toeplitz([1, 0.5], 10), 1e-12, 1.0, 1e-5),
        (strategies.toeplitz([1, 0.5], 10), 1e-300, 1.0, 1e-5),
        (strategies.toeplitz([1, 0.5], 100), 0.999999, 2.0, 1e-5),
        (strategies.toeplitz([1, 0.5], 100), 1 - 2.0**-53, 2.0, 1e-5),
        (strategies.toeplitz([1e-90, 1e-95], 100), 0.1, 1.0, 1e-5),
        (strategies.toeplitz([1, 1e-90], 100), 0.1, 1.0, 1e-5),
        (strategies.toeplitz([1, 0.5], 100), 1.0, 2.0, 1e-5),
        (strategies.toeplitz([1, 0.5], 1), 0.3, 2.0, 0.9),
        pytest.param(strategies.toeplitz([1, 0.5], 100), 0.01, 2.0, 1e-300, marks=pytest.mark.slow),
        (strategies.toeplitz([1, 0.5], 100), 0.01, 2.0, 1 - 1e-9),
        (strategies.blt(50, decay=[1 - 2.0**-53], scale=[0.5]), 0.1, 2.0, 1e-5),
        (strategies.blt(50, decay=[1e-200], scale=[1e-300]), 0.1, 2.0, 1e-5),
        (strategies.continual_counting(20_000), 0.1, 5.0, 1e-5),
    ],
)
def test_extremes_give_a_number_or_infinity(strategy, p, sigma, delta):
    found = reveal.bound_epsilon(strategy, sampling.Poisson(p), sigma, delta)
    assert found.remove >= 0
    assert found.add >= 0


@pytest.mark.parametrize(
    ("strategy", "epsilon"),
    [
        (strategies.toeplitz([1, 0.5], 30), 0.0),
        (strategies.identity(1), 0.0),
        (strategies.identity(1), 1e6),
    ],
)
def test_deltas_at_extreme_epsilons_are_chances(strategy, epsilon):
    found = reveal.bound_delta(strategy, sampling.Poisson(0.3), 1.0, epsilon)
    assert 0 <= found.remove <= 1
    assert 0 <= found.add <= 1


def test_taking_part_in_every_step_is_the_gaussian_mechanism():
    strategy = strategies.toeplitz([1.0, 0.5, 0.2], 8)
    for separation in (1, 3):
        scheme = scheme_of(1.0, separation)
        length = float(np.linalg.norm(strategy.to_dense()[:, ::separation].sum(axis=1)))
        sides = reveal.bound_epsilon(strategy, scheme, 3.0, 1e-5)
        assert sides.remove == sides.add
        assert truth.gaussian_delta(length, 3.0, sides.add) <= 1e-5
        assert truth.gaussian_delta(length, 3.0, sides.add * (1 - 1e-9)) > 1e-5
        found = reveal.bound_delta(strategy, scheme, 3.0, sides.add)
        assert found.remove == found.add == pytest.approx(1e-5, rel=1e-8)


def test_blocks_are_above_enumeration():
    """A slow decay, few steps: delta of the chain with blocks against that of the strategy."""
    from mmcc.accounting._bounds.reveal.chains.curve import curve_near, good_setting

    shared, decay, white, p = 0.03, 0.98, 0.005, 0.2
    place = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    gram = shared * decay**place + white * np.eye(6)
    matrix = np.linalg.cholesky(gram).T
    for block in (2, 3):
        lifted = shared * decay ** (1 - block)
        rest = max(white - (lifted - shared), 0.04 * lifted)
        chain = Chain(6 // block, block, lifted, decay**block, rest, binomial_prior(1, p))
        for adjacency in truth.ADJACENCIES:
            setting = good_setting(chain, adjacency, 1e-4)
            epsilon = curve_near(setting, 1e-4).epsilon(1e-4)
            exact = enumeration.enumerated_delta(matrix, p, 1.0, epsilon, adjacency)
            assert exact.mean - 4 * exact.error <= 1e-4
