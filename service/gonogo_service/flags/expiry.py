"""Decide when a flag resolves by itself: quiet long enough, and its cause ruled out since."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo.flakiness.attribution import Attribution, Cause, attribute
from gonogo.flakiness.flag_kinds import Ends, FlagKind
from gonogo.flakiness.grades import Stability
from gonogo.flakiness.policy import POLICY
from gonogo.spec.verdicts import Verdict
from gonogo_service.flags import attention, slower
from gonogo_service.flags.evidence_kinds import FlagDetail
from gonogo_service.flags.model import FlagRow
from gonogo_service.tests import samples
from gonogo_service.tests.assessing import Assessment
from gonogo_service.tests.variants import JobFacts

MAX_JOBS = 20
"""Maximum number of quiet jobs that a resolved flag names."""


@dataclass(frozen=True)
class Quiet:
    """The quiet jobs since a flag's last evidence, newest first."""

    detail: FlagDetail
    jobs: tuple[JobFacts, ...]
    enough: bool


def to_resolve(
    session: Session, assessment: Assessment, raised: Container[FlagKind]
) -> list[tuple[str, int, Quiet]]:
    """Return (id, version, quiet period) of each flag of the variant to resolve.

    Flags of kinds that this assessment raised are not among them.

    After the quiet period a factor must have been looked for. Seeds that each ran once say nothing
    of nondeterminism. So at least `few_pairs` seeds must have been compared since the evidence,
    with none differing. A latent flake needs a tail that stays clear, a slow kernel a measurement
    that isn't slower.
    """
    resolvable = []
    for flag in attention.active(session, assessment.variant):
        if flag.kind in raised or flag.kind.of_gauge:
            continue
        quiet = since(flag.kind, assessment.jobs, flag.quiet_after or flag.last_job)
        if quiet.enough and _is_over(session, assessment, flag, quiet):
            resolvable.append((flag.id, flag.version, quiet))
    return resolvable


def since(kind: FlagKind, jobs: Iterable[JobFacts], after: str) -> Quiet:
    """Count the quiet seeds of a variant's jobs, newest first, back to job `after`.

    It stops at the first job with a seed that isn't quiet. A quiet seed is explained and green; for
    some kinds, explained is enough, and for `slower` any that was judged. Hangs, crashes, errors
    and inconclusive seeds don't count either way, except that a hang is evidence of `hangs`, and a
    crash of `crashes`. Tests of a selection may have no numbers: for kinds that need none, a green
    iteration counts.
    """
    seeds = 0
    seen: list[JobFacts] = []
    for job in jobs:
        good = None if job.id <= after else _quiet_seeds(kind, job)
        if good is None:
            break
        if good:
            seeds += good
            seen.append(job)
    builds = list(dict.fromkeys(job.build for job in seen))
    enough = seeds >= POLICY.quiet_seeds and len(builds) >= POLICY.quiet_builds
    quiet = "judged" if kind.ends is Ends.timed else "explained"
    words = (
        f"{seeds} of {POLICY.quiet_seeds} {quiet} seeds in a row,"
        f" on {len(builds)} of {POLICY.quiet_builds} builds"
    )
    named = [job.id for job in seen[:MAX_JOBS]]
    detail = FlagDetail(seeds=seeds, builds=builds, jobs=named, words=words)
    return Quiet(detail, tuple(seen), enough)


def _quiet_seeds(kind: FlagKind, job: JobFacts) -> int | None:
    """Return the number of quiet seeds of a job; None if a seed is evidence or otherwise wrong."""
    counts = {Verdict(name): number for name, number in job.counts.items() if number}
    if kind.ends is Ends.timed:
        return sum(number for verdict, number in counts.items() if verdict.judges_kernel)
    good = {Verdict.pass_, *([Verdict.fail_by_tolerance] if kind.explained_is_quiet else [])}
    # what doesn't judge the kernel counts neither for a flag nor against it
    if any(one.judges_kernel or one is kind.verdict for one in counts.keys() - good):
        return None
    quiet = sum(counts.get(verdict, 0) for verdict in good)
    if job.selection and not kind.needs_numbers:
        if any((job.outcomes or {}).get(name) for name in ("failed", "error")):
            return None
        quiet += counts.get(Verdict.not_judged, 0)
    return quiet


def _is_over(session: Session, assessment: Assessment, flag: FlagRow, quiet: Quiet) -> bool:
    kind = flag.kind
    if kind.ends is Ends.robust:
        return assessment.grade.stability is Stability.robust
    if kind.ends is Ends.timed:
        compared = slower.compared(session, assessment, flag)
        return compared is not None and not compared[2].slower
    if kind.ends is not Ends.ruled_out:
        return True
    history = samples.of_jobs(session, quiet.jobs)
    return _ruled_out(attribute(samples.of_runs(history.runs)), Cause(kind.value), POLICY.few_pairs)


def _ruled_out(attribution: Attribution, cause: Cause, min_runs: int) -> bool:
    """Return whether the runs could have shown a factor, and didn't."""
    factor = next(finding for finding in attribution.findings if finding.cause is cause)
    if factor.holds or factor.compared.failures:
        return False
    if factor.compared.runs >= min_runs:
        return True
    rows = {
        Cause.context_dependent: attribution.contexts,
        Cause.device_dependent: attribution.devices,
    }.get(cause, ())
    return len(rows) > 1 and min(row.runs for row in rows) >= min_runs
