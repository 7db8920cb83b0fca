"""Whether the kernel of an assessed build takes longer than on an earlier build. Reads only."""

from __future__ import annotations

from sqlalchemy.orm import Session

from gonogo.flakiness.device_times import TimeChange
from gonogo_service.flags.model import FlagRow
from gonogo_service.tests import device_times
from gonogo_service.tests.assessing import Assessment


def compared(
    session: Session, assessment: Assessment, pinned: FlagRow | None
) -> tuple[str, TimeChange] | None:
    """Return (an earlier build, the change from it to the assessed one); None: not known.

    It is the build before; with the variant's open flag, the build that the flag compares with, so
    that a kernel that stays slow keeps its flag.
    """
    rerun = {} if pinned is None else pinned.evidence.get("rerun") or {}
    base = next(iter(rerun.get("builds") or ()), None)
    measured = device_times.of_builds(session, assessment.jobs)
    return device_times.since(measured, assessment.job.build, base)
