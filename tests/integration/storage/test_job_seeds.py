"""A job's page reads all of a few seeds, and of many only the worst, by an index; a list of jobs
goes on after its cursor. On SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.orm import Session

import stored_jobs
from database_params import BOTH_ENGINES
from gonogo_dashboards.charts import plots
from gonogo_dashboards.jobs import job_list, job_page
from gonogo_dashboards.kit import cache
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.results import grid, tallies, worst
from gonogo_service.results.model import ResultRow

SEEDS = 600


def _job(session: Session, rows: list[dict[str, Any]], *, over: bool = True) -> JobRow:
    job = stored_jobs.submit(session, seeds=len(rows))
    stored_jobs.report(session, job.id, rows, diagnosed=True)
    if over:
        stored_jobs.finish(session, job.id)
    return job


def _view(session: Session, job: JobRow, output: str | None = None) -> Any:
    """Return what the page of a job shows."""
    view = job_page.job(session, job.id, output, utcnow())
    assert view is not None
    return view


def _large() -> list[dict[str, Any]]:
    """Result rows: every second seed is a hollow pass, one has no number in dx, and one hangs."""
    rows = [stored_jobs.row(seed, wrong=seed % 2 == 0) for seed in range(SEEDS - 2)]
    odd = stored_jobs.row(SEEDS - 2, wrong=True, within=False)
    none = {"tolerance_ratio": None, "rounding_ratio": None}
    odd["outputs"]["dx"] |= {**none, "nonfinite_statistics": {"tolerance_ratio": "nan"}}
    return [*rows, odd, stored_jobs.unwell(SEEDS - 1, "hang", "no answer")]


@contextmanager
def _statements(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """Record the statements within, and their values."""
    calls: list[tuple[str, Any]] = []

    def note(*arguments: Any) -> None:
        _connection, _cursor, statement, values, *_ = arguments
        calls.append((statement, values))

    event.listen(engine, "before_cursor_execute", note)
    yield calls
    event.remove(engine, "before_cursor_execute", note)


@contextmanager
def _rows_read(session: Session) -> Iterator[list[int]]:
    """Count the result rows that the statements within read.

    PostgreSQL counts them itself. On SQLite, a query plan that scans counts as all rows.
    """
    row_count = [0]
    if engines.is_postgres(session):
        # six hundred rows are fewer than are worth an index; millions aren't
        session.execute(text("SET LOCAL enable_seqscan = off"))
        session.execute(text("SET LOCAL enable_bitmapscan = off"))
        counters = "sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"
        read = text(f"SELECT {counters} WHERE relname = 'results'")
        before = session.scalar(read)
        yield row_count
        row_count[0] = int(session.scalar(read) - before)
        return
    with _statements(session.get_bind().engine) as calls:
        yield row_count
    for statement, values in [call for call in calls if " results" in call[0]]:
        cursor = session.connection().connection.cursor()
        plan = cursor.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
        for step in (step for *_, step in plan if " results " in step):
            # a statement with a limit, one that names its seeds, or the first seeds to arrive
            names = ("ix_results_output (job_id=? AND output=? AND verdict=?", "ix_results_worst")
            names += ("job_id=? AND arrival", "job_id=? AND seed=?")
            bounded = any(name in step for name in names)
            row_count[0] += 0 if "SEARCH" in step and bounded else SEEDS
        row_count[0] += len(cursor.execute(statement, values).fetchall())


@pytest.fixture(params=["migrated_sqlite_url", "unused_postgres_url"])
def unused(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A database whose statistics and files know of no other test."""
    fresh_engine = engines.make_engine(str(request.getfixturevalue(request.param)))
    yield fresh_engine
    fresh_engine.dispose()


