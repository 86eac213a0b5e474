"""Claim: packages import downwards: strategies know nothing of accounting, nor it of design."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mmcc

PACKAGE = Path(mmcc.__file__).parent
PICTURES = "mmcc.plots."
ABOVE = {
    "sampling": ("accounting", "design", "utility"),
    "strategies": ("accounting", "design", "utility"),
    "accounting": ("design", "utility"),
}
"""What the modules of a package may not import: not in functions either, nor for types alone."""


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("package", ABOVE)
def test_nothing_is_imported_from_above(package):
    forbidden = tuple(f"mmcc.{name}" for name in ABOVE[package])
    for path in (PACKAGE / package).rglob("*.py"):
        if path.parent == PACKAGE / package and path.name == "__init__.py":
            continue  # public names that are made further up: `strategies.optimise`
        found = [
            name for name in imports(ast.parse(path.read_text())) if name.startswith(forbidden)
        ]
        assert not found, f"{path.relative_to(PACKAGE)} imports {found}"


def test_design_imports_at_the_top():
    for path in (PACKAGE / "design").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                found = [name for name in imports(node) if name.startswith("mmcc")]
                # Pictures are drawn when someone asks a result for one.
                assert not [name for name in found if not name.startswith(PICTURES)], path.name
