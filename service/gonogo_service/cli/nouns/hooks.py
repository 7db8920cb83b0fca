"""`gonogo hooks`: deliveries of GitHub and other CI that came in."""

from __future__ import annotations

from gonogo.cli.kit import nouns
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.nouns import CURSOR, JSON, LIMIT, Noun

HOOKS = Noun(
    "hooks",
    {
        "delivery": "id",
        "received": "received_at",
        "event": "event",
        "repository": "repository",
        "state": "state",
        "reason": "reason",
    },
    "a delivery",
    path="/hooks/deliveries",
    plural="deliveries",
)
app = group("Look at deliveries of GitHub and other CI.")


@app.command("list")
def list_(limit: int = LIMIT, cursor: str | None = CURSOR, as_json: bool = JSON) -> None:
    """List the newest deliveries that came in, and what became of each."""
    nouns.print_list(HOOKS, limit=limit, cursor=cursor, as_json=as_json)


nouns.add_show(app, HOOKS, "Show a delivery and what it started.")
