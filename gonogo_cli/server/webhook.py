"""`gonogo webhook verify`: check that a message is really from the service."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import typer

import gonogo_settings
from gonogo.errors import FieldError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Check webhooks that this service sent.",
)


@app.callback()
def root() -> None:
    """Check webhooks that this service sent."""


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
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Verify a signature. Exit codes: 0 it fits, 1 it does not, 2 usage."""
    from gonogo_cli.kit import show
    from gonogo_service.webhooks.signatures import Unverified
    from gonogo_service.webhooks.signatures import verify as check

    try:
        data = sys.stdin.buffer.read() if str(body) == "-" else body.read_bytes()
    except OSError as problem:
        raise FieldError("body", str(body), f"can't be read: {problem.strerror}") from problem
    configured = gonogo_settings.load().webhook_secret
    secret = secret or (configured.get_secret_value() if configured else "")
    if not secret:
        raise FieldError("secret", "", "is missing: give --secret, or set GONOGO_WEBHOOK_SECRET")
    why = None
    try:
        check(
            secret,
            message_id,
            timestamp,
            signature,
            data,
            now=time.time(),
            tolerance_s=tolerance or None,
        )
    except Unverified as problem:
        why = str(problem)
    except ValueError as problem:
        raise FieldError("secret", "…", str(problem), limit="whsec_ and base64") from problem
    if as_json:
        show.print_json({"verified": why is None, "reason": why})
    else:
        print("verified" if why is None else f"not verified: {why}")
    raise typer.Exit(0 if why is None else 1)
