"""Roll-ups updated at ingest: equal to a rebuild and to a plain count of the rows.

The tests run on both databases, also with several writers at once.
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from gonogo_service.results.rollups import rebuild, rollups
from gonogo_service.results.rollups.rollups import AXES
from gonogo_service.results.rollups.tallies import Tally
from gonogo_service.results.rows import DayRollupRow, JobTallyRow, RolledRow
from sqlalchemy import Engine, delete, select, text, update
from sqlalchemy.exc import OperationalError

import stored_jobs
from gonogo.cli.app import load
from gonogo.errors import JobError
from gonogo.flakiness.rates import rate
from gonogo_service.jobs import closing
from gonogo_service.jobs.model import EventRow
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.ids import new_id
from gonogo_service.operate import schema
from gonogo_service.results import job_seeds as reads
from gonogo_service.results.batch import Batch
from gonogo_service.tests import test_specs
from patience import WAIT_S
from rolled_up import Rollup, of_test

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = stored_jobs.TestSpec.parse(stored_jobs.NIGHTLY).key


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    migrated_engine = engines.make_engine(database_url)
    schema.upgrade(migrated_engine)
    yield migrated_engine
    migrated_engine.dispose()


def submit(engine: Engine, **changes: Any) -> str:
    with engines.session(engine) as session:
        return stored_jobs.submit(session, **{"seeds": 100, **changes}).id


def store(engine: Engine, job_id: str, rows: list[dict[str, Any]], now: datetime = NOON) -> None:
    """Store a batch as ingest does."""
    with engines.session(engine) as session:
        job = closing.lock(session, job_id)
        assert job is not None
        closing.record(session, job, new_id(), Batch.of(rows), now=now)


def stored(engine: Engine) -> dict[str, dict[str, Any]]:
    """Return every stored roll-up and tally, and how far each job is rolled up, by key."""
    with engines.reading(engine) as session:
        rows = session.execute(select(*DayRollupRow.__table__.columns)).mappings()
        rows_by_key = {
            str(row["key"]): {name: value for name, value in row.items() if name != "key"}
            for row in rows
        }
        tally_query = select(
            JobTallyRow.job_id, JobTallyRow.output, JobTallyRow.shadow, *Tally.of(JobTallyRow)
        )
        for job, output, shadow, *sums in session.execute(tally_query):
            rows_by_key[f"{job} {output}"] = {"shadow": shadow, "sums": sums}
        for job, upto, shadow in session.execute(
            select(RolledRow.job_id, RolledRow.upto, RolledRow.shadow)
        ):
            rows_by_key[job] = {"upto": upto, "shadow": shadow}
        return rows_by_key


def read(engine: Engine, by: Sequence[str] = ()) -> list[Rollup]:
    with engines.reading(engine) as session:
        return of_test(session, KEY, by)


def wild(seed: int, device: str = "emulator:0", repeat: int = 0, **dx: Any) -> dict[str, Any]:
    """Return a row with these numbers in its output dx."""
    row = stored_jobs.row(seed, wrong=seed % 3 == 0, within=seed % 5 != 0) | {
        "device": device,
        "repeat": repeat,
    }
    row["outputs"]["dx"] |= dx
    return row


def fill(engine: Engine) -> list[dict[str, Any]]:
    """Store a history with every kind of row; return the rows that count."""
    first = submit(engine, build="tt-train-2025")
    second = submit(engine, build="tt-train-2025", context={"name": "after softmax", "before": []})
    third = submit(engine, build="correct")
    compared = submit(engine, build="correct", reference="tt-train-2025")
    batches = [
        (
            first,
            NOON,
            [
                wild(0),
                wild(1, tolerance_ratio=math.inf),
                wild(2, rms=math.nan),
                stored_jobs.unwell(3, "hang", "no answer"),
            ],
        ),
        (
            first,
            NOON + timedelta(hours=11, minutes=59),
            [wild(4, "emulator:1", rounding_ratio=0.0), wild(4, "emulator:1", repeat=1)],
        ),
        (
            first,
            NOON + timedelta(days=1),
            [wild(5, tolerance_ratio=None, nonfinite_statistics={"tolerance_ratio": "inf"})],
        ),
        (
            first,
            NOON - timedelta(days=1),
            [wild(6), wild(7, tolerance_ratio=None)],
        ),  # a clock that went back
        (second, NOON, [wild(seed) for seed in range(30)]),
        (third, NOON, [stored_jobs.row(seed, wrong=False) for seed in range(8)]),
        (
            first,
            NOON,
            [wild(8, rms=5e-324), stored_jobs.unwell(9, "error", "gone") | {"device": None}],
        ),
    ]
    for job, now, rows in batches:
        store(engine, job, rows, now)
    store(engine, compared, [wild(seed) for seed in range(10)])
    with engines.session(engine) as session:
        stored_jobs.finish(session, third)
        stored_jobs.finish(session, compared)
    return [row for _, _, rows in batches for row in rows]


def test_the_sums_are_those_of_the_rows_and_of_a_rebuild(engine: Engine) -> None:
    rows = fill(engine)
    (whole,) = read(engine)
    assert whole.seeds == len(rows)
    assert whole.counts == Counter(row["verdict"] for row in rows)
    assert whole.explanations == Counter(row["explanation"] for row in rows if "explanation" in row)
    assert whole.duration_ms == sum(row.get("duration_ms", 0.0) for row in rows)
    red = [row for row in rows if row["verdict"] in ("fail", "fail_by_tolerance")]
    assert whole.rates() == (rate(len(red), len(rows) - 2), rate(2, len(rows)))
    dx = [row["outputs"]["dx"] for row in rows if row["outputs"]]
    assert whole.outputs["dx"].seeds == len(dx)
    assert whole.outputs["dx"].counts == Counter(output["verdict"] for output in dx)
    ratios = whole.outputs["dx"].sketch("tolerance_ratio")
    assert (ratios.count, ratios.inf, ratios.missing) == (len(dx) - 1, 2, 1)
    finite = sorted(
        output["tolerance_ratio"] for output in dx if output["tolerance_ratio"] is not None
    )[: len(dx) - 3]
    assert ratios.quantile(0.5) == pytest.approx(
        finite[(len(dx) - 1 + 1) // 2 - 1], rel=ratios.error
    )
    assert (whole.outputs["dx"].sketch("rms").nan, whole.outputs["dx"].sketch("rms").least) == (
        1,
        5e-324,
    )
    assert whole.outputs["dx"].sketch("rounding_ratio").zero == 1
    assert whole.sketch("tolerance_ratio").inf == 2
    assert whole.sketch("duration_ms").missing == 2

    before = stored(engine)
    done = rebuild.rebuild(engine)
    assert (done.units, done.seeds) == (2, len(rows) + 10)
    assert stored(engine) == before


def test_axes_that_are_left_out_are_summed_over_and_jobs_that_compare_builds_left_out(
    engine: Engine,
) -> None:
    fill(engine)
    days = [(rollup.place["day"], rollup.seeds) for rollup in read(engine, by=["day"])]
    assert days == [(date(2026, 2, 28), 2), (date(2026, 3, 1), 46), (date(2026, 3, 2), 1)]
    by_build = read(engine, by=["build", "context"])
    assert [(rollup.place, rollup.seeds) for rollup in by_build] == [
        ({"build": "correct", "context": "isolated"}, 8),
        ({"build": "tt-train-2025", "context": "after softmax"}, 30),
        ({"build": "tt-train-2025", "context": "isolated"}, 11),
    ]
    devices = {
        rollup.place["device"]: rollup.seeds
        for rollup in read(engine, by=["build", "context", "device"])
        if (rollup.place["build"], rollup.place["context"]) == ("tt-train-2025", "isolated")
    }
    assert devices == {"": 1, "emulator:0": 8, "emulator:1": 2}
    assert (
        sum(rollup.seeds for rollup in read(engine, by=AXES))
        == sum(rollup.seeds for rollup in read(engine))
        == 49
    )
    # a job that compares two builds counts in no roll-up, and in no build of a test
    with engines.reading(engine) as session:
        newest, oldest = sorted(test_specs.builds_of(session, KEY), key=lambda result: result.build)
    assert (newest.build, newest.jobs, newest.seeds, newest.counts) == (
        "correct",
        1,
        8,
        {"pass": 8},
    )
    assert newest.outputs["dx"]["rounding_ratio"] < 1.1
    assert (oldest.build, oldest.jobs, oldest.seeds) == (
        "tt-train-2025",
        0,
        41,
    )  # its jobs still run


def test_what_an_older_version_stored_is_caught_up_with_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(engine)
    expected = stored(engine)
    monkeypatch.setattr(rebuild, "SLICE", 3)
    with engines.session(engine) as session:
        session.execute(delete(DayRollupRow))
        session.execute(delete(JobTallyRow))
        session.execute(delete(RolledRow))
    running = next(iter({name for name, value in expected.items() if value.get("upto") == 30}))
    store(engine, running, [wild(30)])
    assert stored(engine) == {}  # not before the earlier rows
    schema.upgrade(engine)
    assert [rollup.seeds for rollup in read(engine)] == [50]
    assert rebuild.catch_up(engine) == 0
    before = stored(engine)
    rebuild.rebuild(engine, test_key=KEY)
    assert stored(engine) == before


def test_seeds_whose_events_are_gone_count_on_the_day_of_their_job(engine: Engine) -> None:
    rows = fill(engine)
    with engines.session(engine) as session:
        # those of the first job's first batch stay
        session.execute(delete(EventRow).where(EventRow.data["done"].as_integer() > 4))
    rebuild.rebuild(engine, test_key=KEY)
    assert sum(rollup.seeds for rollup in read(engine)) == len(rows)


def test_catching_up_tells_how_many_seeds_it_has_counted(engine: Engine) -> None:
    fill(engine)
    with engines.session(engine) as session:
        uncounted = dict(session.execute(select(RolledRow.job_id, RolledRow.upto)).all())
        session.execute(delete(DayRollupRow))
        session.execute(delete(JobTallyRow))
        session.execute(delete(RolledRow))
    counted = {job: rebuild.catch_up_job(engine, job) for job in uncounted}
    assert counted == uncounted
    assert {rebuild.catch_up_job(engine, job) for job in uncounted} == {0}


def test_several_ingests_and_rebuilds_at_once_lose_and_double_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "SLICE", 7)
    jobs = [submit(engine) for _ in range(3)]
    problems: list[BaseException] = []
    begin = threading.Barrier(5)

    def run(work: Any) -> None:
        try:
            begin.wait(20)
            work()
        except BaseException as problem:
            problems.append(problem)

    def ingest(job: str) -> None:
        for start in range(0, 40, 4):
            store(
                engine,
                job,
                [wild(seed) for seed in range(start, start + 4)],
                NOON + timedelta(hours=start),
            )

    def mend() -> None:
        for _ in range(2):
            rebuild.rebuild(engine)

    works = [*(partial(ingest, job) for job in jobs), mend, mend]
    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert problems == []
    (whole,) = read(engine)
    assert whole.seeds == 120
    assert whole.counts == {
        name: 3 * count
        for name, count in Counter(wild(seed)["verdict"] for seed in range(40)).items()
    }
    before = stored(engine)
    assert not any(row["shadow"] for row in before.values())
    rebuild.rebuild(engine)
    assert stored(engine) == before


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_ingest_waits_for_whoever_changes_the_roll_ups_of_its_test(engine: Engine) -> None:
    wider = {**stored_jobs.NIGHTLY, "tolerance": {"rtol": 0.01}}
    job, other = submit(engine), submit(engine, test=wider)

    def impatient(job_id: str) -> None:
        with engines.session(engine) as session:
            session.execute(text("SET LOCAL lock_timeout = '50ms'"))
            row = closing.lock(session, job_id)
            assert row is not None
            closing.record(session, row, new_id(), Batch.of([wild(0)]), now=NOON)

    with engines.session(engine) as holder:
        rollups.lock(holder, KEY)
        with pytest.raises(OperationalError, match="lock timeout"):
            impatient(job)
        impatient(other)
    impatient(job)
    (whole,) = read(engine)
    assert whole.seeds == 1


def test_a_rebuild_mends_what_is_wrong_and_drops_what_belongs_to_nothing(engine: Engine) -> None:
    fill(engine)
    expected = stored(engine)
    with engines.session(engine) as session:
        session.execute(update(DayRollupRow).values(seeds=DayRollupRow.seeds + 1))
        key = next(iter(session.scalars(select(DayRollupRow.key))))
        columns = [
            column
            for column in DayRollupRow.__table__.columns
            if column.name not in ("key", "build", "shadow")
        ]
        row = session.execute(select(*columns).where(DayRollupRow.key == key)).mappings().one()
        session.add(DayRollupRow(**row, key=new_id(), build="never submitted", shadow=False))
        session.add(
            DayRollupRow(**row, key=new_id(), build="correct", shadow=True)
        )  # left by a rebuild that was killed
    progress_reports: list[rebuild.Progress] = []
    assert rebuild.rebuild(engine, on_progress=progress_reports.append).units == 3
    assert stored(engine) == expected
    *between, last = progress_reports
    assert last == rebuild.Progress(3, 3, 59, None)
    assert [report.units for report in between] == [0, 1, 2]
    assert all(report.unit and report.total == 3 for report in between)


def test_the_command_rebuilds_and_says_what_it_did(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = engines.make_engine(sqlite_url)
    schema.upgrade(engine)
    fill(engine)
    expected = stored(engine)
    with engines.session(engine) as session:
        session.execute(update(DayRollupRow).values(duration_us=0))
    monkeypatch.setenv("GONOGO_DATABASE_URL", sqlite_url)
    load("rollups").main(["rebuild", "--json", "--test", KEY], standalone_mode=False)
    *_, last_line = capsys.readouterr().out.splitlines()
    assert {name: value for name, value in json.loads(last_line).items() if name != "seconds"} == {
        "units": 2,
        "seeds": 59,
    }
    assert stored(engine) == expected
    with pytest.raises(JobError, match="no test v1-nothing"):
        load("rollups").main(["rebuild", "--test", "v1-nothing"], standalone_mode=False)
    engine.dispose()


def test_a_jobs_own_sums_are_read_only_when_they_are_whole(engine: Engine) -> None:
    job = submit(engine)
    with engines.reading(engine) as session:
        assert rollups.of_job(session, job) == {}
        assert rollups.of_job(session, "nonsense") is rollups.of_job(session, new_id()) is None
    store(engine, job, [wild(0), wild(1), stored_jobs.unwell(2, "crash", "signal 11")])
    with engines.reading(engine) as session:
        sums = rollups.of_job(session, job)
        assert sums is not None
        before = reads.outputs(session, job, sums)
        assert (sums[""].seeds, sums[""].empty, sums["dx"].seeds) == (3, 1, 2)
        assert [reads.mark_count(session, job, name, sums) for name in ("dx", "", "none")] == [
            3,
            1,
            1,
        ]
    with engines.session(engine) as session:
        session.execute(delete(RolledRow))
    with engines.reading(engine) as session:
        assert rollups.of_job(session, job) is None
        assert reads.outputs(session, job, None) == before
        assert [reads.mark_count(session, job, name, None) for name in ("dx", "", "none")] == [
            3,
            1,
            1,
        ]
