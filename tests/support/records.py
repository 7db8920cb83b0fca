"""What asserts of several fields of a record have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def pick(record: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    """Return the values of these fields, in this order."""
    return tuple(record[name] for name in names)
