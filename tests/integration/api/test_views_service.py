"""Saved views of lists: everybody sees them, whoever may submit saves and deletes them."""

from __future__ import annotations

import pytest

from api import in_process
from gonogo_storage.catalogue import saved_views


def test_a_view_is_saved_shown_replaced_and_deleted(
    migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_process(migrated_sqlite_url) as api:

        def save(**body: str) -> tuple[int, dict[str, object]]:
            given = {"page": "tests", "name": "hollow", "query": "standing=hollow", **body}
            answer = api.client.post("/api/v1/views", json=given)
            return answer.status_code, answer.json()

        status, first = save(query="?standing=hollow&search=3x273&cursor=v1-1&search=")
        assert (status, first["query"]) == (201, "standing=hollow&search=3x273")
        assert first["links"] == {"page": "/tests?standing=hollow&search=3x273"}
        assert save(name=" hollow ")[1]["id"] == first["id"], "the same name replaces it"
        save(page="jobs", name="<b>", query="state=failed")
        assert [view["name"] for view in api.get("/views")["items"]] == ["<b>", "hollow"]
        assert [view["name"] for view in api.get("/views?page=tests")["items"]] == ["hollow"]
        page = api.client.get("/tests?standing=hollow").text
        assert 'href="/tests?standing=hollow" aria-current="true" title="Saved by' in page
        assert "Save this view" not in page
        page = api.client.get("/jobs?build=b").text
        assert "&lt;b&gt;</a>" in page
        assert 'data-query="build=b"' in page
        page = api.client.get("/jobs?build=b&utm=1&state=lost").text
        assert 'data-query="build=b"' in page, "a view keeps only what the list takes"
        for wrong, field in (({"name": " "}, "name"), ({"query": "cursor=1"}, "query")):
            status, problem = save(**wrong)
            assert (status, problem["errors"][0]["field"]) == (422, field)
        monkeypatch.setattr(saved_views, "MAX_VIEWS", 1)
        assert save(name="another")[0] == 422
        path = f"/api/v1/views/{first['id']}"
        read = api.token("read")
        visitor = api.visitor()
        assert visitor.delete(path, headers=read).status_code == 403
        assert visitor.get("/api/v1/views", headers=read).status_code == 200
        assert api.client.delete(path).json()["name"] == "hollow"
        assert api.client.delete(path).status_code == 404
        assert "saved views" not in api.client.get("/tests").text


WRONG_QUERIES = {
    ("tests", "standin=hollow"): "the page tests has no filter 'standin'; did you mean 'standing'?",
    ("tests", "standing=holow"): "unknown value of standing; did you mean 'hollow'?",
    ("tests", "state=failed"): "the page tests has no filter 'state'",
    ("tests", "kernel=a&kernel=b"): "names kernel twice",
    ("tests", "range=2y"): "unknown value of range",
    ("jobs", "state=runing"): "did you mean 'running'?",
    ("jobs", "verdict=green"): "unknown value of verdict",
    ("flags", "state=opne"): "did you mean 'open'?",
    ("flags", "range=7d"): "the page flags has no filter 'range'",
    ("devices", "range=all"): "unknown value of range",
    ("matrix", "builds=many"): "unknown value of builds",
}
TAKEN_QUERIES = {
    "tests": "kernel=layernorm_bw&search=3x273&standing=red&sort=newest&range=30d&limit=20",
    "jobs": "state=finished&verdict=fail&build=b&test=v1-0&label=a%3Db&owner=me&range=1d",
    "flags": "kind=hangs&state=any&test=v1-0&owner=me&build=b&job=x",
    "devices": "range=7d",
    "matrix": "branch=main&verdict=fail&grade=flaky&builds=40&until=b&suite=nightly&board=n150",
}


def test_a_view_has_only_filters_that_its_list_takes(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url) as api:
        for (page, query), phrase in WRONG_QUERIES.items():
            body = {"page": page, "name": "x", "query": query}
            answer = api.client.post("/api/v1/views", json=body)
            assert (answer.status_code, answer.json()["field"]) == (422, "query"), query
            assert phrase in answer.json()["detail"]
        assert api.get("/views")["items"] == []
        for page, query in TAKEN_QUERIES.items():
            body = {"page": page, "name": "x", "query": query}
            saved = api.client.post("/api/v1/views", json=body).json()
            assert saved["query"] == query
            shown = api.client.get(saved["links"]["page"])
            assert shown.status_code == 200
            assert 'aria-current="true" title="Saved by local">x</a>' in shown.text
