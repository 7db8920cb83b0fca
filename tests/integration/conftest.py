"""A transaction on a database that the tests of a module share, and the flow of jobs within it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

import migrated_database
from stored_flow import Flow


@pytest.fixture(scope="module")
def module_engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A migrated database: SQLite, or both where a test says BOTH_ENGINES (database_params.py)."""
    yield from migrated_database.migrated(request, tmp_path_factory)


@pytest.fixture
def current(module_engine: Engine) -> Iterator[Session]:
    """A write transaction, rolled back at its end."""
    with migrated_database.back(module_engine) as transaction:
        yield transaction


@pytest.fixture
def flow(current: Session) -> Flow:
    """The flow of jobs within that transaction."""
    return Flow(current)
