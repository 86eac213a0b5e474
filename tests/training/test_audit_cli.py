"""Claim: `mmcc audit` says what the library says, and its exit code is the verdict."""

from __future__ import annotations

import importlib
import json

import pytest

from mmcc import sampling, strategies
from mmcc._cli.app import main
from mmcc._cli.commands import audit as commands
from mmcc.audit import audit
from mmcc.training._noise import NoiseStream
from mmcc.training._randomness import GENERATORS

MECHANISM = [
    "audit",
    "--strategy",
    "continual-counting",
    "--steps",
    "4",
    "--sampling",
    "poisson",
    "--prob",
    "1/2",
]
NUMBERS = ["--sigma", "2", "--delta", "1e-2", "--runs", "2000", "--seed", "3"]


@pytest.fixture
def run(capsys):
    def asked(*words):
        line = [*MECHANISM, *NUMBERS]
        if words and words[0] in line:  # another value for it
            place = line.index(words[0])
            del line[place : place + 2]
        code = main([*line, *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return asked


def test_json_is_what_the_library_says(run):
    code, out, err = run("--json")
    said = json.loads(out)
    found = audit(
        strategies.continual_counting(4),
        sampling.Poisson(0.5),
        sigma=2.0,
        delta=1e-2,
        runs=2000,
        seed=3,
    )
    assert (code, err) == (0, "")
    assert said.pop("seconds") >= 0
    assert said == json.loads(json.dumps(found.to_dict()))
    assert {"epsilon", "delta", "sigma", "method", "strategy", "sampling", "adjacency"} <= set(said)
    assert said["certified"] is False


def test_a_passing_audit_says_that_it_is_no_proof(run):
    code, out, err = run()
    text = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "passed" in text
    assert "no proof" in text
    assert "continual_counting(4)" in text
    assert "FAILED" not in text


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_violation_is_exit_code_one(run, extra):
    code, out, err = run("--epsilon", "0.01", *extra)
    assert (code, err) == (1, "")
    assert "more than the claimed 0.01" in " ".join(out.split())


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_what_does_not_conform_is_named(run, monkeypatch, name):
    """The stream that was asked for is the one that is played."""
    stream = NoiseStream
    if name == "torch":
        pytest.importorskip("torch")
        stream = importlib.import_module("mmcc.training._torch_noise").TorchNoiseStream
    real = stream.__init__
    monkeypatch.setattr(
        stream, "__init__", lambda self, c, sigma, *a, **k: real(self, c, sigma / 2, *a, **k)
    )
    code, out, _ = run("--stream", name)
    text = " ".join(out.split())
    assert code == 1
    assert "VIOLATION" in text
    assert "variance of the noise" in text
    assert "FAILED" in text


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_the_printout_says_which_stream_was_played(run, name):
    if name == "torch":
        pytest.importorskip("torch")
    _, out, _ = run("--stream", name)
    kind = {"numpy": "NoiseStream, float64", "torch": "TorchNoiseStream, float32"}[name]
    assert f"noise stream {name} ({kind}" in " ".join(out.split())


def test_the_generator_can_be_chosen(run):
    pytest.importorskip("cryptography")
    code, out, _ = run("--stream", "numpy", "--generator", "chacha", "--json")
    said = json.loads(out)
    assert code == 0
    assert (said["stream"], said["generator"]) == ("numpy", "chacha")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--runs", "5"], "runs must lie between"),
        (["--confidence", "2"], "confidence must lie in"),
        (["--decoder", "online"], "binary trees"),
        (["--epsilon", "x"], "--epsilon needs a number"),
        (["--steps", "5000"], "at most 1024 steps"),
        (["--bins", "2"], "--bins does not apply"),
        (["--stream", "jax"], "unknown stream 'jax'"),
        (["--generator", "mt"], "unknown generator 'mt'"),
    ],
)
def test_bad_input_is_exit_code_two_and_one_line(run, words, message):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_generators_are_those_of_the_streams():
    assert commands.GENERATORS == GENERATORS
