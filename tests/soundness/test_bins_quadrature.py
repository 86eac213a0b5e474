"""Claim: where delta of balls-in-bins is known to many digits, both ends hold without tolerance.

Components in a plane: two-dimensional quadrature with its own error.  One bin, or chains of nodes:
one Gaussian, 50 digits.  Two independent bins: one integral in mpmath.  A forest of unequal trees:
a two-dimensional trapezoid, which converges faster than any power.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from cases.bins import folded
from cases.projection import forest_matrix
from cases.samples import first, sampled
from oracles import truth
from oracles.enumeration import mixture_delta
from oracles.truth import ADJACENCIES
from scipy.special import ndtr

import mmcc
from mmcc import sampling, strategies
from mmcc.accounting._bounds.cascade.law import WIDEST, TreeBracket
from mmcc.accounting._bounds.projection.bracket import _bound_epsilon, _curve, _deficit, _solve
from mmcc.accounting._bounds.projection.lower import lower_delta, lower_epsilon
from mmcc.errors import PrecisionError
from mmcc.strategies._gram import DenseGram
from mmcc.strategies._hierarchy import Node, binary

SIGMAS = (0.3, 0.6, 1.1, 2.5, 9.0, 30.0)
DELTAS = (1e-3, 1e-5, 1e-8, 1e-12)


def assert_epsilons(low: float, high: float, delta: float, curve) -> None:
    """`curve(epsilon)` is a pair of numbers around the true delta of one adjacency."""
    assert low <= high
    if low > 0:
        assert curve(low)[1] >= delta, (low, high)
    if math.isfinite(high):
        assert curve(high)[0] <= delta, (low, high)


def assert_projection(components: np.ndarray, delta: float, curve) -> None:
    """`curve(epsilon, adjacency)` is a pair of numbers around the true delta."""
    gram = DenseGram(components @ components.T, 1.0, components.shape[1])
    for adjacency in ADJACENCIES:
        found = lower_epsilon(gram, None, delta, adjacency)
        high = _bound_epsilon(gram, None, delta, adjacency, found)

        def sided(epsilon, adjacency=adjacency):
            return curve(epsilon, adjacency)

        assert_epsilons(found.value, high, delta, sided)
        if adjacency == "add" and found.value > 0:
            moments = _solve(_deficit(gram, None, found, delta, found.value), delta, found.value)
            assert_epsilons(found.value, moments, delta, sided)
        at = 0.5 * (max(found.value, 0.0) + min(high, 2 * max(found.value, 0.1)))
        low = lower_delta(gram, None, at, adjacency)
        assert low.value <= sided(at)[1]
        assert _curve(gram, None, low, adjacency, delta, at).bound_delta(at) >= sided(at)[0]


def assert_cascade(root: Node, sigma: float, delta: float, curve) -> None:
    cascade = TreeBracket(root, sigma, delta)
    low, high = cascade.lower_epsilon(delta), cascade.bound_epsilon(delta)
    for adjacency in ADJACENCIES:

        def sided(epsilon, adjacency=adjacency):
            return curve(epsilon, adjacency)

        below, above = getattr(low, adjacency), getattr(high, adjacency)
        assert_epsilons(below, above, delta, sided)
        at = 0.5 * (below + min(above, 2 * below + 1))
        assert getattr(cascade.lower_delta(at), adjacency) <= sided(at)[1]
        assert getattr(cascade.bound_delta(at), adjacency) >= sided(at)[0]


# Components in a plane.


def plane_components(seed: int) -> np.ndarray:
    """Two bins in any number of rows, or any number of bins in two; one of them may be tiny."""
    rng = np.random.default_rng([seed, 58])
    if seed % 3:
        matrix = np.tril(rng.uniform(0, 1, (4, 4)) * (rng.random((4, 4)) < 0.7)) + 0.2 * np.eye(4)
        components = folded(matrix, 2).T
    else:
        bins = int(rng.integers(2, 10))
        components = rng.uniform(0, 1, (bins, 2)) * (rng.random((bins, 2)) < 0.8) + 0.02
    if seed % 5 == 4:
        components[-1] *= 1e-5
    return components / np.linalg.norm(components, axis=1).max()


def check_plane(seed: int) -> None:
    sigma, delta = SIGMAS[seed % len(SIGMAS)], DELTAS[seed // 2 % len(DELTAS)]
    components = plane_components(seed) / sigma

    def curve(epsilon, adjacency):
        return truth.bins_bracket(components, epsilon, adjacency)

    assert_projection(components, delta, curve)


@pytest.mark.parametrize("seed", first(range(12), 3))
def test_bins_in_a_plane_lie_in_the_bracket(seed):
    check_plane(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_bins_in_a_plane_lie_in_the_bracket(seed):
    check_plane(seed)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_plane_oracle_agrees_with_mpmath(adjacency):
    for sigma, epsilon in ((0.7, 3.0), (1.5, 1.0), (4.0, 0.6)):
        exact = two_bins_delta(1.0, 0.5, sigma, epsilon, adjacency)
        low, high = truth.bins_bracket(np.diag([1.0, 0.5]) / sigma, epsilon, adjacency)
        assert low <= exact <= high
        assert high - low <= 1e-9 * high


def two_bins_delta(first: float, second: float, sigma: float, epsilon: float, adjacency: str):
    """E((L + L')/2 - e^eps)_+, or E(1 - e^eps (L + L')/2)_+: L' in closed form, L by quadrature."""
    with mpmath.workdps(25):
        a, b, k = (mpmath.mpf(first) / sigma, mpmath.mpf(second) / sigma, mpmath.exp(epsilon))

        def excess(left):
            """E(L'/2 - left)_+."""
            if left <= 0:
                return mpmath.mpf(0.5) - left
            d = (mpmath.log(2 * left) + b * b / 2) / b
            return mpmath.ncdf(b - d) / 2 - left * mpmath.ncdf(-d)

        def shortfall(left):
            if left <= 0:
                return mpmath.mpf(0)
            d = (mpmath.log(2 * left) + b * b / 2) / b
            return left * mpmath.ncdf(d) - mpmath.ncdf(d - b) / 2

        def inside(x):
            half = mpmath.exp(a * x - a * a / 2) / 2
            if adjacency == "remove":
                return mpmath.npdf(x) * excess(k - half)
            return k * mpmath.npdf(x) * shortfall(1 / k - half)

        # Corners: where L alone reaches the level, and where it does with L' = 1, as wide as b / a.
        level = 2 * k if adjacency == "remove" else 2 / k
        corners = [(mpmath.log(x) + a * a / 2) / a for x in (level, level - 1) if x > 0]
        gaps = [0, *(i * (b / a) * 2**j for j in range(-2, 14) for i in (-1, 1)), -4, -8, 4, 8]
        ends = {mpmath.mpf(-30), a - 4, a + 4, 40 + a, *(c + g for c in corners for g in gaps)}
        return mpmath.quad(inside, sorted(x for x in ends if -30 <= x <= 40 + a))


