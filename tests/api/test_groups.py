"""Claim: a group is asked for everywhere in the same way, and what is not proven is refused."""

from __future__ import annotations

import json
import math
import pickle

import pytest
from extending.all_or_nothing import AllOrNothing

import mmcc
from mmcc import accounting, ledger, mixtures, report, sampling, strategies
from mmcc._cli.app import main
from mmcc.accounting._guarantee import ADJACENCY
from mmcc.errors import MethodError, ParameterError

TREE, POISSON = strategies.binary_tree(4), sampling.Poisson(1 / 4)
TOEPLITZ = strategies.toeplitz([1, 0.5], 8)
ASKED = {"sigma": 20.0, "delta": 1e-5}
CYCLIC = sampling.CyclicPoisson(1 / 4, 2)
WORDS = [
    *("--strategy", "binary-tree", "--steps", "4", "--sampling", "poisson", "--prob", "1/4"),
    *("--sigma", "20", "--delta", "1e-5"),
]


def test_one_example_is_the_default():
    default = mmcc.epsilon(TREE, POISSON, **ASKED)
    one = mmcc.epsilon(TREE, POISSON, group_size=1, **ASKED)
    assert default == one
    assert default.group_size == 1
    assert default.adjacency == ADJACENCY


@pytest.mark.parametrize("scheme", [POISSON, CYCLIC, sampling.BallsInBins(4)])
def test_a_guarantee_names_the_group(scheme):
    found = mmcc.epsilon(TREE, scheme, group_size=3, **ASKED)
    assert found.group_size == 3
    assert found.adjacency == "zero-out of 3 examples at once: the larger of remove and add"
    assert "zero-out of 3 examples at once" in str(found)
    assert found.to_dict()["group_size"] == 3
    assert pickle.loads(pickle.dumps(found)) == found
    lemma = scheme != POISSON
    assert found.bound.startswith("group-lemma: from one example's guarantee alone") == lemma


def test_every_question_knows_groups():
    one, two = (mmcc.epsilon(TREE, POISSON, group_size=k, **ASKED).epsilon for k in (1, 2))
    assert one < two
    delta = mmcc.delta(TREE, POISSON, sigma=20.0, epsilon=two, group_size=2)
    assert delta.delta <= 1.05e-5
    assert delta.group_size == 2
    sigma = mmcc.sigma(TREE, POISSON, epsilon=two, delta=1e-5, group_size=2)
    assert sigma.epsilon <= two
    assert sigma.sigma == pytest.approx(20.0, rel=1e-2)
    bracket = mmcc.bracket(TREE, POISSON, group_size=2, **ASKED)
    assert one <= bracket.lower <= bracket.upper == two


def test_the_lower_end_of_one_example_holds_for_a_group():
    one = mmcc.bracket(TREE, CYCLIC, **ASKED)
    two = mmcc.bracket(TREE, CYCLIC, group_size=2, **ASKED)
    assert two.lower == one.lower > 0


def test_unamplified_is_as_many_times_the_sensitivity():
    found = mmcc.epsilon(TREE, CYCLIC, method="unamplified", group_size=4, **ASKED)
    quarter = mmcc.epsilon(TREE, CYCLIC, method="unamplified", sigma=5.0, delta=1e-5)
    assert found.epsilon == pytest.approx(quarter.epsilon, rel=1e-12)


def test_independent_noise_is_the_mixture_of_counts():
    counts = mixtures.group_privacy(3, 50, 0.1, sigma=2.0, delta=1e-5)
    found = mmcc.epsilon(
        strategies.identity(50), sampling.Poisson(0.1), sigma=2.0, delta=1e-5, group_size=3
    )
    assert found.epsilon == pytest.approx(counts.epsilon, rel=1e-3)
    assert counts.group_size == 3


@pytest.mark.parametrize("bad", [0, -1, 1.5, 10**7, True, "2", math.nan, None])
def test_bad_group_sizes(bad):
    for ask, numbers in ((mmcc.epsilon, ASKED), (mmcc.delta, {"sigma": 5.0, "epsilon": 1.0})):
        with pytest.raises(ParameterError, match="group_size"):
            ask(TREE, POISSON, group_size=bad, **numbers)


@pytest.mark.parametrize("scheme", [sampling.Shuffle(), sampling.MinSeparation(0.1, 2)])
def test_what_is_not_proven_is_refused(scheme):
    with pytest.raises(MethodError, match="a group of 2 examples"):
        mmcc.epsilon(TREE, scheme, group_size=2, **ASKED)
    assert mmcc.epsilon(TREE, scheme, group_size=2, method="unamplified", **ASKED).epsilon > 0


@pytest.mark.parametrize(
    ("strategy", "scheme", "method", "why"),
    [
        (TREE, sampling.BallsInBins(4), "cascade", "proven for one example, not for a group of 2"),
        (TREE, CYCLIC, "projection", "which members are the worst"),
        (TREE, CYCLIC, "mmcc", "which members are the worst"),
        (TOEPLITZ, CYCLIC, "reveal", "which members are the worst"),
        (TREE, sampling.BallsInBins(4), "projection", "which members are the worst"),
    ],
)
def test_bounds_for_one_example_refuse_groups(strategy, scheme, method, why):
    with pytest.raises(MethodError, match=why):
        mmcc.epsilon(strategy, scheme, group_size=2, method=method, **ASKED)


