"""Read model of the search: what has a text, each with its page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_rows import details_of, tolerance_of
from gonogo_dashboards.kit.navigation import Group
from gonogo_service.overview import search
from gonogo_service.tests import entry_names, standings
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.recent_builds import Standing
from gonogo_service.tests.standings import Standings
from gonogo_service.tests.variants import MAIN, Variant

LIMIT = 6
"""Results of each kind."""
MAX_TEXT = 200
_ADDRESSES: Mapping[str, Callable[[str], str]] = {
    "job": urls.job,
    "run": urls.run,
    "flag": urls.flag,
    "gauge": urls.gauge,
    "bisection": urls.bisection,
    "branch": lambda name: urls.branch({"head": name}),
    "build": lambda name: urls.jobs({"build": name}),
    "suite": lambda name: urls.runs({"suite": name}),
}


@dataclass(frozen=True)
class SearchLine:
    """A result: its kind, its name, what tells it apart, its page, and how it stands.

    result: the verdict in words, "" for none: "Fail and hollow".
    """

    kind: str
    label: str
    details: str
    url: str
    verdict: str | None = None
    result: str = ""


@dataclass(frozen=True)
class SearchView:
    """The results for a text: pages, then tests, those that need attention first, then others."""

    text: str
    items: tuple[SearchLine, ...]


def read(session: Session, text: str, navigation: Iterable[Group], now: datetime) -> SearchView:
    """Return what has the text; nothing for an empty one."""
    text = text.strip()[:MAX_TEXT]
    pages = (
        SearchLine("page", entry.label, group.label, entry.url)
        for group in navigation
        for entry in group.entries
        if text and text.lower() in entry.label.lower()
    )
    stands = standings.read(session, since=now - standings.WINDOW) if text else {}
    tests = search.tests(session, text, stands, LIMIT + 1)
    known = {test.key for test in tests}
    hits = [hit for hit in search.others(session, text, LIMIT) if hit.key not in known]
    worst = _worst(stands)
    others = (
        _of_test(hit.key, hit.label, hit.details, worst)
        if hit.kind == "test"
        else SearchLine(
            hit.kind,
            hit.label,
            hit.details,
            _ADDRESSES[hit.kind](hit.key),
            hit.verdict,
            _label(hit.verdict),
        )
        for hit in hits
    )
    return SearchView(text, (*pages, *_tests(session, text, tests, worst), *others))


def _worst(stands: Standings) -> dict[str, tuple[Variant, Standing]]:
    """Return the variant of each test that needs attention most; among equal ones main's."""
    order = sorted(stands.items(), key=lambda item: (item[1].urgency, item[0].branch in MAIN))
    return {variant.test_key: (variant, one) for variant, one in order}


def _of_test(
    key: str, label: str, details: str, worst: Mapping[str, tuple[Variant, Standing]]
) -> SearchLine:
    if key not in worst:
        return SearchLine("test", label, details, urls.history(key))
    variant, one = worst[key]
    url = urls.history(key, variant.place)
    also = " and hollow" if one.hollow and one.verdict != Verdict.pass_by_tolerance else ""
    return SearchLine("test", label, details, url, one.verdict, _label(one.verdict) + also)


def _label(verdict: str | None) -> str:
    return words.mark(verdict).label if verdict else ""


def _tests(
    session: Session,
    text: str,
    tests: Sequence[TestSpecRow],
    worst: Mapping[str, tuple[Variant, Standing]],
) -> Iterator[SearchLine]:
    entries, shown = entry_names.latest(session, [test.key for test in tests]), tests[:LIMIT]
    named = labels([Listed(test.test, entries.get(test.key)) for test in shown])
    for test, label in zip(shown, named, strict=True):
        parts = tolerance_of(test.test), details_of(test.test, entries.get(test.key)), test.key[:15]
        details = " · ".join(part for part in parts if part)
        yield _of_test(test.key, label, details, worst)
    if len(tests) > LIMIT:
        more = urls.catalogue({"search": text})
        yield SearchLine("page", f"All tests with {text}", "Tests", more)
