"""A flag's evidence, and a job's diagnosis: of many seeds and outputs, those that show it best."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

import migrated_database
import stored_jobs
from gonogo.spec.canonical import key_of
from gonogo_service.flags import evidence, suspects
from gonogo_service.flags.api import FLAGS
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from job_flow import new_job, output, row

HOLLOW = ("pass_by_tolerance", "unexplained")


@pytest.fixture(scope="module")
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A migrated database."""
    yield from migrated_database.migrated(request, tmp_path_factory)


@pytest.fixture
def current(engine: Engine) -> Iterator[Session]:
    """One write transaction, rolled back."""
    with migrated_database.back(engine) as transaction:
        yield transaction


def ended(current: Session, *rows: dict[str, Any], **changes: Any) -> str:
    """A job that has ended with these rows."""
    job = jobs.create(current, new_job(len(rows), **changes))
    stored_jobs.report(current, job.id, list(rows))
    stored_jobs.finish(current, job.id)
    return job.id


def of(seed: int, verdict: str, explanation: str, **outputs: dict[str, Any]) -> dict[str, Any]:
    """A row whose outputs have these statistics, and the row's verdict unless they name another."""
    judged = {
        name: output(**{"verdict": verdict, "explanation": explanation, **statistics})
        for name, statistics in outputs.items()
    }
    return row(seed, 0, verdict, explanation, outputs=judged)


def the_evidence(current: Session, job_id: str, kind: str) -> dict[str, Any]:
    """The evidence of a job's flag of a kind."""
    by_kind = {flag.kind: flag.evidence for flag in FLAGS.page(current, job=job_id).items}
    return by_kind[kind]


def test_a_flag_shows_a_seed_of_its_own_verdict(current: Session) -> None:
    """Another one may be farther from the tolerance: it is wrong by another rule."""
    job = ended(
        current,
        of(0, "fail", "unexplained", dx={"tolerance_ratio": 90.0}),
        of(1, "fail_by_tolerance", "explained", dx={"tolerance_ratio": 3.0}),
        of(2, "fail_by_tolerance", "explained", dx={"tolerance_ratio": 4.0}),
    )
    shown = the_evidence(current, job, "tolerance_too_tight")
    assert (shown["seed"], shown["output"], shown["seeds"], shown["of"]) == (2, "dx", 2, 3)


def test_a_hollow_pass_shows_the_output_with_the_largest_error_that_nothing_explains(
    current: Session,
) -> None:
    right = {"explanation": "explained", "verdict": "pass", "rounding_ratio": 99.0}
    job = ended(
        current,
        of(0, *HOLLOW, dx={"rounding_ratio": 5.0}, dgamma=right),
        of(1, *HOLLOW, dx={"rounding_ratio": 6.0}, dgamma={"rounding_ratio": 7.0}),
    )
    shown = the_evidence(current, job, "passes_by_tolerance")
    assert (shown["seed"], shown["output"]) == (1, "dgamma")


def test_a_flag_of_a_selection_shows_a_test_with_the_flag_s_verdict(current: Session) -> None:
    """The verdict of an iteration is that of its worst test."""
    spec = {"selection": {"suite": "nightly", "shuffle": True, "stages": ["kernels"]}}
    red = of(
        0,
        "fail",
        "unexplained",
        first={"outcome": "failed", "tolerance_ratio": 90.0},
        second={
            "outcome": "failed",
            "verdict": "fail_by_tolerance",
            "explanation": "explained",
            "tolerance_ratio": 3.0,
        },
    )
    job = ended(
        current,
        red,
        kernel="selection",
        canonical=spec,
        test_key=key_of(spec),
        workload_key=key_of(spec),
        elements=0,
        executor="pytest",
        request={"test": spec},
    )
    shown = the_evidence(current, job, "tolerance_too_tight")
    assert (shown["output"], shown["seeds"]) == ("second", 1)
    assert (
        "--suite nightly --shuffle true --stage kernels --seeds 1 --seed-start 0"
        in (shown["check"])
    )


