"""When devices were not to be trusted: what ran on them then says nothing of a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_storage.db.states import DeviceHealth
from gonogo_storage.tables import DeviceHealthRow, DeviceRow

LOOK_BACK = timedelta(days=1)
"""A suspicion is drawn from what failed in the day before it: that day counts as sick, too."""
MOST_CHANGES = 5000
SICK = (DeviceHealth.suspect, DeviceHealth.bad)


@dataclass(frozen=True)
class Spell:
    """A time in which a device was suspect or bad. `end` None: it still is."""

    device: str
    start: datetime
    end: datetime | None
    words: str
    suspected: bool
    """Because most unrelated tests failed on it."""
    failing: int = 0
    tests: int = 0
    """Unrelated tests that failed on it, of those that pass elsewhere; of a suspicion."""

    def covers(self, began: datetime, ended: datetime) -> bool:
        """Whether anything of that time lies in it."""
        return ended >= self.start and (self.end is None or began <= self.end)


def spells(session: Session, devices: Iterable[str] | None = None) -> dict[str, tuple[Spell, ...]]:
    """The spells of each of these devices (host/name, as results name them; None: of all) that was
    ever sick; of the newest 5,000 changes of health.
    """
    names = None if devices is None else set(devices)
    if names is not None and not names:
        return {}
    query = (
        select(
            DeviceRow.identity,
            DeviceHealthRow.at,
            DeviceHealthRow.after,
            DeviceHealthRow.reason,
            DeviceHealthRow.evidence,
        )
        .join(DeviceRow, DeviceRow.id == DeviceHealthRow.device_id)
        .where(DeviceHealthRow.what == "health")
    )
    query = query if names is None else query.where(DeviceRow.identity.in_(names))
    found: dict[str, list[Spell]] = {}
    running: dict[str, Spell] = {}
    for row in reversed(
        session.execute(query.order_by(DeviceHealthRow.id.desc()).limit(MOST_CHANGES)).all()
    ):
        if row.after in SICK and row.identity not in running:
            running[row.identity] = _spell(row)
        elif row.after == DeviceHealth.good and row.identity in running:
            over = running.pop(row.identity)
            ended = Spell(
                over.device,
                over.start,
                row.at,
                over.words,
                over.suspected,
                over.failing,
                over.tests,
            )
            found.setdefault(row.identity, []).append(ended)
    for name, spell in running.items():
        found.setdefault(name, []).append(spell)
    return {name: tuple(each) for name, each in found.items()}


def now(session: Session) -> frozenset[str]:
    """The devices that are suspect or bad at this moment."""
    return frozenset(session.scalars(select(DeviceRow.identity).where(DeviceRow.health.in_(SICK))))


def _spell(row: Any) -> Spell:
    suspected = row.after == DeviceHealth.suspect
    proof: Mapping[str, Any] = row.evidence or {}
    return Spell(
        row.identity, row.at - LOOK_BACK if suspected else row.at, None, f"{row.after}: {row.reason or 'no reason given'}", suspected,
        int(proof.get("failing") or 0), int(proof.get("tests") or 0),
    )  # fmt: skip
