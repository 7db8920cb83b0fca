"""Changes since a reader was here: the overview's panel and the API's answer. Bounded reads.

How tests stand now and stood then are two readings of gonogo_service.tests.standings: a test is
newly hollow where the overview's number counts it and did not then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from sqlalchemy import select
from sqlalchemy.orm import Session, defer

from gonogo import urls
from gonogo.flakiness.flag_kinds import Accepted
from gonogo.spec.described import Described
from gonogo.spec.executors import EMULATOR
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Verdict
from gonogo_service.builds.model import BuildRow
from gonogo_service.flags import store as flags
from gonogo_service.flags.model import OPEN, FlagChangeRow, FlagRow
from gonogo_service.flags.noun import FlagState
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.dialect import upsert
from gonogo_service.kit.database.ids import floor, made_at
from gonogo_service.kit.database.records import Documented
from gonogo_service.kit.principals import Principal
from gonogo_service.overview.model import SeenRow
from gonogo_service.tests import matrices, standings, test_specs
from gonogo_service.tests.matrices import BuildRecord
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.standings import Kind, Standings
from gonogo_service.tests.variants import Variant
from gonogo_service.waivers.model import WaiverRow
from gonogo_service.waivers.noun import WaiverState

FIRST_VISIT = timedelta(days=1)
"""How far back a reader looks who was never here."""
ENDS_WITHIN = timedelta(days=1)
SHA_DIGITS = 10


class Topic(Described):
    """A kind of news, in the order of the page."""

    hollow = "hollow", "Tests that became hollow.", "Newly hollow", Verdict.pass_by_tolerance
    red = "red", "Tests that became red.", "Newly red", Verdict.fail
    lost = "lost", "Tests that met a crash, a hang or an error.", "Newly lost", Verdict.error
    fixed = (
        "fixed",
        "Tests that were hollow, red or lost, and are none now.",
        "Fixed",
        Verdict.pass_,
    )
    gained = "gained", "Builds of the branch that ran for the first time.", "New builds", "none"
    ending = "ending", "Acknowledgements and waivers that end within a day.", "Ends today", "none"
    yours = "yours", "Flags that you own, changed by others.", "Yours", "none"


KINDS = {Topic.hollow: Kind.hollow, Topic.red: Kind.red, Topic.lost: Kind.lost}
"""The topics of tests that stand worse than before."""
_EXPLAINS = {
    Topic.hollow: {Accepted.hollow},
    Topic.red: {Accepted.red, Accepted.false_alarms},
    Topic.lost: {Accepted.hangs, Accepted.crashes},
}
"""The flags that belong to a topic, by what they accept."""


@dataclass(frozen=True)
class NewsLinks:
    """The page of a change, and what to do about it; null where that can't be done."""

    page: str
    compare: str | None = None
    acknowledge: str | None = None
    bisect: str | None = None


@dataclass(frozen=True)
class NewsItem:
    """A change of a test on one branch and kind of board, of a build, a flag or a waiver."""

    name: str
    """The kernel's, the build's or the waiver's"""
    cause: str
    at: datetime
    """When it happened; of what ends: its end"""
    links: NewsLinks
    build: str | None = None
    before: str | None = None
    """The build on which it was different"""
    test_key: str | None = None
    canonical: Annotated[dict[str, Any] | None, Documented(TestSpec | None)] = None
    """The test in its canonical form"""
    branch: str | None = None
    arch: str | None = None
    board: str | None = None


@dataclass(frozen=True)
class TopicNews:
    """The news of a topic: their number, the latest of them, and where all are."""

    topic: Topic
    label: str
    sentence: str
    count: int
    items: list[NewsItem]
    more: str


@dataclass(frozen=True)
class News:
    """The changes since a reader was here; without `topics` nothing did."""

    since: datetime
    until: datetime
    """The moment to send as seen: what happens later is news again"""
    first: bool
    """The reader was never here, so that `since` is a day ago"""
    branch: str | None
    """The main branch, whose new builds are news"""
    topics: list[TopicNews]


def see(session: Session, who: Principal, at: datetime) -> None:
    """Note that a reader has seen the news until then."""
    upsert(session, SeenRow, [{"reader": who.actor, "seen_at": at}])


