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
from gonogo_service.jobs import belonging
from gonogo_service.kit.principals import Principal
from gonogo_service.kit.problems import Problem

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from gonogo_service.people.context import Context

CLOSED: Final = (
    "this address belongs to no repository and no suite (open to it: jobs, runs, imports, builds, "
    "and comparisons of runs within its limits). For gauges, bisections, pages and all else make a "
    "token without limits: gonogo tokens create"
)
Check = Callable[["Session", Principal, "re.Match[str]", dict[str, str]], bool]


def _job(session: Session, who: Principal, match: re.Match[str], _query: dict[str, str]) -> bool:
    return _covered(who, belonging.of_job(session, match["name"]))


def _job_again(
    session: Session, who: Principal, match: re.Match[str], query: dict[str, str]
) -> bool:
    # the new job belongs to no suite
    return not who.suites and _job(session, who, match, query)


def _run(session: Session, who: Principal, match: re.Match[str], _query: dict[str, str]) -> bool:
    return _covered(who, belonging.of_run(session, match["name"]))


def _suite(_session: Session, who: Principal, match: re.Match[str], _query: dict[str, str]) -> bool:
    return bool(who.suites) and not who.repositories and who.covers(None, match["name"])


def _runs(_session: Session, who: Principal, _match: re.Match[str], query: dict[str, str]) -> bool:
    return bool(who.suites) and not who.repositories and who.covers(None, query.get("suite"))


def _compared(
    session: Session, who: Principal, _match: re.Match[str], query: dict[str, str]
) -> bool:
    sides = [query.get(name, "").rpartition("@")[2] for name in ("base", "head")]
    return all(_covered(who, belonging.of_run(session, side)) for side in sides)


def _checked_by_the_endpoint(*_: object) -> bool:
    return True


_NAME: Final = r"(?P<name>[^/:]+)"
RULES: Final[tuple[tuple[str, str, Check], ...]] = (
    ("GET", rf"/jobs/{_NAME}(/(results|events|diagnosis|artifacts(/[^/]+)?))?", _job),
    ("POST", rf"/jobs/{_NAME}:cancel", _job),
    ("POST", rf"/jobs/{_NAME}:resubmit", _job_again),
    ("GET", rf"/runs/{_NAME}(/results)?", _run),
    ("POST", rf"/runs/{_NAME}:cancel", _run),
    ("GET", rf"/suites/{_NAME}", _suite),
    ("GET", "/runs", _runs),
    ("GET", "/compare", _compared),
    ("GET", rf"/builds/{_NAME}", _checked_by_the_endpoint),
    ("POST", "/builds", _checked_by_the_endpoint),
    ("POST", "/jobs", _checked_by_the_endpoint),
    ("POST", "/jobs:validate", _checked_by_the_endpoint),
    ("POST", "/runs", _checked_by_the_endpoint),
    ("POST", "/imports", _checked_by_the_endpoint),
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
                if check(session, principal, match, fields):
                    return
    raise _outside(principal, CLOSED)


def demand_within(
    principal: Principal, *, repository: str | None, suite: str | None = None
) -> None:
    """Raise Problem 403 for a submission outside of the principal's limits."""
    if principal.bounded and not principal.covers(repository, suite):
        raise _outside(principal, f"this is of repository {repository!r} and suite {suite!r}")


def _covered(who: Principal, place: belonging.Belonging | None) -> bool:
    return place is not None and who.covers(place.repository, place.suite)


def _outside(principal: Principal, why: str) -> Problem:
    limits = [
        f"{name} {', '.join(patterns)}"
        for name, patterns in (
            ("the repositories", principal.repositories),
            ("the suites", principal.suites),
        )
        if patterns
    ]
    return Problem(
        403,
        f"The token {principal.name!r} is limited to {' and '.join(limits)}: {why[:300]}.",
        slug="bounds",
    )
