"""Times at which devices were suspect or bad: their results then say nothing about a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.devices.model import DeviceHealthRow, DeviceRow
from gonogo_service.kit.database.states import DeviceHealth

LOOK_BACK = timedelta(days=1)
"""A suspicion rests on the failures of the day before it, so that day counts as sick, too."""
MAX_CHANGES = 5000
SICK = (DeviceHealth.suspect, DeviceHealth.bad)


@dataclass(frozen=True)
class Spell:
    """A time in which a device was suspect or bad; `end` is None if it still is."""

    device: str
    start: datetime
    end: datetime | None
    words: str
    suspected: bool
    """True if most unrelated tests failed on it."""
    failing: int = 0
    """Number of unrelated tests that failed on it but pass elsewhere; 0 without a suspicion."""
    tests: int = 0
    """Number of unrelated tests that pass elsewhere; 0 without a suspicion."""

    def covers(self, began: datetime, ended: datetime) -> bool:
        """Return whether the spell overlaps that time."""
        return ended >= self.start and (self.end is None or began <= self.end)


def spells(session: Session, devices: Iterable[str] | None = None) -> dict[str, tuple[Spell, ...]]:
    """Return the spells of each device that was ever sick, from the newest MAX_CHANGES changes.

    `devices` are host/name, as in results; None means all.
    """
    names = None if devices is None else set(devices)
    if names is not None and not names:
        return {}
    table = DeviceHealthRow
    query = (
        select(DeviceRow.device, table.at, table.after, table.reason, table.evidence)
        .join(DeviceRow, DeviceRow.id == table.device_id)
        .where(table.what == "health")
    )
    query = query if names is None else query.where(DeviceRow.device.in_(names))
    newest = session.execute(query.order_by(table.id.desc()).limit(MAX_CHANGES)).all()
    ended: dict[str, list[Spell]] = {}
    running: dict[str, Spell] = {}
    for row in reversed(newest):
        if row.after in SICK and row.device not in running:
            running[row.device] = _spell(row)
        elif row.after == DeviceHealth.good and row.device in running:
            spell = replace(running.pop(row.device), end=row.at)
            ended.setdefault(row.device, []).append(spell)
    for name, spell in running.items():
        ended.setdefault(name, []).append(spell)
    return {name: tuple(of_device) for name, of_device in ended.items()}


def spell_of(spells: Mapping[str, Sequence[Spell]], device: str, job: Any) -> Spell | None:
    """Return a spell of a device during a job; None: the device was well."""
    ended = job.finished_at or job.created_at
    return next((s for s in spells.get(device, ()) if s.covers(job.created_at, ended)), None)


def current(session: Session) -> frozenset[str]:
    """Return the devices that are suspect or bad now."""
    return frozenset(session.scalars(select(DeviceRow.device).where(DeviceRow.health.in_(SICK))))


def _spell(row: Any) -> Spell:
    suspected, evidence = row.after == DeviceHealth.suspect, row.evidence or {}
    return Spell(
        row.device,
        row.at - LOOK_BACK if suspected else row.at,
        None,
        f"{row.after}: {row.reason or 'no reason given'}",
        suspected,
        int(evidence.get("failing") or 0),
        int(evidence.get("tests") or 0),
    )
