"""Every page and its JSON on PostgreSQL, with something to show; a browser reads them on SQLite."""

from __future__ import annotations

from urllib.parse import urlsplit

import populated_database
from api import in_process


def test_every_page_and_its_json_are_answered_on_postgresql(migrated_postgres_url: str) -> None:
    with in_process(migrated_postgres_url) as api:
        house = populated_database.fill(api)
        twins, alone = populated_database.routes(api.context)
        problems = []
        for route in (*twins, *alone):
            for path in house.addresses.get(route, [route]):
                parts = urlsplit(path)
                twin = "/overview.json" if path == "/" else f"{parts.path}.json"
                for address in (path, f"{twin}?{parts.query}" if route in twins else path):
                    answer = api.client.get(address, headers={"Accept": "text/html"})
                    if answer.status_code != 200:
                        problems.append(f"{address}: {answer.status_code}")
        assert not problems
