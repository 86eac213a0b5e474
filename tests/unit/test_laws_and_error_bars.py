"""Claim: laws of rows and their error bars hold against many digits or all cases."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from mmcc.accounting._losses import engine, expansions
from mmcc.accounting._losses import row_loops as kernels
from mmcc.accounting._losses.composed import Question
from mmcc.accounting._losses.distribution import PrivacyLossDistribution
from mmcc.accounting._losses.engine import Effort
from mmcc.accounting._losses.expansions import Expansion
from mmcc.accounting._losses.laws import MixtureLaw, ProductLaw, merge_equal
from mmcc.accounting._losses.rows import cell_errors

ULP = 2.0**-53


@pytest.fixture(autouse=True)
def _many_digits():
    with mpmath.workdps(40):
        yield


# Cells of a row.


def density(y, centres, coefficients):
    """Of P at y: every class's Hermite series times the normal density around its centre."""
    total = mpmath.mpf(0)
    for x, series in zip(centres, coefficients, strict=True):
        t = y - mpmath.mpf(x)
        before, now, part = mpmath.mpf(0), mpmath.mpf(1), mpmath.mpf(0)
        for m, c in enumerate(series):
            part += mpmath.mpf(c) * now
            before, now = now, t * now - m * before
        total += part * mpmath.npdf(t)
    return total


RESIDUALS = np.array([0.4, -0.25])
CENTRES = np.array([0.0, 0.9])
COEFFICIENTS = np.array([[0.7], [0.3]]) * [
    [r**m / math.factorial(m) for m in range(12)] for r in RESIDUALS
]


@pytest.mark.parametrize("width", [0.003, 0.05, 0.9, 3.0])
def test_masses_of_cells_are_integrals(width):
    for left in (-2.3, -0.4, 0.35, 2.9):
        right = left + width
        p, q, _ = kernels.cell_mass(left, right, CENTRES, COEFFICIENTS)
        ends = [mpmath.mpf(left), mpmath.mpf(right)]
        mixture = mpmath.quad(lambda y: density(y, CENTRES, COEFFICIENTS), ends)
        assert p == pytest.approx(float(mixture), rel=2e-13)
        assert q == pytest.approx(float(mpmath.quad(mpmath.npdf, ends)), rel=2e-13)


def test_the_log_ratio_is_that_of_the_densities():
    for y in (-5.0, -0.4, 0.0, 1.7, 6.0):
        found, slope = kernels.log_ratio(y, CENTRES, COEFFICIENTS)

        def exact(y):
            return mpmath.log(density(y, CENTRES, COEFFICIENTS) / mpmath.npdf(y))

        assert found == pytest.approx(float(exact(mpmath.mpf(y))), abs=1e-13)
        assert slope == pytest.approx(float(mpmath.diff(exact, mpmath.mpf(y))), abs=1e-12)
    assert math.isnan(kernels.log_ratio(1.0, np.zeros(1), np.array([[1.0, -2.0]]))[0])


def plain(centres, probs, reach, top):
    return Expansion(np.array(centres), np.array(probs)[:, None], reach, top, 0.0)


BARS = {
    "narrow, far from the centre": (plain([20.0], [1.0], 10.0, 20.0), -10.0, 10.0, 6e-4),
    "wide, far from the centre": (plain([20.0], [1.0], 10.0, 20.0), -10.0, 10.0, 1e-2),
    "wide, around zero": (plain([0.0], [1.0], 30.0, 30.0), 0.0, 30.0, 1e-2),
    "wide, two classes, one around zero": (plain([0.0, 6.0], [1e-12, 1.0], 0.0, 6.0), 0, 0.2, 7e-3),
}


@pytest.mark.parametrize("name", BARS)
def test_error_bars_cover_the_masses_of_cells(name):
    """One error scales both masses, by at most the second bar; the first holds for what is left."""
    expansion, low, high, width = BARS[name]
    classes = list(zip(expansion.centres, expansion.coefficients[:, 0], strict=True))
    split, shared = cell_errors(expansion, math.inf if name.startswith("narrow") else width / 2)
    for left in np.random.default_rng(5).uniform(low, high - width, 80).tolist():
        right = left + width
        p, q, wide = kernels.cell_mass(left, right, expansion.centres, expansion.coefficients)
        assert wide != name.startswith("narrow")
        errors = []
        for mass, law in ((p, classes), (q, [(0.0, 1.0)])):
            exact = mpmath.fsum(c * normal_mass(left, right, x) for x, c in law)
            errors.append(mass / exact - 1)
        assert max(map(abs, errors)) <= split + shared
        assert abs(errors[0] - errors[1]) <= 2 * split


