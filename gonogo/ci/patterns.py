"""Patterns of branches, paths and repositories, as in GitHub's workflows.

`*` stays within a folder, `**` does not, and `!` excludes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_PARTS = re.compile(r"\*\*/|\*\*|\*|\?|[^*?]+")


def fits(patterns: Sequence[str], text: str, *, any_case: bool = False) -> bool:
    """Return whether the last pattern that matches `text` includes it.

    Without patterns, or with excluding patterns only, everything else is included.
    """
    fitting = all(pattern.startswith("!") for pattern in patterns)
    if any_case:
        patterns, text = [pattern.lower() for pattern in patterns], text.lower()
    for pattern in patterns:
        if _matches(pattern.removeprefix("!"), text):
            fitting = not pattern.startswith("!")
    return fitting


def fits_any(patterns: Sequence[str], texts: Iterable[str]) -> bool:
    """Return whether one of the texts fits."""
    return any(fits(patterns, text) for text in texts)


def _matches(pattern: str, text: str) -> bool:
    """Return whether a pattern matches all of `text`, in time proportional to both lengths.

    Strangers write both, and a regular expression of many `*` would take exponential time.
    """
    ends = {0}  # the places of the text at which a match of the parts so far ends
    for part in _PARTS.findall(pattern):
        first = min(ends)
        match part:
            case "**":
                ends = set(range(first, len(text) + 1))
            case "**/":
                ends |= {place + 1 for place in range(first, len(text)) if text[place] == "/"}
            case "*":
                ends = _within_folder(ends, text)
            case "?":
                ends = {end + 1 for end in ends if text[end : end + 1] not in ("", "/")}
            case _:
                ends = {end + len(part) for end in ends if text.startswith(part, end)}
        if not ends:
            return False
    return len(text) in ends


def _within_folder(starts: set[int], text: str) -> set[int]:
    """Return the places that any text without a slash leads to from the starts."""
    ends: set[int] = set()
    for start in sorted(starts):
        if start not in ends:
            slash = text.find("/", start)
            ends.update(range(start, (len(text) if slash < 0 else slash) + 1))
    return ends
