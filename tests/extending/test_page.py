"""Claim: docs/extending.md is made of exactly these examples, and they are as short as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "extending.md"


@pytest.mark.parametrize(
    ("name", "most"), [("exactly", 35), ("falling", 25), ("all_or_nothing", 20)]
)
def test_the_page_shows_the_example_that_is_tested(name, most):
    source = (HERE / f"{name}.py").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert source in blocks
    assert len([line for line in source.splitlines() if line.strip()]) <= most
