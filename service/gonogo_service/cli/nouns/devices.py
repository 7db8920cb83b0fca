"""`gonogo devices`: the devices of all hosts, as the server knows them."""

from __future__ import annotations

import typer

from gonogo import urls
from gonogo.cli.kit import nouns
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.nouns import JSON, Noun
from gonogo.errors import JobError
from gonogo.fields import did_you_mean

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
    page=urls.device,
    parts={
        "history": {
            "at": "at",
            "what": "what",
            "before": "before",
            "after": "after",
            "actor": "actor",
            "reason": "reason",
        }
    },
    is_paged=False,
)
DEVICE = typer.Argument(help="Its name, such as lab-1/wormhole:0, or its id.")

app = group("Look at the devices of all hosts; take one out of service. (This host's: chips.)")


@app.command("list")
def list_(as_json: bool = JSON) -> None:
    """List all devices with their state and health."""
    nouns.print_list(DEVICES, limit=1, cursor=None, as_json=as_json)


@app.command("show")
def show_one(device: str = DEVICE, as_json: bool = JSON) -> None:
    """Show a device with its telemetry and its history."""
    with Client() as client:
        record = client.call("GET", DEVICES.of(_id(client, device)))
        page = client.url + urls.device(record["id"])
        nouns.print_one(DEVICES, record, as_json=as_json, url=page)


@app.command()
def change(
    device: str = DEVICE,
    reason: str | None = typer.Option(
        None, help="Say why; the device's history keeps it. A test alone needs none."
    ),
    health: str | None = typer.Option(
        None, help="maintenance: nothing runs on it. good: its canary decides."
    ),
    drain: bool | None = typer.Option(
        None, "--drain/--undrain", help="Let it end its seed and take no more work; or take work."
    ),
    test: bool = typer.Option(False, "--test", help="Run its canary now."),
    as_json: bool = JSON,
) -> None:
    """Take a device out of service, put it back, or test it. Needs the scope admin."""
    body = nouns.changed(
        "gonogo devices change", health=health, drained=drain, test=test or None, reason=reason
    )
    with Client() as client:
        record = client.call("PATCH", DEVICES.of(_id(client, device)), body=body)
        nouns.stored(DEVICES, client, record, "changed", as_json=as_json)


def _id(client: Client, device: str) -> str:
    """Return the id of a device that is named by its id or its name. Raises JobError."""
    ids = {item["device"]: str(item["id"]) for item in client.call("GET", "/devices")["items"]}
    if device in ids.values():
        return device
    if device not in ids:
        raise JobError(f"there is no device {device!r}{did_you_mean(device, ids)}")
    return ids[device]
