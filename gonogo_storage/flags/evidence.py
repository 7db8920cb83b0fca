"""What a closed job's numbers show: the diagnosis to put on its page, and the flags to open with
their evidence.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, func, select, true
from sqlalchemy.orm import Session

from gonogo.spec.diagnoses import beside
from gonogo.spec.selections import KERNEL, Selection, is_selection
from gonogo.spec.tolerances import for_output
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_storage.db.states import FlagKind, JobKind
from gonogo_storage.devices import sick_devices
from gonogo_storage.flags.flags import Finding
from gonogo_storage.seeds import stages
from gonogo_storage.tables import ArtifactRow, JobRow, SeedResultRow, TestSpecRow

SHOWN = (
    "tolerance_ratio",
    "budget_ratio",
    "chi",
    "row_z",
    "xhat_z",
    "scale_z",
    "max_abs",
    "rms",
    "pcc_deficit",
)

_EXPLAINED_RANK = {name.value: rank for rank, name in enumerate(Explanation)}  # worst first
_SENTENCES = {
    FlagKind.passes_by_tolerance: "Green only because the tolerance is loose: rounding does not explain the error.",
    FlagKind.tolerance_too_tight: "Red though right: rounding explains the error, the tolerance is tighter than the formats allow.",
}


def diagnosis(session: Session, job_id: str) -> dict[str, Any] | None:
    """The diagnosis of the seed that shows most, and for a staged suite the table of its stages;
    None while there is neither.

    {"seed", "repeat", "verdict", "explanation", **Diagnosis.to_json()}, with stages also {"stages":
    gonogo_storage.seeds.stages.of_job}, whose words come first.
    """
    numbers, table = _of_numbers(session, job_id), stages.of_job(session, job_id)
    if table is None:
        return numbers
    found = numbers or {
        "seed": None,
        "repeat": None,
        "terms": [],
        "can_tell": True,
        "residuals": {},
    }
    return {
        **found,
        "words": " ".join(filter(None, (table["words"], found.get("words")))),
        "stages": table,
    }


def _of_numbers(session: Session, job_id: str) -> dict[str, Any] | None:
    """Of the seed that shows most: unexplained before explained, worse verdicts first, then the
    largest budget_ratio.
    """
    diagnosed = select(ArtifactRow.id, ArtifactRow.seed, ArtifactRow.repeat)
    found = session.execute(
        diagnosed.where(ArtifactRow.job_id == job_id, ArtifactRow.kind == "diagnosis")
    ).all()
    if not found:
        return None
    table = SeedResultRow
    facts: dict[tuple[int, int], tuple[str, str, float]] = {}
    query = (
        select(
            table.seed,
            table.repeat,
            table.seed_verdict,
            table.seed_explanation,
            func.max(func.coalesce(table.budget_ratio, 0.0)),
        )
        .where(table.job_id == job_id, table.seed.in_({row.seed for row in found}))
        .group_by(table.seed, table.repeat, table.seed_verdict, table.seed_explanation)
    )
    for seed, repeat, verdict, explanation, ratio in session.execute(query):
        facts[seed, repeat] = (verdict, explanation or Explanation.not_judged.value, ratio)

    def order(row: Any) -> tuple[int, int, float, int, int]:
        verdict, explanation, ratio = facts.get(
            (row.seed, row.repeat), (Verdict.pass_.value, Explanation.explained.value, 0.0)
        )
        return (_EXPLAINED_RANK[explanation], Verdict(verdict).rank, -ratio, row.seed, row.repeat)

    best = min(found, key=order)
    content = session.scalars(select(ArtifactRow.content).where(ArtifactRow.id == best.id)).one()
    fact = facts.get((best.seed, best.repeat), (None, None))
    return {
        "seed": best.seed,
        "repeat": best.repeat,
        "verdict": fact[0],
        "explanation": fact[1],
        **beside(content, fact[1]),
    }


def findings(session: Session, job: JobRow) -> list[Finding]:
    """The flags that the seeds of a job call for. None of a job that compares two builds: a flag is
    about one build and float64.
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
    """How many (seed, repeat) got each of these verdicts on a device that is well: a sick one says
    nothing of a test.
    """
    table = SeedResultRow
    pairs = select(table.seed, table.repeat, table.seed_verdict).where(
        table.job_id == job_id, table.seed_verdict.in_(verdicts)
    )
    found = pairs.where(_well(sick)).distinct().subquery()
    return dict(
        session.execute(
            select(found.c.seed_verdict, func.count()).group_by(found.c.seed_verdict)
        ).all()
    )


