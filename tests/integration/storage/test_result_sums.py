"""Rows of results and their sums: what was sent, counted once, on both databases."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, func, select

import stored_jobs
from at_once import at_once
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import worst_first
from gonogo_service.jobs import closing, job_removal
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import JobState
from gonogo_service.results import grid, seeds, sums, tallies, worst
from gonogo_service.results.batch import Batch
from gonogo_service.results.model import WHOLE, DailyRow, JobBlockRow, ResultRow
from gonogo_service.tests import test_specs

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = TestSpec.parse(stored_jobs.NIGHTLY).key


def submit(engine: Engine, **changes: Any) -> str:
    with session(engine) as current:
        return stored_jobs.submit(current, **{"seeds": 100, **changes}).id


def store(engine: Engine, job_id: str, rows: list[dict[str, Any]], now: datetime = NOON) -> None:
    """Store a batch as ingest does."""
    with session(engine) as current:
        job = closing.lock(current, job_id)
        assert job is not None
        closing.record(current, job, new_id(), Batch.of(rows), now=now)


def wild(seed: int, device: str = "emulator:0", repeat: int = 0, **dx: Any) -> dict[str, Any]:
    """Return a row with these numbers in its output dx."""
    row = stored_jobs.row(seed, wrong=seed % 3 == 0, within=seed % 5 != 0)
    row |= {"device": device, "repeat": repeat}
    row["outputs"]["dx"] |= dx
    return row


def fill(engine: Engine) -> list[dict[str, Any]]:
    """Store a history with every kind of row; return the rows that count."""
    first = submit(engine, build="tt-train-2025")
    second = submit(engine, build="tt-train-2025", context={"name": "after softmax", "before": []})
    third = submit(engine, build="correct")
    compared = submit(engine, build="correct", reference="tt-train-2025")
    hang = stored_jobs.unwell(3, "hang", "no answer")
    odd = [wild(0), wild(1, tolerance_ratio=math.inf), wild(2, rms=math.nan), hang]
    error = stored_jobs.unwell(9, "error", "gone") | {"device": None}
    batches = [
        (first, NOON, odd),
        (first, NOON + timedelta(hours=11), [wild(4, "emulator:1"), wild(4, "emulator:1", 1)]),
        (first, NOON + timedelta(days=1), [wild(5, tolerance_ratio=None)]),
        # a clock that went back
        (first, NOON - timedelta(days=1), [wild(6), wild(7, rounding_ratio=0.0)]),
        (second, NOON, [wild(seed) for seed in range(30)]),
        (third, NOON, [stored_jobs.row(seed, wrong=False) for seed in range(8)]),
        (first, NOON, [wild(4100, rms=5e-324), error]),
    ]
    for job, now, rows in batches:
        store(engine, job, rows, now)
    store(engine, compared, [wild(seed) for seed in range(10)])
    return [row for _, _, rows in batches for row in rows]


def total(engine: Engine, output: str) -> tallies.Tally:
    """Return the sums of an output over all days."""
    with reading(engine) as current:
        where = DailyRow.output == output
        (tally,) = tallies.sums(current, DailyRow, (DailyRow.output,), where).values()
    return tally


def test_the_sums_are_those_of_the_rows(engine: Engine) -> None:
    rows = fill(engine)
    whole, dx = total(engine, WHOLE), total(engine, "dx")
    assert (whole.seeds, whole.empty) == (len(rows), 2)
    assert whole.counts == Counter(row["verdict"] for row in rows)
    assert whole.explanations == Counter(row["explanation"] for row in rows if "explanation" in row)
    assert whole.duration_ms == pytest.approx(sum(row.get("duration_ms", 0.0) for row in rows))
    red = [row for row in rows if row["verdict"] in ("fail", "fail_by_tolerance")]
    assert (whole.failed, whole.passed) == (len(red), len(rows) - 2 - len(red))
    outputs = [row["outputs"]["dx"] for row in rows if row["outputs"]]
    assert dx.counts == Counter(output["verdict"] for output in outputs)
    for name in ("tolerance_ratio", "rms", "rounding_ratio"):
        known = [o[name] for o in outputs if o[name] is not None and math.isfinite(o[name])]
        figure = dx.figure(name)
        assert (figure.known, figure.largest) == (len(known), max(known))
        logs = [math.log(max(value, sums.TINY)) for value in known]
        assert figure.middle == pytest.approx(math.exp(sum(logs) / len(logs)))
    rms = [o["rms"] for o in outputs if math.isfinite(o["rms"])]
    assert dx.metrics["rms"] == pytest.approx(sum(rms) / len(rms))
    assert dx.metrics["max_abs"] == max(o["max_abs"] for o in outputs)


def test_days_are_counted_by_build_context_and_device_without_comparisons(engine: Engine) -> None:
    fill(engine)

    def seeds_by(*columns: Any) -> dict[Any, int]:
        with reading(engine) as current:
            by_place = tallies.sums(current, DailyRow, columns, DailyRow.output == WHOLE)
        return {place: tally.seeds for place, tally in by_place.items()}

    days = {(date(2026, 2, 28),): 2, (date(2026, 3, 1),): 46, (date(2026, 3, 2),): 1}
    assert seeds_by(DailyRow.day) == days
    assert seeds_by(DailyRow.build, DailyRow.context) == {
        ("correct", "isolated"): 8,
        ("tt-train-2025", "after softmax"): 30,
        ("tt-train-2025", "isolated"): 11,
    }
    assert seeds_by(DailyRow.device) == {("",): 1, ("emulator:0",): 46, ("emulator:1",): 2}
    with reading(engine) as current:
        newest, oldest = sorted(test_specs.builds_of(current, KEY), key=lambda one: one.build)
    assert (newest.build, newest.seeds, newest.counts) == ("correct", 8, {"pass": 8})
    assert newest.outputs["dx"]["rounding_ratio"] < 1.1
    assert (oldest.build, oldest.jobs, oldest.seeds) == ("tt-train-2025", 0, 41)


def test_several_ingests_at_once_lose_and_double_nothing(engine: Engine) -> None:
    def ingest(job: str) -> None:
        for start in range(0, 40, 4):
            batch = [wild(seed) for seed in range(start, start + 4)]
            store(engine, job, batch, NOON + timedelta(hours=start))

    at_once(*(partial(ingest, submit(engine)) for _ in range(3)))
    once = Counter(wild(seed)["verdict"] for seed in range(40))
    assert total(engine, WHOLE).counts == {name: 3 * count for name, count in once.items()}


def content(engine: Engine) -> list[tuple[Any, ...]]:
    """Return the rows of the aggregates, in seven digits: sums depend on the order."""

    def short(value: Any) -> Any:
        return float(f"{value:.7g}") if isinstance(value, float) else value

    with reading(engine) as current:
        tables = (DailyRow.__table__, JobBlockRow.__table__)
        rows = [row for table in tables for row in current.execute(select(*table.columns))]
    return sorted((tuple(map(short, row)) for row in rows), key=repr)


def test_a_deleted_job_leaves_the_days_as_if_it_had_never_run(engine: Engine) -> None:
    fill(engine)
    before = content(engine)
    job = submit(engine, build="tt-train-2025")
    store(engine, job, [wild(seed, tolerance_ratio=1e6, rms=1e6) for seed in range(12)])
    store(engine, job, [wild(12)], NOON + timedelta(days=9))
    assert content(engine) != before
    with session(engine) as current:
        current.get_one(JobRow, job).state = JobState.cancelled
        assert job_removal.remove(current, job, actor="me", now=NOON).seeds == 13
    assert content(engine) == before


def test_a_seed_is_read_as_it_was_sent_and_its_worst_output_comes_first(engine: Engine) -> None:
    job, last = submit(engine), 2**53 - 1
    rows = [wild(0), wild(1, tolerance_ratio=math.inf, rms=math.nan), wild(5, advice="take more")]
    rows += [
        wild(last, rms=5e-324) | {"position": 0},
        stored_jobs.unwell(3, "hang", "no answer\x00"),
    ]
    store(engine, job, rows)
    with reading(engine) as current:
        stored_seeds = {seed.seed: seed for seed in seeds.read(current, ResultRow.job_id == job)}
        few = list(seeds.read(current, ResultRow.job_id == job, statistics=("rms",), limit=2))
        (largest,) = current.execute(select(func.min(ResultRow.minus_size), func.count())).all()
    assert [seed.seed for seed in few] == [0, 1]
    assert set(few[0].outputs["dx"]) == {"verdict", "explanation", "rms"}
    assert tuple(largest) == (-math.inf, 13)
    assert stored_seeds[last].outputs["dx"]["rms"] == 5e-324
    for row in rows[:4]:
        seed = stored_seeds[row["seed"]]
        assert list(seed.outputs) == worst_first(seed.outputs)
        for name, output in row["outputs"].items():
            for statistic, value in output.items():
                is_finite = not isinstance(value, float) or math.isfinite(value)
                stored = seed.outputs[name].get(statistic)
                assert stored == (value if is_finite else None), statistic
    kinds = {"tolerance_ratio": "inf", "rms": "nan"}
    assert stored_seeds[1].outputs["dx"]["nonfinite_kinds"] == kinds
    assert seeds.value_of(stored_seeds[1].outputs["dx"], "tolerance_ratio") == math.inf
    assert (stored_seeds[3].outputs, stored_seeds[3].message) == (
        {},
        "no answer\N{REPLACEMENT CHARACTER}",
    )


@pytest.mark.parametrize(
    ("outcomes", "passed", "failed"),
    [("passed failed", 0, 1), ("passed skipped", 1, 0), ("skipped", 0, 0)],
)
def test_an_iteration_of_tests_counts_as_what_they_say_and_its_tests_have_no_sums(
    outcomes: str, passed: int, failed: int
) -> None:
    tests: dict[str, Any] = {
        f"Suite.{place}": {"verdict": "not_judged", "outcome": outcome}
        for place, outcome in enumerate(outcomes.split())
    }
    tests["Suite.0/dx"] = {"verdict": "pass", "explanation": "explained", "rounding_ratio": 0.5}
    row = {"seed": 0, "repeat": 0, "verdict": "not_judged", "outputs": tests}
    blocks = {one["output"]: one for one in sums.of_batch("job", Batch.of([row]), date.today())}
    assert set(blocks) == {WHOLE, "Suite.0/dx"}
    assert (blocks[WHOLE]["passed"], blocks[WHOLE]["failed"]) == (passed, failed)


def test_times_that_cannot_be_add_nothing() -> None:
    rows = [stored_jobs.row(seed, wrong=False) for seed in range(4)]
    for row, time in zip(rows, [0.25, None, -3.0, 1e300], strict=True):
        row["duration_ms"] = time
    blocks = sums.of_batch("job", Batch.of(rows), date.today())
    assert [one["duration_ms"] for one in blocks if one["output"] == WHOLE] == [0.25]


@pytest.mark.parametrize("most", [7, 1000])
def test_a_grid_of_blocks_tells_what_a_grid_of_rows_does(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    job = submit(engine, seeds=30)
    store(engine, job, [wild(seed) for seed in range(1, 27)])
    with reading(engine) as current:
        stored = jobs.get(current, job)
        assert stored is not None
        by_rows = grid.read(current, stored, most)
        monkeypatch.setattr(grid, "MAX_ROWS", 10)
        by_blocks = grid.read(current, stored, most)
    assert sum(cell.done for cell in by_rows.cells) == 26
    assert by_rows.width == (5 if most == 7 else 1)
    assert by_rows.cells[0].verdict == ("pass_by_tolerance" if most == 7 else None)
    (block,) = by_blocks.cells
    finished = [cell for cell in by_rows.cells if cell.verdict is not None]
    first = min(finished, key=lambda cell: (cell.verdict.rank if cell.verdict else 0, cell.first))
    assert (block.done, block.verdict, block.first) == (26, first.verdict, first.first)


def test_the_quantiles_of_a_chart_are_those_of_the_newest_seeds(engine: Engine) -> None:
    job = submit(engine, build="correct")
    old = [wild(seed, tolerance_ratio=100.0) for seed in range(40)]
    new = [wild(seed, tolerance_ratio=float(seed)) for seed in range(40, 60)]
    store(engine, job, [*old, *new, wild(60, tolerance_ratio=math.nan)])
    with reading(engine) as current:
        row = current.get_one(JobRow, job)
        of_job = worst.of_output(current, [job], "dx")
        spread = worst.spread(current, [row], "dx", "tolerance_ratio", of_job, 21)
    assert (spread.low, spread.middle, spread.high) == (40.0, 50.0, 100.0)
    assert spread.unnumbered == 1
