"""Claim: the archives hold the library and nothing else, and the README's commands work from them.

The slow tests install the wheel in a new environment, away from this tree; they need a package
index.  `pytest -m slow tests/release -k first_command` for one of them.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import mmcc

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LARGEST = 4_000_000
"""Bytes of the source archive: most of it are the figures that its own tests read."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The source archive, and the wheel built from it: without a network, by what is installed."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling", reason="archives were NOT built: pip install hatchling.")
    folder = tmp_path_factory.mktemp("archives")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stdout + run.stderr
    [source] = folder.glob("*.tar.gz")
    [wheel] = folder.glob("*.whl")
    return source, wheel


def sources():
    """What the package consists of, as the tree has it."""
    package = ROOT / "src" / "mmcc"
    return {
        str(file.relative_to(package.parent))
        for file in package.rglob("*")
        if file.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(file.parts)
    }


def test_the_wheel_is_the_package_and_nothing_else(archives):
    with zipfile.ZipFile(archives[1]) as wheel:
        names = set(wheel.namelist())
    about = {name for name in names if name.startswith(f"mmcc-{mmcc.__version__}.dist-info/")}
    assert names - about == sources()
    assert "mmcc/py.typed" in names
    assert {name.partition(".dist-info/")[2] for name in about} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    }
    assert archives[1].name == f"mmcc-{mmcc.__version__}-py3-none-any.whl"


def test_the_wheel_says_what_it_is(archives):
    with zipfile.ZipFile(archives[1]) as wheel:
        text = wheel.read(f"mmcc-{mmcc.__version__}.dist-info/METADATA").decode()
        commands = wheel.read(f"mmcc-{mmcc.__version__}.dist-info/entry_points.txt").decode()
    about = Parser().parsestr(text)
    assert about["Name"] == "mmcc"
    assert about["Version"] == mmcc.__version__
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.10"
    assert "Typing :: Typed" in about.get_all("Classifier")
    assert about.get_payload().startswith("# mmcc")
    assert "mmcc = mmcc._cli.app:main" in commands
    required = {
        re.match(r"[\w-]+", line).group()
        for line in about.get_all("Requires-Dist")
        if "extra ==" not in line
    }
    assert not required & {"torch", "opacus", "matplotlib", "dash", "jinja2", "dp-accounting"}


def test_the_source_archive_is_small_and_can_be_tested(archives):
    assert archives[0].stat().st_size < LARGEST
    with tarfile.open(archives[0]) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {f"src/{name}" for name in sources()} <= names
    tracked = ("tests", "docs", "examples", "benchmarks", "paper")
    assert all(any(name.startswith(f"{folder}/") for name in names) for folder in tracked)
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "SECURITY.md"} <= names
    unwanted = re.compile(r"(^|/)(__pycache__|\.venv|\.git|dist|build)/|\.pyc$")
    assert not [name for name in names if unwanted.search(name)]


def test_an_index_would_take_the_archives(archives):
    """What `twine check` looks at: the metadata, and whether the README can be rendered."""
    pytest.importorskip("twine", reason="archives were NOT checked: pip install twine.")
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, archives)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("PASSED") == 2


def test_the_page_of_releases_states_the_sizes_and_this_version(archives):
    page = " ".join((ROOT / "docs" / "releases.md").read_text(encoding="utf-8").split())
    assert f"mmcc-{mmcc.__version__}-py3-none-any.whl" in page
    assert "not on a package index yet" in page
    stated = re.search(r"wheel has ([\d.]+) MB, the source archive ([\d.]+) MB", page).groups()
    for file, megabytes in zip(reversed(archives), map(float, stated), strict=True):
        assert file.stat().st_size == pytest.approx(1e6 * megabytes, rel=0.15)


def readme_command(number):
    """What the n-th shell block runs once mmcc is installed, without the environment's path."""
    block = re.findall(r"^```sh\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)[number]
    return shlex.split(block.rpartition("&& .venv/bin/")[2])


def installed(archives, folder, extra=""):
    """A new environment with the wheel; its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    programs = folder / "venv" / "bin"
    wanted = f"mmcc{extra} @ {archives[1].as_uri()}"
    subprocess.run([programs / "pip", "install", "-q", wanted], check=True)
    return programs


def run_there(programs, words, folder):
    """Away from the tree, and without its path."""
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(
        [programs / words[0], *words[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_first_command_answers_from_the_wheel(archives, tmp_path):
    programs = installed(archives, tmp_path)
    run = run_there(programs, readme_command(0), tmp_path)
    assert run.returncode == 0, run.stderr
    pattern = r"^epsilon +(\S+)"
    shown = re.search(pattern, README, flags=re.MULTILINE).group(1)
    assert re.search(pattern, run.stdout, flags=re.MULTILINE).group(1) == shown


@pytest.mark.slow
def test_the_tests_pass_against_the_wheel(archives, tmp_path):
    """Those of the source archive, whose src is taken away, so that only the wheel can answer."""
    programs = installed(archives, tmp_path, "[test]")
    with tarfile.open(archives[0]) as source:
        source.extractall(tmp_path, filter="data")
    [tree] = tmp_path.glob("mmcc-*/")
    (tree / "src").rename(tmp_path / "unused")
    run = run_there(programs, [*readme_command(1), "--ignore=tests/release"], tree)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
