"""Conclusions from an ended job's results: its diagnosis, and flags with their evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, func, select, true
from sqlalchemy.orm import Session

from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.reports.check_line import check_line, left_out_of_line
from gonogo.spec.diagnoses import JobDiagnosis, diagnosis_of
from gonogo.spec.selections import KERNEL, is_selection
from gonogo.spec.statistics import ROLLED_UP
from gonogo.spec.verdicts import (
    Explanation,
    Verdict,
    worst_first,
)
from gonogo_service.devices import sick_devices
from gonogo_service.flags.evidence_kinds import Evidence
from gonogo_service.flags.evidence_kinds import stored as stored_evidence
from gonogo_service.flags.model import FlagRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.states import JobKind
from gonogo_service.results import seeds as stored
from gonogo_service.results import stages, tallies
from gonogo_service.results import worst as worst_seeds
from gonogo_service.results.model import ResultRow, SourceRow
from gonogo_service.results.seeds import SEED, StoredSeed
from gonogo_service.tests.model import TestSpecRow

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
    if job.kernel != KERNEL:
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
    """Return the flags that a job's seeds call for by themselves.

    A job that compares two builds has none, because a flag compares one build with float64.
    """
    if job.reference is not None:
        return []
    sick = sick_devices.current(session)
    counts: Mapping[str, int] = job.counts
    if job.kernel == KERNEL:
        counts = _iterations_with(session, job.id, list(KINDS), sick)
    elif sick and any(map(counts.get, KINDS)):
        counts = _seeds_with(session, job.id, list(KINDS), sick)
    return [
        _finding(session, job, kind, verdict, counts[verdict], sick)
        for verdict, kind in KINDS.items()
        if counts.get(verdict)
    ]


def _seeds_with(
    session: Session, job_id: str, verdicts: list[str], sick: frozenset[str]
) -> dict[str, int]:
    """Return the number of (seed, repeat) with each of these verdicts on healthy devices.

    Results of sick devices say nothing about a test.
    """
    verdict = ResultRow.seed_verdict
    healthy = _on_healthy_device(job_id, sick)
    query = select(verdict, func.count()).where(
        ResultRow.job_id == job_id, SEED, verdict.in_(verdicts), healthy
    )
    return dict(session.execute(query.group_by(verdict)).all())


def _on_healthy_device(job_id: str, sick: frozenset[str]) -> ColumnElement[bool]:
    if not sick:
        return true()
    device = SourceRow.device
    healthy = SourceRow.job_id == job_id, device.is_(None) | device.not_in(sick)
    return ResultRow.source.in_(select(SourceRow.number).where(*healthy))


def _iterations_with(
    session: Session, job_id: str, verdicts: list[str], sick: frozenset[str]
) -> dict[str, int]:
    """Return the number of a selection's iterations in which a test got each of these verdicts.

    The iteration's own verdict is that of its worst test.
    """
    table = ResultRow
    of_tests = table.job_id == job_id, table.outcome.is_not(None), table.verdict.in_(verdicts)
    query = select(table.verdict, func.count(table.seed.distinct()))
    query = query.where(*of_tests, _on_healthy_device(job_id, sick)).group_by(table.verdict)
    return dict(session.execute(query).all())


def _finding(
    session: Session,
    job: JobRow,
    kind: FlagKind,
    verdict: Verdict,
    seeds: int,
    sick: frozenset[str],
) -> FlagRow:
    shown = _worst_output(session, job, verdict, sick)
    canonical = session.get_one(TestSpecRow, job.test_key).canonical
    evidence = Evidence(
        sentence=kind.sentence,
        job=job.id,
        build=job.build,
        seeds=seeds,
        of=job.done,
        tolerance=_tolerance(canonical, None if shown is None else shown[2]),
        diagnosis=job.diagnosis and job.diagnosis.words,
    )
    if shown is not None:
        seed, output, statistics = shown
        line = check_line(
            canonical,
            build=job.build,
            executor=job.executor,
            seed=seed.seed,
            output=output,
            context=job.context,
        )
        evidence = replace(
            evidence,
            seed=seed.seed,
            repeat=seed.repeat,
            output=output,
            arithmetic=seed.arithmetic,
            judge=seed.judge,
            statistics={name: statistics.get(name) for name in ROLLED_UP},
            needed_atol=statistics.get("needed_atol"),
            check=line if job.kind == JobKind.seeds else None,  # imports can't be rerun
            check_leaves_out=left_out_of_line(canonical),
        )
    return FlagRow.found(kind, job, stored_evidence(evidence))


def _worst_output(
    session: Session, job: JobRow, verdict: Verdict, sick: frozenset[str]
) -> tuple[StoredSeed, str, Mapping[str, Any]] | None:
    """Return the worst output with a verdict, with its seed; None if no seed has it.

    The order is that of gonogo.spec.verdicts.severity, as on the job's page. Of a selection, an
    output with arrays: the entries of its tests have no numbers.
    """
    healthy = _on_healthy_device(job.id, sick)
    if job.kernel == KERNEL:
        return _worst_entry(session, job, verdict, healthy)
    worst = worst_seeds.read(session, job.id, 1, healthy, verdict=verdict.value)
    if not worst or not worst[0].outputs:
        return None
    name = worst_first(worst[0].outputs)[0]
    return worst[0], name, worst[0].outputs[name]


def _worst_entry(
    session: Session, job: JobRow, verdict: Verdict, healthy: ColumnElement[bool]
) -> tuple[StoredSeed, str, Mapping[str, Any]] | None:
    """Return the worst output with a verdict in a selection: each test has its own verdict."""
    table = ResultRow
    order = table.size.desc(), table.seed, table.repeat, table.output
    query = select(table.seed, table.repeat, table.output)
    query = query.where(table.job_id == job.id, table.verdict == verdict.value, healthy)
    found = session.execute(query.order_by(*order).limit(1)).one_or_none()
    if found is None:
        return None
    number, repeat, name = found
    of_seed = table.job_id == job.id, table.seed == number, table.repeat == repeat
    (seed,) = stored.read(session, *of_seed)
    return seed, name, seed.outputs[name]


def _tolerance(canonical: Mapping[str, Any], output: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the tolerance that was met or missed: the test's, or the one sent with the arrays."""
    test = canonical if not is_selection(canonical) or output is None else output.get("test") or {}
    return dict(test.get("tolerance", {}))
