"""Read model of the flags' list: by kind, hollow passes first; and the result of a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo_dashboards.flags import flag_page
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_rows import shape_of
from gonogo_dashboards.kit.list_view import ListView, filters_of, list_view
from gonogo_service.flags import attention
from gonogo_service.flags.api import FLAGS
from gonogo_service.flags.model import STATES, FlagRow
from gonogo_service.flags.store import Outcome
from gonogo_service.tests import entry_names, test_list
from gonogo_service.tests.variants import Variant, newest_builds

FILTERS = ("kind", "state", "test", "owner", "build", "job")
ACTIONS: Mapping[str, str] = {
    "acknowledged": "acknowledged",
    "owned": "assigned",
    "resolved": "resolved",
    "open": "reopened",
}
"""The buttons' actions, as the result names them; `owned` sets the owner alone."""
UNDONE = ("acknowledged", "resolved")
"""Actions that reopening undoes."""


@dataclass(frozen=True)
class Refusal:
    """A flag that could not be changed, and why."""

    name: str
    url: str | None
    why: str


@dataclass(frozen=True)
class ChangeResult:
    """The result of a change that the page's form sent."""

    words: str
    refused: tuple[Refusal, ...] = ()
    undo: tuple[str, ...] = ()
    """Flags that can be reopened."""
    problem: str = ""
    """Why nothing changed."""


@dataclass(frozen=True)
class EnteredValues:
    """The values of the form: empty, or what was sent and refused."""

    flags: tuple[str, ...] = ()
    owner: str = ""
    reason: str = ""
    expires: str = ""


@dataclass(frozen=True, kw_only=True)
class FlagsView(ListView):
    """A page of the list; `state` is the shown one: open unless the address has another."""

    counts: tuple[tuple[FlagKind, int], ...]
    """The open flags by kind, in the order of triage"""
    waiting: int
    state: str
    result: ChangeResult | None
    lasts: str = flag_page.UNTIL
    """How long an acknowledgement lasts."""
    entered: EnteredValues

    @property
    def groups(self) -> list[tuple[FlagKind, list[dict[str, Any]]]]:
        """Return (kind, its flags) in the order of the page."""
        groups = groupby(self.items, key=itemgetter("kind"))
        return [(kind, list(flags)) for kind, flags in groups]


def known(filters: Mapping[str, str]) -> dict[str, str]:
    """Return the filters that apply: not empty, with known kinds and states."""
    return filters_of(filters, FILTERS, {"kind": FlagKind, "state": STATES})


def listed(
    session: Session,
    filters: Mapping[str, str],
    cursor: str | None,
    limit: int,
    now: datetime,
    *,
    result: ChangeResult | None = None,
    entered: EnteredValues | None = None,
) -> FlagsView:
    """Return a page of flags that match the filters. Raises BadCursor."""
    given = known(filters)
    page = FLAGS.for_triage(session, limit=limit, cursor=cursor or None, **given)
    keys = {flag.test_key for flag in page.items}
    tests = test_list.specs(session, keys)
    newest = newest_builds(session, [Variant.of(flag) for flag in page.items])
    entries = entry_names.latest(session, keys)
    others = attention.open_of_tests(session, keys)
    waiting, _ = attention.open_by_kind(session)

    def line(flag: FlagRow) -> dict[str, Any]:
        key = flag.test_key
        build = newest.get(Variant.of(flag))
        return flag_page.line(
            flag, tests.get(key, {}), build, entries.get(key), others.get(key, ())
        )

    return FlagsView(
        **vars(list_view(page, line, urls.flags, now, given)),
        counts=tuple(waiting.items()),
        waiting=sum(waiting.values()),
        state=given.get("state", "open"),
        result=result,
        entered=entered or EnteredValues(),
    )


def change_result(session: Session, action: str, outcomes: Sequence[Outcome]) -> ChangeResult:
    """Return the result of a change in words, with each flag that couldn't be changed."""
    changed = [outcome.id for outcome in outcomes if outcome.outcome == "changed"]
    same = sum(outcome.outcome == "same" for outcome in outcomes)
    text = f"{words.count(len(changed), 'flag')} {ACTIONS[action]}"
    text += f", {words.count(same, 'was', 'were')} already {ACTIONS[action]}" if same else ""
    refused = [outcome for outcome in outcomes if outcome.outcome in ("refused", "missing")]
    tests = test_list.specs(session, {one.flag.test_key for one in refused if one.flag})
    refusals = []
    for outcome in refused:
        flag, problem = outcome.flag, outcome.problem
        if flag is None:
            refusals.append(Refusal(outcome.id[:50], None, "no such flag"))
        else:
            name = f"{flag.kernel} {shape_of(tests[flag.test_key])}: {flag.kind.label}"
            why = "" if problem is None else problem.message
            refusals.append(Refusal(name, urls.flag(flag.id), why))
    return ChangeResult(text, tuple(refusals), tuple(changed) if action in UNDONE else ())
