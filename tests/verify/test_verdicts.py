"""Claim: a verdict says what was shown and with which chance of error; looking twice is paid."""

from __future__ import annotations

import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc._simulation import record as records
from mmcc._simulation import verify as verdicts
from mmcc._simulation.chance_checks import log_wealth
from mmcc._simulation.claims import Claim, Work
from mmcc._simulation.experiments import Crude
from mmcc._simulation.pairs import pair_of
from mmcc._simulation.trials import Progressed, run
from mmcc.accounting import Problem
from mmcc.errors import MethodError, NotVerifiedError, ParameterError, SamplingError

MECHANISM = strategies.continual_counting(6), sampling.Poisson(0.2)
AT = {"sigma": 2.0, "delta": 0.05, "failure": 1e-4}
PASSING, FAILING = 0.78, 0.5


def passed(epsilon: float = PASSING, **changed) -> mmcc.Guarantee:
    return mmcc.verify(*MECHANISM, epsilon=epsilon, **{**AT, **changed})


def test_a_verdict_is_a_guarantee_that_says_so():
    found = passed()
    assert isinstance(found, mmcc.Guarantee)
    assert (found.kind, found.failure, found.method) == ("verified", 1e-4, "verify")
    assert (found.epsilon, found.delta, found.sigma) == (PASSING, 0.05, 2.0)
    said = "verified by simulation; the chance of a wrong verdict, 0.0001, is part of delta"
    assert said in str(found)
    assert "certified" not in str(found)
    assert found.to_dict()["certified"] is False
    assert found.to_dict()["kind"] == "verified"
    with pytest.raises(MethodError, match="verified"):
        found.gdp()


def test_a_certificate_is_not_a_verdict():
    found = mmcc.epsilon(*MECHANISM, sigma=2.0, delta=0.05)
    assert (found.kind, found.failure) == ("certified", 0.0)
    assert found.to_dict()["certified"] is True
    assert found.epsilon < PASSING  # what is verified here is true


def test_kinds_are_not_made_up():
    good = passed()
    fields = {name: getattr(good, name) for name in ("epsilon", "delta", "sigma", "method")}
    fields |= {"strategy": "", "sampling": "", "adaptive": True, "bound": ""}
    for kind, failure in (("verified", 0.0), ("certified", 0.1), ("estimated", 0.1)):
        with pytest.raises(MethodError, match="certified"):
            mmcc.Guarantee(**fields, kind=kind, failure=failure)


def test_with_a_seed_of_the_callers_it_is_an_estimate_and_repeats():
    first, second = passed(seed=7), passed(seed=7)
    assert isinstance(first, mmcc.Estimate)
    assert first == second != passed(seed=8)
    assert first.high == PASSING
    assert not records._remembered  # nothing was promised, so nothing is counted
    with pytest.raises(ParameterError, match="seed"):
        passed(seed=7, record="file.json")


def test_a_refusal_says_what_would_pass():
    with pytest.raises(NotVerifiedError, match="About epsilon = ") as refusal:
        passed(FAILING)
    told = refusal.value
    exact = mmcc.bracket(*MECHANISM, sigma=2.0, delta=0.05)
    assert exact.lower < told.epsilon < 1.3 * exact.upper
    assert told.delta > 0.05
    assert told.samples > 0
    assert "no attempt is counted" in str(told)
    assert passed(1.1 * told.epsilon).epsilon == 1.1 * told.epsilon
    assert passed(FAILING, delta=1.1 * told.delta).delta == 1.1 * told.delta


def test_attempts_are_counted_whatever_noise_and_epsilon_they_are_about():
    levels = [passed().details["level"], passed(0.85).details["level"]]
    levels.append(passed(0.85, sigma=2.1).details["level"])
    assert levels == [1e-4 / 2, 1e-4 / 4, 1e-4 / 8]
    other = mmcc.verify(MECHANISM[0], sampling.Poisson(0.1), epsilon=2.0, **AT)
    assert other.details["attempt"] == 1
    with pytest.raises(ParameterError, match="at least"):
        passed(failure=1e-5)
    assert passed(failure=1e-3).details["level"] == 1e-3 / 16


def test_trials_are_at_the_level_and_below_delta_without_failure():
    claim = Claim.about(*MECHANISM, 1, epsilon=PASSING, **AT)
    attempt, _ = verdicts._prepared(claim, 3, 1, 2, Work())
    for state in attempt.states:
        assert state.need >= -math.log(1e-4 * 2.0**-3)
        dropped = state.trial.experiment.dropped
        assert 0.04 < state.trial.bets.mean < 0.05 - 1e-4 - dropped


