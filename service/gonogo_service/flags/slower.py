"""Whether the kernel of an assessed build takes longer than on an earlier build. Reads only."""

from __future__ import annotations

from sqlalchemy.orm import Session

from gonogo.flakiness.device_times import TimeChange
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo_service.flags import store
from gonogo_service.tests import device_times
from gonogo_service.tests.assessing import Assessment


def compared(session: Session, assessment: Assessment) -> tuple[str, TimeChange] | None:
    """Return (an earlier build, the change from it to the assessed one); None: not known.

    It is the build before; while a flag is open, the build that the flag compares with, so that a
    kernel that stays slow keeps its flag.
    """
    kind = FlagKind.slower
    open_flags = (flag for flag in store.active(session, assessment.variant) if flag.kind is kind)
    builds = next((flag.evidence["rerun"]["builds"] for flag in open_flags), [None])
    measured = device_times.of_builds(session, assessment.jobs)
    return device_times.since(measured, assessment.job.build, builds[0])
