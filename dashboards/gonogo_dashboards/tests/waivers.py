"""Read models of waivers and acknowledged flags: the list of all, and those of one test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.waivers import day
from gonogo.spec.selections import KERNEL
from gonogo_dashboards.kit.list_rows import shape_of, tolerance_of
from gonogo_dashboards.kit.ranges import Choice
from gonogo_service.flags import attention as flags
from gonogo_service.flags.model import FlagRow
from gonogo_service.flags.noun import ACKNOWLEDGED_FOR
from gonogo_service.kit import rows
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.tests import test_list
from gonogo_service.waivers import store as waivers
from gonogo_service.waivers.api import RESOURCE
from gonogo_service.waivers.model import WaiverRow
from gonogo_service.waivers.noun import WaiverState

MAX_FLAGS = 200
EXTENDED_BY: timedelta = ACKNOWLEDGED_FOR
"""By how much one click extends a waiver or an acknowledgement."""
ADD = "gonogo waivers create --test {key} --days 14 --reason 'why'"
"""The command that adds a waiver for a test."""
_MORE: Mapping[str, Any] = {
    "words": (str, "Until when, by whom and why, in a phrase"),
    "test_words": (str, 'The test that it names by its key; "" for none'),
}
WAIVER_LINE: Any = rows.extended_answer(
    WaiverRow,
    "WaiverLine",
    state=WaiverState,
    effect=str,
    about=(str, "The names, labels and builds that it covers"),
    **_MORE,
)
ACCEPTED_FLAG: Any = rows.extended_answer(
    FlagRow, "AcceptedFlag", without=("evidence",), effect=str | None, **_MORE
)


@dataclass(frozen=True)
class WaiversView:
    """A page of the list, the newest first."""

    acknowledged: tuple[Mapping[str, Any], ...]
    """The flags whose acknowledgement is in force, on the first page; the first to end first."""
    items: tuple[Mapping[str, Any], ...]
    state: str
    states: tuple[Choice, ...]
    next: str | None
    next_url: str | None
    at: str | None


def waivers_of_test(session: Session, key: str, now: datetime) -> dict[str, Any]:
    """Return the waivers in force for a test, and its acknowledged flags, by their end."""
    accepted = flags.acknowledged(session, now=now, test=key, limit=MAX_FLAGS)
    active = waivers.of_test(session, key, now=now)
    return {"active": _waivers(session, active, now), "acknowledged": _flags(session, accepted)}


def listed(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> WaiversView:
    """Return a page of waivers, of one state if it is given. Raises BadCursor."""
    given = filters.get("state", "")
    state = WaiverState(given) if given in tuple(WaiverState) else None
    page = RESOURCE.page(session, state=state, limit=limit, cursor=cursor)
    shown = cursor is None and state in (None, WaiverState.active)
    accepted = flags.acknowledged(session, now=now, limit=MAX_FLAGS) if shown else []
    chosen = "" if state is None else state.value
    labels = {"": "All", **{known.value: known.label for known in WaiverState}}
    return WaiversView(
        _flags(session, accepted),
        _waivers(session, page.items, now),
        chosen,
        tuple(
            Choice(value, label, urls.waivers({"state": value}), value == chosen)
            for value, label in labels.items()
        ),
        page.next,
        urls.waivers({"state": chosen}, cursor=page.next) if page.next else None,
        timestamp(now),
    )


def about(waiver: WaiverRow) -> str:
    """Return the names, labels and builds that a waiver covers."""
    labels = [f"{name}={value}" for name, value in waiver.labels.items()]
    parts = [f"tests {', '.join(waiver.names)}"] if waiver.names else []
    parts += [f"jobs with {', '.join(labels)}"] if labels else []
    parts += [f"builds {', '.join(waiver.builds)}"] if waiver.builds else []
    return "; ".join(parts)


def _waivers(
    session: Session, some: Iterable[WaiverRow], now: datetime
) -> tuple[Mapping[str, Any], ...]:
    specs = test_list.specs(session, {waiver.test for waiver in some if waiver.test})
    return tuple(
        rows.values(
            WAIVER_LINE,
            waiver,
            state=waiver.state_at(now),
            about=about(waiver),
            test_words=_test_words(specs.get(waiver.test or "")),
        )
        for waiver in some
    )


def _flags(session: Session, accepted: Iterable[FlagRow]) -> tuple[Mapping[str, Any], ...]:
    specs = test_list.specs(session, {flag.test_key for flag in accepted})
    return tuple(
        rows.values(
            ACCEPTED_FLAG,
            flag,
            test_words=_test_words(specs.get(flag.test_key)),
            words=f"{flag.kind.label}: acknowledged until {day(flag.expires_at)}"
            f" by {flag.owner}: {flag.reason}",
        )
        for flag in accepted
        if flag.expires_at
    )


def _test_words(test: Mapping[str, object] | None) -> str:
    if test is None:
        return ""
    return f"{test.get('kernel', KERNEL)} {shape_of(test)}, {tolerance_of(test)}"
