"""Text of strangers as any database stores it, and names that fit a key."""

from __future__ import annotations

import hashlib

MOST_NAME_CHARS = 400
"""A name is part of a key: PostgreSQL's index holds no longer ones."""
MOST_MESSAGE_CHARS = 2000


def clean(value: object, most: int) -> str:
    """Text without NUL and halves of surrogate pairs, at most so many characters: of a longer one
    beginning and end.
    """
    found = (
        str(value).replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    )
    return found if len(found) <= most else found[: most // 2] + "\n...\n" + found[-most // 2 + 5 :]


def short_name(name: str) -> str:
    """Return the name, cut in the middle of what is too long for a key; still distinct."""
    found = clean(name, len(name)) or "(no name)"
    if len(found) <= MOST_NAME_CHARS:
        return found
    mark = hashlib.sha256(found.encode()).hexdigest()[:8]
    return f"{found[: MOST_NAME_CHARS - 90]}...{mark}...{found[-70:]}"
