"""The audit log as the API and the command know it."""

from __future__ import annotations

from gonogo.cli.kit.noun import Noun

AUDIT = Noun(
    "audit",
    {name: name for name in ("id", "at", "actor", "action", "subject", "detail")},
    "an entry",
    plural="entries",
    filters={
        "action": "List only this action, such as token.revoked.",
        "actor": "List only this actor, such as token:ID.",
        "subject": "List only this object: its ID or name.",
    },
    scope="admin",
)
