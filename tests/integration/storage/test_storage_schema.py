"""The schema: migrations give what the tables say, on both databases; readiness."""

from __future__ import annotations

from functools import partial

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from at_once import at_once
from gonogo.errors import JobError
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.engine import make_engine, normalize
from gonogo_service.operate import schema
from gonogo_service.operate.schema import SchemaState


def test_migrated_schema_is_the_one_of_the_tables(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    assert schema.state(engine) is SchemaState.empty
    schema.upgrade(engine)
    assert schema.state(engine) is SchemaState.head
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_text_has_one_order_whatever_the_databases_language(migrated_postgres_url: str) -> None:
    engine = make_engine(migrated_postgres_url)
    others = text(
        "SELECT table_name, column_name FROM information_schema.columns WHERE data_type = 'text' "
        "AND table_schema = 'public' AND collation_name IS DISTINCT FROM 'C'"
    )
    with engine.connect() as connection:
        assert connection.execute(others).all() == []
    engine.dispose()


def test_upgrade_from_several_processes_at_once_migrates_once(empty_database_url: str) -> None:
    engines = [make_engine(empty_database_url) for _ in range(3)]
    at_once(*(partial(schema.upgrade, engine) for engine in engines))
    assert schema.state(engines[0]) is SchemaState.head
    for engine in engines:
        engine.dispose()


def test_unknown_revision_is_ahead_and_is_left_alone(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    schema.upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'from-tomorrow'"))
    assert schema.state(engine) is SchemaState.ahead
    assert schema.upgrade(engine) is SchemaState.ahead
    engine.dispose()


def test_sqlite_is_set_up_for_several_processes(sqlite_url: str) -> None:
    engine = make_engine(sqlite_url)
    with engine.connect() as connection:
        values = {
            name: connection.scalar(text(f"PRAGMA {name}"))
            for name in ("journal_mode", "busy_timeout", "foreign_keys")
        }
    assert values == {"journal_mode": "wal", "busy_timeout": 30000, "foreign_keys": 1}
    engine.dispose()


def test_other_databases_are_refused_by_name() -> None:
    assert normalize("postgresql://a@b/c").drivername == "postgresql+psycopg"
    with pytest.raises(JobError, match="mysql"):
        normalize("mysql://a@b/c")
