"""A migrated database for the tests of one module, with transactions that leave nothing behind: a
copy of the template, since migrating costs more than most tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from shutil import copyfile

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

import postgres_databases
from gonogo_service.kit.database.engine import make_engine


def migrated(request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """For a fixture of a module: SQLite, or the database that its parameter names."""
    if getattr(request, "param", "sqlite") == "sqlite":
        file = factory.mktemp("rolled") / "gonogo.sqlite"
        copyfile(request.getfixturevalue("sqlite_template"), file)
        yield from _connected(f"sqlite:///{file}")
        return
    admin = str(request.getfixturevalue("postgres_admin"))
    template = str(request.getfixturevalue("postgres_template"))
    with postgres_databases.fresh(admin, template) as (url, _):
        yield from _connected(url)


def _connected(url: str) -> Iterator[Engine]:
    engine = make_engine(url)
    yield engine
    engine.dispose()


@contextmanager
def back(engine: Engine) -> Iterator[Session]:
    """A write transaction that is rolled back at its end."""
    with Session(engine, expire_on_commit=False) as current:
        yield current
        current.rollback()
