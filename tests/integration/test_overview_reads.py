"""What the pages read of the database, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import seeded
from sqlalchemy import Engine

from dashboards import views
from storage import engine as engines
from storage import overview as reads
from storage import schema
from storage.encoding import utcnow


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = engines.make_engine(database_url)
    schema.upgrade(made)
    yield made
    made.dispose()


def test_the_overview_shows_what_runs_what_ended_and_hollow_findings_first(engine: Engine) -> None:
    with engines.session(engine) as session:
        tight = seeded.submit(session, build="correct", seeds=1)
        seeded.report(session, tight.id, [seeded.row(0, wrong=False, within=False)])
        seeded.finish(session, tight.id)
        hollow = seeded.finished(session, seeds=2, test={**seeded.NIGHTLY, "epsilon": 1e-5})
        waits = seeded.submit(session)
    with engines.reading(engine) as session:
        view = views.overview(session, utcnow() + timedelta(minutes=5))
    assert [line.id for line in view.running] == [waits.id]
    assert [line.id for line in view.recent] == [hollow.id, tight.id]
    assert [flag.kind for flag in view.flagged] == ["passes_by_tolerance", "tolerance_too_tight"]
    assert view.flagged[0].diagnosis == "s1 is subtracted twice in all 265 tiles; s2 sums only the last tile (265th of 265)"
    assert view.flagged[0].age == "5 min ago"
    assert not view.empty


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
