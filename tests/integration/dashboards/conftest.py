"""A service on an empty database, as the pages' tests ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from api import Api, in_process
from gonogo_service.kit.database.engine import make_engine


@pytest.fixture
def api(migrated_sqlite_url: str) -> Iterator[Api]:
    with in_process(migrated_sqlite_url) as service:
        yield service


@pytest.fixture
def engine(migrated_sqlite_url: str) -> Iterator[Engine]:
    """For what reads pages without the service; test_pages_on_postgresql.py asks PostgreSQL."""
    database_engine = make_engine(migrated_sqlite_url)
    yield database_engine
    database_engine.dispose()
