"""Changes since a reader was here: the overview's panel and the API's answer. Bounded reads.

How tests of the main branch stand now and stood then are two readings of
gonogo_service.tests.standings: a test is newly hollow where it is hollow now and wasn't then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.flag_kinds import Accepted
from gonogo.spec.described import Described
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Verdict
from gonogo_service.flags import attention as flags
from gonogo_service.flags.model import BACKGROUND, OPEN, FlagRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import dialect
from gonogo_service.kit.database.records import Documented
from gonogo_service.kit.principals import Principal
from gonogo_service.overview.model import SeenRow
from gonogo_service.people import store as people
from gonogo_service.tests import matrices, standings, test_list, test_specs
from gonogo_service.tests.matrices import BuildRecord
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.recent_builds import Standing
from gonogo_service.tests.standings import Kind, Standings
from gonogo_service.tests.variants import Variant
from gonogo_service.waivers import store as waivers
from gonogo_service.waivers.noun import WaiverState

FIRST_VISIT = timedelta(days=1)
"""How far back the news go for a reader who has never seen them."""
ENDS_WITHIN = timedelta(days=1)
GRACE = timedelta(seconds=10)
"""A transaction may commit this long after the time that it stores."""
MOST_READ = 500
"""Flags and waivers of a topic that are read and counted."""


class Topic(Described):
    """A kind of news, in the order of the page."""

    hollow = "hollow", "Tests that became hollow.", "Newly hollow", Verdict.pass_by_tolerance
    red = "red", "Tests that became red.", "Newly red", Verdict.fail
    lost = "lost", "Tests with new crashes, hangs or errors.", Kind.lost.label, Verdict.error
    fixed = "fixed", "Tests that were one of these, and are none now.", "Fixed", Verdict.pass_
    gained = "gained", "Builds with their first results.", "New build", "none"
    ending = "ending", "Acknowledgements and waivers that end soon.", "Ends within a day", "none"
    yours = "yours", "Flags that you own, changed by others.", "Yours", "none"


KINDS = {Topic.hollow: Kind.hollow, Topic.red: Kind.red, Topic.lost: Kind.lost}
"""The topics of tests that stand worse than before."""
_PHRASES = {Kind.hollow: "hollow", Kind.red: "red", Kind.lost: f"with {Kind.lost.label.lower()}"}
_EXPLAINS = {
    Topic.hollow: {Accepted.hollow},
    Topic.red: {Accepted.red, Accepted.false_alarms},
    Topic.lost: {Accepted.hangs, Accepted.crashes},
}
"""The flags that belong to a topic, by what they accept."""
_Tests = Mapping[str, dict[str, Any]]
"""Tests in their canonical form, by key."""


@dataclass(frozen=True)
class NewsItem:
    """A change of a test on a kind of board, of a build, a flag or a waiver."""

    name: str
    """The test's, the build's, or "Waiver\""""
    cause: str
    at: datetime
    """When the newest build's last job ended, the new build's first, or the flag was changed.

    Of what ends it is the end.
    """
    page: str
    acknowledge: str | None = None
    """The form that acknowledges the flag; null where there is none to acknowledge"""
    build: str | None = None
    before: str | None = None
    """The build on which the test stood otherwise, or the build before the new one"""
    test_key: str | None = None
    canonical: Annotated[dict[str, Any] | None, Documented(TestSpec | None)] = None
    """The test in its canonical form"""
    branch: str | None = None
    arch: str | None = None
    board: str | None = None


@dataclass(frozen=True)
class TopicNews:
    """The news of a topic: their number, the latest of them, and a page with more."""

    topic: Topic
    count: int
    items: list[NewsItem]
    more: str
    shows: str
    """The content of the page with more"""


@dataclass(frozen=True)
class News:
    """The changes since a reader was here; a topic without any is left out."""

    since: datetime
    until: datetime
    """The moment to send as seen: what is stored with a later time will be news"""
    never_seen: bool
    """The reader has never seen any, so `since` is a day ago"""
    branch: str | None
    """The main branch, whose tests and builds are news"""
    topics: list[TopicNews]


@dataclass(frozen=True)
class Known:
    """The facts that a page has read already: matrices.builds, and how all tests stand now.

    past: reads how the tests of a branch stood at a moment.
    """

    builds: Sequence[BuildRecord]
    current: Standings
    past: Callable[[datetime, str], Standings]


