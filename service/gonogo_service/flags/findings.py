"""The flags that an assessment raises: a function for each kind builds it, with its evidence.

The evidence says how to run the finding again. Reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness import arithmetic_changes
from gonogo.flakiness.attribution import AttributedFactor, Cause
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.flakiness.grades import Stability
from gonogo.flakiness.masking import Change
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome, outcome_of, rate
from gonogo.flakiness.samples import factor_words, outcome_factors
from gonogo.reports.check_line import check_line
from gonogo.spec.verdicts import Explanation
from gonogo_service.devices.model import DeviceRow
from gonogo_service.flags import arithmetic, attention, slower
from gonogo_service.flags.evidence_kinds import (
    Figures,
    Rerun,
    RunExample,
    Runs,
    SickRuns,
    raised,
    stored,
)
from gonogo_service.flags.model import FlagRow
from gonogo_service.kit.database.records import from_json, from_object
from gonogo_service.kit.database.states import IMPORT_EXECUTOR
from gonogo_service.results.model import ResultRow
from gonogo_service.results.seeds import SEED
from gonogo_service.tests import samples
from gonogo_service.tests.assessing import Assessment
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.samples import Run
from gonogo_service.tests.variants import ISOLATED

REPEATS = 8
"""Repeats in the check line where the same seed differs.

