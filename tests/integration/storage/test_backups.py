"""`gonogo db backup` and `gonogo db restore` on real SQLite and PostgreSQL databases."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, insert, select
from sqlalchemy.engine import make_url

import stored_jobs
import stored_webhooks
from api import in_process
from gonogo import settings
from gonogo.cli.__main__ import main
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit import audit
from gonogo_service.kit.audit import AuditRow
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.engine import make_engine, reading, session
from gonogo_service.kit.idempotency import IdempotencyRow
from gonogo_service.kit.outbox.model import LeaseRow, OutboxRow
from gonogo_service.operate import backups
from gonogo_service.webhooks.model import DeliveryRow

Gonogo = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def _tools(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """pg_dump and pg_restore are those of the server."""
    if "GONOGO_TEST_DATABASE_URL" not in os.environ and "postgres" in request.node.name:
        tools = request.getfixturevalue("postgres_server").tools
        monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)


@pytest.fixture
def gonogo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gonogo:
    """The command `gonogo db` on the database of a URL: its exit code, and what it printed."""

    def run(url: str, *words: str) -> tuple[int, str]:
        monkeypatch.setenv("GONOGO_DATABASE_URL", url)
        settings.load.cache_clear()
        monkeypatch.setattr(sys, "argv", ["gonogo", "db", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        done = capsys.readouterr()
        return int(ended.value.code or 0), done.out + done.err

    return run


@pytest.fixture
def second_url(database_url: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database of the same kind."""
    if database_url.startswith("sqlite"):
        return f"sqlite:///{tmp_path / 'second.sqlite'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The backup."""
    return tmp_path / "backup"


OF_PROCESSES = ("leases", "due_work")
"""Tables of what the processes of one service have to do."""


def _rows(engine: Engine) -> dict[str, list[str]]:
    tables = [table for table in Base.metadata.sorted_tables if table.name not in OF_PROCESSES]
    with reading(engine) as current:
        return {
            table.name: sorted(str(tuple(row)) for row in current.execute(select(table)))
            for table in tables
        }


def _fill(engine: Engine) -> None:
    with session(engine) as current:
        for wrong in (True, False):
            stored_jobs.finished(current, wrong=wrong)
        stored_jobs.submit(current)
        audit.record(current, actor="me", action="job.submitted", subject="x", detail={"é": [1.5]})


def test_a_restored_service_is_ready_and_has_every_row(
    database_url: str, second_url: str, file: Path, gonogo: Gonogo
) -> None:
    with in_process(database_url) as api:
        _fill(api.context.engine)
        before = _rows(api.context.engine)
        code, out = gonogo(database_url, "backup", str(file), "--json")
        assert (code, json.loads(out)) == (0, {"file": str(file), "bytes": file.stat().st_size})
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.parent.glob("backup*")] == ["backup"]
    code, out = gonogo(second_url, "restore", str(file))
    assert (code, "the schema is head" in out) == (0, True)
    with in_process(second_url) as api:
        assert _rows(api.context.engine) == before
        missing = api.client.get("/readyz").json()["errors"]
        assert [part["field"] for part in missing] == ["broker"]  # this test has none
        assert len(api.get("/jobs")["items"]) == 3
        api.submit()


def test_nothing_that_may_have_been_sent_is_sent_again(
    engine: Engine, second_url: str, file: Path
) -> None:
    _fill(engine)
    with session(engine) as current:
        current.add(LeaseRow(name="delivery", holder="old", until=0.0))
        stored_webhooks.with_messages(current, 2)
    backups.backup(engine, file)
    restored = make_engine(second_url)
    backups.restore(file, restored)
    with reading(restored) as current:
        assert {row.state for row in current.scalars(select(DeliveryRow))} == {"cancelled"}
        assert not list(current.scalars(select(DeliveryRow).where(DeliveryRow.due_at.is_not(None))))
        due = select(OutboxRow.topic).where(OutboxRow.due_at.is_not(None))
        assert set(current.scalars(due)) == {"assess"}
        assert current.scalar(select(func.count()).select_from(LeaseRow)) == 0
    restored.dispose()