def test_what_a_relaxed_scheme_leaves_out_is_taken_from_delta():
    scheme = sampling.TruncatedPoisson(0.2, 38, 100)
    chance = scheme.relaxed(6).chance
    assert chance > 1e-5
    claim = Claim.about(MECHANISM[0], scheme, 1, epsilon=PASSING, **AT)
    assert 0.05 - 1e-4 - chance - 1e-12 <= claim.below(0.0) < 0.05 - 1e-4 - chance
    assert mmcc.verify(MECHANISM[0], scheme, epsilon=PASSING, **AT).kind == "verified"
    with pytest.raises(ParameterError, match="larger delta"):
        mmcc.verify(
            MECHANISM[0], scheme, epsilon=1.0, sigma=2.0, delta=chance, failure=1e-12, seed=1
        )


def test_every_group_and_both_adjacencies_have_a_trial():
    matrix = np.tril(np.random.default_rng(0).random((6, 6))) + np.eye(6)
    found = mmcc.verify(strategies.dense(matrix), sampling.CyclicPoisson(0.3, 2), epsilon=4.0, **AT)
    trials = [(one["group"], one["adjacency"]) for one in found.details["trials"]]
    assert trials == [(0, "remove"), (0, "add"), (1, "remove"), (1, "add")]


def test_groups_of_examples():
    found = passed(4.0, group_size=2)
    assert found.group_size == 2
    assert "2 examples" in found.adjacency
    with pytest.raises(MethodError, match="group of 2"):
        mmcc.verify(MECHANISM[0], sampling.MinSeparation(0.2, 3), epsilon=4.0, group_size=2, **AT)


@pytest.mark.parametrize(
    ("scheme", "error"),
    [(sampling.Shuffle(), MethodError), (sampling.Unsampled(2, 3), SamplingError)],
)
def test_what_has_no_pair_is_refused(scheme, error):
    with pytest.raises(error):
        mmcc.verify(MECHANISM[0], scheme, epsilon=1.0, **AT)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"failure": 0.04}, "half"),
        ({"failure": 0.0}, "failure"),
        ({"delta": 1.5}, "delta"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"samples": 0}, "samples"),
        ({"executor": 3}, "executor"),
        ({"progress": 3}, "progress"),
        ({"record": "/nowhere/at/all.json"}, "folder"),
    ],
)
def test_bad_input(changed, said):
    with pytest.raises(ParameterError, match=said):
        mmcc.verify(*MECHANISM, **{**AT, "epsilon": PASSING, **changed})


def test_the_cost_is_told_first_and_may_be_too_much():
    told = []
    passed(progress=lambda what, done: told.append((what, done)))
    told = [what for what, _ in told]
    (cost,) = (what for what in told if what.startswith("verify: about"))
    first = next(what for what in told if what.startswith("verify: samples,"))
    assert told.index(cost) < told.index(first)
    assert re.search(r"about \S+ samples, about \d+ \w+ of one processor", cost)
    with pytest.raises(NotVerifiedError, match="more than samples = 300"):
        passed(samples=300)


def test_a_long_pilot_is_told_too_and_may_be_too_much(monkeypatch):
    monkeypatch.setattr(
        verdicts,
        "experiment_for",
        lambda problem, pair, remove, epsilon, delta, rng: Crude(pair, remove, epsilon),
    )
    with pytest.raises(NotVerifiedError, match="a pilot alone needs"):
        passed(delta=1e-5, failure=1e-9, samples=10_000)
    told = []

    def stop(what: str, done: float) -> None:
        told.append(what)
        if len(told) > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        passed(delta=1e-5, failure=1e-9, progress=stop)
    assert re.fullmatch(r"verify: a pilot of \S+ samples or more comes first \(remove\)", told[0])


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_draws_the_same_blocks(workers):
    claim = Claim.about(*MECHANISM, 1, epsilon=PASSING, **AT)
    alone, _ = verdicts._prepared(claim, 1, 11, 12, Work())
    verdicts._run(alone, Work(), lambda: None)
    with ThreadPoolExecutor(workers) as pool:
        work = Work(pool)
        spread, _ = verdicts._prepared(claim, 1, 11, 12, work)
        verdicts._run(spread, work, lambda: None)
    assert spread.passed
    assert [s.blocks for s in spread.states] == [s.blocks for s in alone.states]
    assert [s.trial.bets for s in spread.states] == [s.trial.bets for s in alone.states]