def test_the_lemma_is_for_groups():
    with pytest.raises(MethodError, match="one example needs no lemma"):
        mmcc.epsilon(TREE, POISSON, method="group-lemma", **ASKED)
    found = mmcc.epsilon(TREE, POISSON, method="group-lemma", group_size=2, **ASKED)
    assert found.details["links"] == 2
    assert found.epsilon >= mmcc.epsilon(TREE, POISSON, group_size=2, **ASKED).epsilon


def test_a_bound_from_outside_says_nothing_about_groups_but_the_lemma_may_start_from_it():
    ours = AllOrNothing()
    accounting.register(ours)
    try:
        scheme = sampling.MinSeparation(1e-3, 3)
        with pytest.raises(MethodError, match="proven for one example"):
            mmcc.epsilon(TREE, scheme, group_size=2, method=ours.name, **ASKED)
        with pytest.raises(MethodError, match="proven for one example"):
            accounting_ask(ours, accounting.Problem(TREE, scheme, 5.0, group_size=2))
        found = mmcc.epsilon(TREE, scheme, group_size=2, **ASKED)
        assert found.bound.startswith("group-lemma")
        assert ours.name in found.bound
    finally:
        accounting.unregister(ours)


def accounting_ask(bound, problem):
    """As a search would ask: past every refusal."""
    from mmcc.accounting._best_bound import ask_epsilon

    return ask_epsilon(bound, problem, 1e-5)


def test_no_search_takes_one_examples_number_for_a_groups():
    from mmcc.accounting._bounds import BOUNDS, Groups

    problem = accounting.Problem(TREE, POISSON, 5.0, group_size=2)
    for bound in BOUNDS:
        if bound.groups is not Groups.OWN:
            with pytest.raises(MethodError, match="proven for one example"):
                accounting_ask(bound, problem)


def test_rare_participation_of_a_group():
    rare = sampling.Poisson(2e-9)
    assert mmcc.epsilon(TREE, rare, sigma=1.0, delta=1e-8).epsilon == 0
    assert 1e-8 < accounting.Problem(TREE, rare, 1.0, group_size=2).chance <= 1.7e-8
    assert mmcc.epsilon(TREE, rare, sigma=1.0, delta=1.7e-8, group_size=2).epsilon == 0


def test_estimates_are_for_one_example():
    with pytest.raises(ParameterError, match="one example"):
        mmcc.bracket(TREE, POISSON, group_size=2, estimate=True, **ASKED)


def test_a_ledger_keeps_groups_apart(tmp_path):
    one = mmcc.epsilon(TREE, POISSON, **ASKED)
    two = mmcc.epsilon(TREE, POISSON, group_size=2, **ASKED)
    book = ledger.Ledger(tmp_path / "runs.jsonl")
    run = {"data": "patients", "mechanism": "tree", "steps": 4, "fingerprint": "a"}
    book.begin(guarantee=two, **run)
    (entry,) = book.history().runs.values()
    assert entry.begin.guarantee.group_size == 2
    with pytest.raises(ledger.LedgerError, match="different adjacency"):
        book.begin(guarantee=one, **run)


# ----------------------------------------------------------------------------- the command line


def printed(capsys, *words):
    assert main(list(words)) == 0
    return json.loads(capsys.readouterr().out)


def test_commands_agree_with_the_library(capsys):
    found = mmcc.epsilon(TREE, POISSON, group_size=2, **ASKED).to_dict()
    for words in (
        ["epsilon", *WORDS, "--group-size", "2"],
        ["group", *WORDS, "--group", "2"],
        ["bracket", *WORDS, "--group-size", "2"],
    ):
        told = printed(capsys, *words, "--json")
        assert told["epsilon"] == found["epsilon"]
        assert told["group_size"] == 2
        assert told["adjacency"] == found["adjacency"]


def test_group_of_dpsgd_is_what_it_was(capsys):
    words = ["group", "--group", "2", "--steps", "9", "--prob", "0.1", "--sigma", "2"]
    told = printed(capsys, *words, "--delta", "1e-5", "--json")
    named = printed(capsys, *words, "--delta", "1e-5", "--json", "--strategy", "identity")
    assert told["epsilon"] == named["epsilon"]
    assert told["method"] == named["method"] == "mixture"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["group", *WORDS], "--group is needed"),
        (["group", *WORDS, "--group", "2", "--batch", "3"], "leave them or"),
        (["bracket", *WORDS, "--group-size", "2", "--estimate"], "is for one example"),
        (["epsilon", *WORDS, "--group-size", "0"], "group_size"),
        (
            ["group", "--sampling", "shuffle", "--steps", "8", "--group", "2", *WORDS[-4:]],
            "Use mmcc epsilon --group-size 2 --method unamplified",
        ),
    ],
)
def test_options_that_do_not_apply(words, said, capsys):
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_a_report_says_how_many_are_protected():
    found = report.of_mechanism(TREE, POISSON, group_size=2, seconds=0, **ASKED)
    page = found.markdown()
    for words in (
        "any 2 together of what is protected (one training example each) had contributed nothing",
        "zero-out of 2 examples at once",
        "Neighbours differ in the contributions of 2 of the protected units",
        "protects any 2 examples together",
        "--group-size 2",
        "group_size=2",
    ):
        assert words in page
