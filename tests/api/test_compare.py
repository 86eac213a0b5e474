"""Claim: `mmcc.compare` answers, marks what is no win, and never fails as a whole."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import mmcc
from mmcc import sampling, strategies
from mmcc._cli.app import main
from mmcc.design import TunedBlt, family
from mmcc.errors import MethodError, ParameterError, SamplingError, StrategyError
from mmcc.strategies._toeplitz import first_bands

DELTA = 1e-5
STEPS, RATE = 16, 1 / 4
BINS = sampling.BallsInBins(4)
ENCODER = first_bands(STEPS, 4)


def ask(named, schemes, epsilon=4.0, **options):
    return mmcc.compare(named, schemes, epsilon=epsilon, delta=DELTA, **options)


def timeless(table):
    return [replace(row, seconds=0.0) for row in (*table.baseline, *table.rows)]


@pytest.fixture(scope="module")
def table():
    named = {"identity": strategies.identity(STEPS), "bands": ENCODER}
    return ask(named, [BINS, sampling.CyclicPoisson(1, 4)], epsilon=[8.0, 2.0])


def test_rows_come_by_epsilon_scheme_and_strategy(table):
    assert table.epsilons == (2.0, 8.0)
    order = [(row.epsilon, row.scheme, row.strategy) for row in table.rows]
    assert order[:4] == [
        (2.0, "balls-in-bins", "identity"),
        (2.0, "balls-in-bins", "bands"),
        (2.0, "fixed-order", "identity"),
        (2.0, "fixed-order", "bands"),
    ]
    assert len(order) == 8


def test_the_baseline_is_dp_sgd_at_the_same_rate(table):
    for base in table.baseline:
        alone = mmcc.sigma(
            strategies.identity(STEPS), sampling.Poisson(RATE), epsilon=base.epsilon, delta=DELTA
        )
        assert base.sigma == alone.sigma
        assert base.rmse == pytest.approx(alone.sigma * math.sqrt((STEPS + 1) / 2), rel=1e-12)
        assert base.max_error == pytest.approx(alone.sigma * math.sqrt(STEPS), rel=1e-12)


def test_savings_are_against_the_least_noise_of_dp_sgd(table):
    for row in table.rows:
        base = table.baseline[table.epsilons.index(row.epsilon)]
        floor = base.rmse * base.sigma_lower / base.sigma
        assert row.saving == pytest.approx(1 - row.rmse / floor, abs=1e-12)
        assert row.wins == (row.rmse < floor and not row.reservations)


def test_what_is_not_amplified_does_not_win(table):
    fixed = [row for row in table.rows if row.scheme == "fixed-order"]
    assert all(row.certified and row.reservations for row in fixed)
    assert any(row.rmse < table.baseline[-1].rmse for row in fixed if row.epsilon == 8.0)
    assert not any(row.wins for row in fixed)
    crossing = {found.scheme: found for found in table.crossings}
    assert crossing["fixed-order"].epsilon is None
    assert crossing["balls-in-bins"].epsilon in (2.0, 8.0)


def test_the_dictionary_is_ready_for_json(table):
    content = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert content["epsilon"] == [2.0, 8.0]
    assert len(content["rows"]) == len(table.rows)
    assert {"sigma", "rmse", "max_error", "noise_memory", "wins", "certified"} <= set(
        content["rows"][0]
    )
    assert "epsilon 8" in str(table)


def test_only_wins_agrees_with_calibrations(table):
    quick = ask(
        {"identity": strategies.identity(STEPS), "bands": ENCODER},
        [BINS],
        epsilon=[2.0, 8.0],
        only_wins=True,
    )
    full = [row for row in table.rows if row.scheme == "balls-in-bins"]
    for row, known in zip(quick.rows, full, strict=True):
        assert row.at_tie
        assert row.wins == known.wins
        if row.wins:
            base = table.baseline[table.epsilons.index(row.epsilon)]
            assert known.sigma <= row.sigma
            assert row.rmse < base.rmse


def test_the_paper_s_method_is_at_most_as_good():
    small = first_bands(4, 2)
    by = {
        method: ask({"bands": small}, sampling.Poisson(RATE), method=method).rows[0]
        for method in ("mmcc", "reveal")
    }
    assert by["mmcc"].bound.startswith("mmcc")
    for row in by.values():
        assert row.sigma_lower <= row.sigma
        assert row.method == row.bound.partition(",")[0]


def test_a_bound_that_is_infinite_at_the_tie_does_not_win():
    tree = strategies.binary_tree(64)
    (row,) = ask({"tree": tree}, sampling.Poisson(1 / 4), method="mmcc", only_wins=True).rows
    assert row.verdict in ("does not win", "cannot win")
    assert row.sigma is None


def test_with_everyone_in_every_batch_nothing_is_reserved():
    for scheme in (sampling.Poisson(1), sampling.BallsInBins(1), sampling.CyclicPoisson(1, 1)):
        (row,) = ask({"bands": first_bands(4, 2)}, scheme).rows
        assert row.certified
        assert row.reservations == ()


def test_a_row_without_a_proof_says_why_and_the_others_stand():
    named = {
        "tree": strategies.binary_tree(8),
        "no decoder": strategies.dense(np.ones((2, 8)), adaptive=False),
    }
    tall = ask(named, [sampling.BallsInBins(4), sampling.BallsInBins(4)], method="cascade")
    assert {row.verdict for row in tall.rows if row.strategy == "no decoder"} == {"no answer"}
    assert all(row.reason for row in tall.rows if row.verdict == "no answer")
    assert any(row.certified for row in tall.rows)


def test_inputs_fixed_in_advance_do_not_win():
    reversed_rows = strategies.dense(first_bands(4, 2).to_dense()[::-1].copy(), adaptive=False)
    (row,) = ask({"reversed": reversed_rows}, sampling.BallsInBins(2), epsilon=8.0).rows
    assert not row.wins
    assert "no answer" in row.text or "fixed in advance" in row.text


def test_a_shuffled_pass_is_in_the_0_1_setting():
    tree = strategies.binary_tree(2)
    (row,) = ask({"tree": tree}, sampling.Shuffle(), epsilon=8.0).rows
    assert not row.wins
    assert row.reservations


def test_estimates_are_marked_and_never_win():
    scheme = sampling.MinSeparation(0.4, 3)
    two = strategies.binary_tree(6)
    certified, estimated = ask({"two": two}, scheme, epsilon=8.0, estimates=True).rows
    assert certified.certified
    assert certified.bound == "unamplified"
    assert not estimated.certified
    assert not estimated.wins
    assert "an estimate, not a proof" in estimated.reservations
    assert estimated.sigma < certified.sigma
    assert estimated.bound.startswith("Monte Carlo")


def test_a_cell_out_of_time_says_so():
    (row,) = ask({"bands": ENCODER}, sampling.Poisson(RATE), seconds=1e-3).rows
    assert row.verdict == "no answer"
    assert "not finished" in row.reason


def test_a_table_can_be_interrupted():
    def stop(what, done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask({"bands": ENCODER}, BINS, progress=stop)


def test_an_executor_gives_the_same_rows():
    named = {"identity": strategies.identity(8), "bands": first_bands(8, 2)}
    schemes = [sampling.CyclicPoisson(0.5, 2), sampling.CyclicPoisson(1, 4)]
    done = []
    with ThreadPoolExecutor(1) as executor:
        there = ask(named, schemes, executor=executor, progress=lambda what, k: done.append(what))
    assert timeless(there) == timeless(ask(named, schemes))
    assert "the table, rows of 4" in done


def test_one_step_and_certain_participation():
    table = ask({"identity": strategies.identity(1)}, sampling.Poisson(1.0))
    (row,) = table.rows
    assert row.sigma == table.baseline[0].sigma
    assert row.verdict == "does not win"


def test_a_tuned_blt_is_a_blt_with_a_certificate():
    tuned = TunedBlt(8)
    (row,) = ask([tuned], sampling.CyclicPoisson(1, 4), epsilon=8.0, method="unamplified").rows
    assert row.certified
    assert row.detail.startswith("blt(8, decay=")
    again = tuned.tuned(sampling.CyclicPoisson(1, 4), 8.0, DELTA, "unamplified")
    assert repr(again) == row.detail
    for decay, scale in ((0.3, 0.1), (0.6, 0.3), (0.9, 0.6)):
        other = strategies.blt(8, decay=[decay], scale=[scale])
        scheme = sampling.CyclicPoisson(1, 4)  # nothing is amplified: every method says the same
        (found,) = ask([other], scheme, epsilon=8.0, method="unamplified").rows
        assert row.rmse < 1.02 * found.rmse  # a short search, no claim of the optimum


@pytest.mark.parametrize(
    ("arguments", "options", "error", "what"),
    [
        (({}, BINS), {}, StrategyError, "same number of steps"),
        (([ENCODER, strategies.identity(4)], BINS), {}, StrategyError, "4, 16"),
        (([np.eye(4)], BINS), {}, StrategyError, "dense"),
        ((ENCODER, []), {}, ParameterError, "at least one scheme"),
        ((ENCODER, ["poisson"]), {}, SamplingError, "mmcc.sampling"),
        ((ENCODER, BINS), {"epsilon": []}, ParameterError, "empty"),
        ((ENCODER, BINS), {"epsilon": math.nan}, ParameterError, "epsilon"),
        ((ENCODER, BINS), {"epsilon": "1"}, ParameterError, "epsilon"),
        ((ENCODER, BINS), {"method": "tigth"}, MethodError, "tight"),
        ((ENCODER, BINS), {"seconds": 0}, ParameterError, "seconds"),
        ((ENCODER, BINS), {"seconds": math.nan}, ParameterError, "seconds"),
        ((ENCODER, BINS), {"executor": 3}, ParameterError, "executor"),
        ((ENCODER, BINS), {"progress": 3}, ParameterError, "progress"),
        ((ENCODER, [sampling.Poisson(0.1), BINS]), {}, SamplingError, "same rate"),
    ],
)
def test_bad_input_is_refused_before_the_work(arguments, options, error, what):
    with pytest.raises(error, match=what):
        ask(*arguments, **options)


COMMAND = "compare --steps 8 --rate 1/4 --epsilon 8 --delta 1e-5 --strategies continual-counting:4"


def test_the_command_prints_a_table(capsys):
    assert main([*COMMAND.split(), "--schemes", "balls-in-bins,fixed-order"]) == 0
    shown = capsys.readouterr().out
    assert "continual-counting:4  balls-in-bins" in shown
    assert "less error, but" in shown
    assert "DP-SGD" in shown
    assert "adjacency" in shown


def test_the_command_prints_json_and_draws(capsys, tmp_path):
    file = tmp_path / "errors.svg"
    words = [*COMMAND.split(), "--schemes", "balls-in-bins", "--json", "--plot", str(file)]
    assert main(words) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["rows"][0]["certified"] is True
    assert content["steps"] == 8
    assert content["seconds"] >= 0
    assert file.stat().st_size > 1000


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"--rate": "2"}, "rate"),
        ({"--rate": "x"}, "--rate"),
        ({"--steps": "0"}, "steps"),
        ({"--epsilon": "1,,2"}, "--epsilon"),
        ({"--delta": "2"}, "delta"),
        ({"--method": "tigth"}, "tight"),
        ({"--schemes": "poison"}, "poisson"),
        ({"--strategies": "identty"}, "identity"),
        ({"--strategies": "nothing.npy"}, "nothing.npy"),
        ({"--strategies": "nothing"}, "blt:N, a .npy, .npz, .csv file."),
        ({"--strategies": "."}, "cannot read '.'"),
        ({"--strategies": "banded:" + "9" * 5000}, "needs a whole number"),
        ({"--schemes": "min-separation"}, "needs a separation, such as min-separation:4"),
        ({"--schemes": "min-separation:" + "9" * 5000}, "needs a separation"),
        ({"--schemes": "min-separation:0"}, "separation must lie between 1 and 8"),
        ({"--schemes": "min-separation:5"}, "use min-separation:4 or less"),
        ({"--seconds": "0"}, "seconds"),
        ({"--plot": "picture.gif"}, ".png"),
    ],
)
def test_bad_words_are_one_line(changed, what, capsys):
    words = {"--steps": "8", "--rate": "1/4", "--epsilon": "8", "--delta": "1e-5"} | changed
    assert main(["compare", *(part for pair in words.items() for part in pair)]) == 2
    told = capsys.readouterr()
    assert what in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_a_matrix_that_is_not_causal(capsys, tmp_path):
    file = tmp_path / "c.npy"
    np.save(file, np.eye(2)[[1, 0]])
    command = COMMAND.replace("--steps 8", "--steps 2").split()[:-1]
    words = [*command, f"identity,{file}", "--schemes", "poisson", "--json"]
    assert main(words) == 2
    assert "pass --non-adaptive" in capsys.readouterr().err
    assert main([*words, "--non-adaptive"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    reservations = {row["strategy"]: row["reservations"] for row in found}
    assert reservations["identity"] == []
    assert reservations[str(file)] == ["for inputs fixed in advance"]


def test_non_adaptive_needs_a_file(capsys):
    assert main([*COMMAND.split(), "--non-adaptive"]) == 2
    assert "--non-adaptive applies to matrices read from files" in capsys.readouterr().err


def test_a_minimal_separation_by_name(capsys):
    command = COMMAND.replace("continual-counting:4", "binary-tree")
    words = [*command.split(), "--schemes", "min-separation:3", "--estimates", "--json"]
    assert main(words) == 0
    certified, estimated = json.loads(capsys.readouterr().out)["rows"]
    assert (certified["certified"], estimated["certified"]) == (True, False)
    assert certified["sampling"] == "MinSeparation(probability=0.5, separation=3)"
    assert estimated["sigma"] < certified["sigma"]


def test_rate_and_steps_are_needed(capsys):
    for missing in ("--steps", "--rate"):
        words = COMMAND.split()
        place = words.index(missing)
        assert main(words[:place] + words[place + 2 :]) == 2
        assert missing in capsys.readouterr().err


def test_strategies_that_print_alike_have_a_row_each():
    """The two arrays differ, and so do coefficients that are not printed."""
    square = [strategies.dense(np.tril(np.ones((4, 4)))), strategies.dense(np.eye(4))]
    found = ask(square, sampling.Poisson(0.25), epsilon=1.0)
    assert [row.strategy for row in found.rows] == ["dense(4 x 4)", "dense(4 x 4) #2"]
    assert found.rows[0].rmse > found.rows[1].rmse
    tails = [strategies.toeplitz([1, 0.5, 0.3, 0.2, tail], 8) for tail in (0.1, 0.01, 0.001)]
    found = ask(tails, sampling.BallsInBins(4), epsilon=1.0)
    assert len({row.strategy for row in found.rows}) == 3


def test_where_no_noise_is_needed_nothing_is_compared():
    with pytest.raises(ParameterError, match="no noise is needed"):
        ask(strategies.identity(2), sampling.Poisson(1e-6))


def test_certain_participation_has_an_exact_baseline():
    found = ask(strategies.identity(2), sampling.Poisson(1.0), epsilon=1.0)
    assert found.baseline[0].text == "DP-SGD"


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "saving"), [(2.0, 0.14), (4.0, 0.33), (8.0, 0.479)])
def test_bands_under_balls_in_bins_beat_dp_sgd(epsilon, saving):
    encoder = first_bands(2000, 100)
    found = ask({"100 bands": encoder}, family("balls-in-bins", 1 / 100, 2000), epsilon)
    assert found.rows[0].wins
    assert found.rows[0].saving >= saving


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "saving"), [(1.0, 0.059), (2.0, 0.156), (4.0, 0.294), (8.0, 0.408)]
)
def test_a_tuned_blt_beats_dp_sgd_under_plain_poisson_sampling(epsilon, saving):
    found = ask([TunedBlt(2000)], sampling.Poisson(1 / 100), epsilon)
    assert found.rows[0].wins
    assert found.rows[0].saving >= saving
