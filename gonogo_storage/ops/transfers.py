"""Ended jobs with everything below them, exported to a file of rows and imported elsewhere.

Ids stay, so importing twice changes nothing. Flags, grades and roll-ups aren't exported: the other
server computes them from the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, Select, Table, insert, select
from sqlalchemy.orm import Session

from gonogo_storage.access import audit
from gonogo_storage.db import dialect
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.engine import reading, session
from gonogo_storage.db.ids import floor, is_id
from gonogo_storage.db.paging import batched
from gonogo_storage.db.states import LISTED_KINDS, JobState, RunState
from gonogo_storage.history.assessment_requests import request_assessment
from gonogo_storage.ops import row_files
from gonogo_storage.ops.row_files import EXPORT, BadFile, Tables
from gonogo_storage.rollups import rebuild
from gonogo_storage.rollups.variants import Variant
from gonogo_storage.tables import (
    ArchivedTallyRow,
    ArtifactRow,
    AttemptRow,
    Base,
    BuildRow,
    ChunkRangeRow,
    ChunkRow,
    EventRow,
    JobLabelRow,
    JobRow,
    RunJobRow,
    RunRow,
    SeedGridRow,
    SeedLayoutRow,
    SeedResultRow,
    SeedSourceRow,
    TestSpecRow,
)

_AT_ONCE: Final = 200
_ENDED: Final = tuple(state for state in JobState if state.final)
_SHARED: Final[tuple[type[Base], ...]] = (TestSpecRow, BuildRow, SeedLayoutRow)
"""Tables of rows that several jobs refer to."""
_BELOW: Final[tuple[type[Base], ...]] = (
    JobLabelRow,
    ChunkRangeRow,
    ChunkRow,
    AttemptRow,
    EventRow,
    ArtifactRow,
    ArchivedTallyRow,
    SeedGridRow,
    SeedSourceRow,
    SeedResultRow,
)
"""The rows of a job, those before that others refer to."""
_MEANING: Final = ("executor", "branch", "sequence", "commit")
"""The columns of a build that histories and gates depend on."""


@dataclass(frozen=True)
class Selection:
    """Which ended jobs; each condition narrows."""

    test: str | None = None
    run: str | None = None
    since: datetime | None = None
    """Submitted at or after."""
    until: datetime | None = None
    """Submitted before."""

    def query(self) -> Select[str]:
        """Return the query of their ids."""
        query = select(JobRow.id).where(JobRow.kind.in_(LISTED_KINDS), JobRow.state.in_(_ENDED))
        if self.test is not None:
            query = query.where(JobRow.test_key == self.test)
        if self.run is not None:
            member = select(RunJobRow.job_id).where(RunJobRow.run_id == self.run)
            query = query.where(JobRow.id.in_(member))
        if self.since is not None:
            query = query.where(JobRow.id >= floor(self.since))
        if self.until is not None:
            query = query.where(JobRow.id < floor(self.until))
        return query.order_by(JobRow.id)


@dataclass(frozen=True)
class Imported:
    """The result of an import."""

    jobs: int
    """Jobs that were stored"""
    known: int
    """Jobs that were here before"""
    seeds: int
    """Results per seed that were stored"""


def export(engine: Engine, path: Path, selection: Selection) -> Tables:
    """Write the selected jobs, as of one moment, to a new file; return its contents.

    A run goes with its jobs where all of them are selected. Raises BadFile where nothing is
    selected, FileExistsError, OSError, and SQLAlchemy's errors.
    """
    if selection.run is not None and not is_id(selection.run):
        raise BadFile(f"there is no run {selection.run!r}: `gonogo runs list` shows them")
    with row_files.writing(path) as target:
        with reading(engine) as current, target.begin() as connection:
            jobs = list(current.scalars(selection.query()))
            if not jobs:
                raise BadFile("no ended job is selected: nothing was exported")
            contents = {
                table.name: _copy(current.connection(), connection, queries, table)
                for table, queries in _queries(current, jobs)
            }
        row_files.describe(target, EXPORT, contents)
    return contents


def _queries(current: Session, jobs: Sequence[str]) -> Iterator[tuple[Table, list[Select[Any]]]]:
    """Yield the tables of an export, in the order of their references, with their queries."""
    job, layout = _table(JobRow), SeedResultRow.layout
    names: dict[type[Base], set[Any]] = {table: set() for table in _SHARED}
    for ids in batched(jobs, _AT_ONCE):
        of_jobs = select(JobRow.test_key, JobRow.build, JobRow.reference).where(JobRow.id.in_(ids))
        for test_key, *builds in current.execute(of_jobs):
            names[TestSpecRow].add(test_key)
            names[BuildRow].update(builds)
        used = select(layout).where(SeedResultRow.job_id.in_(ids), layout.is_not(None))
        names[SeedLayoutRow].update(current.scalars(used.distinct()))
    for row, keys in names.items():
        table = _table(row)
        key = next(iter(table.primary_key.columns))
        known = sorted(keys - {None})
        yield table, [select(table).where(key.in_(some)) for some in batched(known, _AT_ONCE)]
    yield job, [select(job).where(job.c.id.in_(ids)) for ids in batched(jobs, _AT_ONCE)]
    for row in _BELOW:
        table = _table(row)
        yield (
            table,
            [select(table).where(table.c.job_id.in_(ids)) for ids in batched(jobs, _AT_ONCE)],
        )
    runs = _whole_runs(current, jobs)
    columns: tuple[tuple[type[Base], str], ...] = ((RunRow, "id"), (RunJobRow, "run_id"))
    for row, column in columns:
        table = _table(row)
        yield (
            table,
            [select(table).where(table.c[column].in_(ids)) for ids in batched(runs, _AT_ONCE)],
        )


def _whole_runs(current: Session, jobs: Sequence[str]) -> list[str]:
    """Return the ended runs of which every job is selected."""
    selected = set(jobs)
    runs: set[str] = set()
    for ids in batched(jobs, _AT_ONCE):
        query = select(RunJobRow.run_id).where(RunJobRow.job_id.in_(ids))
        runs.update(current.scalars(query.distinct()))
    ended = [state for state in RunState if state.final]
    whole = []
    for run_id in sorted(runs):
        members = current.scalars(select(RunJobRow.job_id).where(RunJobRow.run_id == run_id))
        run = current.get_one(RunRow, run_id)
        if run.state in ended and selected.issuperset(members):
            whole.append(run_id)
    return whole


def _copy(
    source: Connection, target: Connection, queries: Sequence[Select[Any]], table: Table
) -> row_files.Contents:
    tally = row_files.Tally()
    for query in queries:
        for rows in row_files.batches(source, query):
            target.execute(insert(table), rows)
            tally.add(rows)
    return tally.contents()


def import_(engine: Engine, path: Path, *, actor: str) -> Imported:
    """Store the jobs of a file that aren't here; what they conclude to is computed here.

    The whole file is checked before anything is stored. Each job is then one transaction, so that
    a service goes on meanwhile; an import that is killed can be run again. Raises BadFile.
    """
    source = row_files.opened(path, EXPORT)
    try:
        _check(source, path)
        with source.connect() as given:
            with reading(engine) as current:
                _check_builds(given, current)
            return _import(engine, given, actor=actor)
    finally:
        source.dispose()


def _check(source: Engine, path: Path) -> None:
    """Check that the file is what was written. Raises BadFile."""
    recorded = row_files.recorded(source, path, EXPORT)
    rows: tuple[type[Base], ...] = (*_SHARED, JobRow, *_BELOW, RunRow, RunJobRow)
    tables = [_table(row) for row in rows]
    with source.connect() as given:
        contents = row_files.contents_of(given, tables)
        row_files.compare(recorded, contents, f"{path} is damaged")
        open_jobs = select(JobRow.id).where(JobRow.state.not_in(_ENDED)).limit(1)
        if given.scalar(open_jobs) is not None:
            raise BadFile(f"{path} has a job that hasn't ended: export it again")


def _check_builds(given: Connection, current: Session) -> None:
    """Raise BadFile for a build that is another one here: histories would mix the two."""
    table = BuildRow
    for build in given.execute(select(_table(BuildRow))).mappings():
        here = current.get(table, build["name"])
        if here is None:
            continue
        for name in _MEANING:
            if getattr(here, name) != build[name]:
                raise BadFile(
                    f"build {build['name']!r} is another one here: its {name} is "
                    f"{getattr(here, name)!r}, and {build[name]!r} in the file. Nothing was "
                    "imported; rename one of the two builds"
                )


def _import(engine: Engine, given: Connection, *, actor: str) -> Imported:
    jobs = list(given.execute(select(_table(JobRow)).order_by(JobRow.id)).mappings())
    shared = {row: _rows(given, row) for row in _SHARED}
    stored = known = seeds = 0
    variants: set[Variant] = set()
    for job in jobs:
        with session(engine) as current:
            if current.get(JobRow, job["id"]) is not None:
                known += 1
                continue
            if not stored:
                for shared_table, rows in shared.items():
                    dialect.insert_once(current, shared_table, rows)
            current.execute(insert(_table(JobRow)), [dict(job)])
            for row in _BELOW:
                table = _table(row)
                below = select(table).where(table.c.job_id == job["id"])
                for rows in row_files.batches(given, below):
                    current.execute(insert(table), rows)
                    seeds += len(rows) if row is SeedResultRow else 0
        stored += 1
        if job["reference"] is None and job["done"]:
            variants.add(Variant(*(job[name] for name in ("test_key", "branch", "arch", "board"))))
    with session(engine) as current:
        for table_of_run in (RunRow, RunJobRow):
            dialect.insert_once(current, table_of_run, _rows(given, table_of_run))
        for variant in sorted(variants):
            reason = f"import:{max(job['id'] for job in jobs)}:{stored}"
            request_assessment(current, variant, reason, now=utcnow())
        if stored:
            detail = {"jobs": stored, "known": known, "seeds": seeds}
            audit.record(
                current, actor=actor, action="jobs.imported", subject="jobs", detail=detail
            )
    rebuild.catch_up(engine)
    return Imported(stored, known, seeds)


def _rows(given: Connection, row: type[Base]) -> list[dict[str, Any]]:
    return [dict(values) for values in given.execute(select(_table(row))).mappings()]


def _table(row: type[Base]) -> Table:
    table = row.__table__
    assert isinstance(table, Table)
    return table


def summary(contents: Mapping[str, row_files.Contents]) -> tuple[int, int, int]:
    """Return the numbers of jobs, seeds and runs in an export."""
    jobs, seeds, runs = (contents[table.__tablename__] for table in (JobRow, SeedResultRow, RunRow))
    return jobs.rows, seeds.rows, runs.rows