def test_of_a_large_job_only_what_is_shown_is_read(
    unused: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, most in (
        (worst, "MAX_WHOLE", 100),
        (worst, "NEWEST", 50),
        (plots, "WORST_MARKS", 40),
        (grid, "MAX_ROWS", 100),
    ):
        monkeypatch.setattr(module, name, most)
    rows = _large()
    with engines.session(unused) as session:
        _job(session, [stored_jobs.row(seed, wrong=True) for seed in range(8)])
    with unused.begin() as connection:
        # PostgreSQL then expects eight rows of a job, as it always does when a large one is new
        connection.execute(text("ANALYZE"))
    with engines.session(unused) as session:
        job = _job(session, rows)
    with engines.reading(unused) as session, _rows_read(session) as read:
        view = _view(session, job, "dx")
    assert read[0] < 800, "of 1,800 rows"
    plot = view.plot
    assert (plot.total, plot.whole, plot.first, plot.last) == (SEEDS, False, 0, SEEDS - 1)
    assert len(plot.marks) <= 40 + 2 * 5
    # each verdict has its share, its worst seeds; seeds without a number are there too
    ratios = {row["seed"]: row["outputs"]["dx"]["rounding_ratio"] for row in rows[:-2]}
    for verdict, first in (("pass", 1), ("pass_by_tolerance", 0)):
        largest = sorted((ratios[seed] for seed in range(first, SEEDS - 2, 2)), reverse=True)
        shown = {mark.rounding_ratio for mark in plot.marks if mark.verdict == verdict}
        assert shown <= set(largest[:40])
        assert len(shown) > 15
    without = {(mark.verdict, mark.value) for mark in plot.marks if mark.seed >= SEEDS - 2}
    assert without == {("fail", None), ("hang", None)}
    assert [mark.seed for mark in plot.marks] == sorted(mark.seed for mark in plot.marks)
    # the largest is that of all, the others are those of the newest
    errors = [row["outputs"]["dx"]["tolerance_ratio"] for row in rows[:-2]]
    assert [plot.spread.low, plot.spread.high] == [min(errors[-48:]), max(errors)]
    assert plot.spread.unnumbered == 1
    # the worst: by verdict, then by how far beyond rounding among those with the largest errors
    assert [seed.verdict for seed in view.worst] == ["hang", "fail"] + ["pass_by_tolerance"] * 10
    assert [seed.seed for seed in view.worst[:2]] == [SEEDS - 1, SEEDS - 2]
    assert view.worst[0].message == "no answer"
    assert {output.output for output in view.worst[2].outputs} == {"dx", "dgamma", "dbeta"}
    beyond = [seed.outputs[0].numbers["rounding_ratio"] or 0.0 for seed in view.worst[2:]]
    assert beyond == sorted(beyond, reverse=True)
    assert view.grid.finished == SEEDS


@BOTH_ENGINES
def test_few_seeds_are_all_marks_and_say_the_same_by_either_way(current: Session) -> None:
    rows = [stored_jobs.row(seed, wrong=seed % 3 == 0) for seed in range(19)]
    job = _job(current, [*rows, stored_jobs.unwell(19, "crash", "signal 11")], over=False)
    sums = tallies.of_job(current, job.id)["dx"]
    every = worst.marks(current, [job], "dx", "tolerance_ratio", None)
    assert [mark.seed for mark in every] == list(range(20))
    sent = {"count": 6930378, "distance": rows[0]["outputs"]["dx"]["distance"]}
    assert {name: every[0].statistics[name] for name in sent} == sent
    of_job = {job.id: sums}
    most = worst.worst_marks(current, [[job]], "dx", "tolerance_ratio", 60, of_job, None)
    assert sorted(most, key=lambda mark: mark.seed) == every
    assert sums.counts == {"pass": 12, "pass_by_tolerance": 7}


@BOTH_ENGINES
def test_among_equal_verdicts_the_seed_farthest_beyond_rounding_comes_first(
    current: Session,
) -> None:
    rows = [stored_jobs.row(seed, wrong=True) for seed in range(4)]
    for row, wrong, right in zip(rows, (5.0, 90.0, 20.0, 2.0), (0.5, 0.5, 500.0, 2.9), strict=True):
        row["outputs"]["dx"]["rounding_ratio"] = wrong
        # this output passes, so its ratio doesn't count
        row["outputs"]["dgamma"]["rounding_ratio"] = right
    rows[3]["outputs"]["dx"] |= {"rounding_ratio": None, "nonfinite": 2}
    job = _job(current, rows, over=False)
    assert [seed.seed for seed in worst.read(current, job.id, 4)] == [3, 1, 2, 0]


def test_a_job_that_is_over_is_read_once_and_a_late_row_is_seen(current: Session) -> None:
    job = _job(current, [stored_jobs.row(seed, wrong=True) for seed in range(4)])
    first = _view(current, job)
    with _statements(current.get_bind().engine) as calls:
        again = _view(current, job)
    assert not [statement for statement, _ in calls if f" {ResultRow.__tablename__} " in statement]
    assert (first.plot, first.worst) == (again.plot, again.worst)
    stored_jobs.report(current, job.id, [stored_jobs.row(4, wrong=True)])
    after = _view(current, job)
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


def test_a_view_is_of_one_moment(engine: Engine) -> None:
    with engines.session(engine) as session:
        job = _job(session, [stored_jobs.row(0, wrong=True)], over=False)
    with engines.reading(engine) as session:
        before = _view(session, job)
        with engines.session(engine) as writing:
            stored_jobs.report(writing, job.id, [stored_jobs.row(1, wrong=True)])
        session.expire_all()
        again = _view(session, job)
    assert (again.job.done, len(again.worst)) == (before.job.done, len(before.worst)) == (1, 1)


@pytest.mark.parametrize(("wrong", "verdict"), [(False, None), (True, "pass_by_tolerance")])
def test_a_canceled_job_is_never_green_and_what_was_found_stays_found(
    current: Session, wrong: bool, verdict: str | None
) -> None:
    job = stored_jobs.submit(current, seeds=64)
    rows = [stored_jobs.row(seed, wrong=wrong) for seed in range(5)]
    stored_jobs.report(current, job.id, rows)
    jobs.cancel(current, job.id)
    view = _view(current, job)
    assert view.job.state_words == "Canceled after 5 of 64 seeds"
    assert view.verdict == view.job.verdict == job.verdict == verdict


@BOTH_ENGINES
def test_a_list_goes_on_after_its_cursor_and_filters(current: Session) -> None:
    labels = {"suite": "nightly"}
    ids = [stored_jobs.finished(current, seeds=1, labels=labels).id for _ in range(3)]
    stored_jobs.finished(current, seeds=1, wrong=False)
    label, now = "suite=nightly", utcnow()
    first = job_list.jobs(current, {"label": label, "state": " "}, None, 2, now)
    rest = job_list.jobs(current, {"label": label}, first.next, 2, now)
    assert [line.id for line in first.items + rest.items] == ids[::-1]
    assert first.next_url == f"/jobs?label=suite%3Dnightly&cursor={first.next}"
    assert rest.next_url is None
