"""The accounts of Redis or Valkey by role: what the service may do, and what device hosts may do.

docs/protocol.md explains each line. A queue only wakes workers; an account keeps a host from waking
those of others, and from taking what wakes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

FILE: Final = "users.acl"
SERVICE, WORKER = "gonogo", "worker"

RULES: Final[Mapping[str, str]] = {
    # for a health check: without an account one learns that the server lives, and nothing else
    "default": "on nopass resetkeys resetchannels -@all +ping",
    SERVICE: "on {password} ~* resetchannels +@all -@admin -@dangerous +info",
    WORKER: (
        "on {password} resetkeys resetchannels -@all"
        # connect
        " +auth +hello +ping +select +client|setinfo +client|setname"
        # take chunks of its queues; put one back when it stops
        " (+brpop +rpush ~*.*.*)"
    ),
}


def acl(passwords: Mapping[str, str]) -> str:
    """Return the file of accounts for these passwords by account; it holds only their hashes."""
    lines = []
    for name, rule in RULES.items():
        digest = hashlib.sha256(passwords.get(name, "").encode()).hexdigest()
        lines.append(f"user {name} {rule.format(password='#' + digest)}\n")
    return "".join(lines)
