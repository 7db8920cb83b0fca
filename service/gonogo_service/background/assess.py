"""Assessments: the statistics of each closed job's variant, outside of ingest, and the flags that
follow; flags that expire.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from functools import partial

from sqlalchemy.orm import Session

from gonogo.devices import suspicion
from gonogo.devices.suspicion import Suspicion
from gonogo.flakiness.policy import POLICY
from gonogo_service.background.delivery import BACKOFF_S
from gonogo_service.background.sickness import LOOK_BACK
from gonogo_service.kit.background_context import AWAY, Core, log
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.devices import outcomes
from gonogo_storage.flags import flag_changes
from gonogo_storage.flags.flag_expiry import Quiet
from gonogo_storage.flags.flags import Finding
from gonogo_storage.history import assessing, assessments, expiring_flags, flag_evidence, trends
from gonogo_storage.history.assessing import Assessment, Missed
from gonogo_storage.history.assessment_requests import ASSESS
from gonogo_storage.messages import outbox
from gonogo_storage.messages.outbox import Letter

SUSPICIONS_S = 60.0
"""How old a look at the devices may be: it reads what a whole day's jobs gave."""
PASS_S = 3.0
"""A pass ends after so long, so that the role's lease is renewed; the next one goes on."""

Conclusion = tuple[Assessment, list[Finding], list[tuple[str, int, Quiet]]]


class Assessor:
    """Delivers the letters `assess`, one per closed job. Keeps the suspected devices between
    passes.
    """

    def __init__(self, core: Core, missed: Missed = assessing.gauged) -> None:
        self.core = core
        self.missed = missed
        self._suspicions: dict[str, Suspicion] = {}
        self._looked = -SUSPICIONS_S
        self._caught_up = False

    def run_once(self) -> int:
        """One pass; the number of letters delivered. Raises core.AWAY errors."""
        core, now = self.core, utcnow()
        if core.reading(partial(flag_changes.expired, now=now)):
            number = core.session(partial(flag_changes.expire, now=now))
            log.info("acknowledgements expired", flags=number)
        if not self._caught_up:
            if number := core.session(partial(assessments.catch_up, now=now)):
                log.info("tests that were never assessed", variants=number)
            self._caught_up = True
        began = time.monotonic()
        done = 0
        for letter in core.reading(lambda session: outbox.due(session, topics=(ASSESS,))):
            if core.stop.is_set() or time.monotonic() - began > PASS_S:
                break
            done += self._deliver(letter)
        return done

    def _deliver(self, letter: Letter) -> bool:
        """Compute in a read transaction, then write in a short one. What fails comes back later,
        every time later.
        """
        try:
            conclusion = self.core.reading(partial(self._conclude, job_id=letter.payload["job"]))
            if conclusion is None:
                self.core.session(partial(outbox.delivered, ids=[letter.id]))
                return True
            found, raised, quiet = conclusion
            write = partial(
                assessments.conclude,
                found=found,
                raised=raised,
                quiet=quiet,
                now=utcnow(),
                letter=letter.id,
            )
            return self.core.session(write)
        except AWAY:
            raise
        except Exception as problem:
            until = utcnow() + timedelta(seconds=BACKOFF_S[min(letter.tries, len(BACKOFF_S) - 1)])
            log.exception("not assessed", job=letter.payload.get("job"), tries=letter.tries + 1)
            self.core.session(
                partial(outbox.postponed, letter_id=letter.id, error=str(problem), until=until)
            )
            return False

    def _conclude(self, session: Session, job_id: str) -> Conclusion | None:
        found = assessing.assess(
            session, job_id, missed=self.missed, suspicions=self._suspects(session), policy=POLICY
        )
        if found is None:
            return None
        raised = flag_evidence.findings(session, found)
        quiet = expiring_flags.faded(session, found, {each.kind for each in raised})
        return replace(found, trends=trends.made(session, found.variant)), raised, quiet

    def _suspects(self, session: Session) -> dict[str, Suspicion]:
        """The devices on which most unrelated tests fail, as `sickness` finds them: it may not have
        told the devices' table yet.
        """
        tick = time.monotonic()
        if tick - self._looked >= SUSPICIONS_S:
            tried = outcomes.by_device(session, since=utcnow() - LOOK_BACK)
            self._suspicions = {each.device: each for each in suspicion.suspects(tried)}
            self._looked = tick
        return self._suspicions
