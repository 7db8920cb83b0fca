"""Waivers: findings that someone accepts until a date, so that they don't block commits.

Verdicts do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import or_
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.waivers import WAIVABLE
from gonogo.urls import API
from gonogo_service.flags.api import longest
from gonogo_service.flags.store import check_end
from gonogo_service.kit import rows
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.resource import Act, Resource
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.waivers import store
from gonogo_service.waivers.model import WaiverRow
from gonogo_service.waivers.noun import WAIVERS, WaiverIn, WaiverState


@dataclass(frozen=True)
class WaiverLinks:
    """The address of a waiver, and the page of its test."""

    self: str
    test: str | None


WAIVER = rows.extended_answer(
    WaiverRow,
    "Waiver",
    state=WaiverState,
    words=(str, "Until when, by whom and why, in a phrase"),
    effect=(str, "What it does to commits, and until when, in a sentence"),
    links=WaiverLinks,
)


def _shown(_context: Any, _session: Session, waiver: WaiverRow) -> dict[str, Any]:
    page = None if waiver.test is None else urls.history(waiver.test)
    links = WaiverLinks(f"{API}/waivers/{waiver.id}", page)
    return rows.values(WAIVER, waiver, state=waiver.state_at(utcnow()), links=links)


class _Waivers(Resource[WaiverRow]):
    def page(
        self,
        session: Session,
        *,
        limit: int = 50,
        cursor: str | None = None,
        test: str | None = None,
        **filters: Any,
    ) -> Page[WaiverRow]:
        """Return a page of waivers, including ended ones; `test`: by key, name or label."""
        ids = [] if test is None else [one.id for one in store.matching(session, test)]
        about = None if test is None else or_(WaiverRow.test == test, WaiverRow.id.in_(ids))
        return super().page(session, limit=limit, cursor=cursor, test=about, **filters)


RESOURCE = _Waivers(
    WAIVERS,
    WaiverRow,
    answer=WAIVER,
    show=_shown,
    where={"test": lambda about: about, "state": lambda state: WaiverRow.is_at(state, utcnow())},
)
router = RESOURCE.router


@RESOURCE.on_create
def create(act: Act, body: WaiverIn) -> WaiverRow:
    """Create a waiver, which is in force until it expires or is ended.

    Findings of its `classes` are `waived` in comparisons and in answers to GitHub.
    """
    now = utcnow()
    if body.test is None and not body.names and not body.labels:
        raise BadField("test", None, "no test is selected", limit="any of test, names, labels")
    for field, patterns in (("names", body.names), ("builds", body.builds)):
        if patterns and all(pattern.startswith("!") for pattern in patterns):
            raise BadField(field, patterns, "only excludes", limit="a pattern without !")
    checked = _checked(act, body.model_dump())
    if body.test is not None and act.session.get(TestSpecRow, body.test) is None:
        reason, limit = "there is no test with this key", "a key of GET /api/v1/tests"
        raise BadField("test", body.test, reason, limit=limit)
    if store.active_count(act.session, now) >= store.MAX_ACTIVE:
        limit = f"{store.MAX_ACTIVE}: end one first"
        raise BadField("body", None, "too many active waivers", limit=limit)
    waiver = WaiverRow(
        id=new_id(),
        test=body.test,
        names=body.names,
        labels=body.labels,
        builds=body.builds,
        version=1,
        created_by=act.who.actor,
        created_at=now,
        updated_at=now,
        **{**checked, "owner": body.owner or act.who.name},
    )
    act.session.add(waiver)
    return waiver


@RESOURCE.on_change
def change(act: Act, waiver: WaiverRow, given: dict[str, Any]) -> dict[str, Any]:
    """Set any of owner, reason, classes and expires of a waiver in force.

    `version` makes the change conditional.
    """
    if (state := waiver.state_at(utcnow())) is not WaiverState.active:
        reason = "the waiver is over: create a new one"
        raise BadField("state", state.value, reason, limit=WaiverState.active.value)
    if "expires" in given and given["expires"] is None:
        raise BadField("expires", None, "is required: every waiver ends", limit="a time")
    return _checked(act, given)


@RESOURCE.on_remove
def end(act: Act, waiver: WaiverRow) -> dict[str, Any]:
    """End a waiver now. It stays visible; an ended waiver does not change."""
    now = utcnow()
    if waiver.state_at(now) is WaiverState.active:
        waiver.ended_at, waiver.updated_at, waiver.ended_by = now, now, act.who.actor
        waiver.version += 1
    return {"owner": waiver.owner, "reason": waiver.reason}


def _checked(act: Act, given: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the fields that a waiver may change, each checked."""
    values: dict[str, Any] = {
        name: given[name] for name in ("owner", "reason", "classes") if name in given
    }
    if "reason" in values:
        if not values["reason"].strip():
            raise BadField("reason", values["reason"], "is blank", limit="text")
        values["reason"] = values["reason"].strip()
    for number, kind in enumerate(values.get("classes", ())):
        if kind not in WAIVABLE:
            limit = "one of " + ", ".join(waivable.value for waivable in WAIVABLE)
            raise BadField(f"classes.{number}", kind.value, "can't be waived", limit=limit)
    if "classes" in values:
        values["classes"] = [kind.value for kind in WAIVABLE if kind in values["classes"]]
    if "expires" in given:
        check_end(given["expires"], utcnow(), longest(act.context))
        values["expires_at"] = given["expires"]
    return values
