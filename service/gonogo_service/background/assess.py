"""Assessments: the statistics of each closed job's variant, computed after its results are stored.

The role also opens, renews, resolves and expires flags.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from cachetools import TTLCache, cached
from sqlalchemy.orm import Session

from gonogo.devices import suspicion
from gonogo.devices.suspicion import Suspicion
from gonogo_service.background.reaper import LOOK_BACK
from gonogo_service.devices import outcomes
from gonogo_service.flags import expiry, findings
from gonogo_service.flags import store as flags
from gonogo_service.flags.expiry import Quiet
from gonogo_service.flags.model import FlagRow
from gonogo_service.kit.background_context import BackgroundContext, log
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.outbox import outbox
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.tests import assessing, assessments, trends
from gonogo_service.tests.assessing import Assessment
from gonogo_service.tests.assessments import ASSESS

SUSPICIONS_S = 60.0
"""Maximum age of the cached suspicions: computing them reads a whole day's outcomes."""
PASS_S = 3.0
"""Maximum duration of a pass, so that the role renews its lease; the next pass continues."""

Conclusion = tuple[Assessment, list[FlagRow], list[tuple[str, int, Quiet]]]


class Assessor:
    """Handles the outbox messages `assess`, one per closed job.

    It caches the suspected devices between passes.
    """

    def __init__(self, context: BackgroundContext) -> None:
        self.context = context
        self._suspects = cached(TTLCache(1, SUSPICIONS_S), key=lambda _session: None)(_suspects)
        self._caught_up = False

    def run_once(self) -> int:
        """Run one pass; return the number of handled messages. Raises the AWAY errors."""
        context, now = self.context, utcnow()
        if context.reading(partial(flags.expired, now=now)):
            number = context.session(partial(flags.expire, now=now))
            log.info("acknowledgements expired", flags=number)
        if not self._caught_up:
            if number := context.session(partial(assessments.catch_up, now=now)):
                log.info("tests that were never assessed", variants=number)
            self._caught_up = True
        due = context.reading(partial(outbox.due, topics=(ASSESS,)))
        jobs = {message.id: message.payload["job"] for message in due}
        return context.handle_each(
            "assessment",
            jobs,
            lambda key: self._assess(key, jobs[key]),
            OutboxRow.put_off,
            max_s=PASS_S,
        )

    def _assess(self, message_id: str, job_id: str) -> bool:
        """Compute in a read transaction, then write in a short one."""
        conclusion = self.context.reading(partial(self._conclude, job_id=job_id))
        if conclusion is None:
            self.context.session(partial(outbox.delivered, ids=[message_id]))
            return True
        assessment, findings, quiet = conclusion
        write = partial(
            assessments.conclude,
            assessment=assessment,
            raised=findings,
            quiet=quiet,
            now=utcnow(),
            message_id=message_id,
        )
        return self.context.session(write)

    def _conclude(self, session: Session, job_id: str) -> Conclusion | None:
        suspicions = self._suspects(session)
        assessment = assessing.assess(session, job_id, suspicions=suspicions)
        if assessment is None:
            return None
        raised = findings.findings(session, assessment)
        quiet = expiry.to_resolve(session, assessment, {flag.kind for flag in raised})
        current = trends.to_store(session, assessment.variant)
        return replace(assessment, trends=current), raised, quiet


def _suspects(session: Session) -> dict[str, Suspicion]:
    """Return the devices on which most unrelated tests fail.

    The reaper finds the same ones, but may not have marked them in the devices' table yet.
    """
    by_device = outcomes.by_device(session, since=utcnow() - LOOK_BACK)
    return {suspected.device: suspected for suspected in suspicion.suspects(by_device)}
