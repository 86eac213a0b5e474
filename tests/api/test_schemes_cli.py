"""Claim: every sampling scheme has its words on the command line, and estimates are marked."""

from __future__ import annotations

import json

import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc._cli.app import main

TREE = ["--strategy", "binary-tree", "--steps", "8", "--sigma", "4", "--delta", "1e-5"]
SCHEMES = {
    "balls-in-bins --bins 4": sampling.BallsInBins(4),
    "random-allocation --epoch-steps 8": sampling.RandomAllocation(8),
    "random-allocation --epoch-steps 4 --participations 4": sampling.RandomAllocation(4, 4),
    "shuffle": sampling.Shuffle(),
    "shuffle --epoch-steps 4": sampling.Shuffle(4),
    "min-separation --prob 1/4 --separation 3": sampling.MinSeparation(0.25, 3),
    "min-separation --prob 1/4 --separation 3 --warm-start": sampling.MinSeparation(0.25, 3, True),
}
PROVEN = (
    "balls-in-bins --bins 4",
    "shuffle",
    "random-allocation --epoch-steps 8",
    "random-allocation --epoch-steps 4 --participations 4",
)


def run(capsys, command: str, words: str, *extra: str) -> tuple[int, str, str]:
    code = main([command, *TREE, "--sampling", *words.split(), *extra])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("words", SCHEMES)
def test_a_scheme_is_read_and_accounted(capsys, words):
    code, out, _ = run(capsys, "epsilon", words, "--method", "unamplified", "--json")
    assert code == 0
    said = json.loads(out)
    plain = mmcc.epsilon(
        strategies.binary_tree(8), SCHEMES[words], sigma=4, delta=1e-5, method="unamplified"
    )
    assert (said["epsilon"], said["sampling"]) == (plain.epsilon, repr(SCHEMES[words]))
    assert (said["setting"], said["adaptive"]) == ("", True)


@pytest.mark.parametrize("words", [words for words in SCHEMES if words not in PROVEN])
@pytest.mark.parametrize("command", ["epsilon", "bracket"])
def test_a_scheme_without_a_proof_is_refused_in_one_line(capsys, words, command):
    code, out, err = run(capsys, command, words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--method unamplified" in err
    assert "mmcc estimate" in err


def test_the_0_1_setting_is_printed(capsys):
    code, out, _ = run(capsys, "epsilon", "shuffle")
    assert code == 0
    assert "0-1 setting" in " ".join(out.split())
    assert "non-adaptive only" in out


def test_a_bracket_shows_the_estimate_beside_it(capsys):
    options = ["--estimate", "--seed", "2", "--width", "0.05"]
    code, out, _ = run(capsys, "bracket", PROVEN[0], *options, "--json")
    assert code == 0
    said = json.loads(out)
    estimate = said["estimate"]
    assert said["certified"] is True
    assert estimate["certified"] is False
    assert estimate["seed"] == 2
    assert estimate["low"] <= said["upper"]
    assert said["lower"] <= estimate["high"]
    code, out, _ = run(capsys, "bracket", PROVEN[0], *options)
    assert code == 0
    assert "not a proof" in " ".join(out.split())


def test_an_estimate_says_that_it_is_not_certified(capsys):
    code, out, _ = run(capsys, "estimate", PROVEN[0], "--width", "0.1")
    assert code == 0
    (line,) = (line for line in out.splitlines() if line.startswith("certified"))
    assert line.split(maxsplit=1)[1].strip() == "no: a Monte Carlo estimate, not a proof"


def test_an_estimate_beside_an_unamplified_bound_says_its_setting(capsys):
    options = ["--method", "unamplified", "--estimate", "--width", "0.1"]
    code, out, _ = run(capsys, "bracket", "shuffle --epoch-steps 4", *options)
    assert code == 0
    assert "0-1 setting" in " ".join(out.split())


def test_an_estimate_alone(capsys):
    words = "min-separation --prob 1/4 --separation 3"
    code, out, _ = run(capsys, "estimate", words, "--json", "--confidence", "0.9")
    assert code == 0
    said = json.loads(out)
    assert said["low"] <= said["epsilon"] <= said["high"]
    assert (said["confidence"], said["certified"]) == (0.9, False)
    code, out, _ = run(capsys, "estimate", words)
    assert code == 0
    assert "not a proof" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "extra", "said"),
    [
        ("balls-in-bins", [], "--bins is needed"),
        ("balls-in-bins --bins 3", [], "divides the number of steps"),
        ("balls-in-bins --bins 0", [], "bins must lie between"),
        ("balls-in-bins --bins 4 --prob 0.5", [], "--prob does not apply"),
        ("shuffle --epoch-steps 3", [], "divides the number of steps"),
        ("shuffle --bins 4", [], "--bins does not apply"),
        ("min-separation --prob 0.5", [], "--separation is needed"),
        ("balls-in-bins --bins 4", ["--seed", "1"], "--estimate"),
        ("balls-in-bins --bins 4", ["--estimate", "--width", "0"], "width must lie in"),
        ("balls-in-bins --bins 4", ["--estimate", "--samples", "many"], "--samples needs"),
        (
            "balls-in-bins --bins 4",
            ["--method", "mmcc"],
            "Use --method tight, or one of 'cascade', 'projection', 'unamplified'.",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(capsys, words, extra, said):
    code, out, err = run(capsys, "bracket", words, *extra)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
