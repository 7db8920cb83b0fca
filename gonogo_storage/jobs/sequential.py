"""Sequential seeds of a job: where its decision stands, read from stored rows in the order of the
seeds, under the job's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome, outcome_of
from gonogo.flakiness.sequential import Decision, Progress, Stopping
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_storage.tables import ChunkRow, JobRow, SeedResultRow

HOLLOW = "hollow"
"""The decision on a wrong kernel whose seed is green; others are named as in `Stopping`."""


@dataclass(frozen=True)
class Step:
    """What the rows stored so far say: a decision, or the last seed that the job can still need
    (None: all).
    """

    decided: bool
    beyond: int | None = None


@dataclass(frozen=True)
class _Seed:
    seed: int
    outcome: Outcome
    verdict: str
    unexplained: str | None
    """The attempt that brought an unexplained result of it."""


def begin(start: int, most: int, *, stop_on_finding: bool) -> dict[str, Any]:
    """What a new job remembers: what was asked, and that nothing is read yet. covered: seeds of the
    chunks up to `reach`.
    """
    asked = {"start": start, "max": most, "stop_on_finding": stop_on_finding}
    return {**asked, **Progress().to_json(), "needed": None, "covered": 0, "beyond": None}


def advance(session: Session, job: JobRow) -> Step | None:
    """Read what came since the last look; None when there is nothing to decide (any more).

    The seeds count in their order, from the first one and without a gap, so that the answer doesn't
    depend on which worker was quick. A seed counts once all its repeats are there, and is red when
    one of them is. An unexplained seed behind a gap decides nothing yet, but whatever lies behind
    it can't be needed any more.
    """
    plan = job.sequential
    if plan is None or job.stop is not None:
        return None
    progress, most, alone = Progress.parse(plan), int(plan["max"]), bool(plan["stop_on_finding"])
    found = _seeds(session, job, int(plan["start"]) + progress.seen)
    ready = _without_gap(
        found, int(plan["start"]) + progress.seen, int(job.request.get("repeats", 1))
    )
    read = [(each.outcome, each.unexplained is not None) for each in ready]
    before = progress.seen
    progress, decision = progress.read(read, most, to_the_end=not alone)
    beyond = (
        min((each.seed for each, _ in found if each.unexplained), default=None) if alone else None
    )
    job.sequential = {
        **plan,
        **progress.to_json(),
        "needed": decision.needed or None,
        "beyond": beyond,
    }
    if decision.stopped:
        last = ready[progress.seen - before - 1] if progress.seen > before else None
        job.stop = _stop(session, job, decision, last)
        return Step(True)
    reach(session, job)
    return Step(False, beyond if beyond != plan["beyond"] else None)


def reach(session: Session, job: JobRow) -> None:
    """Let chunks go as far as the next decision can need them: beyond the seeds that it needs if
    none of them fails, they wait.

    However many workers are idle, they run no seed that a stable test would not have needed; a
    failure lets more of them go.
    """
    plan = job.sequential
    assert plan is not None
    progress = Progress.parse(plan)
    wanted = (
        progress.seen
        + progress.decide(int(plan["max"]), to_the_end=not plan["stop_on_finding"]).needed
    )
    covered, number = int(plan["covered"]), -1 if job.reach is None else job.reach
    repeats = int(job.request.get("repeats", 1))
    query = select(ChunkRow.number, ChunkRow.work).where(
        ChunkRow.job_id == job.id, ChunkRow.number > number
    )
    if covered < wanted:
        for number, work in session.execute(
            query.order_by(ChunkRow.number).limit(wanted - covered)
        ):
            job.reach, covered = number, covered + len(work) // repeats
            if covered >= wanted:
                break
    job.sequential = {**plan, "covered": covered}


def settle(session: Session, job: JobRow) -> None:
    """All chunks are closed: the job's total is what ran, and what was saved is what didn't run."""
    if job.stop is None or job.stop["seeds_run"] is not None or job.sequential is None:
        return
    job.total, job.reach = job.done, None
    job.stop = {**job.stop, **_saved(session, job, job.stop, final=True)}


def shown(job: JobRow) -> dict[str, Any] | None:
    """Where the decision stands, for the API."""
    names = (
        "start",
        "max",
        "stop_on_finding",
        "seen",
        "counted",
        "failures",
        "unexplained",
        "needed",
    )
    return None if job.sequential is None else {name: job.sequential[name] for name in names}


def told(job: JobRow) -> dict[str, Any] | None:
    """The decision, for the API: without the attempt that found it."""
    return (
        None
        if job.stop is None
        else {name: value for name, value in job.stop.items() if name != "finder"}
    )


def _stop(session: Session, job: JobRow, decision: Decision, last: _Seed | None) -> dict[str, Any]:
    """finder: the attempt whose row shows the kernel wrong."""
    finding = last if decision.state is Stopping.wrong else None
    hollow = finding is not None and finding.verdict == Verdict.pass_by_tolerance
    stop = {
        "decision": HOLLOW if hollow else decision.state.value,
        "seed": None if last is None else last.seed,
        "verdict": None if finding is None else finding.verdict,
        "failures": decision.failures,
        "evidence": decision.evidence,
        "bounds": list(decision.bounds),
        "max": decision.most,
        "policy": POLICY.version,
        "finder": None if finding is None else finding.unexplained,
    }
    return {**stop, **_saved(session, job, stop, final=False)}


def _saved(
    session: Session, job: JobRow, stop: Mapping[str, Any], *, final: bool
) -> dict[str, Any]:
    """The words, and what did not run: at the decision as far as is known, at the end for good."""
    plan, repeats = job.sequential or {}, int(job.request.get("repeats", 1))
    table = SeedResultRow
    duration = func.max(table.duration_ms).label("ms")
    each = (
        select(table.seed, duration)
        .where(table.job_id == job.id)
        .group_by(table.seed, table.repeat)
        .subquery()
    )
    of_each = select(func.count(each.c.seed.distinct()), func.avg(each.c.ms).filter(each.c.ms >= 0))
    seeds, mean = session.execute(of_each).one()
    progress = Progress.parse(plan)
    ran = max(int(seeds), progress.seen)
    mean_ms = None if mean is None else float(mean) * repeats
    decision = progress.decide(
        int(plan["max"]), to_the_end=not plan["stop_on_finding"], ran=ran, mean_ms=mean_ms
    )
    words = (
        decision.words
        if stop["verdict"] is None
        else f"{decision.words} (seed {stop['seed']}: {stop['verdict']})"
    )
    return {
        "words": words,
        "seeds_seen": progress.seen,
        "seeds_run": ran if final else None,
        "seeds_saved": decision.most - ran,
        "device_ms_saved": decision.saved_ms,
    }


def _without_gap(found: Sequence[tuple[_Seed, int]], first: int, repeats: int) -> list[_Seed]:
    """The seeds from the first one on, up to the first that is missing or lacks a repeat."""
    ready: list[_Seed] = []
    for each, present in found:
        if each.seed != first + len(ready) or present < repeats:
            break
        ready.append(each)
    return ready


def _seeds(session: Session, job: JobRow, first: int) -> list[tuple[_Seed, int]]:
    """The stored seeds from one on, in order, each with the number of its repeats."""
    table = SeedResultRow
    names = (
        table.seed,
        table.repeat,
        table.seed_verdict,
        table.seed_explanation,
        table.outcome,
        table.attempt_id,
    )
    query = (
        select(*names)
        .where(table.job_id == job.id, table.seed >= first)
        .order_by(table.seed, table.repeat)
    )
    rows: Iterable[Row[Any]] = session.execute(query)
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.seed)]
    return [(_seed(each), len({row.repeat for row in each})) for each in groups]


def _seed(rows: list[Row[Any]]) -> _Seed:
    """A seed of all its rows: red when one of its repeats is, whatever the others are."""
    repeats = [list(group) for _, group in groupby(rows, key=lambda row: row.repeat)]
    outcomes = [_outcome(each) for each in repeats]
    order = (Outcome.failed, Outcome.passed, Outcome.infrastructure, Outcome.silent)
    finder = next((row for row in rows if row.seed_explanation == Explanation.unexplained), None)
    verdict = min((row.seed_verdict for row in rows), key=lambda name: Verdict(name).rank)
    return _Seed(
        rows[0].seed,
        min(outcomes, key=order.index),
        verdict,
        None if finder is None else finder.attempt_id,
    )


def _outcome(rows: list[Row[Any]]) -> Outcome:
    """Of one run. Tests that exist already say themselves whether they are green."""
    alone = outcome_of(rows[0].seed_verdict)
    said = {row.outcome for row in rows} & {"passed", "failed"}
    if not said or alone is Outcome.infrastructure:
        return alone
    return Outcome.failed if "failed" in said else Outcome.passed
