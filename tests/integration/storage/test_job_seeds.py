"""A job's page reads all of a few seeds, and of many only the worst, by an index; on SQLite and on
PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.orm import Session

import stored_jobs
from gonogo_dashboards.charts import plots
from gonogo_dashboards.jobs import job_page
from gonogo_dashboards.kit import cache
from gonogo_service.jobs import store as jobs
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.results import grid, tallies, worst
from gonogo_service.results.model import ResultRow

SEEDS = 600


def _job(engine: Engine, rows: list[dict[str, Any]], *, over: bool = True) -> str:
    with engines.session(engine) as session:
        job = stored_jobs.submit(session, seeds=len(rows))
        stored_jobs.report(session, job.id, rows, diagnosed=True)
        if over:
            stored_jobs.finish(session, job.id)
    return job.id


def _large() -> list[dict[str, Any]]:
    """Result rows: every second seed is a hollow pass, one has no number in dx, and one hangs."""
    rows = [stored_jobs.row(seed, wrong=seed % 2 == 0) for seed in range(SEEDS - 2)]
    odd = stored_jobs.row(SEEDS - 2, wrong=True, within=False)
    odd["outputs"]["dx"] |= {
        "tolerance_ratio": None,
        "rounding_ratio": None,
        "nonfinite_statistics": {"tolerance_ratio": "nan"},
    }
    return [*rows, odd, stored_jobs.unwell(SEEDS - 1, "hang", "no answer")]


@contextmanager
def _rows_read(session: Session) -> Iterator[list[int]]:
    """Count the result rows that the statements within read.

    PostgreSQL counts them itself. On SQLite, a query plan that scans counts as all rows.
    """
    row_count = [0]
    if engines.is_postgres(session):
        session.execute(
            text("SET LOCAL enable_seqscan = off")
        )  # six hundred rows are fewer than are worth an index; millions aren't
        session.execute(text("SET LOCAL enable_bitmapscan = off"))
        counters = (
            "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"
        )
        read = text(f"{counters} WHERE relname = 'results'")
        before = session.scalar(read)
        yield row_count
        row_count[0] = int(session.scalar(read) - before)
        return
    calls: list[tuple[str, Any]] = []

    def note(
        _connection: Connection, _cursor: Any, statement: str, values: Any, *_rest: Any
    ) -> None:
        calls.append((statement, values))

    event.listen(session.get_bind().engine, "before_cursor_execute", note)
    try:
        yield row_count
    finally:
        event.remove(session.get_bind().engine, "before_cursor_execute", note)
    for statement, values in [call for call in calls if " results" in call[0]]:
        cursor = session.connection().connection.cursor()
        steps = [
            step
            for *_, step in cursor.execute(f"EXPLAIN QUERY PLAN {statement}", values)
            if " results " in step
        ]
        for step in steps:
            # a statement with a limit, one that names its seeds, or the first seeds to arrive
            names = ("ix_results_output (job_id=? AND output=? AND verdict=?", "ix_results_worst")
            names += ("job_id=? AND arrival", "job_id=? AND seed=?")
            bounded = any(name in step for name in names)
            row_count[0] += 0 if "SEARCH" in step and bounded else SEEDS
        rows = cursor.execute(statement, values).fetchall()
        row_count[0] += len(rows)


@pytest.fixture(params=["migrated_sqlite_url", "unused_postgres_url"])
def unused(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A database whose statistics and files know of no other test."""
    fresh_engine = engines.make_engine(str(request.getfixturevalue(request.param)))
    yield fresh_engine
    fresh_engine.dispose()


def test_of_a_large_job_only_what_is_shown_is_read(
    unused: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worst, "MAX_WHOLE", 100)
    monkeypatch.setattr(worst, "NEWEST", 50)
    monkeypatch.setattr(plots, "WORST_MARKS", 40)
    monkeypatch.setattr(grid, "MAX_ROWS", 100)
    rows = _large()
    _job(unused, [stored_jobs.row(seed, wrong=True) for seed in range(8)])
    with unused.begin() as connection:
        # PostgreSQL then expects eight rows of a job, as it always does when a large one is new
        connection.execute(text("ANALYZE"))
    job_id = _job(unused, rows)
    with engines.reading(unused) as session, _rows_read(session) as read:
        view = job_page.job(session, job_id, "dx", utcnow())
    assert read[0] < 800, "of 1,800 rows"
    assert view is not None
    plot = view.plot
    assert plot is not None
    assert plot.spread is not None
    assert (plot.total, plot.whole, plot.first, plot.last) == (SEEDS, False, 0, SEEDS - 1)
    assert len(plot.marks) <= 40 + 2 * 5
    # each verdict has its share, its worst seeds; seeds without a number are there too
    values = {
        verdict: sorted(
            (
                row["outputs"]["dx"]["rounding_ratio"]
                for row in rows[:-2]
                if row["verdict"] == verdict
            ),
            reverse=True,
        )
        for verdict in ("pass", "pass_by_tolerance")
    }
    for verdict, largest in values.items():
        shown = sorted(
            (mark.rounding_ratio or 0.0 for mark in plot.marks if mark.verdict == verdict),
            reverse=True,
        )
        assert set(shown) <= set(largest[:40])
        assert len(shown) > 15
    assert {(mark.verdict, mark.value) for mark in plot.marks if mark.seed >= SEEDS - 2} == {
        ("fail", None),
        ("hang", None),
    }
    assert [mark.seed for mark in plot.marks] == sorted(mark.seed for mark in plot.marks)
    assert plot.marks[0].rounding_ratio is not None
    # the largest is that of all, the others are those of the newest
    ratios = [row["outputs"]["dx"]["tolerance_ratio"] for row in rows[:-2]]
    assert [plot.spread.low, plot.spread.high] == [min(ratios[-48:]), max(ratios)]
    assert plot.spread.unnumbered == 1
    # the worst: by verdict, then by how far beyond rounding among those with the largest errors
    assert [seed.verdict for seed in view.worst] == ["hang", "fail"] + ["pass_by_tolerance"] * 10
    assert [seed.seed for seed in view.worst[:2]] == [SEEDS - 1, SEEDS - 2]
    assert view.worst[0].message == "no answer"
    assert {output.output for output in view.worst[2].outputs} == {"dx", "dgamma", "dbeta"}
    beyond = [seed.outputs[0].numbers["rounding_ratio"] or 0.0 for seed in view.worst[2:]]
    assert beyond == sorted(beyond, reverse=True)
    assert view.grid.finished == SEEDS


