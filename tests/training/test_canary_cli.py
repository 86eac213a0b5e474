"""Claim: `mmcc audit --canaries` says what the library says, of played runs and of scores."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc._cli.app import main
from mmcc.accounting._guarantee import rounded_up
from mmcc.audit import audit_canaries, load_scores, play_canaries, save_scores
from mmcc.errors import ParameterError

WORDS = "audit --strategy identity --steps 4 --sampling shuffle --sigma 1 --delta 1e-5"
STRATEGY, SCHEME, AT = strategies.identity(4), sampling.Shuffle(), {"sigma": 1.0, "delta": 1e-5}
CLAIM = ["--epsilon", "3"]


def run(capsys, *words):
    code = main([*WORDS.split(), *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def without_seconds(out):
    said = json.loads(out)
    assert said.pop("seconds") >= 0
    return said


@pytest.fixture
def scores(tmp_path):
    """Scores that give every coin away, of 400 canaries."""
    generator = np.random.default_rng(1)
    included = generator.random(400) < 0.5
    path = tmp_path / "scores.csv"
    save_scores(path, included + 0.1 * generator.random(400), included)
    return str(path)


def test_a_played_run_is_that_of_the_library(capsys):
    code, out, err = run(capsys, "--canaries", "300", "--seed", "3", "--stream", "numpy", "--json")
    found = play_canaries(STRATEGY, SCHEME, **AT, canaries=300, seed=3, stream="numpy")
    assert (code, err) == (0, "")
    assert without_seconds(out) == json.loads(json.dumps(found.to_dict()))
    assert found.to_dict()["certified"] is False
    assert (found.sigma, found.seed, found.stream) == (1.0, 3, "numpy")


def test_print_has_both_bounds_and_what_each_assumes_beside_the_certificate(capsys):
    words = ["--canaries", "1000", "--seed", "3", "--stream", "numpy", "--guesses", "60,60"]
    code, out, err = run(capsys, *words)
    text = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "which is no proof that it is right" in text
    assert "assuming nothing about what was run" in text
    assert "assuming that the privacy curve is that of the accounted mechanism" in text
    plain = mmcc.epsilon(STRATEGY, SCHEME, **AT, method="unamplified")
    assert f"epsilon, certified {rounded_up(plain.epsilon)} by" in text
    assert "of 120 right (60 to be in the data, 60 to be left out)" in text
    assert "zero-out" in text


def test_a_file_is_judged_as_the_library_judges_it(capsys, scores):
    words = ["--canaries", scores, "--guesses", "50,50", "--seed", "5", "--json"]
    code, out, err = run(capsys, *words)
    plain = mmcc.epsilon(STRATEGY, SCHEME, **AT, method="unamplified")
    found = audit_canaries(*load_scores(scores), plain, guesses=(50, 50), seed=5)
    assert (code, err) == (1, "")
    assert without_seconds(out) == json.loads(json.dumps(found.to_dict()))
    assert found.correct == 100


def test_a_violation_is_exit_code_one_and_said_in_words(capsys, scores):
    code, out, err = run(capsys, "--canaries", scores, "--guesses", "100,0", *CLAIM)
    text = " ".join(out.split())
    assert (code, err) == (1, "")
    assert "VIOLATION: epsilon is at least 3." in text
    assert "more than the claimed 3" in text
    assert "not computed: there is no certified privacy curve" in text


def test_scores_come_back_from_a_file_with_all_digits(tmp_path):
    values = np.array([0.1, -1e300, np.inf, -np.inf, 1 / 3, 5e-324, 0, 1, 2, 3])
    coins = np.arange(10) % 3 == 0
    save_scores(tmp_path / "s", values, coins)
    back, again = load_scores(tmp_path / "s")
    assert (back == values).all()
    assert (again == coins).all()
    text = (tmp_path / "s").read_text()
    (tmp_path / "t").write_text(f"\ufeff{text}\n\n", encoding="utf-8")  # as a spreadsheet leaves it
    assert (load_scores(tmp_path / "t")[0] == values).all()


@pytest.mark.parametrize("path", [3, None, "", "no/such/folder/scores.csv"])
def test_scores_that_cannot_be_written(path):
    with pytest.raises(ParameterError, match=r"scores (need the path of a file|cannot be written)"):
        save_scores(path, np.arange(10.0), np.arange(10) % 3 == 0)


def test_a_run_is_held_to_a_guarantee():
    with pytest.raises(ParameterError, match="tested against a Guarantee, or epsilon= and delta="):
        audit_canaries(np.arange(10.0), np.arange(10) % 3 == 0, 3.0)


ROWS = [f"{k},{k * k // 3 % 2}" for k in range(12)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "must begin with the line score,included"),
        (ROWS, "must begin with the line score,included"),
        (["score,included", *ROWS[:9]], "the number of canaries must lie between 10"),
        (["score,included", *ROWS, "nan,1"], "line 14 of {} must be a number and 0 or 1"),
        (["score,included", "1,2", *ROWS], "line 2 of {} must be a number and 0 or 1"),
        (["score,included", "1,True", *ROWS], "line 2 of {} must be"),
        (["score,included", "1", *ROWS], "line 2 of {} must be"),
        (["score,included", "1,0,1", *ROWS], "line 2 of {} must be"),
        (["score,included", *(f"{k},1" for k in range(50))], "implausible for fair coins"),
        (["score,included", *(f"{k},{k % 2}" for k in range(50))], "alternate with"),
    ],
)
def test_a_bad_file_is_exit_code_two_and_one_line(capsys, tmp_path, lines, message):
    path = tmp_path / "scores.csv"
    path.write_text("".join(f"{line}\n" for line in lines))
    code, out, err = run(capsys, "--canaries", str(path), *CLAIM)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message.format(path) in err


@pytest.mark.parametrize("content", [b"\xff\xfe", b'score,included\n"', b"\0"])
def test_what_is_no_text_is_refused_as_well(capsys, tmp_path, content):
    path = tmp_path / "scores.csv"
    path.write_bytes(content)
    code, out, err = run(capsys, "--canaries", str(path), *CLAIM)
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--canaries", "none.csv"], "cannot be read"),
        (["--canaries", "/"], "cannot be read"),
        (["--canaries", "5"], "canaries must lie between 10"),
        (["--canaries", "1.5"], "--canaries"),
        (["--canaries", ""], "--canaries"),
        (["--canaries", "200", "--runs", "2000"], "leave it out"),
        (["--canaries", "200", "--guesses", "1.5,2"], "two whole numbers"),
        (["--canaries", "200", "--guesses", "5"], "two whole numbers"),
        (["--canaries", "200", "--guesses", "0,0"], "not both be 0"),
        (["--canaries", "200", "--guesses", "150,51"], "guesses of canaries left out"),
        (["--canaries", "200", "--confidence", "1"], "confidence must lie"),
        (["--canaries", "s.csv", "--stream", "numpy"], "--stream is for runs that are played"),
        (["--canaries", "s.csv", "--decoder", "online"], "--decoder is for runs that are played"),
        (["--guesses", "5,5"], "give --canaries too"),
    ],
)
def test_bad_words_are_exit_code_two_and_one_line(capsys, words, message):
    code, out, err = run(capsys, *words, *CLAIM)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


COINS = np.arange(40) * np.arange(40) // 3 % 2 == 0


@pytest.mark.parametrize(
    ("scores", "included", "given", "message"),
    [
        (np.r_[np.nan, np.ones(39)], COINS, CLAIM, "the score of canary 0 is nan"),
        (np.ones(39), COINS, CLAIM, "for each of the 39 canaries"),
        (np.ones(40), COINS.astype(int), CLAIM, "included must be True or False"),
        (np.ones((2, 20)), COINS, CLAIM, "one number for each canary"),
        ([[1.0], [2.0, 3.0]], COINS, CLAIM, "one value for each canary"),
        (["a"] * 40, COINS, CLAIM, "one number for each canary"),
        (np.ones(40), COINS, None, "needs what the run is tested against"),
    ],
)
def test_scores_that_say_nothing_are_refused(scores, included, given, message):
    claim = {} if given is None else {"epsilon": 3.0, "delta": 1e-5}
    with pytest.raises(mmcc.MmccError, match=message):
        audit_canaries(scores, included, **claim)


def test_what_was_verified_is_not_called_certified():
    plain = mmcc.epsilon(STRATEGY, SCHEME, **AT, method="unamplified")
    verified = replace(plain, kind="verified", failure=1e-9, curve=None)
    found = audit_canaries(np.arange(40.0), COINS, verified, seed=1)
    assert (found.origin, found.to_dict()["origin"], found.family) == ("verified", "verified", None)
    assert "certified" not in str(found).replace("no certified privacy curve", "")


def test_what_is_for_more_examples_than_a_canary_is_refused():
    group = mmcc.epsilon(strategies.identity(1), sampling.Poisson(1.0), **AT, group_size=2)
    zero_one = mmcc.epsilon(STRATEGY, SCHEME, **AT)
    for guarantee in (group, zero_one):
        with pytest.raises(mmcc.MmccError, match="a canary is one example among others"):
            audit_canaries(np.arange(40.0), COINS, guarantee)
    with pytest.raises(mmcc.MmccError, match="give either the guarantee"):
        audit_canaries(np.arange(40.0), COINS, group, epsilon=1.0)
