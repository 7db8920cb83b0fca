"""The routes of the devices' pages, each with its JSON version."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.devices import charts, device_page
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site

NAVIGATION = (Entry("devices", "Devices", urls.DEVICES, "Lab", 1, ("device",)),)
TEMPLATE_NAMES = {"device_charts": charts}


def add(site: Site) -> None:
    """Add the list of devices and the page of one."""
    patience = site.context.settings.heartbeat_timeout_s

    def listed(session: Session, request: Request, now: datetime) -> device_page.DevicesView:
        return device_page.devices(session, now, patience, request.query_params)

    def one(session: Session, request: Request, now: datetime) -> device_page.DeviceView | None:
        return device_page.device(
            session, request.path_params["device_id"], now, patience, request.query_params
        )

    site.add(
        urls.DEVICES,
        "devices/devices.html",
        listed,
        "Which device is sick?",
        line=device_page.DeviceLine,
    )
    site.add(
        urls.DEVICES + "/{device_id}",
        "devices/device.html",
        one,
        "Is this device sick, and since when?",
        noun="device",
    )
