"""Payloads as people may see them: whole, but for what opens something."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "…"
MOST_DEPTH = 100
_NAMES = re.compile(
    r"secret|token|password|signature|private_?key|authorization|credential", re.IGNORECASE
)
_IN_ADDRESSES = re.compile(r"([?&](?:access_)?token=)[^&\s\"]+", re.IGNORECASE)


def without_secrets(value: Any, depth: int = 0) -> Any:
    """JSON without the texts and lists of fields named as secrets are (GitHub sends some in
    alerts), and without tokens in addresses.
    """
    if depth > MOST_DEPTH:
        return HIDDEN
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if _secret(name, each) else without_secrets(each, depth + 1)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(each, depth + 1) for each in value]
    return _IN_ADDRESSES.sub(rf"\1{HIDDEN}", value) if isinstance(value, str) else value


def _secret(name: str, value: Any) -> bool:
    return (
        isinstance(value, str | list)
        and bool(value)
        and not name.endswith("_url")
        and _NAMES.search(name) is not None
    )