def test_a_trial_that_was_stopped_goes_on_as_if_it_had_not_been():
    claim = Claim.about(*MECHANISM, 1, epsilon=PASSING, **AT)
    whole, _ = verdicts._prepared(claim, 1, 11, 12, Work())
    verdicts._run(whole, Work(), lambda: None)
    state = whole.states[0]
    again = Progressed(state.trial, state.need, list(state.blocks[: len(state.blocks) // 2]))
    assert again.passed is None
    run(again, 11, 0, None, lambda _: None)
    assert again.blocks == state.blocks
    assert again.wealth == state.wealth


def test_losses_move_up_by_their_rounding():
    """X is at least what exact arithmetic makes of a loss that is too small by the rounding."""
    pair = pair_of(Problem(*MECHANISM, 2.0))
    crude = Crude(pair, True, 0.7)
    losses = 0.7 + np.array([-1e-3, -pair.rounding / 2, 0.0, 1e-12, 1e-3, 1.0, 50.0])
    values = crude.values(losses, np.ones(losses.size), 0.7)
    exact = np.maximum(-np.expm1(0.7 - (losses + pair.rounding)), 0.0)
    assert (values >= exact).all()
    assert (values <= np.minimum(exact * (1 + 1e-12) + 1e-14, 1.0)).all()


@pytest.mark.parametrize("sigma", [2e-4, 1e-12, 1e-49])
def test_hardly_any_noise_is_refused_and_not_a_crash(sigma):
    with pytest.raises(NotVerifiedError):
        mmcc.verify(
            strategies.identity(4),
            sampling.Poisson(0.003 if sigma > 1e-6 else 0.3),
            sigma=sigma,
            epsilon=0.005,
            delta=0.005,
            failure=1e-6,
        )


def test_attempts_about_groups_of_another_size_count_too():
    passed()
    assert passed(group_size=2, epsilon=4.0).details["attempt"] == 2


@dataclass(frozen=True)
class Lying(sampling.Scheme):
    """Rounds of one chance, told as rounds of another."""

    probability: float
    told: float

    def draw(self, steps, count, generator, group=0):
        return sampling.Poisson(self.probability).draw(steps, count, generator)

    def expected_batch(self, steps, examples):
        return examples * self.probability

    def chances(self, steps):
        return sampling.Chances.constant(self.told)


@dataclass(frozen=True)
class Together(Lying):
    """The right chance for each step; but whoever takes part does so in pairs of steps."""

    def draw(self, steps, count, generator, group=0):
        pairs = generator.random((count, steps // 2)) < self.probability
        return participations(np.repeat(pairs, 2, axis=1))


@dataclass(frozen=True)
class Preferring(Lying):
    """As many participations as told, but more of them in every fourth step."""

    def draw(self, steps, count, generator, group=0):
        more = np.where(np.arange(steps) % 4, 1 - 1 / 6, 1.5)
        return participations(generator.random((count, steps)) < self.probability * more)


def participations(marks):
    edges = np.concatenate([[0], np.cumsum(marks.sum(axis=1))])
    return sampling.Participations(np.nonzero(marks)[1], edges)


@pytest.mark.parametrize("chance", [0.05, 0.4])
@pytest.mark.parametrize("kind", [Together, Preferring])
def test_draws_that_depend_on_each_other_are_found_out(kind, chance):
    with pytest.raises(SamplingError, match="does not draw what"):
        pair_of(Problem(strategies.identity(40), kind(chance, chance), 2.0))


@pytest.mark.parametrize(
    ("true", "told"),
    [(0.5, 0.1), (0.2, 0.1), (0.11, 0.1), (0.45, 0.5), (0.05, 0.2), (0.1, 1e-9)],
)
def test_chances_that_draws_do_not_follow_are_refused(true, told):
    with pytest.raises(SamplingError, match=r"participations|is impossible"):
        pair_of(Problem(strategies.identity(40), Lying(true, told), 2.0))


@pytest.mark.parametrize("chance", [1e-6, 0.01, 0.3, 0.999])
def test_chances_that_draws_follow_are_not(chance):
    pair_of(Problem(strategies.identity(40), Lying(chance, chance), 2.0))
    pair_of(Problem(strategies.identity(40), sampling.MinSeparation(chance, 3), 2.0))


def test_right_chances_hardly_ever_lose():
    """The wealth of those who bet against them is a martingale: its mean stays 1."""
    rng = np.random.default_rng(1)
    told = np.tile(rng.uniform(0, 0.6, 12), (64, 1))
    logs = [log_wealth((rng.random(told.shape) < told).astype(int), told) for _ in range(400)]
    assert np.mean(np.array(logs) > np.log(20)) <= 0.05 + 4 * (0.05 * 0.95 / 400) ** 0.5
    assert max(logs) < 12