# The cascade.


@pytest.mark.parametrize(
    ("nodes", "sigma", "delta"), sampled([1, 2, 5], SIGMAS, DELTAS, strength=1)
)
def test_one_bin_is_the_gaussian_mechanism(nodes, sigma, delta):
    """A chain of nodes above one bin: the product of their factors is one lognormal."""
    root = Node(1.0)
    for i in range(1, nodes):
        root = Node(0.3 * i, ((1, root),))
    length = math.sqrt(root.height)
    sigma *= length

    def curve(epsilon, adjacency):
        exact = truth.gaussian_delta(length, sigma, epsilon)
        return float(exact) * (1 - 1e-15), float(exact) * (1 + 1e-15)

    assert_cascade(root, sigma, delta, curve)


@pytest.mark.parametrize(
    ("nodes", "length", "delta"),
    sampled(
        [1, 2],
        [1.0, 5.0, 10.0, 13.0, 15.0, 17.0, 20.0, 25.0],
        [1e-5, 1e-30, 1e-60, 1e-100, 1e-150, 1e-199],
        strength=1,
    ),
)
def test_underflow_never_lowers_a_bound(nodes, length, delta):
    """The smallest masses that matter are about delta e^-eps, which floats cannot hold."""

    def curve(epsilon, adjacency):
        exact = truth.gaussian_delta(length, 1.0, epsilon)
        return exact * (1 - 1e-15), exact * (1 + 1e-15)

    below = Node(length**2 / nodes)
    root = below if nodes == 1 else Node(length**2 / 2, ((1, below),))
    try:
        assert_cascade(root, 1.0, delta, curve)
    except PrecisionError:
        assert 0.5 * length**2 + 9 * length > 0.5 * WIDEST or delta < 1e-30


