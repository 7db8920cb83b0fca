"""How often the messages of a host may change what is told about its devices.

A host with a valid key may send anything. Each entry of a device's history may bring one of the
audit log and a message to every webhook, and none of them is ever deleted.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo_service.devices.model import DeviceHealthRow, DeviceRow
from gonogo_service.kit.database.ids import floor

WINDOW = timedelta(hours=1)
MAX_OF_DEVICE = 12
"""A device that fails and recovers six times makes as many entries."""
MAX_OF_HOST = 512
"""The entries of all devices of a host: each of its 256 may go bad and become good again."""


def has_room(session: Session, device: DeviceRow, what: str, *, now: datetime) -> bool:
    """Return whether a device's history may get one more entry of this kind in this hour."""
    table = DeviceHealthRow
    recent = (
        select(func.count())
        .select_from(table)
        .where(table.what == what, table.id >= floor(now - WINDOW))
    )
    if (session.scalar(recent.where(table.device_id == device.id)) or 0) >= MAX_OF_DEVICE:
        return False
    of_host = recent.join(DeviceRow, DeviceRow.id == table.device_id).where(
        DeviceRow.host == device.host
    )
    return (session.scalar(of_host) or 0) < MAX_OF_HOST
