"""Claim: what README and docs show is what the software does."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

from mmcc.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page):
    examples = "\n".join(blocks(page.read_text(encoding="utf-8"), "pycon"))
    parsed = doctest.DocTestParser().get_doctest(examples, {}, page.name, str(page), 0)
    runner = doctest.DocTestRunner(verbose=False)
    assert runner.run(parsed).failed == 0


def test_readme_has_one_command_to_run_and_one_to_test():
    run, test = blocks(README, "sh")
    assert run.count("\n") == test.count("\n") == 1
    for command in (run, test):
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install -q ")
    assert test.rstrip().endswith(".venv/bin/python -m pytest -n auto")


def test_readme_shows_the_real_output(capsys):
    """Text to the letter; numbers within a tenth of a per cent, times not at all."""
    command = blocks(README, "sh")[0].rpartition("&& .venv/bin/mmcc ")[2]
    assert main(shlex.split(command)) == 0
    printed = capsys.readouterr().out.splitlines()
    shown = blocks(README, "text")[0].splitlines()
    for was, now in zip(shown, printed, strict=True):
        *label_was, last_was = was.split() or [""]
        *label_now, last_now = now.split() or [""]
        assert label_was == label_now
        if label_now == ["seconds"]:
            continue
        try:
            expected = float(last_was)
        except ValueError:
            assert last_was == last_now
        else:
            assert float(last_now) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
