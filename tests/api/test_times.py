"""Claim: what README, quickstart and the first notebook ask is answered soon at 2000 steps too.

Times are processor time as a ratio to a calibrated reference in the same run, so that neither a
slow machine nor a busy one decides.  The reference takes .19 s on an idle core, and 15 s is the
longest that anyone should wait for a first answer.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases.samples import first

from mmcc._cli.app import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "quickstart.md"]
NOTEBOOK = ROOT / "docs" / "notebooks" / "first_epsilon.ipynb"
PRODUCTS = 200
LONGEST = 15 / 0.19
"""Seconds over seconds, both on one idle core."""
ASKED = re.compile(r"\bmmcc ((?:epsilon|delta|sigma|bracket|compare) --.*--delta \S+.*)$", re.M)
RARE = "--steps 100000 --sampling poisson --prob 1/1000 --sigma 100 --delta 1e-6"
LARGE = [f"epsilon --strategy {name} {RARE}".split() for name in ("continual-counting", "blt")]
SIZES = {"--steps": "2000", "--prob": "1/100", "--rate": "1/100"}


def processor_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def reference() -> float:
    """Seconds for products of complex matrices of the size that the bounds multiply."""
    matrix = np.random.default_rng(0).random((200, 200)) * (1 + 1j)

    def multiply() -> None:
        for _ in range(PRODUCTS):
            matrix @ matrix

    return min(processor_seconds(multiply) for _ in range(3))


def at_ordinary_size(command: str) -> list[str]:
    words = shlex.split(command)
    for option, value in SIZES.items():
        if option in words:
            words[words.index(option) + 1] = value
    return words


def commands() -> list[list[str]]:
    text = "\n".join(page.read_text(encoding="utf-8").replace("\\\n", " ") for page in PAGES)
    found = {tuple(at_ordinary_size(command.split("`")[0])) for command in ASKED.findall(text)}
    return [list(words) for words in sorted(found)]


def cells() -> list[str]:
    """Those that ask; the one that asks again at five deltas, and its plot, are left out."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in notebook if cell["cell_type"] == "code"]
    asking = [source for source in sources if "deltas" not in source]
    return [source.replace("1 / 128", "1 / 100").replace("(128)", "(2000)") for source in asking]


def test_every_kind_of_question_is_asked():
    asked = {words[0] for words in commands()}
    assert asked == {"epsilon", "sigma", "bracket", "compare"}
    assert all("2000" in words for words in commands())
    assert any("binary_tree(2000)" in cell for cell in cells())


@pytest.mark.parametrize("words", [*commands(), *first(LARGE, 1)], ids=" ".join)
def test_a_command_answers_soon(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unit, ended = reference(), []
    spent = processor_seconds(lambda: ended.append(main(words)))
    assert ended == [0]
    assert spent < LONGEST * unit, f"{spent / unit:.0f} times the reference"


def test_no_cell_of_the_first_notebook_takes_long():
    unit, names = reference(), {}
    for cell in cells():
        spent = processor_seconds(lambda cell=cell: exec(cell, names))
        assert spent < LONGEST * unit, f"{spent / unit:.0f} times the reference: {cell}"
