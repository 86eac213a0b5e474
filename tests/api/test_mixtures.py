"""Claim: mixtures say what they assume, the commands agree, and bad input fails in one line."""

from __future__ import annotations

import json
import math

import pytest

import mmcc
from mmcc import mixtures
from mmcc._cli.app import main
from mmcc.errors import MethodError, ParameterError, PrecisionError, SamplingError

NUMBERS = ["--sigma", "2", "--delta", "1e-5"]
GROUP = ["group", "--group", "2", "--steps", "10"]
POISSON = [*GROUP, "--prob", "1/10", *NUMBERS]
FIXED = [*GROUP, "--examples", "50", "--batch", "5", *NUMBERS]
LAST = ["last-iterate", "--steps", "10", "--prob", "1/10", *NUMBERS]
NEEDED = {"epsilon", "delta", "sigma", "method", "strategy", "sampling", "adjacency", "seconds"}


def said() -> dict[str, mmcc.Guarantee]:
    numbers = {"sigma": 2.0, "delta": 1e-5}
    return {
        "poisson": mixtures.group_privacy(2, 10, 0.1, **numbers),
        "fixed": mixtures.fixed_batches(50, 5, 10, group=2, **numbers),
        "zero-one": mixtures.fixed_batches(50, 5, 10, group=2, setting="0-1", **numbers),
        "last": mixtures.last_iterate(10, 0.1, **numbers),
    }


COMMANDS = {
    "poisson": POISSON,
    "fixed": FIXED,
    "zero-one": [*FIXED, "--zero-one"],
    "last": LAST,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_json_is_what_the_library_says(name, capsys):
    assert main([*COMMANDS[name], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) >= NEEDED
    assert found["certified"] is True
    assert {key: found[key] for key in found if key != "seconds"} == said()[name].to_dict()


@pytest.mark.parametrize("name", COMMANDS)
def test_table_has_both_sides_and_what_is_assumed(name, capsys):
    assert main(COMMANDS[name]) == 0
    printed = capsys.readouterr().out
    found = said()[name]
    assert float(printed.split()[1]) >= found.epsilon
    text = " ".join(printed.split())
    for words in ("epsilon, remove", "epsilon, add", "certified", found.setting, found.sampling):
        assert words in text
    assert ("0-1 setting" in text) == (name == "zero-one")
    assert ("linear losses" in text) == (name == "last")
    assert ("composition" if name == "last" else "one example's epsilon") in text
    assert ("not available" in text) == (name == "zero-one")


@pytest.mark.parametrize("command", ["group", "last-iterate"])
def test_help(command, capsys):
    assert main([command, "--help"]) == 0
    printed = capsys.readouterr().out
    for option in ("--steps", "--prob", "--sigma", "--delta", "--json"):
        assert option in printed
    for option in ("--group", "--examples", "--batch", "--zero-one"):
        assert (option in printed) == (command == "group")


def test_what_is_assumed():
    found = said()
    assert found["poisson"].adaptive
    assert found["poisson"].setting == ""
    assert found["fixed"].adaptive
    assert "50 examples with, 48 without" in found["fixed"].adjacency
    assert not found["zero-one"].adaptive
    assert not found["last"].adaptive


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["group", "--steps", "10", "--prob", "0.1", *NUMBERS], "--group is needed"),
        (["group", "--group", "2", "--prob", "0.1", *NUMBERS], "--steps is needed"),
        ([*GROUP, *NUMBERS], "--examples and --batch"),
        ([*POISSON, "--batch", "5"], "leave one or the other out"),
        ([*POISSON, "--zero-one"], "fixed batches only"),
        ([*GROUP, "--batch", "5", *NUMBERS], "--examples is needed"),
        ([*GROUP, "--examples", "5", *NUMBERS], "--batch is needed"),
        ([*GROUP, "--examples", "5", "--batch", "4", *NUMBERS], "smaller batch"),
        ([*GROUP, "--prob", "1.5", *NUMBERS], "probability"),
        ([*GROUP, "--prob", "nan", *NUMBERS], "probability"),
        (["last-iterate", "--steps", "10", *NUMBERS], "--prob is needed"),
        (["last-iterate", "--steps", "0", "--prob", "0.1", *NUMBERS], "steps"),
        (["last-iterate", "--steps", "2.5", "--prob", "0.1", *NUMBERS], "whole number"),
        (["lastiterate"], "last-iterate"),
    ],
)
def test_bad_words_fail_in_one_line(words, remedy, capsys):
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert remedy in printed.err


BAD = [math.nan, math.inf, -1, 0, "1", None, True, 1j]


@pytest.mark.parametrize("bad", BAD)
def test_bad_numbers(bad):
    for name in ("group", "steps", "probability", "sigma", "delta"):
        if name == "probability" and bad is True:
            continue
        good = {"group": 2, "steps": 3, "probability": 0.5, "sigma": 1.0, "delta": 1e-5}
        with pytest.raises(mmcc.MmccError):
            mixtures.group_privacy(**good | {name: bad})
    for name in ("examples", "batch", "steps", "group", "sigma", "delta", "setting"):
        good = {"examples": 9, "batch": 3, "steps": 3, "group": 2, "sigma": 1.0, "delta": 1e-5}
        with pytest.raises(mmcc.MmccError):
            mixtures.fixed_batches(**good | {name: bad})


def test_what_cannot_be_is_refused():
    numbers = {"sigma": 1.0, "delta": 1e-5}
    with pytest.raises(SamplingError, match="smaller batch"):
        mixtures.fixed_batches(10, 9, 5, group=2, **numbers)
    with pytest.raises(ParameterError, match="batch"):
        mixtures.fixed_batches(10, 11, 5, **numbers)
    with pytest.raises(ParameterError, match="group"):
        mixtures.fixed_batches(10, 1, 5, group=11, **numbers)
    with pytest.raises(MethodError, match="0-1"):
        mixtures.fixed_batches(10, 2, 5, setting="zero", **numbers)
    with pytest.raises(ParameterError, match="not private"):
        mixtures.group_privacy(10**6, 1, 1.0, **numbers)
    with pytest.raises(PrecisionError, match="fewer steps"):
        mixtures.group_privacy(10**12, 1, 0.5, **numbers)
    with pytest.raises(PrecisionError, match="fewer steps"):
        mixtures.group_privacy(2, 10**12, 1e-9, **numbers)
    for delta in (1e-310, 5e-324, 1e-290):
        with pytest.raises(PrecisionError, match="larger"):
            mixtures.group_privacy(3, 2000, 0.01, sigma=1.0, delta=delta)


def test_whole_groups_and_sure_participation():
    """k = n, p = 1, batch = n - k: edges that have an answer."""
    numbers = {"sigma": 50.0, "delta": 1e-5}
    assert mixtures.fixed_batches(4, 2, 3, group=2, **numbers).epsilon > 0
    assert mixtures.fixed_batches(4, 4, 3, group=4, setting="0-1", **numbers).epsilon > 0
    assert mixtures.group_privacy(10**12, 3, 1e-12, **numbers).epsilon > 0
    assert mixtures.group_privacy(1, 1, 1e-300, **numbers).epsilon <= 1e-9
