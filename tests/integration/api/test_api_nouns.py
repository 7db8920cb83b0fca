"""The special behavior of builds, flags, workers and tokens over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import stored_jobs
from api import JOB, Api, in_process
from database_params import BOTH
from gonogo.emulator import builds_of
from gonogo.kernels import layernorm
from gonogo.spec.builds import EMULATOR, own_builds
from gonogo_service.devices import workers
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.people.issuing import issue_token

V60 = {
    "name": "v0.60",
    "executor": "ttnn",
    "branch": "main",
    "sequence": 60,
    "commit": "abc123",
    "arithmetic": "wormhole",
    "outputs": ["dx"],
}


@pytest.fixture
def api(lite_database_url: str) -> Iterator[Api]:
    with in_process(lite_database_url) as service:
        yield service


def all_names(api: Api, **query: Any) -> list[str]:
    names, cursor = [], None
    while True:
        page = api.get(
            "/builds", params={"limit": 4, **query, **({"cursor": cursor} if cursor else {})}
        )
        names += [build["name"] for build in page["items"]]
        cursor = page["next"]
        if cursor is None:
            return names


def test_the_emulator_has_the_builds_that_it_lists() -> None:
    names = layernorm.BUILDS
    assert tuple(builds_of("layernorm_bw"))[: len(names)] == names
    assert tuple(own_builds(EMULATOR))[: len(names)] == names


@BOTH
def test_registered_builds_are_listed_among_those_of_the_emulator(api: Api) -> None:
    builtin_names = list(own_builds())
    assert all_names(api) == sorted(builtin_names)
    answer = api.client.post("/api/v1/builds", json=V60)
    assert answer.status_code == 201
    assert {**V60, "created_at": answer.json()["created_at"]} == answer.json()
    assert all_names(api) == sorted([*builtin_names, "v0.60"])
    assert all_names(api, executor="torch") == sorted(own_builds("torch"))
    assert all_names(api, executor="ttnn") == sorted([*own_builds("ttnn"), "v0.60"])
    assert all_names(api, branch="emulator") == sorted(own_builds(EMULATOR))


@BOTH
def test_what_the_name_of_a_build_means_never_changes(api: Api) -> None:
    for code in (201, 200):
        assert api.client.post("/api/v1/builds", json=V60).status_code == code
    other = api.client.post("/api/v1/builds", json={**V60, "sequence": 61})
    assert (other.status_code, other.json()["field"]) == (409, "name")
    assert [entry["subject"] for entry in api.get("/audit?action=build.registered")["items"]] == [
        "v0.60"
    ]


@BOTH
def test_a_build_is_removed_while_no_job_has_it(api: Api) -> None:
    def remove(name: str) -> Any:
        return api.client.delete(f"/api/v1/builds/{name}")

    for name in ("wrong/commit", "other"):
        build = {"name": name, "executor": "ttnn", "branch": "main"}
        assert api.client.post("/api/v1/builds", json=build).status_code == 201
    job = api.submit(build="ttnn", target={"executor": "ttnn"}, reference={"build": "other"})
    for name in ("other", "ttnn"):
        assert remove(name).status_code == (409 if name == "other" else 422)
    removed = remove("wrong/commit")
    assert (removed.status_code, removed.json()["name"]) == (200, "wrong/commit")
    assert remove("wrong/commit").status_code == 404
    assert "did you mean 'other'?" in remove("othr").json()["detail"]
    assert api.client.post(f"/api/v1/jobs/{job}:cancel").status_code == 202
    assert api.client.delete(f"/api/v1/jobs/{job}").status_code == 200
    assert remove("other").status_code == 200
    removals = api.get("/audit?action=build.removed")["items"]
    assert [entry["subject"] for entry in removals] == ["other", "wrong/commit"]
    answer = api.client.delete("/api/v1/builds/other", headers=api.token("submit"))
    assert answer.status_code == 403


@BOTH
def test_a_token_for_submitting_appends_builds_within_its_patterns_only(api: Api) -> None:
    with api.context.session() as session:
        text = issue_token(
            session,
            "ci",
            ["submit"],
            builds=["kernels-*", "!kernels-0*"],
            branches=["main", "main/pull-*"],
            keys=api.context.keys,
        )
    bounded, unbounded = {"Authorization": f"Bearer {text}"}, api.token("submit")
    build = {"name": "kernels-1", "executor": "ttnn", "branch": "main", "commit": "abc123"}

    def register(headers: dict[str, str], **changes: Any) -> Any:
        return api.client.post("/api/v1/builds", json={**build, **changes}, headers=headers)

    sequences = [register(bounded, name=f"kernels-{n}").json()["sequence"] for n in (1, 2, 1)]
    assert sequences == [1, 2, 1]
    assert api.get("/builds/kernels-2")["sequence"] == 2
    refused = [
        register(bounded, name="release-1"),
        register(bounded, name="kernels-01"),
        register(bounded, name="kernels-3", branch="release"),
        register(bounded, name="kernels-3", sequence=0),
        register(unbounded, name="kernels-3"),
        register(api.token("read"), name="kernels-3"),
    ]
    assert [answer.status_code for answer in refused] == [403] * 6
    assert "names kernels-*, !kernels-0*; branches main" in refused[0].json()["detail"]
    assert register(bounded, commit="other").status_code == 409
    assert all(name != "kernels-3" for name in all_names(api))
    assert register(api.token("admin"), name="anything", sequence=9).json()["sequence"] == 9
    assert api.client.get("/api/v1/builds/nothing").status_code == 404
    assert api.get("/builds/correct")["executor"] == "emulator"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"command": "rm"}, "command"),
        ({"name": "correct"}, "name"),
        ({"executor": "emulator"}, "executor"),
        ({"arithmetic": "moreh"}, "arithmetic"),
        ({"sequence": -1}, "sequence"),
        ({"sequence": True}, "sequence"),
        ({"commit": 7}, "commit"),
        ({"outputs": []}, "outputs"),
        ({"executor": "emulatr"}, "executor"),
        ({"outputs": [" "]}, "outputs.0"),
    ],
)
def test_a_wrong_build_is_refused_by_its_field(
    api: Api, changes: dict[str, Any], field: str
) -> None:
    answer = api.client.post("/api/v1/builds", json={**V60, **changes})
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert api.rows()["builds"] == 0


def test_a_build_may_name_an_executor_that_comes_later(api: Api) -> None:
    for changes, code in (({}, 422), ({"new_executor": True}, 201), ({"name": "v2"}, 201)):
        body = {**V60, "executor": "abacus", "sequence": None, **changes}
        assert api.client.post("/api/v1/builds", json=body).status_code == code


def test_a_registered_build_takes_jobs_on_its_own_executor_only(api: Api) -> None:
    api.client.post("/api/v1/builds", json=V60)
    job = api.submit(build="v0.60", target={"executor": "ttnn"})
    assert api.get(f"/jobs/{job}")["branch"] == "main"
    for target in ({"executor": "torch"}, {}):
        answer = api.client.post("/api/v1/jobs", json={**JOB, "build": "v0.60", "target": target})
        assert (answer.status_code, answer.json()["field"], answer.json()["limit"]) == (
            422,
            "target.executor",
            "ttnn",
        )
    forward = {"kernel": "layernorm_fw", "shape": [32, 32]}
    answer = api.client.post(
        "/api/v1/jobs",
        json={**JOB, "build": "v0.60", "target": {"executor": "ttnn"}, "test": forward},
    )
    assert (answer.status_code, answer.json()["field"]) == (422, "build")


def test_a_plug_in_interprets_the_names_of_its_builds_itself(sqlite_url: str) -> None:
    with in_process(sqlite_url, executors="mine=package.module:Factory") as api:
        job = api.submit(build="anything", target={"executor": "mine"})
        assert api.get(f"/jobs/{job}")["queue"] == "mine.wormhole.n150"
        assert (
            api.client.post(
                "/api/v1/jobs", json={**JOB, "build": "correct", "target": {"executor": "mine"}}
            ).status_code
            == 202
        )


def test_a_plug_in_that_a_live_worker_serves_is_known(api: Api) -> None:
    body = {**JOB, "build": "anything", "target": {"executor": "theirs"}}
    assert api.client.post("/api/v1/jobs", json=body).status_code == 422
    with api.context.session() as session:
        workers.heard(
            session,
            "w1",
            queues=["theirs.wormhole.n150"],
            device="theirs:0",
            host="h",
            attempt=None,
            now=utcnow(),
        )
    assert api.client.post("/api/v1/jobs", json=body).status_code == 202
    (worker,) = api.get("/workers")["items"]
    assert (worker["name"], worker["state"], worker["queues"]) == (
        "w1",
        "idle",
        ["theirs.wormhole.n150"],
    )
    assert api.client.post("/api/v1/jobs:validate", json=body).json()["wait_s"] > 0


@BOTH
def test_a_flag_is_taken_on_and_closed(api: Api) -> None:
    with api.context.session() as session:
        job = stored_jobs.finished(session)
    (flag,) = api.get("/flags?kind=passes_by_tolerance&state=open")["items"]
    assert (flag["test_key"], flag["last_job"]) == (job.test_key, job.id)
    shown_flag = api.get(f"/flags/{flag['id']}")
    assert [entry["what"] for entry in shown_flag.pop("history")] == ["opened"]
    evidence = shown_flag.pop("evidence")
    sentence = evidence.get("words") or evidence["sentence"]
    assert {**shown_flag, "sentence": sentence, "diagnosis": evidence["diagnosis"]} == flag
    path = f"/api/v1/flags/{flag['id']}"
    acknowledged = api.client.patch(
        path, json={"state": "acknowledged", "owner": "ada", "reason": "known since May"}
    ).json()
    assert (
        acknowledged["state"],
        acknowledged["owner"],
        acknowledged["reason"],
        acknowledged["version"],
    ) == (
        "acknowledged",
        "ada",
        "known since May",
        flag["version"] + 1,
    )
    closed = api.client.patch(path, json={"state": "resolved", "owner": None}).json()
    assert (closed["state"], closed["owner"], closed["reason"]) == (
        "resolved",
        None,
        "known since May",
    )
    assert api.get("/flags?state=open")["items"] == []
    details = [
        entry["detail"]
        for entry in api.get("/audit", params={"action": "flag.changed", "subject": flag["id"]})[
            "items"
        ]
    ]
    assert details == [
        {"state": "resolved", "owner": None},
        {
            "state": "acknowledged",
            "owner": "ada",
            "reason": "known since May",
            "expires": acknowledged["expires_at"],
        },
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"state": "gone"}, "state"),
        ({"state": "reopened"}, "state"),
        ({"kind": "flaky"}, "kind"),
        ({"owner": ""}, "owner"),
    ],
)
def test_a_wrong_change_of_a_flag_is_refused(api: Api, body: dict[str, Any], field: str) -> None:
    with api.context.session() as session:
        stored_jobs.finished(session)
    (flag,) = api.get("/flags")["items"]
    answer = api.client.patch(f"/api/v1/flags/{flag['id']}", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert api.get("/flags")["items"] == [flag]


@BOTH
def test_a_token_is_shown_once_works_and_is_revoked(api: Api) -> None:
    issued = api.client.post("/api/v1/tokens", json={"name": "ci", "scopes": ["submit", "read"]})
    assert issued.status_code == 201
    token = issued.json()
    assert token["scopes"] == ["read", "submit"]
    assert token["token"].startswith(token["prefix"] + "_")
    shown = {name: value for name, value in token.items() if name != "token"}
    assert api.get("/tokens")["items"] == [shown]
    header = {"Authorization": f"Bearer {token['token']}"}
    assert api.client.get("/api/v1/jobs", headers=header).status_code == 200
    assert api.get("/tokens")["items"][0]["last_used_at"] is not None
    for _ in range(2):
        revoked = api.client.delete(f"/api/v1/tokens/{token['id']}")
        assert revoked.status_code == 200
        assert revoked.json()["revoked_at"] is not None
    assert api.client.get("/api/v1/jobs", headers=header).status_code == 401
    assert [
        entry["action"] for entry in api.get("/audit", params={"subject": token["id"]})["items"]
    ] == ["token.revoked", "token.created"]
    assert api.client.delete("/api/v1/tokens/nonsense").status_code == 404


NOUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gauges": ({"test": JOB["test"], "seeds": {"count": 2}}, {"seeds": {"count": 10**6}}),
    "bisections": ({"test": JOB["test"], "builds": ["correct"] * 4}, {"builds": ["correct"]}),
    "webhooks": (
        {"url": "https://ci.example/x", "events": ["run.finished"]},
        {"events": ["nonsense"]},
    ),
    "waivers": (
        {"names": ["**"], "reason": "ticket 12", "expires": "2026-01-02T00:00:00Z"},
        {"reason": ""},
    ),
    "rules": (
        {"name": "nightly", "events": ["push"], "repositories": ["lab/x"], "suites": ["nightly"]},
        {"events": ["nonsense"]},
    ),
    "schedules": ({"name": "n", "suite": "nightly", "cron": "30 2 * * *"}, {"cron": "x"}),
}


@pytest.mark.parametrize("noun", NOUNS)
def test_a_check_refuses_what_the_request_refuses_and_leaves_nothing(api: Api, noun: str) -> None:
    body, wrong = NOUNS[noun]
    if noun == "waivers":
        body = {**body, "expires": (utcnow() + timedelta(days=3)).isoformat()}
    if noun in ("rules", "schedules"):
        entries = [{"name": "ln", "test": JOB["test"], "seeds": {"count": 1}}]
        suite = {"name": "nightly", "entries": entries, "builds": ["correct"]}
        assert api.client.post("/api/v1/suites", json=suite).status_code == 201
    checked = api.client.post(f"/api/v1/{noun}:validate", json=body)
    assert (checked.status_code, checked.json()) == (200, {"valid": True}), checked.text
    bad = {**body, **wrong}
    refusals = [
        api.client.post(f"/api/v1/{address}", json=bad) for address in (f"{noun}:validate", noun)
    ]
    assert [refusal.status_code for refusal in refusals] == [422, 422]
    assert refusals[0].json()["errors"] == refusals[1].json()["errors"]
    assert api.get(f"/{noun}")["items"] == []
    assert api.client.post(f"/api/v1/{noun}", json=body).status_code in (201, 202)
    assert len(api.get(f"/{noun}")["items"]) == 1
