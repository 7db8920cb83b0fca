"""Several fields of a record in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def pick(record: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    """Return the values of these fields, in this order."""
    return tuple(record[name] for name in names)
