"""Every test starts with a process that has verified nothing."""

from __future__ import annotations

import pytest

from mmcc._simulation import record


@pytest.fixture(autouse=True)
def nothing_tried(monkeypatch):
    monkeypatch.setattr(record, "_remembered", {})
