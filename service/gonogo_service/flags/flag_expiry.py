"""Decide when a flag resolves by itself.

It needs enough explained seeds in a row, on enough builds of the variant, since its last evidence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gonogo.flakiness.policy import POLICY
from gonogo.spec.verdicts import Verdict
from gonogo_service.flags.evidence_kinds import QuietDetail
from gonogo_service.kit.database.states import FlagKind
from gonogo_service.tests.variants import JobFacts

_EXPLAINED = frozenset({Verdict.pass_, Verdict.fail_by_tolerance})
_GREEN = frozenset({Verdict.pass_})
_LOST = frozenset({Verdict.hang, Verdict.crash, Verdict.error})
_SILENT = frozenset({Verdict.skipped, Verdict.not_run, Verdict.inconclusive, Verdict.not_judged})
EXPLAINED_IS_QUIET = frozenset(
    {
        FlagKind.passes_by_tolerance,
        FlagKind.fix_masked,
        FlagKind.hangs,
        FlagKind.crashes,
        FlagKind.arithmetic_changed,
    }
)
"""Kinds for which a red seed is no evidence if rounding explains it."""
_EVIDENCE = {FlagKind.hangs: {Verdict.hang}, FlagKind.crashes: {Verdict.crash}}
SELF_RESOLVING = frozenset(FlagKind) - {FlagKind.blunt_test}
"""Kinds that seeds can resolve; only a gauge resolves `blunt_test`."""


MAX_JOBS = 20
"""Maximum number of quiet jobs that a resolved flag names."""


@dataclass(frozen=True)
class Quiet:
    """The quiet jobs since a flag's last evidence."""

    detail: QuietDetail
    jobs: tuple[JobFacts, ...]
    """Newest first."""
    enough: bool


def since(kind: FlagKind, jobs: Iterable[JobFacts], after: str) -> Quiet:
    """Count the quiet seeds of a variant's jobs, newest first, back to job `after`.

    It stops at the first job with a seed that isn't quiet. A quiet seed is explained and green; for
    the kinds in EXPLAINED_IS_QUIET, explained is enough. Hangs, crashes, errors and inconclusive
    seeds don't count either way, except that a hang is evidence of `hangs`, and a crash of
    `crashes`. Tests of a selection may have no numbers: for the kinds that need none (flaky, hangs,
    crashes, context), a green iteration counts.
    """
    seeds = 0
    builds: list[str] = []
    seen: list[JobFacts] = []
    for job in jobs:
        if job.id <= after:
            break
        good = _quiet_seeds(kind, job)
        if good is None:
            break
        if good:
            seeds += good
            seen.append(job)
            if job.build not in builds:
                builds.append(job.build)
    enough = seeds >= POLICY.quiet_seeds and len(builds) >= POLICY.quiet_builds
    words = (
        f"{seeds} of {POLICY.quiet_seeds} explained seeds in a row,"
        f" on {len(builds)} of {POLICY.quiet_builds} builds"
    )
    detail = QuietDetail(seeds, builds, [job.id for job in seen[:MAX_JOBS]], words)
    return Quiet(detail, tuple(seen), enough)


def _quiet_seeds(kind: FlagKind, job: JobFacts) -> int | None:
    """Return the number of quiet seeds of a job; None if a seed is evidence or otherwise wrong."""
    counts = {Verdict(name): number for name, number in job.counts.items() if number}
    good = _EXPLAINED if kind in EXPLAINED_IS_QUIET else _GREEN
    neutral = (_SILENT | _LOST) - _EVIDENCE.get(kind, set())
    if counts.keys() - good - neutral:
        return None
    quiet = sum(counts.get(verdict, 0) for verdict in good)
    if job.selection and kind in (FlagKind.flaky, FlagKind.context_dependent, *_EVIDENCE):
        if any(job.outcomes.get(name) for name in ("failed", "error")):
            return None
        quiet += counts.get(Verdict.not_judged, 0)
    return quiet
