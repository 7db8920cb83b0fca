"""Retention and deletion of jobs: what goes, and what stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, func, select, text
from sqlalchemy.orm import Session

import audit_log
import stored_jobs
from gonogo.errors import FieldError
from gonogo.spec.test_spec import TestSpec
from gonogo_service.bisections import store as bisections
from gonogo_service.bisections.model import BisectionRow
from gonogo_service.compare import sides
from gonogo_service.flags.model import FlagRow
from gonogo_service.jobs import artifacts, job_removal
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import ArtifactRow, EventRow, JobRow
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import make_engine, reading, session
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import BisectionState
from gonogo_service.operate import retention
from gonogo_service.operate.retention import Policy, Tier
from gonogo_service.results import sums as aggregates
from gonogo_service.results import tallies
from gonogo_service.results.model import DailyRow, JobBlockRow, ResultRow
from gonogo_service.tests import rejudgements
from patience import WAIT_S
from running_service import until

LATER = timedelta(days=500)
SEEDS = Policy({Tier.seeds: 400})
ALL = Policy({Tier.artifacts: 90, Tier.seeds: 400})


def sums(engine: Engine) -> dict[Any, list[Any]]:
    """Every row of the aggregates."""
    with reading(engine) as current:
        return {
            table: sorted(map(repr, current.execute(select(*table.__table__.columns))))
            for table in (DailyRow, JobBlockRow)
        }


def count(engine: Engine, table: Any, *conditions: Any) -> int:
    with reading(engine) as current:
        query = select(func.count()).select_from(table).where(*conditions)
        return current.scalar(query) or 0


def rows_of(engine: Engine, job: str) -> int:
    return count(engine, ResultRow, ResultRow.job_id == job)


def night(engine: Engine, **changes: Any) -> str:
    log = {"kind": "log", "seed": 0, "repeat": 0, "output": "", "content": {"text": "x"}}
    with session(engine) as current:
        job = stored_jobs.finished(current, **changes).id
        artifacts.add(current, job, new_id(), [log], now=utcnow())
    return job


def two_nights(engine: Engine) -> tuple[str, str]:
    """Two jobs of which retention takes the first: what they found is resolved."""
    old, newest = night(engine), night(engine)
    with session(engine) as current:
        for flag in current.scalars(select(FlagRow)):
            flag.state = "resolved"
    return old, newest


def prune(engine: Engine, policy: Policy = ALL, **options: Any) -> retention.Removed:
    return retention.prune(engine, policy, now=utcnow() + LATER, actor="test", **options)


def entries(engine: Engine) -> int:
    with reading(engine) as current:
        actions = [entry.action for entry in audit_log.entries(current)]
    return actions.count("retention.removed")


def test_a_clock_that_is_years_ahead_removes_nothing(
    migrated_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(migrated_postgres_url)
    now = utcnow()
    monkeypatch.setattr(retention, "utcnow", lambda: now + LATER)
    assert retention.current_time(engine) - now < timedelta(hours=1)
    engine.dispose()


def test_each_tier_goes_and_the_sums_stay(engine: Engine) -> None:
    old, newest = two_nights(engine)
    before = sums(engine)
    planned = retention.estimate(engine, ALL, now=utcnow() + LATER).tiers[Tier.seeds]
    assert count(engine, ResultRow) == 48  # a dry run removes nothing
    removed = prune(engine, SEEDS).tiers[Tier.seeds]
    assert removed == planned
    assert (removed.jobs, removed.rows) == (1, 24)
    assert removed.bytes >= 24 * retention.ROW_BYTES
    assert (rows_of(engine, old), rows_of(engine, newest)) == (0, 24)
    assert sums(engine) == before
    with reading(engine) as current:
        job = jobs.get(current, old)
        assert job is not None
        assert (job.verdict, job.done) == ("pass_by_tolerance", 8)
        assert set(tallies.of_job(current, old)) == {"", "dx", "dgamma", "dbeta"}
    assert count(engine, EventRow, EventRow.job_id == old, EventRow.type == "state") > 0

    tiers = {tier: amount.jobs for tier, amount in prune(engine).tiers.items()}
    assert tiers == {Tier.artifacts: 1, Tier.seeds: 0}
    assert count(engine, ArtifactRow) == 1
    assert sums(engine) == before
    assert entries(engine) == 2
    assert not prune(engine)  # nothing is left to do, and no entry says so
    assert entries(engine) == 2


def test_what_something_open_needs_stays_and_so_do_labels_builds_and_the_newest(
    engine: Engine,
) -> None:
    evidence, last = night(engine), night(engine)  # of an open flag, with the job after it
    labeled = night(engine, wrong=False, labels={"keep": "release"})
    baseline, newest = night(engine, wrong=False), night(engine, wrong=False)
    assert count(engine, FlagRow, FlagRow.state != "resolved") == 1
    pinned = Policy(ALL.days, ("corr*",))
    assert prune(engine, pinned).tiers[Tier.seeds].jobs == 0
    assert prune(engine).tiers[Tier.seeds].jobs == 1
    with reading(engine) as current:
        gone = current.scalars(select(JobRow.id).where(JobRow.seeds_removed_at.is_not(None))).all()
        whole = current.scalars(select(JobRow.id).where(JobRow.seeds_removed_at.is_(None))).all()
    assert (gone, set(whole)) == ([baseline], {evidence, last, labeled, newest})
    with session(engine) as current:
        running = stored_jobs.submit(current, build="correct").id
        stored_jobs.report(current, running, [stored_jobs.row(0, wrong=False)])
    assert retention.estimate(engine, ALL, now=utcnow() + LATER).tiers[Tier.seeds].jobs == 0


def test_a_bisections_run_is_no_newer_result_of_its_test(engine: Engine) -> None:
    newest, probe = night(engine, wrong=False), night(engine, wrong=False)
    with session(engine) as current:
        job = current.get_one(JobRow, probe)
        search = {"signal": "numbers", "expect": "either", "several": False, "owner": "me"}
        search |= {"test_key": job.test_key, "queue": job.queue, "builds": [job.build] * 2}
        search |= {"request": {}, "seed_start": 0, "max_runs": 9, "created_at": utcnow()}
        bisection = BisectionRow(id=new_id(), state=BisectionState.finished, **search)
        current.add(bisection)
        current.flush()
        bisections.add_probe(current, bisection, place=1, seed=0, job=probe)
    assert prune(engine).tiers[Tier.seeds].jobs == 1
    assert (rows_of(engine, newest) > 0, rows_of(engine, probe)) == (True, 0)


def test_a_pass_that_is_killed_is_finished_by_the_next_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = two_nights(engine)
    monkeypatch.setattr(retention, "BLOCK", 3)
    turns = iter([True, True, False])
    assert prune(engine, SEEDS, keep_going=lambda: next(turns))
    assert rows_of(engine, old) == 15
    assert not prune(engine, SEEDS)
    assert rows_of(engine, old) == 0


def test_a_job_without_rows_is_not_judged_again_and_its_tests_not_compared(engine: Engine) -> None:
    two_nights(engine)
    prune(engine)
    spec = TestSpec.parse(stored_jobs.NIGHTLY)
    with reading(engine) as current:
        report = rejudgements.report(current, spec, spec)
        assert (report.jobs_removed, len(report.jobs), report.seeds) == (1, 1, 8)
    with session(engine) as current:
        for job in current.scalars(select(JobRow)):
            job.seeds_removed_at, job.kernel = utcnow(), "selection"
    with reading(engine) as current:
        removed = "can't be judged again: the results per seed of its 2"
        with pytest.raises(FieldError, match=removed):
            rejudgements.report(current, spec, spec)
        removed = "can't be compared: its results per test were removed"
        with pytest.raises(FieldError, match=removed):
            sides.read(current, "tt-train-2025", "base")


def test_a_deletion_and_an_ending_job_of_the_same_test_never_wait_for_each_other(
    migrated_postgres_url: str,
) -> None:
    engine = make_engine(migrated_postgres_url)
    old = night(engine)
    with reading(engine) as current:
        key = current.get_one(JobRow, old).test_key

    def remove() -> None:
        with session(engine) as current:
            job_removal.remove(current, old, actor="me", now=utcnow())

    with ThreadPoolExecutor(1) as other, session(engine) as ending:
        aggregates.lock(ending, key)  # as its results are counted
        removal = other.submit(remove)
        waits = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        until(lambda: ending.scalar(waits), what="the removal to wait")
        ending.execute(text("SELECT FROM flags FOR UPDATE NOWAIT"))  # as it ends
        ending.commit()
        removal.result(WAIT_S)
    assert count(engine, FlagRow, FlagRow.state == "resolved") == 1
    engine.dispose()


def test_a_deleted_job_leaves_nothing_and_everything_else_is_right_without_it(
    engine: Engine,
) -> None:
    only = night(engine, wrong=False)
    before = sums(engine)
    first, second = night(engine), night(engine)

    def remove(current: Session, job: str) -> job_removal.JobRemoved:
        return job_removal.remove(current, job, actor="me", now=utcnow())

    with session(engine) as current:
        (flag,) = current.scalars(select(FlagRow))
        assert {flag.first_job, flag.last_job} == {first, second}
        removed = remove(current, second)
        assert (removed.seeds, removed.artifacts, removed.flags_resolved) == (8, 1, ())
    with session(engine) as current:
        flag = current.scalars(select(FlagRow)).one()
        assert (flag.state, flag.first_job, flag.last_job, flag.jobs) == ("open", first, first, 1)
        assert remove(current, first).flags_resolved == (flag.id,)
    assert sums(engine) == before
    with reading(engine) as current:
        for table in Base.metadata.sorted_tables:
            if "job_id" in table.c:
                assert set(current.scalars(select(table.c.job_id))) <= {only}, table.name
        assert current.scalars(select(JobRow.id)).all() == [only]
