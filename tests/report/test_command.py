"""Claim: `mmcc report` writes one file, says what is in it, and refuses what does not apply."""

from __future__ import annotations

import errno
import re
import shlex
from pathlib import Path

import pytest
from cases.reports import Page, small

from mmcc import MmccError
from mmcc._cli.app import main
from mmcc._cli.commands import report as command
from mmcc.report import _pages as pages

NOISE = ["--strategy", "identity", "--steps", "8", "--sampling", "poisson", "--prob", "1/8"]
NOISE += ["--sigma", "10", "--delta", "1e-6", "--seconds", "0"]


def refused(capsys, *words: str) -> str:
    assert main(["report", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("mmcc: ")
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize(
    ("words", "name", "start"),
    [
        ([], "privacy-report.html", "<!doctype html>"),
        (["--format", "markdown"], "privacy-report.md", "# Privacy report"),
        (["--out", "a.md"], "a.md", "# Privacy report"),
        (["--out", "A.HTM"], "A.HTM", "<!doctype html>"),
        (["--out", "a.txt", "--format", "markdown"], "a.txt", "# Privacy report"),
    ],
)
def test_one_file_in_the_format_of_its_ending(words, name, start, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *NOISE, *words]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"{name}: All 8 steps: (0.")
    assert said.out.count("\n") == 1
    assert said.err == ""
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


@pytest.mark.parametrize("name", ["ledger", "checkpoint", "strategy"])
def test_what_the_report_is_about_is_never_replaced(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("input.csv").write_bytes(b"1")
    Path("link.md").symlink_to("input.csv")
    for out in ("input.csv", "./input.csv", "link.md"):
        words = [f"--{name}", "input.csv", "--out", out, "--format", "markdown"]
        assert f"is the file given with --{name}" in refused(capsys, *words)
    assert Path("input.csv").read_bytes() == b"1"


def test_a_link_to_a_file_that_is_not_there_yet_stays_a_link(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("link.md").symlink_to("page.md")
    assert "--sampling is needed" in refused(capsys, *NOISE[:4], "--out", "link.md")
    assert Path("link.md").is_symlink()
    assert not Path("page.md").exists()
    assert main(["report", *NOISE, "--out", "link.md"]) == 0
    assert Path("link.md").is_symlink()
    assert Path("page.md").read_text().startswith("# Privacy report")


def test_a_dash_is_stdout(capsys):
    assert main(["report", *NOISE, "--out", "-", "--format", "markdown", "--title", "T *1*"]) == 0
    assert capsys.readouterr().out.startswith("# T \\*1\\*\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*NOISE, "--out", "a.pdf"], ".html, .htm, .md, .markdown file"),
        ([*NOISE, "--out", "no/such/folder/a.html"], "there is no folder"),
        ([*NOISE, "--format", "htlm"], "did you mean 'html'"),
        (NOISE[:8], "--sigma is needed"),
        ([], "--strategy is needed"),
        ([*NOISE, "--clip-norm", "-1"], "clip_norm must lie in"),
        ([*NOISE, "--checkpoint", "x"], "does not apply to --checkpoint"),
        (["--checkpoint", "x"], "--delta is needed"),
        (["--checkpoint", "x", "--delta", "1e-5", "--steps", "8"], "--steps does not apply"),
        (["--checkpoint", "x", "--delta", "1e-5", "--order", "heavy"], "--order does not apply"),
        (["--ledger", "x", "--checkpoint", "y"], "one at a time"),
        (["--ledger", "x", "--sigma", "3"], "--sigma does not apply to --ledger"),
        (["--ledger", "x", "--method", "mmcc"], "--method does not apply to --ledger"),
        (["--ledger", "none.jsonl"], "there is no ledger"),
        ([*NOISE, "--method", "cascade"], "balls-in-bins"),
    ],
)
def test_bad_input_is_one_line(words, said, capsys):
    assert said in refused(capsys, *words)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("", "no file name"),
        ("folder.html", "is a folder"),
        ("sealed.html", "cannot be written to 'sealed.html': Permission denied"),
        ("sealed/r.html", "cannot be written to 'sealed/r.html': Permission denied"),
        (f"{'x' * 300}.html", "File name too long"),
        ("a\0b.html", "cannot be written"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    out, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    really = Path.open

    def opened(path, *words):
        if "sealed" in str(path):  # permissions are no obstacle to whoever runs the tests as root
            raise PermissionError(errno.EACCES, "Permission denied")
        return really(path, *words)

    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(command, "_report", lambda *_: pytest.fail("the work began"))
    (tmp_path / "sealed").mkdir()
    for more in ([], ["--format", "html"]):
        assert said in refused(capsys, *NOISE, "--out", out, *more)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder.html", "sealed"]


def test_a_report_that_fails_leaves_an_older_one_alone(tmp_path, capsys):
    (tmp_path / "r.html").write_text("older")
    refused(capsys, *NOISE, "--clip-norm", "-1", "--out", str(tmp_path / "r.html"))
    assert (tmp_path / "r.html").read_text() == "older"
    refused(capsys, *NOISE, "--clip-norm", "-1", "--out", str(tmp_path / "s.html"))
    assert not (tmp_path / "s.html").exists()


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_without_the_extra_one_line_says_what_to_install(missing, monkeypatch, tmp_path, capsys):
    real = pages.find_spec
    monkeypatch.setattr(pages, "find_spec", lambda name: None if name == missing else real(name))
    out = str(tmp_path / "r.html")
    assert f"needs {missing}: pip install 'mmcc[report]'." in refused(capsys, *NOISE, "--out", out)
    with pytest.raises(MmccError, match="pip install"):
        small().save(out)


def test_markdown_needs_no_matplotlib(monkeypatch, tmp_path):
    real = pages.find_spec
    monkeypatch.setattr(
        pages, "find_spec", lambda name: None if name == "matplotlib" else real(name)
    )
    assert main(["report", *NOISE, "--out", str(tmp_path / "r.md")]) == 0


def test_the_page_is_well_formed(tmp_path):
    found = small()
    found.save(tmp_path / "r.html")
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    names = [tag for tag, _ in page.elements]
    assert names.count("h1") == 1
    assert names.count("title") == 1 + names.count("svg")
    for tag, attributes in page.elements:
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
        if tag == "svg":
            assert attributes["role"] == "img"
            assert attributes["aria-labelledby"]


def test_the_documented_command_runs(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    program, *words = shlex.split(re.search(r"```sh\n(.*?)\n```", page, re.DOTALL)[1])
    assert program == "mmcc"
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--seconds", "0"]) == 0
    assert capsys.readouterr().out.startswith("report.html: All 128 steps: (")
    assert (tmp_path / "report.html").exists()
