"""Labels of tests in a list: where two would be alike, what differs comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gonogo_dashboards.kit import commands
from gonogo_dashboards.kit.list_rows import title_of, tolerance_of


@dataclass(frozen=True)
class Listed:
    """A test of a list: its form, a suite's name for it, and its head, kernel and shape if none.

    `place` are further facts that tell rows apart, such as the board.
    """

    test: Mapping[str, Any]
    entry: str | None = None
    head: str = ""
    place: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the first part of its label."""
        return self.head or title_of(self.test)

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return the fields that may differ within a list."""
        return {**self.test, **self.place}


def labels(listed: Sequence[Listed]) -> list[str]:
    """Return the label of each test of a list, in its order.

    It is the test's head. Tests with one head get what differs among them in front of it: the
    suite's names where these tell all of them apart, else the fields that differ.
    """
    alike: dict[str, list[Listed]] = {}
    for test in listed:
        alike.setdefault(test.name, []).append(test)
    differing = {name: _differing(group) for name, group in alike.items()}
    return [_label(test, differing[test.name]) for test in listed]


def _label(listed: Listed, differing: Sequence[str]) -> str:
    parts = [listed.entry if name == "entry" else _words(listed.facts, name) for name in differing]
    return " · ".join([*(part for part in parts if part), listed.name])


def _differing(group: Sequence[Listed]) -> tuple[str, ...]:
    """Return the names of the fields that differ in a group; "entry" for the suites' names."""
    first = group[0]
    others = [other for other in group[1:] if other != first]
    if not others:
        return ()
    facts = [test.facts for test in (first, *others)]
    named = dict.fromkeys(name for of_test in facts for name in of_test)
    fields = [
        name for name in named if any(other.get(name) != facts[0].get(name) for other in facts[1:])
    ]
    entries = {repr(test.facts): test.entry for test in (first, *others)}
    if len(set(entries.values())) == len(entries):
        return ("entry",)
    return tuple(fields) if fields else ("entry",)


def _words(facts: Mapping[str, Any], name: str) -> str:
    if name == "tolerance":
        return tolerance_of(facts)
    return f"{name} {commands.plain(facts[name])}" if name in facts else f"default {name}"
