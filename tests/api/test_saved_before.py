"""Claim: strategies that an earlier version saved are read to the last bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mmcc import strategies

SAVED = Path(__file__).parents[1] / "saved" / "0.9.0"
EXPECTED = json.loads((SAVED / "strategies.json").read_text(encoding="utf-8"))
"""What each file's strategy printed, and its matrix, as the version that wrote it had them."""

EXACT = {"blt": "blt(8, decay=[0.7103619999999999], scale=[0.476487])"}
"""What is printed to the last bit by now: the version that wrote them showed six digits."""


def test_every_kind_is_there():
    assert {path.stem for path in SAVED.glob("*.npz")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_saved_strategy_is_read_as_it_was(name, tmp_path):
    found = strategies.load(SAVED / f"{name}.npz")
    assert repr(found) == EXACT.get(name, EXPECTED[name]["repr"])
    expected = [[float.fromhex(entry) for entry in row] for row in EXPECTED[name]["matrix"]]
    assert found.to_dense().tolist() == expected
    strategies.save(found, tmp_path / "again.npz")
    again = strategies.load(tmp_path / "again.npz")
    assert (type(again), repr(again)) == (type(found), repr(found))
    assert again.to_dense().tolist() == expected
