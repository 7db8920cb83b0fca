"""Two builds of one line on which every class of a comparison occurs, made through the storage
functions that ingest uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

import nightly_history
import stored_jobs
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.spec.canonical import key_of
from gonogo.spec.test_spec import TestSpec
from gonogo_service.builds import store as builds
from gonogo_service.flags import store as flags
from gonogo_service.flags.model import FlagRow
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.new_job import NewJob
from gonogo_service.kit.database.encoding import utcnow

BASE, HEAD = "9ca166977b", "b0304ff7a5"
EIGHT = range(8)
SUITE = {"selection": {"suite": "ops"}}


def test_of(atol: float) -> dict[str, Any]:
    """A test of its own, told apart by its tolerance."""
    return {**stored_jobs.NIGHTLY, "tolerance": {"rtol": 1e-3, "atol": atol}}


HOLLOW, BROKEN, FLAKY, NEW, FIXED, TIGHT, RIGHT, HUNG, OPEN, UNKNOWN, MASKED, GONE = (
    test_of(0.1 + n / 100) for n in range(12)
)


How = Mapping[str, Any] | None


def both(
    session: Session, test: Mapping[str, Any], base: How, head: How
) -> tuple[JobRow | None, ...]:
    """A test on base and head, each as nightly_history.night takes it; None: not run there."""
    finished: list[JobRow | None] = []
    for build, sequence, how in ((BASE, 1, base), (HEAD, 2, head)):
        if how is None:
            finished.append(None)
            continue
        about: dict[str, Any] = {"test": test, "diagnosed": how.get("wrong", False), **how}
        finished.append(nightly_history.night(session, build, sequence, EIGHT, **about))
    return tuple(finished)


def flicker(session: Session, build: str, red: Iterable[int]) -> JobRow:
    """The flaky test on a build: the seeds `red` are wrong and red, the others right."""
    wrong = set(red)
    rows = [
        nightly_history.row(n, wrong=n in wrong, within=n not in wrong, bits=build) for n in EIGHT
    ]
    return rows_of(session, FLAKY, build, rows)


def flag(session: Session, job: JobRow | None, kind: FlagKind) -> str:
    """A flag opened by a job; its id."""
    assert job is not None
    place = {"arch": job.target.arch, "board": job.target.board}
    finding = FlagRow.finding(kind, job, {"words": f"{kind.value}, seen"}, **place)
    return str(flags.upsert(session, finding, now=utcnow())[0].id)


def suite(session: Session, build: str, *iterations: Mapping[str, str]) -> None:
    """A job of tests that exist already: each iteration has the outcome of each test."""
    key = key_of(SUITE)
    new = NewJob(
        test_key=key,
        workload_key=key,
        kernel="selection",
        canonical=SUITE,
        elements=0,
        arch="none",
        board="host",
        build=build,
        branch="main",
        build_sequence=1,
        executor="gtest",
        seeds=tuple(range(len(iterations))),
        request={"test": SUITE},
    )
    job = jobs.create(session, new)
    unjudged = {"verdict": "not_judged", "explanation": "not_judged"}
    rows: list[dict[str, Any]] = []
    for seed, outcomes in enumerate(iterations):
        outputs = {name: {**unjudged, "outcome": outcome} for name, outcome in outcomes.items()}
        rows.append({"seed": seed, "repeat": 0, **unjudged, "outputs": outputs})
    stored_jobs.report(session, job.id, rows)
    stored_jobs.finish(session, job.id)


def rows_of(
    session: Session,
    test: Mapping[str, Any],
    build: str,
    rows: Sequence[dict[str, Any]],
    *,
    end: bool = True,
) -> JobRow:
    job = nightly_history.submit(
        session, [int(row["seed"]) for row in rows], test=test, build=build, sequence=2
    )
    stored_jobs.report(session, job.id, list(rows))
    if end:
        stored_jobs.finish(session, job.id)
    return job


def history(session: Session) -> dict[str, JobRow | None]:
    """Twelve tests of a kernel and one suite on BASE and HEAD; some of head's jobs by name."""
    red: Iterable[int] = EIGHT
    right: dict[str, Any] = {}
    hollow, wrong = {"wrong": True}, {"wrong": True, "red": red}
    jobs_by_name = {
        "hollow": both(session, HOLLOW, right, hollow)[1],
        "new": both(session, NEW, right, wrong)[1],
    }
    both(session, BROKEN, wrong, wrong)
    flag(session, flicker(session, BASE, []), FlagKind.flaky)
    flicker(session, HEAD, [1, 2])
    both(session, FIXED, wrong, right)
    both(session, TIGHT, right, {"red": red})
    both(session, RIGHT, right, right)
    both(session, UNKNOWN, None, wrong)
    both(session, MASKED, wrong, hollow)
    both(session, GONE, right, None)
    both(session, HUNG, right, None)
    hung = [nightly_history.row(seed, wrong=False, within=True, bits=HEAD) for seed in range(7)]
    rows_of(session, HUNG, HEAD, [*hung, stored_jobs.unwell(7, "hang", "no answer for 60 s")])
    both(session, OPEN, right, None)
    first = [nightly_history.row(0, wrong=False, within=True, bits=HEAD)]
    jobs_by_name["open"] = rows_of(session, OPEN, HEAD, first, end=False)
    suite(session, BASE, {"Ops.Fine": "passed", "Ops.Breaks": "passed", "Ops.Old": "failed"})
    failed = dict.fromkeys(("Ops.Breaks", "Ops.Old", "Ops.Added"), "failed")
    suite(session, HEAD, *[{"Ops.Fine": "passed", **failed}] * 2)
    return jobs_by_name


BRANCH_BUILD, COMMIT = "mine-4c1e", "5fe21c09"
LAST = ("main-1", "main-2", "main-3")


def branch(session: Session) -> dict[str, str]:
    """Tests on three builds of main and on one of a branch, named by what it changed; their keys.

    The branch's build is registered with its commit.
    """
    builds.add(session, name=BRANCH_BUILD, executor="emulator", branch="fast-ln", commit=COMMIT)
    right: dict[str, Any] = {"bits": "a", "kernel_s": 2e-3}
    wrong = {"wrong": True, "red": EIGHT, "diagnosed": True}
    stories: dict[str, tuple[Mapping[str, Any], Mapping[str, Any] | None]] = {
        "same": (right, right),
        "same too": (right, right),
        "other bits": (right, {"bits": "b"}),
        "worse": (right, {**right, **wrong, "bits": "c"}),
        "same error": ({**wrong, "bits": "d"}, {**wrong, "bits": "e"}),
        "slower": (right, {**right, "kernel_s": 2.6e-3}),
        "faster": (right, {**right, "kernel_s": 1.5e-3}),
        "not run": (right, None),
        "hung": (right, {**right, "hung": range(5, 8)}),
        "other seeds": (right, {**right, "seeds": range(64, 72)}),
    }
    keys = {}
    for number, (story, (before, after)) in enumerate(stories.items()):
        test = test_of(0.3 + number / 100)
        keys[story] = TestSpec.parse(test).key
        for sequence, build in enumerate(LAST, start=1):
            nightly_history.night(session, build, sequence, EIGHT, test=test, **before)
        if after is not None:
            how = {"seeds": EIGHT, "branch": "fast-ln", "test": test, **after}
            nightly_history.night(session, BRANCH_BUILD, 1, **how)
    return keys
