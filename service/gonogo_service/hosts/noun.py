"""Hosts as the API and the command know them."""

from __future__ import annotations

from gonogo.cli.kit.noun import Noun, Verb
from gonogo_service.devices.noun import HostChange

HOSTS = Noun(
    "hosts",
    {
        "host": "name",
        "queues": "queues",
        "addresses": "addresses",
        "state": "state",
        "heard": "heard_at",
        "clock ahead, s": "clock_skew_s",
        "refused": lambda host: sum(host["refused"].values()) or None,
        "flagged": "flagged_at",
        "why": "flag_reason",
        "joined": "joined_at",
        "token expires": "token_expires_at",
        "revoked": "revoked_at",
    },
    "a host",
    key="name",
    actions={
        "revoke": Verb(
            "revoked", "Refuse every request of a host from now on.", HostChange, scope="admin"
        )
    },
)
