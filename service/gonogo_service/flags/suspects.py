"""The seeds of a job together: suspect ones, and factors too small for a single seed.

A suspect seed raises no flag. It adds seeds to its job, and all seeds together decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.classes import LOST
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.sequential import more_for_suspects
from gonogo.flakiness.suspects import MAX_SEEDS, SETTLED, pooled_outputs, seeds_to_decide
from gonogo.spec.verdicts import Explanation, Verdict, worst_explanation
from gonogo_service.jobs.bodies import MAX_SEED
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.values import PooledOutput, SuspectSeeds
from gonogo_service.results import seeds as stored
from gonogo_service.results.model import WHOLE, ResultRow
from gonogo_service.results.seeds import SEED, Outputs

NAMED = 8
"""Maximum number of suspect seeds that are listed."""
MAX_POOLED = 1000
"""Maximum number of pooled (seed, repeat): the last ones, which include the added ones.

More would only hold the job's lock longer.
"""
_OF_EXPLANATION = {
    Explanation.suspect: (Verdict.suspect.value, Verdict.fail.value),
    Explanation.unexplained: (Verdict.fail.value, Verdict.pass_by_tolerance.value),
}
"""The verdicts of seeds with an explanation: an index finds them."""
_AT_THE_EDGE = (
    "together they are still at the edge of what rounding explains: no finding, and no all-clear"
)


def consider(session: Session, job: JobRow) -> list[int]:
    """Conclude from all seeds of a job whose chunks are all closed; return the seeds to add.

    Suspect seeds add some, unless the seeds together are unexplained already. Only jobs with a
    range or a maximum number of seeds get any, not those with a list of seeds. A job with an
    unexplained seed, or one without numbers, gets none, because its verdict can't change.
    """
    suspect = _seeds(session, job, Explanation.suspect)
    unexplained = _seeds(session, job, Explanation.unexplained)
    pooled = {} if unexplained else _pooled(session, job)
    worst = worst_explanation(output.explanation for output in pooled.values())
    if job.suspects is None and (unexplained or not (suspect or worst is Explanation.unexplained)):
        return []
    status, summary = _status(job, suspect), _named(suspect)
    if status.added:
        summary += f"; {len(status.added)} seeds were added"
    more: list[int] = []
    answer: Explanation | None = worst
    if unexplained:
        answer = Explanation.unexplained
        words = f"{summary}: seed {unexplained[0]} is unexplained by itself"
    elif worst is Explanation.unexplained:
        reasons = (f"{name}: {output.reason}" for name, output in pooled.items() if output.reason)
        words = f"{summary}; {'; '.join(reasons)}"
    elif more := _more(session, job, len(suspect), status.rounds):
        answer, words = None, f"{len(more)} seeds added: {_named(suspect)}"
    elif status.rounds:
        words = f"{summary}: {_AT_THE_EDGE}"
    else:
        return []  # `undecided` tells of it
    job.suspects = replace(
        status,
        explanation=answer,
        words=words,
        rounds=status.rounds + bool(more),
        added=[*status.added, *more],
        pooled=pooled if answer is not None and pooled else None,
    )
    return more


def _status(job: JobRow, suspect: Sequence[int]) -> SuspectSeeds:
    """Return what is known of a job's suspect seeds, with those of now."""
    before = job.suspects or SuspectSeeds(
        seeds=[], added=[], rounds=0, explanation=None, count=0, pooled=None, words="", policy=""
    )
    named = list(suspect[:NAMED])
    return replace(before, seeds=named, count=len(suspect), policy=POLICY.version)


