"""The payloads of events: a bisection's, and those of objects that are gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy.orm import Session

import stored_jobs
from gonogo_service.bisections.model import BisectionRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import make_engine, session
from gonogo_service.kit.database.ids import new_id
from gonogo_service.webhooks import messages


@pytest.fixture
def current(migrated_sqlite_url: str) -> Iterator[Session]:
    engine = make_engine(migrated_sqlite_url)
    with session(engine) as opened:
        yield opened
    engine.dispose()


def test_a_bisection_is_told_with_its_address(current: Session) -> None:
    stored = BisectionRow(
        id=new_id(),
        state="running",
        signal="numbers",
        expect="regression",
        several=False,
        owner="ada",
        test_key=stored_jobs.submit(current, seeds=1).test_key,
        queue="q",
        builds=["a", "b", "c"],
        request={},
        seed_start=0,
        max_runs=9,
        created_at=utcnow(),
    )
    current.add(stored)
    current.flush()
    for base in ("https://gonogo.example", "https://gonogo.example/"):
        message = messages.payload(current, "bisection.finished", {"bisection": stored.id}, base)
        data = message["data"]
        assert (data["id"], data["builds"], data["runs"]) == (stored.id, ["a", "b", "c"], 0)
        assert data["url"] == f"https://gonogo.example/bisections/{stored.id}"