SHARES = (0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2)
"""Of the noise at which products begin to overflow: from well within floats to beyond them."""


@pytest.mark.parametrize(
    ("steps", "share"),
    sampled((4, 8, 64, 1024), SHARES, strength=1),
)
def test_overflow_is_never_read_as_privacy(steps, share):
    """Products of two large values may be infinite: then there is no answer, not epsilon 0.

    Epsilon is at least that of one bin with the chance of the others given away: X >= L / bins.
    """
    length = math.sqrt(steps.bit_length())
    sigma = length / (24.0 * share)
    tree = strategies.binary_tree(steps)
    found = mmcc.bracket(tree, sampling.BallsInBins(steps), sigma=sigma, delta=1e-5)
    alone = truth.smallest_epsilon(lambda e: truth.gaussian_delta(length, sigma, e), 1e-5)
    assert alone - math.log(steps) <= found.upper <= alone * (1 + 1e-9)
    assert found.lower <= found.upper


def check_two_bins(a: float, b: float, sigma: float, delta: float) -> None:
    def curve(epsilon, adjacency):
        exact = two_bins_delta(a, b, sigma, epsilon, adjacency)
        return exact * (1 - 1e-14), exact * (1 + 1e-14)

    root = Node(0.0, ((2, Node(a * a)),) if a == b else ((1, Node(a * a)), (1, Node(b * b))))
    assert_cascade(root, sigma, delta, curve)


@pytest.mark.parametrize(
    ("a", "b", "sigma", "delta"),
    [
        pytest.param(1, 1, 1.0, 1e-5, marks=pytest.mark.slow),
        (1, 1, 0.4, 1e-12),
        pytest.param(1, 0.3, 0.8, 1e-8, marks=pytest.mark.slow),
        pytest.param(1, 0.05, 3.0, 1e-3, marks=pytest.mark.slow),
    ],
)
def test_two_independent_bins_by_mpmath(a, b, sigma, delta):
    check_two_bins(a, b, sigma, delta)


@pytest.mark.slow
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("b", [1, 0.7, 1e-2])
def test_two_independent_bins_by_mpmath_everywhere(b, sigma, delta):
    check_two_bins(1, b, sigma, delta)


@pytest.mark.parametrize(
    ("own", "shared", "sigma", "delta"),
    sampled([(1.0, 0.0), (1.0, 1.0), (0.2, 3.0)], SIGMAS, DELTAS, strength=1),
)
def test_two_leaves_below_one_node(own, shared, sigma, delta):
    components = np.array([[own, 0, shared], [0, own, shared]]) ** 0.5 / sigma

    def curve(epsilon, adjacency):
        return truth.bins_bracket(components, epsilon, adjacency)

    assert_cascade(Node(shared, ((2, Node(own)),)), sigma, delta, curve)


@pytest.mark.parametrize(
    ("entry", "sigma", "delta"),
    sampled([1e-3, 1e-6, 1e-9, 1e-90], [(0.3, 1e-8), (1.0, 1e-5), (20.0, 1e-4)], strength=1),
)
def test_bins_of_very_different_lengths(entry, sigma, delta):
    """The short bin is as good as a constant; the longer ones are known as if it were one."""
    components = np.diag([1.0, entry]) / sigma

    def curve(epsilon, adjacency):
        return truth.bins_bracket(components, epsilon, adjacency)

    assert_cascade(strategies.dense(np.diag([1.0, entry])).hierarchy(2), sigma, delta, curve)


def three_leaves_delta(sigma: float, epsilon: float, adjacency: str) -> tuple[float, float]:
    """The tree over three steps: X = (2 W + L) / 3, W = L_1 (L_2 + L_3) / 2.

    The density of log W is a two-dimensional trapezoid, L is integrated in closed form, and W by
    Gauss-Legendre on panels that end where 2 W = 3 e^eps.
    """
    s = 1 / sigma
    values = [_three_leaves(s, math.exp(epsilon), adjacency, step) for step in (0.16, 0.1)]
    error = abs(values[0] - values[1]) + 1e-11 * values[1]
    return values[1] - error, values[1] + error


