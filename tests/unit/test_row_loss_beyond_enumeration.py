"""Claim: every part of a row's privacy loss agrees with, or lies beyond, enumeration."""

from __future__ import annotations

import itertools
import math
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from mmcc.accounting._bounds.mmcc.conditional import bound_participation, bound_probabilities
from mmcc.accounting._losses import expansions
from mmcc.accounting._losses import row_loops as kernels
from mmcc.accounting._losses.laws import ProductLaw
from mmcc.strategies._geometry import Block

VALUES = np.array([0.31, 0.47, 0.05, 1.13, 0.9])
PROBS = np.array([0.2, 0.01, 0.5, 0.07, 0.35])
TAIL = 1e-12


def subsets(probs: np.ndarray):
    """All participation sets with their probabilities."""
    for chosen in itertools.product((False, True), repeat=probs.size):
        yield np.array(chosen), float(np.prod(np.where(chosen, probs, 1 - probs)))


# Laws of the sensitivity.


def test_moments_of_a_sum_are_those_of_all_sets():
    found = kernels.series_product(VALUES, PROBS, 9)
    for order in range(9):
        exact = math.fsum(
            chance * VALUES[chosen].sum() ** order for chosen, chance in subsets(PROBS)
        )
        assert found[order] == pytest.approx(exact / math.factorial(order), rel=1e-13)


