"""When a flag is over by itself: so many explained seeds in a row, on so many builds of the
variant, since its last evidence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gonogo.flakiness.policy import POLICY, FlakinessPolicy
from gonogo.spec.verdicts import Verdict
from gonogo_storage.db.states import FlagKind
from gonogo_storage.rollups.variants import JobFacts

_EXPLAINED = frozenset({Verdict.pass_, Verdict.fail_by_tolerance})
_GREEN = frozenset({Verdict.pass_})
_LOST = frozenset({Verdict.hang, Verdict.crash, Verdict.error})
_SILENT = frozenset({Verdict.skipped, Verdict.not_run, Verdict.inconclusive, Verdict.not_judged})
BY_NUMBERS = frozenset({FlagKind.passes_by_tolerance, FlagKind.fix_masked, FlagKind.hangs})
"""Kinds that a red seed says nothing for, as long as rounding explains it."""
BY_ITSELF = frozenset(FlagKind) - {FlagKind.blunt_test}
"""Kinds that seeds can resolve; a blunt test is sharp when a gauge says so."""


@dataclass(frozen=True)
class Quiet:
    """What has been quiet since the last evidence."""

    seeds: int
    builds: tuple[str, ...]
    jobs: tuple[JobFacts, ...]
    """Newest first."""
    enough: bool
    words: str

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {
            "seeds": self.seeds,
            "builds": list(self.builds),
            "jobs": [job.id for job in self.jobs[:20]],
            "words": self.words,
        }


def since(
    kind: FlagKind, jobs: Iterable[JobFacts], after: str, policy: FlakinessPolicy = POLICY
) -> Quiet:
    """Count explained seeds over whole jobs of a variant, the newest first, back to one with a seed
    that isn't quiet, or to job `after`.

    Explained and green for most kinds; explained is enough where the colour says nothing
    (BY_NUMBERS). Hangs, crashes and errors, and seeds without information, count neither way, but
    for the kind `hangs`, of which a hang is evidence. Of selections, whose tests may have no
    numbers at all, a green iteration counts for the kinds that need none (flaky, hangs, context).
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
    enough = seeds >= policy.quiet_seeds and len(builds) >= policy.quiet_builds
    words = f"{seeds} of {policy.quiet_seeds} explained seeds in a row, on {len(builds)} of {policy.quiet_builds} builds"
    return Quiet(seeds, tuple(builds), tuple(seen), enough, words)


def _quiet_seeds(kind: FlagKind, job: JobFacts) -> int | None:
    """How many seeds of a job count; None where one speaks for the flag, or is wrong in another
    way.
    """
    counts = {Verdict(name): number for name, number in job.counts.items() if number}
    good = _EXPLAINED if kind in BY_NUMBERS else _GREEN
    neutral = (_SILENT | _LOST) - ({Verdict.hang} if kind is FlagKind.hangs else set())
    if counts.keys() - good - neutral:
        return None
    found = sum(counts.get(verdict, 0) for verdict in good)
    if job.selection and kind in (FlagKind.flaky, FlagKind.hangs, FlagKind.context_dependent):
        told = job.outcomes
        if any(told.get(name) for name in ("failed", "error")):
            return None
        found += counts.get(Verdict.not_judged, 0)
    return found
