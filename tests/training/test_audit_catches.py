"""Claim: an audit catches a mechanism that is not the accounted one, and says what is wrong.

Every broken part below is handed to the audit in the place of the real one.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.stats import norm

from mmcc import sampling, strategies
from mmcc.audit import audit
from mmcc.errors import MmccError
from mmcc.training._noise import NoiseStream
from mmcc.training._participants import Participants

STEPS = 8
TREE = strategies.binary_tree(STEPS)
COUNTING = strategies.continual_counting(STEPS)
POISSON = sampling.Poisson(1 / 4)
BINS = sampling.BallsInBins(4)
ALL = [TREE, COUNTING, strategies.banded_toeplitz(STEPS, 3), strategies.blt(STEPS, 2)]


def ask(strategy=COUNTING, scheme=POISSON, **broken):
    """A short audit; the claim is so large that only the tests of the law can fail."""
    given = {"sigma": 3.0, "delta": 1e-3, "runs": 4000, "seed": 1, "epsilon": 1000.0} | broken
    return audit(strategy, scheme, **given)


def failed(found):
    return {finding.name for finding in found.failures}


def uncorrelated(strategy, sigma, shape, seed, *, decoder):
    return NoiseStream(strategies.identity(strategy.steps), sigma, shape, seed)


def half(strategy, sigma, shape, seed, *, decoder):
    return NoiseStream(strategy, sigma / 2, shape, seed, decoder=decoder)


def online(strategy, sigma, shape, seed, *, decoder):
    return NoiseStream(strategy, sigma, shape, seed, decoder="online")


def one_seed(strategy, sigma, shape, seed, *, decoder):
    return NoiseStream(strategy, sigma, shape, 7, decoder=decoder)


class Restarted(NoiseStream):
    """Starts from the first step with a new key when it should go on."""

    def restore(self, state):
        pass


class Replayed(NoiseStream):
    """Starts from the first step with the same key when it should go on."""

    def restore(self, state):
        super().restore({**self.state(), "key": state["key"], "probe": state["probe"]})


class Forgetful(NoiseStream):
    """Goes on with the same key at the right step, its vectors lost."""

    def restore(self, state):
        super().restore({**state, "buffers": 0 * np.asarray(state["buffers"])})


class Patient(NoiseStream):
    """Draws the noise of a step that was made before the stop once more."""

    def restore(self, state):
        own = self.state()
        super().restore({**state, "key": own["key"], "probe": own["probe"]})


class Changed:
    """A noise stream whose every vector goes through a function."""

    def __init__(self, change):
        self.change = change

    def __call__(self, strategy, sigma, shape, seed, *, decoder):
        change = self.change

        class Stream(NoiseStream):
            def __next__(self):
                return change(super().__next__())

        return Stream(strategy, sigma, shape, seed, decoder=decoder)


class OneSeed(Participants):
    def __init__(self, scheme, steps, examples, seed):
        super().__init__(scheme, steps, examples, 7)


class Redrawn(Participants):
    """Takes a new key when it should go on with the old one."""

    def restore(self, state):
        pass


class Twice(Participants):
    """Has the first example of every batch twice."""

    def at(self, step):
        batch = super().at(step)
        return np.concatenate([batch[:1], batch])


class Couples(Participants):
    """Examples come in couples: right rates, dependent examples."""

    def __init__(self, scheme, steps, examples, seed):
        super().__init__(scheme, steps, examples // 2, seed)

    def at(self, step):
        batch = super().at(step)
        return np.sort(np.concatenate([2 * batch, 2 * batch + 1]))


class Sticky(Participants):
    """Who was in an even step is in the next one as well: right rates, dependent steps."""

    def at(self, step):
        return super().at(step - step % 2)


class Peeking(Participants):
    """Takes part where the noise of a stream with the same seed is large."""

    def __init__(self, scheme, steps, examples, seed):
        super().__init__(scheme, steps, examples, seed)
        self.noise = NoiseStream(strategies.identity(steps), 1.0, 2 * examples, seed)

    def at(self, step):
        large = norm.isf(self.scheme.probability)
        return np.flatnonzero(self.noise.fresh(step)[: self.examples] > large)


def sold_as(scheme):
    """Batches of another scheme than the accounted one."""
    return lambda _, steps, examples, seed: Participants(scheme, steps, examples, seed)


@pytest.mark.parametrize("strategy", ALL, ids=repr)
def test_noise_without_correlation(strategy):
    assert {"variance of the noise", "correlation of the noise"} & failed(
        ask(strategy, stream=uncorrelated)
    )


@pytest.mark.parametrize("strategy", ALL, ids=repr)
def test_half_the_sigma(strategy):
    found = ask(strategy, stream=half)
    assert "variance of the noise" in failed(found)
    ratio = re.search(r"has (\S+) times the accounted variance", found.violations[0])
    assert float(ratio[1]) == pytest.approx(0.25, rel=0.2)


def test_half_the_sigma_is_seen_in_epsilon_too():
    """Distribution free: the bound alone, which knows nothing of the law, exceeds the claim."""
    strategy, scheme = strategies.identity(1), sampling.Poisson(1.0)
    found = ask(strategy, scheme, stream=half, sigma=1.0, delta=1e-2, runs=20_000, epsilon=None)
    assert found.epsilon_lower > found.epsilon
    assert found.violations[0].startswith("epsilon is at least")
    assert not found.passed


def test_a_number_that_is_too_small_is_caught():
    assert ask(epsilon=1000.0).passed
    found = ask(epsilon=0.1)
    assert not found.passed
    assert not found.failures


def test_tree_noise_of_the_other_decoder():
    assert ask(TREE, stream=online, decoder="online").passed
    assert "correlation of the noise" in failed(ask(TREE, stream=online))


@pytest.mark.parametrize("strategy", ALL, ids=repr)
def test_a_repeated_seed(strategy):
    assert "repeats of the noise" in failed(ask(strategy, stream=one_seed))


@pytest.mark.parametrize("strategy", ALL, ids=repr)
def test_noise_restarted_after_resume(strategy):
    names = failed(ask(strategy, stream=Restarted))
    assert {"correlation of the noise", "noise after a stop"} <= names


@pytest.mark.parametrize("strategy", [strategies.identity(STEPS), *ALL], ids=repr)
def test_noise_replayed_after_resume(strategy):
    assert {"repeats of the noise", "noise after a stop"} <= failed(ask(strategy, stream=Replayed))


@pytest.mark.parametrize("strategy", ALL, ids=repr)
def test_buffers_lost_on_resume(strategy):
    names = failed(ask(strategy, stream=Forgetful))
    assert {"correlation of the noise", "noise after a stop"} <= names


def test_two_noises_for_one_step():
    """Independent noise has the right law again after the stop: only making it twice shows."""
    found = ask(strategies.identity(STEPS), stream=Patient)
    assert failed(found) == {"noise after a stop"}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda noise: noise + 0.3, "mean of the noise"),
        (lambda noise: np.repeat(noise[::2], 2), "independence of coordinates"),
        (lambda noise: np.sign(noise) * 3.0, "shape of the noise"),
        (lambda noise: noise - noise.mean(), "mean of the noise"),
        (lambda noise: np.full_like(noise, np.nan), "variance of the noise"),
    ],
    ids=["shifted", "repeated", "signs", "centred", "nan"],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_noise_of_another_law(change, name):
    assert name in failed(ask(strategies.identity(STEPS), stream=Changed(change)))


def test_a_shuffling_loader_sold_as_poisson():
    names = failed(ask(participants=sold_as(sampling.Shuffle(4))))
    assert {"size of batches", "number of participations", "participation in two steps"} <= names


def test_a_shuffling_loader_sold_as_poisson_for_one_epoch():
    names = failed(ask(scheme=sampling.Poisson(1 / 8), participants=sold_as(sampling.Shuffle())))
    assert {"size of batches", "number of participations"} <= names


@pytest.mark.parametrize(
    ("sold", "given"),
    [
        (POISSON, sampling.Poisson(1 / 2)),
        (POISSON, sampling.Poisson(0.27)),
        (POISSON, BINS),
        (BINS, POISSON),
        (BINS, sampling.Shuffle(4)),
        (sampling.RandomAllocation(4), BINS),
        (sampling.RandomAllocation(8, 2), sampling.RandomAllocation(4)),
        (POISSON, sampling.CyclicPoisson(1.0, 4)),
        (sampling.CyclicPoisson(1 / 2, 4), sampling.Poisson(1 / 8)),
        (sampling.CyclicPoisson(1 / 2, 4), sampling.CyclicPoisson(1.0, 8)),
        (sampling.MinSeparation(0.4, 3), sampling.MinSeparation(0.4, 2)),
        (sampling.MinSeparation(0.4, 3), sampling.Poisson(0.22)),
        (sampling.Shuffle(4), BINS),
        (sampling.Shuffle(), sampling.Shuffle(4)),
    ],
    ids=repr,
)
def test_batches_of_another_scheme(sold, given):
    found = ask(scheme=sold, participants=sold_as(given), runs=8000)
    assert not found.passed
    assert all("noise" not in name for name in failed(found))


@pytest.mark.parametrize("scheme", [POISSON, BINS, sampling.CyclicPoisson(0.5, 4)], ids=repr)
def test_a_repeated_seed_of_the_sampler(scheme):
    assert "repeats of batches" in failed(ask(scheme=scheme, participants=OneSeed))


@pytest.mark.parametrize("scheme", [POISSON, BINS], ids=repr)
def test_batches_redrawn_after_resume(scheme):
    assert "batches after a stop" in failed(ask(scheme=scheme, participants=Redrawn))


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (Twice, "batches are sets of examples"),
        (Couples, "independence of examples"),
        (Couples, "size of batches"),
        (Sticky, "participation in two steps"),
        (Peeking, "noise independent of participation"),
    ],
)
def test_batches_of_another_law(broken, name):
    assert name in failed(ask(strategies.identity(STEPS), participants=broken))


def test_a_stream_that_ends_early_is_an_error():
    def short(strategy, sigma, shape, seed, *, decoder):
        return NoiseStream(strategies.identity(STEPS - 1), sigma, shape, seed)

    with pytest.raises(MmccError, match="no noise for step 7"):
        ask(stream=short)
