"""Claim: a name that one command prints is read by the others, and means the same there."""

from __future__ import annotations

import json

import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc._calls import looks_like_call, read_call, split_outside_brackets
from mmcc._cli.app import main
from mmcc.design import TunedBlt
from mmcc.design._error_beside_dp_sgd import beside_dp_sgd
from mmcc.sampling._registry import from_call as scheme_from_call
from mmcc.strategies._words import from_call, from_text

SCHEME = "--sampling poisson --prob .25 --delta 1e-3".split()  # noqa: SIM905 as it is typed


@pytest.mark.parametrize(
    "strategy",
    [
        strategies.identity(8),
        strategies.continual_counting(8),
        strategies.binary_tree(8),
        strategies.tree_restart(8, 2),
        strategies.blt(8),
        strategies.blt(8, decay=[0.3, 0.9], scale=[0.1, 0.2]),
        strategies.banded_toeplitz(8, 3),
        strategies.banded_inverse(8, 3),
        strategies.lambda_cgd(8, 0.5),
        strategies.toeplitz([1, 0.5], 8),
    ],
    ids=repr,
)
def test_what_a_strategy_prints_is_read(strategy):
    again = from_text(repr(strategy), 8)
    assert again.to_dense() == pytest.approx(strategy.to_dense(), rel=1e-6)
    assert (from_text(f"strategies.{strategy!r}", 8).to_dense() == again.to_dense()).all()


@pytest.mark.parametrize(
    "scheme",
    [
        sampling.Poisson(0.1),
        sampling.CyclicPoisson(0.1, 3),
        sampling.MinSeparation(0.1, 3, warm_start=True),
        sampling.BallsInBins(4),
        sampling.RandomAllocation(4, 2),
        sampling.Unsampled(3, 2),
    ],
    ids=repr,
)
def test_what_a_scheme_prints_is_read(scheme):
    assert scheme_from_call(repr(scheme)) == scheme


def test_words():
    counting = strategies.continual_counting(8).coefficients
    assert (from_text("continual-counting:4", 8).coefficients == counting[:4]).all()
    for name in ("dp-sgd", "DP-SGD"):
        assert not from_text(name, 8).correlated
    assert from_text("tuned-blt", 8) == TunedBlt(8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("toeplitz([1, 0.5, ... 16 in all], 2000)", "must not be shortened"),
        ("blt(8, decay=[0.5], scale=__import__('os'))", "cannot be read"),
        ("blt(**{})", "cannot be read"),
        ("bit(8)", "did you mean 'blt'"),
        ("blt(8, dekay=[0.5])", "not a valid call of blt"),
        ("blt(8, 9, 10, 11)", "not a valid call of blt"),
        ("blt(" + "(" * 5000 + ")" * 5001, "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused(text, said):
    with pytest.raises(mmcc.MmccError, match=said):
        from_call(text)


def test_calls_are_told_from_words_and_files():
    assert looks_like_call(" strategies.blt(8) ")
    assert not looks_like_call("blt:8")
    assert not looks_like_call("a(1).npz")
    assert read_call("a.b(1)", "strategies") is None
    assert split_outside_brackets("a, b(1, [2, 3]),c") == ["a", "b(1, [2, 3])", "c"]


def test_every_command_takes_them(capsys):
    counting = strategies.toeplitz(strategies.continual_counting(8).coefficients[:4], 8)
    found = mmcc.epsilon(counting, sampling.Poisson(0.25), sigma=3.0, delta=1e-3)
    word = ["--strategy", "continual-counting:4", "--steps", "8"]
    for command in ("epsilon", "bracket"):
        assert main([command, *word, *SCHEME, "--sigma", "3", "--json"]) == 0
        content = json.loads(capsys.readouterr().out)
        assert content.get("epsilon", content.get("upper")) == pytest.approx(found.epsilon)
    printed = ["--strategy", repr(counting), "--sampling", "Poisson(probability=0.25)"]
    assert main(["epsilon", *printed, "--sigma", "3", "--delta", "1e-3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] == pytest.approx(found.epsilon, rel=1e-3)
    assert main(["epsilon", "--strategy", "dp-sgd", "--steps", "8", *SCHEME, "--sigma", "3"]) == 0


def test_tuned_blt_needs_a_target(capsys):
    word = ["--strategy", "tuned-blt", "--steps", "8", *SCHEME]
    assert main(["epsilon", *word, "--sigma", "3"]) == 2
    assert "mmcc sigma --strategy tuned-blt" in capsys.readouterr().err.replace("\n", " ")
    assert main(["sigma", *word, "--epsilon", "2", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["strategy"].startswith("blt(8, decay=[")
    copied = ["--strategy", content["strategy"], *SCHEME, "--sigma", repr(content["sigma"])]
    assert main(["epsilon", *copied, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] <= 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--strategy", "continual-counting:4", *SCHEME], "--steps is needed"),
        (["--strategy", "blt(8)", "--steps", "9", *SCHEME], "leave --steps out"),
        (["--strategy", "blt(8)", "--bands", "2", *SCHEME], "--bands does not apply"),
        (
            ["--strategy", "blt(8)", "--sampling", "cyclic-poisson:4", "--delta", "1e-3"],
            "a scheme at a rate",
        ),
        (
            ["--strategy", "blt(8)", "--sampling", "Poison(0.1)", "--delta", "1e-3"],
            "unknown sampling",
        ),
        (
            ["--strategy", "blt(8)", "--sampling", "Poisson(0.1)", "--prob", "1", "--delta", "1"],
            "--prob does not apply",
        ),
    ],
)
def test_what_is_wrong_is_said(words, said, capsys):
    assert main(["epsilon", *words, "--sigma", "3"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_the_error_beside_dp_sgd():
    scheme, blt = sampling.Poisson(0.25), strategies.blt(8)
    found = mmcc.epsilon(blt, scheme, sigma=3.0, delta=1e-3)
    beside = beside_dp_sgd(blt, scheme, found)
    independent = mmcc.sigma(strategies.identity(8), scheme, epsilon=found.epsilon, delta=1e-3)
    assert beside.sigma == pytest.approx(independent.sigma, rel=1e-3)
    assert beside.sigma >= independent.sigma * (1 - 1e-9)
    assert beside.baseline == pytest.approx(beside.sigma * np.sqrt(np.arange(1, 9).mean()))
    sums = np.tril(np.ones((8, 8))) @ np.linalg.inv(blt.to_dense())
    assert beside.error == pytest.approx(3.0 * np.linalg.norm(sums) / np.sqrt(8))
    assert beside.worse == (beside.error > beside.baseline)
    assert ("ask mmcc recommend" in str(beside)) == beside.worse
    identity = strategies.identity(8)
    own = mmcc.epsilon(identity, scheme, sigma=3.0, delta=1e-3)
    assert beside_dp_sgd(identity, scheme, own) is None
