"""Read model of the list of waivers, in force and over, and of acknowledged flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.selections import KERNEL
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_rows import shape_of, tolerance_of
from gonogo_dashboards.kit.ranges import Choice
from gonogo_dashboards.tests.active_waivers import MAX_FLAGS, about
from gonogo_service.flags import store as flags
from gonogo_service.flags.model import FlagRow
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.tests import test_list
from gonogo_service.waivers.api import RESOURCE
from gonogo_service.waivers.model import WaiverRow
from gonogo_service.waivers.noun import WaiverState


@dataclass(frozen=True)
class WaiverLine:
    """A waiver or an acknowledged flag: what it accepts, who asked for it, why, and until when."""

    id: str
    state: str
    state_words: str
    sentence: str
    test_url: str | None
    test_words: str
    """The test that it names by its key; "" for none."""
    flag_url: str | None
    about: str
    """Tests by name, labels and builds; its classes where they aren't the default."""
    owner: str
    reason: str
    expires_at: str
    ends: str
    """ "in 3 d", or when it ended and who ended it."""
    end_url: str | None
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
        tuple(_of_flag(flag, specs.get(flag.test_key), now) for flag in accepted),
        tuple(_line(waiver, specs.get(waiver.test or ""), now) for waiver in page.items),
        chosen,
        tuple(
            Choice(value, label, urls.waivers({"state": value}), value == chosen)
            for value, label in labels.items()
        ),
        page.next,
        urls.waivers({"state": chosen}, cursor=page.next) if page.next else None,
        timestamp(now),
    )


def _of_flag(flag: FlagRow, test: Mapping[str, object] | None, now: datetime) -> WaiverLine:
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
        end_url=None,
        created_at=timestamp(flag.updated_at),
    )


def _test_words(test: Mapping[str, object] | None) -> str:
    if test is None:
        return ""
    return f"{test.get('kernel', KERNEL)} {shape_of(test)}, {tolerance_of(test)}"


def _line(waiver: WaiverRow, test: Mapping[str, object] | None, now: datetime) -> WaiverLine:
    state = waiver.state_at(now)
    active = state is WaiverState.active
    ends = words.until(waiver.expires_at, now) if active else words.since(waiver.expires_at, now)
    if waiver.ended_at is not None:
        ends = f"{words.since(waiver.ended_at, now)}, by {waiver.ended_by}"
    return from_object(
        WaiverLine,
        waiver,
        state=state.value,
        state_words=state.label,
        sentence=state.sentence,
        test_url=urls.history(waiver.test) if waiver.test else None,
        test_words=_test_words(test),
        flag_url=None,
        about=about(waiver),
        expires_at=timestamp(waiver.ended_at or waiver.expires_at),
        ends=ends,
        end_url=urls.end_waiver(waiver.id) if active else None,
        created_at=timestamp(waiver.created_at),
    )
