"""Read models of waivers and acknowledged flags: the list of all, and those of one test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.classes import Class
from gonogo.flakiness.waivers import RED_OR_HOLLOW, day
from gonogo.spec.selections import KERNEL
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_rows import shape_of, tolerance_of
from gonogo_dashboards.kit.ranges import Choice
from gonogo_service.flags import store as flags
from gonogo_service.flags.model import FlagRow
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.tests import test_list
from gonogo_service.waivers import store as waivers
from gonogo_service.waivers.api import RESOURCE
from gonogo_service.waivers.model import WaiverRow
from gonogo_service.waivers.noun import WaiverState

MAX_FLAGS = 200
ADD = "gonogo waivers create --test {key} --days 14 --reason 'why'"
"""The command that adds a waiver for a test."""


@dataclass(frozen=True)
class WaiverEntry:
    """A waiver of a test in force, or a flag whose acknowledgement is."""

    id: str
    words: str
    """ "waived until 2026-12-01 by kim: the race of ticket 12"."""
    about: str
    """Tests, labels and builds that it also covers; its classes where they aren't the default."""
    expires_at: str
    left: str
    """ "in 3 d"."""
    end_url: str | None
    again: Mapping[str, Any] | None
    """The request that creates it again, which undoes its end; None for a flag."""
    flag_url: str | None = None


@dataclass(frozen=True, kw_only=True)
class WaiverLine:
    """A waiver or an acknowledged flag: what it accepts, who asked for it, why, and until when."""

    id: str
    state: str
    state_words: str
    sentence: str
    test_url: str | None
    test_words: str
    """The test that it names by its key; "" for none."""
    flag_url: str | None = None
    about: str
    owner: str
    reason: str
    expires_at: str
    ends: str
    """ "in 3 d", or when it ended and who ended it."""
    end_url: str | None = None
    """The endpoint that ends it; None where it is over."""
    created_at: str


@dataclass(frozen=True)
class WaiversView:
    """A page of the list, the newest first."""

    acknowledged: tuple[WaiverLine, ...]
    """The flags whose acknowledgement is in force, on the first page; the first to end first."""
    items: tuple[WaiverLine, ...]
    state: str
    states: tuple[Choice, ...]
    next: str | None
    next_url: str | None
    at: str | None


def waivers_of_test(session: Session, key: str, now: datetime) -> tuple[WaiverEntry, ...]:
    """Return the waivers in force for a test, then its acknowledged flags, by their end."""
    accepted = flags.acknowledged(session, now=now, test=key, limit=MAX_FLAGS)
    return (
        *(_waiver_of_test(waiver, now) for waiver in waivers.of_test(session, key, now=now)),
        *(_flag_of_test(flag, now) for flag in accepted),
    )


def _waiver_of_test(waiver: WaiverRow, now: datetime) -> WaiverEntry:
    end = timestamp(waiver.expires_at)
    fields = ("test", "names", "labels", "builds", "classes", "owner", "reason")
    again = {name: getattr(waiver, name) for name in fields} | {"expires": end}
    left, end_url = words.until(waiver.expires_at, now), urls.end_waiver(waiver.id)
    return WaiverEntry(waiver.id, waiver.words, about(waiver), end, left, end_url, again)


def _flag_of_test(flag: FlagRow, now: datetime) -> WaiverEntry:
    kind, end = flag.kind.label, flag.expires_at or now
    text = f"{kind}: acknowledged until {day(end)} by {flag.owner}: {flag.reason}"
    effect, left = (flag.effect or "").rstrip("."), words.until(end, now)
    return WaiverEntry(flag.id, text, effect, timestamp(end), left, None, None, urls.flag(flag.id))


def about(waiver: WaiverRow) -> str:
    """Return the names, labels and builds that a waiver covers, and classes if not the default."""
    labels = [f"{name}={value}" for name, value in waiver.labels.items()]
    parts = [f"tests {', '.join(waiver.names)}"] if waiver.names else []
    parts += [f"jobs with {', '.join(labels)}"] if labels else []
    parts += [f"builds {', '.join(waiver.builds)}"] if waiver.builds else []
    if waiver.classes != list(RED_OR_HOLLOW):
        parts.append(", ".join(words.inline(Class(kind).label) for kind in waiver.classes))
    return "; ".join(parts)


def listed(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> WaiversView:
    """Return a page of waivers, of one state if it is given. Raises BadCursor."""
    given = filters.get("state", "")
    state = WaiverState(given) if given in tuple(WaiverState) else None
    page = RESOURCE.page(session, state=state, limit=limit, cursor=cursor)
    shown = cursor is None and state in (None, WaiverState.active)
    accepted = flags.acknowledged(session, now=now, limit=MAX_FLAGS) if shown else []
    keys = {waiver.test for waiver in page.items if waiver.test}
    specs = test_list.specs(session, keys | {flag.test_key for flag in accepted})
    chosen = "" if state is None else state.value
    labels = {"": "All", **{known.value: known.label for known in WaiverState}}
    return WaiversView(
        tuple(_flag_line(flag, specs.get(flag.test_key), now) for flag in accepted),
        tuple(_waiver_line(waiver, specs.get(waiver.test or ""), now) for waiver in page.items),
        chosen,
        tuple(
            Choice(value, label, urls.waivers({"state": value}), value == chosen)
            for value, label in labels.items()
        ),
        page.next,
        urls.waivers({"state": chosen}, cursor=page.next) if page.next else None,
        timestamp(now),
    )


def _flag_line(flag: FlagRow, test: Mapping[str, object] | None, now: datetime) -> WaiverLine:
    end = flag.expires_at or now
    return WaiverLine(
        id=flag.id,
        state=flag.state.value,
        state_words=flag.state.label,
        sentence=flag.effect or "",
        test_url=urls.history(flag.test_key),
        test_words=_test_words(test),
        flag_url=urls.flag(flag.id),
        about=f"{flag.kind.label}. {flag.effect}",
        owner=flag.owner or "",
        reason=flag.reason or "",
        expires_at=timestamp(end),
        ends=words.until(end, now),
        created_at=timestamp(flag.updated_at),
    )


def _waiver_line(waiver: WaiverRow, test: Mapping[str, object] | None, now: datetime) -> WaiverLine:
    state, end = waiver.state_at(now), waiver.expires_at
    active = state is WaiverState.active
    ends = words.until(end, now) if active else words.since(end, now)
    if waiver.ended_at is not None:
        ends = f"{words.since(waiver.ended_at, now)}, by {waiver.ended_by}"
    return WaiverLine(
        id=waiver.id,
        state=state.value,
        state_words=state.label,
        sentence=state.sentence,
        test_url=urls.history(waiver.test) if waiver.test else None,
        test_words=_test_words(test),
        about=about(waiver),
        owner=waiver.owner,
        reason=waiver.reason,
        expires_at=timestamp(waiver.ended_at or end),
        ends=ends,
        end_url=urls.end_waiver(waiver.id) if active else None,
        created_at=timestamp(waiver.created_at),
    )


def _test_words(test: Mapping[str, object] | None) -> str:
    if test is None:
        return ""
    return f"{test.get('kernel', KERNEL)} {shape_of(test)}, {tolerance_of(test)}"
