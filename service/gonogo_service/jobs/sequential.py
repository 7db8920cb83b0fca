"""The sequential decision of a job's seeds.

It reads stored rows in the order of the seeds, under the job's lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome, outcome_of
from gonogo.flakiness.sequential import Decision, Progress, Stopping
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_service.jobs import ranges
from gonogo_service.jobs.model import JobRow
from gonogo_service.results import seeds as stored
from gonogo_service.results.model import ResultRow
from gonogo_service.results.seeds import SEED, StoredSeed

HOLLOW = "hollow"
"""The decision on a wrong kernel whose seed is green; the other names are those of `Stopping`."""


@dataclass(frozen=True)
class Step:
    """The result of one look at the stored rows.

    It is a decision, or how far the job still has to go. beyond: the last seed that the job can
    still need; None: all.
    """

    decided: bool
    beyond: int | None = None


@dataclass(frozen=True)
class SeedProgress:
    """The request for sequential seeds, and how far the decision has read."""

    start: int
    max: int
    stop_on_finding: bool
    seen: int
    """The seeds that the decision has read"""
    counted: int
    failures: int
    unexplained: int
    needed: int | None
    """The minimum number of seeds that the decision still needs"""


@dataclass(frozen=True)
class SeedDecision:
    """The decision on sequential seeds."""

    decision: str
    """stable, flaky, hollow, wrong or undecided"""
    seed: int | None
    verdict: str | None
    """The verdict of the seed that shows a wrong kernel"""
    failures: int
    evidence: float | None
    bounds: list[float]
    max: int
    policy: str
    words: str
    seeds_seen: int
    seeds_run: int | None
    seeds_saved: int
    device_ms_saved: float | None


@dataclass(frozen=True)
class _Seed:
    seed: int
    outcome: Outcome
    verdict: str
    unexplained: str | None
    """The attempt that sent an unexplained result of this seed."""


def begin(start: int, max_seeds: int, *, stop_on_finding: bool) -> dict[str, Any]:
    """Return the plan that a new job stores: the request, and that nothing is read yet."""
    request = {"start": start, "max": max_seeds, "stop_on_finding": stop_on_finding}
    return {**request, **asdict(Progress()), "needed": None, "beyond": None}


def advance(session: Session, job: JobRow) -> Step | None:
    """Read the rows since the last look; None when there is nothing left to decide.

    The seeds count in their order, from the first one and without a gap. So the answer doesn't
    depend on which worker was quick. A seed counts once all its repeats are stored, and is red when
    one of them is. An unexplained seed after a gap decides nothing yet, but no seed after it can be
    needed.
    """
    plan = job.sequential
    if plan is None or job.stop is not None:
        return None
    progress, max_seeds, stop_on_finding = (
        Progress.parse(plan),
        int(plan["max"]),
        bool(plan["stop_on_finding"]),
    )
    stored_seeds = _seeds(session, job, int(plan["start"]) + progress.seen)
    ready = _without_gap(
        stored_seeds, int(plan["start"]) + progress.seen, int(job.request.get("repeats", 1))
    )
    read = [(item.outcome, item.unexplained is not None) for item in ready]
    before = progress.seen
    progress, decision = progress.read(read, max_seeds, to_the_end=not stop_on_finding)
    beyond = (
        min((item.seed for item, _ in stored_seeds if item.unexplained), default=None)
        if stop_on_finding
        else None
    )
    job.sequential = {
        **plan,
        **asdict(progress),
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
    """Release the chunks that the next decision can need, if no seed in them fails.

    However many workers are idle, they run no seed that a stable test would not have needed. A
    failure releases more chunks.
    """
    plan = job.sequential
    assert plan is not None
    progress = Progress.parse(plan)
    needed_seeds = (
        progress.seen
        + progress.decide(int(plan["max"]), to_the_end=not plan["stop_on_finding"]).needed
    )
    ranges.release(session, job.id, needed_seeds)


def finalize(session: Session, job: JobRow) -> None:
    """Set the job's total to what ran, and the savings to what didn't; all chunks are closed."""
    if job.stop is None or job.stop["seeds_run"] is not None or job.sequential is None:
        return
    job.total = job.done
    job.stop = {**job.stop, **_saved(session, job, job.stop, final=True)}


def _stop(session: Session, job: JobRow, decision: Decision, last: _Seed | None) -> dict[str, Any]:
    """Return the decision to store.

    finder: the attempt whose row shows that the kernel is wrong.
    """
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
    """Return the sentence, and what did not run: estimated at the decision, exact at the end."""
    plan, repeats = job.sequential or {}, int(job.request.get("repeats", 1))
    table = ResultRow
    of_runs = func.avg(table.duration_ms).filter(table.duration_ms >= 0)
    totals = select(func.count(table.seed.distinct()), of_runs)
    totals = totals.where(table.job_id == job.id, SEED)
    seeds, mean = session.execute(totals).one()
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


def _without_gap(
    stored_seeds: Sequence[tuple[_Seed, int]], first: int, repeats: int
) -> list[_Seed]:
    """Return the seeds from `first` on, up to one that is missing or lacks a repeat."""
    ready: list[_Seed] = []
    for item, present in stored_seeds:
        if item.seed != first + len(ready) or present < repeats:
            break
        ready.append(item)
    return ready


def _seeds(session: Session, job: JobRow, first: int) -> list[tuple[_Seed, int]]:
    """Read the stored seeds from `first` on, in order, each with the number of its repeats."""
    table = ResultRow
    of_job = table.job_id == job.id, table.seed >= first
    read = stored.read(session, *of_job, statistics=("outcome",))
    groups = groupby(read, key=lambda seed: seed.seed)
    return [(_seed(members), len(members)) for members in (list(group) for _, group in groups)]


def _seed(repeats: list[StoredSeed]) -> _Seed:
    """Combine the repeats of a seed: it is red when one of them is."""
    outcomes = [_outcome(repeat) for repeat in repeats]
    order = (Outcome.failed, Outcome.passed, Outcome.infrastructure, Outcome.silent)
    finder = next((run for run in repeats if run.explanation == Explanation.unexplained), None)
    verdict = min((run.verdict for run in repeats), key=lambda name: Verdict(name).rank)
    return _Seed(
        repeats[0].seed,
        min(outcomes, key=order.index),
        verdict,
        None if finder is None else finder.attempt,
    )


def _outcome(run: StoredSeed) -> Outcome:
    """Return the outcome of one run. Existing tests report themselves whether they are green."""
    of_verdict = outcome_of(run.verdict)
    reported = {output.get("outcome") for output in run.outputs.values()} & {"passed", "failed"}
    if not reported or of_verdict is Outcome.infrastructure:
        return of_verdict
    return Outcome.failed if "failed" in reported else Outcome.passed
