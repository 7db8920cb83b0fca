"""Principals: their scopes, limits and builds, and the warning of their end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gonogo_service.kit.principals import LOCAL, Principal, demand
from gonogo_service.kit.problems import Problem

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def principal(*scopes: str, **changes: Any) -> Principal:
    return Principal("token", "t1", "ci", frozenset(scopes), **changes)


@pytest.mark.parametrize(
    ("limits", "covered"),
    [
        ({}, ["", "r", "s", "rs"]),
        ({"repositories": ("org/*",)}, ["r", "rs"]),
        ({"suites": ("nightly",)}, ["s", "rs"]),
        ({"repositories": ("org/*",), "suites": ("nightly",)}, ["rs"]),
        ({"repositories": ("other/*",)}, []),
        ({"suites": ("weekly",)}, []),
    ],
)
def test_a_limited_principal_covers_what_is_within_all_its_limits(
    limits: dict[str, Any], covered: list[str]
) -> None:
    who = principal("submit", **limits)
    assert who.bounded == bool(limits)
    jobs = {
        "": (None, None),
        "r": ("org/k", None),
        "s": (None, "nightly"),
        "rs": ("org/k", "nightly"),
    }
    assert [name for name, job in jobs.items() if who.covers(*job)] == covered


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        ([], []),
        (["read"], ["read"]),
        (["submit"], ["read", "submit"]),
        (["read", "submit"], ["read", "submit"]),
        (["admin"], ["read", "submit", "admin"]),
    ],
)
def test_one_scope_is_enough_and_contains_those_before_it(
    scopes: list[str], allowed: list[str]
) -> None:
    who = principal(*scopes)
    assert [scope for scope in ("read", "submit", "admin") if who.may(scope)] == allowed
    for scope in ("read", "submit", "admin"):
        if scope in allowed:
            assert demand(who, scope) is who
            continue
        with pytest.raises(Problem, match=f"needs the scope '{scope}'") as refused:
            demand(who, scope)
        assert refused.value.status == 403
    with pytest.raises(Problem, match="needs a token") as refused:
        demand(None, "read")
    assert refused.value.status == 401


@pytest.mark.parametrize(
    ("scopes", "builds", "branches", "build", "branch", "allowed"),
    [
        (["admin"], (), (), "k-1", "main", True),
        (["submit"], (), (), "k-1", "main", False),
        (["submit"], ("k-*",), (), "k-1", "main", True),
        (["submit"], ("k-*",), (), "l-1", "main", False),
        (["submit"], ("k-*",), ("main",), "k-1", "main", True),
        (["submit"], ("k-*",), ("main",), "k-1", "fix", False),
        (["read"], ("k-*",), (), "k-1", "main", False),
    ],
)
def test_a_build_is_registered_by_an_admin_or_by_the_patterns_of_a_token(
    scopes: list[str],
    builds: tuple[str, ...],
    branches: tuple[str, ...],
    build: str,
    branch: str,
    allowed: bool,
) -> None:
    who = principal(*scopes, builds=builds, branches=branches)
    assert who.may_register(build, branch) == allowed


def test_a_principal_is_warned_in_its_last_two_weeks_and_named_in_the_audit() -> None:
    for left, warned in ((timedelta(days=14), False), (timedelta(days=14, seconds=-1), True)):
        end = NOW + left
        assert principal("read", expires_at=end).soon_over(NOW) == (end if warned else None)
    assert principal("read").soon_over(NOW) is None
    assert (principal("read").actor, LOCAL.actor) == ("token:t1", "local")
