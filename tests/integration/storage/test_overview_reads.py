"""The views that the pages of jobs read from the database, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

import stored_jobs
from gonogo_dashboards.jobs import job_list, job_page
from gonogo_service.jobs import store as jobs
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.operate import schema


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    migrated_engine = engines.make_engine(database_url)
    schema.upgrade(migrated_engine)
    yield migrated_engine
    migrated_engine.dispose()


def test_the_worst_seeds_come_with_all_their_outputs(engine: Engine) -> None:
    with engines.session(engine) as session:
        job = stored_jobs.submit(session, seeds=4)
        rows = [
            stored_jobs.row(0, wrong=False),
            stored_jobs.row(1, wrong=True),
            stored_jobs.row(2, wrong=True, within=False),
            stored_jobs.unwell(3, "crash", "signal 11"),
        ]
        stored_jobs.report(session, job.id, rows)
    with engines.reading(engine) as session:
        view = job_page.job(session, job.id, None, utcnow())
    assert view is not None
    assert [(seed.seed, seed.verdict) for seed in view.worst] == [
        (3, "crash"),
        (2, "fail"),
        (1, "pass_by_tolerance"),
        (0, "pass"),
    ]
    assert view.worst[2].outputs[0].output == "dx"
    assert {output.output for output in view.worst[2].outputs} == {"dx", "dgamma", "dbeta"}
    assert view.worst[0].message == "signal 11"
    assert view.verdict == "crash"
    assert view.check.endswith("--seeds 1 --seed-start 3 --rtol 0.001 --atol 0.5")


def test_a_view_is_of_one_moment(engine: Engine) -> None:
    with engines.session(engine) as session:
        job = stored_jobs.submit(session, seeds=4)
        stored_jobs.report(session, job.id, [stored_jobs.row(0, wrong=True)])
    with engines.reading(engine) as session:
        before = job_page.job(session, job.id, None, utcnow())
        with engines.session(engine) as writing:
            stored_jobs.report(writing, job.id, [stored_jobs.row(1, wrong=True)])
        session.expire_all()
        again = job_page.job(session, job.id, None, utcnow())
    assert before is not None
    assert again is not None
    assert (again.job.done, len(again.worst)) == (before.job.done, len(before.worst)) == (1, 1)


def test_a_cancelled_job_is_never_green_and_what_was_found_stays_found(engine: Engine) -> None:
    verdicts = {}
    for wrong in (False, True):
        with engines.session(engine) as session:
            job = stored_jobs.submit(session, seeds=64)
            stored_jobs.report(
                session, job.id, [stored_jobs.row(seed, wrong=wrong) for seed in range(5)]
            )
            jobs.cancel(session, job.id)
        with engines.reading(engine) as session:
            view = job_page.job(session, job.id, None, utcnow())
            canceled_job = jobs.get(session, job.id)
        assert view is not None
        assert canceled_job is not None
        assert view.job.state_words == "Canceled after 5 of 64 seeds"
        assert view.verdict == view.job.verdict == canceled_job.verdict
        verdicts[wrong] = canceled_job.verdict
    assert verdicts == {False: None, True: "pass_by_tolerance"}


def test_a_list_goes_on_after_its_cursor_and_filters(engine: Engine) -> None:
    with engines.session(engine) as session:
        ids = [
            stored_jobs.finished(session, seeds=1, labels={"suite": "nightly"}).id for _ in range(3)
        ]
        stored_jobs.finished(session, seeds=1, wrong=False)
    with engines.reading(engine) as session:
        first = job_list.jobs(session, {"label": "suite=nightly", "state": " "}, None, 2, utcnow())
        rest = job_list.jobs(session, {"label": "suite=nightly"}, first.next, 2, utcnow())
    assert [line.id for line in first.items + rest.items] == ids[::-1]
    assert first.next_url == f"/jobs?label=suite%3Dnightly&cursor={first.next}"
    assert rest.next_url is None


def test_there_is_no_view_of_a_job_that_is_not_there(engine: Engine) -> None:
    with engines.reading(engine) as session:
        assert job_page.job(session, "no-id", None, utcnow()) is None
        assert job_page.job(session, "01890000-0000-7000-8000-000000000000", None, utcnow()) is None
