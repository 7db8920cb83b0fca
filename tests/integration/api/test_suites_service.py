"""Suites and runs over HTTP: stored or refused as a whole; a run's one verdict and one message,
its pages, and the command."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import select
from typer.testing import CliRunner

from api import Api, on_port, refusal
from database_params import BOTH
from gonogo.cli.app import app
from gonogo.cli.kit import waiting
from gonogo.spec.test_spec import TestSpec
from gonogo_service.cli import suites as command
from gonogo_service.jobs.api.jobs import JOBS
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.suites import runs
from gonogo_service.suites.model import RunJobRow
from records import pick
from suite_runs import SUITE, conclude, finish

ROOT = Path(__file__).parents[3]
EXAMPLE: dict[str, Any] = yaml.safe_load((ROOT / "examples/nightly.yaml").read_text())


def changed(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(SUITE), **changes}


def submit(api: Api, **body: Any) -> str:
    answer = api.client.post("/api/v1/runs", json={"suite": SUITE, **body})
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == answer.json()["links"]["self"]
    return str(answer.json()["id"])


def messages(api: Api) -> list[dict[str, Any]]:
    with api.context.reading() as session:
        payloads = select(OutboxRow.payload).where(OutboxRow.topic == "run.finished")
        return list(session.scalars(payloads))


def test_a_suite_is_stored_in_versions_and_archived(api: Api) -> None:
    first = api.client.post("/api/v1/suites", json=SUITE)
    assert (first.status_code, first.json()["version"]) == (201, 1)
    seeds = {test["name"]: test["seeds"] for test in first.json()["tests"]}
    assert seeds == {"small": 2, "grid 32x64": 1, "grid 33x64": 1}
    again = api.client.post("/api/v1/suites", json=SUITE)
    assert (again.status_code, again.json()["version"]) == (200, 1)
    other = api.client.post("/api/v1/suites", json=changed(description="more")).json()
    assert (other["version"], api.get("/suites/nightly")["content"]["description"]) == (2, "more")
    assert api.get("/suites/nightly") == other
    spec = TestSpec.parse({**SUITE["defaults"]["test"], "shape": [33, 64]})
    assert other["tests"][2]["test_key"] == spec.key
    run = submit(api, suite="nightly")
    assert api.get(f"/runs/{run}")["suite"] == {"name": "nightly", "version": 2}
    (listed,) = api.get("/suites")["items"]
    assert pick(listed, "tests", "builds", "description") == (3, 1, "more")
    assert "content" not in listed
    assert api.client.delete("/api/v1/suites/nightly").json()["archived_at"]
    assert api.get("/suites")["items"] == []
    assert [suite["name"] for suite in api.get("/suites?archived=true")["items"]] == ["nightly"]
    refused = api.client.post("/api/v1/runs", json={"suite": "nightly"})
    assert refusal(refused) == (422, "suite")
    restored = api.client.post("/api/v1/suites", json=changed(description="more"))
    assert restored.json()["version"] == 3
    actions = [entry["action"] for entry in api.get("/audit?subject=nightly")["items"]]
    assert actions == ["suite.stored", "suite.archived", "suite.stored", "suite.stored"]


def test_all_problems_of_a_suite_are_told_at_once(shared: Api) -> None:
    entries = [
        {"name": "a", "test": {"shape": [0], "epsilon": -1}},
        {"name": "a", "test": {"shape": [1, 2], "tolerance": {"rtoll": 1}}},
        {"name": "b", "matrix": {"shapes": [[1, 2]]}},
        {"name": "c", "test": {"kernel": "layernorm_bv", "shape": [1, 2]}, "sedes": 3},
        {"name": "d", "test": {"shape": [50000, 5000]}},
    ]

    def errors(path: str, body: dict[str, Any]) -> dict[str, str]:
        answer = shared.client.post(f"/api/v1/{path}", json=body)
        return {error["field"]: error["message"] for error in answer.json()["errors"]}

    by_field = errors("suites", changed(entries=entries))
    assert set(by_field) == {  # a size is only measured once the form is right
        "entries.0.test.shape.0",
        "entries.0.test.epsilon",
        "entries.1.name",
        "entries.1.test.tolerance.rtoll",
        "entries.2.matrix.shapes",
        "entries.3.sedes",
        "entries.3.test.kernel",
    }
    assert "did you mean 'rtol'" in by_field["entries.1.test.tolerance.rtoll"]
    assert "did you mean 'seeds'" in by_field["entries.3.sedes"]
    few = changed(entries=[entries[0], entries[1], entries[4]])
    assert list(errors("runs", {"suite": few})) == [
        "suite.entries.0.test.shape.0",
        "suite.entries.0.test.epsilon",
        "suite.entries.1.test.tolerance.rtoll",
        "suite.entries.1.name",
    ]
    of_the_form = changed(
        name="no good",
        title="x",
        defaults={**SUITE["defaults"], "priorty": 3},
        entries=[*entries[3:], {"test": {"shape": [0, "a"]}}, "b", {"matrix": {"shape": []}}],
    )
    assert list(errors("suites", of_the_form)) == [
        "name",
        "defaults.priorty",
        "entries.0.test.kernel",
        "entries.0.sedes",
        "entries.2.test.shape.0",
        "entries.3",
        "entries.4.matrix.shape",
        "title",
    ]


def test_a_part_of_a_test_is_stored_as_it_is_given_and_documented_without_defaults(
    shared: Api,
) -> None:
    matrix = {"shape": [[32, 64]], "numerics": [{"output": "fp32"}, {"fidelity": "lofi"}]}
    part = {"inputs": {"regime": "normal", "gamma": 1.0}, "numerics": {"input": "fp32"}}
    suite = changed(name="parts", entries=[{"test": part, "matrix": matrix, "seeds": {"count": 1}}])
    stored = shared.client.post("/api/v1/suites", json=suite).json()
    assert stored["content"]["entries"] == suite["entries"]
    numerics = [test["test"]["numerics"] for test in stored["tests"]]
    assert numerics == [{"input": "fp32", "output": "fp32"}, {"input": "fp32", "fidelity": "lofi"}]
    schemas = shared.get("/openapi.json")["components"]["schemas"]
    for name, whole in (("PartialTest", "TestSpec"), ("PartialNumerics", "Numerics")):
        assert schemas[name]["properties"].keys() == schemas[whole]["properties"].keys()
        assert "required" not in schemas[name]
        assert not any("default" in field for field in schemas[name]["properties"].values())
    many = changed(name="many", entries=[{"matrix": {"numerics": [{"output": "no"}] * 500}}])
    assert len(shared.client.post("/api/v1/suites", json=many).json()["errors"]) == 20


@BOTH
def test_the_verdict_of_a_run_is_its_worst_job_and_is_told_once(api: Api) -> None:
    commit = {"repository": "org/name", "sha": "0123456789", "pull_request": 3}
    run_id = submit(api, builds=["correct", "tt-train-2025"], labels={"night": "1"}, commit=commit)
    run = api.get(f"/runs/{run_id}")
    first, second, third = (pick(test, "name", "build") for test in run["tests"][:3])
    assert (first, second) == (("small", "correct"), ("small", "tt-train-2025"))
    assert third == ("grid 32x64", "correct")
    assert (run["state"], run["verdict"], run["seeds"]["total"]) == ("running", None, 8)
    assert run["jobs"] == {"total": 6, "ended": 0, "verdicts": {}}
    job = api.get(f"/jobs/{run['tests'][0]['id']}")
    assert (job["labels"], job["commit"]) == ({"night": "1"}, commit)
    with api.context.session() as session:
        for test in run["tests"][:-1]:
            finish(session, test["id"], wrong=test["build"] != "correct")
        conclude(session)
    assert messages(api) == []
    half = api.get(f"/runs/{run_id}")
    assert (half["state"], half["jobs"]["ended"]) == ("running", 5)
    assert half["seeds"] == {"total": 8, "done": 7, "verdicts": {"pass_by_tolerance": 3, "pass": 4}}
    with api.context.session() as session:
        finish(session, run["tests"][-1]["id"])
    for _ in range(2):
        with api.context.session() as session:
            conclude(session)
            assert runs.finish(session, run_id, now=utcnow()) is None
    done = api.get(f"/runs/{run_id}")
    assert (done["state"], done["verdict"]) == ("finished", "pass_by_tolerance")
    assert done["jobs"]["verdicts"] == {"pass_by_tolerance": 2, "pass": 4}
    assert messages(api) == [{"run": run_id, "version": done["version"]}]
    (listed,) = api.get("/runs", params={"suite": "nightly", "state": "finished"})["items"]
    assert listed == {
        name: value for name, value in done.items() if name not in ("tests", "before")
    }
    assert api.get("/runs?state=running")["items"] == []


def test_a_cancelled_run_is_never_green(api: Api) -> None:
    run_id = submit(api)
    with api.context.session() as session:
        finish(session, api.get(f"/runs/{run_id}")["tests"][0]["id"])
    answers = [api.client.post(f"/api/v1/runs/{run_id}:cancel") for _ in range(2)]
    version = answers[0].json()["version"]
    for answer in answers:
        run = answer.json()
        assert (answer.status_code, run["state"], run["verdict"]) == (202, "cancelled", None)
        assert run["version"] == version
    states = [test["state"] for test in api.get(f"/runs/{run_id}")["tests"]]
    assert states == ["finished", "cancelled", "cancelled"]
    assert messages(api) == [{"run": run_id, "version": version}]


def test_a_run_runs_again_with_the_jobs_that_are_left(api: Api) -> None:
    request = {"builds": ["correct", "tt-train-2025"], "labels": {"night": "1"}}
    old = submit(api, **request)
    path, key = f"/api/v1/runs/{old}:resubmit", {"Idempotency-Key": "again"}
    first, second = (api.client.post(path, headers=key) for _ in range(2))
    assert (first.status_code, first.json()) == (202, second.json())
    assert second.headers["idempotent-replayed"] == "true"
    before, again = (api.get(f"/runs/{one}") for one in (old, first.json()["id"]))
    assert len(api.get("/runs")["items"]) == 2
    same = ("suite", "labels", "builds", "commit", "seeds")
    assert pick(again, *same) == pick(before, *same)
    names = ("name", "build", "test_key", "total")
    assert [pick(one, *names) for one in again["tests"]] == [
        pick(one, *names) for one in before["tests"]
    ]
    with api.context.session() as session:
        for test in before["tests"]:
            finish(session, test["id"])
        conclude(session)
    for number, test in enumerate(before["tests"], 1):
        assert api.client.delete(f"/api/v1/jobs/{test['id']}").status_code == 200
        if number == 1:
            left = api.client.post(path).json()
            assert left["jobs"] == len(before["tests"]) - 1
    assert refusal(api.client.post(path)) == (422, "run")
    assert refusal(api.client.post("/api/v1/runs/nobody-has-this:resubmit")) == (404, "run")


def test_pages_and_their_twins_show_runs(shared: Api) -> None:
    run_id = submit(shared, suite=changed(name="paged"), labels={"night": "<b>"})
    with shared.context.session() as session:
        *hollow, red = session.scalars(
            select(RunJobRow.job_id).where(RunJobRow.run_id == run_id).order_by(RunJobRow.number)
        ).all()
        finish(session, red, wrong=True, within=False)
        for job_id in hollow:
            finish(session, job_id, wrong=True)
        conclude(session)
    twin = shared.client.get(f"/runs/{run_id}.json").json()
    verdicts = [line["test"]["verdict"] for line in twin["tests"]]
    assert verdicts == ["fail", "pass_by_tolerance", "pass_by_tolerance"]
    assert (twin["verdict"], twin["run"]["jobs"]["ended"]) == ("fail", 3)
    page = shared.client.get(f"/runs/{run_id}", headers={"Accept": "text/html"}).text
    assert "Hollow pass" in page
    both = "1 job is red, and 2 jobs passed only by the tolerance (hollow)."
    assert both in page
    assert all(f"/jobs/{test['id']}" in page for test in shared.get(f"/runs/{run_id}")["tests"])
    listed = shared.client.get("/runs.json?suite=paged").json()
    assert [line["id"] for line in listed["items"]] == [run_id]
    text = shared.client.get("/runs", headers={"Accept": "text/html"}).text
    assert f"/runs/{run_id}" in text
    assert both in text
    assert "<b>" not in text


def test_the_examples_are_suites_that_run(shared: Api) -> None:
    run_id = submit(shared, suite=EXAMPLE, builds=["tt-train-2025"])
    names = [test["name"] for test in shared.get(f"/runs/{run_id}")["tests"]]
    assert names[0] == "backward, large features"
    assert len(names) == 8
    page = (ROOT / "docs/suites.md").read_text()
    (block,) = re.findall(r"```yaml[^\n]*\n(.*?)```", page, re.DOTALL)
    written = command.request(yaml.safe_load(block), [], {})
    assert shared.client.post("/api/v1/runs", json=written).status_code == 202


def test_many_tests_one_command_one_verdict(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run `gonogo submit suite.yaml --watch` while the jobs end, then `gonogo rejudge`."""
    file = tmp_path / "suite.yaml"
    file.write_text(yaml.safe_dump({**SUITE, "labels": {"night": "1"}}))
    with on_port(sqlite_url) as (client, context):
        monkeypatch.setenv("GONOGO_URL", str(client.base_url))

        def work(_seconds: float) -> None:
            """End one more job while the command waits."""
            with context.session() as session:
                queued = JOBS.page(session, state="queued").items
                if queued:
                    finish(session, queued[-1].id, wrong=queued[-1].build != "correct")
                else:
                    conclude(session)

        monkeypatch.setattr(waiting.time, "sleep", work)
        runner = CliRunner()
        good = runner.invoke(app, ["submit", str(file), "--watch", "--json"])
        assert good.exit_code == 0, good.output
        run = json.loads(good.stdout)
        assert (run["verdict"], run["labels"], run["jobs"]["total"]) == ("pass", {"night": "1"}, 3)
        assert run["url"] == f"{str(client.base_url).rstrip('/')}/runs/{run['id']}"
        submit_wrong = ["submit", str(file), "--build", "tt-train-2025", "--watch"]
        bad = runner.invoke(app, [*submit_wrong, "--build", "correct", "--label", "night=2"])
        assert bad.exit_code == 1, bad.output
        assert "verdict: Hollow pass" in bad.stdout
        assert "grid 33x64" in bad.stdout
        assert runner.invoke(app, [*submit_wrong, "--fail-on", "fail"]).exit_code == 0
        words = f"rejudge --test {run['tests'][0]['test_key']} --rtol 1e-3 --atol 0.5 --json"
        again = runner.invoke(app, words.split())
        assert again.exit_code == 0, again.output
        builds = {
            one["build"]: pick(one, "old", "new") for one in json.loads(again.stdout)["builds"]
        }
        wrong = {"pass_by_tolerance": 4}
        assert builds == {"correct": ({"pass": 4}, {"pass": 4}), "tt-train-2025": (wrong, wrong)}
        file.write_text("name: x\nentries: [{test: {shape: [0]}, when: 2026-01-01}]")
        assert runner.invoke(app, ["submit", str(file)]).exit_code != 0
