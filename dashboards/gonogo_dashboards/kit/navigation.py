"""The pages in their groups, for the navigation and for the search."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gonogo import urls
from gonogo_dashboards.kit import manual


@dataclass(frozen=True)
class Entry:
    """A page of the navigation; `parts` are the names of pages below it."""

    name: str
    label: str
    url: str
    parts: tuple[str, ...] = ()
    scope: str = ""
    """The scope that it needs beyond `read`."""


@dataclass(frozen=True)
class Group:
    """Pages with one purpose."""

    label: str
    entries: tuple[Entry, ...]


_MANUAL = "manual"
_GROUPS = (
    Group(
        "Results",
        (
            Entry("overview", "Overview", urls.OVERVIEW),
            Entry("tests", "Tests", urls.TESTS, ("test",)),
            Entry("flags", "Flags", urls.FLAGS, ("flag",)),
            Entry("waivers", "Waivers", urls.WAIVERS),
            Entry("matrix", "Matrix", urls.MATRIX),
            Entry("jobs", "Jobs", urls.JOBS, ("new",)),
            Entry("runs", "Runs", urls.RUNS),
        ),
    ),
    Group(
        "Analysis",
        (
            Entry("compare", "Compare", urls.COMPARE),
            Entry("worse", "What got worse", urls.WORSE),
            Entry("gauges", "Gauges", urls.GAUGES, ("gauge",)),
            Entry("bisections", "Bisections", urls.BISECTIONS),
        ),
    ),
    Group("Lab", (Entry("devices", "Devices", urls.DEVICES, ("device",)),)),
    Group(
        "Settings",
        (
            Entry("schedules", "Schedules", urls.SCHEDULES),
            Entry("webhooks", "Webhooks", urls.WEBHOOKS, ("webhook", "delivery")),
            Entry("hooks", "Incoming webhooks", urls.HOOKS, ("hook",)),
            Entry("rules", "Rules", urls.RULES),
            Entry("answers", "Reports to GitHub", urls.ANSWERS),
            Entry("docs", "API", urls.DOCS),
            Entry(_MANUAL, "Manual", urls.MANUAL + "/"),
        ),
    ),
)


def groups() -> tuple[Group, ...]:
    """Return the groups; the manual is in them where this installation has it."""
    if manual.is_built():
        return _GROUPS
    return tuple(
        replace(group, entries=tuple(entry for entry in group.entries if entry.name != _MANUAL))
        for group in _GROUPS
    )