def normal_mass(left, right, centre):
    a, b = mpmath.mpf(left) - centre, mpmath.mpf(right) - centre
    return mpmath.ncdf(-a) - mpmath.ncdf(-b) if a > 0 else mpmath.ncdf(b) - mpmath.ncdf(a)


@pytest.mark.parametrize("width", [0.01, 0.3, 2.0, 12.0])
def test_shared_errors_grow_with_the_tails_that_are_subtracted(width):
    """Beside a cell lies a tail whose rounding error is one of the cell's mass."""
    expansion = plain([0.0], [1.0], 36.0, 36.0)
    room = cell_errors(expansion, math.inf)[0]
    shared = cell_errors(expansion, width)[1]
    for t in np.linspace(0, 24, 49).tolist():
        tail = mpmath.ncdf(-t)
        assert shared >= 0.99 * room * tail / (tail - mpmath.ncdf(-mpmath.mpf(t + width)))


@pytest.mark.parametrize("orders", [9, 41, 81, 161])
def test_error_bars_cover_the_worst_rounding_of_every_operation(orders):
    """A series whose last order outweighs all others, every operation off by half an ulp."""
    span = 0.02
    first, last = np.eye(orders)[[0, -1]]
    series = first + 1e3 / expansions.absolute_series(last, span) * last
    condition = expansions.absolute_series(series, span)
    expansion = Expansion(np.zeros(1), series[None], span, span, 0.0, condition=condition)
    for t in np.linspace(-span, span, 9).tolist():
        # Error of He_m in units of ULP: of t He_m, of m He_(m-1), and of their difference.
        before, now, off_before, off = 0.0, 1.0, 0.0, 0.0
        for m in range(orders - 1):
            after = t * now - m * before
            worse = abs(t) * (off + abs(now)) + m * (off_before + abs(before)) + abs(after)
            before, now, off_before, off = now, after, off, worse
        assert cell_errors(expansion, math.inf)[0] >= series[-1] * off * ULP


# Laws.


def test_powers_of_series_are_repeated_products():
    series = [Fraction(1), *(Fraction(k * k + 1, 7 * k**3) for k in range(1, 10))]
    power = [Fraction(1), *([Fraction(0)] * 9)]
    for _ in range(13):
        power = [sum(series[k] * power[m - k] for k in range(m + 1)) for m in range(10)]
    found = expansions.series_power(np.array([float(c) for c in series]), 13)
    np.testing.assert_allclose(found, [float(c) for c in power], rtol=1e-13)


@pytest.mark.parametrize("seed", range(12))
def test_classes_are_kept_that_support_each_other(seed):
    """The union of all sets of classes in which some member supports each: all sets are tried."""
    rng = np.random.default_rng([seed, 3])
    size, span, limit = 7, 4.0, 1e-3
    centres = np.sort(rng.uniform(0, 2, size))
    log_floor, numerator = rng.uniform(-8, 0, size), 10 ** rng.uniform(-7, -1.5, size)
    lent = np.exp(log_floor - span * np.abs(centres[:, None] - centres))
    expected = np.zeros(size, bool)
    for chosen in itertools.product((False, True), repeat=size):
        kept = np.array(chosen)
        if kept.any() and np.all(numerator[kept] <= limit * lent[np.ix_(kept, kept)].max(axis=1)):
            expected |= kept
    found = expansions.supported(numerator, log_floor, centres, span, limit)
    assert found.tolist() == expected.tolist()


def enough_orders(mean, largest, span, error, tail):
    """The bounds at the head of the module and of the function, all u and r tried."""
    u = np.geomspace(1e-2, 3e3, 2000)
    rise = mean / largest * np.expm1(np.minimum(largest * u, 300.0))
    for orders in expansions.SERIES_ORDERS:
        moment = np.min(rise - orders * np.log(u)) + math.lgamma(orders + 1)
        r = np.geomspace(1e-2, 30, 2000)
        outside = moment - orders * np.log(r)
        beyond = outside + r * span + r**2 / 2
        best = np.argmin(beyond)
        if beyond[best] <= math.log(error) and outside[best] <= math.log(tail):
            return orders
    return None


