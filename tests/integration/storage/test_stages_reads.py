"""The stages of a job from its iterations' tables, and the regressions against earlier jobs of the
same suite and branch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from sqlalchemy.orm import Session

import stored_jobs
from api import Api, in_process
from gonogo.spec.canonical import key_of
from gonogo.spec.stages import table
from gonogo_service.flags import evidence
from gonogo_service.jobs import artifacts
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.new_job import NewJob
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.results import stages


@pytest.fixture
def api(sqlite_url: str) -> Iterator[Api]:
    with in_process(sqlite_url) as running:
        yield running


def job_of(
    session: Session,
    *iterations: dict[str, str],
    suite: str = "staged",
    end: bool = True,
    rows: Mapping[int, dict[str, Any]] = MappingProxyType({}),
    **changes: Any,
) -> str:
    """A job of a staged suite; an iteration is {stage: outcome of its one test}.

    rows: those of some iterations.
    """
    spec = {"selection": {"suite": suite, **changes.pop("selection", {})}}
    fields: dict[str, Any] = {
        "build": "v1",
        "branch": "main",
        "build_sequence": 1,
        "executor": "pytest",
        **changes,
    }
    new = NewJob(
        test_key=key_of(spec),
        workload_key=key_of(spec),
        kernel="selection",
        canonical=spec,
        elements=0,
        arch="none",
        board="host",
        seeds=tuple(range(len(iterations))),
        request={"test": spec},
        **fields,
    )
    job = jobs.create(session, new)
    empty = {"repeat": 0, "verdict": "not_judged", "outputs": {}}
    all_rows = [rows.get(seed, {"seed": seed, **empty}) for seed in range(len(iterations))]
    stored_jobs.report(session, job.id, all_rows)
    tables = [
        table(
            {"stage": name, "name": "test", "outcome": outcome}
            for name, outcome in iteration.items()
        ).to_json()
        for iteration in iterations
    ]
    sent = [
        {"kind": stages.KIND, "seed": seed, "repeat": 0, "content": stage_table}
        for seed, stage_table in enumerate(tables)
    ]
    artifacts.add(session, job.id, new_id(), sent, now=utcnow())
    session.flush()
    if end:
        stored_jobs.finish(session, job.id)
    return job.id


GOOD = {"api": "passed", "kernels": "passed"}
BAD = {"api": "passed", "kernels": "failed"}


def regressions(session: Session, job_id: str) -> list[tuple[str, str]]:
    job_stages = stages.of_job(session, job_id)
    assert job_stages is not None
    return [(regression.stage, regression.since) for regression in job_stages.regressions]


def test_a_stage_has_its_worst_status_of_all_iterations_in_the_job_s_diagnosis(api: Api) -> None:
    with api.context.session() as session:
        job_id = job_of(session, GOOD, BAD, GOOD)
    diagnosis = api.get(f"/jobs/{job_id}/diagnosis")
    assert [
        (stage["name"], stage["status"], stage["iterations_passed"])
        for stage in diagnosis["stages"]["stages"]
    ] == [
        ("api", "passed", 3),
        ("kernels", "failed", 2),
    ]
    assert diagnosis["stages"]["blocker"] == "kernels"
    words = (
        "Of 2 stages 1 passed, 2 (kernels) failed; the blocker is 'kernels':"
        " in 1 of 3 iterations: no test passed, first test: failed."
    )
    assert diagnosis["words"] == words
    assert api.get(f"/jobs/{job_id}")["diagnosis"]["words"] == words


def test_a_running_job_has_the_stages_of_what_has_come_and_others_have_none(api: Api) -> None:
    with api.context.session() as session:
        job_id = job_of(session, GOOD, end=False)
        numeric = stored_jobs.finished(session).id
    assert api.get(f"/jobs/{job_id}/diagnosis")["words"] == "All 2 stages passed."
    assert api.get(f"/jobs/{numeric}/diagnosis")["stages"] is None
    assert "s1 is subtracted twice" in api.get(f"/jobs/{numeric}/diagnosis")["words"]


def test_what_passed_on_an_earlier_build_of_the_line_is_a_regression_in_words(api: Api) -> None:
    with api.context.session() as session:
        job_of(session, GOOD, build="v1", build_sequence=1)
        job_of(session, BAD, build="v2", build_sequence=2)
        job_id = job_of(session, BAD, build="v3", build_sequence=3)
    diagnosis = api.get(f"/jobs/{job_id}/diagnosis")
    assert diagnosis["stages"]["regressions"] == [
        {
            "stage": "kernels",
            "status": "failed",
            "reason": "no test passed, first test: failed",
            "since": "v1",
        }
    ]
    assert diagnosis["words"].endswith("'kernels' passed on v1 and no longer does.")


def test_only_earlier_jobs_of_the_same_suite_line_and_executor_count(api: Api) -> None:
    with api.context.session() as session:
        job_of(session, GOOD, suite="other")
        job_of(session, GOOD, branch="branch")
        job_of(session, GOOD, executor="mine")
        job_of(session, GOOD, build="v9", build_sequence=9)  # a later build that was run before
        job_of(session, GOOD, end=False)  # not finished: nothing is known yet
        job_id = job_of(session, BAD)
        assert regressions(session, job_id) == []
        job_of(
            session, {"kernels": "passed"}, selection={"stages": ["kernels"]}
        )  # later: nothing changes
        assert regressions(session, job_id) == []
        assert regressions(session, job_of(session, BAD)) == [("kernels", "v1")]
        assert (
            regressions(session, job_of(session, {"api": "passed"}, selection={"stages": ["api"]}))
            == []
        )  # kernels wasn't asked for


def test_the_words_of_stages_come_before_those_of_the_numbers(api: Api) -> None:
    wrong = stored_jobs.with_fault(stored_jobs.row(1, wrong=True))
    wrong["outputs"] = {"test/dx": wrong["outputs"]["dx"]}
    with api.context.session() as session:
        job_id = job_of(session, GOOD, GOOD, end=False, rows={1: wrong})
        diagnosis = evidence.diagnosis(session, job_id)
    assert diagnosis is not None
    assert diagnosis.words == f"All 2 stages passed. test/dx: {stored_jobs.FAULT}"
    assert diagnosis.seed == 1
