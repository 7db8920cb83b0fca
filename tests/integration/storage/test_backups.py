"""Backups of one database, restored into the other: the same rows, and no message sent twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import func, select

import populated_copy
import stored_jobs
from api import in_process
from gonogo_service.webhooks import messages
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.engine import make_engine, session
from gonogo_storage.jobs import jobs
from gonogo_storage.ops import backups, retention, row_files, schema
from gonogo_storage.ops.retention import Policy, Tier
from gonogo_storage.ops.row_files import BadFile, Tables
from gonogo_storage.tables import AnswerRow, DeliveryRow, JobRow, LeaseRow, OutboxRow


class Backup(NamedTuple):
    """A backup of a database with a little of everything."""

    path: Path
    contents: Tables


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory, shared_folder: Path) -> Backup:
    """A backup of an SQLite database."""
    folder = tmp_path_factory.mktemp("backup")
    populated_copy.copy(shared_folder / "house", folder / "gonogo.sqlite")
    with in_process(f"sqlite:///{folder / 'gonogo.sqlite'}") as api:
        later = utcnow() + timedelta(days=2)
        policy = Policy({Tier.seeds: 1})
        assert retention.prune(api.context.engine, policy, now=later, actor="test")
        path = folder / "backup.sqlite"
        contents = backups.backup(api.context.engine, path)
    assert sorted(folder.glob("backup*")) == [path]
    return Backup(path, contents)


def test_a_restored_database_has_the_rows_of_the_backup_and_so_has_its_own_backup(
    backup: Backup, empty_database_url: str, tmp_path: Path
) -> None:
    engine = make_engine(empty_database_url)
    assert backups.restore(backup.path, engine, send_due=True) == backup.contents
    filled = [name for name, table in backup.contents.items() if table.rows]
    assert len(filled) > 0.7 * len(backup.contents)
    again = backups.backup(engine, tmp_path / "again.sqlite")
    assert again == backup.contents | {"leases": again["leases"]}
    assert again["leases"].rows == 0  # they were those of other processes
    with session(engine) as current:  # and it goes on
        assert stored_jobs.finished(current).state == "finished"
    engine.dispose()


def test_nothing_that_may_have_been_sent_is_sent_again(backup: Backup, sqlite_url: str) -> None:
    waiting = select(func.count()).select_from(DeliveryRow).where(DeliveryRow.due_at.is_not(None))
    events = select(func.count()).select_from(OutboxRow)
    events = events.where(OutboxRow.due_at.is_not(None), OutboxRow.topic.in_(messages.TYPES))
    unreported = select(func.count()).select_from(AnswerRow).where(AnswerRow.due_at.is_not(None))
    with sqlite3.connect(backup.path) as source:
        (before,) = source.execute(
            "SELECT count(*) FROM webhook_deliveries WHERE due_at IS NOT NULL"
        ).fetchone()
        (jobs_ended,) = source.execute(
            "SELECT count(*) FROM outbox WHERE due_at IS NOT NULL AND topic = 'job.finished'"
        ).fetchone()
    assert before > 0
    assert jobs_ended > 0
    engine = make_engine(sqlite_url)
    backups.restore(backup.path, engine)
    with session(engine) as current:
        assert (current.scalar(waiting), current.scalar(unreported)) == (0, 0)
        assert current.scalar(events) == 0
        cancelled = select(func.count()).select_from(DeliveryRow)
        assert current.scalar(cancelled.where(DeliveryRow.state == "cancelled")) >= before
        assert current.scalar(select(func.count()).select_from(LeaseRow)) == 0
    engine.dispose()


def test_a_backup_shows_the_database_of_one_moment(database_url: str, tmp_path: Path) -> None:
    engine = make_engine(database_url)
    with session(engine) as current:
        stored_jobs.finished(current)
    batches = row_files.batches
    written: list[str] = []

    def while_others_write(*arguments: object) -> Iterator[list[dict[str, object]]]:
        yield from batches(*arguments)  # type: ignore[arg-type]
        if not written:
            with session(engine) as current:
                written.append(jobs.create(current, stored_jobs.new()).id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_files, "batches", while_others_write)
        contents = backups.backup(engine, tmp_path / "backup.sqlite")
    assert written
    assert contents["jobs"].rows == 1
    engine.dispose()


def _broken(backup: Backup, path: Path, statement: str) -> Path:
    path.write_bytes(backup.path.read_bytes())
    with sqlite3.connect(path) as copy:
        assert copy.execute(statement).rowcount != 0
    return path


@pytest.mark.parametrize(
    ("statement", "words", "target"),
    [
        ("UPDATE jobs SET build = 'other'", "is damaged: jobs should have", "sqlite_url"),
        ("DELETE FROM seed_results", "is damaged: seed_results should have", "postgres_url"),
        ("DROP TABLE backup_contents", "is a database but no backup", "sqlite_url"),
        ("UPDATE alembic_version SET version_num = 'r9'", "schema that is ahead", "sqlite_url"),
    ],
)
def test_a_damaged_backup_is_refused_and_the_database_stays_empty(
    backup: Backup,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    statement: str,
    words: str,
    target: str,
) -> None:
    engine = make_engine(request.getfixturevalue(target))
    with pytest.raises(BadFile, match=words):
        backups.restore(_broken(backup, tmp_path / "broken", statement), engine)
    if schema.state(engine) is not schema.SchemaState.empty:
        with session(engine) as current:
            assert current.scalar(select(func.count()).select_from(JobRow)) == 0
    engine.dispose()


def test_only_an_empty_database_is_filled_and_no_file_is_overwritten(
    backup: Backup, database_url: str, tmp_path: Path
) -> None:
    engine = make_engine(database_url)
    with session(engine) as current:
        jobs.create(current, stored_jobs.new())
    with pytest.raises(BadFile, match="the database has rows in"):
        backups.restore(backup.path, engine)
    with pytest.raises(FileExistsError, match="exists already"):
        backups.backup(engine, backup.path)
    for content in (b"", b"text", backup.path.read_bytes()[:5000]):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(BadFile):
            backups.restore(tmp_path / "other", engine)
    engine.dispose()
