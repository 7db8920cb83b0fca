"""Builds over HTTP: registered, removed, and taken by jobs on their own executor only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from api import JOB, Api, bearer, refusal
from database_params import BOTH
from gonogo.spec.builds import EMULATOR, own_builds
from gonogo_service.devices import workers
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.people.issuing import issue_token

SETTINGS = {"executors": "mine=package.module:Factory"}
PLACE = {"executor": "ttnn", "branch": "main", "sequence": 60, "commit": "abc123"}
V60 = {"name": "v0.60", **PLACE, "author": "Ada", "arithmetic": "wormhole", "outputs": ["dx"]}


def all_names(api: Api, **query: Any) -> list[str]:
    return [build["name"] for build in api.get("/builds", params={"limit": 500, **query})["items"]]


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


def test_what_the_name_of_a_build_means_never_changes(api: Api) -> None:
    for code in (201, 200):
        assert api.client.post("/api/v1/builds", json=V60).status_code == code
    other = api.client.post("/api/v1/builds", json={**V60, "sequence": 61})
    assert (other.status_code, other.json()["field"]) == (409, "name")
    (entry,) = api.get("/audit?action=build.registered")["items"]
    assert entry["subject"] == "v0.60"


@BOTH
def test_builds_that_are_registered_at_once_have_one_meaning_and_one_place_each(api: Api) -> None:
    def register(name: str) -> tuple[int, int]:
        body = {"name": name, "executor": "ttnn", "branch": "night"}
        answer = api.client.post("/api/v1/builds", json=body)
        return answer.status_code, answer.json().get("sequence", 0)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(register, ["same"] * 4 + [f"b{n}" for n in range(4)]))
    assert sorted(code for code, _ in answers) == [200] * 3 + [201] * 5
    assert len({place for _, place in answers[:4]}) == 1
    assert sorted(place for code, place in answers if code == 201) == [1, 2, 3, 4, 5]


def test_a_build_is_removed_while_no_job_has_it(api: Api) -> None:
    def remove(name: str) -> Any:
        return api.client.delete(f"/api/v1/builds/{name}")

    for name in ("wrong/commit", "other"):
        build = {"name": name, "executor": "ttnn", "branch": "main"}
        assert api.client.post("/api/v1/builds", json=build).status_code == 201
    job = api.submit(build="ttnn", target={"executor": "ttnn"}, reference={"build": "other"})
    assert [remove(name).status_code for name in ("other", "ttnn")] == [409, 422]
    removed = remove("wrong/commit")
    assert (removed.status_code, removed.json()["name"]) == (200, "wrong/commit")
    assert remove("wrong/commit").status_code == 404
    assert "did you mean 'other'?" in remove("othr").json()["detail"]
    assert api.client.post(f"/api/v1/jobs/{job}:cancel").status_code == 202
    assert api.client.delete(f"/api/v1/jobs/{job}").status_code == 200
    assert remove("other").status_code == 200


def test_a_token_for_submitting_appends_builds_within_its_patterns_only(api: Api) -> None:
    limits = {"builds": ["kernels-*", "!kernels-0*"], "branches": ["main", "main/pull-*"]}
    with api.context.session() as session:
        text = issue_token(session, "ci", ["submit"], keys=api.context.keys, **limits)
    bounded, unbounded = bearer(text), api.token("submit")
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


def test_a_build_may_name_an_executor_that_comes_later(api: Api) -> None:
    for changes, code in (({"new_executor": True}, 201), ({"name": "v2"}, 201)):
        body = {**V60, "executor": "abacus", "sequence": None, **changes}
        assert api.client.post("/api/v1/builds", json=body).status_code == code


def test_a_registered_build_takes_jobs_on_its_own_executor_only(api: Api) -> None:
    api.client.post("/api/v1/builds", json=V60)
    job = api.submit(build="v0.60", target={"executor": "ttnn"})
    assert api.get(f"/jobs/{job}")["branch"] == "main"
    forward = {"kernel": "layernorm_fw", "shape": [32, 32]}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"target": {"executor": "torch"}}, "target.executor"),
        ({"target": {}}, "target.executor"),
        ({"target": {"executor": "ttnn"}, "test": forward}, "build"),
    ]
    for changes, field in wrong:
        answer = api.client.post("/api/v1/jobs", json={**JOB, "build": "v0.60", **changes})
        assert refusal(answer) == (422, field)


def test_a_plug_in_is_known_by_the_settings_or_a_live_worker_and_names_its_builds_itself(
    api: Api,
) -> None:
    job = api.submit(build="correct", target={"executor": "mine"})
    assert api.get(f"/jobs/{job}")["queue"] == "mine.wormhole.n150"
    body = {**JOB, "build": "anything", "target": {"executor": "theirs"}}
    assert api.client.post("/api/v1/jobs", json=body).status_code == 422
    with api.context.session() as session:
        place = {"queues": ["theirs.wormhole.n150"], "device": "theirs:0", "host": "h"}
        workers.heard(session, "w1", **place, attempt=None, now=utcnow())
    assert api.client.post("/api/v1/jobs", json=body).status_code == 202
    (worker,) = api.get("/workers")["items"]
    assert (worker["name"], worker["state"], worker["queues"]) == ("w1", "idle", place["queues"])
    assert api.client.post("/api/v1/jobs:validate", json=body).json()["wait_s"] > 0
