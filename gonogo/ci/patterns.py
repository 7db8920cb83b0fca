"""Patterns of branches, paths and repositories, as in GitHub's workflows.

`*` stays within a folder, `**` does not, and `!` excludes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

_PARTS = re.compile(r"(?:^|(?<=/))\*\*/|\*\*|\*|\?|[^*?]+")
_BEGINS = {"**/": "(?>(?:.*?/)??", "**": "(?>.*?", "*": "(?>[^/]*?"}
"""How the group of a part begins: it takes the first place at which the parts up to the next one
fit, for good. No later place would serve the rest better, and strangers write both pattern and
text: with all places to try, many `*` would take exponential time."""


def fits(patterns: Sequence[str], text: str, *, any_case: bool = False) -> bool:
    """Return whether the last pattern that matches `text` includes it.

    Without patterns, or with excluding patterns only, everything else is included.
    """
    fitting = all(pattern.startswith("!") for pattern in patterns)
    for pattern in patterns:
        if _expression(pattern.removeprefix("!"), any_case).fullmatch(text):
            fitting = not pattern.startswith("!")
    return fitting


def fits_any(patterns: Sequence[str], texts: Iterable[str]) -> bool:
    """Return whether one of the texts fits."""
    return any(fits(patterns, text) for text in texts)


@lru_cache(maxsize=10_000)  # as many as all waivers may have
def _expression(pattern: str, any_case: bool) -> re.Pattern[str]:
    written, groups = "", list[str]()
    for part in _PARTS.findall(pattern):
        if part in _BEGINS:
            # a group of `*` lies within one of `**`, and ends with it
            while groups and (part != "*" or groups[-1] == "*"):
                groups.pop()
                written += ")"
            groups.append(part)
            written += _BEGINS[part]
        else:
            written += "[^/]" if part == "?" else re.escape(part)
    written += r"\Z" + ")" * len(groups)
    return re.compile(written, re.DOTALL | (re.IGNORECASE if any_case else 0))
