"""Messages about an event: the payload for programs, and one line for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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


URL = "https://gonogo.example/x"


JOB = {"kernel": "layernorm_bw", "build": "b7", "state": "finished", "verdict": "fail", "url": URL}


FLAG = {"kind": "passes_by_tolerance", "kernel": "layernorm_bw", "build": "b7", "url": URL}


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("job.finished", JOB, f"layernorm_bw on b7: fail {URL}"),
    ("job.finished", JOB | {"diagnosis": "s1 twice"}, f"layernorm_bw on b7: fail: s1 twice {URL}"),
    ("job.finished", JOB | {"verdict": None}, f"layernorm_bw on b7: finished {URL}"),
    (
        "run.finished",
        {"suite": {"name": "nightly"}, "builds": ["a", "b"], "verdict": "pass", "url": URL},
        f"suite nightly on a, b: pass {URL}",
    ),
    ("flag.opened", FLAG, f"flag passes_by_tolerance opened for layernorm_bw on b7 {URL}"),
    (
        "flag.resolved",
        FLAG | {"sentence": "Green"},
        f"flag passes_by_tolerance resolved for layernorm_bw on b7: Green {URL}",
    ),
    (
        "bisection.finished",
        {"builds": ["a", "b", "c"], "words": "b broke it", "url": URL},
        f"bisection of a to c: b broke it {URL}",
    ),
    (
        "bisection.finished",
        {"builds": ["a", "c"], "words": None, "state": "canceled"},
        "bisection of a to c: canceled",
    ),
    (
        "device.health_changed",
        {"device": "lab-1/n150", "health": "bad", "reason": "no answer"},
        "device lab-1/n150 is bad (no answer)",
    ),
    ("device.health_changed", {"device": "lab-1/0", "health": "good"}, "device lab-1/0 is good"),
    ("webhook.test", {}, "webhook.test"),
]


@pytest.mark.parametrize(("type_", "data", "words"), CASES)
def test_an_event_is_one_line(type_: str, data: dict[str, Any], words: str) -> None:
    assert messages.sentence({"type": type_, "data": data}) == words


def test_a_sender_s_text_calls_nobody_in_a_chat() -> None:
    message = {"type": "job.finished", "data": {**JOB, "build": "<!channel>\r\n@all", "url": None}}
    assert messages.for_people(message) == "layernorm_bw on <\u200b!channel> @\u200ball: fail"


@pytest.mark.parametrize("type_", messages.TYPES)
def test_an_event_whose_object_was_deleted_meanwhile_is_its_type_alone(type_: str) -> None:
    name = type_.partition(".")[0]
    assert messages.sentence({"type": type_, "data": {name: "deleted", "version": 3}}) == type_