@pytest.mark.parametrize(
    ("shuffle", "words"), [(None, ""), (True, " --shuffle true"), (7, " --shuffle 7")]
)
def test_the_command_of_a_selection_has_its_order(shuffle: bool | int | None, words: str) -> None:
    spec = {"selection": {"filter": "Layer*", "shuffle": shuffle}}
    line = evidence.check_line(spec, build="b", executor="gtest", seed=3, output="x", repeats=2)
    assert line == (
        f"gonogo check --executor gtest --build b --filter 'Layer*'{words}"
        " --seeds 1 --seed-start 3 --repeats 2"
    )


def shown_of(current: Session, *rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return what the diagnosis of a job that ended with these rows says."""
    diagnosis = current.get_one(JobRow, ended(current, *rows, **changes)).diagnosis
    return {
        name: getattr(diagnosis, name, None) for name in ("seed", "verdict", "explanation", "words")
    }


def wrong(fault: str, ratio: float | None) -> dict[str, Any]:
    """The statistics of an output with a fault."""
    return {"rounding_ratio": ratio, "fault": fault, "reason": "rounding does not explain it"}


def test_the_diagnosis_of_a_job_is_that_of_its_most_telling_seed(current: Session) -> None:
    """The worst verdict, then the error of any output that is farthest beyond rounding."""
    assert shown_of(
        current,
        of(0, "pass", "explained", dx={"rounding_ratio": 9.0}),
        of(1, *HOLLOW, dx=wrong("first", 8.0), dgamma=wrong("first", 8.0)),
        of(2, *HOLLOW, dx=wrong("no size", None), dgamma=wrong("second", 9.0)),
        of(3, "suspect", "suspect", dx=wrong("third", 99.0)),
    ) == {
        "seed": 2,
        "verdict": "pass_by_tolerance",
        "explanation": "unexplained",
        "words": "dgamma: second; dx: no size",
    }


def test_a_hang_hides_no_diagnosis_and_a_right_job_has_none(current: Session) -> None:
    hung = stored_jobs.unwell(1, "hang", "no answer")
    assert shown_of(current, of(0, *HOLLOW, dx=wrong("the fault", 8.0)), hung)["seed"] == 0
    right = of(0, "fail_by_tolerance", "explained", dx={"reason": "", "places": ""})
    assert current.get_one(JobRow, ended(current, right)).diagnosis is None


def test_the_diagnosis_of_a_selection_is_that_of_a_test_with_arrays(current: Session) -> None:
    spec = {"selection": {"suite": "nightly"}}
    crashed = {"outcome": "crash", "verdict": "crash", "explanation": "not_judged"}
    assert shown_of(
        current,
        of(0, "pass", "explained", first={"outcome": "passed"}),
        row(
            1,
            0,
            "crash",
            "unexplained",
            outputs={"first": output(**crashed), "second/dx": output(*HOLLOW, **wrong("it", 3.0))},
        ),
        kernel="selection",
        canonical=spec,
        test_key=key_of(spec),
        workload_key=key_of(spec),
        elements=0,
        executor="pytest",
        request={"test": spec},
    ) == {
        "seed": 1,
        "verdict": "crash",
        "explanation": "unexplained",
        "words": "second/dx: it",
    }


def test_counters_move_all_seeds_to_what_they_are_together() -> None:
    counts = {"pass": 3, "suspect": 2, "fail_by_tolerance": 1, "fail": 1, "hang": 1}
    together = stored_jobs.together("unexplained")
    settled = {"pass_by_tolerance": 5, "fail": 2, "hang": 1}
    assert suspects.settled_counts(counts, together) == settled
    alone = (
        stored_jobs.together("suspect"),
        stored_jobs.together("unexplained", pooled=None),
        None,
    )
    assert all(suspects.settled_counts(counts, status) == counts for status in alone)
