"""The flags that an assessment raises, each with enough evidence to run it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness import arithmetic_changes, masking
from gonogo.flakiness.attribution import Cause, Factor
from gonogo.flakiness.grades import Stability
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome, outcome_of, rate
from gonogo.flakiness.samples import factor_words, outcome_factors
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_service.devices.model import DeviceRow
from gonogo_service.flags import arithmetic, evidence, run_evidence
from gonogo_service.flags.evidence_kinds import (
    FactorFigures,
    FlakyFigures,
    LatentFigures,
    LostFigures,
    MaskedFigures,
    NoFigures,
    SeedShare,
)
from gonogo_service.flags.store import Finding
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import FlagKind
from gonogo_service.results.rows import SeedResultRow
from gonogo_service.tests import samples
from gonogo_service.tests.assessing import Assessment
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.samples import Run
from gonogo_service.tests.variants import ISOLATED

REPEATS = 8
"""Repeats in the check line where the same seed differs.

A kernel that differs every fourth time shows it with p = .9.
"""
_VERDICTS = {
    FlagKind.passes_by_tolerance: Verdict.pass_by_tolerance,
    FlagKind.tolerance_too_tight: Verdict.fail_by_tolerance,
}
_LOST = {
    FlagKind.hangs: (Verdict.hang, "hung"),
    FlagKind.crashes: (Verdict.crash, "crashed"),
}
_FACTORS = {
    Cause.nondeterministic: FlagKind.nondeterministic,
    Cause.device_dependent: FlagKind.device_dependent,
    Cause.context_dependent: FlagKind.context_dependent,
}


def findings(session: Session, assessment: Assessment) -> list[Finding]:
    """Return the flags to open or renew.

    A kind is renewed only where the job itself is evidence for it, so that old evidence lets a flag
    expire. A flaky test's job must have a red seed (or be the first green one after only red ones).
    A factor's job must have seeds that take part in it.
    """
    job_runs = [run for run in assessment.runs if run.job.id == assessment.job.id]
    canonical = session.get_one(TestSpecRow, assessment.variant.test_key).canonical
    candidates: list[Finding | None] = [
        _lost(session, assessment, job_runs, canonical, FlagKind.hangs),
        _lost(session, assessment, job_runs, canonical, FlagKind.crashes),
        _flaky(assessment, job_runs, canonical),
    ]
    candidates += [
        _factor(assessment, job_runs, canonical, kind, cause) for cause, kind in _FACTORS.items()
    ]
    candidates += [
        _latent(assessment, job_runs, canonical),
        _masked(assessment, job_runs, canonical),
        _arithmetic(session, assessment, job_runs, canonical),
    ]
    candidates += [
        _with_rerun(assessment, job_runs, finding)
        for finding in evidence.findings(session, session.get_one(JobRow, assessment.job.id))
    ]
    return [finding for finding in candidates if finding is not None]


def _with_rerun(assessment: Assessment, job_runs: Sequence[Run], base: Finding) -> Finding | None:
    """Complete a finding that ingest raised by verdict, with what it takes to run it again.

    Ingest has no time for that. The same job counts once.
    """
    verdict = _VERDICTS[base.kind]
    evidence_runs = [run for run in job_runs if run.verdict == verdict] or list(job_runs)
    if not evidence_runs:
        return None
    share = rate(
        int(base.evidence["seeds"]),
        max(int(base.evidence["seeds"]), int(base.evidence["of"])),
    )
    worst = sorted(evidence_runs, key=lambda run: run.seed != base.evidence.get("seed"))
    details = {
        "words": f"{share.words} seeds",
        "figures": asdict(SeedShare(share)),
        "extent": asdict(assessment.extent),
        "examples": [asdict(run_evidence.example(run)) for run in worst[: run_evidence.EXAMPLES]],
        "rerun": asdict(run_evidence.rerun(evidence_runs, worst)),
        "left_out": {
            name: asdict(entry) for name, entry in run_evidence.left_out(assessment).items()
        },
    }
    return replace(base, evidence={**base.evidence, **details})


def _lost(
    session: Session,
    assessment: Assessment,
    job_runs: Sequence[Run],
    canonical: Mapping[str, Any],
    kind: FlagKind,
) -> Finding | None:
    """Return the flag of runs that hung or crashed, with what they have in common.

    The rate is that of the build on well devices; the factors are those of the whole branch.
    """
    verdict, past = _LOST[kind]
    lost = [run for run in job_runs if run.verdict == verdict]
    if not lost:
        return None
    count = sum(run.verdict == verdict for run in assessment.runs)
    share = rate(count, len(assessment.runs))
    table = SeedResultRow
    message = select(table.message).where(
        table.job_id == assessment.job.id,
        table.seed == lost[0].seed,
        table.repeat == lost[0].repeat,
    )
    runs = samples.read(session, assessment.variant).runs
    devices = {run.device for run in runs}
    serials = select(DeviceRow.identity, DeviceRow.serial).where(
        DeviceRow.identity.in_(devices), DeviceRow.serial.is_not(None)
    )
    cards = {row.identity: row.serial for row in session.execute(serials)}
    factors = outcome_factors(samples.of_runs(runs, cards), verdict)
    figures = LostFigures(
        share, session.scalar(message.limit(1)), {factor.name: factor.rows for factor in factors}
    )
    parts = [f"{share.words} runs {past}", factor_words(factors, kind.value)]
    words = "; ".join(filter(None, parts))
    return run_evidence.finding(assessment, kind, canonical, words, figures, lost, lost)


def _flaky(
    assessment: Assessment, job_runs: Sequence[Run], canonical: Mapping[str, Any]
) -> Finding | None:
    red, green = _by_outcome(assessment.runs)
    if assessment.grade.stability is not Stability.flaky and not (red and green):
        return None
    job_red, job_green = _by_outcome(job_runs)
    has_news = job_red or (job_green and len(job_green) == len(green))
    if not has_news:
        return None
    attribution = assessment.attribution
    failures = (
        assessment.grade.failures
        if assessment.grade.failures.runs > attribution.failures.runs
        else attribution.failures
    )  # the grade has more runs where not every seed was read
    figures = FlakyFigures(
        failures=failures,
        infrastructure=attribution.infrastructure,
        cause=attribution.cause,
        causes=list(attribution.causes),
        contexts=list(attribution.contexts),
        devices=list(attribution.devices),
    )
    repeats = REPEATS if Cause.nondeterministic in attribution.causes else 1
    examples = [*red[-run_evidence.EXAMPLES // 2 :], *green[-run_evidence.EXAMPLES // 2 :]]
    return run_evidence.finding(
        assessment,
        FlagKind.flaky,
        canonical,
        attribution.words,
        figures,
        red or job_runs,
        examples,
        repeats=repeats,
    )


def _factor(
    assessment: Assessment,
    job_runs: Sequence[Run],
    canonical: Mapping[str, Any],
    kind: FlagKind,
    cause: Cause,
) -> Finding | None:
    factor = next(
        (
            finding
            for finding in assessment.attribution.findings
            if finding.cause is cause and finding.holds
        ),
        None,
    )
    if factor is None or not any(_takes_part(run, factor) for run in job_runs):
        return None
    example_seeds = {example.seed for example in factor.examples}
    evidence_runs = [
        run for run in assessment.runs if run.seed in example_seeds and run.digest is not None
    ] or list(job_runs)
    devices = kind is FlagKind.device_dependent
    figures = from_object(
        FactorFigures,
        factor,
        contexts=assessment.attribution.contexts,
        devices=assessment.attribution.devices if devices else None,
    )
    # the check line must show it in a context, not isolated
    if kind is FlagKind.context_dependent:
        evidence_runs.sort(key=lambda run: run.job.context == ISOLATED)
    repeats = 1 if devices else REPEATS
    return run_evidence.finding(
        assessment,
        kind,
        canonical,
        factor.words,
        figures,
        evidence_runs,
        _unlike(evidence_runs),
        repeats=repeats,
    )


def _takes_part(run: Run, factor: Factor) -> bool:
    """Return whether a run is among those that a factor was seen in.

    Where digests differ, the run needs a digest, else an outcome.
    """
    judged = outcome_of(run.verdict, run.green) in (Outcome.passed, Outcome.failed)
    return judged and (run.digest is not None or bool(factor.rows))


def _latent(
    assessment: Assessment, job_runs: Sequence[Run], canonical: Mapping[str, Any]
) -> Finding | None:
    fitted = assessment.grade.tail
    if (
        not assessment.grade.latent
        or fitted is None
        or not any(run.ratio is not None for run in job_runs)
    ):
        return None
    known = [run for run in assessment.runs if run.ratio is not None]
    worst = sorted(known, key=lambda run: -(run.ratio or 0.0))
    figures = LatentFigures(fitted, POLICY.latent_target, list(assessment.era))
    seeds = min(len({run.seed for run in known}), 4096)
    repeats = REPEATS if fitted.per == "runs" else 1
    return run_evidence.finding(
        assessment,
        FlagKind.latent_flake,
        canonical,
        fitted.words,
        figures,
        worst,
        worst,
        repeats=repeats,
        count=seeds,
    )


def _masked(
    assessment: Assessment, job_runs: Sequence[Run], canonical: Mapping[str, Any]
) -> Finding | None:
    change = assessment.change
    if change is None or change.change is not masking.Change.fix_masked:
        return None
    wrong = [run for run in job_runs if run.explanation == Explanation.unexplained]
    if not wrong:
        return None
    return run_evidence.finding(
        assessment,
        FlagKind.fix_masked,
        canonical,
        change.words,
        MaskedFigures(change),
        wrong,
        wrong,
        before=change.before,
    )


def _arithmetic(
    session: Session, assessment: Assessment, job_runs: Sequence[Run], canonical: Mapping[str, Any]
) -> Finding | None:
    changed = arithmetic.changed(
        session, assessment.job, assessment.jobs, without=assessment.left_out.keys()
    )
    explained = [run for run in job_runs if run.explanation == Explanation.explained]
    if not changed or not explained:
        return None
    words = arithmetic_changes.words(changed)
    finding = run_evidence.finding(
        assessment,
        FlagKind.arithmetic_changed,
        canonical,
        words,
        NoFigures(),
        explained,
        explained,
        before=changed[0].builds[0],
    )
    details = {
        "sentence": words,
        "before": {change.output: change.before for change in changed},
        "after": {change.output: change.after for change in changed},
        "found_in": {change.output: f"{change.seeds} of {change.of} seeds" for change in changed},
        "earlier_builds": {change.output: list(change.builds) for change in changed},
    }
    return replace(finding, evidence={**finding.evidence, **details})


def _by_outcome(runs: Iterable[Run]) -> tuple[list[Run], list[Run]]:
    """Return (red runs, green runs)."""
    with_outcomes = [(run, outcome_of(run.verdict, run.green)) for run in runs]
    return [run for run, outcome in with_outcomes if outcome is Outcome.failed], [
        run for run, outcome in with_outcomes if outcome is Outcome.passed
    ]


def _unlike(runs: Sequence[Run]) -> list[Run]:
    """Return runs of the first seed with each of its digests, then those of the next."""
    seen: dict[Any, Run] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        seen.setdefault((run.seed, run.digest, run.device, run.job.context), run)
    return list(seen.values())
