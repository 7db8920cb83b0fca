"""`gonogo invitations`: the one-time codes of hosts that still work, and taking one back."""

from __future__ import annotations

import typer

from gonogo.cli.kit import nouns
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.client import Client
from gonogo_service.hosts.noun import INVITATIONS

app = nouns.app_of(INVITATIONS)


@app.command()
def revoke(
    identity: str = typer.Argument(metavar="ID", help=INVITATIONS.argument_help),
    reason: str = typer.Option("", help="Say why; the audit log keeps it."),
    as_json: bool = JSON,
) -> None:
    """Refuse a code that nobody has used. Needs the scope admin."""
    with Client() as client:
        address = f"{nouns.address_of(INVITATIONS, client, identity)}:revoke"
        record = client.call("POST", address, body={"reason": reason})
        nouns.stored(INVITATIONS, client, record, "revoked", as_json=as_json)