def test_a_backup_shows_the_database_of_one_moment(
    engine: Engine, second_url: str, file: Path
) -> None:
    """Every transaction of the writer stores rows in two tables."""
    stop, written = threading.Event(), 0

    def write() -> None:
        nonlocal written
        while not stop.is_set():
            with session(engine) as current:
                stored_jobs.submit(current)
                audit.record(current, actor="writer", action="x", subject="x")
            written += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while written < 20:
            assert writer.is_alive()
        first = written
        backups.backup(engine, file)
    finally:
        stop.set()
        writer.join()
    assert written > first, "the writer went on"
    restored = make_engine(second_url)
    backups.restore(file, restored)
    with reading(restored) as current:
        jobs = current.scalar(select(func.count()).select_from(JobRow))
        entries = select(func.count()).select_from(AuditRow).where(AuditRow.actor == "writer")
        written_beside = current.scalar(entries)
    assert jobs == written_beside
    assert first <= int(jobs or 0) <= written
    restored.dispose()


def test_nothing_is_overwritten(
    database_url: str, engine: Engine, file: Path, gonogo: Gonogo
) -> None:
    assert gonogo(database_url, "backup", str(file))[0] == 0
    content = file.read_bytes()
    code, out = gonogo(database_url, "backup", str(file))
    assert (code, "exists already" in out) == (2, True)
    assert file.read_bytes() == content
    _fill(engine)
    before = _rows(engine)
    code, out = gonogo(database_url, "restore", str(file))
    assert (code, "the database has tables" in out) == (2, True)
    assert _rows(engine) == before


def test_a_file_that_is_no_backup_leaves_the_database_empty(
    engine: Engine, second_url: str, file: Path, gonogo: Gonogo
) -> None:
    _fill(engine)
    with session(engine) as current:  # so that the second half has rows, too
        row = {"scope": "x", "body": "x" * 300_000, "status": 1, "response": {}}
        times = {"created_at": func.now(), "expires_at": func.now()}
        current.execute(insert(IdempotencyRow).values(**row, **times))
    backups.backup(engine, file)
    whole, bad = file.read_bytes(), file.with_name("bad")
    for content in (None, b"", b"text", whole[: len(whole) // 2]):
        if content is not None:
            bad.write_bytes(content)
        code, out = gonogo(second_url, "restore", str(bad))
        assert code in (2, 3), (content, out)
        assert "Traceback" not in out
        assert str(bad) in out or "pg_restore failed" in out
    assert gonogo(second_url, "restore", str(file))[0] == 0


def test_a_backup_of_one_kind_is_refused_by_the_other(
    migrated_sqlite_url: str, postgres_url: str, file: Path, gonogo: Gonogo
) -> None:
    assert gonogo(migrated_sqlite_url, "backup", str(file))[0] == 0
    code, out = gonogo(postgres_url, "restore", str(file))
    assert (code, "is no backup of a PostgreSQL database" in out) == (2, True)


def test_without_pg_dump_the_command_names_the_package(
    migrated_postgres_url: str, tmp_path: Path, gonogo: Gonogo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out = gonogo(migrated_postgres_url, "backup", str(tmp_path / "backup"))
    assert (code, "apt install postgresql-client" in out) == (3, True)
    assert list(tmp_path.iterdir()) == []


def test_a_password_is_not_among_pg_dump_s_arguments(
    migrated_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gonogo: Gonogo
) -> None:
    tool = tmp_path / "pg_dump"
    tool.write_text(f'#!/bin/sh\necho "$PGPASSWORD" >{tmp_path}/password; echo "$@" >&2; exit 1\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    url = make_url(migrated_postgres_url).set(password="a secret")
    shown = url.render_as_string(hide_password=False)
    code, out = gonogo(shown, "backup", str(tmp_path / "backup"))
    assert (code, "secret" in out) == (3, False)
    assert (tmp_path / "password").read_text() == "a secret\n"
    assert not (tmp_path / "backup").exists()
