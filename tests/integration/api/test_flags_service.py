"""Flags over HTTP: taken on, closed, and changed in no other way."""

from __future__ import annotations

from typing import Any

import stored_jobs
from api import Api, refusal


def test_a_flag_is_taken_on_and_closed(api: Api) -> None:
    with api.context.session() as session:
        job = stored_jobs.finished(session)
    (flag,) = api.get("/flags?kind=passes_by_tolerance&state=open")["items"]
    assert (flag["test_key"], flag["last_job"]) == (job.test_key, job.id)
    shown = api.get(f"/flags/{flag['id']}")
    assert [entry["what"] for entry in shown["history"]] == ["opened"]
    assert shown["evidence"]["diagnosis"] == flag["diagnosis"]
    changes: list[dict[str, Any]] = [
        {"state": "acknowledged", "owner": "ada", "reason": "known since May"},
        {"state": "resolved", "owner": None},
    ]
    expected = {name: flag[name] for name in ("state", "owner", "reason")}
    for count, change in enumerate(changes, 1):
        changed = api.client.patch(f"/api/v1/flags/{flag['id']}", json=change).json()
        expected |= change
        assert {name: changed[name] for name in expected} == expected
        assert changed["version"] == flag["version"] + count
        if count == 1:
            changes[0]["expires"] = changed["expires_at"]
    assert api.get("/flags?state=open")["items"] == []
    entries = api.get("/audit", params={"action": "flag.changed", "subject": flag["id"]})["items"]
    assert [entry["detail"] for entry in entries] == changes[::-1]


def test_a_wrong_change_of_a_flag_is_refused(api: Api) -> None:
    with api.context.session() as session:
        stored_jobs.finished(session)
    (flag,) = api.get("/flags")["items"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "body"),
        ({"state": "gone"}, "state"),
        ({"state": "reopened"}, "state"),
        ({"kind": "flaky"}, "kind"),
        ({"owner": ""}, "owner"),
    ]
    for body, field in wrong:
        answer = api.client.patch(f"/api/v1/flags/{flag['id']}", json=body)
        assert refusal(answer) == (422, field)
    assert api.get("/flags")["items"] == [flag]
