"""The words of the command line: every option of every command, through `mmcc._cli.app.main`.

An input is what a shell would hand over: words with a zero byte between them, in any encoding.
Real: parsing, checks of every value, strategies, schemes, files, the question's own checks, print.
A stub: what takes long once everything is checked (see `stubs`).  One input in `REAL` whose
strategy has at most `SMALL` steps is answered in full.
"""

from __future__ import annotations

import io
import json
import os
import random
import shlex
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import mmcc._cli.app
from fuzz import ledgers, matrices
from fuzz.drive import Format
from mmcc import strategies

REAL, SMALL = 20, 8
AT = "--sigma 2 --delta 1e-5"
POISSON = "--sampling poisson --prob 1/8"
LINES = (
    f"epsilon --strategy identity --steps 8 {POISSON} {AT}",
    f"epsilon --strategy binary-tree --steps 8 {POISSON} {AT} --json",
    f"epsilon --strategy tree-restart --steps 8 --height 2 {POISSON} {AT} --method mmcc "
    "--order heavy",
    f"epsilon --strategy continual-counting --steps 4 {POISSON} {AT} --compare",
    f"epsilon --strategy toeplitz --coefficients 1,0.5 --steps 8 {POISSON} {AT} --method reveal",
    f"epsilon --strategy optimal --steps 4 {POISSON} {AT} --json",
    f"epsilon --strategy banded --steps 6 --bands 2 --sampling cyclic-poisson --prob 1/4 "
    f"--separation 2 {AT}",
    f"epsilon --strategy banded-toeplitz --steps 6 --bands 2 --sampling min-separation --prob 0.1 "
    f"--separation 2 {AT} --method unamplified",
    f"epsilon --strategy banded-inverse --steps 8 --bands 3 --sampling balls-in-bins --bins 4 {AT}",
    f"epsilon --strategy blt --steps 8 --buffers 1 --objective max --sampling shuffle {AT}",
    f"epsilon --strategy blt --steps 8 --decay 0.9,0.5 --scale 0.2,0.1 --sampling shuffle "
    f"--epoch-steps 4 {AT}",
    f"epsilon --strategy m.npy {POISSON} {AT}",
    f"epsilon --strategy m.csv --non-adaptive {POISSON} {AT} --json",
    f"epsilon --strategy s.npz {POISSON} {AT}",
    f"epsilon --strategy odd.npz {POISSON} {AT}",
    f"delta --strategy binary-tree --steps 8 {POISSON} --sigma 3 --epsilon 1",
    f"sigma --strategy identity --steps 8 {POISSON} --epsilon 1 --delta 1e-5 --json",
    f"bracket --strategy binary-tree --steps 4 {POISSON} {AT} --estimate --samples 1000 --seed 1",
    f"bracket --strategy identity --steps 4 {POISSON} {AT} --plot p.png",
    f"estimate --strategy identity --steps 4 {POISSON} {AT} --samples 1000 --width 0.1 "
    "--confidence 0.9 --seed 3",
    f"group --group 2 --steps 4 --prob 1/8 {AT}",
    f"group --group 2 --steps 4 --examples 100 --batch 10 --zero-one {AT} --json",
    f"last-iterate --steps 8 --prob 1/8 {AT}",
    "compare --steps 8 --rate 1/8 --epsilon 1,2 --delta 1e-5 --strategies identity,blt:2,m.npy "
    "--schemes poisson,shuffle --seconds 1 --only-wins --estimates --plot p.svg --json",
    f"audit --strategy binary-tree --steps 4 {POISSON} {AT} --runs 1000 --confidence 0.9 --seed 1 "
    "--decoder online --stream numpy --generator philox --epsilon 5",
    "ledger ledger.jsonl --data d --delta 1e-5 --json",
    "ledger plan.jsonl",
    "--version",
    "epsilon --help",
)
NUMBERS = shlex.split(
    """
    0 1 -1 -0 8 9 1e400 -1e400 nan -nan inf -inf 1/0 0/1 0/0 1/3 1/2/3 / 1/ /2 1//2 0x10 1_0 1e6
    1e9 1000000000 1000000000000 1e12 1e18 1e30 1e300 1e-320 5e-324 1e-200 1e-50 1e-5 0.5 1.5 1.0
    1,2,3 , ,, 1, 1,nan 0.5,0.5 a,b True None 1j 0b1 1e e5 . 1. .5 +1 ++1 --1 1- 1e1e1
    """
)
NAMES = shlex.split(
    """
    - -- -h --help --json --version [bold] [/] [/x].npy .. / . /dev/null dir dir.npy m.npy none.npz
    empty.jsonl a/b.npy ../m.npy identity blt binary-tree optimal poisson shuffle tight mmcc reveal
    projection cascade unamplified release reversed mean torch chacha full identity:0 blt:99
    banded:2 continual-counting:4 tuned-blt binary-tree:1 d fixed-order balls-in-bins
    """
)
ODD = (
    *(
        " 1",
        "1 ",
        "",
        " ",
        "\n",
        "a\nb",
        "\t",
        "\u0661\u0662",
        "\u00bd",
        "\uff11",
        "\udc80",
        "'",
        '"',
    ),
    *("9" * 400 + "/" + "7" * 400, "9" * 4000, "9" * 5000, "1" + "0" * 400, "x" * 10**5, "\\"),
    *(
        "0" * 5000,
        "1" * 5000 + "/3",
        "\udcff.npy",
        "\x1b[2J",
        "\u00e9",
        "\U0001f642",
        "a" * 300 + ".npy",
    ),
)
TEXTS = (*NUMBERS, *NAMES, *ODD)

