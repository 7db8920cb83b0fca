"""Stored tokens: their end, their revocation, and the time of their last use."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from gonogo_service.kit.database.engine import make_engine, session
from gonogo_service.kit.database.ids import new_id
from gonogo_service.people import sessions
from gonogo_service.people import store as tokens
from gonogo_service.people.model import SessionRow
from gonogo_service.people.store import USE_RECORDED_EVERY, Token

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


def stored(current: Session, digest: str = "d", expires_at: datetime | None = None) -> Token:
    return tokens.create(
        current, name="ci", prefix="gng_x", digest=digest, scopes=("read",), expires_at=expires_at
    )


def test_a_token_is_valid_until_its_end_and_before_its_revocation(current: Session) -> None:
    tokens_by_name = {}
    for name, end in (("never", None), ("later", NOW + TICK), ("now", NOW)):
        token = stored(current, name, end)
        assert tokens.by_hash(current, name) == tokens.get(current, token.id) == token
        tokens_by_name[name] = token
    revoked = stored(current, "revoked")
    assert tokens.revoke(current, revoked.id) is not None
    tokens_by_name["revoked"] = tokens.get(current, revoked.id) or revoked
    assert [name for name, token in tokens_by_name.items() if token.valid(NOW)] == [
        "never",
        "later",
    ]
    ids = {token.id: name for name, token in tokens_by_name.items()}
    assert {ids[one] for one in tokens.living(current, ids, NOW)} == {"never", "later"}
    assert tokens.by_hash(current, "nobody's") is None


def test_an_end_is_moved_ahead_and_never_back(current: Session) -> None:
    endless, ending = stored(current, "a"), stored(current, "b", NOW + HOUR)
    for token, requested, end in (
        (endless, NOW + 2 * HOUR, NOW + 2 * HOUR),
        (ending, NOW + 2 * HOUR, NOW + HOUR),
        (ending, NOW + HOUR / 2, NOW + HOUR / 2),
    ):
        shortened = tokens.shorten(current, token.id, requested)
        assert shortened is not None
        assert (shortened.id, shortened.expires_at) == (token.id, end)
        assert tokens.get(current, token.id) == shortened
    tokens.revoke(current, endless.id)
    ended = stored(current, "c", NOW)
    for token_id in (endless.id, ended.id, new_id(), "no id"):
        assert tokens.shorten(current, token_id, NOW + HOUR) is None


def test_a_revocation_ends_the_logins_of_its_token_alone_and_keeps_its_first_time(
    current: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, other = stored(current, "a"), stored(current, "b")
    for digest, owner in (("login", token), ("other login", other)):
        sessions.create(
            current, digest=digest, token_id=owner.id, csrf="x", expires_at=datetime.now(UTC) + HOUR
        )
    first = tokens.revoke(current, token.id)
    assert first is not None
    assert first.revoked_at == NOW
    assert current.scalars(select(SessionRow.id)).all() == ["other login"]
    monkeypatch.setattr(tokens, "utcnow", lambda: NOW + HOUR)
    assert tokens.revoke(current, token.id) == first
    for token_id in (new_id(), "no id"):
        assert tokens.revoke(current, token_id) is None
        assert tokens.get(current, token_id) is None


def test_the_last_use_is_written_once_in_five_minutes(current: Session) -> None:
    token, other = stored(current, "a"), stored(current, "b")
    assert tokens.is_stale(token, NOW)
    times = []
    for later in (timedelta(0), USE_RECORDED_EVERY - TICK, USE_RECORDED_EVERY):
        before = tokens.get(current, token.id)
        assert before is not None
        assert tokens.is_stale(before, NOW + later) == (later != USE_RECORDED_EVERY - TICK)
        tokens.touch(current, token.id, NOW + later)
        current.expire_all()
        after = tokens.get(current, token.id)
        assert after is not None
        times.append(after.last_used_at)
    assert times == [NOW, NOW, NOW + USE_RECORDED_EVERY]
    assert tokens.get(current, other.id) == other


def test_a_second_rotation_at_the_same_time_waits_for_the_first(migrated_postgres_url: str) -> None:
    engine = make_engine(migrated_postgres_url)
    with session(engine) as setup:
        token = stored(setup)
    with session(engine) as first, session(engine) as second:
        assert tokens.shorten(first, token.id, NOW + HOUR) is not None
        second.execute(text("SET LOCAL lock_timeout = '50ms'"))
        with pytest.raises(OperationalError, match="lock timeout"):
            tokens.shorten(second, token.id, NOW + 2 * HOUR)
    engine.dispose()
