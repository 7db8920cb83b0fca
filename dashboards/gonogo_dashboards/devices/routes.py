"""The routes of the devices' pages, each with its JSON version."""

from __future__ import annotations

from gonogo import urls
from gonogo_dashboards.devices import charts, device_page, lines
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site

NAVIGATION = (Entry("devices", "Devices", urls.DEVICES, "Lab", 1, ("device",)),)
TEMPLATE_NAMES = {"device_charts": charts, "device_lines": lines, "device_page": device_page}


def add(site: Site) -> None:
    """Add the list of devices and the page of one."""
    patience = site.context.settings.heartbeat_timeout_s
    site.add(
        urls.DEVICES,
        "devices/devices.html",
        lambda session, request, now: lines.devices(session, now, patience, request.query_params),
        "Which device is sick?",
        line=lines.ListedDevice,
    )
    site.add(
        urls.DEVICES + "/{device_id}",
        "devices/device.html",
        lambda session, request, now: device_page.device(
            session, request.path_params["device_id"], now, patience, request.query_params
        ),
        "Is this device sick, and since when?",
        noun="device",
    )
