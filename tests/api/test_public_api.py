"""Claim: no public name, signature or option changes without anyone noticing."""

from __future__ import annotations

import difflib

import pytest
from cases import public_api

TRAINING = "mmcc.training"


@pytest.mark.parametrize("module", public_api.modules())
def test_the_interface_is_the_stored_one(module):
    if module == TRAINING:
        for package in ("torch", "opacus", "transformers", "lightning"):
            pytest.importorskip(package)
    was, now = public_api.stored(module), public_api.lines(module)
    changes = "\n".join(difflib.unified_diff(was, now, "stored", "now", lineterm="", n=0))
    assert was == now, (
        f"{changes}\nIf this is meant: python tests/cases/public_api.py, "
        "and a line in CHANGELOG.md."
    )


def test_what_users_were_promised_is_stored():
    """Signatures that scripts rely on, written out by hand: the file is not empty or of shadows."""
    assert "mmcc.sampling.CyclicPoisson(probability: float, separation: int) is a Scheme" in (
        public_api.stored("mmcc.sampling")
    )
    assert any(
        line.startswith(
            "mmcc.epsilon(strategy: Strategy, sampling: Scheme, *, sigma: float, delta:"
        )
        and line.endswith("-> Guarantee")
        for line in public_api.stored("mmcc")
    )
    assert "mmcc.Bracket.upper: float" in public_api.stored("mmcc")
    assert "mmcc.MmccError: ValueError" in public_api.stored("mmcc")
    assert "mmcc epsilon --sigma" in public_api.stored("mmcc._cli.app")
    assert not [line for line in public_api.STORED.read_text().splitlines() if " at 0x" in line]