def _three_leaves(s: float, k: float, adjacency: str, step: float) -> float:
    x = np.arange(-12, 12 + 3 * s, step)
    leaf = np.exp(s * x - s * s / 2)
    i, j = np.triu_indices(len(x))
    logs = np.log((leaf[i] + leaf[j]) / 2) - s * s / 2
    masses = np.where(i == j, 1.0, 2.0) * np.exp(-(x[i] ** 2 + x[j] ** 2) / 2)
    masses *= step**2 / (2 * math.pi)
    level = 3 * (k if adjacency == "remove" else 1 / k)
    kink = math.log(level / 2)
    gaps = np.concatenate([[0], np.geomspace(1e-9, 1.0, 28), np.linspace(1.2, 12 + 8 * s, 20)])
    edges = kink + np.concatenate([-gaps[:0:-1], gaps])
    nodes, weights = np.polynomial.legendre.leggauss(12)
    half = np.diff(edges) / 2
    w = (edges[:-1, None] + half[:, None] * (1 + nodes)).ravel()
    weights = (half[:, None] * weights).ravel()
    rest = level - 2 * np.exp(w)
    d = (np.log(np.maximum(rest, 1e-300)) + s * s / 2) / s
    if adjacency == "remove":
        gain = np.where(rest > 0, ndtr(s - d) - rest * ndtr(-d), 1 - rest) / 3
    else:
        gain = k * np.where(rest > 0, rest * ndtr(d) - ndtr(d - s), 0.0) / 3
    density = [masses @ np.exp(-(((at - logs) / s) ** 2) / 2) for at in w]
    return float((weights * gain) @ np.array(density)) / (s * math.sqrt(2 * math.pi))


@pytest.mark.parametrize(
    ("sigma", "delta"),
    [
        (1.0, 1e-5),
        pytest.param(0.5, 1e-9, marks=pytest.mark.slow),
        pytest.param(4.0, 1e-4, marks=pytest.mark.slow),
    ],
)
def test_a_forest_of_two_unequal_trees(sigma, delta):
    root = strategies.binary_tree(3).hierarchy(3)
    known: dict[tuple[float, str], tuple[float, float]] = {}

    def curve(epsilon, adjacency):
        key = epsilon, adjacency
        if key not in known:
            known[key] = three_leaves_delta(sigma, epsilon, adjacency)
            assert known[key][1] - known[key][0] <= 1e-6 * known[key][1]
        return known[key]

    assert_cascade(root, sigma, delta, curve)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    ("steps", "sigma", "delta"),
    [pytest.param(6, 1.5, 1e-5, marks=pytest.mark.slow), (7, 4.0, 1e-4)],
)
def test_forests_of_more_trees(steps, sigma, delta, adjacency):
    """Sampled to 0.05 %, compared at four standard errors."""
    cascade = TreeBracket(strategies.binary_tree(steps).hierarchy(steps), sigma, delta)
    components, weights = forest_matrix(steps).T / sigma, np.full(steps, 1 / steps)
    low = getattr(cascade.lower_epsilon(delta), adjacency)
    high = getattr(cascade.bound_epsilon(delta), adjacency)
    for epsilon, sign in ((low, 1.0), (high, -1.0)):
        found = mixture_delta(components, weights, epsilon, adjacency, relative=5e-4)
        assert sign * (found.mean - delta) >= -4 * found.error


# Published numbers.


@pytest.mark.parametrize(
    ("bins", "published", "ours"),
    [(8, (3.711, 3.726), (3.71851, 3.71853)), (64, (1.792, 1.806), (1.79863, 1.79866))],
)
def test_independent_noise_agrees_with_published_brackets(bins, published, ours):
    """One of `bins` steps, sigma 1, delta 1e-8; the second pair is from our own prototype."""
    scheme = sampling.BallsInBins(bins)
    found = mmcc.bracket(strategies.identity(bins), scheme, sigma=1.0, delta=1e-8)
    assert published[0] <= found.lower <= found.upper <= published[1]
    assert found.lower <= ours[1]
    assert found.upper >= ours[0]


def test_complete_trees_and_hierarchies_have_the_same_numbers():
    whole = TreeBracket(binary(4, 1.0, 1.0), 2.0, 1e-5).bound_epsilon(1e-5)
    tree = TreeBracket(strategies.binary_tree(8).hierarchy(8), 2.0, 1e-5).bound_epsilon(1e-5)
    assert (whole.remove, whole.add) == (tree.remove, tree.add)