def _well(sick: frozenset[str]) -> ColumnElement[bool]:
    device = SeedResultRow.device
    return device.is_(None) | device.not_in(sick) if sick else true()


def _iterations_with(
    session: Session, job_id: str, verdicts: list[str], sick: frozenset[str]
) -> dict[str, int]:
    """In how many iterations of a selection some test got each of these verdicts: an iteration's
    own is that of its worst test.
    """
    table = SeedResultRow
    query = select(table.verdict, func.count(table.seed.distinct())).where(
        table.job_id == job_id, table.outcome.is_not(None)
    )
    query = query.where(_well(sick))
    return dict(
        session.execute(query.where(table.verdict.in_(verdicts)).group_by(table.verdict)).all()
    )


def _finding(
    session: Session,
    job: JobRow,
    verdict: Verdict,
    kind: FlagKind,
    seeds: int,
    sick: frozenset[str],
) -> Finding:
    table = SeedResultRow
    hollow = kind is FlagKind.passes_by_tolerance
    size = func.coalesce(table.budget_ratio if hollow else table.tolerance_ratio, 0.0)
    # of a selection the arrays' own outputs, not the entries of the tests, which have no numbers
    of_verdict = (
        table.verdict == verdict.value
        if job.kernel == KERNEL
        else table.seed_verdict == verdict.value
    )
    query = select(table).where(table.job_id == job.id, of_verdict, _well(sick))
    if hollow:
        query = query.where(table.explanation == Explanation.unexplained.value)
    row = session.scalars(
        query.order_by(size.desc(), table.seed, table.repeat, table.output).limit(1)
    ).first()
    canonical = session.get_one(TestSpecRow, job.test_key).canonical
    proof: dict[str, Any] = {
        "sentence": _SENTENCES[kind],
        "job": job.id,
        "build": job.build,
        "seeds": seeds,
        "of": job.done,
        "tolerance": _tolerance(canonical, row),
        "diagnosis": (job.diagnosis or {}).get("words"),
    }
    if row is not None:
        proof |= {
            "seed": row.seed,
            "repeat": row.repeat,
            "output": row.output,
            "arithmetic": row.arithmetic,
            "policy": row.policy,
        }
        proof["statistics"] = {name: getattr(row, name) for name in SHOWN}
        proof["needed_atol"] = (row.statistics or {}).get("needed_atol")
        if job.kind == JobKind.seeds:  # what was imported can't be run from here
            proof["check"] = check_line(
                canonical,
                build=job.build,
                executor=job.executor,
                seed=row.seed,
                output=row.output,
                context=job.context,
            )
        proof["check_leaves_out"] = [name for name in ("memory", "program") if name in canonical]
    return Finding.of(job, kind, proof)


def _tolerance(canonical: Mapping[str, Any], row: SeedResultRow | None) -> dict[str, Any]:
    """The tolerance that was met or missed: the test's, or the one that came with the arrays."""
    own = (
        canonical
        if not is_selection(canonical) or row is None
        else (row.statistics or {}).get("test") or {}
    )
    return dict(own.get("tolerance", {}))


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
    """The shell command that runs `seeds` seeds of a test from `seed` on, one by default, again on
    the reader's own machine.

    Of a tolerance that differs between outputs it takes the one of the output in question: the
    command has no flags for the others.
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
    if isinstance(context, Mapping):  # otherwise isolated, which is how the command runs a test
        words += ["--context", json.dumps(context, separators=(",", ":"))]
    return shlex.join(words)


def _selection_line(
    selection: Selection, build: str, executor: str, iteration: int, seeds: int, repeats: int
) -> str:
    """The same for iterations of a selection."""
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
