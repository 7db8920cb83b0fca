"""Tokens as the API and the command know them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gonogo.cli.kit.noun import Noun, Verb
from gonogo_service.kit.strict import Strict

MAX_NAME = 100
OVERLAP_HOURS = 24
"""A rotated token stays valid this long by default: time to give the new one to its users."""
DAYS = "default: GONOGO_TOKEN_DAYS"

Patterns = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=20)
]


class TokenIn(Strict):
    """A token to issue. Each scope contains the ones before it: read, submit, admin."""

    name: str = Field(
        min_length=1, max_length=MAX_NAME, description="Whose it is, or what for: logs show it"
    )
    scopes: list[Literal["read", "submit", "admin"]] = Field(
        ["read"],
        min_length=1,
        max_length=3,
        description="read, submit (contains read), admin (contains all); default: read",
    )
    builds: Patterns = Field(
        [], description="Names of builds that it may register with the scope submit; patterns"
    )
    branches: Patterns = Field([], description="Their branches; patterns; empty: any")
    repositories: Patterns = Field(
        [], description="Limits it to jobs and runs of commits of these repositories; patterns"
    )
    suites: Patterns = Field([], description="Limits it to runs of suites of these names; patterns")
    days: int | None = Field(None, description=f"Its life; null: it never ends; {DAYS}")


class RotationIn(Strict):
    """How a token is replaced by one with the same rights."""

    overlap_hours: float = Field(
        OVERLAP_HOURS, description="The old token stays valid for this long; 0: it ends now"
    )
    days: int | None = Field(
        None, description=f"Life of the new token; null: it never ends; {DAYS}"
    )


TOKENS = Noun(
    "tokens",
    {
        "token": "id",
        "name": "name",
        "begins with": "prefix",
        "scopes": "scopes",
        "builds": "builds",
        "branches": "branches",
        "repositories": "repositories",
        "suites": "suites",
        "created": "created_at",
        "expires": "expires_at",
        "last used": "last_used_at",
        "revoked": "revoked_at",
    },
    "a token",
    about="A token's rights can't be changed: make another one, and remove the first.",
    name_key="name",
    scope="admin",
    remove=Verb("revoked", "Revoke a token at once, and end its logins.", scope="admin"),
)
CREATE = Verb(
    "created", "Make a token. It is shown this once: only its keyed hash is stored.", TokenIn
)
ROTATE = Verb(
    "rotated",
    "Make a token with the same rights; the old one stays valid for the overlap.",
    RotationIn,
)
