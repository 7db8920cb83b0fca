"""The table of addresses and scopes is true: every address is tried with the scope that it needs
and with those below; those of the API with every scope, in test_auth_tokens.py."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fastapi.routing import APIRoute

from api import Api, in_process
from gonogo_service.people.visit import SIGNED
from gonogo_service.routers import routers
from tests.checks import routes

UNKNOWN = "01900000-0000-7000-8000-000000000000"
SCOPES = ("read", "submit", "admin")


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    url = f"sqlite:///{tmp_path_factory.mktemp('routes')}/db"
    with in_process(url, embedded=False) as service:
        yield service


def test_every_page_needs_the_scope_that_the_table_says(api: Api) -> None:
    headers = {scope: api.token(scope, name=scope) for scope in SCOPES}
    visitor = api.visitor()
    rows = routes.rows(api.app)
    assert len(rows) > 150
    tried = {
        (route.path, method)
        for router in routers()
        for route in router.routes
        if isinstance(route, APIRoute) and route.path_format not in SIGNED
        for method in route.methods
    }
    others = [row for row in rows if (row.path, row.method) not in tried]
    assert len(others) > 50
    for row in others:
        path = re.sub(r"{[^}]*}", UNKNOWN, row.path)
        without = visitor.request(row.method, path)
        if row.scope in ("none", "signature"):
            assert without.status_code not in (401, 303), row
            continue
        assert without.status_code == 401, row
        least = SCOPES.index(row.scope)
        for order, scope in enumerate(SCOPES[: least + 1]):
            answer = visitor.request(row.method, path, headers=headers[scope])
            refused = order < least
            assert (answer.status_code == 403) == refused, (row, scope, answer.text[:200])
            assert answer.status_code < 500 or answer.status_code == 503, (row, answer.text[:200])


def test_link_checkers_get_the_head_of_a_page_under_the_scope_of_the_page(api: Api) -> None:
    visitor, reader = api.visitor(), api.token("read")
    for path in ("/jobs", "/jobs.json", "/jobs.csv"):
        assert visitor.head(path).status_code == 401
        whole, head = (visitor.request(method, path, headers=reader) for method in ("GET", "HEAD"))
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == whole.headers["content-type"]
    metrics = visitor.get("/metrics", headers=reader).text
    assert 'gonogo_http_requests_total{method="HEAD",route="/jobs",status="200"} 1.0' in metrics
