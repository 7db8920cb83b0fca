"""Untrusted text in a form that any database stores, and names that fit a key."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

MAX_NAME_CHARS = 400
"""A name is part of a key, and PostgreSQL's index holds no longer ones."""
MAX_MESSAGE_CHARS = 2000


_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def for_xml(text: str) -> str:
    """Return text without the characters that XML 1.0 can't have, not even as references."""
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def clean(value: object, most: int) -> str:
    """Return text without NUL and lone surrogates, at most `most` characters.

    Longer texts lose their middle.
    """
    text = (
        str(value).replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    )
    return text if len(text) <= most else text[: most // 2] + "\n...\n" + text[-most // 2 + 5 :]


def short_name(name: str) -> str:
    """Return the name; if it is too long for a key, a distinct one without its middle."""
    whole = clean(name, len(name)) or "(no name)"
    if len(whole) <= MAX_NAME_CHARS:
        return whole
    mark = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{whole[: MAX_NAME_CHARS - 90]}...{mark}...{whole[-70:]}"


class Entries(dict[str, Any]):
    """Entries by name."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[str] = Counter()

    def free(self, name: str) -> str:
        """Return the name, numbered if there is an entry of it."""
        free = name
        while free in self:
            self._counts[name] += 1
            free = short_name(f"{name} ({self._counts[name] + 1})")
        return free


def labels(test: str, names: Sequence[str | None]) -> list[str]:
    """Return the labels of the arrays that a test compared, by their names; "" and None are none.

    The label is the test's name where it compared once, else it has the arrays' names or numbers.
    It doesn't depend on the order in which threads finish: an output has a history.
    """
    if len(names) == 1:
        return [test]
    distinct: list[str] = []
    for number, name in enumerate(names, 1):
        label = f"{test}#{name or number}"
        distinct.append(label if label not in distinct else f"{label} ({number})")
    return distinct
