"""Claim: what README and docs show is what the software does."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest
from cases.samples import first

from mmcc import plots
from mmcc._cli.app import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# Every fenced block of a page is run by the tests, but for these: (page, language, which) and why.
NOT_RUN_HERE = {
    ("README.md", "sh", 1): "installs; .ci/run runs it, and its last command is run here",
    ("README.md", "sh", 2): "runs the tests; .ci/run runs it",
    ("README.md", "sh", 3): "installs; its last command is run here",
    ("clusters.md", "python", 1): "minutes; tests/api/test_executors.py asks the same of less",
    ("clusters.md", "python", 2): "needs a cluster; tests/api/test_executors.py starts a small one",
    ("distributed.md", "python", 1): "run by tests/training/test_distributed.py",
    ("distributed.md", "python", 2): "run by tests/training/test_distributed.py",
    ("from-jax-privacy.md", "python", 1): "run by tests/training/test_jax_example.py",
    ("from-opacus.md", "python", 1): "run by tests/training/test_private_docs.py",
    ("from-opacus.md", "python", 2): "run by tests/training/test_private_docs.py",
    ("quickstart.md", "sh", 1): "installs",
    ("quickstart.md", "python", 1): "a part; the whole script is the first block of training.md",
    ("verify.md", "python", 1): "hours; tests/api/test_executors.py asks the same of less",
    ("report.md", "sh", 1): "run by tests/report/test_command.py",
    ("tools.md", "python", 1): "run by tests/training/test_private_docs.py",
    ("tools.md", "python", 2): "run by tests/training/test_private_docs.py",
    ("tools.md", "python", 3): "run by tests/training/test_private_docs.py",
    ("training.md", "python", 1): "run by tests/training/test_private_docs.py",
    ("training.md", "python", 2): "run by tests/training/test_private_docs.py",
    ("training.md", "python", 3): "run by tests/training/test_private_docs.py",
}
OUTPUT = "text"
"""Blocks that show and are not run; those after a command are compared with what it prints."""
STAYS = "explore"
"""A command that does not end by itself."""


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def run_here(page: Path, language: str) -> list[str]:
    """The blocks of a page that no entry of the list above leaves to others."""
    found = blocks(page.read_text(encoding="utf-8"), language)
    numbered = enumerate(found, start=1)
    return [block for k, block in numbered if (page.name, language, k) not in NOT_RUN_HERE]


def commands(block: str) -> list[list[str]]:
    """The arguments of the mmcc commands of a block, whatever was installed before them."""
    lines = block.replace("\\\n", " ").splitlines()
    words = [shlex.split(line.rpartition("&& ")[2]) for line in lines]
    assert all(word[0] in ("mmcc", ".venv/bin/mmcc") for word in words), block
    return [word[1:] for word in words]


def pages_with(*languages: str) -> list[Path]:
    return [page for page in PAGES if any(run_here(page, language) for language in languages)]


def test_every_block_is_run_or_says_why_not():
    seen = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fences = re.findall(r"^ *(?:```|~~~)(.*)$", text, flags=re.MULTILINE)
        languages = fences[::2]  # a fence that opens, a fence that closes
        assert set(fences[1::2]) <= {""}, page.name
        assert set(languages) <= {"sh", "python", "pycon", OUTPUT}, page.name
        for language in set(languages):
            count = languages.count(language)
            assert len(blocks(text, language)) == count, page.name  # none is indented
            seen |= {(page.name, language, k + 1) for k in range(count)}
    assert set(NOT_RUN_HERE) <= seen  # the list above is of blocks that exist


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page):
    examples = "\n".join(run_here(page, "pycon"))
    parsed = doctest.DocTestParser().get_doctest(examples, {}, page.name, str(page), 0)
    runner = doctest.DocTestRunner(verbose=False)
    assert runner.run(parsed).failed == 0


@pytest.mark.parametrize("page", pages_with("sh"), ids=lambda page: page.name)
def test_commands_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    compared = [block for name, block, _ in shown_outputs() if name == page.name]
    for block in run_here(page, "sh"):
        if block in compared:
            continue  # run below, where the output is looked at too
        for words in commands(block):
            if words == readme_drawing():
                continue  # run by test_readme_draws
            assert words[0] != STAYS, f"{page.name}: say in NOT_RUN_HERE who runs {words}"
            assert main(words) == 0, capsys.readouterr().err
            if "--plot" in words:
                assert Path(words[words.index("--plot") + 1]).stat().st_size > 10_000


@pytest.mark.parametrize("page", pages_with("python"), ids=lambda page: page.name)
def test_scripts_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in run_here(page, "python"):
        if "import torch" in block:
            pytest.importorskip("torch")
        exec(block, names)


def test_readme_has_one_command_to_run_and_one_to_test():
    run, test, draw = blocks(README, "sh")
    assert run.count("\n") == test.count("\n") == draw.count("\n") == 1
    for command in (run, test):
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install -q ")
    assert test.rstrip().endswith(".venv/bin/python -m pytest -n auto")


def readme_drawing() -> list[str]:
    (words,) = commands(blocks(README, "sh")[2])
    return words


@pytest.mark.parametrize("points", first([3, plots.POINTS], 1))
def test_readme_draws(tmp_path, monkeypatch, points):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plots, "POINTS", points)
    assert main(readme_drawing()) == 0
    picture = (tmp_path / "bracket.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000


def shown_outputs() -> list[tuple[str, str, str]]:
    """Page, command and output, wherever a page has one after the other."""
    lines = r"((?:(?!```).*\n)+)```"
    pair = re.compile(rf"^```sh\n{lines}\n\n```{OUTPUT}\n{lines}$", flags=re.MULTILINE)
    return [
        (page.name, *found)
        for page in PAGES
        for found in pair.findall(page.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(("page", "block", "shown"), shown_outputs())
def test_the_output_shown_is_the_real_one(page, block, shown, capsys):
    """Text to the letter; numbers within a tenth of a per cent, times not at all."""
    (words,) = commands(block)
    assert main(words) == 0
    printed = capsys.readouterr().out.splitlines()
    for was, now in zip(shown.splitlines(), printed, strict=True):
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


def test_readme_shows_an_output():
    assert "README.md" in [page for page, *_ in shown_outputs()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
