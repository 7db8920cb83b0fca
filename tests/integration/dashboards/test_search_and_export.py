"""The search finds jobs by their commits and tests by suites' names; CSV has every line."""

from __future__ import annotations

import csv
import io
from datetime import timedelta

import pytest

import nightly_history
import stored_jobs
import stored_webhooks
from api import Api
from gonogo_dashboards.kit import site
from gonogo_dashboards.pages import make_routes
from gonogo_dashboards.search.search_page import LIMIT
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.suites import runs
from gonogo_service.waivers.model import WaiverRow

SHA = "c0ffee1234567890c0ffee1234567890c0ffee12"


def test_a_job_is_found_by_its_commit_and_its_branch_once_unless_it_is_the_main_one(
    api: Api,
) -> None:
    commit = {"repository": "tt/ttnn", "sha": SHA, "pull_request": None}

    def hits(text: str) -> list[tuple[str, str]]:
        items = api.client.get(f"/search.json?q={text}").json()["items"]
        return [(item["label"], item["details"]) for item in items]

    with api.context.session() as session:
        job = stored_jobs.submit(session, build="b1", branch="main", commit=commit).id
    for text in ("c0ffee1", SHA, SHA.upper()):
        assert hits(text) == [(job, "commit c0ffee123456 · b1")]
    with api.context.session() as session:
        stored_jobs.submit(session, build="pr-7", branch="pr", commit=commit)
    registered = {"name": "pr-7", "executor": "ttnn", "branch": "pr", "commit": SHA}
    assert api.client.post("/api/v1/builds", json=registered).status_code == 201
    labels = [label for label, _ in hits("c0ffee1")]
    assert labels.count("pr-7 beside main") == 1
    assert "b1 beside main" not in labels


def test_a_line_leads_to_the_tests_that_the_search_leaves_out(api: Api) -> None:
    def submit(epsilon: float) -> None:
        with api.context.session() as session:
            stored_jobs.submit(session, test={**stored_jobs.NIGHTLY, "epsilon": epsilon})

    for place in range(LIMIT):
        submit(1e-6 * (2 + place))
    items = api.client.get("/search.json?q=layernorm").json()["items"]
    assert [item["kind"] for item in items] == ["test"] * LIMIT
    submit(1e-3)
    *tests, rest = api.client.get("/search.json?q=layernorm").json()["items"]
    assert [item["kind"] for item in tests] == ["test"] * LIMIT
    assert (rest["kind"], rest["label"]) == ("page", "All tests with layernorm")
    answer = api.client.get(rest["url"].replace("/tests?", "/tests.json?")).json()
    assert len(answer["items"]) == LIMIT + 1


def test_tests_have_their_verdict_and_those_that_need_attention_come_first(api: Api) -> None:
    cases = {"right": {}, "hollow": {"wrong": True}, "newest": {}, "both": {"wrong": True}}
    with api.context.session() as session:
        keys = {
            nightly_history.night(
                session,
                "b1",
                1,
                range(3),
                test={**stored_jobs.NIGHTLY, "epsilon": 1e-5 * (1 + place)},
                red=range(1) if name == "both" else (),
                **how,
            ).test_key: name
            for place, (name, how) in enumerate(cases.items())
        }
    lines = api.client.get("/search.json?q=layernorm").json()["items"]
    assert [
        (keys[item["url"].split("/")[-1].split("?")[0]], item["verdict"], item["result"])
        for item in lines
    ] == [
        ("both", "fail", "Fail and hollow"),
        ("hollow", "pass_by_tolerance", "Hollow pass"),
        ("newest", "pass", "Pass"),
        ("right", "pass", "Pass"),
    ]
    assert all("branch=main" in item["url"] for item in lines)
    page = api.client.get("/search?q=layernorm").text
    assert page.count("Fail and hollow") == 1


def test_a_test_is_found_by_the_name_that_a_suite_gives_it(api: Api) -> None:
    with api.context.session() as session:
        entry = stored_jobs.new(build="correct", seeds=1)
        runs.create(session, [("Wide rows", entry)], name="nightly", owner="me")
        runs.create(session, [("Wide rows", entry)], name="nightly", owner="me")
    (hit,) = api.client.get("/search.json?q=wide").json()["items"]
    assert (hit["kind"], hit["label"], hit["details"]) == ("test", "Wide rows", "nightly")
    assert hit["url"] == f"/tests/{entry.test_key}"


def test_a_long_list_has_every_line_as_csv_or_says_how_many(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = utcnow()
    with api.context.session() as session:
        for number in range(205):
            end = now + timedelta(days=1)
            names = {"names": [f"t{number}"], "labels": {}, "builds": [], "classes": []}
            who = {"owner": "kim", "reason": "why", "version": 1, "created_by": "kim"}
            times = {"created_at": now, "updated_at": now, "expires_at": end}
            session.add(WaiverRow(id=new_id(), **names, **who, **times))
    answer = api.client.get("/waivers.csv")
    assert len(answer.text.splitlines()) == 1 + 205
    second = api.client.get("/waivers.json?limit=3").json()["next_url"] + "&limit=3"
    twin = second.replace("/waivers?", "/waivers.json?").replace("&", "&amp;")
    assert f'href="{twin}"' in api.client.get(second).text, "the JSON of this page of the list"
    assert 'filename="waivers.csv"' in answer.headers["content-disposition"]
    some = api.client.get("/waivers.csv?limit=3")
    assert len(some.text.splitlines()) == 1 + 3
    assert 'filename="waivers-first-3-lines.csv"' in some.headers["content-disposition"]
    monkeypatch.setattr(site, "MAX_CSV_LINES", 200)
    cut = api.client.get("/waivers.csv")
    assert len(cut.text.splitlines()) == 1 + 200
    assert 'filename="waivers-first-200-lines.csv"' in cut.headers["content-disposition"]


def test_an_empty_list_as_csv_has_its_header(api: Api) -> None:
    paths = [route.path for route in make_routes(api.context)]
    lists = [path for path in paths if path.endswith(".csv") and "{" not in path]
    assert {"/jobs.csv", "/matrix.csv", "/worse.csv"} < set(lists)
    for path in lists:
        (header,) = api.client.get(path).text.splitlines()
        assert header.count(",") > 3, path


def test_a_comparison_as_csv_has_a_line_for_each_test(api: Api) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(4))
        nightly_history.night(session, "b2", 2, range(4), wrong=True)
    answer = api.client.get("/compare.csv?base=b1&head=b2")
    (line,) = csv.DictReader(io.StringIO(answer.text))
    (seen,) = api.client.get("/compare.json?base=b1&head=b2").json()["tests"]
    assert {name: line[name] for name in ("name", "kind", "base", "head")} == {
        name: seen[name] for name in ("name", "kind", "base", "head")
    }
    assert "/compare.csv?base=b1&amp;head=b2" in api.client.get("/compare?base=b1&head=b2").text
    assert ".csv" not in api.client.get("/compare").text


def test_a_webhook_s_messages_as_csv_are_all_of_them(api: Api) -> None:
    with api.context.session() as session:
        hook_id = stored_webhooks.with_messages(session, 205)
    answer = api.client.get(f"/webhooks/{hook_id}.csv")
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    assert len({line["id"] for line in lines}) == 205
    assert f'filename="webhooks-{hook_id}.csv"' in answer.headers["content-disposition"]
