"""What the runs of two neighbouring builds of a bisection look like, for "fixed, or only masked?".
Apart from gonogo_storage.automation.bisections: the API loads no statistics.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.orm import Session

from gonogo.flakiness.masking import Record
from gonogo_storage.automation.bisections import Bisection, Probe
from gonogo_storage.history import build_series
from gonogo_storage.rollups.variants import job_of


def record(session: Session, bisection: Bisection, probes: Iterable[Probe], place: int) -> Record:
    """The runs of the build at one place of the series: its seeds, and the terms that its diagnosis
    could tell.
    """
    facts = [job_of(session, probe.job) for probe in probes if probe.ended and probe.place == place]
    found = build_series.records(
        session,
        sorted(
            (each for each in facts if each is not None), key=lambda each: each.id, reverse=True
        ),
    )
    name = bisection.builds[place]
    return Record(name, found[-1].seeds, found[-1].terms) if found else Record(name, {})
