"""Conclusions from an ended job's results: its diagnosis, and flags with their evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, func, select, true
from sqlalchemy.orm import Session

from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.reports.check_line import check_line
from gonogo.spec.diagnoses import JobDiagnosis, diagnosis_of
from gonogo.spec.statistics import ALWAYS
from gonogo.spec.verdicts import JUDGE, Explanation, Verdict
from gonogo_service.devices import sick_devices
from gonogo_service.flags import suspects
from gonogo_service.flags.evidence_kinds import raised
from gonogo_service.flags.model import FlagRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.values import SuspectsOfJob
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import JobKind
from gonogo_service.results import seeds as stored
from gonogo_service.results import stages, tallies
from gonogo_service.results import worst as worst_seeds
from gonogo_service.results.model import WHOLE, ResultRow, SourceRow
from gonogo_service.results.seeds import SEED, StoredSeed

KINDS = {kind.verdict: kind for kind in FlagKind if kind.verdict and kind.verdict.judges_kernel}
"""The kinds of flags that a single seed calls for, by its verdict."""
_RIGHT = (Verdict.pass_, Verdict.fail_by_tolerance)
"""The verdicts by which a kernel is right."""
_WRONG = (Verdict.fail, Verdict.pass_by_tolerance, Verdict.suspect, Verdict.inconclusive)
"""The verdicts of seeds that rounding doesn't explain, or not for certain; worst first."""
_NOT_EXPLAINED = (Explanation.unexplained, Explanation.suspect, Explanation.inconclusive)


def diagnosis(session: Session, job_id: str, verdict: Verdict | None = None) -> JobDiagnosis | None:
    """Return the diagnosis of the most telling seed, and the stages of a staged suite.

    The words of the stages come first. It is None if there is neither. verdict: an ended job's; no
    cause is named where it says that the kernel is right.
    """
    numbers = None if verdict in _RIGHT else _of_numbers(session, job_id)
    table = stages.of_job(session, job_id)
    if table is None:
        return numbers
    diagnosed = numbers or JobDiagnosis(can_tell=True)
    words = " ".join(filter(None, (table.words, diagnosed.words)))
    return replace(diagnosed, words=words, stages=table)


def _of_numbers(session: Session, job_id: str) -> JobDiagnosis | None:
    """Return the diagnosis of the worst seed that rounding doesn't explain."""
    job = session.get_one(JobRow, job_id)
    worst: list[StoredSeed] = []
    if not job.is_selection:
        for verdict in filter(job.counts.get, _WRONG):
            worst = worst or worst_seeds.read(session, job_id, 1, verdict=verdict.value)
    elif tallies.with_numbers(session, [job_id]):  # some tests have arrays
        is_wrong = ResultRow.seed_explanation.in_(_NOT_EXPLAINED)
        worst = worst_seeds.read(session, job_id, 1, is_wrong)
    seed_diagnosis = diagnosis_of(worst[0].outputs) if worst else None
    if seed_diagnosis is None:
        return None
    seed = worst[0]
    explanation = Explanation(seed.explanation or Explanation.not_judged)
    return replace(
        seed_diagnosis,
        seed=seed.seed,
        repeat=seed.repeat,
        verdict=Verdict(seed.verdict),
        explanation=explanation,
    )


def findings(session: Session, job: JobRow) -> list[FlagRow]:
    """Return the flags that a job's seeds call for, each by itself or all together."""
    sick = sick_devices.current(session)
    counts = _counts(session, job, sick)
    flags = [
        _finding(session, job, kind, counts[verdict], sick)
        for verdict, kind in KINDS.items()
        if counts.get(verdict)
    ]
    together = _together(session, job)
    return flags if together is None else [*flags, together]


def _counts(session: Session, job: JobRow, sick: frozenset[str]) -> Mapping[str, int]:
    """Return the number of (seed, repeat) with each verdict on healthy devices.

    Results of sick devices say nothing about a test. An iteration of a selection has the verdicts
    of all its tests, where its own is that of its worst.
    """
    table = ResultRow
    if not job.is_selection and not (sick and any(map(job.counts.get, KINDS))):
        return job.counts
    of_job = table.job_id == job.id, _on_healthy_device(job.id, sick)
    if job.is_selection:
        query = select(table.verdict, func.count(table.seed.distinct()))
        query = query.where(table.outcome.is_not(None)).group_by(table.verdict)
    else:
        query = select(table.seed_verdict, func.count())
        query = query.where(SEED).group_by(table.seed_verdict)
    return dict(session.execute(query.where(*of_job)).all())


