"""The table of addresses and scopes is true: every address is tried with every scope."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from api import Api, in_process
from checks import routes

UNKNOWN = "01900000-0000-7000-8000-000000000000"
SCOPES = ("read", "submit", "admin")


@pytest.fixture
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    url = f"sqlite:///{tmp_path_factory.mktemp('routes')}/db"
    with in_process(url, embedded=False) as service:
        yield service


def test_every_address_needs_the_scope_that_the_table_says(api: Api) -> None:
    headers = {scope: api.token(scope, name=scope) for scope in SCOPES}
    visitor = api.visitor()
    rows = routes.rows(api.client.app)  # type: ignore[arg-type]
    assert len(rows) > 150
    for row in rows:
        path = re.sub(r"{[^}]*}", UNKNOWN, row.path)
        without = visitor.request(row.method, path)
        if row.scope in ("none", "signature"):
            assert without.status_code not in (401, 303), row
            continue
        assert without.status_code == 401, row
        for order, scope in enumerate(SCOPES):
            answer = visitor.request(row.method, path, headers=headers[scope])
            refused = order < SCOPES.index(row.scope)
            assert (answer.status_code == 403) == refused, (row, scope, answer.text[:200])
            assert answer.status_code < 500 or answer.status_code == 503, (row, answer.text[:200])
