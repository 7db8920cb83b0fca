"""Every test here needs the simulated Wormhole: skipped with the reason where there is none, failed
where GONOGO_REQUIRE names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulated_wormhole import Child
from tests.wormhole import place


@pytest.fixture(scope="session")
def builds() -> Path:
    """Return the builds file of the simulator."""
    try:
        return place.find()
    except place.Unavailable as problem:
        pytest.skip(f"simulator: {problem}")


@pytest.fixture(scope="module")
def child(builds: Path) -> Iterator[Child]:
    """One child with an open device for a module's tests."""
    new_child = Child(builds)
    yield new_child
    new_child.host.close()
