"""Claim: where columns move few others, the loss is the likelihood ratio itself, and no shortcut
makes it too small.

Truth: sums over all participation sets; in one test, the same recursion in more digits.
"""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from cases.chances import LAWS, STEPS
from oracles.band_likelihood import log_ratios

from mmcc import sampling, strategies
from mmcc._simulation import likelihood_loops as loops
from mmcc._simulation.exact_pairs import MOST_STATES, ExactPair
from mmcc._simulation.experiments import Crude
from mmcc._simulation.pairs import ColumnPair, pair_of
from mmcc.accounting import Problem

SMALL = 1e-12
BANDS = [[1.0, 0.5], [1.0, 0.5, 0.375], [0.3, 0.9, 0.1, 0.8], [1.0, 0.0, 0.7]]
SCHEMES = [
    scheme for scheme in LAWS if not isinstance(scheme, sampling.BallsInBins) and scheme.chances(6)
]


@dataclass(frozen=True)
class Once(sampling.Scheme):
    """A coin in every step until it shows heads."""

    probability: float

    def draw(self, steps, count, generator, group=0):
        first = generator.geometric(self.probability, count) - 1
        inside = first < steps
        edges = np.concatenate([[0], np.cumsum(inside)])
        return sampling.Participations(first[inside], edges)

    def expected_batch(self, steps, examples):
        return examples * min(self.probability, 1 / steps)

    def chances(self, steps):
        return sampling.Chances(np.array([[self.probability, 0.0]]), np.array([[0, 1], [1, 1]]))


def exact_pair(coefficients, scheme, sigma=1.0, steps=STEPS, group=0):
    return pair_of(Problem(strategies.toeplitz(coefficients, steps), scheme, sigma), group)


def logs_of(pair, noise, remove=False):
    return pair._reveal(noise.copy(), remove, np.random.default_rng(2), None)[0]


def true_logs(coefficients, scheme, noise, sigma=1.0):
    """log dP/dQ of outputs with these products A^T y, set by set."""
    sets, chances = LAWS[scheme]
    columns = strategies.toeplitz(coefficients, STEPS).to_dense()[:, :: scheme.stride(STEPS)]
    gram = columns.T @ columns / sigma**2
    costs = 0.5 * np.einsum("si,ij,sj->s", sets, gram, sets)
    return np.log(np.exp(noise @ sets.T - costs) @ chances)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("coefficients", BANDS, ids=str)
def test_the_loss_is_the_ratio_of_all_sets(coefficients, scheme):
    pair = exact_pair(coefficients, scheme)
    if not isinstance(pair, ExactPair):
        assert scheme.allocation(STEPS) or scheme.stride(STEPS) > 1
        return
    noise = pair._noise(50, np.random.default_rng(1)) * 2
    found = logs_of(pair, noise)
    assert np.abs(found - true_logs(coefficients, scheme, noise)).max() <= SMALL


def test_many_schemes_have_such_a_pair():
    found = [isinstance(exact_pair(BANDS[1], scheme), ExactPair) for scheme in SCHEMES]
    assert sum(found) >= 6


@pytest.mark.parametrize("scheme", [sampling.Poisson(0.3), sampling.MinSeparation(0.3, 3)], ids=str)
def test_who_takes_part_moves_the_output(scheme):
    """E_P~ e^(-loss) = 1, and the outputs of remove have the mean that participations give."""
    pair = exact_pair(BANDS[1], scheme)
    inverse = np.exp(-pair.losses(True, 20_000, np.random.default_rng(3)))
    assert abs(inverse.mean() - 1) <= 4 * inverse.std() / math.sqrt(inverse.size)
    ratios = np.exp(-pair.losses(False, 20_000, np.random.default_rng(3)))
    assert abs(ratios.mean() - 1) <= 4 * ratios.std() / math.sqrt(ratios.size)


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize("sigma", [0.7, 1.5])
def test_a_quick_look_changes_no_value(sigma, remove):
    """Losses below the epsilon asked about may differ, upwards alone; h does not."""
    pair = exact_pair(BANDS[2], sampling.Poisson(0.2), sigma, steps=40)
    for epsilon in (0.2, 1.5):
        exact = pair.losses(remove, 2000, np.random.default_rng(4))
        quick = pair.aimed(epsilon).losses(remove, 2000, np.random.default_rng(4))
        assert (quick >= exact - pair.rounding).all()
        assert (quick != exact).any()
        above = exact >= epsilon
        assert (quick[above] == exact[above]).all()
        one = Crude(pair, remove, epsilon)
        drawn = one.draw(2000, np.random.default_rng(4))
        assert ((drawn > 0) == (exact + pair.rounding > epsilon)).all()


def test_ends_of_a_quick_look_hold_for_each_output():
    """Also for outputs that nobody would draw."""
    pair = exact_pair(BANDS[2], sampling.Poisson(0.4), 0.8, steps=STEPS)
    rng = np.random.default_rng(5)
    kicks, (probability, _) = pair.kicks, pair._law
    for size in (0.1, 1.0, 5.0):
        x = size * rng.standard_normal((200, STEPS))
        exact = logs_of(pair, x + kicks.flat[kicks.starts] / 2)
        for row, true in zip(x, exact, strict=True):
            places = (kicks.flat, kicks.starts, kicks.reach)
            low, high = loops.bracketed(row, probability, *places, np.zeros(STEPS))
            assert low <= true + SMALL
            assert true - SMALL <= high


