"""Claim: `python -m paper` runs studies by name, and its errors are one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import paper.__main__ as command
from paper import STUDIES, learning
from paper.__main__ import main
from paper.records import Table
from paper.study import MissingPartError, Report

ROOT = Path(__file__).parents[2]


class Fake:
    """A study that writes down what it was asked."""

    def __init__(self, name: str, asked: list[tuple[str, str, bool]]) -> None:
        self.name, self.title, self.asked = name, name.title(), asked

    def run(self, folder, *, quick, progress):
        self.asked.append((self.name, folder, quick))
        return Report(self.name, Table(()), f"{self.name} shown.", (), "a note.")


def faked(monkeypatch, *names: str) -> list[tuple[str, str, bool]]:
    asked: list[tuple[str, str, bool]] = []
    monkeypatch.setattr(command, "STUDIES", {name: Fake(name, asked) for name in names})
    return asked


def test_a_study_writes_its_three_files_and_says_what_they_show(tmp_path, capsys):
    assert main(["last-iterate", "--quick", "--out", str(tmp_path / "new")]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "the last iterate 0.419981 when the example is removed" in " ".join(printed.out.split())
    names = {file.name for file in (tmp_path / "new").iterdir()}
    assert names == {"last-iterate.csv", "last-iterate.png", "last-iterate.md"}
    assert all(f"last-iterate.{kind}" in printed.out for kind in ("csv", "png", "md"))


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_without_a_name_the_studies_are_listed(words):
    run = subprocess.run(
        [sys.executable, "-m", "paper", *words], cwd=ROOT, capture_output=True, text=True
    )
    assert (run.returncode, run.stderr) == (0, "")
    listed = run.stdout.partition("studies:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == [*STUDIES, "all"]
    for study, line in zip(STUDIES.values(), listed, strict=False):
        assert line.endswith(study.title)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["tre"], "did you mean 'tree'?"),
        (["prefix_sums"], "did you mean 'prefix-sums'?"),
        (["group", "--quik"], "did you mean '--quick'?"),
        (["group", "tree"], "'tree' is one name too many"),
        (["group", "--out"], "--out"),
        (["last-iterate", "--out", __file__], "is a file"),
    ],
)
def test_bad_input_is_one_line(words, reason, capsys):
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert reason in printed.err


def test_an_edited_file_is_one_line(tmp_path, capsys):
    file = tmp_path / "last-iterate.csv"
    file.write_text("sigma,n,epsilon,remove,add,composition\n0.5,2,,14.6,1.4,14.6\n")
    assert main(["last-iterate", "--quick", "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "line 2 of" in printed.err
    assert "epsilon is empty" in printed.err


def test_all_runs_every_study_in_order(tmp_path, monkeypatch, capsys):
    asked = faked(monkeypatch, "one", "two")
    assert main(["all", "--out", str(tmp_path)]) == 0
    assert asked == [("one", str(tmp_path), False), ("two", str(tmp_path), False)]
    printed = capsys.readouterr().out
    assert "one shown." in printed
    assert "a note." in printed


def test_all_leaves_out_what_lacks_its_parts_and_says_so(tmp_path, monkeypatch, capsys):
    def lacking(folder, *, quick, progress, data):
        raise MissingPartError(f"no images in {data}: fetch them.")

    faked(monkeypatch, "cifar10", "group")
    monkeypatch.setattr(learning, "cifar10", lacking)
    words = ["--out", str(tmp_path), "--data", "here"]
    assert main(["all", *words]) == 0
    printed = capsys.readouterr()
    assert printed.err == "cifar10 left out: no images in here: fetch them.\n"
    assert "group shown." in printed.out
    assert main(["cifar10", *words]) == 2
    assert "no images in here" in capsys.readouterr().err


@pytest.mark.parametrize("compiled", [False, True])
def test_ctrl_c_is_told_in_one_line(compiled, monkeypatch, capsys):
    """In a compiled kernel as well, out of which it comes as a SystemError."""

    def interrupted(self, folder, *, quick, progress):
        if compiled:
            raise SystemError from KeyboardInterrupt()
        raise KeyboardInterrupt

    faked(monkeypatch, "one")
    monkeypatch.setattr(Fake, "run", interrupted)
    assert main(["one"]) == 130
    assert capsys.readouterr().err == "paper: stopped; the same command continues from here.\n"


def test_a_mistake_of_the_program_is_not_hidden(monkeypatch):
    def broken(self, folder, *, quick, progress):
        raise SystemError

    faked(monkeypatch, "one")
    monkeypatch.setattr(Fake, "run", broken)
    with pytest.raises(SystemError):
        main(["one"])


def test_progress_is_shown_on_a_terminal_only(monkeypatch):
    with command.progress_line() as progress:
        assert progress is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with command.progress_line() as progress:
        progress("points of 3", 1)


def test_names():
    assert list(STUDIES) == [
        "tree",
        "counting",
        "tree-restart",
        "prefix-sums",
        "cifar10",
        "group",
        "last-iterate",
        "shuffled-tree",
        "bracket",
        "speed",
    ]


def test_describing_studies_is_cheap():
    code = (
        "import sys, paper.__main__; "
        "print(sorted({'scipy', 'numba', 'torch', 'matplotlib'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
