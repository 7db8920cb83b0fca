"""Hosts and their invitations as the API and the command know them."""

from __future__ import annotations

from gonogo.cli.kit.noun import Noun

HOSTS = Noun(
    "hosts",
    {
        "host": "name",
        "queues": "queues",
        "key": lambda host: (host["key"] or "")[:8] or None,
        "heard": "heard_at",
        "clock ahead, s": "clock_skew_s",
        "refused": lambda host: sum(host["refused"].values()) or None,
        "flagged": "flagged_at",
        "why": "flag_reason",
        "enrolled": "enrolled_at",
        "revoked": "revoked_at",
    },
    "a host",
    about="Invite, enroll, list and revoke the machines that have devices.",
    key="name",
)
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
    about="Look at the one-time codes of hosts; take one back. `gonogo hosts invite` makes one.",
    name_key="name",
    filters={"state": "List only this state: open (default), used, expired, revoked; or any."},
    is_paged=False,
)