_folder: Path = Path()
_small: list[bool] = []


class Accepted(Exception):  # noqa: N818
    """Everything was checked, and only the long work is left."""


@cache
def options() -> tuple[str, ...]:
    """Every option of every command."""
    words = {word for line in LINES for word in shlex.split(line) if word.startswith("--")}
    return tuple(sorted(words))


def make(rng: random.Random) -> bytes:
    """A line, damaged."""
    words = shlex.split(rng.choice(LINES))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        _damage(rng, words)
    return "\0".join(word.replace("\0", "") for word in words).encode("utf-8", "surrogateescape")


def _damage(rng: random.Random, words: list[str]) -> None:
    kind, place = rng.randrange(12), rng.randrange(len(words) + 1)
    values = [i for i in range(1, len(words)) if not words[i].startswith("--")]
    if kind <= 6 and values:
        words[rng.choice(values)] = rng.choice(TEXTS)
    elif kind == 7:
        words[place:place] = [rng.choice(options()), rng.choice(TEXTS)]
    elif kind == 8 and words:
        del words[min(place, len(words) - 1)]
    elif kind == 9 and words:
        at = min(place, len(words) - 1)
        words[at] = rng.choice((rng.choice(options()), words[at][:-1], words[at] + "x"))
    elif kind == 10 and values:
        at = rng.choice(values)
        text = words[at]
        cut = rng.randrange(len(text) + 1)
        piece = rng.choice(("0", "e", "-", ".", "/", ",", "9" * 20, "\udc80", " ", "x", "1e"))
        words[at] = text[:cut] + piece + text[cut + rng.randrange(2) :]
    elif values:
        at = rng.choice(values)
        if words[at - 1].startswith("--"):
            words[at - 1 : at + 1] = [f"{words[at - 1]}={words[at]}"]


def feed(content: bytes) -> bool:
    """Run the command; look at its exit code and at what it printed."""
    words = content.decode("utf-8", "surrogateescape").split("\0") if content else []
    _small[:] = [zlib.crc32(content) % REAL == 0]
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n")
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", newline="\n")
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = mmcc._cli.app.main(words)
    except Accepted:
        code = 0
    printed, said = (_content(stream) for stream in (out, err))
    assert code in (0, 1, 2), f"exit code {code}"
    assert code != 1 or "audit" in words, "a violation without an audit"
    if code == 2:
        assert said.startswith("mmcc: "), said
        assert said.endswith("\n")
        assert said[:-1].isprintable(), said
        assert len(said) < 5000, f"a line of {len(said)} characters"
        assert not printed, printed
        assert "memory" not in said, said
    else:
        assert not said, said
    if printed.startswith("{"):
        json.loads(printed, parse_constant=_no_number)
    return code != 2


