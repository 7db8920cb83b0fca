"""Jobs that lost their rows, and deleted ones, over HTTP and on the pages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import compared_builds
import nightly_history
import stored_jobs
import suite_runs
from api import Api
from database_params import BOTH
from gonogo import urls
from gonogo_service.jobs.api.jobs import JOBS
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.operate import retention
from gonogo_service.operate.retention import Policy, Tier
from gonogo_service.results.exports import parts
from gonogo_service.webhooks import messages
from records import pick

EVERYTHING = Policy(dict.fromkeys(Tier, 1))


def _forget(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove all tiers of all jobs, as if nothing needed any."""
    monkeypatch.setattr(retention, "_has_newer", lambda: retention.JobRow.id.is_not(None))
    monkeypatch.setattr(retention, "needed_jobs", lambda _session: frozenset())
    later = utcnow() + timedelta(days=2)
    assert retention.prune(api.context.engine, EVERYTHING, now=later, actor="test")


def test_a_job_without_rows_says_so_instead_of_showing_none(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    with api.context.session() as session:
        job = stored_jobs.finished(session).id
    assert "Error of every seed" in api.client.get(f"/jobs/{job}").text
    _forget(api, monkeypatch)
    assert api.get(f"/jobs/{job}")["seeds_removed_at"] is not None
    for path in ("results", "results?format=junit", "artifacts"):
        answer = api.client.get(f"/api/v1/jobs/{job}/{path}")
        assert (answer.status_code, answer.json()["type"]) == (410, "urn:gonogo:problem:removed")
        assert "were removed on" in answer.json()["detail"]
    page = api.client.get(f"/jobs/{job}?seed=1").text
    assert "Its results per seed were removed on" in page
    assert "Its artifacts and logs were removed on" in page
    assert "Error of every seed" not in page
    body = {"test": api.get(f"/jobs/{job}")["test_key"], "tolerance": {"atol": 1}}
    answer = api.client.post("/api/v1/rejudgements", json=body)
    assert answer.status_code == 422
    assert "were removed" in answer.json()["detail"]


def test_an_export_whose_rows_vanish_breaks_instead_of_looking_complete(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    with api.context.session() as session:
        job = stored_jobs.finished(session)
    monkeypatch.setattr(parts, "PAGE", 2)
    (part,) = parts.parts(api.context, [(None, job.id)])
    rows = iter(part.rows)
    assert [next(rows)["seed"] for _ in range(2)] == [0, 1]
    _forget(api, monkeypatch)
    with pytest.raises(RuntimeError, match="were removed while they were read"):
        next(rows)


def test_every_page_shows_what_is_left(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    with api.context.session() as session:
        compared_builds.history(session)  # kernels and selections
        masked = nightly_history.masked(session)
        everything = JOBS.page(session, limit=200).items
    _forget(api, monkeypatch)
    kernel = next(job for job in everything if job.kernel != "selection")
    selection = next(job for job in everything if job.kernel == "selection")
    paths = [
        *(urls.job(job.id) for job in (kernel, selection)),
        *(urls.history(key) for key in (kernel.test_key, selection.test_key, masked)),
        *(urls.OVERVIEW, urls.JOBS, urls.TESTS, urls.MATRIX, urls.FLAGS),
    ]
    for path in paths:
        assert api.client.get(path).status_code == 200, path
    refused = api.client.get(urls.compare(compared_builds.BASE, compared_builds.HEAD))
    assert "results per test were removed on" in refused.text


def test_only_an_ended_job_is_deleted_and_the_audit_says_by_whom(api: Api) -> None:
    waiting = api.submit()
    refused = api.client.delete(f"/api/v1/jobs/{waiting}")
    assert refused.status_code == 409
    assert f"gonogo jobs cancel {waiting}" in refused.json()["detail"]
    with api.context.session() as session:
        job = stored_jobs.finished(session)
    (flag,) = api.get("/flags")["items"]
    answer = api.client.delete(f"/api/v1/jobs/{job.id}")
    assert answer.status_code == 200, answer.text
    gone = {"id": job.id, "seeds": 8, "artifacts": 0, "run": None, "flags_resolved": [flag["id"]]}
    assert answer.json() == gone
    for method in ("get", "delete"):
        assert getattr(api.client, method)(f"/api/v1/jobs/{job.id}").status_code == 404
    assert api.client.get(f"/flags/{flag['id']}").status_code == 200
    entry = api.get("/audit?action=job.deleted")["items"][0]
    assert (entry["subject"], entry["detail"]["seeds"]) == (job.id, 8)
    with api.context.reading() as session:  # its message may still wait
        reference = {"job": job.id, "version": 2}
        message = messages.payload(session, "job.finished", reference, None)
    assert message["data"] == reference
    assert messages.sentence(message) == "job.finished"
    assert pick(api.rows(), "daily", "job_blocks", "results") == (0, 0, 0)


def test_a_run_is_counted_without_its_deleted_jobs(api: Api) -> None:
    entry = {"test": stored_jobs.NIGHTLY, "seeds": {"start": 0, "count": 1}}
    entries = [{**entry, "name": name} for name in ("a", "b")]
    suite = {"name": "pair", "builds": ["correct"], "entries": entries}
    answer = api.client.post("/api/v1/runs", json={"suite": suite})
    run = answer.json()["id"]
    jobs = [job["id"] for job in api.get(f"/runs/{run}")["tests"]]
    api.client.post(f"/api/v1/jobs/{jobs[0]}:cancel")
    refused = api.client.delete(f"/api/v1/jobs/{jobs[0]}").json()["detail"]
    assert f"belongs to run {run}, which is running" in refused
    api.client.post(f"/api/v1/runs/{run}:cancel")
    with api.context.session() as session:
        suite_runs.conclude(session)
    for left, job in ((1, jobs[0]), (0, jobs[1])):
        removed = api.client.delete(f"/api/v1/jobs/{job}")
        assert (removed.status_code, removed.json()["run"]) == (200, run)
        assert len(api.get(f"/runs/{run}")["tests"]) == left
        assert api.get(f"/runs/{run}")["jobs"]["total"] == left
        assert api.client.get(f"/runs/{run}").status_code == 200


@BOTH
def test_a_job_that_is_deleted_at_once_by_several_is_deleted_once(api: Api) -> None:
    jobs = [api.submit() for _ in range(3)]
    for job in jobs:
        api.client.post(f"/api/v1/jobs/{job}:cancel")

    def delete(job: str) -> int:
        return api.client.delete(f"/api/v1/jobs/{job}").status_code

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(delete, [job for job in jobs for _ in range(4)]))
    assert sorted(answers) == [200] * 3 + [404] * 9
    assert len(api.get("/audit?action=job.deleted")["items"]) == 3
