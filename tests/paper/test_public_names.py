"""Claim: the studies ask mmcc for nothing but its public names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from cases import public_api

FILES = sorted((Path(__file__).parents[2] / "paper").glob("*.py"))
PUBLIC = {module: set(public_api.names(import_module(module))) for module in public_api.modules()}
"""Packages and what they export."""


def refused(source: str) -> list[str]:
    """Names of mmcc that are used and not public."""
    tree = ast.parse(source)
    bound: dict[str, str] = {}
    wrong = []
    for module, name, known_as in _imports(tree):
        path = f"{module}.{name}" if name else module
        if path in PUBLIC:
            bound[known_as] = path
        elif name not in PUBLIC.get(module, ()):
            wrong.append(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            module = _path(node.value, bound)
            path = f"{module}.{node.attr}"
            if module in PUBLIC and path not in PUBLIC and node.attr not in PUBLIC[module]:
                wrong.append(path)
    return wrong


def _imports(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Module, name (empty for the module itself) and what the file calls it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name.partition(".")[0] == "mmcc":
                    yield one.name, "", one.asname or one.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "mmcc":
            for one in node.names:
                yield str(node.module), one.name, one.asname or one.name


def _path(node: ast.expr, bound: dict[str, str]) -> str:
    """The module that an expression names; empty if it names none."""
    if isinstance(node, ast.Name):
        return bound.get(node.id, "")
    if isinstance(node, ast.Attribute):
        return f"{_path(node.value, bound)}.{node.attr}"
    return ""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_only_public_names_are_used(file):
    assert refused(file.read_text(encoding="utf-8")) == []


def test_there_are_files_that_use_mmcc():
    assert len(FILES) > 20
    assert any("import mmcc\n" in file.read_text(encoding="utf-8") for file in FILES)


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("import mmcc\nmmcc.epsilon(mmcc.strategies.identity(4))", []),
        ("from mmcc import sampling as s\ns.Poisson(0.1)", []),
        ("from mmcc.errors import MmccError\nimport mmcc.utility", []),
        ("import numpy\nnumpy.anything", []),
        ("import mmcc.accounting._questions", ["mmcc.accounting._questions"]),
        ("from mmcc import _doctor", ["mmcc._doctor"]),
        ("def f():\n    from mmcc._arrays import FloatArray", ["mmcc._arrays.FloatArray"]),
        ("from mmcc.strategies._base import Strategy", ["mmcc.strategies._base.Strategy"]),
        ("from mmcc import strategies\nstrategies._geometry", ["mmcc.strategies._geometry"]),
        ("import mmcc\nmmcc.accounting._questions.TIGHT", ["mmcc.accounting"]),
    ],
)
def test_other_names_are_noticed(source, wrong):
    assert refused(source) == wrong