def _on_healthy_device(job_id: str, sick: frozenset[str]) -> ColumnElement[bool]:
    if not sick:
        return true()
    device = SourceRow.device
    healthy = SourceRow.job_id == job_id, device.is_(None) | device.not_in(sick)
    return ResultRow.source.in_(select(SourceRow.number).where(*healthy))


def _finding(
    session: Session, job: JobRow, kind: FlagKind, seeds: int, sick: frozenset[str]
) -> FlagRow:
    shown = _worst_output(session, job, kind, sick)
    facts: dict[str, Any] = {}
    if shown is not None:
        seed, output = shown
        statistics = seed.outputs[output]
        facts = {
            "seed": seed.seed,
            "repeat": seed.repeat,
            "output": output,
            "arithmetic": seed.arithmetic,
            "judge": seed.judge,
            "statistics": {name: statistics.get(name) for name in ALWAYS},
            "needed_atol": statistics.get("needed_atol"),
            "check": _line(job, seed.seed, output) if job.kind == JobKind.seeds else None,
        }
        if job.is_selection:  # a tolerance that was sent with the arrays
            facts["tolerance"] = dict((statistics.get("test") or {}).get("tolerance", {}))
    return _flag(job, kind, seeds=seeds, **facts)


def _worst_output(
    session: Session, job: JobRow, kind: FlagKind, sick: frozenset[str]
) -> tuple[StoredSeed, str] | None:
    """Return the seed with the worst output of a verdict, and that output; None for none.

    Each test of a selection has its own verdict.
    """
    table = ResultRow
    of_job = table.job_id == job.id, _on_healthy_device(job.id, sick), table.output != WHOLE
    query = select(table.seed, table.repeat, table.output).where(*of_job)
    if job.is_selection:
        query = query.where(table.verdict == kind.verdict)
    else:
        query = query.where(SEED, table.seed_verdict == kind.verdict)
    order = table.minus_size, table.seed, table.repeat, table.output
    worst = session.execute(query.order_by(*order).limit(1)).one_or_none()
    if worst is None:
        return None
    number, repeat, output = worst
    of_seed = table.job_id == job.id, table.seed == number, table.repeat == repeat
    (seed,) = stored.read(session, *of_seed)
    return seed, output


def _together(session: Session, job: JobRow) -> FlagRow | None:
    """Return the flag that all seeds together call for, with their pooled numbers as evidence.

    It is left out where a single seed calls for it.
    """
    hollow, status = Verdict.pass_by_tolerance.value, job.suspects
    if status is None or status.pooled is None or job.counts.get(hollow):
        return None
    if not suspects.settled_counts(job.counts, status).get(hollow):
        return None
    output = next(
        name
        for name, entry in status.pooled.items()
        if entry.explanation is Explanation.unexplained
    )
    seeds = 1
    if status.seeds:
        seed = status.seeds[0]
    else:  # no seed shows it alone
        first = select(func.min(ResultRow.seed)).where(ResultRow.job_id == job.id)
        seed, seeds = session.scalars(first).one(), status.pooled[output].seeds
    return _flag(
        job,
        FlagKind.passes_by_tolerance,
        words=status.words,
        seed=seed,
        output=output,
        seeds=status.count,
        suspects=from_object(SuspectsOfJob, status),
        pooled=status.pooled,
        judge=JUDGE,
        check=_line(job, seed, output, seeds),
    )


def _flag(job: JobRow, kind: FlagKind, **facts: Any) -> FlagRow:
    return raised(kind, job, job.test, of=job.done, diagnosis=job.diagnosis_words, **facts)


def _line(job: JobRow, seed: int, output: str, seeds: int = 1) -> str:
    return check_line(
        job.test,
        build=job.build,
        executor=job.executor,
        seed=seed,
        output=output,
        seeds=seeds,
        context=job.context,
    )
