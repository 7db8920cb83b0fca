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
from gonogo.spec.verdicts import Explanation
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.ids import new_id
from gonogo_storage.flags import evidence, flags, suspects
from gonogo_storage.jobs import artifacts, jobs
from gonogo_storage.tables import JobRow
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


def ended(
    current: Session, *rows: dict[str, Any], diagnosed: tuple[int, ...] = (), **changes: Any
) -> str:
    """A job that has ended with these rows, and a diagnosis of each seed of `diagnosed`."""
    job = jobs.create(current, new_job(len(rows), **changes))
    stored_jobs.report(current, job.id, list(rows))
    sent = [
        {
            "kind": "diagnosis",
            "seed": seed,
            "repeat": 0,
            "output": "",
            "content": {"words": f"words of seed {seed}", "can_tell": True, "terms": []},
        }
        for seed in diagnosed
    ]
    artifacts.add(current, job.id, new_id(), sent, now=utcnow())
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
    by_kind = {flag.kind: flag.evidence for flag in flags.list_(current, job=job_id).items}
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
    right = {"explanation": "explained", "verdict": "pass", "budget_ratio": 99.0}
    job = ended(
        current,
        of(0, *HOLLOW, dx={"budget_ratio": 5.0}, dgamma=right),
        of(1, *HOLLOW, dx={"budget_ratio": 6.0}, dgamma={"budget_ratio": 7.0}),
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


def test_the_diagnosis_of_a_job_is_that_of_its_most_telling_seed(current: Session) -> None:
    """The worst verdict, then the error of any output that is farthest beyond rounding."""
    far, near, none = ({"budget_ratio": ratio} for ratio in (9.0, 8.0, None))
    rows = (
        of(0, "pass", "explained", dx=far, dgamma=far),
        of(1, *HOLLOW, dx=near, dgamma=near),
        of(2, *HOLLOW, dx=none, dgamma=far),
    )
    job_row = current.get_one(JobRow, ended(current, *rows, diagnosed=(0, 1, 2)))
    assert job_row.diagnosis is not None
    assert {
        name: job_row.diagnosis[name] for name in ("seed", "verdict", "explanation", "words")
    } == {
        "seed": 2,
        "verdict": "pass_by_tolerance",
        "explanation": "unexplained",
        "words": "words of seed 2",
    }


def test_an_error_that_was_not_measured_is_the_least(current: Session) -> None:
    silent = dict.fromkeys(name for name in output() if name == "chi" or name.endswith("_z"))
    half, none = {**silent, "budget_ratio": 0.5}, {**silent, "budget_ratio": None}
    rows = (of(0, *HOLLOW, dx=none), of(1, *HOLLOW, dx=half))
    job_row = current.get_one(JobRow, ended(current, *rows, diagnosed=(0, 1)))
    assert (job_row.diagnosis or {})["seed"] == 1


def test_a_diagnosis_without_its_seed_s_row_stands_without_a_verdict(current: Session) -> None:
    job = jobs.create(current, new_job(1))
    sent = {"kind": "diagnosis", "seed": 0, "repeat": 0, "output": ""}
    content = {"words": "early", "can_tell": True, "terms": []}
    artifacts.add(current, job.id, new_id(), [{**sent, "content": content}], now=utcnow())
    shown = evidence.diagnosis(current, job.id)
    assert shown is not None
    assert (shown.words, shown.seed, shown.verdict, shown.explanation) == ("early", 0, None, None)


def test_counters_move_suspect_seeds_alone_to_what_they_are_together(current: Session) -> None:
    rows = (
        *(of(seed, "suspect", "suspect", dx={}) for seed in (0, 1)),
        of(2, "fail", "suspect", dx={}),
        of(3, "fail", "unexplained", dx={}),
        of(4, "pass", "explained", dx={}),
    )
    job = current.get_one(JobRow, ended(current, *rows))
    assert suspects.counts(current, job.id, job.counts, Explanation.explained) == {
        "fail": 1,
        "fail_by_tolerance": 1,
        "pass": 3,
    }


def test_a_suspect_verdict_without_a_suspect_seed_says_nothing_of_seeds(current: Session) -> None:
    """The verdict of a test in a selection, for example, is its plug-in's."""
    job = current.get_one(JobRow, ended(current, of(0, "suspect", "not_judged", dx={})))
    assert (job.verdict, job.suspects) == ("suspect", None)