@pytest.mark.parametrize("spacing", [0.1, 0.37, 5.0])
def test_classes_of_a_lattice_are_those_of_all_sets(spacing):
    """Moments of the residuals, their signs included, and E e^(rate sum |r|) for the error."""
    rate, orders = 1.7, 5
    places = np.rint(VALUES / spacing).astype(int)
    residuals = VALUES - places * spacing
    exact = np.zeros((places.sum() + 1, orders))
    absolute = np.zeros(len(exact))
    for chosen, chance in subsets(PROBS):
        left, size = residuals[chosen].sum(), np.abs(residuals[chosen]).sum()
        powers = left ** np.arange(orders) / [math.factorial(m) for m in range(orders)]
        exact[places[chosen].sum()] += chance * powers
        absolute[places[chosen].sum()] += chance * math.exp(rate * size)
    first, table, sizes, dropped = kernels.lattice_product(
        VALUES, PROBS, spacing, orders, rate, 0.0
    )
    assert first == 0
    assert dropped == 0.0
    np.testing.assert_allclose(table, exact, rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(sizes, absolute, rtol=1e-12)


def test_classes_that_are_cut_off_are_counted():
    high = np.array([0.97, 0.999, 0.995, 0.02])  # rare classes at both ends
    first, table, _, dropped = kernels.lattice_product(np.ones(4), high, 1.0, 3, 1.0, 1e-3)
    law = np.zeros(5)
    for chosen, chance in subsets(high):
        law[chosen.sum()] += chance
    assert first > 0
    assert first + len(table) < 6
    assert dropped > 0.0
    assert math.fsum(table[:, 0]) + dropped == pytest.approx(1.0, rel=1e-13)
    assert np.all(table[:, 0] <= law[first : first + len(table)] * (1 + 1e-13))
    assert np.all(table[:, 0] >= law[first : first + len(table)] - dropped)


ROUTES = ("values", "binomial", "sure", "series", "power", "lattice", "coarse")


@cache
def expansion_of(route: str) -> expansions.Expansion:
    """A law that takes this route."""
    rare = np.linspace(0.01, 0.03, 12), np.full(12, 1e-3)
    made = {
        "values": lambda: expansions.expand_values(
            np.array([0.0, 0.4, 2.0]), np.array([0.5, 0.3, 0.2]), TAIL
        ),
        "binomial": lambda: expansions.expand_binomial(0.3, 0.1, 25, 0.2, TAIL),
        "sure": lambda: expansions.expand(ProductLaw(VALUES, np.ones(5)), TAIL),
        "series": lambda: expansions.expand_series(*rare, 0.1, TAIL, 1e-9),
        "power": lambda: expansions.expand_series(
            np.array([0.01]), np.array([1e-4]), 0.0, TAIL, 1e-9, 5000
        ),
        "lattice": lambda: expansions.expand_lattice(VALUES, PROBS, 0.3, TAIL, 1e-9),
        "coarse": lambda: expansions.expand_coarsely(VALUES, PROBS, 0.3, TAIL),
    }[route]()
    assert made is not None
    return made


def binomial_law(value, p, trials, most):
    p = mpmath.mpf(p)
    chances = [mpmath.binomial(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(most)]
    return [(mpmath.mpf(value) * k, chance) for k, chance in enumerate(chances)]


def exact_law(route: str):
    """Values of X with their probabilities, to many digits."""
    if route == "values":
        return [(mpmath.mpf(x), mpmath.mpf(q)) for x, q in ((0.0, 0.5), (0.4, 0.3), (2.0, 0.2))]
    if route == "sure":
        return [(mpmath.fsum(VALUES.tolist()), mpmath.mpf(1))]
    if route == "binomial":
        return [(x + mpmath.mpf(0.2), q) for x, q in binomial_law(0.3, 0.1, 25, 26)]
    if route == "power":
        return binomial_law(0.01, 1e-4, 5000, 30)
    if route == "series":  # more than five of twelve have a chance below 1e-15
        values, q = np.linspace(0.01, 0.03, 12).tolist(), mpmath.mpf(1e-3)
        return [
            (mpmath.mpf(0.1) + mpmath.fsum(chosen), q**k * (1 - q) ** (12 - k))
            for k in range(6)
            for chosen in itertools.combinations(values, k)
        ]
    return [
        (
            mpmath.mpf(0.3) + mpmath.fsum(VALUES[chosen].tolist()),
            mpmath.fprod(
                mpmath.mpf(q) if here else 1 - mpmath.mpf(q)
                for q, here in zip(PROBS.tolist(), chosen.tolist(), strict=True)
            ),
        )
        for chosen, _ in subsets(PROBS)
    ]


@pytest.mark.parametrize("route", ROUTES)
def test_what_lies_beyond_the_ends_has_at_most_the_mass_of_the_tail(route):
    expansion = expansion_of(route)
    with mpmath.workdps(40):
        assert mpmath.ncdf(-expansion.reach) <= TAIL
        law = exact_law(route)
        above = mpmath.fsum(q * mpmath.ncdf(x - expansion.top) for x, q in law)
        assert above <= expansion.tail == TAIL
        assert mpmath.fsum(q * mpmath.ncdf(x - expansion.top + 4) for x, q in law) > TAIL


@pytest.mark.parametrize("p", [0.01, 0.3])
@pytest.mark.parametrize("value", [0.2, 0.6, 2.5])
def test_chernoff_bounds_leave_at_most_the_tail(value, p):
    """From the whole law, and from its mean and largest value alone, which is no smaller."""
    trials = 30
    whole = expansions.exact_chernoff_top(np.full(trials, value), np.full(trials, p), TAIL)
    rough = expansions.chernoff_top(trials * p * value, value, TAIL)
    with mpmath.workdps(40):
        law = binomial_law(value, p, trials, trials + 1)
        assert mpmath.fsum(q * mpmath.ncdf(x - whole) for x, q in law) <= TAIL
        assert mpmath.fsum(q * mpmath.ncdf(x - whole + 2 + value) for x, q in law) > TAIL
    assert whole <= rough


@pytest.mark.parametrize("route", [route for route in ROUTES if route != "coarse"])
def test_the_likelihood_ratio_has_the_stated_error(route):
    """Counts that are left out get infinite loss, and are as rare as stated."""
    expansion = expansion_of(route)
    y = np.linspace(-expansion.reach, expansion.top, 23)
    found = kernels.log_ratios(y, expansion.centres, expansion.coefficients)
    with mpmath.workdps(40):
        most = float(expansion.centres.max()) + 1e-9 if route == "binomial" else math.inf
        law = exact_law(route)
        assert mpmath.fsum(q for x, q in law if x > most) <= expansion.dropped
        law = [(x, q) for x, q in law if x <= most]
        for point, log in zip(y.tolist(), found.tolist(), strict=True):
            exact = mpmath.log(mpmath.fsum(q * mpmath.exp(x * (point - x / 2)) for x, q in law))
            assert abs(exact - log) <= expansion.error + 4e-15 * (1 + abs(log))
    assert expansion.dropped <= 2 * TAIL


def test_coarse_laws_are_stochastically_larger_and_not_by_much():
    coarse, exact = expansion_of("coarse"), exact_law("coarse")
    spacing = VALUES.sum() / expansions.COARSE_CLASSES
    for x in np.linspace(0.3, 3.2, 117):
        below = float(mpmath.fsum(q for value, q in exact if value <= x))
        behind = float(mpmath.fsum(q for value, q in exact if value <= x - 6 * spacing))
        found = float(coarse.coefficients[coarse.centres <= x, 0].sum())
        assert behind * (1 - 1e-9) - TAIL <= found <= below * (1 + 1e-12)


@pytest.mark.parametrize("span", [3.0, 9.0])
@pytest.mark.parametrize("value", [0.05, 0.4, 2.0])
def test_the_remainder_covers_all_higher_orders(value, span):
    """R = value with chance q: the orders from M on, or the whole mass where R is too large."""
    orders, q = 11, 0.3
    coefficient = np.array([q * value**orders / math.factorial(orders)])
    beyond, outside = (float(part[0]) for part in expansions.remainder(coefficient, orders, span))
    with mpmath.workdps(40):
        for t in np.linspace(-span, span, 41):
            whole = q * mpmath.exp(value * mpmath.mpf(float(t)) - mpmath.mpf(value) ** 2 / 2)
            low = mpmath.fsum(
                q * mpmath.mpf(value) ** m / mpmath.factorial(m) * hermite(m, float(t))
                for m in range(orders)
            )
            assert abs(whole - low) <= beyond or outside >= q


def hermite(m: int, t: float) -> mpmath.mpf:
    before, now = mpmath.mpf(0), mpmath.mpf(1)
    for k in range(m):
        before, now = now, t * now - k * before
    return now


# Participation.


def tail_beyond(overlaps: np.ndarray, p: float, bound: float) -> float:
    """Pr[sum x_j g_j > bound]."""
    probs = np.full(overlaps.size, p)
    return math.fsum(
        chance for chosen, chance in subsets(probs) if overlaps[chosen].sum() > bound * (1 + 1e-12)
    )


def block_of(overlaps: np.ndarray, *, known: bool) -> Block:
    return Block(
        count=1,
        values=np.ones(len(overlaps)),
        squares=overlaps.max(axis=1),
        sums=overlaps.sum(axis=1),
        peaks=overlaps.max(axis=1),
        overlaps=overlaps if known else None,
    )


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("tail", [0.3, 1e-2, 1e-5])
@pytest.mark.parametrize("p", [0.002, 0.1, 0.6])
def test_participation_is_seldom_above_its_bound(p, tail, known):
    overlaps = np.random.default_rng(8).uniform(0, 1, (3, 9)) * [[1.0], [0.01], [30.0]]
    found = bound_participation(block_of(overlaps, known=known), p, tail)
    for row, bound in zip(overlaps, found, strict=True):
        assert tail_beyond(row, p, bound) <= tail
        assert bound <= row.sum() * (1 + 1e-10)


@pytest.mark.parametrize("tail", [1e-2, 1e-5])
@pytest.mark.parametrize("p", [1e-6, 0.002, 0.1, 0.4])
def test_bounds_on_equal_overlaps_are_near_the_quantile(p, tail):
    """The binomial bound is the quantile itself; Chernoff's is at most a few steps above it."""
    overlaps = np.full((1, 12), 0.7)
    quantile = next(
        t
        for t in range(13)
        if math.fsum(math.comb(12, k) * p**k * (1 - p) ** (12 - k) for k in range(t + 1, 13))
        <= tail
    )
    sharp = bound_participation(block_of(overlaps, known=True), p, tail)[0]
    chernoff = bound_participation(block_of(overlaps, known=False), p, tail)[0]
    assert sharp == pytest.approx(min(0.7 * quantile, chernoff), rel=1e-9)
    assert 0.7 * quantile <= chernoff * (1 + 1e-12)
    assert chernoff <= 0.7 * (1.5 * quantile + 2)


@pytest.mark.parametrize("sigma", [0.5, 3.0])
@pytest.mark.parametrize("budget", [0.2, 1e-4])
@pytest.mark.parametrize("p", [0.01, 0.4])
def test_posteriors_are_seldom_above_their_bounds(p, budget, sigma):
    """One column that was seen before with length c: its posterior is a function of <y, c>."""
    c = 0.8
    block = block_of(np.array([[c * c]]), known=True)
    for adjacency in ("remove", "add"):
        bound = float(bound_probabilities(block, p, sigma, budget, 0.0, adjacency)[0])
        odds = math.log(bound / (1 - bound)) - math.log(p / (1 - p))
        inner = odds * sigma**2 + c * c / 2  # the bound is passed where <y, c> is larger
        silent, active = (ndtr((mean - inner) / (sigma * c)) for mean in (0.0, c * c))
        chance = silent if adjacency == "add" else p * active + (1 - p) * silent
        assert chance <= budget
        if adjacency == "add":
            assert chance >= budget * (1 - 1e-6)
