"""The schema: migrations give what the tables say, on both databases; partitions; readiness."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from gonogo.errors import JobError
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import partitions
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.engine import is_postgres, make_engine, normalize, session
from gonogo_service.operate import schema
from gonogo_service.operate.schema import SchemaState
from gonogo_service.results import results
from gonogo_service.results.batch import Batch
from job_flow import new_job


def test_migrated_schema_is_the_one_of_the_tables(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    assert schema.state(engine) is SchemaState.empty
    schema.upgrade(engine)
    assert schema.state(engine) is SchemaState.head
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "include_name": _include_name}
        )
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def _include_name(name: str | None, kind: str, parents: object) -> bool:
    return not (kind == "table" and name is not None and name.startswith("seed_results_"))


def test_upgrade_from_several_processes_at_once_migrates_once(empty_database_url: str) -> None:
    engines = [make_engine(empty_database_url) for _ in range(3)]
    problems: list[BaseException] = []

    def upgrade(engine: Engine) -> None:
        try:
            schema.upgrade(engine)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=upgrade, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
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


def test_seed_results_are_partitioned_by_month_on_postgres(postgres_url: str) -> None:
    engine = make_engine(postgres_url)
    schema.upgrade(engine)
    with engine.begin() as connection:
        assert partitions.ensure(connection) == []  # upgrade created them
        new_partitions = partitions.ensure(
            connection, now=datetime(2031, 11, 5, tzinfo=UTC), months=2
        )
        assert new_partitions == [
            "seed_results_2031_11",
            "seed_results_2031_12",
            "seed_results_2032_01",
        ]
    with session(engine) as current:
        job = jobs.create(current, new_job(1))
        job_row = current.get_one(JobRow, job.id)
        row = {"seed": 0, "repeat": 0, "verdict": "hang"}
        results.add(current, job_row, job.id, Batch.of([row]), arrival=0)
        current.flush()
        home = current.scalar(text("SELECT tableoid::regclass::text FROM seed_results"))
    assert home == f"seed_results_{datetime.now(UTC):%Y_%m}"
    assert is_postgres(engine)
    assert "seed_results_default" in inspect(engine).get_table_names()
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
