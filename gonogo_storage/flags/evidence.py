"""Conclusions from an ended job's results: its diagnosis, and flags with their evidence."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, select, true
from sqlalchemy.orm import Session

from gonogo.spec.diagnoses import JobDiagnosis, consistent_diagnosis
from gonogo.spec.selections import KERNEL, Selection, is_selection
from gonogo.spec.statistics import ROLLED_UP
from gonogo.spec.tolerances import for_output
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_storage.db.records import if_readable
from gonogo_storage.db.states import FlagKind, JobKind
from gonogo_storage.devices import sick_devices
from gonogo_storage.flags.evidence_kinds import VerdictEvidence
from gonogo_storage.flags.flags import Finding
from gonogo_storage.seed_rows import stored
from gonogo_storage.seed_rows.stored import StoredSeed
from gonogo_storage.seeds import stages
from gonogo_storage.tables import ArtifactRow, JobRow, SeedResultRow, SeedSourceRow, TestSpecRow

_EXPLAINED_RANK = {name.value: rank for rank, name in enumerate(Explanation)}  # worst first
_SENTENCES = {
    FlagKind.passes_by_tolerance: (
        "Green only because the tolerance is loose: rounding does not explain the error."
    ),
    FlagKind.tolerance_too_tight: (
        "Red though right: rounding explains the error, the tolerance is tighter than the formats"
        " allow."
    ),
}


class _Fact(NamedTuple):
    """The part of a seed's row that decides which seed is the most telling, with its statistics."""

    verdict: str
    explanation: str
    budget_ratio: float
    outputs: Mapping[str, Mapping[str, Any]]


_GREEN = _Fact(Verdict.pass_.value, Explanation.explained.value, 0.0, {})


def diagnosis(session: Session, job_id: str) -> JobDiagnosis | None:
    """Return the diagnosis of the most telling seed, and the stages of a staged suite.

    The words of the stages come first. It is None if there is neither.
    """
    numbers, table = _of_numbers(session, job_id), stages.of_job(session, job_id)
    if table is None:
        return numbers
    diagnosed = numbers or JobDiagnosis(can_tell=True)
    words = " ".join(filter(None, (table.words, diagnosed.words)))
    return replace(diagnosed, words=words, stages=table)


def _of_numbers(session: Session, job_id: str) -> JobDiagnosis | None:
    """Return the diagnosis of the most telling seed, or None.

    Unexplained seeds come before explained ones, then the worse verdict, then the larger
    budget_ratio.
    """
    query_diagnosed = select(ArtifactRow.id, ArtifactRow.seed, ArtifactRow.repeat)
    artifacts = session.execute(
        query_diagnosed.where(ArtifactRow.job_id == job_id, ArtifactRow.kind == "diagnosis")
    ).all()
    if not artifacts:
        return None
    table = SeedResultRow
    facts: dict[tuple[int, int], _Fact] = {}
    query = stored.query(table.job_id == job_id, table.seed.in_({row.seed for row in artifacts}))
    for seed in stored.read(session, query, "budget_ratio", "exact", "fault"):
        ratios = [output["budget_ratio"] or 0.0 for output in seed.outputs.values()]
        facts[seed.seed, seed.repeat] = _Fact(
            seed.verdict,
            seed.explanation or Explanation.not_judged.value,
            max(ratios, default=0.0),
            seed.outputs,
        )

    def order(row: Any) -> tuple[int, int, float, int, int]:
        fact = facts.get((row.seed, row.repeat), _GREEN)
        return (
            _EXPLAINED_RANK[fact.explanation],
            Verdict(fact.verdict).rank,
            -fact.budget_ratio,
            row.seed,
            row.repeat,
        )

    best = min(artifacts, key=order)
    content = session.scalars(select(ArtifactRow.content).where(ArtifactRow.id == best.id)).one()
    fact = facts.get((best.seed, best.repeat))
    return if_readable(
        JobDiagnosis,
        {
            **consistent_diagnosis(content, fact and fact.explanation, fact and fact.outputs),
            "seed": best.seed,
            "repeat": best.repeat,
            "verdict": fact and fact.verdict,
            "explanation": fact and fact.explanation,
        },
    )


