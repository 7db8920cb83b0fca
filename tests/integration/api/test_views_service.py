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
