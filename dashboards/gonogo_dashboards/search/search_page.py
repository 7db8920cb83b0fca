"""Read model of the search: what has a text, each with its page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_rows import details_of, tolerance_of
from gonogo_dashboards.kit.navigation import Group
from gonogo_service.overview import search
from gonogo_service.overview.search import Hits
from gonogo_service.tests import entry_names

LIMIT = 6
"""Results of each kind."""
MAX_TEXT = 200
_ADDRESSES: Mapping[str, Callable[[str], str]] = {
    "job": urls.job,
    "run": urls.run,
    "flag": urls.flag,
    "gauge": urls.gauge,
    "bisection": urls.bisection,
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
    hits = search.find(session, text, limit=LIMIT + 1)
    entries = entry_names.latest(session, [test.key for test in hits.tests])
    return SearchView(text, (*_pages(text, navigation), *_lines(text, hits, entries)))


def _pages(text: str, navigation: Iterable[Group]) -> Iterator[SearchLine]:
    for group in navigation:
        for entry in group.entries:
            if text and text.lower() in entry.label.lower():
                yield SearchLine("page", entry.label, group.label, entry.url)


def _lines(text: str, hits: Hits, entries: Mapping[str, str]) -> Iterator[SearchLine]:
    for kind, identity in hits.ids[:LIMIT]:
        yield SearchLine(kind, identity, "", _ADDRESSES[kind](identity))
    tests = hits.tests[:LIMIT]
    named = labels([Listed(test.test, entries.get(test.key)) for test in tests])
    for test, label in zip(tests, named, strict=True):
        details = details_of(test.test, entries.get(test.key))
        parts = tolerance_of(test.test), details, test.key
        details = " · ".join(part for part in parts if part)
        yield SearchLine("test", label, details, urls.history(test.key))
    if len(hits.tests) > LIMIT:
        yield SearchLine(
            "page", f"All tests with {text}", "Tests", urls.catalogue({"search": text})
        )
    shown = {test.key for test in hits.tests}
    for entry in hits.entries[:LIMIT]:
        if entry.test_key not in shown:
            yield SearchLine("test", entry.name, entry.suite, urls.history(entry.test_key))
    for job in hits.jobs[:LIMIT]:
        details = f"commit {job.sha[:12]} · {job.build}"
        yield SearchLine("job", job.id, details, urls.job(job.id))
    for build in hits.builds[:LIMIT]:
        details = build.branch if build.commit is None else f"{build.branch} · {build.commit}"
        yield SearchLine("build", build.name, details, urls.jobs({"build": build.name}))
    for name in hits.suites[:LIMIT]:
        yield SearchLine("suite", name, "", urls.runs({"suite": name}))
