"""Claim: no strategy has less error of prefix sums at a guarantee than the bound for all."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from cases.samples import sampled

import mmcc
from mmcc import sampling, strategies, utility
from mmcc.design._least_error import least_error, least_noise, shown_delta

SCHEMES = (
    sampling.Poisson(0.1),
    sampling.Poisson(1.0),
    sampling.CyclicPoisson(0.5, 4),
    sampling.BallsInBins(4),
    sampling.RandomAllocation(4),
    sampling.RandomAllocation(8, 3),
    sampling.MinSeparation(0.2, 3),
    sampling.MinSeparation(0.2, 3, warm_start=True),
)
STEPS = 8
MADE = {
    "identity": strategies.identity(STEPS),
    "counting": strategies.continual_counting(STEPS),
    "blt": strategies.blt(STEPS, decay=[0.7], scale=[0.3]),
    "tree": strategies.binary_tree(STEPS),
    "optimal": strategies.optimal(STEPS),
}


def exact_delta(law, noise, epsilon):
    """Both adjacencies, by integrating with 30 digits what exceeds e^epsilon times the other."""
    with mpmath.workdps(30):
        level = mpmath.e**epsilon
        low, high = -14 * noise, len(law) + 14 * noise

        def alone(place):
            return mpmath.npdf(place, 0, noise)

        def mixed(place):
            return sum(p * mpmath.npdf(place, k, noise) for k, p in enumerate(law))

        def excess(one, other):
            def difference(place):
                return one(place) - level * other(place)

            places = [mpmath.mpf(x) for x in np.linspace(low, high, 17)]
            signs = [difference(place) > 0 for place in places]
            for before, after, *changed in zip(places, places[1:], signs, signs[1:], strict=False):
                if changed[0] != changed[1]:  # once: the likelihood ratio increases
                    kink = mpmath.findroot(difference, (before, after), solver="anderson")
                    places = sorted([*places, kink])
                    break
            return mpmath.quad(lambda s: max(difference(s), 0), places)

        return max(excess(mixed, alone), excess(alone, mixed))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_a_half_line_shows_no_more_than_delta_and_nearly_that(epsilon, noise):
    law = np.array([0.5, 0.3, 0.15, 0.05])
    found = float(shown_delta(law[None], np.array([noise]), epsilon)[0])
    exact = float(exact_delta(law, noise, epsilon))
    assert found <= exact * (1 + 1e-9)  # of round-off
    assert found >= exact * (1 - 1e-6)


@pytest.mark.parametrize(
    ("scheme", "name", "epsilon"), sampled(SCHEMES, MADE, [0.5, 4.0], strength=1)
)
def test_no_strategy_has_less_error(scheme, name, epsilon):
    target = {"epsilon": epsilon, "delta": 1e-4}
    try:
        found = mmcc.sigma(MADE[name], scheme, **target)
    except mmcc.MmccError:
        pytest.skip("not certified under this scheme")
    for objective, error in (("mean", utility.rmse), ("max", utility.max_error)):
        least = least_error(scheme, STEPS, **target, objective=objective)
        assert 0 < least <= error(MADE[name], found.sigma)


@pytest.mark.parametrize("probability", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_for_one_step_the_bound_is_the_noise_of_dp_sgd(probability, epsilon):
    scheme, one = sampling.Poisson(probability), strategies.identity(1)
    found = mmcc.sigma(one, scheme, epsilon=epsilon, delta=1e-5).sigma
    least = least_error(scheme, 1, epsilon, 1e-5)
    assert 0.998 * found <= least <= found


def test_certain_participation_needs_the_noise_of_a_sum():
    single = least_error(sampling.Poisson(1.0), 1, 2.0, 1e-6)
    several = least_error(sampling.Poisson(1.0), 20, 2.0, 1e-6)
    assert several == pytest.approx(single * np.sqrt(np.mean(np.arange(1, 21) ** 2)), rel=1e-6)


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_laws_of_counts_are_those_of_the_schemes(scheme):
    steps = 16
    columns = scheme.columns(steps)
    laws = scheme.chances(steps).counts(columns, columns)
    assert laws.sum(axis=1) == pytest.approx(np.ones(columns + 1))
    if scheme.groups is None:
        assert laws[-1] == pytest.approx(scheme.law(steps).numbers[: columns + 1])
    cut = scheme.chances(steps).counts(columns, 1)
    assert cut[:, 0] == pytest.approx(laws[:, 0])
    noise = least_noise(laws[1:], 1.0, 1e-4)
    assert (np.diff(noise) >= -1e-6 * noise[1:]).all()


def test_where_no_noise_is_needed_the_bound_is_zero():
    assert least_error(sampling.Poisson(1e-9), 10, 1.0, 1e-5) == 0.0


def test_a_law_that_is_not_known_has_no_bound():
    truncated = sampling.TruncatedPoisson(0.1, largest_batch=20, examples=100)
    assert least_error(truncated, 10, 1.0, 1e-5) is None


def test_optimise_says_it():
    found = strategies.optimise(
        8,
        sampling.Poisson(0.2),
        epsilon=1.0,
        delta=1e-5,
        evaluations=0,
        fixed=[strategies.identity(8)],
    )
    assert 0 < found.least <= found.error
    assert "no matrix has less" in str(found)
    assert found.to_dict()["least_error"] == found.least
    workload = utility.momentum(8, 0.5)
    other = strategies.optimise(
        8,
        sampling.Poisson(0.2),
        epsilon=1.0,
        delta=1e-5,
        evaluations=0,
        fixed=[strategies.identity(8)],
        workload=workload,
    )
    assert other.least is None
