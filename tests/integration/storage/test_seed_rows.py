"""Every field of a result comes back from its compact row as a worker sent it; on SQLite and on
PostgreSQL."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from sqlalchemy import Engine, select

import stored_jobs
from gonogo.judging.columns import in_columns
from gonogo.spec.statistics import ROLLED_UP
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.results import results, strips
from gonogo_service.results.rollups import rebuild, rollups
from gonogo_service.results.rows import SeedLayoutRow, SeedResultRow
from gonogo_service.results.seed_rows import layouts, slots, unpacking
from gonogo_service.results.seed_rows.batch import Batch
from gonogo_service.results.seed_rows.layouts import EXACT
from gonogo_service.results.seed_rows.stored import read_judged

SEED: dict[str, Any] = {
    "seed": 2**53 - 1,
    "repeat": 3,
    "verdict": "pass_by_tolerance",
    "explanation": "unexplained",
    "device": "lab-1/wormhole:0",
    "host_run": "c80b6a386bf64196975580da0eff6e86",
    "position": 17,
    "duration_ms": 812.503,
    "arithmetic": "tt-train",
    "judge": "3",
}
DX: dict[str, Any] = {
    "verdict": "pass_by_tolerance",
    "explanation": "unexplained",
    "max_abs": 0.01108998,
    "rms": 0.0017089993413660033,
    "pcc_deficit": 4.594888132327037e-06,
    "ulp_max": 962696.0,
    "needed_atol": {"0": 0.01108998, "0.016": 0.0007299266, "0.1": 0.0},
    "tolerance_ratio": 0.022112797560788874,
    "rounding_ratio": 280.8293497918243,
    "distance": 200.9335,
    "shared": 456.3416,
    "common": [
        {"source": "rstd", "estimate": 0.25, "deviation": 1e-9, "is_certain": True, "limit": 2e-7}
    ],
    "outliers": 266,
    "worst_index": [10, 173],
    "count": 32768,
    "nonfinite": 0,
    "digest": "0f02dcd28a426462",
    "nonfinite_statistics": None,
    "arithmetic": "fp32-inside",
    "is_wide": False,
    "fault": "s1 is subtracted twice: explains 99 % of the misfit",
    "faults": [{"id": "twice:s1", "label": "s1 is subtracted twice", "size": 1.0, "share": 0.99}],
    "places": "",
    "detection_limits": ["a common factor below 0.03 %"],
}
UNUSUAL: dict[str, dict[str, Any]] = {
    "as usual": {},
    "whole numbers and booleans": {"count": 2**40, "exact": True, "note": "é \N{SNOWMAN}"},
    "lists and objects": {"reference": {"max_abs": 0.25, "within": None}, "shares": [[0.1, None]]},
    "no numbers at all": dict.fromkeys(("tolerance_ratio", "rounding_ratio", "rms", "needed_atol")),
    "kinds that the worker names": {
        "tolerance_ratio": None,
        "nonfinite_kinds": {"nan": 3, "inf": 1},
        "nonfinite_statistics": {"tolerance_ratio": "-inf"},
    },
    "smaller than any float32": {"max_abs": 1e-60, "distance": 5e-324},
    "larger than any float32": {"max_abs": 1e300, "needed_atol": {"0": 1e300}},
    "an object of other things": {"needed_atol": {"0": 0.5, "words": "none"}},
    "another digest": {"digest": "not 16 digits"},
    "a digest in capitals": {"digest": "0F02DCD28A426462"},
    "no digest": {"digest": None},
    "not explained": {"explanation": None},
}


def _job(engine: Engine, rows: list[dict[str, Any]]) -> str:
    with session(engine) as current:
        job = stored_jobs.submit(current, seeds=len(rows))
        batch = Batch.parse(json.loads(json.dumps(in_columns(rows))))  # as workers send them
        results.add(current, current.get_one(JobRow, job.id), job.id, batch, arrival=0)
    return job.id


def _expected(sent: dict[str, Any]) -> dict[str, Any]:
    """Return an output as the HTTP API shows it."""
    return {**dict.fromkeys((*ROLLED_UP, "digest", "nonfinite_kinds", "explanation")), **sent}


@pytest.mark.parametrize("changes", UNUSUAL.values(), ids=UNUSUAL)
def test_every_statistic_comes_back_as_it_was_sent(engine: Engine, changes: dict[str, Any]) -> None:
    outputs = {"dx": {**DX, **changes}, "dbeta": DX}
    job_id = _job(engine, [{**SEED, "outputs": outputs}])
    with reading(engine) as current:
        stored = results.get(current, job_id, SEED["seed"], SEED["repeat"])
        pages = [results.page(current, job_id, order=order) for order in ("seed", "arrival")]
        marked = strips.statistics(current, {job_id: [(SEED["seed"], SEED["repeat"])]}, "dx")
    assert stored == {
        **SEED,
        "message": None,
        "attempt": job_id,
        "arrival": 1,
        "outputs": {name: _expected(output) for name, output in outputs.items()},
        "outputs_from": 0,
        "outputs_total": len(outputs),
    }
    assert [page.items for page in pages] == [(stored,), (stored,)]
    assert list(stored["outputs"]) == ["dbeta", "dx"]
    (statistics,) = marked.values()
    assert statistics.items() <= stored["outputs"]["dx"].items()


def test_a_comparison_reads_the_statistics_that_it_names(engine: Engine) -> None:
    job_id = _job(engine, [{**SEED, "outputs": {"dx": DX}}])
    conditions = (SeedResultRow.__table__.c.job_id == job_id,)
    names = frozenset({"distance", "faults"})
    with reading(engine) as current:
        [seed] = read_judged(current, conditions, lambda _: names)
    assert (seed.job, seed.seed, seed.verdict) == (job_id, SEED["seed"], SEED["verdict"])
    read = ("verdict", "explanation", "distance", "faults")
    assert seed.outputs["dx"] == {name: DX[name] for name in read}


def test_numbers_have_seven_digits_and_those_that_are_compared_have_all(engine: Engine) -> None:
    exact = 1 / 3
    sent = {**DX, **dict.fromkeys(ROLLED_UP, exact), "needed_atol": {"0": exact}}
    job_id = _job(engine, [{**SEED, "outputs": {"dx": sent}}])
    with reading(engine) as current:
        stored = results.get(current, job_id, SEED["seed"], SEED["repeat"])
    assert stored is not None
    expected = {name: exact if name in EXACT else 0.3333333 for name in ROLLED_UP}
    assert {name: stored["outputs"]["dx"][name] for name in ROLLED_UP} == expected
    assert {name: layouts.stored_number(name, exact) for name in ROLLED_UP} == expected
    assert stored["outputs"]["dx"]["needed_atol"] == {"0": exact}


def test_a_number_that_is_not_finite_is_none_beside_its_kind(engine: Engine) -> None:
    numbers = {"distance": math.nan, "tolerance_ratio": math.inf, "mean_abs": -math.inf}
    sent = {**DX, **numbers, "nonfinite_kinds": {"nan": 3}}
    job_id = _job(engine, [{**SEED, "duration_ms": math.inf, "outputs": {"dx": sent}}])
    with reading(engine) as current:
        stored = results.get(current, job_id, SEED["seed"], SEED["repeat"])
    assert stored is not None
    dx = stored["outputs"]["dx"]
    assert stored["duration_ms"] is None
    assert [dx[name] for name in numbers] == [None, None, None]
    kinds = {"distance": "nan", "tolerance_ratio": "inf", "mean_abs": "-inf", "nan": 3}
    assert dx["nonfinite_kinds"] == kinds


def test_seeds_without_numbers_and_existing_tests_come_back(engine: Engine) -> None:
    tests = {
        f"Suite.{n}": {"verdict": "not_judged", "outcome": "failed", "file": "a.cpp", "line": n}
        for n in range(40)
    }
    hang = {"seed": 0, "repeat": 0, "verdict": "hang", "message": "no answer\x00 in 1 s"}
    iteration = {**SEED, "seed": 1, "outputs": {**tests, "Suite.0/dx": DX}}
    job_id = _job(engine, [hang, iteration])
    with reading(engine) as current:
        first, second = results.stream(current, job_id, size=1)
        assert current.get_one(JobRow, job_id).slots == ["Suite.0/dx"]
    assert (first["verdict"], first["explanation"], first["outputs"]) == ("hang", None, {})
    assert first["message"] == "no answer\N{REPLACEMENT CHARACTER} in 1 s"
    assert [first[name] for name in ("device", "host_run", "position", "duration_ms")] == [None] * 4
    assert second["outputs"] == {
        name: _expected(sent) for name, sent in iteration["outputs"].items()
    }


def test_seeds_of_a_kind_share_a_layout_and_the_first_writer_wins(engine: Engine) -> None:
    rows = [{**SEED, "repeat": n, "outputs": {"dx": DX, "dgamma": DX}} for n in range(4)]
    job_id = _job(engine, rows)
    other = {**DX, "tolerance_ratio": 9.0}
    with session(engine) as current:
        job = current.get_one(JobRow, job_id)
        again = [{**rows[0], "outputs": {"dx": other}}, {**rows[0], "repeat": 4}]
        results.add(current, job, job_id, Batch.of(again), arrival=4)
    with reading(engine) as current:
        assert len(current.scalars(select(SeedLayoutRow.id)).all()) == 2
        stored = results.get(current, job_id, SEED["seed"])
        assert stored is not None
        assert stored["outputs"]["dx"]["tolerance_ratio"] == DX["tolerance_ratio"]
        assert len(list(results.stream(current, job_id))) == 5


def test_more_layouts_than_are_remembered_are_read_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "MAX_LAYOUTS", 1)
    counts = [1, 2, 3]
    job_id = _job(
        engine,
        [{**SEED, "repeat": n, "outputs": {"dx": {**DX, "count": n}}} for n in counts],
    )
    with reading(engine) as current:
        for count in (1, 2, 1):  # the first is remembered when all are read together
            assert results.get(current, job_id, SEED["seed"], count) is not None
        seeds = list(results.stream(current, job_id))
    assert [seed["outputs"]["dx"]["count"] for seed in seeds] == counts


def test_outputs_keep_their_slots_and_those_beyond_the_last_are_read_as_a_whole(
    engine: Engine,
) -> None:
    many = {f"out{n}": {**DX, "tolerance_ratio": float(n)} for n in range(6)}
    rows = [stored_jobs.row(0, wrong=False), {**SEED, "seed": 1, "repeat": 0, "outputs": many}]
    with session(engine) as current:
        job_id = stored_jobs.submit(current, seeds=2).id
        stored_jobs.report(current, job_id, rows)
    with reading(engine) as current:
        job = current.get_one(JobRow, job_id)
        assert job.slots == ["dbeta", "dgamma", "dx", "out0"]
        for output in many:
            totals = strips.sums(current, [job_id], output, "tolerance_ratio")
            marks = strips.worst(current, [[job]], output, "tolerance_ratio", 10, totals)
            assert [mark.value for mark in marks] == [many[output]["tolerance_ratio"]]
        ranks = current.execute(select(SeedResultRow.rank_3, SeedResultRow.axis_3)).all()
    assert set(map(tuple, ranks)) == {
        (None, None),
        (slots.rank("pass_by_tolerance", slots.GATED), 0.0),
    }


def test_a_rebuild_gives_the_sums_that_ingest_made(engine: Engine) -> None:
    rows = [stored_jobs.row(seed, wrong=seed % 3 == 0) for seed in range(7)]
    with session(engine) as current:
        job_id = stored_jobs.submit(current, seeds=8).id
        stored_jobs.report(current, job_id, [*rows, stored_jobs.unwell(7, "hang", "no answer")])
    before, _ = [rollups_of(engine, job_id), rebuild.rebuild(engine)]
    after = rollups_of(engine, job_id)
    assert after == before
    assert set(before or ()) == {"", "dbeta", "dgamma", "dx"}


def rollups_of(engine: Engine, job_id: str) -> Any:
    """Return a job's sums."""
    with reading(engine) as current:
        return rollups.of_job(current, job_id)
