"""Tokens and their scopes. All endpoints need the scope admin."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from gonogo_service.kit import rows
from gonogo_service.kit.resource import Act, Resource
from gonogo_service.people import noun, store
from gonogo_service.people.context import Admin, Context, Ctx
from gonogo_service.people.issuing import DEFAULT, issue_token, rotate_token
from gonogo_service.people.model import TokenRow
from gonogo_service.people.noun import RotationIn, TokenIn

TOKENS = Resource(noun.TOKENS, TokenRow)
ISSUED = rows.extended_answer(
    TokenRow, "TokenIssued", token=(str, "Its text, which can't be shown again")
)
router = TOKENS.router


@router.post("/tokens", status_code=201, response_model=ISSUED, summary="Issue a token")
def issue(context: Ctx, who: Admin, body: TokenIn) -> Any:
    """Issue a token. The answer has its text, which can't be shown again."""
    with context.session() as session:
        fields = body.model_dump(exclude={"days"}) | {"days": _days(body)}
        text = issue_token(
            session, **fields, actor=who.actor, keys=context.keys, settings=context.settings
        )
        return _issued(context, session, text)


@router.post(
    "/tokens/{token_id}:rotate", status_code=201, response_model=ISSUED, summary="Rotate a token"
)
def rotate(context: Ctx, who: Admin, token_id: str, body: RotationIn) -> Any:
    """Issue a token with the same rights; the old one stays valid for the overlap.

    The answer has the new text, which can't be shown again.
    """
    with context.session() as session:
        text = rotate_token(
            session,
            TOKENS.require(session, who, token_id, lock=True),
            overlap_hours=body.overlap_hours,
            days=_days(body),
            actor=who.actor,
            keys=context.keys,
            settings=context.settings,
        )
        return _issued(context, session, text)


@TOKENS.on_remove
def revoke(act: Act, token: TokenRow) -> dict[str, Any]:
    """Revoke a token at once, and end the logins that use it."""
    store.revoke(act.session, token)
    return {"name": token.name, "prefix": token.prefix}


def _days(body: TokenIn | RotationIn) -> int | None:
    return body.days if "days" in body.model_fields_set else DEFAULT


def _issued(context: Context, session: Session, text: str) -> dict[str, Any]:
    token = store.by_hash(session, context.keys.digest("token", text))
    return rows.values(ISSUED, token, token=text)