@pytest.mark.parametrize("remove", [True, False])
def test_exponents_that_are_too_large_count_as_infinite_losses(remove):
    for scheme in (sampling.Poisson(0.2), sampling.MinSeparation(0.2, 2)):
        pair = exact_pair(BANDS[0], scheme)
        noise = np.zeros((3, STEPS))
        noise[1, 2], noise[2, 4] = 100.0, -100.0
        found = logs_of(pair, noise, remove)
        worst = math.inf if remove else -math.inf
        assert list(np.isinf(found)) == [False, True, True]
        assert (found[1:] == worst).all()


@pytest.mark.parametrize("scheme", [sampling.Poisson(0.01), sampling.MinSeparation(0.02, 8)])
def test_long_runs_agree_with_more_digits(scheme):
    """Eight bands: the recursion again, in long double, within the rounding that is stated."""
    coefficients, steps = strategies.continual_counting(8).coefficients, 300
    pair = exact_pair(coefficients, scheme, 1.16, steps)
    assert isinstance(pair, ExactPair)
    noise = pair._noise(4, np.random.default_rng(6)) * np.array([[1.0], [2.0], [3.0], [4.0]])
    found = logs_of(pair, noise)
    matrix = strategies.toeplitz(coefficients, steps).to_dense() / 1.16
    exact = recursion(noise, matrix.T @ matrix, 8, scheme.chances(steps))
    assert np.abs(found - exact).max() <= pair.rounding < 1e-6


def recursion(noise, gram, bands, chances):
    """log dP/dQ over histories as sets of the last columns, in long double."""
    found = []
    for row in noise.astype(np.longdouble):
        now = {(0, ()): np.longdouble(1)}
        for column in range(row.size):
            new = {}
            for (state, recent), mass in now.items():
                chance = np.longdouble(chances.row(column)[state])
                kept = tuple(j for j in recent if j > column + 1 - bands)
                x = row[column] - gram[column, column] / np.longdouble(2)
                x -= sum(np.longdouble(gram[column, j]) for j in recent)
                for taking, share in ((0, 1 - chance), (1, chance * np.exp(x))):
                    if share > 0:
                        history = (*kept, column) if taking else kept
                        then = (int(chances.after[state, taking]), history)
                        new[then] = new.get(then, np.longdouble(0)) + mass * share
            now = new
        found.append(float(np.log(sum(now.values()))))
    return np.array(found)


def test_the_oracle_of_outputs_agrees():
    """Another recursion, which sees the outputs themselves."""
    coefficients = strategies.continual_counting(4).coefficients
    pair = exact_pair(coefficients, sampling.Poisson(0.1), 1.3, steps=30)
    outputs = np.random.default_rng(8).standard_normal((20, 30)) + 0.2
    exact = log_ratios(outputs, coefficients / 1.3, [0.1])[0]
    found = logs_of(pair, pair.mechanism.adjoint(outputs))
    assert np.abs(found - exact).max() <= pair.rounding


@pytest.mark.parametrize("remove", [True, False])
def test_masses_that_vanish_are_moved_to_the_safe_side(remove):
    """Waiting on and on has a chance below what numbers hold, in a run of 700 steps."""
    strategy = strategies.toeplitz([1.0, 0.5], 700)
    pair = pair_of(Problem(strategy, Once(0.9), 1.0))
    assert isinstance(pair, ExactPair)
    noise = pair._noise(3, np.random.default_rng(7))
    found = logs_and_outputs(pair, noise, remove)
    matrix = strategy.to_dense()
    exact = recursion(noise, matrix.T @ matrix, 2, pair.chances)
    side = found - exact if remove else exact - found
    assert (side >= -pair.rounding).all()
    assert (side <= pair.rounding).all()


def logs_and_outputs(pair, noise, remove):
    """Logs; the noise becomes what was seen, A^T y."""
    logs = pair._reveal(noise, remove, np.random.default_rng(2), None)[0]
    noise += pair.kicks.flat[pair.kicks.starts] / 2
    return logs


def test_what_has_too_many_states_or_too_little_noise_is_revealed():
    wide = strategies.continual_counting(11).coefficients
    assert MOST_STATES < 2**10
    for coefficients, scheme, sigma in [
        (wide, sampling.Poisson(0.1), 2.0),
        (BANDS[0], sampling.Poisson(0.1), 0.05),
        ([1.0], sampling.Poisson(0.1), 2.0),
    ]:
        assert isinstance(exact_pair(coefficients, scheme, sigma, 40), ColumnPair)
    few = exact_pair(wide, sampling.MinSeparation(0.1, 9), 2.0, 40)
    assert isinstance(few, ExactPair)
    assert few.added_up < 60


def test_a_pair_is_the_same_after_a_journey():
    pair = exact_pair(BANDS[1], sampling.MinSeparation(0.3, 3))
    again = pickle.loads(pickle.dumps(pair))
    first, second = (p.losses(True, 50, np.random.default_rng(3)) for p in (pair, again))
    assert (first == second).all()
