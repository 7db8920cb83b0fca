"""Stored tokens: their end, their revocation, and the time of their last use."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo_service.kit.database.engine import make_engine, session
from gonogo_service.kit.database.ids import new_id
from gonogo_service.people import store as tokens
from gonogo_service.people.model import SessionRow, TokenRow
from gonogo_service.people.store import USE_RECORDED_EVERY

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOUR, TICK = timedelta(hours=1), timedelta(microseconds=1)


@pytest.fixture
def current(migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A transaction at a time that stands still."""
    monkeypatch.setattr(tokens, "utcnow", lambda: NOW)
    engine = make_engine(migrated_sqlite_url)
    with session(engine) as current:
        yield current
    engine.dispose()


def stored(current: Session, digest: str = "d", expires_at: datetime | None = None) -> TokenRow:
    patterns: dict[str, list[str]] = {
        name: [] for name in ("builds", "branches", "repositories", "suites")
    }
    row = TokenRow(
        id=new_id(),
        name="ci",
        prefix="gng_x",
        hash=digest,
        scopes=["read"],
        created_at=NOW,
        expires_at=expires_at,
        **patterns,
    )
    current.add(row)
    current.flush()
    return row


def test_a_token_is_valid_until_its_end_and_before_its_revocation(current: Session) -> None:
    ends = {"never": None, "later": NOW + TICK, "now": NOW, "revoked": None}
    by_name = {name: stored(current, name, end) for name, end in ends.items()}
    tokens.revoke(current, by_name["revoked"])
    assert [name for name, token in by_name.items() if token.valid(NOW)] == ["never", "later"]
    ids = {token.id: name for name, token in by_name.items()}
    assert {ids[one] for one in tokens.living(current, ids, (), NOW)} == {"never", "later"}
    assert tokens.by_hash(current, "never") is by_name["never"]
    assert tokens.by_hash(current, "nobody's") is None


def test_a_revocation_ends_the_logins_of_its_token_alone_and_keeps_its_first_time(
    current: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, other = stored(current, "a"), stored(current, "b")
    for digest, owner in (("login", token), ("other login", other)):
        times = {"created_at": NOW, "expires_at": NOW + HOUR}
        current.add(SessionRow(id=digest, token_id=owner.id, csrf="x", **times))
    current.flush()
    assert tokens.living(current, (), ["login", "other login"], NOW) == {"login", "other login"}
    tokens.revoke(current, token)
    assert current.scalars(select(SessionRow.id)).all() == ["other login"]
    monkeypatch.setattr(tokens, "utcnow", lambda: NOW + HOUR)
    tokens.revoke(current, token)
    assert token.revoked_at == NOW


def test_the_last_use_is_written_once_in_five_minutes(current: Session) -> None:
    token, other = stored(current), stored(current, "other")
    times = []
    for later in (timedelta(0), USE_RECORDED_EVERY - TICK, USE_RECORDED_EVERY):
        tokens.touch(current, token.id, NOW + later)
        current.refresh(token)
        times.append(token.last_used_at)
    assert times == [NOW, NOW, NOW + USE_RECORDED_EVERY]
    assert other.last_used_at is None
