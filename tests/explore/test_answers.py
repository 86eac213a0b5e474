"""Claim: what the page shows is what the library certifies, and what is copied asks the same."""

from __future__ import annotations

import json
import math
import shlex
from decimal import Decimal

import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies, utility
from mmcc._cli.app import main
from mmcc.errors import NothingCertifiedError
from mmcc.explore import _answers as answers
from mmcc.explore import _comparison as comparison
from mmcc.explore import _texts as texts
from mmcc.explore import _views as views
from mmcc.explore._desk import Desk
from mmcc.explore._settings import (
    DEFAULTS,
    FIELDS,
    SIGMA,
    FieldError,
    Settings,
    applicable,
    read,
)
from mmcc.sampling._registry import SCHEMES

SMALL = {**DEFAULTS, "steps": "8", "prob": "1/8", "bins": "4", "height": "2", "bands": "3"}
SMALL |= {"separation": "3", "sigma": "3"}
MECHANISMS = {
    ("identity", "poisson"): (strategies.identity(8), sampling.Poisson(1 / 8)),
    ("binary-tree", "shuffle"): (strategies.binary_tree(8), sampling.Shuffle()),
    ("tree-restart", "poisson"): (strategies.tree_restart(8, 2), sampling.Poisson(1 / 8)),
    ("continual-counting", "balls-in-bins"): (
        strategies.continual_counting(8),
        sampling.BallsInBins(4),
    ),
    ("banded-toeplitz", "cyclic-poisson"): (
        strategies.banded_toeplitz(8, 3),
        sampling.CyclicPoisson(1 / 8, 3),
    ),
    ("blt", "balls-in-bins"): (strategies.blt(8, 2), sampling.BallsInBins(4)),
}


def values(strategy: str = "identity", scheme: str = "poisson", **changed: str) -> dict[str, str]:
    return {**SMALL, "strategy": strategy, "scheme": scheme, **changed}


def at_once(asked, *, curve=False):
    """The view when the chosen noise is answered, or the whole curve."""

    class Now(Desk):
        def __init__(self):
            pass

        def ask(self, questions, seconds):
            wanted = questions if curve else [answers.BracketQuestion(read(asked))]
            return {question: answers.answered(question) for question in wanted}

    return views.privacy_view(asked, Now())


def test_delta_is_never_shown_smaller_than_it_is():
    note = at_once(values(delta="1.234562e-6"))["epsilon-note"]
    shown = Decimal(note.removeprefix("at δ = ").partition(",")[0])
    assert Decimal("1.234562e-6") <= shown < Decimal("1.2358e-6")


@pytest.mark.parametrize(
    ("changed", "ends", "said"),
    [
        # An example takes part at all with a chance of at most 1e-3: less than delta.
        ({"prob": "1e-4", "steps": "10", "delta": "0.01"}, "[0, 0]", "exact"),
        ({}, "[0.", "upper / lower 1."),
    ],
)
def test_what_is_said_of_a_bracket_fits_its_ends(changed, ends, said):
    shown = at_once(values(**changed))
    assert shown["bracket"].startswith(ends)
    assert shown["bracket-note"].startswith(said)


@pytest.fixture(params=MECHANISMS, ids=" ".join, scope="module")
def case(request):
    strategy, scheme = MECHANISMS[request.param]
    bracket = mmcc.bracket(strategy, scheme, sigma=3.0, delta=1e-6)
    return values(*request.param), strategy, bracket


def test_numbers_are_those_of_the_library(case):
    asked, strategy, bracket = case
    shown = at_once(asked)
    assert float(shown["epsilon"]) >= bracket.upper  # rounded up, never down
    assert float(shown["epsilon"]) == pytest.approx(bracket.upper, rel=1e-3)
    lower, upper = shown["bracket"].strip("[]").split(", ")
    assert float(lower) <= bracket.lower
    assert float(lower) == pytest.approx(bracket.lower, rel=1e-3)
    assert upper == shown["epsilon"]
    assert bracket.method in shown["epsilon-note"]
    assert shown["problem"] == ""
    others = views.other_view(asked)
    decoded = np.tril(np.ones((8, 8))) @ np.linalg.pinv(strategy.to_dense())
    if "Tree" not in type(strategy).__name__:  # a tree's decoder is not the pseudoinverse
        errors = 3 * np.linalg.norm(decoded, axis=1)
        assert float(others["rmse"]) == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-4)
        assert float(others["largest"]) == pytest.approx(errors.max(), rel=1e-4)
    assert float(others["rmse"]) == pytest.approx(utility.rmse(strategy, 3.0), rel=1e-4)


