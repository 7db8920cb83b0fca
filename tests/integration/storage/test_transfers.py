"""Jobs exported from one database and imported into another: equal, once, or refused as a whole."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine, select

import gonogo_settings
import stored_jobs
from api import in_process
from gonogo_cli.__main__ import main
from gonogo_storage.access import audit
from gonogo_storage.catalogue import builds
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.engine import make_engine, reading, session
from gonogo_storage.history.assessment_requests import ASSESS
from gonogo_storage.jobs import jobs
from gonogo_storage.ops import backups, job_removal, retention, row_files, schema, transfers
from gonogo_storage.ops.retention import Policy, Tier
from gonogo_storage.ops.row_files import BadFile
from gonogo_storage.ops.transfers import Imported, Selection
from gonogo_storage.rollups import rebuild
from gonogo_storage.tables import DayRollupRow, FlagRow, JobTallyRow, OutboxRow
from suite_runs import SUITE, end_all

OF_JOBS = (
    *("archived_tallies", "artifacts", "attempts", "chunk_ranges", "chunks", "events"),
    *("job_labels", "jobs", "run_jobs", "runs", "seed_grids", "seed_layouts"),
    *("rolled", "seed_results", "seed_sources", "test_specs"),
)
"""The tables that are equal on both servers afterwards."""


class Source(NamedTuple):
    """A database with jobs of both kinds, one of them without rows, and a run."""

    engine: Engine
    jobs: tuple[str, ...]
    run: str
    path: Path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    folder = tmp_path_factory.mktemp("transfers")
    with in_process(f"sqlite:///{folder / 'gonogo.sqlite'}") as api:
        engine = api.context.engine
        with session(engine) as current:
            ended = [
                stored_jobs.finished(current, labels={"n": str(n)}, wrong=n < 3).id
                for n in range(4)
            ]
            for flag in current.scalars(select(FlagRow)):
                flag.state = "resolved"
        later = utcnow() + timedelta(days=2)
        keep_none = Policy({Tier.seeds: 1})
        assert retention.prune(engine, keep_none, now=later, actor="test").tiers[Tier.seeds].jobs
        answer = api.client.post("/api/v1/runs", json={"suite": SUITE})
        with session(engine) as current:
            end_all(current)
        waiting = api.submit()
        path = folder / "jobs.sqlite"
        contents = transfers.export(engine, path, Selection())
        assert contents["jobs"].rows == 7
        assert contents["runs"].rows == 1
        with session(engine) as current:  # it is not in the file
            jobs.cancel(current, waiting)
            job_removal.remove(current, waiting, actor="test", now=utcnow())
        rebuild.run_requested(engine)
        yield Source(engine, tuple(ended), answer.json()["id"], path)


@pytest.fixture
def target(database_url: str) -> Iterator[Engine]:
    engine = make_engine(database_url)
    yield engine
    engine.dispose()


def of_jobs(engine: Engine) -> row_files.Tables:
    with reading(engine) as current:
        contents = backups.contents_of(current.connection())
    return {name: contents[name] for name in OF_JOBS}


def sums(engine: Engine) -> dict[Any, Any]:
    """Every roll-up and tally, whose JSON may have another order."""
    with reading(engine) as current:
        return {
            tuple(row)[:2]: tuple(row)
            for table in (DayRollupRow, JobTallyRow)
            for row in current.execute(select(*table.__table__.columns))
        }


def test_an_import_is_equal_and_a_second_one_changes_nothing(
    source: Source, target: Engine
) -> None:
    done = transfers.import_(target, source.path, actor="test")
    assert (done.jobs, done.known) == (7, 0)
    here, there = of_jobs(target), of_jobs(source.engine)
    assert sums(target) == sums(source.engine)
    assert [name for name in OF_JOBS if here[name] != there[name]] == []
    with reading(target) as current:
        assert set(current.scalars(select(OutboxRow.topic))) == {ASSESS}  # and no webhook
        before = backups.contents_of(current.connection())
    assert transfers.import_(target, source.path, actor="test") == Imported(0, 7, 0)
    with reading(target) as current:
        assert backups.contents_of(current.connection()) == before
        assert [entry.action for entry in audit.list_(current).items] == ["jobs.imported"]
    with session(target) as current:  # what is missing comes again
        job_removal.remove(current, source.jobs[3], actor="test", now=utcnow())
    assert transfers.import_(target, source.path, actor="test") == Imported(1, 6, 8)
    rebuild.rebuild(target)
    assert of_jobs(target) == here
    assert sums(target) == sums(source.engine)


@pytest.mark.parametrize(
    ("selection", "number", "runs"),
    [
        ("test", 4, 0),
        ("run", 3, 1),
        ("since", 0, 0),
        ("until", 7, 1),
    ],
)
def test_conditions_narrow(
    source: Source, tmp_path: Path, selection: str, number: int, runs: int
) -> None:
    values: dict[str, Any] = {
        "test": stored_jobs.TestSpec.parse(stored_jobs.NIGHTLY).key,
        "run": source.run,
        "since": utcnow() + timedelta(seconds=5),
        "until": utcnow() + timedelta(seconds=5),
    }
    chosen = Selection(**{selection: values[selection]})
    if not number:
        with pytest.raises(BadFile, match="no ended job is selected"):
            transfers.export(source.engine, tmp_path / "jobs.sqlite", chosen)
        assert list(tmp_path.iterdir()) == []
        return
    contents = transfers.export(source.engine, tmp_path / "jobs.sqlite", chosen)
    assert (contents["jobs"].rows, contents["runs"].rows) == (number, runs)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE jobs SET verdict = 'pass'", "is damaged: jobs should have"),
        ("UPDATE artifacts SET content = '{}'", "is damaged: artifacts should have"),
        ("DELETE FROM seed_results", "is damaged: seed_results should have"),
        ("DROP TABLE export_contents", "is a database but no export"),
        ("UPDATE alembic_version SET version_num = 'r9'", "schema that is ahead"),
        (None, "is damaged"),
    ],
)
def test_a_file_that_is_not_what_was_written_is_refused_and_nothing_stored(
    source: Source, tmp_path: Path, migrated_sqlite_url: str, statement: str | None, words: str
) -> None:
    path = tmp_path / "broken"
    content = source.path.read_bytes()
    path.write_bytes(content if statement else content[: len(content) // 2])
    if statement:
        with sqlite3.connect(path) as copy:
            assert copy.execute(statement).rowcount != 0
    engine = make_engine(migrated_sqlite_url)
    before = of_jobs(engine)
    with pytest.raises(BadFile, match=words):
        transfers.import_(engine, path, actor="test")
    assert of_jobs(engine) == before
    engine.dispose()


def test_each_kind_of_file_names_the_command_that_reads_it(
    source: Source, tmp_path: Path, sqlite_url: str
) -> None:
    engine = make_engine(sqlite_url)
    schema.upgrade(engine)
    with pytest.raises(BadFile, match="`gonogo db import` reads it"):
        backups.restore(source.path, engine)
    backups.backup(engine, tmp_path / "backup")
    with pytest.raises(BadFile, match="`gonogo db restore` reads it"):
        transfers.import_(engine, tmp_path / "backup", actor="test")
    engine.dispose()


def test_a_build_that_is_another_one_here_is_refused(
    source: Source, tmp_path: Path, migrated_sqlite_url: str
) -> None:
    def register(engine: Engine, sequence: int) -> None:
        with session(engine) as current:
            builds.add(current, name="correct", executor="ttnn", branch="m", sequence=sequence)

    engine = make_engine(migrated_sqlite_url)
    register(source.engine, 1)
    register(engine, 2)
    transfers.export(source.engine, tmp_path / "jobs.sqlite", Selection())
    with pytest.raises(BadFile, match="its sequence is 2, and 1 in the file"):
        transfers.import_(engine, tmp_path / "jobs.sqlite", actor="test")
    with reading(engine) as current:
        assert backups.contents_of(current.connection())["jobs"].rows == 0
    engine.dispose()


def test_the_commands_say_what_they_did(
    source: Source,
    tmp_path: Path,
    migrated_sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def gonogo(url: str, *words: str) -> tuple[int, str]:
        monkeypatch.setenv("GONOGO_DATABASE_URL", url)
        gonogo_settings.load.cache_clear()
        monkeypatch.setattr(sys, "argv", ["gonogo", "db", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out + captured.err

    here, file = str(source.engine.url), str(tmp_path / "jobs.sqlite")
    span = ("--since", "2020-01-01", "--until", "2100-01-01T00:00:00")
    assert gonogo(here, "export", file, *span) == (
        0,
        f"exported: 7 jobs with 12 seeds, and 1 runs; {file}\n",
    )
    code, words = gonogo(here, "export", file, "--since", "2100-01-01")
    assert (code, "exists already" in words) == (2, True)
    assert gonogo(migrated_sqlite_url, "import", file) == (
        0,
        "imported: 7 jobs with 12 seeds; 0 were here before\n",
    )
    Path(file).write_text("no file of ours")
    code, words = gonogo(migrated_sqlite_url, "import", file)
    assert (code, "is no export: `gonogo db export FILE` makes one" in words) == (2, True)
    monkeypatch.setenv("GONOGO_KEEP_SEEDS_DAYS", "1")
    code, words = gonogo(migrated_sqlite_url, "prune", "--dry-run")
    assert code == 0
    assert "seeds: 0 rows of 0 jobs, about 0 bytes (older than 1 days)" in words
