"""`gonogo webhooks`: messages that this service sends, who gets them, and their signatures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

import gonogo.settings
from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.body_options import JSON, body_of, with_options
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.files import reading
from gonogo.cli.kit.noun import Noun
from gonogo.cli.kit.nouns import CURSOR, LIMIT
from gonogo.errors import FieldError
from gonogo_service.webhooks.noun import CHANGE, CREATE, WEBHOOKS

DELIVERIES = {
    "delivery": "id",
    "type": "type",
    "state": "state",
    "tries": "tries",
    "created": "created_at",
    "due": "due_at",
}
WEBHOOK = typer.Argument(metavar="ID", help="Its id.")
ONCE = "The secret is shown this once: "

app = nouns.app_of(WEBHOOKS)


def create(as_json: bool, **options: Any) -> None:
    """Create a webhook and print its secret."""
    body = {"events": ["*"], **body_of(CREATE, options)}
    with Client() as client:
        record = client.call("POST", WEBHOOKS.address, body=body)
        nouns.stored(WEBHOOKS, client, record, CREATE.done, as_json=as_json)
    if not as_json and record["secret"]:
        print(ONCE + record["secret"])


def change(identity: str, as_json: bool, enable: bool | None, **options: Any) -> None:
    """Change a webhook."""
    body = body_of(CHANGE, options)
    if enable is not None:
        body["state"] = "active" if enable else "disabled"
    nouns.require_change(WEBHOOKS, body)
    with Client() as client:
        record = client.call("PATCH", WEBHOOKS.of(identity), body=body)
        nouns.stored(WEBHOOKS, client, record, CHANGE.done, as_json=as_json)


MORE = {
    "identity": (str, WEBHOOK),
    "enable": (
        bool | None,
        typer.Option(
            None, "--enable/--disable", help="Send again, or cancel the waiting messages and stop."
        ),
    ),
}
app.command("create", help=CREATE.sentence)(with_options(create, CREATE))
app.command("change", help=CHANGE.sentence)(with_options(change, CHANGE, MORE, is_change=True))


@app.command()
def rotate(webhook: str = WEBHOOK, as_json: bool = JSON) -> None:
    """Make a new secret and print it. For a day the old one signs as well."""
    with Client() as client:
        record = client.call("POST", f"{WEBHOOKS.of(webhook)}:rotate")
    if as_json:
        show.print_json(record)
    else:
        print(ONCE + record["secret"])


@app.command("test")
def send_test(webhook: str = WEBHOOK, as_json: bool = JSON) -> None:
    """Send a test message."""
    with Client() as client:
        record = client.call("POST", f"{WEBHOOKS.of(webhook)}:test")
    if as_json:
        show.print_json(record)
    else:
        print(f"sent {record['id']}: {record['state']}")


@app.command()
def deliveries(
    webhook: str = WEBHOOK,
    state: str | None = typer.Option(None, help="List only messages in this state."),
    limit: int = LIMIT,
    cursor: str | None = CURSOR,
    as_json: bool = JSON,
) -> None:
    """List the newest messages to a webhook, and what became of each."""
    of_webhook = Noun(
        "deliveries", DELIVERIES, "a delivery", path=f"{WEBHOOKS.of(webhook)}/deliveries"
    )
    nouns.print_list(of_webhook, limit=limit, cursor=cursor, as_json=as_json, state=state)


@app.command()
def verify(
    body: Path = typer.Argument(
        ..., help="File with the body as it came, byte for byte; - is standard input."
    ),
    message_id: str = typer.Option(..., "--id", help="The header webhook-id."),
    timestamp: str = typer.Option(..., help="The header webhook-timestamp."),
    signature: str = typer.Option(..., help="The header webhook-signature."),
    secret: str = typer.Option(
        "", help="The subscription's secret, whsec_...; default GONOGO_WEBHOOK_SECRET."
    ),
    tolerance: float = typer.Option(
        300.0, help="Seconds that the message may be old, or new; 0: any."
    ),
    as_json: bool = JSON,
) -> None:
    """Verify a signature. Exit codes: 0 it fits, 1 it does not, 2 usage."""
    from gonogo_service.webhooks.signing import Unverified
    from gonogo_service.webhooks.signing import verify as check

    with reading(body, "body"):
        data = sys.stdin.buffer.read() if str(body) == "-" else body.read_bytes()
    configured = gonogo.settings.load().webhook_secret
    secret = secret or (configured.get_secret_value() if configured else "")
    if not secret:
        raise FieldError("secret", "", "is missing: give --secret, or set GONOGO_WEBHOOK_SECRET")
    why = None
    try:
        headers = {
            "webhook-id": message_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": signature,
        }
        check([secret], headers, data, tolerance_s=tolerance or None)
    except Unverified as problem:
        why = str(problem)
    except ValueError as problem:
        raise FieldError("secret", "…", str(problem), limit="whsec_ and base64") from problem
    if as_json:
        show.print_json({"verified": why is None, "reason": why})
    else:
        print("verified" if why is None else f"not verified: {why}")
    raise typer.Exit(0 if why is None else 1)
