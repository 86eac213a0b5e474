"""Claim: Unsampled assumes what it says, answers where that is enough, and draws nobody."""

from __future__ import annotations

import json

import numpy as np
import pytest

import mmcc
from mmcc import audit, errors, sampling, strategies
from mmcc._cli.app import main
from mmcc.explore import _settings, _texts
from mmcc.ledger import planned
from mmcc.report import of_mechanism
from mmcc.training import Mechanism, Participants

SCHEME = sampling.Unsampled(separation=3, at_most=2)
BLT = strategies.blt(12)
MEASURED = {"sigma": 4.0, "delta": 1e-5}


@pytest.mark.parametrize(
    ("question", "numbers"),
    [
        (mmcc.epsilon, MEASURED),
        (mmcc.delta, {"sigma": 4.0, "epsilon": 1.0}),
        (mmcc.sigma, {"epsilon": 1.0, "delta": 1e-5}),
    ],
)
def test_tight_is_the_gaussian_bound(question, numbers):
    tight = question(BLT, SCHEME, **numbers)
    plain = question(BLT, SCHEME, **numbers, method="unamplified")
    assert (tight.epsilon, tight.delta, tight.sigma) == (plain.epsilon, plain.delta, plain.sigma)
    assert tight.bound == "unamplified"
    assert tight.adaptive
    assert tight.setting == ""


def test_limits_are_monotone_and_one_participation_is_a_column():
    def found(separation, at_most):
        scheme = sampling.Unsampled(separation, at_most)
        return mmcc.epsilon(BLT, scheme, **MEASURED).epsilon

    assert found(3, 1) < found(3, 2) < found(2, 2) < found(1, 12)
    once = mmcc.epsilon(BLT, sampling.CyclicPoisson(1, 12), **MEASURED).epsilon
    assert found(3, 1) == pytest.approx(once, rel=1e-12)
    every = mmcc.epsilon(BLT, sampling.Poisson(1), **MEASURED).epsilon
    assert found(1, 12) == pytest.approx(every, rel=1e-12)
    assert found(10**9, 10**9) == found(3, 1)  # limits that say nothing more


@pytest.mark.parametrize("method", ["mmcc", "projection", "reveal", "cascade", "group-lemma"])
def test_there_is_nothing_to_amplify(method):
    with pytest.raises(errors.MethodError) as refused:
        mmcc.epsilon(BLT, SCHEME, **MEASURED, method=method)
    if method != "group-lemma":
        assert "nothing to amplify" in str(refused.value)


@pytest.mark.parametrize(
    "play",
    [
        lambda: Participants(SCHEME, 12, 100),
        lambda: mmcc.estimate(BLT, SCHEME, **MEASURED),
        lambda: mmcc.bracket(BLT, SCHEME, **MEASURED, estimate=True),
        lambda: audit.audit(BLT, SCHEME, **MEASURED),
        lambda: Mechanism(BLT, SCHEME, 4.0, 100, 1.0),
        lambda: mmcc.compare([BLT], [SCHEME], epsilon=1.0, delta=1e-5),
        lambda: SCHEME.draw(12, 1, np.random.default_rng(0)),
        lambda: SCHEME.expected_batch(12, 100),
    ],
)
def test_nobody_is_drawn_and_the_refusal_names_the_noise_stream(play):
    with pytest.raises(errors.SamplingError, match=r"draws nobody.*mmcc\.training\.NoiseStream"):
        play()


def test_training_is_refused_before_anything_is_looked_at():
    torch = pytest.importorskip("torch")
    pytest.importorskip("opacus")
    from mmcc.training import make_private

    module = torch.nn.Linear(2, 1)
    with pytest.raises(errors.SamplingError, match=r"mmcc\.training\.NoiseStream"):
        make_private(
            module,
            torch.optim.SGD(module.parameters(), lr=0.1),
            torch.utils.data.TensorDataset(torch.ones(4, 2)),
            strategy=BLT,
            sampling=SCHEME,
            max_grad_norm=1.0,
            **MEASURED,
        )


@pytest.mark.parametrize(("separation", "at_most"), [(0, 1), (1, 0), (1.5, 1), (1, -2)])
def test_limits_are_whole_numbers_from_one_on(separation, at_most):
    with pytest.raises(errors.ParameterError):
        sampling.Unsampled(separation, at_most)


def test_words_say_what_is_assumed():
    assert "at most 2 times" in SCHEME.words(12)
    assert "at least 3 steps" in SCHEME.words(12)
    assert "enforces" in SCHEME.caution


def test_a_report_names_the_limits_and_not_the_secrecy_of_batches():
    assumed = of_mechanism(BLT, SCHEME, **MEASURED, seconds=0).assumptions
    said = " ".join(f"{one.head} {one.text}" for one in assumed)
    assert "stays within its limits" in said
    assert "Who took part may be known" in said
    assert "batches were drawn" not in said


def test_a_ledger_takes_it():
    run = planned(BLT, SCHEME, **MEASURED, fingerprint="a run")
    assert run.guarantee.epsilon == mmcc.epsilon(BLT, SCHEME, **MEASURED).epsilon
    assert len(run.curve) >= 40


TYPED = ["--strategy", "binary-tree", "--steps", "12", "--sampling", "unsampled"]
NUMBERS = ["--sigma", "4", "--delta", "1e-5"]


def test_the_command_line_asks_for_both_limits(capsys):
    limits = ["--separation", "3", "--at-most", "2"]
    assert main(["epsilon", *TYPED, *limits, *NUMBERS, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    tree = strategies.binary_tree(12)
    assert said["epsilon"] == mmcc.epsilon(tree, SCHEME, **MEASURED).epsilon
    assert said["sampling"] == repr(SCHEME)
    assert main(["epsilon", *TYPED, *limits[:2], *NUMBERS]) == 2
    assert "--at-most is needed" in capsys.readouterr().err
    assert main(["epsilon", *TYPED, *limits, "--prob", "1/2", *NUMBERS]) == 2
    assert "--prob does not apply" in capsys.readouterr().err


def test_the_explorer_asks_for_both_limits():
    values = {**_settings.DEFAULTS, "scheme": "unsampled", "separation": "3", "at-most": "2"}
    asked = _settings.read(values)
    assert asked.build_scheme() == SCHEME
    assert asked.proven
    command = _texts.command(asked)
    assert "--separation 3 " in command
    assert "--at-most 2 " in command
    assert "method" not in _texts.command(asked)
    assert "sampling.Unsampled(3, 2)" in _texts.snippet(asked)
