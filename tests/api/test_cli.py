"""Claim: the command line says what the library says, in one way, and fails in one line."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
from cases.samples import sampled

import mmcc
from mmcc import plots, sampling, strategies
from mmcc._cli import output
from mmcc._cli.app import COMMANDS, main
from mmcc._cli.output import rounded_up
from mmcc._cli.parsing import UsageError, number, whole_number

MECHANISM = {"--strategy": "binary-tree", "--steps": "8", "--sampling": "poisson", "--prob": "1/8"}
NUMBERS = {
    "epsilon": {"--sigma": "10", "--delta": "1e-6"},
    "delta": {"--sigma": "10", "--epsilon": "1"},
    "sigma": {"--epsilon": "1", "--delta": "1e-6"},
    "bracket": {"--sigma": "10", "--delta": "1e-6"},
}
CERTIFIED = tuple(command for command in COMMANDS if command in NUMBERS)
ANSWERS = tuple(command for command in CERTIFIED if command != "bracket")
HANGS = 1800
"""Seconds after which a process is given up; none takes a minute, be the machine ever so busy."""


def words(command: str = "epsilon", *extra: str, **changed: str | None) -> list[str]:
    """A whole command; options change by name, None leaves one out."""
    options = MECHANISM | NUMBERS[command]
    options |= {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    return [command, *given, *extra]


@pytest.fixture
def ask(capsys):
    """Run a command that must succeed; its standard output."""

    def run(arguments: list[str]) -> str:
        code = main(arguments)
        printed = capsys.readouterr()
        assert (code, printed.err) == (0, "")
        return printed.out

    return run


@pytest.fixture
def refused(capsys):
    """Run a command that must fail: exit code 2, nothing on stdout, one line on stderr."""

    def run(arguments: list[str]) -> str:
        code = main(arguments)
        printed = capsys.readouterr()
        assert code == 2
        assert printed.out == ""
        assert printed.err.startswith("mmcc: ")
        assert printed.err.endswith("\n")
        assert printed.err.count("\n") == 1
        assert "Traceback" not in printed.err
        return printed.err

    return run


def run_process(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mmcc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS, **options)


# -------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("command", "method"), sampled(CERTIFIED, ["tight", "mmcc", "unamplified"], strength=1)
)
def test_json_is_what_the_library_says(ask, command, method):
    found = json.loads(ask(words(command, "--json", method=method)))
    assert {
        *("epsilon", "delta", "sigma", "method", "strategy", "sampling", "adjacency", "seconds"),
        *("bound", "adaptive", "certified", "details"),
    } <= set(found)
    numbers = {name[2:]: float(value) for name, value in NUMBERS[command].items()}
    said = getattr(mmcc, command)(
        strategies.binary_tree(8), sampling.Poisson(1 / 8), method=method, **numbers
    ).to_dict()
    assert {name: found[name] for name in said} == said
    assert found["certified"] is True
    assert found["adaptive"] is True
    assert found["strategy"] == "binary_tree(8)"
    assert found["sampling"] == "Poisson(probability=0.125)"
    assert found["seconds"] >= 0


@pytest.mark.parametrize("command", ANSWERS)
def test_table_says_the_number_and_what_it_assumes(ask, command):
    small = {"steps": "2", "prob": "1/2"}
    printed = ask(words(command, **small))
    found = json.loads(ask(words(command, "--json", **small)))
    value = float(found[command])
    first, said = printed.splitlines()[0].split()[:2]
    assert first == command
    assert value <= float(said) <= value * (1 + 1e-3)
    for word in ("zero-out", "adaptive", "certified", "binary_tree(2)", "Poisson(", found["bound"]):
        assert word in printed
    assert "truth" in printed


def test_bracket_table_has_both_ends_and_what_gave_them(ask):
    printed = ask(words("bracket"))
    found = mmcc.bracket(strategies.binary_tree(8), sampling.Poisson(1 / 8), sigma=10.0, delta=1e-6)
    lower, upper = (line.split() for line in printed.splitlines()[1:3])
    assert (lower[0], upper[0], upper[2]) == ("lower", "upper", found.method)
    assert float(lower[1]) <= found.lower <= found.upper <= float(upper[1])
    assert float(upper[1]) <= 1.01 * float(lower[1])
    for word in ("zero-out", "adaptive", "binary_tree(8)", "Poisson(", "no method"):
        assert word in printed


def test_bracket_plot(ask, tmp_path, monkeypatch):
    file = tmp_path / "bracket.svg"
    monkeypatch.setattr(plots, "POINTS", 3)
    ask(words("bracket", plot=str(file), strategy="identity"))
    drawn = file.read_text(encoding="utf-8")
    assert drawn.lstrip().startswith("<?xml")


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("b.txt", "needs a .png"),
        ("none/b.png", "there is no folder"),
        ("folder.png", "is a folder"),
        ("x" * 300 + ".png", "cannot be written"),
    ],
)
def test_plots_that_cannot_be_drawn_are_refused_first(refused, tmp_path, file, reason):
    (tmp_path / "folder.png").mkdir()
    assert reason in refused(words("bracket", plot=str(tmp_path / file)))


def test_sigma_says_what_the_proof_costs(ask):
    found = json.loads(ask(words("sigma", "--json", steps="2")))["details"]
    tree, scheme = strategies.binary_tree(2), sampling.Poisson(1 / 8)
    below = mmcc.bracket(tree, scheme, sigma=found["sigma_lower"], delta=1e-6)
    assert below.lower >= 1.0
    assert 0 <= found["slack"] < 0.02


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"decay": "0.9"}, "--scale is needed"),
        ({"scale": "0.1"}, "--decay is needed"),
        ({"buffers": "99"}, "buffers must lie between 1 and 12"),
        ({"objective": "least"}, "unknown objective"),
        ({"decay": "0.9", "scale": "0.1", "objective": "max"}, "--objective does not apply"),
        ({"buffers": "x"}, "--buffers needs a whole number such as 8"),
        ({"decay": "1.5", "scale": "0.1"}, "decay must lie in (0, 1)"),
        ({"coefficients": "1,1"}, "--coefficients does not apply"),
    ],
)
def test_blts_that_cannot_be(refused, changed, reason):
    assert reason in refused(words(strategy="blt", **changed))


def test_a_bound_that_certifies_nothing_says_so(refused):
    slow = {"strategy": "blt", "steps": "50", "decay": "0.9999999999999999", "scale": "0.5"}
    said = refused(words("bracket", "--json", method="reveal", sigma="3", **slow))
    assert "certifies no finite epsilon" in said


def test_blt_on_the_command_line(ask):
    given = json.loads(ask(words("epsilon", "--json", strategy="blt", decay="0.5", scale="0.3")))
    assert given["strategy"] == "blt(8, decay=[0.5], scale=[0.3])"
    best = json.loads(ask(words("epsilon", "--json", strategy="blt", buffers="1")))
    assert best["strategy"].startswith("blt(8, decay=[")


def test_the_insides_of_a_bound_are_in_json_alone(ask):
    printed = ask(words(method="mmcc"))
    details = json.loads(ask(words("epsilon", "--json", method="mmcc")))["details"]
    assert "max_p_tilde_over_p" in details
    assert any("neither bound" in name for name in details)
    for inside in ("p~", "neither bound", "bad events", "setting"):
        assert inside not in printed


@pytest.mark.parametrize(
    ("epochs", "participations"), [("1/8", 1), ("3/8", 3), ("1/2", 4), ("1/100", 1), ("1", 8)]
)
def test_the_fixed_order_has_as_many_epochs(ask, epochs, participations):
    """An example that takes part often is compared with one that takes part as often."""
    found = json.loads(
        ask(words("epsilon", "--compare", "--json", strategy="identity", prob=epochs))
    )
    ordered = mmcc.epsilon(
        strategies.identity(participations),
        sampling.CyclicPoisson(1, 1),
        sigma=10,
        delta=1e-6,
        method="unamplified",
    )
    assert found["comparison"]["fixed_order"] == pytest.approx(ordered.epsilon, rel=1e-9)


# ------------------------------------------------------------------------- width, and noise twice

SMALL = {"strategy": "continual-counting", "steps": "64", "prob": "1/64"}
OPEN_QUESTIONS = {
    "epsilon": {"sigma": "1.6"},
    "delta": {"sigma": "1.6", "epsilon": "6"},
    "sigma": {"epsilon": "16", "steps": "16", "prob": "1/16"},
    "bracket": {"sigma": "1.6"},
}


@pytest.mark.parametrize("command", CERTIFIED)
def test_an_open_bracket_says_so_first_and_what_closes_it(ask, command):
    printed = ask(words(command, **(SMALL | OPEN_QUESTIONS[command]))).splitlines()
    (place,) = (k for k, line in enumerate(printed) if line.startswith("truth"))
    assert place <= {"sigma": 2, "bracket": 4}.get(command, 1)
    told = " ".join(" ".join(printed[place:]).split())
    assert "between" in told
    assert "a factor of" in told
    assert "to close it:" in told
    assert "takes more noise" in told if command == "sigma" else "more noise" in told
    lower, upper = (float(w) for w in told.split("between ")[1].split(",")[0].split(" and "))
    found = json.loads(ask(words(command, "--json", **(SMALL | OPEN_QUESTIONS[command]))))
    name = "epsilon" if command == "bracket" else command
    known = found["lower"] if command == "bracket" else found["details"][f"{name}_lower"]
    assert lower <= known < found[name] <= upper
    assert found["details"]["closed_by"]


@pytest.mark.parametrize("command", CERTIFIED)
def test_a_closed_bracket_says_where_the_truth_lies(ask, command):
    small = {"steps": "2", "prob": "1/2"}
    printed = ask(words(command, **small))
    assert "between" in printed
    assert "to close it" not in printed
    details = json.loads(ask(words(command, "--json", **small)))["details"]
    assert "closed_by" not in details


@pytest.mark.parametrize("command", CERTIFIED)
def test_noise_is_printed_in_clip_norms_and_over_the_sensitivity(ask, command):
    printed = {line.split("  ")[0]: line for line in ask(words(command, steps="2")).splitlines()}
    found = json.loads(ask(words(command, "--json", steps="2")))
    column = strategies.binary_tree(2).sensitivity(2)
    assert found["column_norm"] == column
    assert found["noise_multiplier"] == found["sigma"] / column
    assert "clip norms" in printed["sigma"]
    told = printed["noise multiplier"].split(":")[0].split()[-1]
    assert found["noise_multiplier"] <= float(told) <= found["noise_multiplier"] * 1.001


@pytest.mark.parametrize("command", CERTIFIED)
def test_numbers_that_were_computed_have_four_digits(ask, command):
    printed = ask(words(command, steps="2"))
    for number_ in re.findall(r"(?<![\w(=.])\d+\.\d+(?:e-?\d+)?", printed):
        if "seconds" in next(line for line in printed.splitlines() if number_ in line):
            continue
        digits = number_.split("e")[0].replace(".", "").lstrip("0")
        assert len(digits) <= 4, number_


def test_comparison(ask):
    found = json.loads(ask(words("epsilon", "--compare", "--json")))
    compared = found["comparison"]
    assert list(compared) == ["unamplified", "fixed_order", "mmcc", "tight"]
    assert compared["tight"] == found["epsilon"]
    assert compared["tight"] <= compared["mmcc"]
    assert compared["tight"] <= compared["unamplified"]
    tree, scheme, one_pass = (
        strategies.binary_tree(8),
        sampling.Poisson(1 / 8),
        sampling.CyclicPoisson(1, 8),
    )
    for name, scheme_, method in [
        ("unamplified", scheme, "unamplified"),
        ("fixed_order", one_pass, "unamplified"),
        ("mmcc", scheme, "mmcc"),
    ]:
        said = mmcc.epsilon(tree, scheme_, sigma=10, delta=1e-6, method=method)
        assert compared[name] == said.epsilon
    printed = ask(words("epsilon", "--compare"))
    for value in compared.values():
        assert rounded_up(value) in printed
    assert "the paper's" in printed


@pytest.mark.parametrize("order", ["release", "reversed", "heavy"])
def test_order(ask, order):
    found = json.loads(ask(words("epsilon", "--json", method="mmcc", order=order)))
    said = mmcc.epsilon(
        strategies.binary_tree(8),
        sampling.Poisson(1 / 8),
        sigma=10,
        delta=1e-6,
        method="mmcc",
        order=order,
    )
    assert found["epsilon"] == said.epsilon


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"strategy": "identity"}, "identity(8)"),
        ({"strategy": "continual-counting"}, "continual_counting(8)"),
        ({"strategy": "tree-restart", "height": "2"}, "tree_restart(8, 2)"),
        ({"strategy": "toeplitz", "coefficients": "1,0.5,1/4"}, "toeplitz([1, 0.5, 0.25], 8)"),
        ({"steps": "1e1"}, "binary_tree(10)"),
        ({"steps": "16/2"}, "binary_tree(8)"),
    ],
)
def test_strategies(ask, changed, said):
    found = json.loads(ask(words("epsilon", "--json", method="unamplified", **changed)))
    assert found["strategy"] == said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prob": "0.25"}, sampling.Poisson(0.25)),
        ({"prob": "1"}, sampling.Poisson(1.0)),
        ({"prob": "1e-3"}, sampling.Poisson(1e-3)),
        ({"prob": "2/2048"}, sampling.Poisson(2 / 2048)),
        (
            {"sampling": "cyclic-poisson", "prob": "1/2", "separation": "4"},
            sampling.CyclicPoisson(0.5, 4),
        ),
    ],
)
def test_sampling(ask, changed, said):
    found = json.loads(ask(words("epsilon", "--json", method="unamplified", **changed)))
    assert found["sampling"] == repr(said)


@pytest.mark.parametrize("kind", ["npy", "npz", "csv"])
def test_strategy_from_a_file(ask, tmp_path, kind):
    matrix = strategies.binary_tree(2).to_dense()
    path = tmp_path / f"c.{kind}"
    if kind == "csv":
        np.savetxt(path, matrix, delimiter=",")
    else:
        (np.save if kind == "npy" else np.savez)(path, matrix)
    found = json.loads(ask(words("epsilon", "--json", strategy=str(path), steps=None)))
    assert found["strategy"] == "dense(3 x 2)"
    tree = json.loads(ask(words("epsilon", "--json", steps="2")))
    assert tree["epsilon"] <= found["epsilon"] <= tree["epsilon"] * 1.002  # a tree is known better


def test_non_adaptive(ask, refused, tmp_path):
    np.save(tmp_path / "c.npy", [[1.0, 1.0], [1.0, 0.0]])
    changed = {"strategy": str(tmp_path / "c.npy"), "steps": None}
    assert "--non-adaptive" in refused(words("epsilon", **changed))
    found = json.loads(ask(words("epsilon", "--non-adaptive", "--json", **changed)))
    assert found["adaptive"] is False
    assert "non-adaptive only" in ask(words("epsilon", "--non-adaptive", **changed))


@pytest.mark.parametrize(
    ("columns", "command"), sampled(["1", "30", "50"], ["epsilon", "bracket"], strength=1)
)
def test_a_narrow_terminal_breaks_no_number(ask, monkeypatch, command, columns):
    def printed(columns: str) -> list[str]:
        monkeypatch.setenv("COLUMNS", columns)
        lines = ask(words(command, sigma="10.0123456789", method="unamplified")).splitlines()
        return [line.rstrip() for line in lines if not line.startswith("seconds")]

    wide = printed("80")
    assert any(" 10.0123456789 " in line for line in wide)
    assert printed(columns) == wide


# ------------------------------------------------------------------------------- help and version


def test_version(ask):
    assert ask(["--version"]) == f"mmcc {mmcc.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], *([c, "--help"] for c in COMMANDS)])
def test_help(ask, arguments):
    printed = ask(arguments)
    assert "Usage" in printed
    if arguments[0] in ("epsilon", "delta", "sigma", "bracket", "estimate"):
        for option in ("--strategy", "--sampling", "--prob", "--separation", "--bins", "--json"):
            assert option in printed


# ---------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), ("0.5", 0.5), ("1e-6", 1e-6), ("1/2048", 1 / 2048), ("3 / 4", 0.75), ("-1", -1.0)],
)
def test_number(text, value):
    assert number("x", text) == value


@pytest.mark.parametrize("text", ["", "a", "1/0", "1/", "/2", "1/2/3", "1,5", "0x10", "1e", "--"])
def test_not_a_number(text):
    with pytest.raises(UsageError, match="--x"):
        number("x", text)


@pytest.mark.parametrize(("text", "value"), [("8", 8), ("1e6", 10**6), ("16/2", 8), ("-3", -3)])
def test_whole_number(text, value):
    assert whole_number("x", text) == value


@pytest.mark.parametrize("text", ["", "1.5", "1/3", "nan", "inf", "1e999", "9" * 5000, "b"])
def test_not_a_whole_number(text):
    with pytest.raises(UsageError, match="--x needs a whole number such as 8") as caught:
        whole_number("x", text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [1.0, 0.1, 2 / 3, 1e-7 / 3, 123456.75, 1234567.5, 9.9999999, 0.0])
def test_print_rounds_up(value):
    assert value <= float(rounded_up(value)) <= value * (1 + 1.0001e-3)
    assert len(rounded_up(value).replace(".", "").lstrip("0").split("e")[0]) <= 4
    assert rounded_up(math.inf) == "inf"


# ---------------------------------------------------------------------------------- bad options

BAD = ("nan", "inf", "-inf", "x", "", "1/0", "1e999", "-1")


@pytest.mark.parametrize("value", [*BAD, "0", "1e13"])
@pytest.mark.parametrize("command", ["epsilon", "delta"])
def test_sigma(refused, command, value):
    assert "sigma" in refused(words(command, sigma=value))


@pytest.mark.parametrize("value", [*BAD, "1e7"])
@pytest.mark.parametrize("command", ["delta", "sigma"])
def test_epsilon(refused, command, value):
    assert "epsilon" in refused(words(command, epsilon=value))


@pytest.mark.parametrize("value", [*BAD, "0", "1", "2"])
@pytest.mark.parametrize("command", ["epsilon", "sigma"])
def test_delta(refused, command, value):
    assert "delta" in refused(words(command, delta=value))


@pytest.mark.parametrize("value", [*BAD, "0", "1.5"])
def test_prob(refused, value):
    assert "prob" in refused(words(prob=value))


@pytest.mark.parametrize("value", [*BAD, "0", "1.5", "1e15", "9" * 5000])
@pytest.mark.parametrize("strategy", ["identity", "binary-tree", "continual-counting"])
def test_steps(refused, strategy, value):
    assert "steps" in refused(words(strategy=strategy, steps=value))


@pytest.mark.parametrize("value", [*BAD, "0", "1.5", "1e15"])
def test_separation(refused, value):
    assert "separation" in refused(words(sampling="cyclic-poisson", separation=value))


@pytest.mark.parametrize("value", [*BAD, "0", "1.5", "99"])
def test_height(refused, value):
    assert "height" in refused(words(strategy="tree-restart", height=value))


@pytest.mark.parametrize("value", [*BAD, "0,1", "1,", ",", "1,-1", "1,nan", "1;2", "1e200", "1 2"])
def test_coefficients(refused, value):
    assert "coefficients" in refused(words(strategy="toeplitz", coefficients=value))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"strategy": "binry-tree"}, "did you mean 'binary-tree'?"),
        ({"strategy": "binary_tree"}, "did you mean 'binary-tree'?"),
        ({"strategy": ""}, "choose from"),
        ({"strategy": "dense"}, "choose from"),
        ({"sampling": "poison"}, "did you mean 'poisson'?"),
        ({"sampling": "shuffled"}, "did you mean 'shuffle'? choose from poisson, cyclic-poisson"),
        ({"method": "mmc"}, "did you mean 'mmcc'?"),
        ({"method": "best"}, "choose from tight, mmcc, projection, reveal, cascade, unamplified"),
        ({"method": "mmcc", "order": "heavi"}, "did you mean 'heavy'?"),
    ],
)
def test_wrong_names(refused, changed, said):
    assert said in refused(words(**changed))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"height": "3"}, "--height does not apply to --strategy binary-tree"),
        ({"coefficients": "1"}, "--coefficients does not apply to --strategy binary-tree"),
        ({"separation": "3"}, "--separation does not apply to --sampling poisson"),
        ({"order": "heavy"}, "--order applies to --method mmcc only"),
        ({"order": "heavy", "method": "unamplified"}, "--order applies to --method mmcc only"),
        ({"strategy": "c.npy"}, "--steps does not apply"),
        ({"strategy": "c.npy", "steps": None, "height": "3"}, "--height does not apply"),
    ],
)
@pytest.mark.parametrize("command", CERTIFIED)
def test_options_that_do_not_apply(refused, command, changed, said):
    assert said in refused(words(command, **changed))


def test_flags_that_do_not_apply(refused):
    assert "--non-adaptive" in refused(words("epsilon", "--non-adaptive"))
    assert "--compare" in refused(words("epsilon", "--compare", method="mmcc"))
    assert "--compare" in refused(words("epsilon", "--compare", steps="5000"))
    assert "--compare" in refused(words("delta", "--compare"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"steps": None}, "--steps is needed"),
        ({"prob": None}, "--prob is needed"),
        ({"sampling": "cyclic-poisson"}, "--separation is needed"),
        ({"strategy": "tree-restart"}, "--height is needed"),
        ({"strategy": "toeplitz"}, "--coefficients is needed"),
        ({"strategy": None}, "--strategy"),
        ({"sampling": None}, "--sampling"),
        ({"sigma": None}, "--sigma"),
        ({"delta": None}, "--delta"),
    ],
)
def test_missing_options(refused, changed, said):
    assert said in refused(words(**changed))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "choose from epsilon, delta, sigma"),
        (["epsilo"], "did you mean 'epsilon'?"),
        (["frobnicate"], "choose from epsilon, delta, sigma"),
        (["--vresion"], "--version"),
        (["epsilon", "--stratgy", "identity"], "--strategy"),
        (["epsilon", "--sigma"], "--sigma"),
        (["epsilon", "--sigma", "-h"], "--sigma needs a value before -h."),
        (words(steps="--json"), "--steps needs a value before --json."),
        (words("epsilon", "--sigma", "9"), "--sigma is given twice; give it once."),
        (words("epsilon", "--sigma=10"), "--sigma is given twice; give it once."),
        (words("epsilon", "--json", "--json"), "--json is given twice; give it once."),
        (words("epsilon", "surplus"), "surplus"),
        (words("epsilon", "--json=yes"), "--json"),
        (words("epsilon", "--epsilon", "1"), "--epsilon"),
    ],
)
def test_words_that_make_no_command(refused, arguments, said):
    assert said in refused(arguments)


# ----------------------------------------------------------------------------------- bad files


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.npy", None, "No such file"),
        ("none.csv", None, "No such file"),
        ("none/c.npz", None, "No such file"),
        ("c.txt", b"1", "expected a .npy, .npz or .csv file"),
        ("c.npy", b"", "not a valid .npy"),
        ("c.npy", b"\x93NUMPY\x01\x00v\x00{'descr'", "not a valid .npy"),
        ("c.npz", b"PK\x03\x04 and no more", "not a valid .npz"),
        ("c.csv", b"1,0\n1\n", "not a table"),
        ("c.csv", b"step,weight\n1,0\n", "not a table"),
        ("c.csv", b"\xff\xfe", "not a table"),
        ("c.csv", b"", "at least one row"),
        ("c.csv", b"1,nan\n", "not finite"),
        ("c.csv", b"1,-1\n", "negative"),
        ("c.csv", b"1,0\n1,0\n", "column 1 is zero"),
    ],
)
@pytest.mark.parametrize("command", CERTIFIED)
def test_files(refused, tmp_path, command, name, content, said):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert said in refused(words(command, strategy=str(path), steps=None))


def test_more_files(refused, tmp_path):
    path = tmp_path / "c.npy"
    np.save(path, np.eye(9))
    path.write_bytes(path.read_bytes()[:-5])
    assert "cut off or damaged" in refused(words(strategy=str(path), steps=None))
    np.savez(tmp_path / "two.npz", np.eye(2), np.eye(2))
    assert "2 arrays" in refused(words(strategy=str(tmp_path / "two.npz"), steps=None))
    np.save(path, np.ones(3))
    assert "shape (3,)" in refused(words(strategy=str(path), steps=None))
    for path in (".", os.devnull, str(tmp_path)):
        assert f"cannot read {path!r}: expected" in refused(words(strategy=path, steps=None))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(refused, tmp_path):
    np.save(tmp_path / "c.npy", np.eye(2))
    (tmp_path / "c.npy").chmod(0)
    assert "Permission denied" in refused(words(strategy=str(tmp_path / "c.npy"), steps=None))


# -------------------------------------------------------------------------------- absurd sizes

BILLION = "1000000000"


@pytest.mark.parametrize(
    "changed",
    [
        {"strategy": "continual-counting", "steps": BILLION},
        {"strategy": "identity", "steps": "1e13"},
    ],
)
def test_absurd_sizes_are_refused_at_once(changed):
    run = run_process(*words(**changed))
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"steps": BILLION, "sampling": "cyclic-poisson", "prob": "0.1", "separation": "999999999"},
        *(
            pytest.param({"steps": BILLION} | changed, marks=pytest.mark.slow)  # in between
            for changed in (
                {"strategy": "identity", "prob": "1e-9"},
                {"prob": "1e-9"},
                {"strategy": "toeplitz", "coefficients": "1,0.5", "prob": "1e-9"},
                {"sampling": "cyclic-poisson", "prob": "0.1", "separation": "2"},
                {"sampling": "cyclic-poisson", "prob": "0.1", "separation": "1e6"},
            )
        ),
    ],
    ids=repr,
)
def test_large_sizes_are_answered_or_refused(changed):
    """Within 4 GB, and never with a traceback."""
    run = run_process(*words("epsilon", "--json", **changed), preexec_fn=four_gigabytes)
    assert run.returncode in (0, 2)
    if run.returncode == 0:
        assert json.loads(run.stdout)["epsilon"] >= 0
    else:
        assert run.stdout == ""
        assert run.stderr.count("\n") == 1


def four_gigabytes() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))


# -------------------------------------------------------------------------------- as a process


def test_as_a_module_and_as_a_script():
    run = run_process(*words("epsilon", "--json", method="unamplified"))
    assert run.returncode == 0
    assert run.stderr == ""
    assert run.stdout.count("\n{") == 0
    assert json.loads(run.stdout)["method"] == "unamplified"
    wrong = run_process("epsilo")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)


def test_running_out_of_memory_is_one_line(refused, monkeypatch):
    def exhausted(*_, **__):
        raise MemoryError

    monkeypatch.setattr(mmcc, "epsilon", exhausted, raising=False)
    assert "memory" in refused(words())


@pytest.fixture
def interruptible():
    """Ctrl-C is heard even if the tests were started by a shell that ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c(monkeypatch, capsys):
    def interrupted(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    monkeypatch.setattr(mmcc, "epsilon", interrupted, raising=False)
    assert main(words()) == 130
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "mmcc: stopped.\n"


def test_ctrl_c_in_a_compiled_kernel(monkeypatch, capsys):
    """It comes out as another error, whose cause it is."""

    def interrupted(*_, **__):
        raise SystemError(
            "a kernel returned a result with an exception set"
        ) from KeyboardInterrupt()

    monkeypatch.setattr(mmcc, "epsilon", interrupted, raising=False)
    assert main(words()) == 130
    assert capsys.readouterr().err == "mmcc: stopped.\n"


@pytest.mark.usefixtures("interruptible")
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_in_the_middle_of_the_work(monkeypatch, capsys):
    """Rows under way in other threads are given up, not waited for."""

    @contextmanager
    def interrupting():
        reports = iter(range(10**9))

        def report(*_):
            if next(reports) == 40:
                os.kill(os.getpid(), signal.SIGINT)

        yield report

    monkeypatch.setattr(output, "progress_bar", interrupting)
    start = time.process_time()
    changed = {"strategy": "continual-counting", "steps": "4000", "prob": "1/4000"}
    assert main(words(**changed, method="mmcc")) == 130
    assert capsys.readouterr().err == "mmcc: stopped.\n"
    assert time.process_time() - start < 30  # all of them take minutes


def test_progress_goes_to_a_terminal_only(monkeypatch, capsys):
    with output.progress_bar() as silent:
        assert silent is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with output.progress_bar() as report:
        assert report is not None
        report("rows", 1)
        report("rows", 2)
    assert capsys.readouterr().out == ""
