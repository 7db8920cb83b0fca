"""`gonogo invitations`: the one-time codes of hosts that still work, and taking one back."""

from __future__ import annotations

import typer

from gonogo.cli.kit import nouns
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.nouns import JSON, Noun

INVITATIONS = Noun(
    "invitations",
    {
        "invitation": "id",
        "host": "name",
        "queues": "queues",
        "state": "state",
        "made by": "created_by",
        "created": "created_at",
        "expires": "expires_at",
    },
    "an invitation",
    name_key="name",
    is_paged=False,
)

app = group("Look at the one-time codes of hosts; take one back. `gonogo hosts invite` makes one.")


@app.command("list")
def list_(
    every: bool = typer.Option(False, "--all", help="List used, expired and revoked ones, too."),
    as_json: bool = JSON,
) -> None:
    """List the invitations that still work. Their codes are stored nowhere."""
    state = "any" if every else None
    nouns.print_list(INVITATIONS, limit=1, cursor=None, as_json=as_json, state=state)


nouns.add_show(app, INVITATIONS, "Show an invitation, by its id or by its host's name.")


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