def undecided(session: Session, job: JobRow) -> None:
    """Tell of a job that ends suspect what would decide: more seeds, or other inputs."""
    suspect = _seeds(session, job, Explanation.suspect)
    if not suspect:
        return
    status = job.suspects or replace(
        _status(job, suspect),
        words=f"{_named(suspect)}: rounding is at its edge, which is no finding, and no all-clear",
    )
    seeds = [
        outputs for _, outputs in _read(session, job, "distance", "shared", "common", "nonfinite")
    ]
    names = {
        name
        for outputs in seeds
        for name, entry in outputs.items()
        if entry["explanation"] == Explanation.suspect
    }
    more = seeds_to_decide(
        [outputs[name] for outputs in seeds if name in outputs] for name in sorted(names)
    )
    about = "more than 1,000" if more >= MAX_SEEDS else f"about {more}"
    remedy = (
        f"{about} more seed{'s' * (more != 1)} would decide"
        if more
        else "the seeds agree, so more of them would not decide; exact inputs would"
    )
    job.suspects = replace(status, more=more, words=f"{status.words}; {remedy}")


def settled_counts(counts: Mapping[str, int], suspects: SuspectSeeds | None) -> Mapping[str, int]:
    """Return a job's seeds by final verdict: all seeds together may leave an output unexplained.

    counts: the seeds by their own verdicts. suspects: what was concluded (JobRow.suspects).
    """
    if suspects is None or not suspects.pooled:
        return counts
    if suspects.explanation is not Explanation.unexplained:
        return counts
    settled: dict[str, int] = {}
    for verdict, number in counts.items():
        final = SETTLED.get(Verdict(verdict), Verdict(verdict)).value
        settled[final] = settled.get(final, 0) + number
    return {verdict: number for verdict, number in settled.items() if number > 0}


def _pooled(session: Session, job: JobRow) -> dict[str, PooledOutput]:
    """Return the judgment of each output over several seeds; empty for a single one."""
    seeds = _read(session, job, "common", "faults")
    if len({seed for seed, _ in seeds}) < 2:
        return {}
    return {
        name: PooledOutput(
            explanation=answer.explanation,
            seeds=answer.seeds,
            reason=answer.reason,
            factors=list(answer.factors),
            fault=None if answer.fault is None else answer.fault.label,
        )
        for name, answer in sorted(pooled_outputs(seeds).items())
    }


def _read(session: Session, job: JobRow, *statistics: str) -> list[tuple[int, Outputs]]:
    """Return (seed, outputs) of the last (seed, repeat) that have any."""
    table = ResultRow
    last = table.job_id == job.id, table.arrival > job.done - MAX_POOLED, table.output != WHOLE
    return [
        (seed.seed, seed.outputs) for seed in stored.read(session, *last, statistics=statistics)
    ]


def _named(suspect: Sequence[int]) -> str:
    if not suspect:
        return "no seed is suspect by itself"
    more = f" and {len(suspect) - NAMED} more" if len(suspect) > NAMED else ""
    if len(suspect) == 1:
        return f"seed {suspect[0]} is suspect"
    return f"seeds {', '.join(map(str, suspect[:NAMED]))}{more} are suspect"


def _more(session: Session, job: JobRow, suspect: int, rounds: int) -> list[int]:
    """Return the seeds to add: some that have not run.

    They follow the largest one, or precede the smallest one if they would exceed MAX_SEED.
    """
    count = more_for_suspects(suspect, rounds)
    is_range = isinstance(job.request.get("seeds"), Mapping)
    if not count or not is_range or any(job.counts.get(verdict) for verdict in LOST):
        return []
    table = ResultRow
    low, high = session.execute(
        select(func.min(table.seed), func.max(table.seed)).where(table.job_id == job.id)
    ).one()
    return (
        list(range(high + 1, high + 1 + count))
        if high + count <= MAX_SEED
        else list(range(max(0, low - count), low))
    )


def _seeds(session: Session, job: JobRow, explanation: Explanation) -> list[int]:
    table = ResultRow
    query = (
        select(table.seed)
        .where(
            table.job_id == job.id,
            SEED,
            table.seed_verdict.in_(_OF_EXPLANATION[explanation]),
            table.seed_explanation == explanation.value,
        )
        .distinct()
    )
    return list(session.scalars(query.order_by(table.seed)))
