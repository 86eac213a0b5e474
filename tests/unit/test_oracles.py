"""Claim: the oracles know nothing of the package that is tested, directly or by way of others."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "oracles"
ALLOWED = {"mpmath", "numpy", "oracles", "scipy", "torch"}
"""And the standard library."""
STANDARD = {
    "__future__",
    "collections",
    "dataclasses",
    "fractions",
    "functools",
    "itertools",
    "math",
    "struct",
    "typing",
}


def imported(source: str) -> set[str]:
    """First parts of the names of all modules that a file imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or "").partition(".")[0])
        elif isinstance(node, ast.Name) and node.id in ("__import__", "import_module"):
            found.add(node.id)
    return found


@pytest.mark.parametrize("file", sorted(FOLDER.glob("**/*.py")), ids=lambda file: file.stem)
def test_nothing_of_mmcc_is_imported(file):
    assert imported(file.read_text(encoding="utf-8")) <= ALLOWED | STANDARD


def test_imports_are_found():
    source = "def f():\n    from mmcc.accounting import x\nimport a.b as c\nfrom .d import e"
    assert imported(source) == {"mmcc", "a", ".d"}
    assert len(list(FOLDER.glob("*.py"))) >= 8