def mark_seen(session: Session, who: Principal, at: datetime, now: datetime) -> None:
    """Note that a reader has seen the news until then, but for those that may not be stored yet."""
    seen = {"reader": who.actor, "seen_at": min(at, now - GRACE)}
    dialect.merge(session, SeenRow, [seen], _newer)


def _newer(_old: Any, new: Any) -> dict[str, Any]:
    return {"seen_at": new.seen_at}


def read(session: Session, who: Principal, known: Known, now: datetime, most: int) -> News:
    """Return the news of a reader, the latest `most` of each topic."""
    # full hours, so that readers share a past
    row, hour = session.get(SeenRow, who.actor), now.replace(minute=0, second=0, microsecond=0)
    since = max(row.seen_at, hour - standings.WINDOW) if row else hour - FIRST_VISIT
    branch = matrices.main_branch(known.builds)
    current = {variant: one for variant, one in known.current.items() if variant.branch == branch}
    past = known.past(since, branch) if branch else {}
    builds = [build for build in known.builds if build.branch == branch]
    topics = [
        *_standing(session, current, past, since, most),
        _gained(builds, current, past, since, most),
        _ending(session, since, now, most),
        _yours(session, who, since, most),
    ]
    # a full minute where nothing happened in it, so that the page stays the same meanwhile
    times = (item.at for news in topics for item in news.items if item.at <= now)  # ends are ahead
    settled, latest = now - GRACE, max(times, default=since) + timedelta(milliseconds=1)
    until = max(settled.replace(second=0, microsecond=0), min(settled, latest))
    return News(since, until, row is None, branch, [news for news in topics if news.count])


def _standing(
    session: Session, current: Standings, past: Standings, since: datetime, most: int
) -> Iterator[TopicNews]:
    """Yield the tests that became hollow, red or lost, and those that were and aren't."""
    changed = _changed(current, past)
    shown = [variant for variants in changed.values() for variant in variants[:most]]
    flagged = flags.open_of_tests(session, {variant.test_key for variant in shown})
    jobs = [current[variant].job for variant in shown]
    query = select(JobRow.id, JobRow.diagnosis_words, TestSpecRow.key, TestSpecRow.test)
    query = query.join(JobRow.spec).where(JobRow.id.in_(jobs))
    rows = session.execute(query).all() if jobs else ()
    diagnoses, tests = {row[0]: row[1] for row in rows}, {row.key: row.test for row in rows}
    for topic, variants in changed.items():
        items, kind = [], KINDS.get(topic)
        for variant in variants[:most]:
            one, then = current[variant], past.get(variant)
            raised = (
                flag
                for flag in flagged.get(variant.test_key, ())
                if Variant.of(flag) == variant and flag.kind.accepts in _EXPLAINS.get(topic, ())
            )
            flag, was = next(raised, None), " and ".join(_PHRASES[kind] for kind in _kinds(then))
            cause = f"{was} on {then.build}" if then else ""
            if kind:
                cause = diagnoses.get(one.job) or (flag.kind if flag else kind).sentence
            items.append(
                _of_test(
                    variant,
                    tests,
                    flag,
                    cause=cause,
                    at=one.at,
                    page=urls.history(variant.test_key, variant.place),
                    build=one.build,
                    before=then.build if then and then.build != one.build else None,
                )
            )
        more, shows = urls.worse({"since": f"{since:%Y-%m-%d}"}), "what got worse or better"
        if kind:
            more, shows = urls.catalogue({"standing": kind}), f"all tests: {kind.label.lower()}"
        yield TopicNews(topic, len(variants), items, more, shows)


def _changed(current: Standings, past: Standings) -> dict[Topic, list[Variant]]:
    """Return the variants of each topic; the one that ran last comes first."""
    changed: dict[Topic, list[Variant]] = {topic: [] for topic in (*KINDS, Topic.fixed)}
    for variant in sorted(current, key=lambda one: current[one].at, reverse=True):
        now, then = _kinds(current[variant]), _kinds(past.get(variant))
        for topic, kind in KINDS.items():
            if kind in now and kind not in then:
                changed[topic].append(variant)
        if then and not now:
            changed[Topic.fixed].append(variant)
    return changed


