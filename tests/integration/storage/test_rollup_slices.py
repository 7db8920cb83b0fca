"""Roll-ups are counted in small transactions, stop when told to, and are rebuilt on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, delete, select

import stored_jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.engine import make_engine, reading, session
from gonogo_service.kit.outbox import outbox
from gonogo_service.results.rollups import rebuild
from gonogo_service.results.rollups.rebuild import REBUILD, Unit
from gonogo_service.results.rows import DayRollupRow, JobTallyRow, RolledRow

SEEDS = 7


@pytest.fixture
def engine(migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(rebuild, "SLICE", 3)
    opened = make_engine(migrated_sqlite_url)
    yield opened
    opened.dispose()


def stored(engine: Engine, *builds: str, counted: bool = False) -> list[str]:
    """Store a job of seven seeds of each build, which the roll-ups lack unless `counted`."""
    with session(engine) as current:
        jobs = [stored_jobs.submit(current, build=build, seeds=SEEDS).id for build in builds]
        for job in jobs:
            rows = [stored_jobs.row(seed, wrong=False) for seed in range(SEEDS)]
            stored_jobs.report(current, job, rows)
        if not counted:
            for table in (DayRollupRow, JobTallyRow, RolledRow):
                current.execute(delete(table))
    return jobs


def unit_of(engine: Engine, job: str) -> Unit:
    with reading(engine) as current:
        return Unit.of_job(current.get_one(JobRow, job))


def seeds(engine: Engine) -> dict[str, int]:
    """Return the counted seeds of each build."""
    with reading(engine) as current:
        query = select(DayRollupRow.build, DayRollupRow.seeds).where(
            DayRollupRow.shadow.is_(False), DayRollupRow.output == ""
        )
        return dict(current.execute(query).all())


def times(count: int) -> Callable[[], bool]:
    """Return a function that is true so many times."""
    answers = iter([True] * count)
    return lambda: next(answers, False)


def test_a_job_is_counted_slice_by_slice(engine: Engine) -> None:
    (job,) = stored(engine, "a")
    counted = []
    for _ in range(4):
        with session(engine) as current:
            counted.append(rebuild._slice(current, job, shadow=False))
    assert counted == [3, 3, 1, 0]
    assert seeds(engine) == {"a": SEEDS}
    with session(engine) as current:
        assert rebuild._slice(current, "0" * 32, shadow=False) == 0


def test_catching_up_stops_between_two_slices(engine: Engine) -> None:
    (job,) = stored(engine, "a")
    assert rebuild.catch_up_job(engine, job, keep_going=times(1)) == 3
    assert rebuild.catch_up(engine, keep_going=times(0)) == 0
    assert rebuild.catch_up(engine, keep_going=times(2)) == 3
    assert rebuild.catch_up(engine) == 1
    assert rebuild.catch_up(engine) == 0


def test_jobs_that_are_behind_are_named_the_oldest_first(engine: Engine) -> None:
    jobs = stored(engine, "a", "b", "c")
    with reading(engine) as current:
        assert rebuild.behind(current) == jobs
        assert rebuild.behind(current, limit=2) == jobs[:2]


@pytest.mark.parametrize("count", [1, 2])
def test_a_rebuild_tells_each_slice_and_ends_with_the_last(engine: Engine, count: int) -> None:
    jobs = stored(engine, *["a"] * count)
    slices = list(rebuild.rebuild_unit(engine, unit_of(engine, jobs[0])))
    assert slices == ([3, 3, 1, 0] if count == 1 else [3, 3, 1, 3, 3, 1, 0])
    assert seeds(engine) == {"a": count * SEEDS}


def test_as_many_rows_as_a_slice_are_rebuilt_in_one_transaction(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = stored(engine, "a")
    monkeypatch.setattr(rebuild, "SLICE", SEEDS)
    assert list(rebuild.rebuild_unit(engine, unit_of(engine, job))) == [SEEDS]
    monkeypatch.setattr(rebuild, "SLICE", SEEDS - 1)
    assert list(rebuild.rebuild_unit(engine, unit_of(engine, job))) == [SEEDS - 1, 1, 0]


def request(engine: Engine, *jobs: str) -> None:
    for job in jobs:
        unit = unit_of(engine, job)
        with session(engine) as current:
            rebuild.request(current, unit)


def requested(engine: Engine) -> int:
    with reading(engine) as current:
        return len(outbox.due(current, topics=(REBUILD,)))


def test_requested_units_are_rebuilt_once_each(engine: Engine) -> None:
    jobs = stored(engine, "a", "b")
    request(engine, *jobs, jobs[0])
    assert rebuild.run_requested(engine, keep_going=times(1)) == 1
    assert requested(engine) == 1
    assert rebuild.run_requested(engine) == 1
    assert (rebuild.run_requested(engine), requested(engine)) == (0, 0)
    assert seeds(engine) == {"a": SEEDS, "b": SEEDS}


@pytest.mark.parametrize(("most", "rebuilt"), [(SEEDS, 1), (SEEDS - 1, 0)])
def test_large_units_are_left_to_the_background(engine: Engine, most: int, rebuilt: int) -> None:
    (job,) = stored(engine, "a")
    request(engine, job)
    assert rebuild.run_requested(engine, most=most) == rebuilt
    assert requested(engine) == 1 - rebuilt


def test_a_unit_without_jobs_is_small(engine: Engine) -> None:
    (job,) = stored(engine, "a", counted=True)
    unit = unit_of(engine, job)
    with session(engine) as current:
        rebuild.request(current, Unit(**{**vars(unit), "build": "gone"}))
    assert rebuild.run_requested(engine, most=0) == 1
    assert seeds(engine) == {"a": SEEDS}
