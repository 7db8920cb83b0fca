"""Tokens and their scopes. All endpoints need the scope admin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy.orm import Session

from gonogo_service.kit import audit
from gonogo_service.kit.answers import Cursor, Limit, make_router, missing, require
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.strict import Strict
from gonogo_service.people import store as stored
from gonogo_service.people.context import Admin, Context, Ctx
from gonogo_service.people.issuing import (
    DEFAULT,
    MAX_NAME,
    OVERLAP_HOURS,
    issue_token,
    rotate_token,
)
from gonogo_service.people.store import Token

router = make_router("tokens")


Patterns = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=20)
]


class TokenIn(Strict):
    """A token to issue. Each scope contains the ones before it: read, submit, admin."""

    name: str = Field(min_length=1, max_length=MAX_NAME)
    scopes: list[Literal["read", "submit", "admin"]] = Field(min_length=1, max_length=3)
    builds: Patterns = Field(
        [], description="Names of builds that it may register with the scope submit; patterns"
    )
    branches: Patterns = Field([], description="Their branches; patterns; empty: any")
    repositories: Patterns = Field(
        [], description="Limits it to jobs and runs of commits of these repositories; patterns"
    )
    suites: Patterns = Field([], description="Limits it to runs of suites of these names; patterns")
    days: int | None = Field(
        None, description="Its life; null: it never ends; default: GONOGO_TOKEN_DAYS"
    )


class RotationIn(Strict):
    """How a token is replaced by one with the same rights."""

    overlap_hours: float = Field(
        OVERLAP_HOURS, description="The old token stays valid for this long; 0: it ends now"
    )
    days: int | None = Field(
        None, description="Life of the new token; null: it never ends; default: GONOGO_TOKEN_DAYS"
    )


@dataclass(frozen=True)
class TokenIssued(Token):
    """A new token; `token` is its text, which can't be shown again."""

    token: str


@router.get("/tokens", summary="List tokens, newest first")
def list_tokens(context: Ctx, _who: Admin, limit: Limit = 50, cursor: Cursor = None) -> Page[Token]:
    """List all tokens, including revoked ones."""
    with context.reading() as session:
        return stored.list_(session, limit=limit, cursor=cursor)


@router.post("/tokens", status_code=201, summary="Issue a token")
def issue(context: Ctx, who: Admin, body: TokenIn) -> TokenIssued:
    """Issue a token. The answer has its text, which can't be shown again."""
    with context.session() as session:
        text = issue_token(
            session,
            body.name,
            body.scopes,
            builds=body.builds,
            branches=body.branches,
            repositories=body.repositories,
            suites=body.suites,
            days=_days(body),
            actor=who.actor,
            keys=context.keys,
            settings=context.settings,
        )
        return _issued(context, session, text)


@router.get("/tokens/{token_id}", summary="Show a token")
def look(context: Ctx, _who: Admin, token_id: str) -> Token:
    """Show a token without its text."""
    with context.reading() as session:
        return require(stored.get(session, token_id), "token", token_id)


@router.post("/tokens/{token_id}:rotate", status_code=201, summary="Rotate a token")
def rotate(context: Ctx, who: Admin, token_id: str, body: RotationIn) -> TokenIssued:
    """Issue a token with the same rights; the old one stays valid for the overlap.

    The answer has the new text, which can't be shown again.
    """
    with context.session() as session:
        text = rotate_token(
            session,
            token_id,
            overlap_hours=body.overlap_hours,
            days=_days(body),
            actor=who.actor,
            keys=context.keys,
            settings=context.settings,
        )
        if text is None:
            raise missing("token", token_id)
        return _issued(context, session, text)


@router.delete("/tokens/{token_id}", summary="Revoke a token")
def revoke(context: Ctx, who: Admin, token_id: str) -> Token:
    """Revoke a token at once, and end the logins that use it."""
    with context.session() as session:
        before = stored.get(session, token_id)
        token = stored.revoke(session, token_id)
        if token is None or before is None:
            raise missing("token", token_id)
        if before.revoked_at is None:
            audit.record(
                session,
                actor=who.actor,
                action="token.revoked",
                subject=token_id,
                detail={"name": token.name, "prefix": token.prefix},
            )
    return token


def _days(body: TokenIn | RotationIn) -> int | None:
    return body.days if "days" in body.model_fields_set else DEFAULT


def _issued(context: Context, session: Session, text: str) -> TokenIssued:
    token = stored.by_hash(session, context.keys.digest("token", text))
    assert token is not None
    return from_object(TokenIssued, token, token=text)