def _kinds(one: Standing | None) -> list[Kind]:
    """Return the kinds of a standing; one that is red by hangs or crashes alone is lost."""
    if one is None:
        return []
    is_lost = one.lost and not (one.wrong or one.false_alarm)
    hidden = Kind.red if is_lost else None
    return [kind for kind in KINDS.values() if getattr(one, kind) and kind is not hidden]


def _gained(
    builds: Sequence[BuildRecord],
    current: Standings,
    past: Standings,
    since: datetime,
    most: int,
) -> TopicNews:
    """Return the builds that had no results before, the latest first; `builds` are in order."""
    # the job that was submitted first may end after others
    known = {one.build for one in past.values()}
    new = sorted(
        (build.began_at, place)
        for place, build in enumerate(builds)
        if build.began_at and build.began_at > since and build.name not in known
    )
    items = [
        NewsItem(
            name=build.name,
            cause=(f"commit {build.commit[:12]}: " if build.commit else "")
            + _results(current, build.name),
            at=at,
            page=urls.jobs({"build": build.name}),
            build=build.name,
            before=builds[place - 1].name if place else None,
            branch=build.branch,
        )
        for at, place in new[::-1][:most]
        for build in (builds[place],)
    ]
    return TopicNews(Topic.gained, len(new), items, urls.matrix(), "the matrix")


def _results(current: Standings, build: str) -> str:
    """Return the results of the tests that no newer build has run, in words."""
    on_it = {variant: one for variant, one in current.items() if one.build == build}
    ran = len({variant.test_key for variant in on_it})
    if not ran:
        return "all of its tests ran on a newer build since"
    numbers = ((kind, len(standings.of_kind(on_it, kind))) for kind in KINDS.values())
    parts = ", ".join(f"{number:,} {_PHRASES[kind]}" for kind, number in numbers if number)
    return f"{parts or 'none hollow or red'} of {ran:,} test{'s' * (ran != 1)}"


def _ending(session: Session, since: datetime, now: datetime, most: int) -> TopicNews:
    """Return the acknowledgements and waivers that came within a day of their end."""
    start, end = max(now, since + ENDS_WITHIN), now + ENDS_WITHIN
    accepted = flags.acknowledged(session, now=start, until=end, limit=MOST_READ)
    tests = test_list.specs(session, {flag.test_key for flag in accepted})
    items = [
        _of_flag(one, tests, f"acknowledged by {one.owner}: {one.reason}", one.expires_at or end)
        for one in accepted
    ]
    more = urls.waivers({"state": WaiverState.active})
    items += [
        NewsItem("Waiver", waiver.words, waiver.expires_at, more, test_key=waiver.test)
        for waiver in waivers.ending(session, now=start, until=end, limit=MOST_READ)
    ]
    items.sort(key=lambda item: item.at)
    return TopicNews(Topic.ending, len(items), items[:most], more, "all that is accepted")


def _yours(session: Session, who: Principal, since: datetime, most: int) -> TopicNews:
    """Return the flags of a reader that others have changed, the latest first."""
    changed = flags.changed_by_others(session, who.name, who.actor, since, MOST_READ)
    tests = test_list.specs(session, {flag.test_key for flag, _ in changed[:most]})
    items = []
    for flag, change in changed[:most]:
        by = "" if change.actor == BACKGROUND else f" by {people.name_of(session, change.actor)}"
        reason = f": {change.reason}" if change.reason else ""
        items.append(_of_flag(flag, tests, f"{change.what}{by}{reason}", change.at))
    more = urls.flags({"owner": who.name, "state": "any"})
    return TopicNews(Topic.yours, len(changed), items, more, "all your flags")


def _of_flag(flag: FlagRow, tests: _Tests, cause: str, at: datetime) -> NewsItem:
    more = {"cause": f"{flag.kind.label}, {cause}", "page": urls.flag(flag.id)}
    return _of_test(Variant.of(flag), tests, flag, at=at, build=flag.build, **more)


def _of_test(variant: Variant, tests: _Tests, flag: FlagRow | None, **others: Any) -> NewsItem:
    """Return a change of a test; flag: the one that explains it, or that it is about."""
    test = tests[variant.test_key]
    name = test_specs.name_of(str(test.get("kernel")), test)
    form = f"{urls.flag(flag.id)}#change" if flag and flag.state in OPEN else None
    return NewsItem(name=name, acknowledge=form, canonical=test, **asdict(variant), **others)