@pytest.mark.parametrize("largest", [0.003, 0.05, 0.3])
@pytest.mark.parametrize("mean", [1e-4, 0.02, 0.3])
def test_as_many_orders_are_guessed_as_the_bounds_need(mean, largest):
    for error, tail in itertools.product((1e-8, 1e-10, 1e-12), (1e-6, 1e-12, 1e-20)):
        found = expansions.series_orders(mean, largest, 9.0, error, tail)
        needed = enough_orders(mean, largest, 9.0, error, tail)
        with_room = enough_orders(mean, largest, 9.0, error / 2, tail / 2)
        assert (needed or 99) <= (found or 99) <= (with_room or 99)


@pytest.mark.parametrize(("orders", "span"), [(8, 0.5), (12, 1.0), (20, 4.0), (40, 9.0), (80, 1.0)])
def test_remainders_cover_all_orders_of_every_residual(orders, span):
    """sum_(m >= M) R^m/m! He~_m(T), He~ the Hermite polynomials with all signs positive.

    Residuals up to r: the bound on the sets outside is E R^M / r^M, which is one for R = r.
    """
    largest = 2 * orders / (math.sqrt(span**2 + 4 * orders) + span)
    for residual in largest * np.array([1.0, 0.999, 0.9, 0.5, 0.1]):
        r = mpmath.mpf(residual)
        before, now, total = mpmath.mpf(0), mpmath.mpf(1), mpmath.mpf(0)
        for m in range(orders + 300):
            if m >= orders:
                total += r**m / mpmath.factorial(m) * now
            before, now = now, span * now + m * before
        coefficient = np.array([float(r**orders / mpmath.factorial(orders))])
        beyond, outside = expansions.remainder(coefficient, orders, span)
        assert beyond[0] >= total * (1 - mpmath.mpf(1e-12))
        assert outside[0] == pytest.approx((residual / largest) ** orders, rel=1e-12)
        assert beyond[0] <= outside[0] * math.exp(largest * span + largest**2 / 2) * (1 + 1e-12)


@pytest.mark.parametrize("tail", [1e-3, 1e-12, 1e-30])
def test_expansions_end_where_the_tail_is_rare_and_not_far_beyond(tail):
    values, probs = np.array([0.0, 1.0, 7.5]), np.array([0.9, 0.1 - 1e-9, 1e-9])
    found = expansions.expand_values(values, probs, tail)

    def beyond(y):
        return mpmath.fsum(p * mpmath.ncdf(x - y) for x, p in zip(values, probs, strict=True))

    assert beyond(found.top) <= tail < beyond(found.top - 2e-3 * (1 + found.top))
    assert mpmath.ncdf(-found.reach) <= tail < mpmath.ncdf(-found.reach + 1e-3)


@pytest.mark.parametrize("count", [40, 150])
def test_lattices_are_given_up_where_they_are_too_much_work(count, monkeypatch):
    """Work: columns times classes times half the square of the orders, as they turn out."""
    values, probs = np.linspace(0.2, 1.0, count), np.full(count, 2.0 / count)
    classes = []
    product = kernels.lattice_product

    def counted(*arguments):
        made = product(*arguments)
        classes.append(len(made[1]))
        return made

    monkeypatch.setattr(kernels, "lattice_product", counted)
    assert expansions.expand_lattice(values, probs, 0.0, 1e-12, 1e-9) is not None
    work = count * classes[-1] * expansions.LATTICE_ORDERS**2 / 2
    monkeypatch.setattr(expansions, "MAX_LATTICE_WORK", 4 * work)
    assert expansions.expand_lattice(values, probs, 0.0, 1e-12, 1e-9) is not None
    classes.clear()
    monkeypatch.setattr(expansions, "MAX_LATTICE_WORK", work / 4)
    assert expansions.expand_lattice(values, probs, 0.0, 1e-12, 1e-9) is None
    assert not classes


# Composed laws.


def test_each_adjacency_has_the_number_of_its_own_laws():
    """Gaussians of other lengths for remove and add: closed forms."""

    def one(length):
        return ((MixtureLaw(np.array([length]), np.ones(1)), 1),)

    small, large = one(0.5), one(1.5)
    exact = [
        float(mpmath.ncdf(a / 2 - 1 / a) - mpmath.e * mpmath.ncdf(-a / 2 - 1 / mpmath.mpf(a)))
        for a in (0.5, 1.5)
    ]
    for remove, add in ((small, large), (large, small)):
        both = PrivacyLossDistribution(remove, add)
        numbers = exact if remove is small else exact[::-1]
        assert both.delta(1.0, "remove") == pytest.approx(numbers[0], rel=1e-3)
        assert both.delta(1.0, "add") == pytest.approx(numbers[1], rel=1e-3)
        assert both.delta(1.0) == pytest.approx(exact[1], rel=1e-3)


