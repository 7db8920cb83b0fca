"""The plain form of the list of flags, for browsers without scripts.

It makes the same change as `POST /api/v1/flags:change`, and answers with the page.
"""

from __future__ import annotations

import re
from typing import Annotated

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
from gonogo_service.flags.noun import MAX_AT_ONCE, MAX_REASON, FlagsChange
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
        texts = owner.strip(), reason.strip(), expires.strip()
        body = _change(flag, version, state, *texts)
        fields = body.model_dump(exclude_unset=True, exclude={"ids", "versions"})
        fields = completed(fields, who, longest(context))
        with context.session() as session:
            outcomes = flags.change_many(
                session, flag, fields, actor=who.actor, versions=body.versions, now=now
            )
            result = flag_list.change_result(session, state, outcomes)
        refused = tuple(outcome.id for outcome in outcomes if outcome.outcome == "refused")
        entered = EnteredValues(refused, owner)
    except FieldError as problem:
        allowed = "" if problem.limit is None else f" (allowed: {problem.limit})"
        result = ChangeResult("", problem=f"{problem.field}: {problem.reason}{allowed}")
        status = 422
    with context.reading() as session:
        filters, length = request.query_params, urls.PAGE_LENGTH
        view = flag_list.listed(session, filters, None, length, now, result=result, entered=entered)
    return render("flags/flags.html", status, view=view, csrf=context.csrf(request))


def _change(
    flags: tuple[str, ...],
    versions: tuple[str, ...],
    state: str,
    owner: str,
    reason: str,
    expires: str,
) -> FlagsChange:
    """Return the form's change; an empty field changes nothing. Raises FieldError.

    versions: of each flag as the page showed it, as "ID VERSION".
    """
    if not flags:
        raise FieldError("flag", None, "nothing is selected", limit="at least one")
    choice(state, flag_list.ACTIONS, "state")
    if state == "owned" and not owner:
        raise FieldError("owner", owner, "is required", limit="a name")
    if expires and not re.fullmatch(r"\d{4}-\d\d-\d\d", expires):
        raise FieldError("expires", expires, "is not a day", limit="a day such as 2026-12-31")
    day = f"{expires}T00:00:00Z" if expires else ""
    given = {"owner": owner, "reason": reason, "expires": day}
    pairs = (text.partition(" ")[::2] for text in versions)
    numbers = {flag: int(text) for flag, text in pairs if text.isdecimal() and len(text) < 10}
    fields = {name: value for name, value in given.items() if value}
    state_set = {} if state == "owned" else {"state": state}
    return FlagsChange.parse({"ids": list(flags), "versions": numbers, **state_set, **fields})
