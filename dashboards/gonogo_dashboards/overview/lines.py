"""The needs of the overview: open flags, last night's runs, and the sentence where nothing does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gonogo import urls
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.devices.fleet import Fleet
from gonogo_dashboards.flags import flag_page
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.overview.numbers import NumberLine
from gonogo_service.flags.attention import OpenFlags
from gonogo_service.jobs.queue_estimate import QueueStatus
from gonogo_service.overview.news import News
from gonogo_service.suites.model import RunRow
from gonogo_service.suites.run_changes import ChangedJob, JobChange, RunChanges
from gonogo_service.tests.standings import Kind
from gonogo_service.tests.variants import Variant

MAX_RUNS = 200
"""The newest runs of the last day that are read."""
HOLLOW = FlagKind.passes_by_tolerance, FlagKind.fix_masked


@dataclass(frozen=True)
class Need:
    """Something that needs attention, in a few words.

    `url` leads to the part of the page, or to the list.
    """

    what: str
    count: int
    words: str
    verdict: str
    url: str


@dataclass(frozen=True)
class FlagKindLine:
    """The flags of one kind that nobody has acknowledged; `items` are the latest of them.

    The first `items` are still on the newest build. `gone` is the number of all that aren't.
    """

    kind: FlagKind
    count: int
    gone: int
    items: tuple[Mapping[str, Any], ...]
    """Lines of flag_page.line, with a `label` among the flags of the page, and whether `gone`."""


@dataclass(frozen=True)
class NightView:
    """The runs of the last 24 hours: their number, new failures, and that of known failures."""

    runs: int
    ended: int
    new: tuple[ChangedJob, ...]
    old: int
    words: str


def flag_kinds(kinds: Sequence[OpenFlags], entries: Mapping[str, str]) -> tuple[FlagKindLine, ...]:
    """Return the open flags by kind; entries: suites' names for their tests."""
    shown = [one for kind in kinds for one in kind.latest]
    listed = [
        Listed(one.test, entries.get(one.flag.test_key), place=Variant.of(one.flag).place)
        for one in shown
    ]
    items: dict[FlagKind, list[Mapping[str, Any]]] = {}
    for one, label in zip(shown, labels(listed), strict=True):
        flag = one.flag
        line = flag_page.line(flag, one.test, one.newest_build, entries.get(flag.test_key))
        label = label or f"{flag.kernel} {line['shape']}"
        items.setdefault(flag.kind, []).append({**line, "label": label, "gone": one.gone})
    return tuple(
        FlagKindLine(flags.kind, flags.count, flags.gone, tuple(items.get(flags.kind, ())))
        for flags in kinds
    )


def labeled(news: News, entries: Mapping[str, str]) -> News:
    """Return the news with the labels of tests; entries: suites' names for their tests."""
    named = labels(
        [
            Listed(one.canonical, entries.get(one.test_key or ""), place={"board": one.board or ""})
            for topic in news.topics
            for one in topic.items
            if one.canonical
        ]
    )
    names = iter(named)
    topics = [
        replace(
            topic,
            items=[replace(one, name=next(names)) if one.canonical else one for one in topic.items],
        )
        for topic in news.topics
    ]
    return replace(news, topics=topics)


def last_night(read: Sequence[tuple[RunRow, RunChanges]]) -> NightView:
    """Return the runs of the last 24 hours, newly red jobs worst first; MAX_RUNS count at most."""
    runs = [run for run, _ in read[:MAX_RUNS]]
    red = [job for _, changes in read[:MAX_RUNS] for job in changes.jobs if job.change.is_red]
    new = [job for job in red if job.change is JobChange.newly_red]
    ended, old = sum(run.state.final for run in runs), len(red) - len(new)
    suspect = sum(run.job_counts.get(Verdict.suspect, 0) for run in runs)
    text = "No suite ran in the last 24 hours"
    if runs:
        least = "" if len(read) <= MAX_RUNS else "at least "
        text = f"{words.count(len(runs), 'run')} in the last 24 hours, {ended} finished:"
        text += f" {least}{words.count(len(new), 'new failure')}"
        text += f", {old} that failed in the run before too" if old else ""
        text += f", {suspect} at the edge of rounding (suspect)" if suspect else ""
    new.sort(key=lambda job: job.verdict.rank)
    return NightView(len(runs), ended, tuple(new), old, f"{text}.")


def needs(
    flags: Sequence[FlagKindLine],
    night: NightView,
    fleet: Fleet,
    queues: Sequence[QueueStatus],
    failing: Sequence[str],
    red: NumberLine,
    lost: int,
) -> tuple[Need, ...]:
    """Return the needs in the order of the page.

    `failing` are webhooks whose messages don't arrive; `lost` is the number of tests with crashes,
    hangs or errors.
    """
    hollow = sum(kind.count for kind in flags if kind.kind in HOLLOW)
    other = sum(kind.count for kind in flags) - hollow
    webhook = urls.webhook(failing[0]) if len(failing) == 1 else urls.webhooks()
    nouns = tuple(f"{tests} with {Kind.lost.label.lower()}" for tests in ("test", "tests"))
    candidates = (
        ("hollow", hollow, ("new hollow flag",), "pass_by_tolerance", "#flagged"),
        ("red", red.value, ("red test",), "fail", red.url),
        ("failures", len(night.new), ("new failure",), "fail", "#night"),
        ("lost", lost, nouns, Kind.lost.mark, urls.catalogue({"standing": Kind.lost})),
        (
            "devices",
            len(fleet.trouble),
            ("device in trouble", "devices in trouble"),
            "error",
            "#fleet",
        ),
        ("hosts", len(fleet.flagged), ("flagged host",), "suspect", "#fleet"),
        ("queues", sum(queue.stuck for queue in queues), ("stuck queue",), "hang", "#speed"),
        ("webhooks", len(failing), ("failing webhook",), "error", webhook),
        ("flags", other, ("other new flag",), "suspect", "#flagged"),
    )
    return tuple(
        Need(what, count, words.count(count, *noun), verdict, url)
        for what, count, noun, verdict, url in candidates
        if count
    )


def calm(night: NightView, fleet: Fleet, acknowledged: int, known: Sequence[str]) -> str:
    """Return why nothing needs attention, and which tests are hollow or flaky nonetheless."""
    parts = ["no new flags", "no new failures in the last 24 hours", "no stuck queues"]
    parts += ["all devices are healthy"] if fleet.cells else []
    text = f"Nothing needs attention: {', '.join(parts[:-1])} and {parts[-1]}."
    if acknowledged:
        are = "is" if acknowledged == 1 else "are"
        text += f" {words.count(acknowledged, 'flag')} {are} acknowledged."
    text += f" Among the tests of the last 30 days: {', '.join(known)}." if known else ""
    text += f" {words.count(night.old, 'test')} failed again as before." if night.old else ""
    return text
