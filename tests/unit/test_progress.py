"""Claim: progress says what is known so far, and about how long it may take."""

from __future__ import annotations

import re

import mmcc
from mmcc import sampling, strategies
from mmcc._progress import PIECES, Line, as_detail, in_words, so_far

TREE, SCHEME = strategies.binary_tree(4), sampling.Poisson(1 / 4)


def heard(ask) -> list[tuple[str, float]]:
    reports: list[tuple[str, float]] = []
    ask(lambda what, done: reports.append((what, done)))
    return reports


def test_the_line_says_what_is_known_and_the_time_left():
    line = Line()
    known = so_far("sigma between 3.7 and 3.9", "trial", 8, about=True)
    assert line.words(known, 1, 10.0) == "sigma between 3.7 and 3.9, trial 1 of about 8"
    assert line.words("rows", 7, 11.0) == "sigma between 3.7 and 3.9, trial 1 of about 8 (rows 7)"
    assert line.words(known, 4, 34.0).endswith("trial 4 of about 8; about 25 s left")
    assert line.words("rows", 8, 44.0).endswith("; about 15 s left (rows 8)")
    other = line.words(so_far("the plot", "point", 30), 3, 60.0)
    assert other == "the plot, point 3 of 30"  # other work: nothing is known of its time yet


def test_a_piece_of_something_larger_keeps_its_total_for_itself():
    reports = heard(lambda tell: as_detail(tell)(so_far("sigma", "trial", 8), 2))
    assert reports == [("sigma", 2)]


def test_times_are_rough():
    assert [in_words(s) for s in (0.0, 3.0, 58.0, 90.0, 91.0, 600.0)] == [
        "5 s",
        "5 s",
        "60 s",
        "90 s",
        "2 min",
        "10 min",
    ]


def test_a_first_epsilon_is_there_at_once_and_gets_better():
    found = []

    def ask(tell):
        found.append(mmcc.epsilon(TREE, SCHEME, sigma=6.0, delta=1e-6, progress=tell))

    known = [what for what, _ in heard(ask) if PIECES.match(what)]
    ends = [float(re.search(r"(?:and|most) ([\d.e+-]+),", what)[1]) for what in known]
    assert len(ends) >= 2
    assert ends == sorted(ends, reverse=True)
    assert ends[0] > 2 * ends[-1]
    assert found[0].epsilon <= ends[-1] <= found[0].epsilon * 1.001


def test_the_search_for_sigma_says_between_what_it_is():
    found = []

    def ask(tell):
        found.append(mmcc.sigma(TREE, SCHEME, epsilon=1.0, delta=1e-6, progress=tell))

    known = [(what, done) for what, done in heard(ask) if ", trials of about " in what]
    assert [done for _, done in known] == list(range(1, len(known) + 1))
    between = [re.search(r"between ([\d.]+) and ([\d.]+),", what) for what, _ in known]
    low, high = (float(end) for end in next(m for m in between[::-1] if m).groups())
    assert low <= found[0].sigma * 1.001
    assert high >= found[0].sigma * 0.999
