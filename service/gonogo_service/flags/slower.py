"""Whether the kernel of an assessed build takes longer than on an earlier build. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from gonogo.flakiness.device_times import TimeChange, Times, compare_with_earlier
from gonogo_service.flags.model import FlagRow
from gonogo_service.tests import device_times
from gonogo_service.tests.assessing import Assessment


def compared(
    session: Session, assessment: Assessment, pinned: FlagRow | None
) -> tuple[str, Sequence[Times], TimeChange] | None:
    """Return an earlier build, its seconds, and the change from it to the assessed one.

    It is the build before; with the variant's open flag, the build that the flag compares with, so
    that a kernel that stays slow keeps its flag. Its seconds are in the flag where its jobs aren't
    read any more. None: the job or an earlier build has no seconds.
    """
    job, without = assessment.job, assessment.left_out.keys()
    if not device_times.per_job(session, [job], without):
        return None
    builds = device_times.per_build(session, assessment.jobs, job, without)
    base = None
    if pinned is not None and "before" in (pinned.evidence.get("figures") or {}):
        base = pinned.evidence["rerun"]["builds"][0]
        stored = [Times(**one) for one in pinned.evidence["figures"]["before"]]
        builds = {base: stored, **builds}
    change = compare_with_earlier(builds, job.build, base)
    return None if change is None else (change[0], builds[change[0]], change[1])
