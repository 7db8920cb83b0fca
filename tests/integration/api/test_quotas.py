"""Quotas of a token: what it may have in the queue, store and request."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from api import JOB, Api, in_process
from database_params import BOTH
from gonogo_service.background import scheduler
from gonogo_service.jobs import artifacts
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import DueOutcome
from records import pick

BIG = {**JOB, "seeds": {"start": 0, "count": 1000}}


def refused(api: Api, path: str, body: Any, headers: dict[str, str]) -> dict[str, Any]:
    """The problem of a request that must be beyond a quota, and stores nothing."""
    before = api.rows()
    answer = api.client.post(f"/api/v1{path}", json=body, headers=headers)
    assert answer.status_code == 429, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert api.rows() == before
    problem: dict[str, Any] = answer.json()
    assert problem["type"].endswith(":quota")
    return problem


@BOTH
def test_open_jobs_of_every_kind_count_until_they_end(lite_database_url: str) -> None:
    with in_process(lite_database_url, quota_open_jobs=2) as api:
        ann, bob = api.token("submit", name="ann"), api.token("submit", name="bob")
        job = api.client.post("/api/v1/jobs", json=JOB, headers=ann).json()["id"]
        gauge = {"test": JOB["test"], "seeds": {"count": 1}}
        assert api.client.post("/api/v1/gauges", json=gauge, headers=ann).status_code == 202
        suite = {"name": "s", "entries": [{"name": "a", **gauge}]}
        run = {"suite": suite, "builds": ["correct"]}
        again = f"/jobs/{job}:resubmit"
        for path, body in (("/jobs", JOB), ("/gauges", gauge), ("/runs", run), (again, None)):
            problem = refused(api, path, body, ann)
            quota = ("quota.open_jobs", 3, "2 (GONOGO_QUOTA_OPEN_JOBS)")
            assert pick(problem, "field", "value", "limit") == quota
            assert "the token 'ann' would have 3 open jobs" in problem["detail"]
        assert api.client.post("/api/v1/jobs", json=JOB, headers=bob).status_code == 202
        page = api.client.get("/jobs/new", headers=ann).text
        assert "Your quota: 2 of 2 open jobs" in page
        api.client.post(f"/api/v1/jobs/{job}:cancel", headers=ann)
        assert api.client.post("/api/v1/jobs", json=JOB, headers=ann).status_code == 202


def test_queued_device_time_and_artifacts_are_limited(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url) as api:
        limit_s = 1.5 * api.client.post("/api/v1/jobs:validate", json=JOB).json()["device_s"]
    with in_process(migrated_sqlite_url, quota_device_s=limit_s, quota_artifact_bytes=100) as api:
        ann = api.token("submit", name="ann")
        alone = api.client.post("/api/v1/jobs", json=BIG, headers=ann)
        assert alone.status_code == 422
        assert "this request alone adds" in alone.json()["detail"]
        job = api.client.post("/api/v1/jobs", json=JOB, headers=ann).json()["id"]
        assert refused(api, "/jobs", JOB, ann)["field"] == "quota.device_s"
        api.client.post(f"/api/v1/jobs/{job}:cancel", headers=ann)
        large = {"kind": "log", "seed": 0, "content": {"text": "x" * 200}}
        with api.context.session() as session:
            artifacts.add(session, job, new_id(), [large], now=utcnow())
        assert refused(api, "/jobs", JOB, ann)["field"] == "quota.artifact_bytes"


@pytest.mark.parametrize("limit", [3, 0])
def test_requests_are_limited_for_each_token(migrated_sqlite_url: str, limit: int) -> None:
    with in_process(migrated_sqlite_url, quota_requests=limit) as api:
        ann, bob = api.token("read", name="ann"), api.token("read", name="bob")
        answers = [api.client.get("/api/v1/builds", headers=ann) for _ in range(5)]
        expected = [200, 200, 200, 429, 429] if limit else [200] * 5
        assert [answer.status_code for answer in answers] == expected
        assert ("retry-after" in answers[-1].headers) is bool(limit)
        assert api.client.get("/api/v1/builds", headers=bob).status_code == 200


def test_a_schedule_gets_its_owner_past_no_quota(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url, quota_open_jobs=1) as api:
        ann = api.token("submit", name="ann")
        entries = [{"name": name, "test": JOB["test"], "seeds": {"count": 1}} for name in "ab"]
        suite = {"name": "s", "builds": ["correct"], "entries": entries}
        assert api.client.post("/api/v1/suites", json=suite, headers=ann).is_success
        body = {"name": "n", "suite": "s", "cron": "* * * * *"}
        schedule = api.client.post("/api/v1/schedules", json=body, headers=ann)
        assert schedule.is_success, schedule.text
        due = utcnow() + timedelta(minutes=2)
        with api.context.session() as session:
            outcome = scheduler.submit_due(session, schedule.json()["id"], api.settings, due)
        assert outcome is DueOutcome.failed
        (last,) = api.get(f"/schedules/{schedule.json()['id']}")["last"]
        assert "quota.open_jobs" in last["reason"]
        assert api.get("/jobs")["items"] == []
