"""Retention and deletion of jobs: what goes, and what stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, func, select

import audit_log
import stored_jobs
from gonogo.errors import FieldError
from gonogo.spec.test_spec import TestSpec
from gonogo_service.compare import sides
from gonogo_service.flags.model import FlagRow
from gonogo_service.jobs import artifacts, closing, job_removal
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import ArtifactRow, EventRow, JobRow
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import make_engine, reading, session
from gonogo_service.kit.database.ids import new_id
from gonogo_service.operate import retention
from gonogo_service.operate.retention import Policy, Tier
from gonogo_service.results import tallies
from gonogo_service.results.batch import Batch
from gonogo_service.results.model import DailyRow, JobBlockRow, ResultRow
from gonogo_service.tests import rejudgements

LATER = timedelta(days=500)
SEEDS = Policy({Tier.seeds: 400})
ALL = Policy({Tier.artifacts: 90, Tier.seeds: 400})
EVERYTHING = TestSpec.parse(stored_jobs.NIGHTLY)


def sums(engine: Engine) -> dict[Any, Any]:
    """Every row of the aggregates, by key."""
    with reading(engine) as current:
        return {
            tuple(row)[: len(table.__table__.primary_key.columns)]: tuple(row)
            for table in (DailyRow, JobBlockRow)
            for row in current.execute(select(*_keys_first(table)))
        }


def _keys_first(table: Any) -> list[Any]:
    keys = [*table.__table__.primary_key.columns]
    return keys + [column for column in table.__table__.columns if column not in set(keys)]


def count(engine: Engine, table: Any, *conditions: Any) -> int:
    with reading(engine) as current:
        query = select(func.count()).select_from(table).where(*conditions)
        return current.scalar(query) or 0


def night(engine: Engine, **changes: Any) -> str:
    log = {"kind": "log", "seed": 0, "repeat": 0, "output": "", "content": {"text": "x"}}
    with session(engine) as current:
        job = stored_jobs.finished(current, **changes).id
        artifacts.add(current, job, new_id(), [log], now=utcnow())
    return job


def resolve_flags(engine: Engine) -> None:
    with session(engine) as current:
        for flag in current.scalars(select(FlagRow)):
            flag.state = "resolved"


def prune(engine: Engine, policy: Policy = ALL) -> retention.Removed:
    return retention.prune(engine, policy, now=utcnow() + LATER, actor="test")


def entries(engine: Engine) -> list[str]:
    with reading(engine) as current:
        return [entry.action for entry in audit_log.entries(current)]


def test_a_clock_that_is_years_ahead_removes_nothing(
    migrated_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(migrated_postgres_url)
    now = utcnow()
    monkeypatch.setattr(retention, "utcnow", lambda: now + LATER)
    assert retention.current_time(engine) - now < timedelta(hours=1)
    engine.dispose()


def test_each_tier_goes_and_the_sums_stay(engine: Engine) -> None:
    old = night(engine)
    newest = night(engine)
    resolve_flags(engine)
    before = sums(engine)
    planned = retention.estimate(engine, ALL, now=utcnow() + LATER)
    assert count(engine, ResultRow) == 48  # a dry run removes nothing
    removed = prune(engine, SEEDS)
    assert removed.tiers[Tier.seeds] == planned.tiers[Tier.seeds]
    assert removed.tiers[Tier.seeds].jobs == 1
    assert removed.tiers[Tier.seeds].rows == 24
    assert removed.tiers[Tier.seeds].bytes >= 24 * retention.ROW_BYTES
    assert count(engine, ResultRow, ResultRow.job_id == old) == 0
    assert count(engine, ResultRow, ResultRow.job_id == newest) == 24
    assert sums(engine) == before
    with reading(engine) as current:
        job = jobs.get(current, old)
        assert job is not None
        assert (job.verdict, job.done) == ("pass_by_tolerance", 8)
        assert set(tallies.of_job(current, old)) == {"", "dx", "dgamma", "dbeta"}
    assert count(engine, EventRow, EventRow.job_id == old, EventRow.type == "state") > 0

    removed = prune(engine)
    assert {tier: amount.jobs for tier, amount in removed.tiers.items()} == {
        Tier.artifacts: 1,
        Tier.seeds: 0,
    }
    assert count(engine, ArtifactRow) == 1
    assert sums(engine) == before
    assert entries(engine).count("retention.removed") == 2
    assert not prune(engine)  # nothing is left to do, and no entry says so
    assert entries(engine).count("retention.removed") == 2


def test_what_something_open_needs_stays_and_so_do_labels_builds_and_the_newest(
    engine: Engine,
) -> None:
    evidence = night(engine)  # of an open flag, with the job after it
    last = night(engine)
    labeled = night(engine, wrong=False, labels={"keep": "release"})
    baseline, newest = night(engine, wrong=False), night(engine, wrong=False)
    assert count(engine, FlagRow, FlagRow.state != "resolved") == 1
    pinned = Policy(ALL.days, ("corr*",))
    assert prune(engine, pinned).tiers[Tier.seeds].jobs == 0
    assert prune(engine).tiers[Tier.seeds].jobs == 1
    with reading(engine) as current:
        stays = {
            job: jobs.get(current, job).seeds_removed_at is None  # type: ignore[union-attr]
            for job in (evidence, last, labeled, baseline, newest)
        }
    assert stays == {evidence: True, last: True, labeled: True, baseline: False, newest: True}
    with session(engine) as current:
        running = stored_jobs.submit(current, build="correct").id
        stored_jobs.report(current, running, [stored_jobs.row(0, wrong=False)])
    assert retention.estimate(engine, ALL, now=utcnow() + LATER).tiers[Tier.seeds].jobs == 0


def test_a_pass_that_is_killed_is_finished_by_the_next_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = night(engine)
    night(engine)
    resolve_flags(engine)
    monkeypatch.setattr(retention, "BLOCK", 3)
    turns = iter([True, True, False])
    assert retention.prune(
        engine, SEEDS, now=utcnow() + LATER, actor="test", keep_going=lambda: next(turns)
    )
    assert count(engine, ResultRow, ResultRow.job_id == old) == 15
    assert not prune(engine, SEEDS)
    assert count(engine, ResultRow, ResultRow.job_id == old) == 0


def test_rows_that_come_after_the_removal_are_dropped(engine: Engine) -> None:
    old = night(engine)
    night(engine)
    resolve_flags(engine)
    prune(engine)
    with session(engine) as current:
        job = closing.lock(current, old)
        assert job is not None
        late = Batch.of([stored_jobs.row(99, wrong=True)])
        closing.record(current, job, old, late, now=utcnow())
        assert job.done == 8
    assert count(engine, ResultRow, ResultRow.job_id == old) == 0


def test_a_job_without_rows_is_not_judged_again_and_its_tests_not_compared(engine: Engine) -> None:
    night(engine)
    night(engine)
    resolve_flags(engine)
    prune(engine)
    spec = EVERYTHING
    with reading(engine) as current:
        report = rejudgements.report(current, spec, spec)
        assert (report.jobs_removed, len(report.jobs), report.seeds) == (1, 1, 8)
    with session(engine) as current:
        for job in current.scalars(select(JobRow)):
            job.seeds_removed_at, job.kernel = utcnow(), "selection"
    with reading(engine) as current:
        with pytest.raises(
            FieldError, match="can't be judged again: the results per seed of its 2"
        ):
            rejudgements.report(current, spec, spec)
        with pytest.raises(
            FieldError, match="can't be compared: its results per test were removed"
        ):
            sides.read(current, "tt-train-2025", "base")


def test_a_deleted_job_leaves_nothing_and_everything_else_is_right_without_it(
    engine: Engine,
) -> None:
    only = night(engine, wrong=False)
    before = sums(engine)
    first, second = night(engine), night(engine)
    with session(engine) as current:
        (flag,) = current.scalars(select(FlagRow))
        assert {flag.first_job, flag.last_job} == {first, second}
        removed = job_removal.remove(current, second, actor="me", now=utcnow())
        assert (removed.seeds, removed.artifacts, removed.flags_resolved) == (8, 1, ())
    with session(engine) as current:
        flag = current.scalars(select(FlagRow)).one()
        assert (flag.state, flag.first_job, flag.last_job, flag.jobs) == ("open", first, first, 1)
        removed = job_removal.remove(current, first, actor="me", now=utcnow())
        assert removed.flags_resolved == (flag.id,)
    assert sums(engine) == before
    for table in Base.metadata.sorted_tables:
        if "job_id" in table.c:
            ids = {str(job) for job in _column(engine, table.c.job_id)}
            assert ids <= {only}, table.name
    assert [str(job) for job in _column(engine, JobRow.id)] == [only]


def _column(engine: Engine, column: Any) -> list[Any]:
    with reading(engine) as current:
        return list(current.scalars(select(column).distinct()))


def test_a_job_that_runs_is_not_deleted(engine: Engine) -> None:
    with session(engine) as current:
        job = stored_jobs.submit(current).id
        with pytest.raises(job_removal.NotRemovable, match=r"is queued: only .* Cancel it first"):
            job_removal.remove(current, job, actor="me", now=utcnow())
