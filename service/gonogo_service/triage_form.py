"""The plain form of the list of flags, for browsers without scripts.

It makes the same change as `POST /api/v1/flags:change`, and answers with the page.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response

from gonogo import urls
from gonogo.errors import FieldError
from gonogo.fields import choice
from gonogo_dashboards.flags import flag_list
from gonogo_dashboards.flags.flag_list import ChangeResult, EnteredValues
from gonogo_dashboards.pages import render
from gonogo_service.edge import check_csrf
from gonogo_service.flags import store as flags
from gonogo_service.flags.api import completed, longest
from gonogo_service.flags.noun import MAX_AT_ONCE, MAX_OWNER, MAX_REASON
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.people.context import Ctx, Submitter

router = APIRouter(include_in_schema=False)
MAX_TEXT = 4 * MAX_REASON

Text = Annotated[str, Form(max_length=MAX_TEXT)]


@router.post(urls.FLAGS)
def change(
    context: Ctx,
    who: Submitter,
    request: Request,
    flag: Annotated[tuple[str, ...], Form(max_length=MAX_AT_ONCE)] = (),
    version: Annotated[tuple[str, ...], Form(max_length=MAX_AT_ONCE)] = (),
    state: Text = "acknowledged",
    owner: Text = "",
    reason: Text = "",
    expires: Text = "",
    csrf_token: Text = "",
) -> Response:
    """Change the selected flags, and show the list with each flag's outcome.

    The address has the filters, as for the list.
    """
    if who.kind == "session":
        check_csrf(who, csrf_token)
    now = utcnow()
    entered, status = EnteredValues(flag, owner, reason, expires), 200
    try:
        fields = _fields(flag, state, owner.strip(), reason.strip(), expires.strip())
        fields, versions = completed(fields, who, longest(context)), _versions(version)
        with context.session() as session:
            outcomes = flags.change_many(
                session, flag, fields, actor=who.actor, versions=versions, now=now
            )
            result = flag_list.change_result(session, state, outcomes)
        refused = tuple(outcome.id for outcome in outcomes if outcome.outcome == "refused")
        entered = EnteredValues(refused, owner)
    except FieldError as problem:
        allowed = "" if problem.limit is None else f" (allowed: {problem.limit})"
        result = ChangeResult("", problem=f"{problem.field}: {problem.reason}{allowed}")
        status = 422
    with context.reading() as session:
        view = flag_list.listed(
            session,
            request.query_params,
            None,
            urls.PAGE_LENGTH,
            now,
            result=result,
            entered=entered,
        )
    return render("flags/flags.html", status, view=view, csrf=context.csrf(request))


def _fields(
    flags: tuple[str, ...], state: str, owner: str, reason: str, expires: str
) -> dict[str, Any]:
    """Return the form's changes; an empty field changes nothing. Raises FieldError."""
    if not flags:
        raise FieldError("flag", None, "nothing is selected", limit="at least one")
    choice(state, flag_list.ACTIONS, "state")
    for name, text, most in (("owner", owner, MAX_OWNER), ("reason", reason, MAX_REASON)):
        if len(text) > most or "\0" in text:
            raise FieldError(
                name,
                text,
                "is too long" if len(text) > most else "contains the character NUL",
                limit=f"at most {most} characters",
            )
    if state == "owned" and not owner:
        raise FieldError("owner", owner, "is required", limit="a name")
    fields: dict[str, Any] = {
        "owner": owner,
        "reason": reason,
        "expires": _midnight(expires) if expires else None,
    }
    return {name: value for name, value in fields.items() if value} | (
        {} if state == "owned" else {"state": state}
    )


def _versions(shown: tuple[str, ...]) -> dict[str, int]:
    """Return the version of each flag as the page showed it, from "ID VERSION"."""
    pairs = (text.partition(" ") for text in shown)
    return {
        flag: int(version)
        for flag, _, version in pairs
        if version.isdecimal() and len(version) < 10
    }


def _midnight(day: str) -> datetime:
    try:
        return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise FieldError("expires", day, "is not a day", limit="a day such as 2026-12-31") from None