def read(
    session: Session,
    who: Principal,
    builds: Collection[BuildRecord],
    current: Standings,
    memory: standings.Memory,
    now: datetime,
    most: int,
) -> News:
    """Return the news of a reader, the latest `most` of each topic.

    builds: matrices.builds, in their order; current: how tests stand now. It updates `memory`.
    """
    row = session.get(SeenRow, who.actor)
    # a full hour, so that the readers of an hour share a past
    since = row.seen_at if row else now.replace(minute=0, second=0, microsecond=0) - FIRST_VISIT
    past, branch = standings.as_of(session, memory, since), matrices.main_branch(builds)
    topics = [
        *_standing(session, current, past, since, most),
        _gained(session, [one for one in builds if one.branch == branch], current, since, most),
        _ending(session, now, most),
        _yours(session, who, since, most),
    ]
    # a full minute where nothing happened in it, so that the page stays the same meanwhile
    happened = (
        one.at for topic in topics if topic.topic is not Topic.ending for one in topic.items
    )
    latest = max(happened, default=since) + timedelta(milliseconds=1)
    until = min(now, max(now.replace(second=0, microsecond=0), latest))
    return News(since, until, row is None, branch, [topic for topic in topics if topic.count])


def _standing(
    session: Session, current: Standings, past: Standings, since: datetime, most: int
) -> Iterator[TopicNews]:
    """Yield the tests that became hollow, red or lost, and those that were and aren't."""
    now = {topic: standings.of_kind(current, kind) for topic, kind in KINDS.items()}
    then = {topic: standings.of_kind(past, kind) for topic, kind in KINDS.items()}
    changed = {
        topic: _latest(current, now[topic] - then[topic], current, [kind])
        for topic, kind in KINDS.items()
    }
    fixed = set[str]().union(*then.values()) - set[str]().union(*now.values())
    changed[Topic.fixed] = _latest(current, fixed, past, KINDS.values())
    shown = [variant for variants in changed.values() for variant in variants[:most]]
    flagged = flags.open_of_tests(session, {variant.test_key for variant in shown})
    jobs = [current[variant].job for variant in shown]
    of_jobs = select(JobRow.id, TestSpecRow.test, JobRow.diagnosis_words).join(JobRow.spec)
    rows = session.execute(of_jobs.where(JobRow.id.in_(jobs))) if jobs else ()
    test_and_diagnosis = {job: (test, diagnosis) for job, test, diagnosis in rows}

    def change(topic: Topic, variant: Variant) -> NewsItem:
        one, before = current[variant], past.get(variant)
        other = before.build if before is not None and before.build != one.build else None
        raised = [
            flag
            for flag in flagged.get(variant.test_key, ())
            if Variant.of(flag) == variant and flag.kind.accepts in _EXPLAINS.get(topic, ())
        ]
        test, diagnosis = test_and_diagnosis[one.job]
        cause = diagnosis or next((flag.kind.sentence for flag in raised), "")
        if topic is Topic.fixed:
            was = [
                kind.label.lower() for kind in KINDS.values() if before and getattr(before, kind)
            ]
            cause = f"was {' and '.join(was)} on {before.build}" if before and was else ""
        bisect = {"test": variant.test_key, "branch": variant.branch, "first": other}
        can_bisect = other and variant.branch != EMULATOR
        return NewsItem(
            name=test_specs.name_of(str(test.get("kernel")), test),
            cause=cause or (KINDS[topic].sentence if topic in KINDS else ""),
            at=one.at,
            links=NewsLinks(
                urls.history(variant.test_key, variant.place),
                urls.compare(other, one.build) if other else None,
                _acknowledge(raised[0]) if raised else None,
                urls.form(urls.NEW_BISECTION, {**bisect, "last": one.build})
                if can_bisect
                else None,
            ),
            build=one.build,
            before=other,
            test_key=variant.test_key,
            canonical=test,
            branch=variant.branch,
            arch=variant.arch,
            board=variant.board,
        )

    for topic, variants in changed.items():
        more = urls.worse({"since": f"{since:%Y-%m-%d}"})
        if topic in KINDS:
            more = urls.catalogue({"standing": KINDS[topic]})
        yield _news(topic, len(variants), (change(topic, one) for one in variants[:most]), more)


def _latest(
    current: Standings, keys: Collection[str], having: Standings, kinds: Collection[Kind]
) -> list[Variant]:
    """Return a variant of each test, of those that have a kind; the one that ran last first."""
    of_kinds = {
        one for one, standing in having.items() if any(getattr(standing, kind) for kind in kinds)
    }
    candidates = (one for one in of_kinds & current.keys() if one.test_key in keys)
    newest_last = sorted(candidates, key=lambda one: (current[one].at, one))
    latest = {variant.test_key: variant for variant in newest_last}
    return sorted(latest.values(), key=lambda one: current[one].at, reverse=True)


