"""The runs of two neighboring builds of a bisection, for "fixed, or only masked?".

This is separate from gonogo_service.bisections.store, because the API loads no statistics.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.orm import Session

from gonogo.flakiness.masking import Record
from gonogo_service.bisections.store import Bisection, Probe
from gonogo_service.tests import build_series
from gonogo_service.tests.variants import job_of


def record(session: Session, bisection: Bisection, probes: Iterable[Probe], place: int) -> Record:
    """Return the record of the build at one place of the series, with its seeds."""
    facts = [job_of(session, probe.job) for probe in probes if probe.ended and probe.place == place]
    records = build_series.records(
        session,
        sorted(
            (job_facts for job_facts in facts if job_facts is not None),
            key=lambda job_facts: job_facts.id,
            reverse=True,
        ),
    )
    name = bisection.builds[place]
    return Record(name, records[-1].seeds) if records else Record(name, {})
