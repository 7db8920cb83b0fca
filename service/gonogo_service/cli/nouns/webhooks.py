"""`gonogo webhooks`: messages that this service sends, who gets them, and their signatures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

import gonogo.settings
from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.files import reading
from gonogo.cli.kit.noun import Noun
from gonogo.cli.kit.nouns import CURSOR, LIMIT
from gonogo.errors import FieldError
from gonogo_service.webhooks.noun import WEBHOOKS

DELIVERIES = {
    "delivery": "id",
    "type": "type",
    "state": "state",
    "tries": "tries",
    "created": "created_at",
    "due": "due_at",
}
WEBHOOK = typer.Argument(metavar="ID", help="Its id.")
ENABLE = typer.Option(
    None, "--enable/--disable", help="Send again, or cancel the waiting messages and stop."
)


def _prepare(verb: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with all events by default, and with the state of --enable."""
    if verb == "create":
        return {**options, "events": options["events"] or ["*"]}
    if verb == "change" and (enable := options.pop("enable")) is not None:
        options["state"] = "active" if enable else "disabled"
    return options


app = nouns.app_of(WEBHOOKS, prepare=_prepare, more={"change": {"enable": (bool | None, ENABLE)}})


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
