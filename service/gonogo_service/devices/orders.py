"""The orders for the workers of devices, and the devices that get no work."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.devices.model import DeviceRow
from gonogo_service.kit.database.states import DeviceHealth

NO_WORK = (DeviceHealth.bad.value, DeviceHealth.maintenance.value)


def orders(session: Session) -> dict[str, dict[str, Any]]:
    """Return the orders for each device's worker, by the device's identity.

    An order is {"order": "work" | "drain" | "maintenance", "asked": number of requested canaries}.
    """
    rows = session.execute(
        select(DeviceRow.identity, DeviceRow.health, DeviceRow.drained, DeviceRow.test_requests)
    )
    return {
        row.identity: {
            "order": "maintenance"
            if row.health == DeviceHealth.maintenance
            else "drain"
            if row.drained
            else "work",
            "asked": row.test_requests,
        }
        for row in rows
    }


def without_work(session: Session) -> set[tuple[str, str]]:
    """Return (worker, queue) of devices that get no work; their worker may not know it yet."""
    query = select(DeviceRow.worker, DeviceRow.queues).where(
        DeviceRow.drained | DeviceRow.health.in_(NO_WORK)
    )
    return {
        (worker, queue) for worker, queues in session.execute(query) if worker for queue in queues
    }