def test_few_seeds_are_all_marks_and_say_the_same_by_either_way(engine: Engine) -> None:
    rows = [stored_jobs.row(seed, wrong=seed % 3 == 0) for seed in range(19)] + [
        stored_jobs.unwell(19, "crash", "signal 11")
    ]
    job_id = _job(engine, rows, over=False)
    with engines.reading(engine) as session:
        job, sums = jobs.get(session, job_id), tallies.of_job(session, job_id)
        assert job is not None
        every = worst.marks(session, [job], "dx", "tolerance_ratio", None)
        assert [mark.seed for mark in every] == list(range(20))
        assert every[0].statistics["count"] == 6930378
        sent = rows[0]["outputs"]["dx"]["distance"]
        assert every[0].statistics["distance"] == sent
        of_job = {job_id: sums["dx"]}
        most = worst.worst_marks(session, [[job]], "dx", "tolerance_ratio", 60, of_job, None)
        assert sorted(most, key=lambda mark: mark.seed) == every
        assert sums["dx"].counts == {"pass": 12, "pass_by_tolerance": 7}


def test_among_equal_verdicts_the_seed_farthest_beyond_rounding_comes_first(engine: Engine) -> None:
    rows = [stored_jobs.row(seed, wrong=True) for seed in range(4)]
    for row, wrong, right in zip(rows, (5.0, 90.0, 20.0, 2.0), (0.5, 0.5, 500.0, 2.9), strict=True):
        row["outputs"]["dx"]["rounding_ratio"] = wrong
        # this output passes, so its ratio doesn't count
        row["outputs"]["dgamma"]["rounding_ratio"] = right
    rows[3]["outputs"]["dx"] |= {"rounding_ratio": None, "nonfinite": 2}
    with engines.session(engine) as session:
        job = stored_jobs.submit(session, seeds=4)
        stored_jobs.report(session, job.id, rows)
    with engines.reading(engine) as session:
        assert [seed.seed for seed in worst.read(session, job.id, 4)] == [3, 1, 2, 0]


def test_a_job_that_is_over_is_read_once_and_a_late_row_is_seen(engine: Engine) -> None:
    job_id = _job(engine, [stored_jobs.row(seed, wrong=True) for seed in range(4)])
    statements: list[str] = []

    def note(_connection: Connection, _cursor: Any, statement: str, *_rest: Any) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    views = []
    for _ in range(2):
        statements.clear()
        with engines.reading(engine) as session:
            views.append(job_page.job(session, job_id, None, utcnow()))
    assert [
        statement for statement in statements if f" {ResultRow.__tablename__} " in statement
    ] == []
    assert views[0] is not None
    assert views[1] is not None
    assert views[0].plot == views[1].plot
    assert views[0].worst == views[1].worst
    with engines.session(engine) as session:
        stored_jobs.report(session, job_id, [stored_jobs.row(4, wrong=True)])
    with engines.reading(engine) as session:
        after = job_page.job(session, job_id, None, utcnow())
    assert after is not None
    assert after.plot is not None
    assert len(after.plot.marks) == len(after.worst) == 5


def test_what_is_kept_is_bounded_and_what_may_change_is_not_kept() -> None:
    lru_cache: cache.LRUCache[str] = cache.LRUCache(2)
    computed_names: list[str] = []

    def make(name: str) -> str:
        computed_names.append(name)
        return name

    for name in ("a", "b", "a", "c", "a", "b"):
        assert lru_cache.get(name, partial(make, name)) == name
    assert computed_names == ["a", "b", "c", "b"], "b was used the longest time ago when c came"
    for _ in range(2):
        lru_cache.get(None, lambda: make("x"))
        assert lru_cache.get("none", lambda: None) is None
    assert computed_names[4:] == ["x", "x"]
