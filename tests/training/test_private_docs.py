"""Claim: what docs/training.md shows is what the software does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("opacus")

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert "-DP, certified by" in capsys.readouterr().out
