"""Claim: the chain of bins is above every true delta, and its covariance above every overlap.

Two bins: quadrature in the plane, with its own error.  More bins: the sampled mixture, at four
standard errors.  Overlaps: entry by entry, without tolerance.
"""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
from cases.samples import first, sampled
from oracles import truth
from oracles.enumeration import mixture_delta
from oracles.mechanisms import counting_matrix
from oracles.truth import ADJACENCIES

from mmcc.accounting._bounds.cascade.chain import FINE, ROUGH, ChainBracket, _Lattice, chain_law
from mmcc.accounting._bounds.cascade.domination import Links, dominate
from mmcc.errors import PrecisionError

SCALES = (0.01, 0.1, 1.0, 4.0, 12.0)


def random_links(seed: int, bins: int, scale: float) -> Links:
    rng = np.random.default_rng([seed, 91])
    return Links(
        scale * rng.uniform(0.02, 1),
        np.sqrt(scale * rng.uniform(0.1, 1, bins)),
        rng.uniform(0.2, 0.96, bins - 1),
        scale * rng.uniform(0.1, 1, bins),
    )


def overlaps_of(seed: int, bins: int) -> np.ndarray:
    """Dense, banded, cyclic, sparse or counting; one bin may be short or empty."""
    rng = np.random.default_rng([seed, 92])
    kind = seed % 5
    matrix = rng.uniform(0, 1, (bins, bins))
    if kind == 1:
        matrix = np.tril(np.triu(matrix, -2))
    elif kind == 2:
        matrix = sum(np.roll(np.eye(bins), k, axis=0) * rng.uniform(0, 1) for k in range(3))
    elif kind == 3:
        matrix *= rng.random((bins, bins)) < 0.3
        matrix[0, 0] = 1.0
    elif kind == 4:
        matrix = counting_matrix(bins)
    if seed % 3 == 0:
        matrix[:, -1] *= rng.choice([0.0, 1e-6])
    matrix *= 10 ** rng.uniform(-1.5, 0.7)
    return matrix.T @ matrix


@pytest.mark.parametrize(
    ("seed", "scale", "adjacency"), sampled(enumerate(SCALES), ADJACENCIES, strength=1)
)
def test_two_bins_of_a_chain_by_quadrature(seed, scale, adjacency):
    links = random_links(seed, 2, scale)
    components = np.linalg.cholesky(links.covariance)
    for delta, resolution in itertools.product((1e-3, 1e-6, 1e-10), (ROUGH, FINE)):
        law = chain_law(links, delta, adjacency, resolution)
        epsilon = law.bound_epsilon(delta)
        assert truth.bins_bracket(components, epsilon, adjacency)[0] <= delta
        for at in (0.0, 0.5 * epsilon, 1.2 * epsilon):
            assert truth.bins_bracket(components, at, adjacency)[0] <= law.bound_delta(at)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_two_bins_of_a_chain_are_almost_exact(adjacency):
    """Not a claim of safety: that a mistake in the law would be seen above."""
    for seed, scale in enumerate(SCALES[1:]):
        links = random_links(seed, 2, scale)
        epsilon = chain_law(links, 1e-6, adjacency, FINE).bound_epsilon(1e-6)
        components = np.linalg.cholesky(links.covariance)
        assert truth.bins_bracket(components, 0.985 * epsilon, adjacency)[1] >= 1e-6


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("bins", [3, 6, 12])
def test_the_law_has_the_true_mean_and_a_little_more_variance(bins, adjacency):
    links = random_links(bins, bins, 0.3)
    found = chain_law(links, 1e-12, adjacency, FINE)
    values, masses = found.law.values, found.law.masses
    below = links.chain_part + np.diag(links.own)
    assert abs(masses.sum() - 1) < 1e-5
    if adjacency == "remove":
        assert abs(masses @ values - 1) < 1e-5
        assert 1.0 <= masses @ values**2 / np.exp(below).mean() < 1.003


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("seed", first(range(8), 3))
def test_two_bins_with_any_overlaps(seed, adjacency):
    overlaps = overlaps_of(seed, 2)
    components = np.linalg.cholesky(overlaps + 1e-300 * np.eye(2)) if seed % 3 else None
    if components is None:  # one bin is as good as empty
        components = np.diag(np.sqrt(np.diagonal(overlaps)))
    for delta in (1e-3, 1e-7):
        found = ChainBracket(overlaps * (1 + 1e-12), delta)
        epsilon = getattr(found.bound_epsilon(delta), adjacency)
        assert truth.bins_bracket(components, epsilon, adjacency)[0] <= delta


@pytest.mark.parametrize(
    ("bins", "sigma", "delta", "adjacency"),
    sampled([(5, 1.5, 1e-4), (8, 0.9, 1e-5), (16, 0.7184, 1e-5)], ADJACENCIES, strength=1),
)
def test_counting_by_sampling(bins, sigma, delta, adjacency):
    components = counting_matrix(bins).T / sigma
    found = ChainBracket(components @ components.T * (1 + 1e-12), delta)
    epsilon = getattr(found.bound_epsilon(delta), adjacency)
    weights = np.full(bins, 1 / bins)
    true = mixture_delta(components, weights, epsilon, adjacency, relative=0.01)
    assert true.mean - delta <= 4 * true.error


@pytest.mark.parametrize("bins", [2, 3, 7, 24, 70])
@pytest.mark.parametrize("seed", first(range(10), 4))
def test_every_overlap_is_below_the_chain(seed, bins):
    """The covariance in 40 digits, from the numbers that the law is computed with."""
    overlaps = overlaps_of(seed, bins)
    rng = np.random.default_rng(seed)
    try:
        links = dominate(overlaps, float(np.median(overlaps)) + 1e-3 * float(overlaps.max()))
    except PrecisionError:
        assert seed % 5 not in (1, 4)  # bands and counting matrices always have a chain
        return
    assert np.all(links.own > 0)
    assert np.all((links.decays > 0) & (links.decays < 1))
    with mpmath.workdps(40):
        for r, s in rng.integers(0, bins, (60, 2)) if bins > 7 else np.ndindex(bins, bins):
            low, high = min(r, s), max(r, s)
            entry = mpmath.mpf(links.loads[low]) * links.loads[high]
            for decay in links.decays[low:high]:
                entry *= mpmath.mpf(decay)
            entry += mpmath.mpf(links.common) + (links.own[r] if r == s else 0)
            assert entry >= overlaps[r, s]
    assert np.all(links.covariance >= overlaps)


@pytest.mark.parametrize("bins", [2, 3])
def test_sums_over_the_lattice_are_integrals(bins):
    """Means of a positive function of the outputs, against a lattice five times as fine."""
    links = random_links(bins, bins, 1.0)
    coarse, fine = _Lattice(links, 1e-6, "add"), _Lattice(links, 1e-6, "add")
    fine.spacing = coarse.spacing / 5
    sums = []
    for lattice in (coarse, fine):
        outputs = [
            np.exp(-0.5 * (0.3 * r - links.loads[r] * lattice.states) ** 2 / links.own[r])
            for r in range(len(links.loads))
        ]
        weights = lattice.start * outputs[0]
        for r in range(1, len(links.loads)):
            weights = (lattice.step(r - 1).T @ weights) * outputs[r]
        sums.append(float(weights.sum()))
    assert sums[1] <= sums[0] * coarse.growth + coarse.outside
    assert sums[0] <= sums[1] * coarse.growth + coarse.outside