def test_the_copied_command_and_snippet_give_what_is_shown(case, capsys):
    asked, _, bracket = case
    shown = read(asked)
    command = texts.command(shown)
    assert all(line.count("--") <= 1 for line in command.splitlines())  # fits on a telephone
    words = shlex.split(command.replace("\\\n", " "))
    assert words[0] == "mmcc"
    assert main([*words[1:], "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["lower"], printed["upper"]) == (bracket.lower, bracket.upper)
    names: dict[str, object] = {}
    exec(texts.snippet(shown), names)
    assert (names["found"].lower, names["found"].upper) == (bracket.lower, bracket.upper)
    *ends, rmse, largest = map(float, capsys.readouterr().out.split())
    assert ends == [bracket.lower, bracket.upper]
    others = views.other_view(asked)
    assert rmse == pytest.approx(float(others["rmse"]), rel=1e-4)
    assert largest == pytest.approx(float(others["largest"]), rel=1e-4)


def test_without_amplification_the_copied_texts_give_the_plain_bound(capsys):
    """The command line's own words lead to an answer, by the command and in Python."""
    strategy, scheme = strategies.binary_tree(8), sampling.MinSeparation(1 / 8, 3)
    plain = mmcc.epsilon(strategy, scheme, sigma=3.0, delta=1e-6, method="unamplified")
    view = at_once(values("binary-tree", "min-separation"))
    assert view["problem"] == ""
    assert float(view["epsilon"]) >= plain.epsilon
    assert "No amplification is proven" in view["epsilon-flag"]
    words = shlex.split(view["command"].replace("\\\n", " "))
    assert main([*words[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["upper"] == plain.epsilon
    names: dict[str, object] = {}
    exec(view["snippet"], names)
    assert names["found"].upper == plain.epsilon


def test_one_shuffled_pass_says_what_it_assumes():
    assert "0-1 setting" in at_once(values("binary-tree", "shuffle"))["epsilon-flag"]


def test_every_point_of_the_curve_is_certified_at_its_own_noise():
    shown = at_once(values(), curve=True)
    assert not shown["unfinished"]
    lower, upper, plain, _ = shown["epsilon-plot"]["data"]
    assert len(upper["x"]) >= 4
    assert 3.0 in upper["x"]
    for sigma, high, low in zip(upper["x"], upper["y"], lower["y"], strict=True):
        found = mmcc.bracket(
            strategies.identity(8), sampling.Poisson(1 / 8), sigma=sigma, delta=1e-6
        )
        assert (high, low) == (found.upper, found.lower)
    for sigma, value in zip(plain["x"], plain["y"], strict=True):
        gaussian = mmcc.epsilon(
            strategies.dense([[math.sqrt(8)]]), sampling.Poisson(1), sigma=sigma, delta=1e-6
        )
        assert value == pytest.approx(gaussian.epsilon, rel=1e-9)


def test_a_first_proof_is_marked_as_one():
    desk = Desk(lambda *_: pytest.fail("nothing is computed here"))
    desk.close()  # as slow as can be: no answer comes
    shown = views.privacy_view(values(), desk, patience=0.0)
    plain = mmcc.epsilon(
        strategies.identity(8),
        sampling.Poisson(1 / 8),
        sigma=3.0,
        delta=1e-6,
        method="unamplified",
    )
    assert shown["unfinished"]
    assert shown["epsilon"].startswith("≤ ")
    assert float(shown["epsilon"][2:]) >= plain.epsilon
    assert "without amplification" in shown["epsilon-note"]
    assert shown["epsilon-plot"]["data"][1]["y"] == []


@pytest.mark.parametrize("mechanism", [("identity", "poisson"), ("binary-tree", "shuffle")])
def test_a_bound_for_less_noise_is_shown_until_there_is_a_better_one(mechanism):
    """Its own assumptions go with it; a bound for more noise is no bound."""
    asked = read(values(*mechanism, sigma="3.1"))
    levels = answers.noise_levels(asked)
    below = max(sigma for sigma in levels if sigma < 3.1)

    class Slow(Desk):
        def __init__(self):
            pass

        def ask(self, questions, seconds):
            others = [asked.at(sigma) for sigma in levels if sigma != 3.1]
            return {q: answers.answer(q) for q in map(answers.BracketQuestion, others)}

    shown = views.privacy_view(values(*mechanism, sigma="3.1"), Slow())
    strategy, scheme = MECHANISMS[mechanism]
    least, known = (
        mmcc.bracket(strategy, scheme, sigma=sigma, delta=1e-6).upper for sigma in (3.1, below)
    )
    assert least < known <= float(shown["epsilon"].removeprefix("≤ ")) < 1.001 * known
    assert shown["epsilon-note"].startswith(f"already with {SIGMA} = {below:.4g}; ")
    assert ("0-1 setting" in shown["epsilon-flag"]) == (mechanism[1] == "shuffle")


def test_the_lower_end_comes_first_and_is_the_bracket_s():
    """Asked before anything else, equal to what the bracket says later."""
    asked = read(values("continual-counting"))
    first, *_ = answers.questions(asked)
    assert first == answers.BracketQuestion(asked, lower_only=True)
    later = answers.answer(answers.BracketQuestion(asked))
    assert 0 < answers.answer(first) == later.lower < later.upper


def test_noise_levels_are_kept_from_one_sigma_to_the_next():
    before, after = (set(answers.noise_levels(read(values(sigma=s)))) for s in ("3", "3.05"))
    assert len(before & after) >= 3
    for levels in (before, after):
        assert max(levels) / min(levels) <= 4


# ---------------------------------------------------------------------------------- wrong values

WRONG = [
    ("steps", "abc", "steps needs a whole number"),
    ("steps", "0", "steps must lie between 1"),
    ("steps", "-5", "steps must lie between 1"),
    ("steps", "2.5", "steps needs a whole number"),
    ("steps", "1e400", "steps needs a whole number"),
    ("steps", "500000", "up to 100000 steps"),
    ("steps", "", "steps is empty"),
    ("steps", None, "steps is empty"),
    ("prob", "1.5", "prob must lie in (0, 1]"),
    ("prob", "0", "prob must lie in (0, 1]"),
    ("prob", "1/0", "divides by zero"),
    ("prob", "nan", "prob must lie in"),
    ("prob", "<script>alert(1)</script>", "prob needs a number"),
    ("prob", "9" * 5000, "prob needs a number"),
    ("sigma", "-1", "sigma must lie in"),
    ("sigma", "0", "sigma must lie in"),
    ("sigma", "inf", "sigma must lie in"),
    ("delta", "1", "delta must lie in"),
    ("delta", "", "delta is empty"),
    ("strategy", "bogus", "unknown strategy"),
    ("strategy", ["identity"], "unknown strategy"),
    ("scheme", None, "unknown scheme"),
]


@pytest.mark.parametrize(("field", "text", "said"), WRONG)
def test_wrong_values_are_one_sentence_at_their_field(field, text, said):
    asked = values() | {field: text}
    shown = at_once(asked)
    assert said in shown["problem"][:1].lower() + shown["problem"][1:]
    assert len(shown["problem"]) < 400
    assert shown["wrong"] == field
    assert "--" not in shown["problem"]
    assert not any(character.isdigit() for character in shown["epsilon"] + shown["bracket"])
    assert views.other_view(asked)["rmse"] == views.NONE


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"scheme": "balls-in-bins", "bins": "3"}, "not a whole number of epochs"),
        ({"strategy": "banded-toeplitz", "bands": "9"}, "bands"),
    ],
)
def test_what_the_library_refuses_is_said_in_its_words_and_at_once(changed, said):
    desk = Desk(lambda *_: pytest.fail("nothing is computed here"))
    desk.close()  # as if busy with an old question: no answer comes
    shown = views.privacy_view(values() | changed, desk, patience=0.0)
    assert said in shown["problem"][:1].lower() + shown["problem"][1:]
    assert not shown["unfinished"]


def test_a_command_is_given_where_the_page_does_not_answer():
    shown = at_once(values(steps="200000"))
    assert "--steps 200000" in shown["command"]
    assert "identity(200000" in shown["snippet"]


def test_above_the_largest_size_what_is_cheap_is_shown():
    """Errors, a picture, the bound without sampling, and no wild number in large."""
    asked = values("binary-tree", steps="8192", sigma="14")
    desk = Desk(lambda *_: pytest.fail("nothing tight is computed here"))
    desk.close()
    shown = views.privacy_view(asked, desk, patience=0.0)
    strategy, scheme = strategies.binary_tree(8192), sampling.Poisson(1 / 8)
    options = {"sigma": 14.0, "delta": 1e-6, "method": "unamplified"}
    plain = mmcc.epsilon(strategy, scheme, **options).epsilon
    assert shown["problem"] == ""
    assert not any(character.isdigit() for character in shown["epsilon"])
    told = shown["epsilon-note"].partition("at most ")[2].partition(" ")[0]
    assert plain <= float(told) < 1.001 * plain
    assert "--steps 8192" in shown["command"]
    others = views.other_view(asked)
    assert float(others["rmse"]) == pytest.approx(utility.rmse(strategy, 14.0), rel=1e-4)
    assert others["strategy-plot"]["data"]


def test_a_wild_first_number_is_not_written_large():
    desk = Desk(lambda *_: pytest.fail("nothing is computed here"))
    desk.close()
    shown = views.privacy_view({**DEFAULTS}, desk, patience=0.0)
    assert shown["epsilon"] == "…"
    assert "at most 455.6" in shown["epsilon-note"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_has_a_number_that_is_certified(scheme):
    """The best certificate that there is, instead of an option of the command line."""
    asked = values("binary-tree", scheme, **{"epoch-steps": "4", "at-most": "2"})
    asked |= {"largest-batch": "40", "examples": "200"}
    shown = at_once(asked)
    assert shown["problem"] == ""
    settings = read(asked)
    strategy, drawn = settings.build_strategy(), settings.build_scheme()
    options = {"sigma": 3.0, "delta": 1e-6}
    try:
        found = mmcc.bracket(strategy, drawn, method=settings.method, **options).upper
    except NothingCertifiedError:  # a rare event is not rare enough: the page says which
        found = mmcc.epsilon(strategy, drawn, method="unamplified", **options).epsilon
        assert "event" in shown["epsilon-flag"]
    assert found <= float(shown["epsilon"]) < 1.001 * found
    assert ("No amplification" in shown["epsilon-flag"]) == (not settings.proven)


def test_rows_and_columns_of_c_run_downwards_and_to_the_right():
    layout = views.other_view(values("binary-tree"))["strategy-plot"]["layout"]
    assert layout["yaxis"]["range"] == [15.5, 0.5]
    assert layout["xaxis"]["range"] == [0.5, 8.5]
    assert not layout["yaxis"]["autorange"]


class Prompt(Desk):
    """Answers at once."""

    def __init__(self):
        pass

    def ask(self, questions, seconds):
        return {question: answers.answered(question) for question in questions}


def test_mechanisms_are_compared_at_one_certified_epsilon():
    asked = values("binary-tree", target="1.5")
    found = comparison.compare(asked, [values("blt", buffers="1")], Prompt())
    assert not found.problem
    assert not found.unfinished
    names = [row.name for row in found.rows]
    assert names[0] == comparison.BASELINE
    assert len(names) == 3
    kinds = (strategies.identity(8), strategies.blt(8, 1), strategies.binary_tree(8))
    poisson = sampling.Poisson(1 / 8)
    for row, strategy in zip(found.rows, kinds, strict=True):
        needed = mmcc.sigma(strategy, poisson, epsilon=1.5, delta=1e-6).sigma
        assert needed <= float(row.sigma) < 1.001 * needed
        assert float(row.rmse) == pytest.approx(utility.rmse(strategy, needed), rel=1e-4)
    assert [trace["name"] for trace in found.figure["data"]] == names


@pytest.mark.parametrize("target", ["", "0", "-1", "nan", "1e9", "<b>"])
def test_a_wrong_target_is_one_sentence(target):
    found = comparison.compare(values(target=target), [], Prompt())
    assert found.problem.startswith("Target")
    assert found.rows == ()


def test_what_was_kept_is_read_like_the_controls():
    """It may come from an address that somebody sent."""
    for kept in ({}, {"strategy": "x"}, {"strategy": "<img>", "scheme": "poisson", "steps": "8"}):
        found = comparison.compare(values(), [kept], Prompt())
        assert found.problem
        assert "<img>" not in str(found.figure)


def test_fields_that_do_not_apply_are_not_read():
    asked = values("identity", "poisson", bands="nonsense", bins="", separation="x")
    assert read(asked) == read(values())
    assert applicable("blt", "balls-in-bins") == ("steps", "buffers", "bins", "sigma", "delta")
    assert set(applicable("blt", "balls-in-bins")) <= set(FIELDS)


@pytest.mark.parametrize(
    "text",
    ["1_0/8_0", "\N{FULLWIDTH DIGIT ONE}/8", "0x1p-3", " 1/8 ", "1/8/2", "01/08", "+1/8", "1e-1/2"],
)
def test_copied_text_is_made_of_plain_numbers(text):
    """Whatever float() can read, what is pasted into a shell is digits."""
    try:
        shown = read(values(prob=text))
    except FieldError:
        return
    written = shown.prob or ""
    assert written.isascii()
    assert set(written) <= set("0123456789.e-/")
    assert eval(written) == Settings.probability.fget(shown)
