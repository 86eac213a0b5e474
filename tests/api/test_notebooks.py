"""Claim: the stored notebooks show what the software does now, and nothing of any machine."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
sys.path.insert(0, str(FOLDER))

from execute import executed  # noqa: E402

NAMES = sorted(file.stem for file in FOLDER.glob("*.ipynb"))
TRAINING = "train_and_report"
LONG = "design_a_strategy"
"""It searches; `test_optimise` and `test_compare` run what it calls."""
FIRST, BEGINNING = "first_epsilon", 2
"""Of this one so many cells of code run by default: those that follow ask the same again."""
MEASURED = "measured"
"""Tag of cells whose numbers depend on the order of float32 sums, as an accuracy does."""
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def read(name):
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell):
    """What a cell printed, pictures by their kind."""
    parts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            assert output.name == "stdout", output.text
            parts.append(output.text)
        else:
            assert output.output_type in ("display_data", "execute_result"), output
            parts += [f"[{kind}]" for kind in sorted(output.data) if kind != "text/plain"]
            parts.append(output.data["text/plain"])
    return "".join(parts)


def test_there_are_three():
    assert NAMES == ["design_a_strategy", "first_epsilon", "train_and_report"]


def beginning(notebook, count):
    """The notebook up to so many cells of code."""
    places = [k for k, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    return nbformat.from_dict({**notebook, "cells": notebook.cells[: places[count - 1] + 1]})


@pytest.mark.parametrize(
    ("name", "count"),
    [
        (FIRST, BEGINNING),
        *(pytest.param(name, None, marks=pytest.mark.slow) for name in (TRAINING, FIRST, LONG)),
    ],
)
def test_a_notebook_prints_what_is_stored(name, count, tmp_path):
    if name == TRAINING:
        pytest.importorskip("torch")
        pytest.importorskip("opacus")
        folder = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
        if not folder.is_dir():
            pytest.skip(f"{name}.ipynb was NOT run: install Debian's dataset-fashion-mnist.")
    stored = read(name) if count is None else beginning(read(name), count)
    fresh = executed(stored, tmp_path)
    for was, now in zip(code_cells(stored), code_cells(fresh), strict=True):
        if MEASURED in was.metadata.get("tags", ()):
            assert NUMBER.sub("#", shown(now)) == NUMBER.sub("#", shown(was))
            numbers = [float(found) for found in NUMBER.findall(shown(was))]
            assert [float(found) for found in NUMBER.findall(shown(now))] == pytest.approx(
                numbers, rel=0.05
            )
        else:
            assert shown(now) == shown(was)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_stored_and_show_nothing_of_a_machine(name):
    cells = code_cells(read(name))
    text = "".join(shown(cell) for cell in cells)
    assert len(NUMBER.findall(text)) > 5
    assert not re.search(r"(?:^|[\s'\"(=])(?:/|~/|[A-Z]:\\)\w", text), text
    assert socket.gethostname() not in text
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    raw = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert raw["metadata"]["language_info"] == {"name": "python"}  # no version of an interpreter
    assert all("execution" not in cell["metadata"] for cell in raw["cells"])  # no times


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    prose = "\n".join(cell.source for cell in read(name).cells if cell.cell_type == "markdown")
    targets = [link for link in re.findall(r"\]\(([^)#]+)\)", prose) if "://" not in link]
    assert targets
    for target in targets:
        assert (FOLDER / target).exists(), target


def test_without_images_the_notebook_says_in_one_sentence_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("FASHION_MNIST", str(tmp_path))
    reads = code_cells(read(TRAINING))[1].source
    with pytest.raises(FileNotFoundError, match="Debian's dataset-fashion-mnist") as stopped:
        exec(reads, {"os": os, "Path": Path})
    assert str(stopped.value).count(". ") == 0
