"""Tokens and their scopes. All endpoints need the scope admin."""

from __future__ import annotations

from typing import Literal

from fastapi import Response
from pydantic import BaseModel, Field

from gonogo_service.access.auth import MAX_NAME, issue_token
from gonogo_service.access.context import Admin, Ctx
from gonogo_service.kit.answers import Cursor, Limit, answer, answer_page, make_router, missing
from gonogo_service.kit.strict import Strict
from gonogo_storage.access import audit
from gonogo_storage.access import tokens as stored

router = make_router("tokens")


class TokenIn(Strict):
    """A token to issue. Each scope contains the ones before it: read, submit, admin."""

    name: str = Field(min_length=1, max_length=MAX_NAME)
    scopes: list[Literal["read", "submit", "admin"]] = Field(min_length=1, max_length=3)


class TokenOut(BaseModel):
    """A token without its text."""

    id: str
    name: str
    prefix: str
    scopes: list[str]
    created_at: str
    last_used_at: str | None
    revoked_at: str | None


class TokenIssued(TokenOut):
    """A new token; `token` is its text, which can't be shown again."""

    token: str


class TokenPage(BaseModel):
    """A page of tokens, newest first."""

    items: list[TokenOut]
    next: str | None


@router.get(
    "/tokens",
    responses={200: {"model": TokenPage}},
    response_class=Response,
    summary="List tokens, newest first",
)
def list_tokens(context: Ctx, _who: Admin, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List all tokens, including revoked ones."""
    with context.reading() as session:
        return answer_page(stored.list_(session, limit=limit, cursor=cursor), stored.Token.to_json)


@router.post(
    "/tokens",
    status_code=201,
    responses={201: {"model": TokenIssued}},
    response_class=Response,
    summary="Issue a token",
)
def issue(context: Ctx, who: Admin, body: TokenIn) -> Response:
    """Issue a token. The answer has its text, which can't be shown again."""
    with context.session() as session:
        text = issue_token(session, body.name, body.scopes, actor=who.actor, keys=context.keys)
        token = stored.by_hash(session, context.keys.digest("token", text))
    assert token is not None
    return answer({**token.to_json(), "token": text}, 201)


@router.delete(
    "/tokens/{token_id}",
    responses={200: {"model": TokenOut}},
    response_class=Response,
    summary="Revoke a token",
)
def revoke(context: Ctx, who: Admin, token_id: str) -> Response:
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
    return answer(token.to_json())
