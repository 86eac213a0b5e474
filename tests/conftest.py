"""Shared settings: what runs by default is repeatable; `slow` tests run when -m asks for them.

Hypothesis draws the same examples every time, a third of what a test allows, so that a red run is
a change and not bad luck; `pytest --hypothesis-profile=search` looks for new ones, for all of them.
"""

from __future__ import annotations

import os
from typing import Any

# Before numpy is imported: workers that each start threads for small matrices wait for each other.
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
os.environ["MMCC_CACHE"] = "off"  # nothing is taken over from other runs, or left for them

import hypothesis  # noqa: E402
import pytest  # noqa: E402

hypothesis.settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # by the clock of a busy machine
)
hypothesis.settings.register_profile("search", deadline=None, print_blob=True)
hypothesis.settings.load_profile("repeatable")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: many tests wait for a browser or for other processes."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Workers begin with a half each, in order: what a file's tests share is made once."""
    from xdist.scheduler import WorkStealingScheduling

    plain = config.getoption("dist") == "load"  # what -n alone means
    return WorkStealingScheduling(config, log) if plain else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("-m"):
        return
    slow = [item for item in items if "slow" in item.keywords]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if "slow" not in item.keywords]
