"""The addresses that are open to a token that is limited to repositories or suites.

Everything else is closed to it. This is a list of addresses, not of exceptions: an endpoint that
forgets about limits is closed, not open. Submissions check their own body with `demand_within`,
because only they have read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from gonogo.urls import API
from gonogo_service.kit.principals import Principal
from gonogo_service.kit.problems import Problem
from gonogo_service.suites import runs

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from gonogo_service.people.context import Context

CLOSED: Final = (
    "this address belongs to no repository and no suite (open to it: jobs, runs, imports, builds, "
    "and comparisons of runs within its limits). For gauges, bisections, pages and all else make a "
    "token without limits: gonogo tokens create"
)
Check = Callable[["Session", Principal, str, dict[str, str]], bool]
"""Says whether a session, a principal, the name in the address and the query are within limits."""


def _job(session: Session, who: Principal, name: str, _query: dict[str, str]) -> bool:
    place = runs.place_of_job(session, name)
    return place is not None and who.covers(*place)


def _run(session: Session, who: Principal, name: str, _query: dict[str, str]) -> bool:
    place = runs.place_of_run(session, name)
    return place is not None and who.covers(*place)


def _suite(who: Principal, suite: str | None) -> bool:
    return bool(who.suites) and not who.repositories and who.covers(None, suite)


def _compared(session: Session, who: Principal, name: str, query: dict[str, str]) -> bool:
    sides = [query.get(side, "").rpartition("@")[2] for side in ("base", "head")]
    return all(_run(session, who, side, query) for side in sides)


def _checked_by_the_endpoint(*_: object) -> bool:
    return True


_NAME: Final = r"(?P<name>[^/:]+)"
RULES: Final[tuple[tuple[str, str, Check], ...]] = (
    ("GET", rf"/jobs/{_NAME}(/(results|events|diagnosis|artifacts(/[^/]+)?))?", _job),
    ("POST", rf"/jobs/{_NAME}:cancel", _job),
    # the new job belongs to no suite
    (
        "POST",
        rf"/jobs/{_NAME}:resubmit",
        lambda session, who, name, query: not who.suites and _job(session, who, name, query),
    ),
    ("GET", rf"/runs/{_NAME}(/results)?", _run),
    ("POST", rf"/runs/{_NAME}:(cancel|resubmit)", _run),
    ("GET", rf"/suites/{_NAME}", lambda _session, who, name, _query: _suite(who, name)),
    ("GET", "/runs", lambda _session, who, _name, query: _suite(who, query.get("suite"))),
    ("GET", "/compare", _compared),
    ("GET", rf"/builds/{_NAME}", _checked_by_the_endpoint),
    *(
        ("POST", path, _checked_by_the_endpoint)
        for path in ("/builds", "/jobs", "/jobs:validate", "/runs", "/imports")
    ),
)
"""Method, address below /api/v1, and what makes it belong to the token's limits."""
_RULES: Final = tuple((method, re.compile(API + path), check) for method, path, check in RULES)


def check_address(
    context: Context, principal: Principal, method: str, path: str, query: str
) -> None:
    """Raise Problem 403 where a limited token has no business. Reads the database."""
    for allowed, pattern, check in _RULES:
        match = pattern.fullmatch(path)
        if match is not None and method == allowed:
            fields = dict(parse_qsl(query, keep_blank_values=True))
            with context.reading() as session:
                if check(session, principal, match.groupdict().get("name", ""), fields):
                    return
    raise _outside(principal, CLOSED)


def demand_within(
    principal: Principal, *, repository: str | None, suite: str | None = None
) -> None:
    """Raise Problem 403 for a submission outside of the principal's limits."""
    if principal.bounded and not principal.covers(repository, suite):
        raise _outside(principal, f"this is of repository {repository!r} and suite {suite!r}")


def _outside(principal: Principal, why: str) -> Problem:
    given = {"repositories": principal.repositories, "suites": principal.suites}
    limits = " and ".join(
        f"the {name} {', '.join(patterns)}" for name, patterns in given.items() if patterns
    )
    detail = f"The token {principal.name!r} is limited to {limits}: {why[:300]}."
    return Problem(403, detail, slug="bounds")
