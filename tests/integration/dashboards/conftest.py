"""A service on an empty database, as the pages' tests ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api import Api, in_process


@pytest.fixture
def api(migrated_sqlite_url: str) -> Iterator[Api]:
    with in_process(migrated_sqlite_url) as service:
        yield service
