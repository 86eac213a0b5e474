"""Claim: the command and the Python of a report give its number again, to the last bit."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest
from cases.reports import Page, fenced, small

from mmcc import strategies
from mmcc._cli.app import main
from mmcc.sampling import BallsInBins, CyclicPoisson, Poisson, RandomAllocation, Shuffle
from mmcc.strategies._dense import dense

PLAIN = {"method": "unamplified"}  # every bit of C counts for it, and it is quick
LOWER = np.tril(np.ones((3, 3)) / 3)
CASES = {
    "tree": (strategies.binary_tree(3), Poisson(1 / 7), {}),
    "cut tree": (strategies.tree_restart(6, 2), Poisson(0.1), {}),
    "identity": (strategies.identity(9), CyclicPoisson(1 / 3, 3), {}),
    "counting": (strategies.continual_counting(8), BallsInBins(4), {}),
    "toeplitz": (strategies.toeplitz([1.0, 1 / 3, 0.1], 9), Poisson(0.2), PLAIN),
    "blt": (strategies.blt(8, 2), Poisson(0.1), PLAIN),
    "inverse": (strategies.banded_inverse(8, 3), Poisson(0.1), PLAIN),
    "banded": (strategies.banded(8, 2), CyclicPoisson(0.5, 2), PLAIN),
    "optimal": (strategies.optimal(6), Poisson(0.1), PLAIN),
    "mmcc": (strategies.binary_tree(8), Poisson(0.1), {"method": "mmcc", "order": "reversed"}),
    "shuffle": (strategies.identity(8), Shuffle(4), PLAIN),
    "allocation": (strategies.identity(8), RandomAllocation(4, 2), {}),
}


def again(command: str, capsys) -> float:
    program, *words = shlex.split(command)
    assert program == "mmcc"
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["epsilon"]


@pytest.mark.parametrize("name", CASES)
def test_the_command_and_the_python_give_the_number_again(name, capsys):
    strategy, scheme, options = CASES[name]
    found = small(strategy, scheme, sigma=2.0 + 1 / 3, delta=1e-5 / 3, **options)
    markdown = found.markdown()
    assert again(fenced(markdown, "sh"), capsys) == found.claims[0].epsilon
    names: dict[str, object] = {}
    exec(fenced(markdown, "python"), names)
    assert names["found"].epsilon == found.claims[0].epsilon


@pytest.mark.parametrize("name", ["plain.npy", 'it\'s; rm -rf $HOME `x` "q" <b> #.npy'])
def test_a_strategy_from_a_file_is_named_by_it(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save(name, LOWER)
    words = ["--sampling", "poisson", "--prob", "1/6", "--sigma", "3", "--delta", "1e-5"]
    words += ["--seconds", "0"]
    assert main(["report", "--strategy", name, *words, "--out", "r.html"]) == 0
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    command = page.by_id["command"]
    assert shlex.split(command)[3] == name
    first = again(f"mmcc epsilon {shlex.join(['--strategy', name, *words[:-2]])}", capsys)
    assert again(command, capsys) == first
    assert "SHA-256" in page.text


def test_a_folder_with_the_name_of_a_strategy_is_not_its_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "identity").mkdir()
    words = ["--strategy", "identity", "--steps", "6", "--sampling", "poisson", "--prob", "1/6"]
    words += ["--sigma", "3", "--delta", "1e-5"]
    assert main(["report", *words, "--seconds", "0", "--out", "r.html"]) == 0
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    first = again(f"mmcc epsilon {shlex.join(words)}", capsys)
    assert again(page.by_id["command"], capsys) == first
    assert "SHA-256" not in page.text


def test_a_name_that_cannot_be_shown_is_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a\u202eb\n.npy", LOWER)
    found = small(strategies.load("a\u202eb\n.npy"), file="a\u202eb\n.npy")
    assert "--strategy strategy.npz" in found.reproduction.command
    assert "mmcc.strategies.save" in found.reproduction.notes[0]


def test_a_matrix_without_a_file_is_to_be_saved(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for matrix in (dense(LOWER), dense(LOWER.T, adaptive=False)):
        found = small(matrix)
        strategies.save(matrix, "strategy.npz")
        assert again(found.reproduction.command, capsys) == found.claims[0].epsilon
        assert ("--non-adaptive" in found.reproduction.command) != matrix.adaptive
        exec(found.reproduction.snippet, {})
