"""Since you were here: what changed for a reader, on the overview and in the API, until it is
seen."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import time_machine

import nightly_history
import stored_jobs
from api import ELSEWHERE, Api, in_process
from gonogo_service.flags import store as flags
from gonogo_service.kit.database import ids
from gonogo_service.kit.database.encoding import utcnow

BECAME = {
    "hollow": (False, True),
    "red": (False, True),
    "fixed": (True, False),
    "same": (True, True),
}
"""Whether a test is wrong on b1, and on b2."""


def tell(api: Api, **given: Any) -> dict[str, list[Any]]:
    """Return the news by topic."""
    topics = api.get("/news", **given)["topics"]
    assert all(topic["count"] == len(topic["items"]) for topic in topics)
    return {topic["topic"]: topic["items"] for topic in topics}


def ran(api: Api, build: int) -> dict[str, str]:
    """Run each test of BECAME on a build; return their keys."""
    with api.context.session() as session:
        return {
            name: nightly_history.night(
                session,
                f"b{build}",
                build,
                range(3),
                test={**stored_jobs.NIGHTLY, "epsilon": 1e-5 * (1 + place)},
                wrong=wrong[build - 1],
                red=range(3) if name == "red" and wrong[build - 1] else (),
                diagnosed=True,
            ).test_key
            for place, (name, wrong) in enumerate(BECAME.items())
        }


def test_a_reader_sees_each_change_with_its_cause_until_it_is_seen(
    migrated_sqlite_url: str,
) -> None:
    now = utcnow().replace(hour=12, minute=30)
    with in_process(migrated_sqlite_url) as api:
        ids._last = 0  # the ids of what follows are of the past
        with time_machine.travel(now - timedelta(days=2)):
            keys = ran(api, 1)
            assert api.client.post("/api/v1/news:seen").status_code == 204
            assert tell(api) == {}
        with time_machine.travel(now):
            ran(api, 2)
            news = tell(api)
            assert {topic: [one["test_key"] for one in items] for topic, items in news.items()} == {
                "hollow": [keys["hollow"]],
                "red": [keys["red"]],
                "fixed": [keys["fixed"]],
                "gained": [None],
            }
            (hollow,), (fixed,), (build,) = news["hollow"], news["fixed"], news["gained"]
            assert stored_jobs.FAULT in hollow["cause"]
            assert fixed["cause"] == "was hollow on b1"
            assert (build["name"], build["before"]) == ("b2", "b1")
            assert build["cause"] == "2 hollow, 1 red of 4 tests"
            (flag,) = api.get(f"/flags?test={keys['hollow']}")["items"]
            assert hollow["links"] == {
                "page": f"/tests/{keys['hollow']}?branch=main&arch=wormhole&board=n150",
                "compare": "/compare?base=b1&head=b2",
                "acknowledge": f"/flags/{flag['id']}#change",
                "bisect": f"/bisections/new?test={keys['hollow']}&branch=main&first=b1&last=b2",
            }
            page = api.client.get("/").text
            assert all(label in page for label in ("Newly hollow", "Newly red", "Fixed", "Bisect"))
            assert "epsilon 1e-05" in page, "tests of one shape have labels of their own"
            acknowledged = {"state": "acknowledged", "reason": "known"}
            end = {"expires": (now + timedelta(hours=3)).isoformat()}
            answer = api.client.patch(f"/api/v1/flags/{flag['id']}", json={**acknowledged, **end})
            assert answer.status_code == 200, answer.text
            (ending,) = tell(api)["ending"]
            assert ending["cause"] == "acknowledged by local: known"
            until = api.client.get("/overview.json").json()["news"]["until"]
            assert f"news:seen?at={until.replace(':', '%3A')}" in api.client.get("/").text
            api.client.post("/api/v1/news:seen", params={"at": until})
            assert tell(api).keys() == {"ending"}, "it still ends"
        with time_machine.travel(now + timedelta(hours=4)):
            with api.context.session() as session:
                flags.expire(session, now=utcnow())
            (yours,) = tell(api)["yours"]
            assert yours["cause"].startswith("expired: acknowledged until")
            assert yours["links"]["acknowledge"] == f"/flags/{flag['id']}#change"
            api.client.post("/api/v1/news:seen")
            assert tell(api) == {}
            assert "Nothing changed" in api.client.get("/").text


def test_seen_empties_the_news_of_one_reader_only_and_the_future_is_now(
    migrated_sqlite_url: str,
) -> None:
    with in_process(migrated_sqlite_url, embedded=False) as api:
        readers = [api.token("read", name=name) for name in ("ada", "bob")]
        ran(api, 1)
        later = (utcnow() + timedelta(days=9)).isoformat()
        client = api.visitor(ELSEWHERE)
        seen = client.post("/api/v1/news:seen", params={"at": later}, headers=readers[0])
        assert seen.status_code == 204, seen.text
        first, second = (client.get("/api/v1/news", headers=reader).json() for reader in readers)
        assert (first["first"], first["topics"]) == (False, [])
        assert datetime.fromisoformat(first["since"]) <= utcnow()
        assert second["first"]
        assert {topic["topic"] for topic in second["topics"]} == {"hollow", "gained"}
