"""What the pages of jobs read of the database, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import seeded
from sqlalchemy import Engine

from dashboards import views
from storage import engine as engines
from storage import jobs, schema
from storage import overview as reads
from storage.encoding import utcnow


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = engines.make_engine(database_url)
    schema.upgrade(made)
    yield made
    made.dispose()


def test_marks_are_the_worst_in_order_of_seed_and_bands_hold_all(engine: Engine) -> None:
    with engines.session(engine) as session:
        job = seeded.submit(session, seeds=40)
        rows = [seeded.row(seed, wrong=seed % 10 == 0) for seed in range(39)]
        seeded.report(session, job.id, [*rows, seeded.unwell(39, "hang", "no answer")])
    with engines.reading(engine) as session:
        assert reads.mark_count(session, job.id, "dx") == 40
        worst = reads.marks(session, job.id, "dx", 5)
        assert [mark.seed for mark in worst] == [0, 10, 20, 30, 39]
        assert worst[0].statistics["count"] == 6930378
        assert worst[0].statistics["xhat_z"] == pytest.approx(rows[0]["outputs"]["dx"]["xhat_z"])
        bands = reads.bands(session, job.id, "dx", "tolerance_ratio", 4)
        assert [(band.first, band.last, band.seeds) for band in bands] == [(0, 9, 10), (10, 19, 10), (20, 29, 10), (30, 38, 9)]
        assert all(band.low < 0.03 < 0.09 < band.high for band in bands)
        assert [each.counts for each in reads.outputs(session, job.id) if each.output == "dx"] == [{"pass": 35, "pass_by_tolerance": 4}]


def test_the_worst_seeds_come_with_all_their_outputs(engine: Engine) -> None:
    with engines.session(engine) as session:
        job = seeded.submit(session, seeds=4)
        rows = [
            seeded.row(0, wrong=False),
            seeded.row(1, wrong=True),
            seeded.row(2, wrong=True, within=False),
            seeded.unwell(3, "crash", "signal 11"),
        ]
        seeded.report(session, job.id, rows)
    with engines.reading(engine) as session:
        view = views.job(session, job.id, None, utcnow())
    assert view is not None
    assert [(seed.seed, seed.verdict) for seed in view.worst] == [(3, "crash"), (2, "fail"), (1, "pass_by_tolerance"), (0, "pass")]
    assert view.worst[2].outputs[0].output == "dx"
    assert {output.output for output in view.worst[2].outputs} == {"dx", "dgamma", "dbeta"}
    assert view.worst[0].message == "signal 11"
    assert view.verdict == "crash"
    assert view.check.endswith("--seeds 1 --seed-start 3 --rtol 0.001 --atol 0.5")


def test_among_equal_verdicts_the_seed_farthest_beyond_rounding_comes_first(engine: Engine) -> None:
    rows = [seeded.row(seed, wrong=True) for seed in range(4)]
    for row, xhat, budget, right in zip(rows, (50.0, 900.0, 200.0, 20.0), (20.0, 12.0, 30.0, 11.0), (0.5, 0.5, 0.5, 2.9), strict=True):
        row["outputs"]["dx"] |= {"xhat_z": xhat, "row_z": 5.0, "chi": 3.0, "budget_ratio": budget}
        row["outputs"]["dgamma"]["budget_ratio"] = right  # of an output that passes: nobody sees it
    rows[3]["outputs"]["dx"] |= {"budget_ratio": None, "nonfinite": 2}
    with engines.session(engine) as session:
        job = seeded.submit(session, seeds=4)
        seeded.report(session, job.id, rows)
    with engines.reading(engine) as session:
        assert [seed.seed for seed in reads.worst_seeds(session, job.id, 4)] == [3, 1, 2, 0]


def test_a_view_is_of_one_moment(engine: Engine) -> None:
    with engines.session(engine) as session:
        job = seeded.submit(session, seeds=4)
        seeded.report(session, job.id, [seeded.row(0, wrong=True)])
    with engines.reading(engine) as session:
        before = views.job(session, job.id, None, utcnow())
        with engines.session(engine) as writing:
            seeded.report(writing, job.id, [seeded.row(1, wrong=True)])
        session.expire_all()
        again = views.job(session, job.id, None, utcnow())
    assert before is not None
    assert again is not None
    assert (again.job.done, len(again.worst)) == (before.job.done, len(before.worst)) == (1, 1)


def test_a_cancelled_job_is_never_green_and_what_was_found_stays_found(engine: Engine) -> None:
    said = {}
    for wrong in (False, True):
        with engines.session(engine) as session:
            job = seeded.submit(session, seeds=64)
            seeded.report(session, job.id, [seeded.row(seed, wrong=wrong) for seed in range(5)])
            jobs.cancel(session, job.id)
        with engines.reading(engine) as session:
            view = views.job(session, job.id, None, utcnow())
            found = jobs.get(session, job.id)
        assert view is not None
        assert found is not None
        assert view.job.state_words == "cancelled after 5 of 64 seeds"
        assert view.verdict == view.job.verdict == found.verdict
        said[wrong] = found.verdict
    assert said == {False: None, True: "pass_by_tolerance"}


def test_a_list_goes_on_after_its_cursor_and_filters(engine: Engine) -> None:
    with engines.session(engine) as session:
        ids = [seeded.finished(session, seeds=1, labels={"suite": "nightly"}).id for _ in range(3)]
        seeded.finished(session, seeds=1, wrong=False)
    with engines.reading(engine) as session:
        first = views.jobs(session, {"label": "suite=nightly", "state": " "}, None, 2, utcnow())
        rest = views.jobs(session, {"label": "suite=nightly"}, first.next, 2, utcnow())
    assert [line.id for line in first.items + rest.items] == ids[::-1]
    assert first.next_url == f"/jobs?label=suite%3Dnightly&cursor={first.next}"
    assert rest.next_url is None


def test_there_is_no_view_of_a_job_that_is_not_there(engine: Engine) -> None:
    with engines.reading(engine) as session:
        assert views.job(session, "no-id", None, utcnow()) is None
        assert views.job(session, "01890000-0000-7000-8000-000000000000", None, utcnow()) is None
