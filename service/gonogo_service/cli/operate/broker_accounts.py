"""The accounts of Redis or Valkey by role: what the service may do, and what device hosts may do.

docs/protocol.md explains each line. An account only saves what signatures can't: who may read
results, and who may delete messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

FILE: Final = "users.acl"
SERVICE, WORKER = "gonogo", "worker"

RULES: Final[Mapping[str, str]] = {
    # whoever has no account learns that the server lives (a health check), and nothing else
    "default": "on nopass resetkeys resetchannels -@all +ping",
    SERVICE: "on {password} ~* resetchannels +@all -@admin -@dangerous +info",
    WORKER: (
        "on {password} resetkeys resetchannels -@all"
        # connect
        " +auth +hello +ping +select +client|setinfo +client|setname"
        # take chunks of its queues; put one back when it stops
        " (+brpop +rpush ~*.*.*)"
        # send, without reading what others sent
        " (+lpush %W~background %W~heartbeat)"
        # read what the service wrote for its attempts and devices
        " (+getrange %R~gonogo:cancel:* %R~gonogo:device:*)"
        # fetch answers
        " (+blpop ~gonogo:reply:*)"
    ),
}


def acl(passwords: Mapping[str, str]) -> str:
    """Return the file of accounts for these passwords by account; it holds only their hashes."""
    lines = []
    for name, rule in RULES.items():
        digest = hashlib.sha256(passwords.get(name, "").encode()).hexdigest()
        lines.append(f"user {name} {rule.format(password='#' + digest)}\n")
    return "".join(lines)
