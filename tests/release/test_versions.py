"""Claim: one semantic version, the same wherever it is written, and a citation to match."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mmcc

ROOT = Path(__file__).parents[2]
SEMANTIC = r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"


def changelog_headings():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return re.findall(r"^## \[(.+?)\]", text, flags=re.MULTILINE)


def test_the_version_is_semantic():
    assert re.fullmatch(SEMANTIC, mmcc.__version__)


def test_the_changelog_has_it_on_top():
    """`Unreleased` may stand above it, for what comes next."""
    released = [name for name in changelog_headings() if name != "Unreleased"]
    assert released[0] == mmcc.__version__
    assert all(re.fullmatch(SEMANTIC, name) for name in released)
    numbers = [tuple(map(int, name.split("."))) for name in released]
    assert numbers == sorted(set(numbers), reverse=True)


def test_every_release_says_which_bounds_changed():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = re.split(r"^## \[", text, flags=re.MULTILINE)[1:]
    for entry in entries:
        if not entry.startswith("Unreleased"):
            assert "### Bounds changed" in entry, entry.splitlines()[0]


def test_the_citation_is_of_this_version():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)  # what the format needs
    assert citation["version"] == mmcc.__version__
    assert citation["license"] == "Apache-2.0"
    [paper] = citation["references"]
    assert paper["title"] == "Privacy Amplification for Matrix Mechanisms"
    assert paper["title"] in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_deprecation_has_rules():
    """How long, how it is told, where it is listed; what is not deprecated but removed."""
    page = " ".join((ROOT / "docs" / "releases.md").read_text(encoding="utf-8").split())
    for words in ("minor release", "six months", "DeprecationWarning", "major release", "Unsound"):
        assert words in page


def test_security_says_where_and_what():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for words in (
        "private vulnerability reporting",
        "Bounds changed",
        "too small",
        "tests/soundness",
    ):
        assert words in text
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
