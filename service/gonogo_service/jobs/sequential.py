"""The sequential decision of a job's seeds.

It reads stored rows in the order of the seeds, under the job's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome, outcome_of
from gonogo.flakiness.sequential import Decision, Stopping
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_service.jobs import work
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.values import SeedDecision, SeedProgress
from gonogo_service.results import seeds as stored
from gonogo_service.results.model import ResultRow
from gonogo_service.results.seeds import SEED, StoredSeed

HOLLOW = "hollow"
"""The decision on a wrong kernel whose seed is green; the other names are those of `Stopping`."""
_WORST_FIRST = (Outcome.failed, Outcome.passed, Outcome.infrastructure, Outcome.silent)


@dataclass(frozen=True)
class Step:
    """One look at the rows; beyond: the last seed that the job can still need, if it changed."""

    beyond: int | None = None


@dataclass(frozen=True)
class _Seed:
    """A seed with all its stored repeats: it is red when one of them is."""

    seed: int
    repeats: int
    outcome: Outcome
    verdict: str
    finder: str | None
    """The attempt that sent an unexplained result of this seed."""


def advance(session: Session, job: JobRow) -> Step | None:
    """Read the rows since the last look; None when there is nothing left to decide.

    The seeds count in their order, from the first one and without a gap. So the answer doesn't
    depend on which worker was quick. A seed counts once all its repeats are stored. An unexplained
    seed after a gap decides nothing yet, but no seed after it can be needed.
    """
    plan = job.sequential
    if plan is None or job.stop is not None:
        return None
    seeds = _seeds(session, job, plan.start + plan.seen)
    ready = _without_gap(seeds, plan.start + plan.seen, job.repeats)
    read = [(seed.outcome, seed.finder is not None) for seed in ready]
    seen, decision = plan.read(read, plan.max, to_the_end=not plan.stop_on_finding)
    beyond = None
    if plan.stop_on_finding:
        beyond = min((seed.seed for seed in seeds if seed.finder), default=None)
    job.sequential = replace(seen, needed=decision.needed or None, beyond=beyond)
    if decision.stopped:
        count = seen.seen - plan.seen
        _stop(session, job, decision, ready[count - 1] if count else None)
        return Step()
    reach(session, job)
    return Step(beyond if beyond != plan.beyond else None)


def reach(session: Session, job: JobRow) -> None:
    """Release the chunks that the next decision can need, if no seed in them fails.

    However many workers are idle, they run no seed that a stable test would not have needed. A
    failure releases more chunks.
    """
    plan = job.sequential
    assert plan is not None
    needed = plan.decide(plan.max, to_the_end=not plan.stop_on_finding).needed
    work.release(session, job.id, plan.seen + needed)


def finalize(session: Session, job: JobRow) -> None:
    """Set the job's total to what ran, and the savings to what didn't; all chunks are closed."""
    if job.stop is not None and job.stop.seeds_run is None and job.sequential is not None:
        job.total = job.done
        job.stop = _with_savings(session, job, job.sequential, job.stop, final=True)


def _stop(session: Session, job: JobRow, decision: Decision, last: _Seed | None) -> None:
    """Store the decision, and the attempt whose row shows that the kernel is wrong."""
    finding = last if decision.state is Stopping.wrong else None
    hollow = finding is not None and finding.verdict == Verdict.pass_by_tolerance
    assert job.sequential is not None
    job.sequential = replace(job.sequential, finder=None if finding is None else finding.finder)
    stop = SeedDecision(
        decision=HOLLOW if hollow else decision.state.value,
        seed=None if last is None else last.seed,
        verdict=None if finding is None else finding.verdict,
        failures=decision.failures,
        evidence=decision.evidence,
        bounds=list(decision.bounds),
        max=decision.most,
        policy=POLICY.version,
        words="",
        seeds_seen=0,
        seeds_run=None,
        seeds_saved=0,
        device_ms_saved=None,
    )
    job.stop = _with_savings(session, job, job.sequential, stop, final=False)


def _with_savings(
    session: Session, job: JobRow, plan: SeedProgress, stop: SeedDecision, *, final: bool
) -> SeedDecision:
    """Add the sentence, and what did not run: estimated at the decision, exact at the end."""
    table = ResultRow
    of_runs = func.avg(table.duration_ms).filter(table.duration_ms >= 0)
    totals = select(func.count(table.seed.distinct()), of_runs).where(table.job_id == job.id, SEED)
    seeds, mean = session.execute(totals).one()
    ran = max(int(seeds), plan.seen)
    mean_ms = None if mean is None else float(mean) * job.repeats
    decision = plan.decide(plan.max, to_the_end=not plan.stop_on_finding, ran=ran, mean_ms=mean_ms)
    finding = "" if stop.verdict is None else f" (seed {stop.seed}: {stop.verdict})"
    return replace(
        stop,
        words=decision.words + finding,
        seeds_seen=plan.seen,
        seeds_run=ran if final else None,
        seeds_saved=decision.most - ran,
        device_ms_saved=decision.saved_ms,
    )


def _without_gap(seeds: Sequence[_Seed], first: int, repeats: int) -> list[_Seed]:
    """Return the seeds from `first` on, up to one that is missing or lacks a repeat."""
    ready: list[_Seed] = []
    for seed in seeds:
        if seed.seed != first + len(ready) or seed.repeats < repeats:
            break
        ready.append(seed)
    return ready


def _seeds(session: Session, job: JobRow, first: int) -> list[_Seed]:
    """Read the stored seeds from `first` on, in order."""
    of_job = ResultRow.job_id == job.id, ResultRow.seed >= first
    read = stored.read(session, *of_job, statistics=("outcome",))
    groups = groupby(read, key=lambda seed: seed.seed)
    return [_seed(list(repeats)) for _, repeats in groups]


def _seed(repeats: list[StoredSeed]) -> _Seed:
    finder = next((run for run in repeats if run.explanation == Explanation.unexplained), None)
    return _Seed(
        repeats[0].seed,
        len(repeats),
        min(map(_outcome, repeats), key=_WORST_FIRST.index),
        min((run.verdict for run in repeats), key=lambda name: Verdict(name).rank),
        None if finder is None else finder.attempt,
    )


def _outcome(run: StoredSeed) -> Outcome:
    """Return the outcome of one run. Existing tests report themselves whether they are green."""
    of_verdict = outcome_of(run.verdict)
    reported = {output.get("outcome") for output in run.outputs.values()} & {"passed", "failed"}
    if not reported or of_verdict is Outcome.infrastructure:
        return of_verdict
    return Outcome.failed if "failed" in reported else Outcome.passed