def findings(session: Session, job: JobRow) -> list[Finding]:
    """Return the flags that a job's seeds call for.

    A job that compares two builds has none, because a flag compares one build with float64.
    """
    if job.reference is not None:
        return []
    pairs = {
        Verdict.pass_by_tolerance: FlagKind.passes_by_tolerance,
        Verdict.fail_by_tolerance: FlagKind.tolerance_too_tight,
    }
    sick = sick_devices.current(session)
    counts: Mapping[str, int] = job.counts
    if job.kernel == KERNEL:
        counts = _iterations_with(session, job.id, [verdict.value for verdict in pairs], sick)
    elif sick and any(counts.get(verdict.value) for verdict in pairs):
        counts = _seeds_with(session, job.id, [verdict.value for verdict in pairs], sick)
    return [
        _finding(session, job, verdict, kind, counts[verdict.value], sick)
        for verdict, kind in pairs.items()
        if counts.get(verdict.value)
    ]


def _seeds_with(
    session: Session, job_id: str, verdicts: list[str], sick: frozenset[str]
) -> dict[str, int]:
    """Return the number of (seed, repeat) with each of these verdicts on healthy devices.

    Results of sick devices say nothing about a test.
    """
    table = SeedResultRow
    query = (
        select(table.verdict, func.count())
        .join(SeedSourceRow, stored.OF_SOURCE)
        .where(table.job_id == job_id, table.verdict.in_(verdicts), _on_healthy_device(sick))
    )
    return dict(session.execute(query.group_by(table.verdict)).all())


def _on_healthy_device(sick: frozenset[str]) -> ColumnElement[bool]:
    device = SeedSourceRow.device
    return device.is_(None) | device.not_in(sick) if sick else true()


def _iterations_with(
    session: Session, job_id: str, verdicts: list[str], sick: frozenset[str]
) -> dict[str, int]:
    """Return the number of a selection's iterations in which a test got each of these verdicts.

    The iteration's own verdict is that of its worst test.
    """
    query = stored.query(SeedResultRow.job_id == job_id, _on_healthy_device(sick))
    seeds: dict[str, set[int]] = {}
    for seed in stored.read(session, query, "outcome"):
        for output in seed.outputs.values():
            if output.get("outcome") is not None and output["verdict"] in verdicts:
                seeds.setdefault(output["verdict"], set()).add(seed.seed)
    return {verdict: len(of_verdict) for verdict, of_verdict in seeds.items()}


def _finding(
    session: Session,
    job: JobRow,
    verdict: Verdict,
    kind: FlagKind,
    seeds: int,
    sick: frozenset[str],
) -> Finding:
    hollow = kind is FlagKind.passes_by_tolerance
    shown = _worst_output(session, job, verdict, sick, hollow=hollow)
    canonical = session.get_one(TestSpecRow, job.test_key).canonical
    evidence = VerdictEvidence(
        sentence=_SENTENCES[kind],
        job=job.id,
        build=job.build,
        seeds=seeds,
        of=job.done,
        tolerance=_tolerance(canonical, None if shown is None else shown[2]),
        diagnosis=(job.diagnosis or {}).get("words"),
    )
    if shown is not None:
        seed, output, statistics = shown
        check = check_line(
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
            policy=seed.policy,
            statistics={name: statistics.get(name) for name in ROLLED_UP},
            needed_atol=statistics.get("needed_atol"),
            check=check if job.kind == JobKind.seeds else None,  # imports can't be rerun
            check_leaves_out=[name for name in ("memory", "program") if name in canonical],
        )
    return Finding.of(job, kind, asdict(evidence))


