"""Messages about an event: the payload for programs, and one line for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.orm import Session

from api import JOB, Api, in_process
from gonogo_service.devices import store as devices
from gonogo_service.flags.api import FLAGS
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.webhooks import messages
from stored_jobs import device, finished


@pytest.fixture
def api(migrated_sqlite_url: str) -> Iterator[Api]:
    with in_process(migrated_sqlite_url) as service:
        yield service


def data_of(session: Session, type_: str, reference: dict[str, Any]) -> dict[str, Any]:
    """Return the message about an object; its address and its last words are checked."""
    for base in ("https://gonogo.example", "https://gonogo.example/"):
        message = messages.payload(session, type_, reference, base)
        data: dict[str, Any] = message["data"]
        assert data["url"].startswith(f"https://gonogo.example/{type_.partition('.')[0]}s/")
        assert data["url"].endswith(data["id"])
        assert messages.sentence(message).endswith(data["url"])
    return data


def test_every_kind_of_event_is_told_in_words(api: Api) -> None:
    seeds = {"start": 0, "count": 1}
    suite = {"name": "nightly", "entries": [{"name": "x", "test": JOB["test"], "seeds": seeds}]}
    body = {"suite": suite, "builds": ["tt-train-2025"]}
    run = api.client.post("/api/v1/runs", json=body).json()["id"]
    builds = ["correct", "tt-train-2025"]
    bisection = api.client.post(
        "/api/v1/bisections", json={"test": JOB["test"], "builds": builds}
    ).json()["id"]
    with api.context.session() as session:
        finished(session)
        (flag,) = FLAGS.page(session).items
        device(session)
        (stored_device,) = devices.list_(session, now=utcnow())
        for type_ in ("flag.opened", "flag.resolved"):
            data = data_of(session, type_, {"flag": flag.id})
            assert data["sentence"] == flag.evidence["diagnosis"] or flag.evidence["sentence"]
        for type_, reference in (
            ("run.finished", {"run": run}),
            ("device.health_changed", {"device": stored_device.id}),
        ):
            assert data_of(session, type_, reference)["version"] >= 1
        data = data_of(session, "bisection.finished", {"bisection": bisection})
        assert (data["builds"], data["runs"]) == (builds, 0)
        missing = {"job": flag.id}
        assert messages.payload(session, "job.finished", missing, None)["data"] == missing
        message = messages.payload(session, "run.finished", {"run": run}, None)
        assert messages.sentence(message) == f"suite nightly on tt-train-2025: running /runs/{run}"


URL = "https://gonogo.example/x"
ENDED = {
    "kernel": "layernorm_bw",
    "build": "b7",
    "state": "finished",
    "verdict": "fail",
    "url": URL,
}
FLAG = {"kind": "passes_by_tolerance", "kernel": "layernorm_bw", "build": "b7", "url": URL}
RUN = {"suite": {"name": "nightly"}, "builds": ["a", "b"], "verdict": "pass", "url": URL}
BISECTION = {"builds": ["a", "b", "c"], "words": "b broke it", "url": URL}
DEVICE = {"device": "lab-1/n150", "health": "bad", "reason": "no answer"}


@pytest.mark.parametrize(
    ("type_", "data", "line"),
    [
        ("job.finished", ENDED, f"layernorm_bw on b7: fail {URL}"),
        ("job.finished", ENDED | {"diagnosis": "s1"}, f"layernorm_bw on b7: fail: s1 {URL}"),
        ("job.finished", ENDED | {"verdict": None}, f"layernorm_bw on b7: finished {URL}"),
        ("run.finished", RUN, f"suite nightly on a, b: pass {URL}"),
        ("flag.opened", FLAG, f"flag passes_by_tolerance opened for layernorm_bw on b7 {URL}"),
        (
            "flag.resolved",
            FLAG | {"sentence": "Green"},
            f"flag passes_by_tolerance resolved for layernorm_bw on b7: Green {URL}",
        ),
        ("bisection.finished", BISECTION, f"bisection of a to c: b broke it {URL}"),
        (
            "bisection.finished",
            {"builds": ["a", "c"], "words": None, "state": "canceled"},
            "bisection of a to c: canceled",
        ),
        ("device.health_changed", DEVICE, "device lab-1/n150 is bad (no answer)"),
        ("device.health_changed", {"device": "lab/0", "health": "good"}, "device lab/0 is good"),
        ("webhook.test", {}, "webhook.test"),
        *(
            (type_, {type_.partition(".")[0]: "gone", "version": 3}, type_)
            for type_ in messages.TYPES
        ),
    ],
)
def test_an_event_is_one_line(type_: str, data: dict[str, Any], line: str) -> None:
    assert messages.sentence({"type": type_, "data": data}) == line


def test_a_sender_s_text_calls_nobody_in_a_chat() -> None:
    data = {**ENDED, "build": "<!channel>\r\n@all", "url": None}
    line = messages.for_people({"type": "job.finished", "data": data})
    assert line == "layernorm_bw on <\u200b!channel> @\u200ball: fail"