def _gained(
    session: Session,
    builds: Sequence[BuildRecord],
    current: Standings,
    since: datetime,
    most: int,
) -> TopicNews:
    """Return the builds of a branch, in its order, whose first job is new."""
    start = floor(since)
    new = [place for place, build in enumerate(builds) if build.first_job >= start][::-1]
    names = [builds[place].name for place in new[:most]]
    query = select(BuildRow.name, BuildRow.commit).where(BuildRow.name.in_(names))
    commits = dict(session.execute(query).all()) if names else {}
    items = []
    for place in new[:most]:
        build, before = builds[place], builds[place - 1].name if place else None
        on_it = {variant: one for variant, one in current.items() if one.build == build.name}
        kinds = ((kind, len(standings.of_kind(on_it, kind))) for kind in KINDS.values())
        parts = ", ".join(f"{number} {kind.label.lower()}" for kind, number in kinds if number)
        ran = len(standings.by_test(on_it))
        tests = f"{parts or 'none hollow or red'} of {ran} test{'s' * (ran != 1)}"
        tests = tests if ran else "all of its tests ran on a newer build since, or wait"
        commit = commits.get(build.name)
        items.append(
            NewsItem(
                name=build.name,
                cause=f"commit {commit[:SHA_DIGITS]}: {tests}" if commit else tests,
                at=made_at(build.first_job),
                links=NewsLinks(
                    urls.jobs({"build": build.name}),
                    urls.compare(before, build.name) if before else None,
                ),
                build=build.name,
                before=before,
                branch=build.branch,
            )
        )
    return _news(Topic.gained, len(new), items, urls.matrix())


def _ending(session: Session, now: datetime, most: int) -> TopicNews:
    """Return the acknowledgements and waivers that end within a day, the first to end first."""
    end = now + ENDS_WITHIN
    acknowledged = select(FlagRow).where(
        FlagRow.state == FlagState.acknowledged, FlagRow.expires_at.between(now, end)
    )
    flag_rows = session.scalars(acknowledged.options(defer(FlagRow.evidence)))
    items = [
        _of_flag(flag, f"acknowledged by {flag.owner}: {flag.reason}", flag.expires_at)
        for flag in flag_rows
        if flag.expires_at
    ]
    waivers = select(WaiverRow).where(
        WaiverRow.is_at(WaiverState.active, now), WaiverRow.expires_at <= end
    )
    items += [
        NewsItem(
            name="Waiver",
            cause=waiver.words,
            at=waiver.expires_at,
            links=NewsLinks(urls.waivers({"state": WaiverState.active})),
            test_key=waiver.test,
        )
        for waiver in session.scalars(waivers)
    ]
    items.sort(key=lambda change: change.at)
    return _news(Topic.ending, len(items), items[:most], urls.waivers())


def _yours(session: Session, who: Principal, since: datetime, most: int) -> TopicNews:
    """Return the flags of a reader that others have changed, the latest first."""
    change = FlagChangeRow
    changes = (
        select(FlagRow, change)
        .join(change, change.flag_id == FlagRow.id)
        .where(FlagRow.owner == who.name, change.at > since, change.actor != who.actor)
        .where(change.what != "opened")  # nobody owned it then
        .order_by(change.at)
        .options(defer(FlagRow.evidence))
    )
    latest = {flag.id: (flag, row) for flag, row in session.execute(changes)}
    items = [
        _of_flag(flag, f"{row.what}{f': {row.reason}' if row.reason else ''}", row.at)
        for flag, row in latest.values()
    ]
    items.sort(key=lambda change: change.at, reverse=True)
    more = urls.flags({"owner": who.name, "state": "any"})
    return _news(Topic.yours, len(items), items[:most], more)


def _of_flag(flag: FlagRow, cause: str, at: datetime) -> NewsItem:
    return NewsItem(
        name=f"{flag.kernel}, {flag.kind.label.lower()}",
        cause=cause,
        at=at,
        links=NewsLinks(urls.flag(flag.id), acknowledge=_acknowledge(flag)),
        build=flag.build,
        test_key=flag.test_key,
        branch=flag.branch,
        arch=flag.arch,
        board=flag.board,
    )


def _acknowledge(flag: FlagRow) -> str | None:
    """Return the form that acknowledges a flag; None where somebody has, or it is resolved."""
    return f"{urls.flag(flag.id)}#change" if flag.state in OPEN else None


def _news(topic: Topic, count: int, items: Iterable[NewsItem], more: str) -> TopicNews:
    return TopicNews(topic, topic.label, topic.sentence, count, list(items), more)
