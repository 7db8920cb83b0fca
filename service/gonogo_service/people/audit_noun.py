"""The audit log as the API and the command know it."""

from __future__ import annotations

from gonogo_service.kit.noun import Noun

AUDIT = Noun(
    "audit",
    "See who did what; export the audit.",
    {"at": "at", "actor": "actor", "action": "action", "subject": "subject", "detail": "detail"},
    one="entry",
    plural="entries",
    filters={
        "action": "List only this action, such as token.revoked.",
        "actor": "List only this actor, such as token:ID.",
        "subject": "List only this object: its ID or name.",
    },
    scope="admin",
)
