"""The evidence of a flag from runs: examples, figures, and what it takes to run them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gonogo.flakiness import masking
from gonogo.flakiness.policy import POLICY
from gonogo_service.flags.evidence import check_line
from gonogo_service.flags.evidence_kinds import Figures, LeftOut, Rerun, RunEvidence, RunExample
from gonogo_service.flags.store import Finding
from gonogo_service.kit.database.records import from_json, from_object
from gonogo_service.kit.database.states import IMPORT_EXECUTOR, FlagKind
from gonogo_service.tests.assessing import Assessment
from gonogo_service.tests.samples import Run

EXAMPLES = 8
"""Number of runs shown as examples, each with its job, device, digest and verdict."""
LISTED = 50
"""Maximum number of seeds, jobs and devices named for running it again."""
SENTENCES = {
    FlagKind.flaky: "Some seeds pass and some fail on the same build.",
    FlagKind.nondeterministic: "The same seed on the same device gives different outputs.",
    FlagKind.device_dependent: (
        "Equal seeds give different outputs, or outcomes, on different devices."
    ),
    FlagKind.context_dependent: (
        "Equal seeds give different outputs, or outcomes, by what ran before in the process."
    ),
    FlagKind.latent_flake: "Every seed passed, and the tail of its errors reaches the tolerance.",
    FlagKind.fix_masked: masking.Change.fix_masked.sentence,
    FlagKind.hangs: "Some seed did not end within its deadline.",
    FlagKind.crashes: "Some seed's process died.",
    FlagKind.arithmetic_changed: (
        "Rounding explains the errors, but by another arithmetic than on earlier builds."
    ),
}


def finding(
    assessment: Assessment,
    kind: FlagKind,
    canonical: Mapping[str, Any],
    words: str,
    figures: Figures,
    evidence_runs: Sequence[Run],
    examples: Sequence[Run],
    *,
    repeats: int = 1,
    count: int = 1,
    before: str | None = None,
) -> Finding:
    """Build one finding.

    evidence_runs: the runs that show it, the strongest first. examples: runs among or beside them.
    """
    job = assessment.job
    head = evidence_runs[0]
    first = min(run.seed for run in evidence_runs) if count > 1 else head.seed
    output = min(head.digests, default="")
    evidence = RunEvidence(
        sentence=SENTENCES[kind],
        words=words,
        job=job.id,
        build=job.build,
        seeds=len({run.seed for run in evidence_runs}),
        of=assessment.extent.seeds,
        extent=assessment.extent,
        tolerance=dict(canonical.get("tolerance") or {}),
        seed=head.seed,
        repeat=head.repeat,
        figures=figures,
        examples=[example(run) for run in examples[:EXAMPLES]],
        rerun=rerun(
            evidence_runs,
            examples,
            repeats,
            before,
            assessment.runs if kind is FlagKind.context_dependent else evidence_runs,
        ),
        check=None
        if job.executor == IMPORT_EXECUTOR
        else check_line(
            canonical,
            build=job.build,
            executor=job.executor,
            seed=first,
            output=output,
            seeds=count,
            repeats=repeats,
            context=head.job.requested_context,
        ),
        check_leaves_out=[name for name in ("memory", "program") if name in canonical],
        left_out=left_out(assessment),
        policy=POLICY.version,
    )
    return from_object(
        Finding, job, assessment.variant, kind=kind, job=job.id, evidence=asdict(evidence)
    )


def left_out(assessment: Assessment) -> dict[str, LeftOut]:
    """Return the runs on sick devices, by device."""
    return {name: from_json(LeftOut, entry) for name, entry in assessment.left_out.items()}


def rerun(
    evidence_runs: Sequence[Run],
    examples: Sequence[Run],
    repeats: int = 1,
    before: str | None = None,
    contexts: Sequence[Run] | None = None,
) -> Rerun:
    """Return the fields of a job request that shows the finding again."""
    return Rerun(
        seeds=_first_distinct(run.seed for run in evidence_runs),
        repeats=repeats,
        devices=_first_distinct(run.device for run in evidence_runs if run.device),
        builds=_first_distinct(
            [*([before] if before else []), *(run.job.build for run in evidence_runs)]
        ),
        contexts=_first_distinct(run.job.context for run in contexts or evidence_runs),
        jobs=_first_distinct(run.job.id for run in [*examples[:EXAMPLES], *evidence_runs]),
    )


def example(run: Run) -> RunExample:
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
