"""Claim: what is recommended is certified, no worse than DP-SGD, and can be used as printed."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies, utility
from mmcc._cli.app import main
from mmcc.strategies._records import strategy_digest

RUN = {"examples": 48, "batch_size": 12, "epochs": 3, "epsilon": 8.0, "delta": 1e-5}
STEPS, RATE = 12, 1 / 4
UNLIMITED = {"seconds": float("inf")}


@pytest.fixture(scope="module")
def told():
    """Everything that was told on the way."""
    return []


@pytest.fixture(scope="module")
def found(told):
    return mmcc.recommend(**RUN, **UNLIMITED, better=told.append)


def prefix_sum_error(strategy, sigma):
    """By arrays: the prefix sums of what C^-1 makes of independent noise."""
    noise = np.tril(np.ones((STEPS, STEPS))) @ np.linalg.inv(strategy.to_dense())
    return sigma * np.sqrt(np.square(noise).sum() / STEPS)


def test_every_offer_is_certified_for_the_target_and_has_the_error_that_is_told(found):
    for offer in (*found.offers, found.baseline):
        there = mmcc.epsilon(offer.strategy, offer.sampling, sigma=offer.sigma, delta=RUN["delta"])
        assert there.epsilon <= RUN["epsilon"]
        assert offer.error == pytest.approx(prefix_sum_error(offer.strategy, offer.sigma), rel=1e-9)
        assert offer.sampling.rate(STEPS) == pytest.approx(RATE)


def test_the_best_has_the_least_error_and_beats_dp_sgd(found):
    assert found.wins
    assert found.best.error == min(offer.error for offer in found.offers)
    assert found.best.error < found.baseline.error
    assert found.saving(found.best) == pytest.approx(1 - found.best.error / found.baseline.error)
    assert repr(found.baseline.strategy) == repr(strategies.identity(STEPS))
    assert found.baseline.sampling == sampling.Poisson(RATE)
    assert not found.cut_short


def test_each_word_on_the_way_is_better_than_the_one_before(found, told):
    errors = [step.best.error for step in told]
    assert errors == sorted(errors, reverse=True)
    assert len(set(errors)) == len(errors) >= 2
    assert told[-1].best == found.best


def test_the_command_and_the_python_are_the_mechanism(found, capsys):
    words = shlex.split(found.command)
    assert words[0] == "mmcc"
    assert main([*words[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] <= RUN["epsilon"]
    names = {"strategies": strategies, "sampling": sampling, "module": 0, "optimizer": 0}
    called = eval(found.python, names | {"loader": 0, "make_private": lambda *_, **more: more})
    assert strategy_digest(called["strategy"]) == strategy_digest(found.strategy)
    assert called["sampling"] == found.sampling
    assert called["sigma"] == found.sigma


def test_where_nothing_may_be_correlated_dp_sgd_is_recommended():
    found = mmcc.recommend(**RUN, **UNLIMITED, memory=1, schemes="poisson")
    assert not found.wins
    assert found.best == found.baseline
    assert found.runner_up is None
    assert "nothing that was tried has less" in str(found)


def test_a_workload_is_what_errors_are_of():
    workload = utility.schedule(utility.cosine_rates(STEPS), momentum=0.9)
    found = mmcc.recommend(**RUN, **UNLIMITED, workload=workload, schemes=[sampling.Poisson(RATE)])
    best = found.best
    assert best.error == pytest.approx(utility.rmse(best.strategy, best.sigma, workload))
    assert workload.name in str(found)


def test_when_time_is_up_what_is_known_is_said():
    found = mmcc.recommend(**RUN, seconds=1e-3)
    assert found.cut_short
    assert found.best == found.baseline
    assert "time was up" in str(found)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"schemes": []}, "schemes is empty"),
        ({"schemes": "poison"}, "did you mean 'poisson'"),
        ({"schemes": 3}, "must come from mmcc.sampling"),
        ({"schemes": sampling.Poisson(0.2)}, "same rate"),
        ({"schemes": "shuffle"}, "no amplification is proven for every strategy"),
        ({"schemes": "random-allocation", "epochs": 1.5}, "whole number"),
        ({"memory": 0}, "memory"),
        ({"seconds": -1.0}, "seconds"),
        ({"better": 3}, "better must be a function"),
        ({"workload": [1.0, 2.0]}, "workload has 2 steps"),
        ({"delta": 0.9999}, "no noise is needed"),
        ({"batch_size": 1, "examples": 10**6, "epochs": 2}, "at most 1000000"),
        ({"batch_size": 97}, "batch_size"),
        ({"epsilon": 0.0}, "epsilon"),
    ],
)
def test_what_is_wrong_is_said(wrong, words):
    with pytest.raises(mmcc.MmccError, match=words):
        mmcc.recommend(**{**RUN, "seconds": 1e-3, **wrong})


def test_the_command_line_answers_in_json_and_tells_the_way_on_stderr(capsys):
    run = "--examples 48 --batch-size 12 --epochs 3 --epsilon 8 --delta 1e-5 --schemes poisson"
    assert main(["recommend", *run.split(), "--momentum", ".5", "--seconds", "1e6", "--json"]) == 0
    printed = capsys.readouterr()
    content = json.loads(printed.out)
    assert content["wins"]
    assert content["best"]["error"] < content["baseline"]["error"]
    assert content["workload"] == utility.schedule(np.ones(STEPS), momentum=0.5).name
    assert "so far" in printed.err


def test_a_schedule_that_there_is_not_is_refused(capsys):
    run = "--examples 48 --batch-size 12 --epochs 3 --epsilon 8 --delta 1e-5 --schedule cosin"
    assert main(["recommend", *run.split()]) == 2
    assert "did you mean 'cosine'" in capsys.readouterr().err


def test_what_was_found_is_remembered_and_certified_again(monkeypatch, tmp_path):
    monkeypatch.setenv("MMCC_CACHE", str(tmp_path))
    asked = {**RUN, "schemes": ["poisson"], "seconds": 1e6}
    first, again = mmcc.recommend(**asked), mmcc.recommend(**asked)
    assert (first.remembered, again.remembered) == (False, True)
    assert strategy_digest(again.strategy) == strategy_digest(first.strategy)
    assert again.sigma == first.sigma
    assert again.guarantee.epsilon <= RUN["epsilon"]
    assert again.baseline.error == first.baseline.error
    assert "certified again" in str(again)
    (file,) = tmp_path.glob("recommended-*.json")
    content = json.loads(file.read_text())
    for name, value in (("sigma", 1e-3), ("strategy", "blt(17)"), ("sampling", "Poisson(1)")):
        forged = content | {"offers": [content["offers"][0] | {name: value}]}
        file.write_text(json.dumps(forged))
        with pytest.raises(KeyboardInterrupt):  # it is searched again
            mmcc.recommend(**asked, better=interrupt)
    assert not mmcc.recommend(**asked | {"seconds": 1e-3}, remembered=False).remembered


def interrupt(found):
    assert not found.remembered
    raise KeyboardInterrupt
