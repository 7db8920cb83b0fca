"""Payloads for display: complete, except for secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "…"
MAX_DEPTH = 100
_NAMES = re.compile(
    r"secret|token|password|signature|private_?key|authorization|credential", re.IGNORECASE
)
_IN_ADDRESSES = re.compile(r"([?&](?:access_)?token=)[^&\s\"]+", re.IGNORECASE)


def without_secrets(value: Any, depth: int = 0) -> Any:
    """Return JSON without secrets, and without tokens in addresses.

    Texts and lists are hidden if the name of their field looks like a secret's; GitHub sends some
    in alerts.
    """
    if depth > MAX_DEPTH:
        return HIDDEN
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if _secret(name, member) else without_secrets(member, depth + 1)
            for name, member in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(item, depth + 1) for item in value]
    return _IN_ADDRESSES.sub(rf"\1{HIDDEN}", value) if isinstance(value, str) else value


def _secret(name: str, value: Any) -> bool:
    return (
        isinstance(value, str | list)
        and bool(value)
        and not name.endswith("_url")
        and _NAMES.search(name) is not None
    )