def _content(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


def _no_number(text: str) -> float:
    raise AssertionError(f"{text} in JSON")


def _full(strategy: Any) -> bool:
    """Whether this input is answered in full."""
    return _small[0] and strategy.steps <= SMALL


@contextmanager
def stubs() -> Iterator[None]:
    """What stands for the long work.

    - The bounds: after all checks of a question the cheapest bound, unamplified, is the only one
      tried, and the lower end of a bracket is 0.
    - Searches for strategies, audits, comparisons and pictures end where the work begins.
    - Estimates are those of the first group, in which nobody takes part; group and last-iterate
      have the laws of their counts, and an epsilon of 1.
    """
    solve = import_module("mmcc.accounting._questions")
    bounds = import_module("mmcc.accounting._bounds")
    estimates = import_module("mmcc._simulation.estimate")
    questions = import_module("mmcc.mixtures._dpsgd")
    chosen, lower, simulate = solve.bounds_by, solve.lower_epsilon, estimates.simulate
    mixture, worst = questions._Mixture.epsilon, estimates._worst_group

    def cheapest(problem: Any, *asked: Any) -> Any:
        found = chosen(problem, *asked)
        return found if _full(problem.strategy) else [bounds.PLAIN]

    def no_lower(problem: Any, delta: float, *most: Any) -> float:
        return lower(problem, delta, *most) if _full(problem.strategy) else 0.0

    def nothing(mechanism: Any, delta: float, budget: Any, *rest: Any) -> Any:
        if _full(mechanism.strategy) and budget.samples <= 1000:
            return simulate(mechanism, delta, budget, *rest)
        return estimates._nothing(mechanism, delta, budget)

    def first_group(strategy: Any, *rest: Any) -> int:
        return int(worst(strategy, *rest)) if _full(strategy) else 0

    def one(found: Any, delta: float, adjacency: str = "both") -> float:
        return mixture(found, delta, adjacency) if _small[0] and found.steps <= SMALL else 1.0

    def search(original: Callable[..., Any]) -> Callable[..., Any]:
        def found(*arguments: Any, **named: Any) -> Any:
            if arguments and getattr(arguments[0], "steps", arguments[0]) > SMALL:
                raise Accepted
            return original(*arguments, **named)

        return found

    def accepted(*_: object, **__: object) -> None:
        raise Accepted

    replaced: list[tuple[Any, str, Any]] = [
        (solve, "bounds_by", cheapest),
        (solve, "lower_epsilon", no_lower),
        (import_module("mmcc.accounting._best_bound"), "lower_epsilon", no_lower),
        (estimates, "simulate", nothing),
        (estimates, "_worst_group", first_group),
        (questions._Mixture, "epsilon", one),
        (import_module("mmcc.audit._audit"), "Stage", accepted),
        (import_module("mmcc.design._compare"), "_run", accepted),
        (import_module("mmcc.plots"), "epsilon_against_sigma", accepted),
        (import_module("mmcc.plots"), "errors_against_epsilon", accepted),
    ]
    for module, name in (
        ("_optimal", "best_gram"),
        ("_banded", "best_diagonals"),
        ("_banded_toeplitz", "best_coefficients"),
        ("_blt", "best_buffers"),
    ):
        holder = import_module(f"mmcc.strategies.{module}")
        replaced.append((holder, name, search(getattr(holder, name))))
    with ExitStack() as stack:
        for holder, name, stub in replaced:
            stack.enter_context(mock.patch.object(holder, name, stub))
        yield


def _write_files(folder: Path) -> None:
    np.save(folder / "m.npy", np.tri(3))
    (folder / "m.csv").write_text("1,0\n1,1\n")
    strategies.save(strategies.toeplitz([1.0, 0.5], 8), folder / "s.npz")
    record, arrays = matrices.seeds()[9]  # a dense one: what made it is printed for its name
    odd = json.loads(record)
    odd["provenance"] |= {"given": False, "arguments": [["a", "[/x] [bold]"]]}
    odd["digest"] = matrices.digest(odd, arrays)
    np.savez(folder / "odd.npz", mmcc=np.array(json.dumps(odd)), **arrays)
    for name, objects in zip(("ledger.jsonl", "plan.jsonl"), ledgers.seeds(), strict=True):
        (folder / name).write_bytes(b"".join(line + b"\n" for line in ledgers.sealed(objects)))
    (folder / "empty.jsonl").touch()
    (folder / "dir").mkdir()
    (folder / "dir.npy").mkdir()


@contextmanager
def around() -> Iterator[None]:
    """A folder with files, in which the commands run; stubs."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, stubs():
        _write_files(Path(folder))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


FORMAT = Format("words", make, feed, around)
