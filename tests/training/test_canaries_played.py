"""Claim: a played run with canaries is seldom called a violation; without its noise it is one.

Truth: exact certificates of mechanisms as they are played; coins that are unrelated to scores.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from mmcc import sampling, strategies
from mmcc.audit import audit_canaries, play_canaries
from mmcc.sampling._registry import SCHEMES as REGISTERED
from mmcc.training._noise import NoiseStream

STEPS = 8
SCHEMES = {
    "poisson": sampling.Poisson(0.5),
    "cyclic-poisson": sampling.CyclicPoisson(0.7, 2),
    "min-separation": sampling.MinSeparation(0.5, 2),
    "balls-in-bins": sampling.BallsInBins(4),
    "random-allocation": sampling.RandomAllocation(4, 2),
    "truncated-poisson": sampling.TruncatedPoisson(0.5, 600, 1000),
    "shuffle": sampling.Shuffle(4),
}
AT = {"sigma": 3.0, "delta": 1e-5, "stream": "numpy", "canaries": 600, "seed": 1}


class Silent(NoiseStream):
    """A stream whose noise is gone."""

    def __next__(self):
        return 1e-6 * super().__next__()


def play(name, **given):
    strategy = strategies.continual_counting(STEPS)
    return play_canaries(strategy, SCHEMES[name], **(AT | given))


def test_every_scheme_that_is_drawn_is_played():
    assert set(SCHEMES) == set(REGISTERED) - {"unsampled"}


@pytest.mark.parametrize("name", SCHEMES)
def test_a_bound_is_shown_and_the_lack_of_noise_is_seen(name):
    right = play(name, epsilon=50.0, guesses=(60, 60))
    assert 0 < right.epsilon_lower < 10
    silent = play(name, epsilon=1.5, guesses=(60, 0), stream=Silent)
    assert silent.correct == 60
    assert silent.epsilon_lower == silent.most > 1.5
    assert not silent.passed


def test_runs_that_are_not_drawn_are_refused():
    with pytest.raises(ValueError, match="Unsampled"):
        play_canaries(strategies.identity(4), sampling.Unsampled(2, 2), sigma=1.0, delta=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "shuffle",
        *(pytest.param(name, marks=pytest.mark.slow) for name in SCHEMES if name != "shuffle"),
    ],
)
def test_a_run_as_it_is_accounted_passes_beside_its_certificate(name):
    found = play(name)
    assert found.passed, str(found)
    assert found.bound != "claimed"
    assert 0 < found.epsilon_lower <= found.family.epsilon <= found.epsilon


def test_a_run_can_be_repeated():
    first, again, other = (play("poisson", epsilon=9.0, seed=seed) for seed in (7, 7, 8))
    assert first.to_dict() == again.to_dict() != other.to_dict()


# ---------------------------------------------------------------- how often it is wrong


@pytest.mark.parametrize("order", ["grouped", "as they are"])
def test_scores_that_say_nothing_prove_nothing(order):
    """All are equal, and the file has canaries of the data last: their order knows the coins."""
    generator, wrong, runs = np.random.default_rng(2), 0, 400
    for seed in range(runs):
        coins = generator.random(200) < 0.5
        if order == "grouped":
            coins = np.sort(coins)
        found = audit_canaries(
            np.zeros(200), coins, epsilon=0.0, delta=1e-6, guesses=(40, 40), seed=seed
        )
        wrong += found.epsilon_lower > 0
    assert wrong / runs <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.slow
def test_a_correct_run_is_seldom_called_a_violation():
    """At one step and no sampling the certificate is the truth; the nominal level is 5 %."""
    truth = play_canaries(strategies.identity(1), sampling.Poisson(1.0), **AT).epsilon
    runs, wrong = 400, 0
    for seed in range(runs):
        given = AT | {"seed": seed, "epsilon": truth, "canaries": 1000}
        wrong += not play_canaries(strategies.identity(1), sampling.Poisson(1.0), **given).passed
    assert wrong / runs <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / runs)
