"""The stages of a job from its iterations' tables, and the regressions against earlier jobs of the
same suite and branch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from sqlalchemy import Engine
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
from records import pick

GOOD = {"api": "passed", "kernels": "passed"}
BAD = {"api": "passed", "kernels": "failed"}


def job_of(
    session: Session,
    *iterations: dict[str, str],
    suite: str = "staged",
    end: bool = True,
    rows: Mapping[int, dict[str, Any]] = MappingProxyType({}),
    build: int = 1,
    **changes: Any,
) -> str:
    """A job of a staged suite; an iteration is {stage: outcome of its one test}.

    rows: those of some iterations.
    """
    selected = [name for name in ("api", "kernels") if name in iterations[0]]
    chosen = {"stages": selected} if len(selected) == 1 else {}
    spec = {"selection": {"suite": suite, **chosen}}
    about = {"test_key": key_of(spec), "workload_key": key_of(spec), "canonical": spec}
    about |= {"kernel": "selection", "elements": 0, "request": {"test": spec}}
    place = {"arch": "none", "board": "host", "branch": "main", "executor": "pytest"}
    named = {"build": f"v{build}", "build_sequence": build}
    seeds = tuple(range(len(iterations)))
    job = jobs.create(session, NewJob(seeds=seeds, **{**about, **place, **named, **changes}))
    empty = {"repeat": 0, "verdict": "not_judged", "outputs": {}}
    stored_jobs.report(session, job.id, [rows.get(seed, {"seed": seed, **empty}) for seed in seeds])
    sent = []
    for seed, iteration in enumerate(iterations):
        entries = ({"stage": n, "name": "test", "outcome": o} for n, o in iteration.items())
        content = table(entries).to_json()
        sent.append({"kind": stages.KIND, "seed": seed, "repeat": 0, "content": content})
    artifacts.add(session, job.id, new_id(), sent, now=utcnow())
    session.flush()
    if end:
        stored_jobs.finish(session, job.id)
    return job.id


def regressions(session: Session, job_id: str) -> list[tuple[str, str]]:
    job_stages = stages.of_job(session, job_id)
    assert job_stages is not None
    return [(regression.stage, regression.since) for regression in job_stages.regressions]


@pytest.fixture(scope="module")
def api(module_engine: Engine) -> Iterator[Api]:
    with in_process(module_engine.url.render_as_string(hide_password=False)) as running:
        yield running


def diagnosis_of(api: Api, *iterations: dict[str, str], **changes: Any) -> Any:
    """Return what HTTP says of a new job's diagnosis."""
    with api.context.session() as session:
        job_id = job_of(session, *iterations, **changes)
    diagnosis = api.get(f"/jobs/{job_id}/diagnosis")
    if changes.get("end", True):
        assert api.get(f"/jobs/{job_id}")["diagnosis"]["words"] == diagnosis["words"]
    return diagnosis


def test_a_stage_has_its_worst_status_of_all_iterations_in_the_job_s_diagnosis(api: Api) -> None:
    diagnosis = diagnosis_of(api, GOOD, BAD, GOOD, suite="flaky")
    names = ("name", "status", "iterations_passed")
    statuses = [pick(stage, *names) for stage in diagnosis["stages"]["stages"]]
    assert statuses == [("api", "passed", 3), ("kernels", "failed", 2)]
    assert diagnosis["stages"]["blocker"] == "kernels"
    assert diagnosis["words"] == (
        "Of 2 stages 1 passed, 2 (kernels) failed; the blocker is 'kernels':"
        " in 1 of 3 iterations: no test passed, first test: failed."
    )


def test_a_running_job_has_the_stages_of_what_has_come_and_others_have_none(api: Api) -> None:
    running = diagnosis_of(api, GOOD, end=False, suite="running")
    assert running["words"] == "All 2 stages passed."
    with api.context.session() as session:
        numeric = stored_jobs.finished(session).id
    diagnosis = api.get(f"/jobs/{numeric}/diagnosis")
    assert diagnosis["stages"] is None
    assert "s1 is subtracted twice" in diagnosis["words"]


def test_what_passed_on_an_earlier_build_of_the_line_is_a_regression_in_words(api: Api) -> None:
    for build, iteration in enumerate((GOOD, BAD, BAD), 1):
        diagnosis = diagnosis_of(api, iteration, build=build, suite="worse")
    about = {"status": "failed", "reason": "no test passed, first test: failed"}
    regression = {"stage": "kernels", **about, "since": "v1"}
    assert diagnosis["stages"]["regressions"] == [regression]
    assert diagnosis["words"].endswith("'kernels' passed on v1 and no longer does.")


def test_only_earlier_jobs_of_the_same_suite_line_and_executor_count(current: Session) -> None:
    job_of(current, GOOD, suite="other")
    job_of(current, GOOD, branch="branch")
    job_of(current, GOOD, executor="mine")
    job_of(current, GOOD, build=9)  # a later build that was run before
    job_of(current, GOOD, end=False)  # not finished: nothing is known yet
    job_id = job_of(current, BAD)
    assert regressions(current, job_id) == []
    job_of(current, {"kernels": "passed"})  # later: nothing changes
    assert regressions(current, job_id) == []
    assert regressions(current, job_of(current, BAD)) == [("kernels", "v1")]
    # kernels wasn't asked for
    assert regressions(current, job_of(current, {"api": "passed"})) == []


def test_the_words_of_stages_come_before_those_of_the_numbers(current: Session) -> None:
    wrong = stored_jobs.with_fault(stored_jobs.row(1, wrong=True))
    wrong["outputs"] = {"test/dx": wrong["outputs"]["dx"]}
    job_id = job_of(current, GOOD, GOOD, end=False, rows={1: wrong})
    diagnosis = evidence.diagnosis(current, job_id)
    assert diagnosis is not None
    assert diagnosis.words == f"All 2 stages passed. test/dx: {stored_jobs.FAULT}"
    assert diagnosis.seed == 1
