"""Labels of tests in a list: where two would be alike, what differs comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo_dashboards.kit import commands
from gonogo_dashboards.kit.list_rows import shape_of, tolerance_of


@dataclass(frozen=True)
class Listed:
    """A test of a list: its form, a suite's name for it, and its head, kernel and shape if none.

    `test` may have further fields that tell rows apart, such as the board.
    """

    test: Mapping[str, Any]
    entry: str | None = None
    head: str = ""

    @property
    def name(self) -> str:
        """Return the first part of its label."""
        return self.head or f"{self.test['kernel']} {shape_of(self.test)}"


def labels(listed: Sequence[Listed]) -> list[str]:
    """Return the label of each test of a list, in its order.

    It is the test's head. Tests with one head get what differs among them in front of it: the
    suite's names where these tell all of them apart, else the fields that differ.
    """
    alike: dict[str, list[Listed]] = {}
    for each in listed:
        alike.setdefault(each.name, []).append(each)
    differing = {name: _differing(group) for name, group in alike.items()}
    return [_label(each, differing[each.name]) for each in listed]


def _label(each: Listed, differing: Sequence[str]) -> str:
    parts = [each.entry if name == "entry" else _words(each.test, name) for name in differing]
    return " · ".join([*(part for part in parts if part), each.name])


def _differing(group: Sequence[Listed]) -> tuple[str, ...]:
    """Return the names of the fields that differ in a group; "entry" for the suites' names."""
    first = group[0]
    others = [other for other in group[1:] if other != first]
    if not others:
        return ()
    tests = [each.test for each in (first, *others)]
    named = dict.fromkeys(name for test in tests for name in test)
    fields = [
        name for name in named if any(test.get(name) != tests[0].get(name) for test in tests[1:])
    ]
    by_test = {repr(each.test): each.entry for each in (first, *others)}
    if len(set(by_test.values())) == len(by_test):
        return ("entry",)
    return tuple(fields) if fields else ("entry",)


def _words(test: Mapping[str, Any], name: str) -> str:
    if name == "tolerance":
        return tolerance_of(test)
    return f"{name} {commands.plain(test[name])}" if name in test else f"default {name}"
