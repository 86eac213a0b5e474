"""Claim: a name that is almost right is met with the right one, in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mmcc
from mmcc import MmccError, mixtures, pld, sampling, strategies
from mmcc._cli.app import COMMANDS, main
from mmcc.accounting._losses.gridded import put_on_grid
from mmcc.audit import audit
from mmcc.errors import closest, suggestion
from mmcc.training import Mechanism, NoiseStream

TREE, SCHEME = strategies.binary_tree(4), sampling.Poisson(0.5)
ASKED = "--strategy binary-tree --steps 4 --sampling poisson --prob 1/2 --sigma 9 --delta 1e-6"
COMPARED = "compare --steps 4 --rate 1/2 --epsilon 1 --delta 1e-5"
NUMBERS = "--steps 4 --prob 1/2 --sigma 9 --delta 1e-6"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("epsilom", "'epsilon'"),
        ("Epsilon", "'epsilon'"),
        ("last_iterate", "'last-iterate'"),
        ("iterate", "'last-iterate'"),
        ("docter", "'doctor'"),
        ("--versoin", "--version"),
        ("--instal-completion", "--install-completion"),
        ("epsilon --stratgy identity", "--strategy"),
        ("epsilon --epoch_steps 4", "--epoch-steps"),
        ("bracket --estimat", "--estimate"),
        ("group --exmaples 4", "--examples"),
        ("ledger f --dat x", "--data"),
        ("doctor --jsn", "--json"),
        ("epsilon --noise 3", "--sigma"),
        ("epsilon --noise_multiplier 3", "--sigma"),
        ("sigma --eps 1", "--epsilon"),
        ("compare --prob 1/4", "--rate"),
        ("compare --sampling poisson", "--schemes"),
        ("compare --strategy identity", "--strategies"),
        ("epsilon --rate 1/4", "--prob"),
        ("epsilon --schemes poisson", "--sampling"),
        ("epsilon --batch-size 4", "--prob"),
        ("sigma --epochs 4", "--steps"),
        ("report --output f.html", "--out"),
        (f"epsilon --sampling poisson {NUMBERS} --strategy binry-tree", "'binary-tree'"),
        (f"epsilon --sampling poisson {NUMBERS} --strategy counting", "'continual-counting'"),
        (f"epsilon --sampling poisson {NUMBERS} --strategy Identity", "'identity'"),
        (f"epsilon --strategy binary-tree {NUMBERS} --sampling POISSON", "'poisson'"),
        (f"epsilon --strategy binary-tree {NUMBERS} --sampling ball_in_bins", "'balls-in-bins'"),
        (f"epsilon {ASKED} --method unamplifed", "'unamplified'"),
        (f"epsilon {ASKED} --method mmcc --order revesed", "'reversed'"),
        (f"epsilon --sampling poisson {NUMBERS} --strategy blt --objective maxx", "'max'"),
        (f"audit {ASKED} --decoder onlin", "'online'"),
        (f"audit {ASKED} --stream nunpy", "'numpy'"),
        (f"audit {ASKED} --stream numpy --generator chaha", "'chacha'"),
        (f"{COMPARED} --method tigth", "'tight'"),
        (f"{COMPARED} --strategies identty", "'identity'"),
        (f"{COMPARED} --strategies identity --schemes poison", "'poisson'"),
    ],
)
def test_on_the_command_line(capsys, line, meant):
    assert main(line.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("mmcc: ")
    assert printed.err.count("\n") == 1
    assert f"did you mean {meant}?" in printed.err


@pytest.mark.parametrize("line", ["qqqq", "epsilon --qqqq", "-q", "--qqqq", "epsilon -q"])
def test_nothing_is_suggested_for_nonsense(capsys, line):
    assert main(line.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "did you mean" not in printed.err
    assert "--help" in printed.err or all(name in printed.err for name in COMMANDS)


@pytest.mark.parametrize("line", ["compare --sigma 1", "epsilon --out f", "audit --plot f.png"])
def test_nothing_is_suggested_that_is_not_meant(capsys, line):
    """`--sigma` is not a slip of the keys for `--estimates`."""
    assert main(line.split()) == 2
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "option"),
    [("epsilon", "epsilon"), ("delta", "delta"), ("sigma", "sigma"), ("epsilon", "eps")],
)
def test_what_is_computed_is_not_given(capsys, name, option):
    assert main([name, f"--{option}", "1"]) == 2
    assert f"{name} is what this command computes; leave it out." in capsys.readouterr().err


def test_a_noise_multiplier_is_not_sigma(capsys):
    assert main(["epsilon", "--noise-multiplier", "1"]) == 2
    assert "the noise multiplier times the sensitivity" in capsys.readouterr().err


@pytest.mark.parametrize("delta", ["1e-400", "1e-500/2", "0.1e-400"])
def test_what_is_too_small_is_not_called_zero(capsys, delta):
    line = ASKED.replace("1e-6", delta)
    assert main(["epsilon", *line.split()]) == 2
    told = capsys.readouterr().err
    assert f"--delta '{delta}' is below 4.9e-324, the smallest number" in told
    assert "0.0" not in told


ONE = pld.mixture_of_gaussians([0, 1], [0.9, 0.1], 1.0)
AT = {"sigma": 9.0, "delta": 1e-6}


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: mmcc.epsilon(TREE, SCHEME, **AT, method="projecton"), "projection"),
        (lambda: mmcc.bracket(TREE, SCHEME, **AT, method="Reveal"), "reveal"),
        (lambda: mmcc.epsilon(TREE, SCHEME, **AT, method="mmcc", order="havy"), "heavy"),
        (lambda: ONE.epsilon(1e-5, adjacency="removed"), "remove"),
        (lambda: ONE.delta(1.0, adjacency="bothh"), "both"),
        (lambda: put_on_grid(ONE, 1e-2).epsilon(1e-5, adjacency="ad"), "add"),
        (lambda: strategies.optimise(4, SCHEME, 1.0, 1e-5, objective="mex"), "max"),
        (lambda: strategies.optimise(4, SCHEME, 1.0, 1e-5, method="reveel"), "reveal"),
        (lambda: mixtures.fixed_batches(9, 2, 3, **AT, setting="0_1"), "0-1"),
        (lambda: mixtures.fixed_batches(9, 2, 3, **AT, setting="ny"), "any"),
        (lambda: strategies.blt(4, objective="men"), "mean"),
        (lambda: mmcc.utility.rmse(TREE, 1.0, decoder="honacker"), "honaker"),
        (lambda: NoiseStream(TREE, 1.0, 3, 0, generator="filox"), "philox"),
        (lambda: Mechanism(TREE, SCHEME, 9.0, 10, 1.0, loss_reduction="meen"), "mean"),
        (lambda: audit(TREE, SCHEME, **AT, stream="numppy"), "numpy"),
        (lambda: mmcc.compare([TREE], [SCHEME], epsilon=1.0, delta=1e-5, method="tite"), "tight"),
    ],
)
def test_in_python(call, meant):
    with pytest.raises(MmccError) as caught:
        call()
    message = str(caught.value)
    assert f"did you mean {meant!r}?" in message
    assert "\n" not in message
    assert message.endswith(".")


def test_an_attribute_of_the_package():
    """Python itself makes the suggestion, if it is told which name is missing from what."""
    with pytest.raises(AttributeError) as caught:
        mmcc.epsilom  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("epsilom", mmcc)
    run = subprocess.run(
        [sys.executable, "-c", "import mmcc; mmcc.epsilom"], capture_output=True, text=True
    )
    assert "Did you mean: 'epsilon'?" in run.stderr


@pytest.mark.parametrize(
    ("typed", "known", "meant"),
    [
        ("b", ("abc", "abd"), None),
        ("tree", ("identity", "binary-tree"), "binary-tree"),
        ("A_B", ("a-b", "c"), "a-b"),
        ("", ("a", "b"), None),
        ("tree", ("trees", "binary-tree"), "trees"),
    ],
)
def test_what_is_close(typed, known, meant):
    assert closest(typed, known) == meant
    assert suggestion(typed, known).endswith(f"choose from {', '.join(known)}.")