def test_progress_counts_laws_and_losses():
    """Three different laws, one of them twice."""
    some = [(ProductLaw(np.array([a]), np.array([0.1])), 1) for a in (1.0, 0.5, 1.0, 0.7)]
    seen = []
    effort = Effort(progress=lambda what, done: seen.append((what, done)))
    engine.bound(lambda: some, 4, "remove", Question(delta=1e-5), effort)
    for what in ("laws of the rows", "losses of the rows"):
        assert [done for name, done in seen if name == what] == [1, 2, 3]


def test_different_laws_are_counted_apart():
    values, probs = np.array([1.0, 2.0]), np.array([0.5, 0.5])
    different = [
        MixtureLaw(values, probs),
        ProductLaw(values, probs),
        ProductLaw(values, probs, 2),
        ProductLaw(probs, values),
        ProductLaw(values, probs / 2),
        ProductLaw(values[:1], probs[:1]),
    ]
    twice = [(law, count) for count in (1, 10) for law in different]
    counted = merge_equal(twice)
    assert [law for law, _ in counted] == different
    assert [count for _, count in counted] == [11] * len(different)


@pytest.mark.parametrize("p", [1e-20, 1e-9, 0.3, 1 - 1e-12])
def test_no_loss_under_add_is_above_the_largest(p):
    many = [(ProductLaw(np.array([1.0, 0.0, 2.0]), np.array([p, 0.9, p / 2]), 3), 7)]
    exact = -21 * (mpmath.log(1 - mpmath.mpf(p)) + mpmath.log(1 - mpmath.mpf(p / 2)))
    assert exact <= engine.largest_add_loss(many, 1e3) <= exact * (1 + 2e-9) + 2e-15
    assert engine.largest_add_loss(many, float(exact) / 2) == math.inf


def test_no_loss_under_add_is_above_the_largest_where_the_sum_of_probabilities_rounds():
    probs = np.array([0.5, 0.5 - 2.0**-54, 2.0**-56])
    mixture = MixtureLaw(np.array([0.0, 0.0, 3.0]), probs)
    exact = -mpmath.log(mpmath.mpf(0.5) + mpmath.mpf(probs[1]))
    assert 0 < exact <= engine.largest_add_loss([(mixture, 1)], 1.0) <= 2e-15


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("tolerance", [5e-5, 1e-3])
@pytest.mark.parametrize("question", [Question(delta=1e-6), Question(epsilon=2.0)])
def test_the_grid_costs_what_it_may_and_no_less(question, tolerance, count):
    """Of epsilon: (1 + tilt)/2 times the variance that spreading the losses adds."""
    y = np.linspace(-6, 6, 41)
    losses, masses = 0.3 * y + 0.045, np.exp(-0.5 * (y - 0.3) ** 2)
    masses /= masses.sum()
    rows = engine.PreparedRows([], [(losses, masses)], [count], "remove")
    grid = engine._choose_grid(rows, question, tolerance)
    spacing, tilt, epsilon = grid.spacing, grid.tilt, grid.epsilon
    size = float(np.abs(losses) @ masses)

    def cost(h):
        return count * min(h**2 / 6, h * size) * (1 + tilt) / 2

    assert cost(spacing) <= tolerance * epsilon * (1 + 1e-12) < cost(1.06 * spacing)


@pytest.mark.parametrize(("rows", "coarser"), [(1, 1.0), (384, 1.5)])
def test_only_many_different_rows_have_a_coarser_grid(rows, coarser, monkeypatch):
    def choose(_rows, _question, tolerance):
        raise LookupError(tolerance)

    monkeypatch.setattr(engine, "_choose_grid", choose)
    some = [(ProductLaw(np.array([1 + k / rows]), np.array([0.1])), 1) for k in range(rows)]
    with pytest.raises(LookupError) as asked:
        engine._answer(lambda: some, "remove", Question(delta=1e-5), Effort(tolerance=1e-3), 1e-15)
    assert asked.value.args[0] == pytest.approx(coarser * 1e-3)
