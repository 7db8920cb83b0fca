"""Lines of the overview: what needs attention, open flags, last night's runs, queues and rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gonogo import urls
from gonogo_dashboards.devices.fleet import Fleet
from gonogo_dashboards.flags import flag_page
from gonogo_dashboards.kit import ranges, words
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.overview.numbers import NumberLine
from gonogo_service.devices.periods import SeedRate
from gonogo_service.flags.attention import Night, OpenFlags
from gonogo_service.jobs.queue_estimate import QueueStatus
from gonogo_service.kit.database.records import from_object
from gonogo_service.tests.variants import Variant

RED_SHOWN = 8
HOLLOW = ("passes_by_tolerance", "fix_masked")


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

    kind: str
    kind_words: str
    verdict: str
    count: int
    gone: int
    url: str
    items: tuple[Mapping[str, Any], ...]
    """Those of flag_page.line, with a `label` among the flags of the page, and whether `gone`."""


@dataclass(frozen=True)
class RedLine:
    """A red job of last night's runs.

    `new`: the test wasn't red the last time; `before` is its verdict then.
    """

    name: str
    job_url: str
    suite: str
    run_url: str
    build: str
    verdict: str
    new: bool
    before: str | None
    words: str


@dataclass(frozen=True)
class NightView:
    """The runs of the last 24 hours: their number, new failures, and known failures."""

    runs: int
    ended: int
    runs_url: str
    new: int
    old: int
    whole: bool
    """False: there are more than were counted."""
    items: tuple[RedLine, ...]
    words: str


def flag_kinds(kinds: Sequence[OpenFlags], entries: Mapping[str, str]) -> tuple[FlagKindLine, ...]:
    """Return the open flags by kind; entries: suites' names for their tests."""
    shown = [(shown_flag, shown_flag.flag) for kind in kinds for shown_flag in kind.latest]
    listed = [
        Listed(shown_flag.test, entries.get(flag.test_key), place=Variant.of(flag).place)
        for shown_flag, flag in shown
    ]
    items: dict[str, list[Mapping[str, Any]]] = {}
    for (shown_flag, flag), label in zip(shown, labels(listed), strict=True):
        entry = entries.get(flag.test_key)
        line = flag_page.line(flag, shown_flag.test, shown_flag.newest_build, entry)
        label = label or f"{flag.kernel} {line['shape']}"
        items.setdefault(flag.kind, []).append({**line, "label": label, "gone": shown_flag.gone})
    return tuple(
        FlagKindLine(
            kind=flags.kind.value,
            kind_words=flags.kind.label,
            verdict=flags.kind.mark,
            count=flags.count,
            gone=flags.gone,
            url=urls.flags({"kind": flags.kind}),
            items=tuple(items.get(flags.kind, ())),
        )
        for flags in kinds
    )


def last_night(night: Night) -> NightView:
    """Return the runs of the last 24 hours."""
    lines = [
        from_object(
            RedLine,
            job,
            job_url=urls.job(job.job),
            run_url=urls.run(job.run),
            words=job.words or "",
        )
        for job in night.red
        if job.new
    ]
    new, old = len(lines), len(night.red) - len(lines)
    text = "No suite ran in the last 24 hours"
    if night.runs:
        least = "" if night.whole else "at least "
        text = f"{words.count(night.runs, 'run')} in the last 24 hours, {night.ended} finished:"
        text += f" {least}{words.count(new, 'new failure')}"
        text += f", {old} that failed the last time too" if old else ""
        text += f", {night.suspect} at the edge of rounding (suspect)" if night.suspect else ""
    shown = tuple(lines[:RED_SHOWN])
    return NightView(night.runs, night.ended, urls.runs(), new, old, night.whole, shown, f"{text}.")


def queue_line(status: QueueStatus, now: datetime) -> dict[str, Any]:
    """Return a queue; `age` is that of its oldest waiting job, "" for none."""
    oldest = status.oldest_at
    age = "" if oldest is None else words.duration(max(0.0, (now - oldest).total_seconds()))
    url = urls.jobs({"state": "queued"})
    return {**vars(status), "stuck": status.stuck, "age": age, "url": url}


def rate_line(name: str, rate: SeedRate) -> dict[str, Any]:
    """Return how many seeds were stored in a window; "now" is the last minute or two."""
    window = "now" if name == "now" else f"last {name}"
    amount, unit = words.pace(rate.per_s)
    # the devices' page shows the load of each in the last hour and the last day
    url = urls.jobs({"state": "running"}) if name == "now" else urls.devices()
    text = f"{window}: {words.number(amount)} seeds/{unit} ({words.count(rate.seeds, 'seed')})"
    counted = {"seeds": rate.seeds, "window_s": rate.window_s, "per_s": rate.per_s}
    return {"name": name, **counted, "amount": amount, "unit": unit, "url": url, "words": text}


def needs(
    flags: Sequence[FlagKindLine],
    night: NightView,
    fleet: Fleet,
    queues: Sequence[Mapping[str, Any]],
    failing: Sequence[str],
    red: NumberLine,
    lost: Mapping[str, int],
) -> tuple[Need, ...]:
    """Return the needs in the order of the page.

    `failing` are webhooks whose messages don't arrive; `lost` are the jobs outside of runs that
    have no result, by verdict.
    """
    hollow = sum(kind.count for kind in flags if kind.kind in HOLLOW)
    other = sum(kind.count for kind in flags) - hollow
    verdict = next(iter(lost)) if len(lost) == 1 else None
    webhook = urls.webhook(failing[0]) if len(failing) == 1 else urls.webhooks()
    of_lost = (
        words.ordered(lost)[0] if lost else "error",
        urls.jobs({"verdict": verdict, ranges.PARAMETER: "1d"}),
    )
    trouble = "error", "#trouble"
    candidates = (
        ("hollow", hollow, ("hollow pass", "hollow passes"), "pass_by_tolerance", "#flagged"),
        ("red", red.value, ("red test",), "fail", red.url),
        ("failures", night.new, ("new failure",), "fail", "#night"),
        ("lost", sum(lost.values()), ("job without a result", "jobs without a result"), *of_lost),
        ("devices", len(fleet.trouble), ("device in trouble", "devices in trouble"), *trouble),
        ("hosts", len(fleet.flagged), ("flagged host",), "suspect", "#trouble"),
        ("queues", sum(queue["stuck"] for queue in queues), ("stuck queue",), "hang", "#stuck"),
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
