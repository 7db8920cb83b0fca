"""The pages in their groups, for the navigation and for the search.

Each sub-package says in its routes.py which of its pages are in the navigation (`NAVIGATION`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from gonogo import urls
from gonogo_dashboards.kit import manual

Purpose = Literal["Results", "Analysis", "Lab", "Settings"]
"""The groups of the navigation, in their order."""


@dataclass(frozen=True)
class Entry:
    """A page of the navigation.

    group, place: where it stands. Two entries of one place are in the order of their labels.
    parts: the names of pages below it.
    """

    name: str
    label: str
    url: str
    group: Purpose
    place: int
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """Pages with one purpose."""

    label: str
    entries: tuple[Entry, ...]


_API = Entry("docs", "API", urls.DOCS, "Settings", 90)
_MANUAL = Entry("manual", "Manual", urls.MANUAL + "/", "Settings", 91)


def groups(entries: Iterable[Entry]) -> tuple[Group, ...]:
    """Return the entries in their groups.

    The API's documentation is in them, and the manual where this installation has it.
    """
    shown = [*entries, _API, *([_MANUAL] if manual.is_built() else [])]
    shown.sort(key=lambda entry: (entry.place, entry.label))
    return tuple(
        Group(label, tuple(entry for entry in shown if entry.group == label))
        for label in get_args(Purpose)
    )
