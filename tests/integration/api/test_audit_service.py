"""The audit over HTTP: every submission and change is in it, and so they are in its export."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

import gonogo_service
from api import JOB, Api, on_port
from gonogo.cli.app import main
from gonogo_service.kit.resource import Resource
from gonogo_service.people import audit_api
from gonogo_service.people.visit import SAFE_METHODS
from suite_runs import SUITE

DELIVERIES = {"POST /hooks/github", "POST /hooks/ci"}
"""Stored as they came, in a list of their own; what they start is audited."""
UNAUDITED = {"POST /news:seen", "POST /tolerances:patch"}
"""A reader's own mark, and a diff that is shown: nothing of anybody's changes."""


WORK = {
    "PUT /hosts/self",
    "POST /hosts/self/health",
    "POST /attempts/{attempt}:claim",
    "PUT /attempts/{attempt}/results/{batch}",
    "POST /attempts/{attempt}:finish",
}
"""Requests that hosts send all the time; only refused ones are audited."""
ACTIONS = {
    "DELETE /jobs/{job_id}": "job.deleted",
    "POST /jobs": "job.submitted",
    "POST /jobs/{job_id}:cancel": "job.cancelled",
    "POST /jobs/{job_id}:resubmit": "job.submitted",
    "POST /imports": "import.created",
    "POST /gauges": "gauge.created",
    "POST /gauges/{gauge_id}:cancel": "gauge.cancelled",
    "POST /bisections": "bisection.created",
    "POST /bisections/{bisection_id}:cancel": "bisection.cancelled",
    "PATCH /flags/{flag_id}": "flag.changed",
    "POST /flags:change": "flag.changed",
    "POST /waivers": "waiver.created",
    "PATCH /waivers/{waiver_id}": "waiver.changed",
    "DELETE /waivers/{waiver_id}": "waiver.ended",
    "POST /suites": "suite.stored",
    "DELETE /suites/{suite:path}": "suite.archived",
    "POST /runs": "run.submitted",
    "POST /runs/{run_id}:cancel": "run.cancelled",
    "POST /schedules": "schedule.created",
    "PATCH /schedules/{schedule_id}": "schedule.changed",
    "DELETE /schedules/{schedule_id}": "schedule.archived",
    "POST /schedules/{schedule_id}:run-now": "run.submitted",
    "POST /rejudgements": "rejudgement.stored",
    "POST /builds": "build.registered",
    "DELETE /builds/{build:path}": "build.removed",
    "PATCH /devices/{device_id}": "device.health_changed",
    "POST /hosts/{name}:drain": "device.drained",
    "POST /hosts/{name}:undrain": "device.undrained",
    "POST /hosts:add": "host.added",
    "POST /hosts:join": "host.joined",
    "POST /hosts/self:rotate": "host.rotated",
    "POST /hosts/{host}:revoke": "host.revoked",
    "POST /workers/{name:path}:drain": "device.drained",
    "POST /workers/{name:path}:undrain": "device.undrained",
    "POST /tokens": "token.created",
    "DELETE /tokens/{token_id}": "token.revoked",
    "POST /tokens/{token_id}:rotate": "token.rotated",
    "POST /webhooks": "webhook.created",
    "PATCH /webhooks/{webhook_id}": "webhook.changed",
    "DELETE /webhooks/{webhook_id}": "webhook.deleted",
    "POST /webhooks/{webhook_id}:rotate": "webhook.rotated",
    "POST /webhooks/{webhook_id}:test": "webhook.tested",
    "POST /webhooks/{webhook_id}/deliveries/{delivery_id}:replay": "delivery.replayed",
    "POST /hooks/deliveries/{incoming_id}:replay": "hook.replayed",
    "POST /rules": "rule.stored",
    "PUT /rules": "rule.stored",
    "DELETE /rules/{rule:path}": "rule.archived",
    "POST /github/answers/{commit_check}:again": "answer.again",
    "POST /login": "session.created",
    "POST /logout": "session.ended",
    "POST /flags": "flag.changed",
}


def test_every_address_that_changes_something_has_its_entry(api: Api) -> None:
    changing = {
        f"{method} {route.path.removeprefix('/api/v1')}"  # type: ignore[attr-defined]
        for route in api.app.router.routes
        for method in (getattr(route, "methods", None) or set()) - SAFE_METHODS
    }
    checks = {address for address in changing if address.endswith(":validate")}
    assert changing - checks - DELIVERIES - WORK - UNAUDITED == set(ACTIONS)
    nouns = [resource.noun for resource in Resource.registered]
    recorded = {
        f"{noun.one}.{verb.done}"
        for noun in nouns
        for verb in (noun.create, noun.change, noun.remove)
        if verb is not None
    } | {f"{noun.one}.cancelled" for noun in nouns}  # of those that have on_cancel
    for path in Path(str(gonogo_service.__file__)).parent.rglob("*.py"):
        tree = ast.walk(ast.parse(path.read_text()))
        recorded |= {str(node.value) for node in tree if isinstance(node, ast.Constant)}
    assert set(ACTIONS.values()) <= recorded


def test_submissions_are_in_the_audit_once(api: Api) -> None:
    job = api.submit()
    for _ in range(2):  # the second is a stored answer
        answer = api.client.post(
            f"/api/v1/jobs/{job}:resubmit", headers={"Idempotency-Key": "again"}
        )
        assert answer.status_code == 202
    run = api.client.post("/api/v1/runs", json={"suite": SUITE}).json()["id"]
    refused = api.client.post("/api/v1/jobs", json={**JOB, "build": "no-such-build"})
    assert refused.status_code == 422
    entries = api.get("/audit")["items"]
    assert [(entry["action"], entry["subject"]) for entry in entries] == [
        ("run.submitted", run),
        ("job.submitted", answer.json()["id"]),
        ("job.submitted", job),
    ]
    assert entries[1]["detail"]["resubmit_of"] == job


def test_the_export_has_every_entry_oldest_first(
    migrated_sqlite_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit_api, "EXPORT_PAGE", 2)
    export = tmp_path / "audit.ndjson"
    with on_port(migrated_sqlite_url) as (client, _):
        monkeypatch.setenv("GONOGO_URL", str(client.base_url))
        jobs = [client.post("/api/v1/jobs", json=JOB).json()["id"] for _ in range(3)]
        listed = client.get("/api/v1/audit").json()["items"]
        monkeypatch.setattr(sys, "argv", ["gonogo", "audit", "export", "--output", str(export)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    lines = [json.loads(line) for line in export.read_text().splitlines()]
    assert [line["subject"] for line in lines] == jobs
    assert lines == listed[::-1]
