"""Read model of the search: what has a text, each with its page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_rows import details_of, tolerance_of
from gonogo_dashboards.kit.navigation import Group
from gonogo_service.overview import search
from gonogo_service.tests import entry_names
from gonogo_service.tests.model import TestSpecRow

LIMIT = 6
"""Results of each kind."""
MAX_TEXT = 200
_ADDRESSES: Mapping[str, Callable[[str], str]] = {
    "job": urls.job,
    "run": urls.run,
    "flag": urls.flag,
    "gauge": urls.gauge,
    "bisection": urls.bisection,
    "test": urls.history,
    "branch": lambda name: urls.branch({"head": name}),
    "build": lambda name: urls.jobs({"build": name}),
    "suite": lambda name: urls.runs({"suite": name}),
}


@dataclass(frozen=True)
class SearchLine:
    """A result: its kind, its name, what tells it apart, and its page."""

    kind: str
    label: str
    details: str
    url: str


@dataclass(frozen=True)
class SearchView:
    """The results for a text, pages first."""

    text: str
    items: tuple[SearchLine, ...]


def read(session: Session, text: str, navigation: Iterable[Group]) -> SearchView:
    """Return what has the text; nothing for an empty one."""
    text = text.strip()[:MAX_TEXT]
    pages = (
        SearchLine("page", entry.label, group.label, entry.url)
        for group in navigation
        for entry in group.entries
        if text and text.lower() in entry.label.lower()
    )
    tests = search.tests(session, text, LIMIT + 1)
    known = {test.key for test in tests}
    hits = [hit for hit in search.others(session, text, LIMIT) if hit.key not in known]
    others = (
        SearchLine(hit.kind, hit.label, hit.details, _ADDRESSES[hit.kind](hit.key)) for hit in hits
    )
    return SearchView(text, (*pages, *_tests(session, text, tests), *others))


def _tests(session: Session, text: str, tests: Sequence[TestSpecRow]) -> Iterator[SearchLine]:
    entries, shown = entry_names.latest(session, [test.key for test in tests]), tests[:LIMIT]
    named = labels([Listed(test.test, entries.get(test.key)) for test in shown])
    for test, label in zip(shown, named, strict=True):
        parts = tolerance_of(test.test), details_of(test.test, entries.get(test.key)), test.key
        details = " · ".join(part for part in parts if part)
        yield SearchLine("test", label, details, urls.history(test.key))
    if len(tests) > LIMIT:
        more = urls.catalogue({"search": text})
        yield SearchLine("page", f"All tests with {text}", "Tests", more)
