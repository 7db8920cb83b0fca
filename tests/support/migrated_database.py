"""A migrated database for the tests of one module, with transactions that leave nothing behind:
migrating costs more than most tests."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, make_url
from sqlalchemy.orm import Session

from gonogo_storage.db.engine import make_engine
from gonogo_storage.ops import schema
from servers import administer


def migrated(request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """For a fixture of a module with the params "sqlite" and "postgres"."""
    admin, name = "", f"gonogo_test_{uuid.uuid4().hex}"
    if request.param == "sqlite":
        url = f"sqlite:///{factory.mktemp('rolled') / 'gonogo.sqlite'}"
    else:
        admin = os.environ.get("GONOGO_TEST_DATABASE_URL") or str(
            request.getfixturevalue("postgres_server").url()
        )
        administer(admin, f"CREATE DATABASE {name}")
        url = (
            make_url(admin)
            .set(drivername="postgresql+psycopg", database=name)
            .render_as_string(hide_password=False)
        )
    engine = make_engine(url)
    schema.upgrade(engine)
    yield engine
    engine.dispose()
    if admin:
        administer(admin, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def back(engine: Engine) -> Iterator[Session]:
    """A write transaction that is rolled back at its end."""
    with Session(engine, expire_on_commit=False) as current:
        yield current
        current.rollback()
