"""Claim: `mmcc reproduce` runs studies by name, and its errors are one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mmcc import studies
from mmcc.cli import main


def test_a_study_writes_its_three_files_and_says_what_they_show(tmp_path, capsys):
    assert main(["reproduce", "last-iterate", "--quick", "--out", str(tmp_path / "new")]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "the last iterate 0.419981 when the example is removed" in " ".join(printed.out.split())
    names = {file.name for file in (tmp_path / "new").iterdir()}
    assert names == {"last-iterate.csv", "last-iterate.png", "last-iterate.md"}
    assert all(f"last-iterate.{kind}" in printed.out for kind in ("csv", "png", "md"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["reproduce", "tre"], "did you mean 'tree'?"),
        (["reproduce"], "missing argument"),
        (["reproduce", "group", "--quik"], "--quick"),
        (["reproduce", "last-iterate", "--out", __file__], "is a file"),
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
    assert main(["reproduce", "last-iterate", "--quick", "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "line 2 of" in printed.err
    assert "epsilon is empty" in printed.err


def test_all_runs_every_study_in_order(tmp_path, monkeypatch, capsys):
    asked = []

    def fake(name):
        def run(folder, *, quick, progress):
            asked.append((name, folder, quick))
            return studies.Report(name, studies.study.Table(()), f"{name} shown.", (), "a note.")

        return run

    monkeypatch.setattr(studies, "STUDIES", {name: fake(name) for name in ("one", "two")})
    assert main(["reproduce", "all", "--out", str(tmp_path)]) == 0
    assert asked == [("one", str(tmp_path), False), ("two", str(tmp_path), False)]
    printed = capsys.readouterr().out
    assert "one shown." in printed
    assert "a note." in printed


def test_all_leaves_out_what_lacks_its_parts_and_says_so(tmp_path, monkeypatch, capsys):
    def lacking(folder, *, quick, progress, data):
        raise studies.study.MissingPartError(f"no images in {data}: fetch them.")

    def whole(folder, *, quick, progress):
        return studies.Report("group", studies.study.Table(()), "shown.", ())

    monkeypatch.setattr(studies, "STUDIES", {"cifar10": lacking, "group": whole})
    words = ["--out", str(tmp_path), "--data", "here"]
    assert main(["reproduce", "all", *words]) == 0
    printed = capsys.readouterr()
    assert printed.err == "cifar10 left out: no images in here: fetch them.\n"
    assert "shown." in printed.out
    assert main(["reproduce", "cifar10", *words]) == 2
    assert "no images in here" in capsys.readouterr().err


def test_names():
    assert set(studies.STUDIES) == {
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
    }
    for name, function in studies.STUDIES.items():
        assert getattr(studies, name.replace("-", "_")) is function
        assert name.replace("-", "_") in studies.__all__


def test_describing_studies_is_cheap():
    code = (
        "import sys, mmcc.studies; "
        "print(sorted({'scipy', 'numba', 'torch', 'matplotlib'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
