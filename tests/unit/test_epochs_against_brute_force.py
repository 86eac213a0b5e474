"""Claim: under random allocation every part of the projection agrees with, or lies above, its sum.

Sums over all participation sets of small mechanisms, written out here: k columns of every epoch.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import log_ndtr

from mmcc.accounting._bounds.projection.epochs import EpochLine, EpochRest, _points
from mmcc.accounting._bounds.projection.high_orders import S
from mmcc.accounting._bounds.projection.lower import overlaps
from mmcc.accounting._bounds.projection.upper_add_moments import Deficit, EpochNodesAround
from mmcc.accounting._bounds.projection.upper_epochs import ProjectedEpochs, Shifted
from mmcc.sampling import Allocation
from mmcc.strategies._gram import DenseGram

SEEDS = range(9)
TIMES = np.array([-3.0, 0.0, 1.7, 4.0, 6.0])


@dataclass(frozen=True)
class Brute:
    """Every participation set of a random mechanism, and what is left of it beside a direction."""

    epochs: int
    times: int
    A: np.ndarray
    w: np.ndarray
    sets: np.ndarray

    @classmethod
    def draw(cls, seed: int, scale: tuple[float, float] = (0.05, 0.6)) -> Brute:
        rng = np.random.default_rng([seed, 77])
        times = 1 + seed % 3
        epochs = int(rng.integers(3 - (times > 1), 6 - times))
        length = int(rng.integers(times + 1, 5 + (times == 3)))
        columns = epochs * length
        epoch = [np.isin(range(length), s) for s in itertools.combinations(range(length), times)]
        sets = np.array([np.concatenate(s) for s in itertools.product(epoch, repeat=epochs)]) * 1.0
        A = np.tril(rng.random((columns, columns))) * rng.uniform(*scale)
        return cls(epochs, times, A, rng.uniform(0.3, 1, columns), sets)

    @property
    def a(self) -> np.ndarray:
        return self.A.T @ (self.A @ self.w) / np.linalg.norm(self.A @ self.w)

    @property
    def beside(self) -> np.ndarray:
        """A'."""
        d = self.A @ self.w / np.linalg.norm(self.A @ self.w)
        return self.A - np.outer(d, self.a)

    def omega(self, t: float) -> np.ndarray:
        along = self.sets @ self.a
        return np.exp(t * along - along**2 / 2) / len(self.sets)

    def tilted(self, theta: float) -> np.ndarray:
        """B(S): the law of S tilted by e^(theta a_S)."""
        weights = np.exp(theta * (self.sets @ self.a))
        return weights / weights.sum()

    @property
    def gram(self) -> DenseGram:
        return DenseGram(self.A.T @ self.A, 1.0, len(self.A))

    def rest(self, t: np.ndarray = TIMES) -> EpochRest:
        line = EpochLine(overlaps(self.gram, self.w), self.epochs, self.times)
        return EpochRest(self.gram, line, line.weights(t), self.w)

    @property
    def law(self) -> Allocation:
        return Allocation(self.A.shape[1] // self.epochs, self.times)

    @property
    def inner(self) -> np.ndarray:
        shifts = self.sets @ self.beside.T
        return shifts @ shifts.T


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_and_pair_sums_are_sums_over_all_sets(seed):
    brute = Brute.draw(seed)
    rest = brute.rest()
    weights = rest.weights
    for i, t in enumerate(weights.t):
        Z, omega = math.exp(weights.log_scale[i]), brute.omega(t)
        assert Z * weights.mass[i] == pytest.approx(omega.sum(), rel=1e-12)
        assert Z * weights.single[i] == pytest.approx(omega @ brute.sets, rel=1e-11)
        pairs = np.diag(weights.spare[i]) + rest.basis @ rest.core[i] @ rest.basis.T
        exact = (brute.sets.T * omega) @ brute.sets
        assert np.abs(Z * pairs - exact).max() <= 1e-12 * exact.max()
        error = weights.error[i] * Z
        assert abs(Z * weights.mass[i] - omega.sum()) <= error + 1e-15 * Z
        assert error <= 1e-10 * omega.sum()
        law = brute.tilted(weights.theta[i])
        assert weights.tilted[i] == pytest.approx(law @ brute.sets, rel=1e-12)
        assert np.all(omega <= Z * law * (1 + 1e-12))


@pytest.mark.parametrize("seed", SEEDS)
def test_tail_error_covers_the_exact_tail(seed):
    brute = Brute.draw(seed)
    line = EpochLine(brute.a, brute.epochs, brute.times)
    along = brute.sets @ brute.a
    for t in np.linspace(-9, 8 + along.max(), 12):
        for side, sign in (("above", 1.0), ("below", -1.0)):
            exact = np.mean(np.exp(log_ndtr(sign * (along - t))))
            value, error = line.tail(float(t), side)
            assert abs(value - exact) <= error + 1e-13 * exact
            if exact < 0.9:
                assert error <= 1e-9 * exact


@pytest.mark.parametrize("seed", SEEDS)
def test_first_two_orders_and_the_trace_are_rounded_up(seed):
    brute = Brute.draw(seed)
    rest = brute.rest()
    inner = brute.inner
    for i, t in enumerate(TIMES):
        omega = brute.omega(t) / math.exp(rest.weights.log_scale[i])
        exact = [omega @ inner @ omega, omega @ inner**2 @ omega / 2, omega @ np.diag(inner)]
        found = [rest.linear[i], rest.quadratic[i], rest.trace[i]]
        for value, bound in zip(exact, found, strict=True):
            assert value <= bound <= value * (1 + 1e-4) + 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_interpolation_pays_for_what_it_misses(seed):
    """With too few points pair sums are wrong, and the residual is as large."""
    brute = Brute.draw(seed)
    exact = brute.rest()
    for count in (1, 2):
        rest = brute.rest()
        length = rest.line.rows.shape[1]
        if count >= length:
            continue
        rest.__dict__["points"] = _points(rest.line.rows, count)
        missed = np.abs(rest.quadratic_norm - exact.quadratic_norm)
        assert np.all(missed <= rest.residual)
        assert np.all(rest.quadratic >= exact.lower_quadratic)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_long_epochs_are_interpolated(times):
    """With points as many as columns nothing is interpolated."""
    rng = np.random.default_rng(times)
    A = np.tril(rng.random((80, 80))) * 0.03
    gram, w = DenseGram(A.T @ A, 1.0, 80), rng.uniform(0.5, 1, 80)
    line = EpochLine(overlaps(gram, w), 2, times)
    few, all_points = (EpochRest(gram, line, line.weights(TIMES), w) for _ in range(2))
    all_points.__dict__["points"] = line.rows
    assert few.points.size < all_points.points.size
    u = few.weights.tilted
    for i in range(len(TIMES)):
        found, exact = (r.basis @ r.core[i] @ r.basis.T for r in (few, all_points))
        assert np.abs((found - exact) / np.outer(u[i], u[i])).max() <= 1e-9
    assert np.all(few.quadratic_norm - all_points.quadratic_norm <= few.residual)
    assert np.all(few.residual <= 1e-6 * few.quadratic_norm)


@pytest.mark.parametrize(("length", "times"), [(4, 3), (100, 2), (6000, 5)])
def test_logs_of_means_lose_no_digits_in_long_epochs(length, times):
    """Without a tilt the mean is 1."""
    a = np.random.default_rng(length).random(2 * length)
    found = EpochLine(a, 2, times).cumulant(np.array(0.0))
    assert abs(float(found)) <= 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_one_more_member_is_as_good_as_another(seed):
    """A pair of an epoch is no more likely than alone, and moves a_S by what one column can."""
    brute = Brute.draw(seed)
    along, law = brute.sets @ brute.a, brute.tilted(0.7)
    pairs, most = brute.sets.T @ (law[:, None] * brute.sets), brute.a.max()
    chances = np.diag(pairs)
    within = np.kron(np.eye(brute.epochs), np.ones((len(chances) // brute.epochs,) * 2)) == 1
    apart = ~np.eye(len(chances), dtype=np.bool_)
    product = np.outer(chances, chances) * (1 + 1e-12)
    assert np.all((pairs <= product)[within & apart])
    for slope in (-3.0, -0.5, 0.5, 3.0):
        tilted = law * np.exp(slope * along)
        alone = (tilted @ brute.sets) / chances
        both = (brute.sets.T @ (tilted[:, None] * brute.sets))[apart] / pairs[apart].clip(1e-300)
        limit = tilted.sum() * math.exp(abs(slope) * most) * (1 + 1e-12)
        assert np.all(alone <= limit)
        assert np.all(both <= limit * math.exp(abs(slope) * most))


def test_sums_that_floating_point_cannot_tell_are_bounded_by_their_chances():
    """A column that is nearly always drawn: what is left without it is a difference of two ones."""
    line = EpochLine(np.array([30.0, 1.0, 0.5, 0.2]), 1, 2)
    weights = line.weights(np.array([32.0]))
    assert weights.error[0] == 1
    assert not weights.single.any()
    assert not weights.spare.any()
    assert weights.tilted.sum() == pytest.approx(2, rel=1e-12)
    exact = np.array([1.0, 1.0, 0.5, 0.2])
    exact[1:] = np.exp(weights.theta[0] * exact[1:])
    assert weights.tilted[0, 1:] == pytest.approx(exact[1:] / exact[1:].sum(), rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_shifted_columns_have_the_same_inner_products(seed):
    brute = Brute.draw(seed)
    rest = brute.rest()
    shifted = Shifted(rest, rest.slots[0], slice(1, 4))
    columns = brute.A.shape[1]
    matrix = shifted.matrix.reshape(columns, columns)
    error = np.abs(brute.sets @ matrix @ brute.sets.T - brute.inner).max()
    assert error <= shifted.error <= 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_even_orders_from_four_on_lie_below_their_bound(seed):
    brute = Brute.draw(seed)
    rest = brute.rest()
    shifted = Shifted(rest, rest.slots[0], slice(0, len(TIMES)))
    apart = rest.slots[1]
    for s in (1.0, 2.0, 5.0):
        bound = shifted.even(s) * np.exp(-2 * apart)
        for i in range(len(TIMES)):
            law = brute.tilted(rest.weights.theta[i])
            x = s * brute.inner
            exact = law @ (np.cosh(x) - 1 - x**2 / 2) @ law
            assert exact <= bound[i] * (1 + 1e-12)
            assert brute.times > 1 or bound[i] <= 60 * exact + 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_draws_that_never_repeat_are_the_tilted_law(seed):
    brute = Brute.draw(seed)
    rest = brute.rest()
    for i, theta in enumerate(rest.weights.theta):
        shares, apart = rest.slots[0][i], math.exp(rest.slots[1][i])
        orders = math.factorial(brute.times) ** brute.epochs
        drawn = orders * np.prod(np.where(brute.sets == 1, shares, 1.0), axis=1)
        assert drawn.sum() == pytest.approx(apart, rel=1e-12)
        assert drawn / apart == pytest.approx(brute.tilted(theta), rel=1e-11)


@pytest.mark.parametrize("seed", SEEDS)
def test_draws_with_the_same_chances_have_larger_moments(seed):
    """Their second moment by what is told, and the even orders of sets below the better bound."""
    brute = Brute.draw(seed)
    projected = ProjectedEpochs(brute.gram, brute.law, brute.w, 3.0, 1e-5)
    projected.__dict__["rest"] = rest = brute.rest()
    beside, k = brute.beside, brute.times
    for i, theta in enumerate(rest.weights.theta):
        law = brute.tilted(theta)
        u = rest.weights.tilted[i]
        within = np.kron(np.eye(brute.epochs), np.ones((len(u) // brute.epochs,) * 2))
        drawn = np.diag(u) + np.outer(u, u) * (1 - within / k)
        second = np.sum((beside @ drawn @ beside.T) ** 2)
        exact = second - law @ brute.inner**2 @ law
        assert -1e-12 * second <= exact <= rest.gain[i] <= exact + 1e-6 * second
        for j, s in enumerate(S):
            x = s * brute.inner
            if np.abs(x).max() < 300:
                assert law @ (np.cosh(x) - 1 - x**2 / 2) @ law <= projected.even[j, i] * (1 + 1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_orders_lie_below_their_bounds(seed):
    brute = Brute.draw(seed)
    projected = ProjectedEpochs(brute.gram, brute.law, brute.w, 3.0, 1e-5)
    projected.__dict__["rest"] = rest = brute.rest()
    inner = brute.inner
    assert projected.lengths[1][0] ** 2 >= np.diag(inner).max()
    for i, t in enumerate(TIMES):
        omega = brute.omega(t) / math.exp(rest.weights.log_scale[i])
        for j in (0, 2, 5):
            x = S[j] * inner
            second = omega @ (np.expm1(x) - x) @ omega
            third = omega @ (np.expm1(x) - x - x**2 / 2) @ omega
            assert second <= projected.totals[0][0, j, i]
            assert third <= projected.totals[1][0, j, i]
        variance = omega @ np.expm1(inner) @ omega
        assert variance <= projected.variance[i]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_lognormal_tail_lies_above_the_mean_deficit(seed):
    """Prices of e^-eps - X_t by Ehrhard's line against a simulation of z, at four errors."""
    brute = Brute.draw(seed, scale=(0.02, 0.15))
    rng = np.random.default_rng(seed)
    projected = EpochNodesAround(brute.gram, brute.law, brute.w, 0.0, 1e-5)
    projected.__dict__["rest"] = rest = brute.rest(np.array([-1.0, 0.0, 1.0]))
    shifts = brute.sets @ brute.beside.T
    lengths = np.sum(shifts**2, axis=1)
    z = rng.standard_normal((20_000, len(brute.A)))
    powers = np.exp(z @ shifts.T - lengths / 2)
    seen = 0
    for epsilon in (0.0, 0.1, 0.2, 0.4, 0.8):
        found = Deficit(projected, epsilon)._by_ehrhard(epsilon)
        for i, t in enumerate(rest.weights.t):
            X = powers @ brute.omega(t)
            price = np.maximum(1 - math.exp(epsilon) * X, 0)
            assert found[i] >= price.mean() - 4 * price.std() / math.sqrt(len(z))
            seen += found[i] < 1
    assert seen > 0
