"""Devices as the API and the command know them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gonogo import urls
from gonogo.cli.kit.noun import Noun, Verb
from gonogo_service.kit.strict import Strict

MAX_REASON = 2000


class DeviceIn(Strict):
    """The fields to change, and the reason."""

    health: Literal["good", "maintenance"] | None = Field(
        None,
        description=(
            "`maintenance`: nothing runs on it; `good`: it gets work again once its canary passes"
        ),
    )
    drained: bool | None = Field(
        None, description="true: finish the current seed, return the rest, accept nothing more"
    )
    test: bool | None = Field(
        None, description="true: run the canary now, and store the outcome in the history"
    )
    reason: str = Field(
        "",
        max_length=MAX_REASON,
        description="Stored in the device's history; needed for `health` and `drained`",
    )


class HostChange(Strict):
    """The reason for a change of a host or worker."""

    reason: str = Field(
        min_length=1, max_length=MAX_REASON, description="Stored in the device's history"
    )


DEVICES = Noun(
    "devices",
    {
        "device": "device",
        "board": lambda device: f"{device['arch']} {device['board']}",
        "state": "state",
        "health": "health",
        "drained": "drained",
        "job": "job",
        "reason": "reason",
        "heard": "heard_at",
    },
    "a device",
    about="`gonogo chips` has this host's own.",
    name_key="device",
    change=Verb(
        "changed",
        "Take a device out of service, put it back, or test it.",
        DeviceIn,
        scope="admin",
        options={"drained": "--drain/--undrain", "test": "--test/--no-test"},
    ),
    page=urls.device,
    parts={
        "history": {name: name for name in ("at", "what", "before", "after", "actor", "reason")}
    },
    is_paged=False,
)
