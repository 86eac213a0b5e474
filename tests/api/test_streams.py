"""Claim: whatever becomes of stdout and stderr, the exit code is the answer's; no traceback."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
from cases.samples import first, sampled

from mmcc._cli.standard_streams import lasting_streams

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes and /dev/full")

EPSILON = (
    "epsilon --strategy binary-tree --steps 8 --sampling poisson --prob 1/8 --sigma 10 --delta 1e-6"
)
AUDIT = "audit --strategy binary-tree --steps 4 --sampling poisson --prob 1/2 --sigma 2 --delta 0.1"
VIOLATED = f"{AUDIT} --runs 1000 --epsilon 0.01"
PLAIN = f"{EPSILON} --method unamplified --json"
REPORT = PLAIN.replace("epsilon", "report", 1).replace(
    "--json", "--seconds 0 --out - --format markdown"
)


def run(line: str, *, stdout, stderr=subprocess.PIPE, **options) -> tuple[int, str]:
    command = [sys.executable, "-m", "mmcc", *shlex.split(line)]
    done = subprocess.run(command, stdout=stdout, stderr=stderr, timeout=1800, **options)
    return done.returncode, (done.stderr or b"").decode()


def encoded(name: str) -> dict[str, str]:
    return os.environ | {"PYTHONIOENCODING": name}


@pytest.fixture
def gone():
    """The end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--help", 0),
        ("--version", 0),
        ("epsilon --help", 0),
        pytest.param(EPSILON, 0, marks=pytest.mark.slow),
        (f"{VIOLATED} --json", 1),
        pytest.param(f"{EPSILON} --json", 0, marks=pytest.mark.slow),
        pytest.param(VIOLATED, 1, marks=pytest.mark.slow),
        ("epsilo", 2),
    ],
)
def test_a_reader_who_has_gone_does_not_change_the_answer(gone, line, code):
    found, said = run(line, stdout=gone)
    assert found == code
    assert said.startswith("mmcc: unknown command") if code == 2 else said == ""


@pytest.mark.parametrize(
    ("line", "code", "encoding"),
    sampled([("--help", 0), ("--version", 0), ("epsilo", 2)], ["ascii", "utf-8"], strength=1),
)
def test_nor_does_one_who_read_errors_too(gone, line, code, encoding):
    assert run(line, stdout=gone, stderr=gone, env=encoded(encoding))[0] == code


@pytest.mark.parametrize("line", first([PLAIN, "--version", EPSILON, "--help"], 1))
def test_a_full_disk_is_one_line(line):
    with open("/dev/full", "w") as full:
        found, said = run(line, stdout=full)
    assert (found, said) == (2, "mmcc: cannot read or write: No space left on device.\n")


@pytest.mark.parametrize(
    ("line", "code"), [("--help", 0), ("--version", 0), (PLAIN, 0), ("epsilo", 2)]
)
def test_closed_streams(line, code):
    for closed in (">&-", ">&- 2>&-"):
        command = f"{shlex.quote(sys.executable)} -m mmcc {line} {closed}"
        done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=1800)
        assert done.returncode == code
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "encoding"),
    [
        (REPORT, "ascii"),
        pytest.param(REPORT, "cp1252", marks=pytest.mark.slow),
        ("--help", "ascii"),
    ],
)
def test_letters_that_the_encoding_lacks(tmp_path, line, encoding):
    file = tmp_path / "printed"
    with file.open("wb") as stdout:
        assert run(line, stdout=stdout, env=encoded(encoding)) == (0, "")
    printed = file.read_text(encoding=encoding)
    if line == REPORT:
        assert "\\u03b5" in printed


def test_the_streams_of_the_process_come_back():
    before = sys.stdout, sys.stderr
    with lasting_streams():
        assert (sys.stdout, sys.stderr) != before
    assert (sys.stdout, sys.stderr) == before
