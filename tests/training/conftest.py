"""What several files of tests ask for together, because it is dear."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def nursery():
    """Groups of processes; the files that ask have looked whether torch is there."""
    from cases import peers

    nursery = peers.Nursery()
    yield nursery
    nursery.close()