A kernel that differs every fourth time shows it with p = .9.
"""
EXAMPLES = 8
"""Number of runs shown as examples, each with its job, device, digest and verdict."""
LISTED = 50
"""Maximum number of seeds, jobs and devices named for running it again."""
MAX_COUNT = 4096
"""Maximum number of seeds in a check line."""
_LOST = {FlagKind.hangs: "hung", FlagKind.crashes: "crashed"}


@dataclass(frozen=True)
class _Case:
    """An assessment whose flags are looked for; `runs` are those of the job itself."""

    session: Session
    assessment: Assessment
    canonical: Mapping[str, Any]
    runs: Sequence[Run]

    def finding(
        self,
        kind: FlagKind,
        words: str,
        figures: Figures | None,
        shown: Sequence[Run],
        examples: Sequence[Run],
        *,
        repeats: int = 1,
        count: int = 1,
        earlier: str | None = None,
        **further: Any,
    ) -> FlagRow:
        """Return a flag of runs.

        shown: the runs that show it, the strongest first. examples: runs among or beside them.
        repeats, count: repeats and seeds of the check line. earlier: the build to compare with.
        further: other fields of its evidence.
        """
        job, head = self.assessment.job, shown[0]
        contexts = self.assessment.runs if kind is FlagKind.context_dependent else shown
        line = check_line(
            self.canonical,
            build=job.build,
            executor=job.executor,
            seed=min(run.seed for run in shown) if count > 1 else head.seed,
            output=min(head.digests, default=""),
            seeds=count,
            repeats=repeats,
            context=head.job.requested_context,
        )
        runs = self.runs_of(figures, shown, examples, repeats, earlier, contexts)
        return raised(
            kind,
            job,
            self.canonical,
            **vars(runs),
            words=words,
            seeds=len({run.seed for run in shown}),
            of=self.assessment.extent.seeds,
            seed=head.seed,
            repeat=head.repeat,
            check=None if job.executor == IMPORT_EXECUTOR else line,
            policy=POLICY.version,
            **further,
        )

    def runs_of(
        self,
        figures: Figures | None,
        shown: Sequence[Run],
        examples: Sequence[Run],
        repeats: int = 1,
        earlier: str | None = None,
        contexts: Sequence[Run] = (),
    ) -> Runs:
        """Return the evidence of runs, and the fields of a job request that shows it again."""
        builds = [earlier] if earlier else []
        rerun = Rerun(
            seeds=_first_distinct(run.seed for run in shown),
            repeats=repeats,
            devices=_first_distinct(run.device for run in shown if run.device),
            builds=_first_distinct([*builds, *(run.job.build for run in shown)]),
            contexts=_first_distinct(run.job.context for run in contexts or shown),
            jobs=_first_distinct(run.job.id for run in [*examples[:EXAMPLES], *shown]),
        )
        return Runs(
            figures=None if figures is None else stored(figures),
            extent=self.assessment.extent,
            examples=[_example(run) for run in examples[:EXAMPLES]],
            rerun=rerun,
            left_out={
                device: from_json(SickRuns, note)
                for device, note in self.assessment.left_out.items()
            },
        )


Builder = Callable[[_Case, FlagKind], FlagRow | None]


def findings(session: Session, assessment: Assessment) -> list[FlagRow]:
    """Return the flags to open or renew.

    A kind is renewed only where the job itself is evidence for it, so that old evidence lets a flag
    expire. A flaky test's job must have a red seed (or be the first green one after only red ones).
    A factor's job must have seeds that take part in it.
    """
    runs = [run for run in assessment.runs if run.job.id == assessment.job.id]
    canonical = session.get_one(TestSpecRow, assessment.variant.test_key).test
    case = _Case(session, assessment, canonical, runs)
    built = (builder(case, kind) for kind, builder in BUILDERS.items())
    return [*filter(None, built), *_completed(case)]


def _completed(case: _Case) -> list[FlagRow]:
    """Return the flags that the job's end raised, with what it takes to run them again.

    The job's end leaves that out, because it holds the job's lock. A flag counts a job once.
    """
    completed = []
    for flag in attention.active(case.session, case.assessment.variant):
        if flag.kind in BUILDERS or flag.kind.of_gauge or flag.last_job != case.assessment.job.id:
            continue
        evidence = flag.evidence
        shown = [run for run in case.runs if run.verdict == flag.kind.verdict] or list(case.runs)
        if not shown:
            continue
        share = rate(evidence["seeds"], max(evidence["seeds"], evidence["of"]))
        worst = sorted(shown, key=lambda run: run.seed != evidence.get("seed"))
        runs = case.runs_of(Figures(seeds=share), shown, worst)
        details = {"words": f"{share.words} seeds", **evidence, **stored(runs)}
        completed.append(FlagRow.finding(flag.kind, case.assessment.job, details))
    return completed


def _lost(case: _Case, kind: FlagKind) -> FlagRow | None:
    """Return the flag of runs that hung or crashed, with what they have in common.

    The rate is that of the build on healthy devices; the factors are those of the whole branch.
    """
    assessment, verdict = case.assessment, kind.verdict
    lost = [run for run in case.runs if run.verdict == verdict]
    if not lost or verdict is None:
        return None
    share = rate(sum(run.verdict == verdict for run in assessment.runs), len(assessment.runs))
    table = ResultRow
    message = select(table.message).where(
        table.job_id == assessment.job.id,
        table.seed == lost[0].seed,
        table.repeat == lost[0].repeat,
        SEED,
    )
    runs = samples.read(case.session, assessment.variant).runs
    serials = select(DeviceRow.device, DeviceRow.serial).where(
        DeviceRow.device.in_({run.device for run in runs}), DeviceRow.serial.is_not(None)
    )
    cards = {device: str(serial) for device, serial in case.session.execute(serials)}
    factors = outcome_factors(samples.of_runs(runs, cards), verdict)
    first = case.session.scalar(message.limit(1))
    by_factor = {factor.name: factor.rows for factor in factors}
    figures = Figures(lost=share, message=first, factors=by_factor)
    parts = [f"{share.words} runs {_LOST[kind]}", factor_words(factors, kind.value)]
    return case.finding(kind, "; ".join(filter(None, parts)), figures, lost, lost)


def _flaky(case: _Case, kind: FlagKind) -> FlagRow | None:
    assessment = case.assessment
    grade, attribution = assessment.grade, assessment.attribution
    red, green = _by_outcome(assessment.runs)
    if grade.stability is not Stability.flaky and not (red and green):
        return None
    job_red, job_green = _by_outcome(case.runs)
    if not job_red and not (job_green and len(job_green) == len(green)):
        return None
    # the grade has more runs where not every seed was read
    failures = max(attribution.failures, grade.failures, key=lambda share: share.runs)
    figures = Figures(
        failures=failures,
        infrastructure=attribution.infrastructure,
        cause=attribution.cause,
        causes=attribution.causes,
        contexts=attribution.contexts,
        devices=attribution.devices,
    )
    repeats = REPEATS if Cause.nondeterministic in attribution.causes else 1
    examples = [*red[-EXAMPLES // 2 :], *green[-EXAMPLES // 2 :]]
    shown = red or case.runs
    return case.finding(kind, attribution.words, figures, shown, examples, repeats=repeats)


def _factor(case: _Case, kind: FlagKind) -> FlagRow | None:
    """Return the flag of the factor of the same name."""
    assessment, cause = case.assessment, Cause(kind.value)
    holding = (one for one in assessment.attribution.findings if one.cause is cause and one.holds)
    factor = next(holding, None)
    if factor is None or not any(_takes_part(run, factor) for run in case.runs):
        return None
    seeds = {example.seed for example in factor.examples}
    shown = [run for run in assessment.runs if run.seed in seeds and run.digest is not None]
    shown = shown or list(case.runs)
    of_devices = kind is FlagKind.device_dependent
    figures = Figures(
        **vars(factor),
        contexts=assessment.attribution.contexts,
        devices=assessment.attribution.devices if of_devices else None,
    )
    if kind is FlagKind.context_dependent:  # the check line must show it in a context
        shown.sort(key=lambda run: run.job.context == ISOLATED)
    repeats = 1 if of_devices else REPEATS
    return case.finding(kind, factor.words, figures, shown, _unlike(shown), repeats=repeats)


def _latent(case: _Case, kind: FlagKind) -> FlagRow | None:
    assessment, tail = case.assessment, case.assessment.grade.tail
    is_known = any(run.ratio is not None for run in case.runs)
    if not assessment.grade.latent or tail is None or not is_known:
        return None
    known = [run for run in assessment.runs if run.ratio is not None]
    worst = sorted(known, key=lambda run: -(run.ratio or 0.0))
    figures = Figures(tail=tail, target=POLICY.latent_target, era=list(assessment.era))
    count = min(len({run.seed for run in known}), MAX_COUNT)
    repeats = REPEATS if tail.per == "runs" else 1
    return case.finding(kind, tail.words, figures, worst, worst, repeats=repeats, count=count)


def _masked(case: _Case, kind: FlagKind) -> FlagRow | None:
    change = case.assessment.change
    wrong = [run for run in case.runs if run.explanation == Explanation.unexplained]
    if change is None or change.change is not Change.fix_masked or not wrong:
        return None
    figures = Figures(change=change)
    return case.finding(kind, change.words, figures, wrong, wrong, earlier=change.before)


def _arithmetic(case: _Case, kind: FlagKind) -> FlagRow | None:
    assessment = case.assessment
    without = assessment.left_out.keys()
    changes = arithmetic.changed(case.session, assessment.job, assessment.jobs, without=without)
    explained = [run for run in case.runs if run.explanation == Explanation.explained]
    if not changes or not explained:
        return None
    return case.finding(
        kind,
        arithmetic_changes.words(changes),
        None,
        explained,
        explained,
        earlier=changes[0].builds[0],
        before={change.output: change.before for change in changes},
        after={change.output: change.after for change in changes},
        found_in={change.output: f"{change.seeds} of {change.of} seeds" for change in changes},
        earlier_builds={change.output: list(change.builds) for change in changes},
    )


def _slower(case: _Case, kind: FlagKind) -> FlagRow | None:
    active = attention.active(case.session, case.assessment.variant)
    pinned = next((flag for flag in active if flag.kind is kind), None)
    compared = slower.compared(case.session, case.assessment, pinned)
    if compared is None or not case.runs or not compared[2].slower:
        return None
    base, before, change = compared
    figures = Figures(time=change, before=tuple(before))
    return case.finding(kind, change.words, figures, case.runs, case.runs, earlier=base)


BUILDERS: Mapping[FlagKind, Builder] = {
    FlagKind.hangs: _lost,
    FlagKind.crashes: _lost,
    FlagKind.flaky: _flaky,
    FlagKind.nondeterministic: _factor,
    FlagKind.device_dependent: _factor,
    FlagKind.context_dependent: _factor,
    FlagKind.latent_flake: _latent,
    FlagKind.fix_masked: _masked,
    FlagKind.arithmetic_changed: _arithmetic,
    FlagKind.slower: _slower,
}
"""The function of each kind that runs of several jobs show."""


def _takes_part(run: Run, factor: AttributedFactor) -> bool:
    """Return whether a run is among those that a factor was seen in.

    Where digests differ, the run needs a digest, else an outcome.
    """
    judged = outcome_of(run.verdict, run.green) in (Outcome.passed, Outcome.failed)
    return judged and (run.digest is not None or bool(factor.rows))


def _by_outcome(runs: Iterable[Run]) -> tuple[list[Run], list[Run]]:
    """Return (red runs, green runs)."""
    by_outcome: dict[Outcome, list[Run]] = {Outcome.failed: [], Outcome.passed: []}
    for run in runs:
        by_outcome.setdefault(outcome_of(run.verdict, run.green), []).append(run)
    return by_outcome[Outcome.failed], by_outcome[Outcome.passed]


def _unlike(runs: Sequence[Run]) -> list[Run]:
    """Return runs of the first seed with each of its digests, then those of the next."""
    seen: dict[Any, Run] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        seen.setdefault((run.seed, run.digest, run.device, run.job.context), run)
    return list(seen.values())


def _example(run: Run) -> RunExample:
    """Return a run as an example of a finding."""
    return from_object(
        RunExample,
        run,
        job=run.job.id,
        build=run.job.build,
        context=run.job.context,
        tolerance_ratio=run.ratio,
        digests=dict(run.digests),
    )


def _first_distinct(values: Iterable[Any]) -> list[Any]:
    """Return the first LISTED different values, in order."""
    return list(dict.fromkeys(values))[:LISTED]
