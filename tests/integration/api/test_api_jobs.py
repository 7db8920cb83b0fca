"""Jobs over HTTP: submitted, shown, listed, cancelled, resubmitted; the same request twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import time_machine

from api import JOB, Api, in_process, refusal
from database_params import BOTH
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.queue import DISPATCH_NOTIFICATION_KEY
from patience import WAIT_S
from records import pick


def test_a_job_is_accepted_stored_and_shown(api: Api) -> None:
    warm = {"kernel": "layernorm_fw", "shape": [32, 32]}
    body = {
        **JOB,
        "target": {"executor": "emulator", "arch": "wormhole", "board": "n300"},
        "seeds": [5, 1, 9],
        "repeats": 2,
        "priority": 9,
        "reference": None,
        "context": {"name": "warm", "before": [{**warm, "epsilon": 1e-6}]},
        "labels": {"suite": "nightly"},
        "commit": {"repository": "org/name", "sha": "0123abc", "pull_request": 1},
    }
    answer = api.client.post("/api/v1/jobs", json=body)
    assert answer.status_code == 202
    accepted = answer.json()
    assert set(accepted) == {"id", "state", "chunks", "links", "waiting_reason"}
    assert accepted["waiting_reason"] == (
        "no live worker serves the queue emulator.wormhole.n300 now (no worker is live); "
        "start one: GONOGO_ARCH=wormhole GONOGO_BOARD=n300 gonogo worker --executor emulator"
    )
    place = f"/api/v1/jobs/{accepted['id']}"
    assert answer.headers["location"] == accepted["links"]["self"] == place
    job = api.client.get(place).json()
    page = api.client.get(f"/jobs/{job['id']}").text
    assert "No live worker serves the queue <code>emulator.wormhole.n300</code>" in page
    spec = TestSpec.parse(JOB["test"])
    names = ("target", "seeds", "repeats", "priority", "labels", "commit")
    assert pick(job, *names) == pick(body, *names)
    expected = {
        "test": spec.canonical(),
        "test_key": spec.key,
        "workload_key": spec.workload_key,
        "queue": "emulator.wormhole.n300",
        "total": 6,
        "state": "queued",
        "done": 0,
        "counts": {},
        "owner": "local",
        "waiting_reason": accepted["waiting_reason"],
        "context": {"name": "warm", "before": [warm]},
    }
    assert expected.items() <= job.items()
    assert job["created_at"].endswith("Z")
    created, deadline = map(datetime.fromisoformat, pick(job, "created_at", "deadline_at"))
    assert (deadline - created).total_seconds() == 86400
    for name, path in job["links"].items():
        if name != "events":
            assert api.client.get(path).status_code == 200, name


def test_checking_a_job_tells_its_cost_and_stores_nothing(api: Api) -> None:
    before, body = api.rows(), {**JOB, "seeds": {"start": 0, "count": 100}, "repeats": 2}
    answer = api.client.post("/api/v1/jobs:validate", json=body)
    assert answer.status_code == 200
    estimate = answer.json()
    assert estimate["results"] == 200
    assert estimate["device_s"] == pytest.approx(200 * estimate["seed_s"])
    assert pick(estimate, "queue_chunks", "workers", "wait_s") == (0, 0, None)
    assert api.rows() == before
    api.submit()
    assert api.client.post("/api/v1/jobs:validate", json=JOB).json()["queue_chunks"] == 1


@BOTH
def test_lists_are_filtered_and_paged(api: Api) -> None:
    first = api.submit(labels={"suite": "nightly"})
    second = api.submit(build="correct")
    forward = {"kernel": "layernorm_fw", "shape": [32, 32]}
    third = api.submit(test=forward, build="correct", labels={"suite": "weekly"})
    key = api.get(f"/jobs/{third}")["test_key"]

    def ids(query: str) -> list[str]:
        return [job["id"] for job in api.get(f"/jobs{query}")["items"]]

    assert ids("") == [third, second, first]
    assert ids("?build=correct") == [third, second]
    assert ids(f"?test={key}") == [third]
    assert ids("?label=suite") == [third, first]
    assert ids("?label=suite%3Dnightly&state=queued") == [first]
    assert ids("?state=finished") == []
    page = api.get("/jobs?limit=2")
    assert [job["id"] for job in page["items"]] == [third, second]
    rest = api.get("/jobs", params={"limit": 2, "cursor": page["next"]})
    assert [job["id"] for job in rest["items"]] == [first]
    assert rest["next"] is None


def test_cancelling_a_waiting_job_ends_it_and_is_written_down_once(api: Api) -> None:
    job = api.submit()
    for _ in range(2):
        answer = api.client.post(f"/api/v1/jobs/{job}:cancel")
        assert answer.status_code == 202
        assert answer.json()["state"] == "cancelled"
    entries = api.get("/audit?action=job.cancelled")["items"]
    assert [(entry["subject"], entry["actor"]) for entry in entries] == [(job, "local")]


def test_resubmitting_asks_for_the_same_again(api: Api) -> None:
    options = {"repeats": 2, "priority": 7, "labels": {"suite": "nightly"}}
    old = api.get(f"/jobs/{api.submit(seeds=[4, 2], **options)}")
    answer = api.client.post(f"/api/v1/jobs/{old['id']}:resubmit")
    assert answer.status_code == 202
    new = api.get(f"/jobs/{answer.json()['id']}")
    assert new["id"] != old["id"]
    assert pick(new, "state", "done", "resubmit_of") == ("queued", 0, old["id"])
    same = ("test_key", "build", "total", "seeds", "target", *options)
    assert pick(new, *same) == pick(old, *same)


def post(api: Api, key: str, body: dict[str, Any], **headers: str) -> Any:
    return api.client.post("/api/v1/jobs", json=body, headers={"Idempotency-Key": key, **headers})


def test_the_same_key_and_body_give_the_same_answer_and_one_job(api: Api) -> None:
    first, second = post(api, "k1", JOB), post(api, "k1", dict(reversed(JOB.items())))
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json() == second.json()
    assert first.headers["location"] == second.headers["location"]
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert api.rows()["jobs"] == 1
    created = datetime.fromisoformat(api.get(f"/jobs/{first.json()['id']}")["created_at"])
    with time_machine.travel(created + timedelta(hours=24, seconds=5), tick=True):
        assert post(api, "k1", JOB).json()["id"] != first.json()["id"]


def test_a_key_belongs_to_one_body_one_address_and_one_token(api: Api) -> None:
    job = post(api, "k1", JOB).json()["id"]
    assert refusal(post(api, "k1", {**JOB, "repeats": 2})) == (422, "Idempotency-Key")
    key = {"Idempotency-Key": "k1"}
    again = [api.client.post(f"/api/v1/jobs/{job}:resubmit", headers=key).json() for _ in range(2)]
    assert again[0] == again[1]
    by_token = post(api, "k1", JOB, **api.token("submit")).json()["id"]
    assert len({job, again[0]["id"], by_token}) == api.rows()["jobs"] == 3
    for wrong in ("", "x" * 256, "with space"):
        assert refusal(post(api, wrong, JOB)) == (422, "Idempotency-Key")


def test_a_refused_request_leaves_its_key_free(api: Api) -> None:
    assert post(api, "k1", {**JOB, "build": "nonsense"}).status_code == 422
    assert api.rows()["idempotency_keys"] == 0
    assert post(api, "k1", JOB).status_code == 202


@BOTH
def test_of_equal_requests_at_once_one_makes_the_job(api: Api) -> None:
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: post(api, "together", JOB), range(6)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert api.rows()["jobs"] == 1


def test_a_submission_wakes_the_dispatcher_and_needs_no_broker(
    tmp_path: Path, redis_url: str
) -> None:
    with (
        in_process(f"sqlite:///{tmp_path}/one.sqlite", broker_url=redis_url) as api,
        redis.Redis.from_url(redis_url) as client,
    ):
        api.submit()
        assert client.blpop([DISPATCH_NOTIFICATION_KEY], timeout=WAIT_S) is not None
    with in_process(f"sqlite:///{tmp_path}/two.sqlite", broker_url="redis://127.0.0.1:1/0") as api:
        assert api.get(f"/jobs/{api.submit()}")["state"] == "queued"
        assert api.rows()["chunk_ranges"] == 1