def _worst_output(
    session: Session, job: JobRow, verdict: Verdict, sick: frozenset[str], *, hollow: bool
) -> tuple[StoredSeed, str, Mapping[str, Any]] | None:
    """Return the output that shows a verdict best, with its seed; None if no seed has it.

    hollow: the unexplained one with the largest budget ratio; otherwise the largest tolerance
    ratio. Of a selection, an output with arrays: the entries of its tests have no numbers.
    """
    size = "budget_ratio" if hollow else "tolerance_ratio"
    table = SeedResultRow
    conditions = [table.job_id == job.id, _on_healthy_device(sick)]
    if job.kernel != KERNEL:
        conditions.append(table.verdict == verdict.value)
    best: tuple[float, int, int, str] | None = None
    for number, repeat, outputs in stored.read_outputs(session, conditions, size):
        for name, output in outputs.items():
            if (job.kernel == KERNEL and output["verdict"] != verdict) or (
                hollow and output["explanation"] != Explanation.unexplained
            ):
                continue
            place = (-(output[size] or 0.0), number, repeat, name)
            if best is None or place < best:
                best = place
    if best is None:
        return None
    _, number, repeat, name = best
    of_seed = stored.query(table.job_id == job.id, table.seed == number, table.repeat == repeat)
    (seed,) = stored.read(session, of_seed)
    return seed, name, seed.outputs[name]


def _tolerance(canonical: Mapping[str, Any], output: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the tolerance that was met or missed: the test's, or the one sent with the arrays."""
    test = canonical if not is_selection(canonical) or output is None else output.get("test") or {}
    return dict(test.get("tolerance", {}))


def check_line(
    canonical: Mapping[str, Any],
    *,
    build: str,
    executor: str,
    seed: int,
    output: str,
    reference: str | None = None,
    seeds: int = 1,
    repeats: int = 1,
    context: Any = None,
) -> str:
    """Return the shell command that reruns `seeds` seeds of a test from `seed` on a user's machine.

    If the outputs have different tolerances, it has that of `output`, because the command has no
    flags for the others.
    """
    if is_selection(canonical):
        return _selection_line(Selection.parse(canonical), build, executor, seed, seeds, repeats)
    words = [
        "gonogo",
        "check",
        "--kernel",
        canonical["kernel"],
        "--shape",
        ",".join(str(n) for n in canonical["shape"]),
        "--build",
        build,
    ]
    if executor != "emulator":
        words += ["--executor", executor]
    if reference is not None:
        words += ["--reference-build", reference]
    words += [
        "--seeds",
        str(seeds),
        "--seed-start",
        str(seed),
        *(["--repeats", str(repeats)] if repeats > 1 else []),
    ]
    if "epsilon" in canonical:
        words += ["--epsilon", repr(canonical["epsilon"])]
    tolerance = for_output(canonical.get("tolerance", {}), output)
    for name, value in (tolerance.to_json() if tolerance else {}).items():
        words += [f"--{name}", repr(value)]
    for name in ("parameters", "inputs", "numerics"):
        if canonical.get(name):
            words += [f"--{name}", json.dumps(canonical[name], separators=(",", ":"))]
    if isinstance(context, Mapping):  # otherwise isolated, which is the command's default
        words += ["--context", json.dumps(context, separators=(",", ":"))]
    return shlex.join(words)


def _selection_line(
    selection: Selection, build: str, executor: str, iteration: int, seeds: int, repeats: int
) -> str:
    """Return the shell command that reruns iterations of a selection."""
    words = ["gonogo", "check", "--executor", executor, "--build", build]
    for flag, value in (("--suite", selection.suite), ("--filter", selection.filter)):
        if value is not None:
            words += [flag, value]
    if selection.shuffle is not None:
        words += ["--shuffle", "true" if selection.shuffle is True else str(selection.shuffle)]
    for stage in selection.stages or ():
        words += ["--stage", stage]
    words += [
        "--seeds",
        str(seeds),
        "--seed-start",
        str(iteration),
        *(["--repeats", str(repeats)] if repeats > 1 else []),
    ]
    return shlex.join(words)
