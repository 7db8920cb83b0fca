"""A flag's evidence, and a job's diagnosis: of many seeds and outputs, those that show it best."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.orm import Session

import stored_jobs
from database_params import BOTH_ENGINES
from gonogo.spec.canonical import key_of
from gonogo_service.flags import evidence, suspects
from gonogo_service.flags.api import FLAGS
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.outbox import outbox
from job_flow import new_job, output, row
from stored_flow import Flow

HOLLOW = ("pass_by_tolerance", "unexplained")
RED = ("fail_by_tolerance", "explained")


def ended(current: Session, *rows: dict[str, Any], **changes: Any) -> JobRow:
    """A job that has ended with these rows."""
    job = jobs.create(current, new_job(len(rows), **changes))
    stored_jobs.report(current, job.id, list(rows))
    stored_jobs.finish(current, job.id)
    return job


def of(seed: int, verdict: str, explanation: str, **outputs: dict[str, Any]) -> dict[str, Any]:
    """A row whose outputs have these statistics, and the row's verdict unless they name another."""
    judged = {
        name: output(**{"verdict": verdict, "explanation": explanation, **statistics})
        for name, statistics in outputs.items()
    }
    return row(seed, 0, verdict, explanation, outputs=judged)


def selection(**selection: Any) -> dict[str, Any]:
    """Changes of a job that runs a suite."""
    spec = {"selection": {"suite": "nightly", **selection}}
    keys = {"test_key": key_of(spec), "workload_key": key_of(spec), "canonical": spec}
    about = {"kernel": "selection", "elements": 0, "executor": "pytest"}
    return {**keys, **about, "request": {"test": spec}}


def the_evidence(current: Session, job: JobRow, kind: str) -> dict[str, Any]:
    """The evidence of a job's flag of a kind."""
    by_kind = {flag.kind: flag.evidence for flag in FLAGS.page(current, job=job.id).items}
    return by_kind[kind]


@BOTH_ENGINES
def test_a_hollow_pass_opens_a_flag_with_evidence_and_the_command_that_shows_it(flow: Flow) -> None:
    current = flow.session
    rows = [row(0, 0, *HOLLOW), row(1, 0, *HOLLOW), row(2)]
    words = "dx: s2 is missing: explains 99.9 % of the misfit"
    rows[1]["outputs"]["dx"] |= {"rounding_ratio": 157.0, "fault": words.removeprefix("dx: ")}
    job = flow.run(flow.submit(3), lambda seed, repeat: rows[seed])
    counts = {"pass_by_tolerance": 2, "pass": 1}
    assert (job.state, job.verdict, job.counts) == ("finished", HOLLOW[0], counts)
    assert job.diagnosis is not None
    assert (job.diagnosis.seed, job.diagnosis.words) == (1, words)
    (flag,) = FLAGS.page(current, state="open").items
    topics = [message.topic for message in outbox.due(current)]
    assert topics == ["flag.opened", "assess", "job.finished"]
    assert (flag.kind, flag.test_key, flag.branch, flag.jobs) == (
        *("passes_by_tolerance", "v1-test"),
        *("emulator", 1),
    )
    proof = flag.evidence
    assert (proof["seed"], proof["output"], proof["seeds"], proof["of"]) == (1, "dx", 2, 3)
    assert (proof["statistics"]["rounding_ratio"], proof["diagnosis"]) == (157.0, words)
    assert proof["check"] == (
        "gonogo check --kernel layernorm_bw --shape 8,64 --build tt-train-2025 --seeds 1"
        " --seed-start 1 --rtol 0.001 --atol 0.5"
    )


def test_a_flag_shows_a_seed_of_its_own_verdict(current: Session) -> None:
    """Another one may be farther from the tolerance: it is wrong by another rule."""
    job = ended(
        current,
        of(0, "fail", "unexplained", dx={"tolerance_ratio": 90.0}),
        of(1, *RED, dx={"tolerance_ratio": 3.0}),
        of(2, *RED, dx={"tolerance_ratio": 4.0}),
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
    first = {"outcome": "failed", "tolerance_ratio": 90.0}
    second = {"outcome": "failed", "verdict": RED[0], "explanation": RED[1]}
    red = of(0, "fail", "unexplained", first=first, second={**second, "tolerance_ratio": 3.0})
    job = ended(current, red, **selection(shuffle=True, stages=["kernels"]))
    shown = the_evidence(current, job, "tolerance_too_tight")
    assert (shown["output"], shown["seeds"]) == ("second", 1)
    command = "--suite nightly --shuffle true --stage kernels --seeds 1 --seed-start 0"
    assert command in shown["check"]


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


def wrong(fault: str, ratio: float | None) -> dict[str, Any]:
    """The statistics of an output with a fault."""
    return {"rounding_ratio": ratio, "fault": fault, "reason": "rounding does not explain it"}


DIAGNOSES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], tuple[Any, ...] | None]] = {
    # the worst verdict, then the error of any output that is farthest beyond rounding
    "the most telling seed": (
        [
            of(0, "pass", "explained", dx={"rounding_ratio": 9.0}),
            of(1, *HOLLOW, dx=wrong("first", 8.0), dgamma=wrong("first", 8.0)),
            of(2, *HOLLOW, dx=wrong("no size", None), dgamma=wrong("second", 9.0)),
            of(3, "suspect", "suspect", dx=wrong("third", 99.0)),
        ],
        {},
        (2, *HOLLOW, "dgamma: second; dx: no size"),
    ),
    "a hang hides none": (
        [of(0, *HOLLOW, dx=wrong("it", 8.0)), stored_jobs.unwell(1, "hang", "no answer")],
        {},
        (0, *HOLLOW, "dx: it"),
    ),
    "a right job has none": ([of(0, *RED, dx={"reason": "", "places": ""})], {}, None),
    "a test with arrays": (
        [
            of(0, "pass", "explained", first={"outcome": "passed"}),
            of(
                *(1, "crash", "unexplained"),
                first={"outcome": "crash", "verdict": "crash", "explanation": "not_judged"},
                **{"second/dx": {"verdict": HOLLOW[0], **wrong("it", 3.0)}},
            ),
        ],
        selection(),
        (1, "crash", "unexplained", "second/dx: it"),
    ),
}


@pytest.mark.parametrize(("rows", "changes", "shown"), DIAGNOSES.values(), ids=DIAGNOSES.keys())
def test_the_diagnosis_of_a_job_is_that_of_its_most_telling_seed(
    current: Session,
    rows: list[dict[str, Any]],
    changes: dict[str, Any],
    shown: tuple[Any, ...] | None,
) -> None:
    diagnosis = ended(current, *rows, **changes).diagnosis
    names = ("seed", "verdict", "explanation", "words")
    assert (diagnosis and tuple(getattr(diagnosis, name) for name in names)) == shown


def test_counters_move_all_seeds_to_what_they_are_together() -> None:
    counts = {"pass": 3, "suspect": 2, "fail_by_tolerance": 1, "fail": 1, "hang": 1}
    together = stored_jobs.together("unexplained")
    settled = {"pass_by_tolerance": 5, "fail": 2, "hang": 1}
    assert suspects.settled_counts(counts, together) == settled
    not_pooled = stored_jobs.together("unexplained", pooled=None)
    for status in (stored_jobs.together("suspect"), not_pooled, None):
        assert suspects.settled_counts(counts, status) == counts
