"""The variants that tests have run as, read for a whole page at once, on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Engine, event, update

import nightly_history
import stored_jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import JobKind
from gonogo_service.overview import search as search_reads
from gonogo_service.tests import recent_builds, standings, test_list, variants
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.standings import Kind
from gonogo_service.tests.test_list import TestFilter
from stored_histories import world

OTHER = {**stored_jobs.NIGHTLY, "tolerance": {"rtol": 1e-3, "atol": 0.25}}


def test_every_variant_once_and_none_that_was_only_gauged(engine: Engine) -> None:
    with engines.session(engine) as session:
        for sequence in (1, 2, 3):
            for line, board in (("main", "n150"), ("main", "n300"), ("release", "n150")):
                last = nightly_history.submit(
                    session, [0], build=f"b{sequence}", sequence=sequence, branch=line, board=board
                )
        other = nightly_history.submit(session, [0], build="b1", sequence=1, test=OTHER)
        gauge = nightly_history.submit(
            session, [0], build="b1", sequence=1, test=OTHER, branch="gauged"
        )
        session.execute(update(JobRow).where(JobRow.id == gauge.id).values(kind=JobKind.gauge))
        variants_by_test = variants.variants_of_all(
            session, [last.test_key, other.test_key, "v1-nobody"]
        )
        assert {
            key: [(variant.branch, variant.board) for variant in test_variants]
            for key, test_variants in variants_by_test.items()
        } == {
            last.test_key: [("main", "n150"), ("main", "n300"), ("release", "n150")],
            other.test_key: [("main", "n150")],
        }
        assert variants.variants_of(session, other.test_key) == variants_by_test[other.test_key]
        listed = {test.spec.key: test for test in test_list.list_(session).items}
        assert {
            key: (test.job.id, test.job.build, test.variants) for key, test in listed.items()
        } == {
            last.test_key: (last.id, "b3", variants_by_test[last.test_key]),
            other.test_key: (other.id, "b1", variants_by_test[other.test_key]),
        }
        stored_jobs.report(session, other.id, [stored_jobs.row(0, wrong=True)])
        stored_jobs.finish(session, other.id)
        waits = nightly_history.submit(session, [0], build="b2", sequence=2, test=OTHER)
        judged = {test.spec.key: test for test in test_list.list_(session).items}[other.test_key]
        assert judged.job.id == waits.id
        # a job that waits has no verdict; the newest build that was judged counts
        [(result,)] = recent_builds.results(session, judged.variants, 2).values()
        assert (result.job, result.build, result.verdict) == (other.id, "b1", "pass_by_tolerance")


def test_a_variant_that_began_with_a_gauge_is_one_once_a_job_ran(engine: Engine) -> None:
    with engines.session(engine) as session:
        gauge, job = (
            nightly_history.submit(session, [0], build="b1", sequence=1) for _ in range(2)
        )
        session.execute(update(JobRow).where(JobRow.id == gauge.id).values(kind=JobKind.gauge))
        assert [place.board for place in variants.variants_of(session, job.test_key)] == ["n150"]


def test_standings_read_the_jobs_of_their_days_and_of_the_newest_builds_only(
    migrated_sqlite_url: str,
) -> None:
    engine = engines.make_engine(migrated_sqlite_url)
    plans: list[str] = []

    def explain(
        _connection: Connection, cursor: Any, statement: str, values: Any, *_rest: Any
    ) -> None:
        steps = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)
        plans.extend(step for *_, step in steps)

    with engines.reading(engine) as session:
        session.connection()
        event.listen(engine, "before_cursor_execute", explain)
        standings.read(session, since=utcnow() - standings.WINDOW)
    engine.dispose()
    assert any("ix_jobs_newest (test_key=? AND" in step for step in plans), plans
    assert not any(step.startswith("SCAN jobs") for step in plans), plans


def test_a_list_shows_each_test_s_last_builds_and_how_often_its_seeds_failed(
    engine: Engine,
) -> None:
    now = utcnow()
    with engines.session(engine) as session:
        for sequence, wrong in ((1, False), (2, True), (3, False), (2, False)):
            night = nightly_history.submit(
                session, range(4), build=f"b{sequence}", sequence=sequence, branch="main"
            )
            rows = [stored_jobs.row(seed, wrong=wrong, within=seed > 0) for seed in range(4)]
            stored_jobs.report(session, night.id, rows)
            stored_jobs.finish(session, night.id)
    with engines.reading(engine) as session:
        [variant] = variants.variants_of(session, night.test_key)
        [results] = recent_builds.results(session, [variant], 2).values()
        assert [(result.build, dict(result.counts)) for result in results] == [
            ("b2", {"fail": 1, "pass_by_tolerance": 3, "fail_by_tolerance": 1, "pass": 3}),
            ("b3", {"fail_by_tolerance": 1, "pass": 3}),
        ]
        rates = recent_builds.failure_rates(session, [night.test_key], now)
        assert {(rate.failed, rate.runs) for rate in rates[variant]} == {(4, 16)}
        week, month = recent_builds.failure_rates(
            session, [night.test_key], now + timedelta(days=8)
        )[variant]
        assert (week.runs, month.runs) == (0, 16)
        # the newest build passes, with a false alarm; b2 was wrong, too
        newest = standings.read(session, since=now - timedelta(days=1))[variant]
        every = standings.read(session, since=now - timedelta(days=1), every_build=True)
        assert (newest.hollow, newest.wrong, newest.false_alarm) == (False, False, True)
        assert (newest.red, newest.flaky, newest.lost) == (True, True, False)
        assert newest.verdict == "fail_by_tolerance"
        assert (every[variant].hollow, every[variant].wrong) == (True, True)
        assert standings.read(session, since=now - timedelta(days=1), branch="release") == {}
        assert standings.read(session, since=now + timedelta(days=1)) == {}
        days = standings.by_day(session, standings.Memory(), days=3, now=now + timedelta(days=1))
        assert [list(tests) for _, tests in days] == [[], [variant], [variant]]


def test_tests_are_found_by_their_words_and_the_worst_come_first(engine: Engine) -> None:
    def search(*, sort: str = test_list.NEWEST, **only: object) -> list[str]:
        keys, cursor = [], None
        while True:
            page = test_list.list_(
                session,
                TestFilter(**only),
                sort=sort,
                limit=1,
                cursor=cursor,  # type: ignore[arg-type]
            )
            keys += [names[test.spec.key] for test in page.items]
            cursor = page.next
            if cursor is None:
                return keys

    with engines.session(engine) as session:
        small = {**stored_jobs.NIGHTLY, "shape": [1, 1, 32, 64]}
        forms = {"hollow": stored_jobs.NIGHTLY, "tight": OTHER, "small": small}
        names = {}
        for number, (name, test) in enumerate(forms.items()):
            job = nightly_history.submit(session, [0], build="b1", sequence=1, test=test)
            session.execute(
                update(TestSpecRow)
                .where(TestSpecRow.key == job.test_key)
                .values(created_at=utcnow() + timedelta(minutes=number))
            )
            stored_jobs.report(session, job.id, [stored_jobs.row(0, wrong=name == "hollow")])
            stored_jobs.finish(session, job.id)
            names[job.test_key] = name
    with world(engine.url.render_as_string(hide_password=False)) as here:
        here.assess()
    with engines.reading(engine) as session:
        assert search() == ["small", "tight", "hollow"]
        now = standings.read(session, since=utcnow() - standings.WINDOW)
        worst_first = search(sort=test_list.ATTENTION, standings=now)
        assert worst_first == ["hollow", "small", "tight"]
        assert search(kind=Kind.hollow, standings=now) == ["hollow"]
        assert search(kind=Kind.flagged) == ["hollow"]
        assert search(search="32×64") == ["small"]
        assert search(search="8462 atol=0.25") == ["tight"]
        assert search(search="100%") == search(search="v1-nobody") == []
        assert search(since=utcnow() - timedelta(hours=1)) == ["small", "tight", "hollow"]
        assert search(since=utcnow() + timedelta(hours=1)) == []
        assert [names[test.key] for test in search_reads.tests(session, "32x64", 5)] == ["small"]
        for text, places in {
            "32x64": [],
            "B1": [("build", "b1")],
            job.id[:20]: [("job", job.id)],
            " ": [],
        }.items():
            hits = search_reads.others(session, text, 5)
            assert [(hit.kind, hit.key) for hit in hits] == places, text
        assert search_reads.tests(session, " ", 5) == ()
        [key] = [key for key, name in names.items() if name == "tight"]
        assert search(search=key[:12]) == ["tight"]
        assert [names[test.key] for test in test_list.worst(session, now, "main", 1)] == ["hollow"]
