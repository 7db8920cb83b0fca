"""The life of a flag over HTTP: who moved it where and why, until when, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import nightly_history
import stored_jobs
from api import Api, in_process
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.outbox import outbox

TOMORROW = timestamp(datetime.now(UTC) + timedelta(days=1))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with in_process(f"sqlite:///{tmp_path_factory.mktemp('flags') / 'gonogo.sqlite'}") as service:
        yield service


@pytest.fixture
def flag(api: Api) -> dict[str, Any]:
    """The one flag, opened or reopened by a job of this test."""
    with api.context.session() as session:
        stored_jobs.finished(session)
    (listed,) = api.get("/flags")["items"]
    if listed["state"] != "open":
        patch(api, listed, state="resolved")
        patch(api, listed, state="open")
    return dict(api.get(f"/flags/{listed['id']}"))


def patch(api: Api, flag: dict[str, Any], **body: Any) -> Any:
    answer = api.client.patch(f"/api/v1/flags/{flag['id']}", json=body)
    return (
        answer.json()
        if answer.status_code == 200
        else (answer.status_code, answer.json()["field"], answer.json()["limit"])
    )


def test_every_change_is_told_with_who_and_why_and_a_resolved_flag_is_reopened_by_evidence_only(
    api: Api, flag: dict[str, Any]
) -> None:
    acknowledged = patch(
        api,
        flag,
        state="acknowledged",
        owner="ada",
        reason="known since May",
        expires=TOMORROW,
        version=flag["version"],
    )
    assert (acknowledged["state"], acknowledged["owner"], acknowledged["expires_at"]) == (
        "acknowledged",
        "ada",
        TOMORROW,
    )
    closed = patch(api, flag, state="resolved", reason="fixed in 4.2")
    assert (closed["state"], closed["expires_at"]) == ("resolved", None)
    with api.context.session() as session:
        stored_jobs.finished(session)
    reopened = api.get(f"/flags/{flag['id']}")
    assert reopened["state"] == "reopened"
    history = [
        (entry["what"], entry["before"], entry["after"], entry["actor"], entry["reason"])
        for entry in reopened["history"][:3]
    ]
    assert history[1:] == [
        ("resolved", "acknowledged", "resolved", "local", "fixed in 4.2"),
        ("changed", "open", "acknowledged", "local", "known since May"),
    ]
    assert history[0][:4] == ("reopened", "resolved", "reopened", "background")
    assert reopened["history"][0]["detail"]["check"].startswith("gonogo check")
    with api.context.reading() as session:
        messages = [
            message.topic
            for message in outbox.due(session, topics=("flag.opened", "flag.resolved"))
        ]
    assert messages[-2:] == ["flag.resolved", "flag.opened"]
    audited = api.get("/audit", params={"action": "flag.changed", "subject": flag["id"]})["items"]
    assert audited[0]["detail"] == {"state": "resolved", "reason": "fixed in 4.2"}


@pytest.mark.parametrize("reason", [None, "", "  "])
def test_an_acknowledgement_needs_a_reason(
    api: Api, flag: dict[str, Any], reason: str | None
) -> None:
    change: dict[str, Any] = {"state": "acknowledged", "reason": reason}
    for body in (change, {"state": "acknowledged"}):
        answer = patch(api, flag, **body)
        assert answer[:2] == (422, "reason")
        assert "1" in str(answer[2])
    many = api.client.post("/api/v1/flags:change", json={"ids": [flag["id"]], **change})
    assert (many.status_code, many.json()["field"], many.json()["value"]) == (422, "reason", reason)
    assert api.get(f"/flags/{flag['id']}") == flag


def test_an_acknowledgement_is_the_callers_for_14_days_and_says_what_it_does(
    api: Api, flag: dict[str, Any]
) -> None:
    now = datetime.now(UTC)
    known = patch(api, flag, state="acknowledged", reason="known since May")
    end = datetime.fromisoformat(known["expires_at"])
    assert abs(end - now - timedelta(days=14)) < timedelta(minutes=1)
    assert (known["owner"], flag["effect"]) == ("local", None)
    assert known["effect"] == (
        f"Until {end:%Y-%m-%d %H:%M} UTC, hollow passes of this test on wormhole n150 block no"
        f" commit of the branch {flag['branch']}, and none compared with it."
    )
    assert api.get("/flags")["items"][0]["effect"] == known["effect"]
    for field in ("owner", "reason", "expires"):  # what it has can't be taken away
        assert patch(api, flag, **{field: None})[:2] == (422, field)
    assert patch(api, flag, owner="kim")["expires_at"] == known["expires_at"]


def test_a_change_of_what_somebody_else_changed_says_what_happened(
    api: Api, flag: dict[str, Any]
) -> None:
    seen = {"version": flag["version"]}
    patch(api, flag, state="acknowledged", reason="known since May", **seen)
    late = {"state": "resolved", "reason": "fixed"}
    answer = api.client.patch(f"/api/v1/flags/{flag['id']}", json={**late, **seen})
    assert (answer.status_code, answer.json()["limit"]) == (409, flag["version"] + 1)
    happened = "version: is outdated: local set it to acknowledged at 20"
    assert answer.json()["detail"].startswith(happened)
    assert "Z: known since May" in answer.json()["detail"]
    bulk = {"ids": [flag["id"]], "versions": {flag["id"]: flag["version"]}, **late}
    (outcome,) = api.client.post("/api/v1/flags:change", json=bulk).json()["items"]
    assert outcome["outcome"] == "refused"
    assert outcome["problem"]["message"].startswith(happened)
    assert api.get(f"/flags/{flag['id']}")["state"] == "acknowledged"


def test_what_may_not_be_is_refused_with_field_and_limit(api: Api, flag: dict[str, Any]) -> None:
    assert patch(api, flag, expires=TOMORROW) == (422, "expires", '"state": "acknowledged"')
    for expires, allowed in (
        ("2020-01-01T00:00:00Z", "after "),
        ("2099-01-01T00:00:00Z", "90 days from now (GONOGO_WAIVER_DAYS)"),
        ("soon", ""),
        (1790000000, ""),
        ("2099-01-01T00:00:00", ""),
    ):
        status, field, limit = patch(
            api, flag, state="acknowledged", reason="known", expires=expires
        )
        assert (status, field) == (422, "expires")
        assert str(limit).startswith(allowed)
    assert patch(api, flag, state="resolved", version=flag["version"] + 1) == (
        409,
        "version",
        flag["version"],
    )
    assert patch(api, flag, version=flag["version"])[:2] == (422, "body")
    patch(api, flag, state="resolved")
    assert patch(api, flag, state="acknowledged", reason="known") == (
        422,
        "state",
        "resolved, open",
    )
    assert patch(api, flag, state="reopened")[:2] == (422, "state")
    closed = api.get(f"/flags/{flag['id']}")
    assert (closed["state"], closed["expires_at"]) == ("resolved", None)
    assert patch(api, flag, state="resolved")["version"] == closed["version"]  # nothing new
    assert patch(api, flag, state="open")["state"] == "open"


def test_a_line_says_whether_the_newest_build_still_has_it(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url) as api:
        for sequence, wrong, still in (
            (2, True, "The newest build still has it"),
            (3, False, "Not found on the newest build, b3"),
            (1, True, "Not found on the newest build, b3"),  # an older build says nothing new
        ):
            with api.context.session() as session:
                build = f"b{sequence}"
                nightly_history.night(session, build, sequence, range(3), wrong=wrong)
            (line,) = api.client.get("/flags.json?kind=passes_by_tolerance").json()["items"]
            assert (line["build"], line["still"]) == ("b2", still)
