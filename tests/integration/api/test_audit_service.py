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
from gonogo_service.kit import resource
from gonogo_service.people import audit_api
from gonogo_service.people.visit import SAFE_METHODS
from suite_runs import SUITE

UNAUDITED = {
    # stored as they came, in a list of their own; what they start is audited
    *("POST /hooks/github", "POST /hooks/ci"),
    # a reader's own mark, and a diff that is shown: nothing of anybody's changes
    *("POST /news:seen", "POST /tolerances:patch"),
    # what hosts send all the time; only refused requests are audited
    *("PUT /hosts/self", "POST /hosts/self/health", "POST /attempts/{attempt}:claim"),
    *("PUT /attempts/{attempt}/results/{batch}", "POST /attempts/{attempt}:finish"),
}
ACTIONS = {
    "job.deleted": ["DELETE /jobs/{job_id}"],
    "job.submitted": ["POST /jobs", "POST /jobs/{job_id}:resubmit"],
    "import.created": ["POST /imports"],
    "flag.changed": ["PATCH /flags/{flag_id}", "POST /flags:change", "POST /flags"],
    "run.submitted": [
        *("POST /runs", "POST /runs/{run_id}:resubmit", "POST /schedules/{schedule_id}:run-now"),
    ],
    "run.cancelled": ["POST /runs/{run_id}:cancel"],
    "rejudgement.stored": ["POST /rejudgements"],
    "device.health_changed": ["PATCH /devices/{device_id}"],
    "device.drained": ["POST /hosts/{name}:drain", "POST /workers/{name:path}:drain"],
    "device.undrained": ["POST /hosts/{name}:undrain", "POST /workers/{name:path}:undrain"],
    "host.added": ["POST /hosts:add"],
    "host.joined": ["POST /hosts:join"],
    "host.rotated": ["POST /hosts/self:rotate"],
    "host.revoked": ["POST /hosts/{host}:revoke"],
    "token.created": ["POST /tokens"],
    "token.rotated": ["POST /tokens/{token_id}:rotate"],
    "webhook.created": ["POST /webhooks"],
    "webhook.rotated": ["POST /webhooks/{webhook_id}:rotate"],
    "webhook.tested": ["POST /webhooks/{webhook_id}:test"],
    "delivery.replayed": ["POST /webhooks/{webhook_id}/deliveries/{delivery_id}:replay"],
    "hook.replayed": ["POST /hooks/deliveries/{incoming_id}:replay"],
    "rule.stored": ["PUT /rules"],
    "answer.again": ["POST /github/answers/{commit_check}:again"],
    "session.created": ["POST /login"],
    "session.ended": ["POST /logout"],
}


def test_every_address_that_changes_something_has_its_entry(api: Api) -> None:
    """For the addresses of kit.resource, test_resources.py looks at each entry."""
    changing = {
        f"{method} {route.path.removeprefix('/api/v1')}"  # type: ignore[attr-defined]
        for route in api.app.router.routes
        if getattr(route, "endpoint", api).__module__ != resource.__name__
        for method in (getattr(route, "methods", None) or set()) - SAFE_METHODS
    }
    checks = {address for address in changing if address.endswith(":validate")}
    audited = {address for addresses in ACTIONS.values() for address in addresses}
    assert changing - checks - UNAUDITED == audited
    recorded = {"rule.stored"}  # by its noun
    for path in Path(str(gonogo_service.__file__)).parent.rglob("*.py"):
        tree = ast.walk(ast.parse(path.read_text()))
        recorded |= {str(node.value) for node in tree if isinstance(node, ast.Constant)}
    assert ACTIONS.keys() <= recorded


def test_submissions_are_in_the_audit_once(api: Api) -> None:
    job = api.submit()
    for _ in range(2):  # the second is a stored answer
        answer = api.client.post(
            f"/api/v1/jobs/{job}:resubmit", headers={"Idempotency-Key": "again"}
        )
        assert answer.status_code == 202
    run = api.client.post("/api/v1/runs", json={"suite": SUITE}).json()["id"]
    for _ in range(2):
        again = api.client.post(
            f"/api/v1/runs/{run}:resubmit", headers={"Idempotency-Key": "again"}
        ).json()["id"]
    refused = api.client.post("/api/v1/jobs", json={**JOB, "build": "no-such-build"})
    assert refused.status_code == 422
    entries = api.get("/audit")["items"]
    assert [(entry["action"], entry["subject"]) for entry in entries] == [
        ("run.submitted", again),
        ("run.submitted", run),
        ("job.submitted", answer.json()["id"]),
        ("job.submitted", job),
    ]
    assert [entries[place]["detail"]["resubmit_of"] for place in (0, 2)] == [run, job]


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
