"""Shared settings: what runs by default is repeatable; `slow` tests run when -m asks for them.

Hypothesis draws the same examples every time, so that a red run means a change and not bad luck;
`pytest --hypothesis-profile=search` looks for new ones.
"""

from __future__ import annotations

import hypothesis
import pytest

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", deadline=None, print_blob=True)
hypothesis.settings.load_profile("repeatable")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("-m"):
        return
    slow = [item for item in items if "slow" in item.keywords]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if "slow" not in item.keywords]
