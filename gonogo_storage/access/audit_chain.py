"""The audit's hash chain: every entry holds the hash of the one before it, and of its own content.

So a changed, deleted or inserted entry is found by anybody who has the entries, also offline in an
export. A cut tail is found by whoever kept the head, which is the number and the hash of the last
entry. The hash is SHA-256 of canonical JSON; times are in UTC with microseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gonogo.spec import canonical_json

BEFORE_THE_FIRST: Final = "0" * 64
CONTENT: Final = ("number", "id", "at", "actor", "action", "subject", "detail", "previous")
"""The fields that the hash covers: all of an entry but the hash."""


@dataclass(frozen=True)
class Head:
    """The last entry of a chain. Keep it elsewhere: it proves that no later end was cut off."""

    number: int
    hash: str

    def __str__(self) -> str:
        """Return NUMBER:HASH, as `Head.parse` reads it."""
        return f"{self.number}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Return the head in a text NUMBER:HASH. Raises ValueError."""
        number, _, digest = text.strip().partition(":")
        if not number.isdecimal() or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise ValueError("must be NUMBER:HASH, as `gonogo audit verify` prints it")
        return cls(int(number), digest)


@dataclass(frozen=True)
class Verification:
    """The outcome of a walk along a chain."""

    entries: int
    head: Head
    problem: str | None
    """The first thing that is wrong; None: every entry is as it was written."""


def hash_of(entry: Mapping[str, Any]) -> str:
    """Return the hash of an entry, given by the names in CONTENT; `at` is RFC 3339 text."""
    content = {name: entry[name] for name in CONTENT}
    return hashlib.sha256(canonical_json.dumps(content)).hexdigest()


def verify(entries: Iterable[Mapping[str, Any]], known_head: Head | None = None) -> Verification:
    """Walk along the entries, oldest first. `known_head` is a head of an earlier day."""
    previous, count, seen = BEFORE_THE_FIRST, 0, known_head is None or known_head.number == 0
    for entry in entries:
        problem = _problem(entry, count + 1, previous)
        if problem is None and known_head is not None and entry["number"] == known_head.number:
            seen = True
            if entry["hash"] != known_head.hash:
                problem = f"entry {known_head.number} is not the one of the kept head"
        if problem is not None:
            return Verification(count, Head(count, previous), problem)
        previous, count = str(entry["hash"]), count + 1
    cut = None if seen else f"the chain ends at entry {count}, before the kept head"
    return Verification(count, Head(count, previous), cut)


def _problem(entry: Mapping[str, Any], number: int, previous: str) -> str | None:
    if not isinstance(entry, Mapping) or not {*CONTENT, "hash"} <= entry.keys():
        return f"entry {number} is no entry of an audit"
    if entry["number"] != number:
        return f"entry {number} is missing: entry {entry['number']!r:.40} comes next"
    if entry["previous"] != previous:
        return f"entry {number} doesn't follow entry {number - 1}: one of them was replaced"
    try:
        intact = entry["hash"] == hash_of(entry)
    except TypeError:  # a number that no entry of ours can hold
        intact = False
    return None if intact else f"entry {number} was changed after it was written"
