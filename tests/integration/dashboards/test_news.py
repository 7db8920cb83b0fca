"""The news of the overview and the API: what changed since a reader was here, until it is seen."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import time_machine

import nightly_history
import stored_jobs
from api import ELSEWHERE, Api, in_process
from gonogo_service.flags import store as flags
from gonogo_service.kit.database.encoding import utcnow

BECAME = {
    "hollow": (False, True),
    "red": (False, True),
    "fixed": (True, False),
    "same": (True, True),
    "lost": (False, True),
}
"""Whether a test is wrong on b1, and on b2; a wrong "lost" hangs and is right besides."""


def tell(api: Api, **given: Any) -> dict[str, list[Any]]:
    """Return the news by topic."""
    topics = api.get("/news", **given)["topics"]
    assert all(topic["count"] == len(topic["items"]) for topic in topics)
    return {topic["topic"]: topic["items"] for topic in topics}


def see(api: Api, at: datetime) -> None:
    """Say that the news are seen until then."""
    answer = api.client.post("/api/v1/news:seen", params={"at": at.isoformat()})
    assert answer.status_code == 204, answer.text


def ran(api: Api, build: int) -> dict[str, str]:
    """Run each test of BECAME on a build of main, and wrong on `pr`; return their keys."""
    keys = {}
    with api.context.session() as session:
        for place, (name, wrong) in enumerate(BECAME.items()):
            test = {**stored_jobs.NIGHTLY, "epsilon": 1e-5 * (1 + place)}
            is_wrong, seeds = wrong[build - 1], range(3)
            keys[name] = nightly_history.night(
                session,
                f"b{build}",
                build,
                seeds,
                test=test,
                wrong=is_wrong and name != "lost",
                hung=seeds[:1] if name == "lost" and is_wrong else (),
                red=seeds if name == "red" and is_wrong else (),
                diagnosed=True,
            ).test_key
            of_pr = {"test": test, "wrong": True, "red": seeds if name == "red" else ()}
            nightly_history.night(session, f"pr-{build}", build, seeds, branch="pr", **of_pr)
    return keys


def test_a_reader_sees_each_change_with_its_cause_until_it_is_seen(
    database_url: str,
) -> None:
    now = utcnow().replace(hour=12, minute=30)
    then, minute = now - timedelta(days=2), timedelta(minutes=1)
    with time_machine.travel(then) as clock, in_process(database_url) as api:
        keys = ran(api, 1)
        clock.move_to(then + minute)
        see(api, utcnow())
        assert tell(api) == {}
        clock.move_to(now)
        ran(api, 2)
        with api.context.session() as session:
            nightly_history.submit(session, range(3), build="b3", sequence=3)
        see(api, utcnow() + timedelta(days=9))
        assert tell(api).keys() == {"hollow", "red", "lost", "fixed", "gained"}, (
            "others may commit yet"
        )
        see(api, then + minute)
        news = tell(api)
        assert {topic: [one["test_key"] for one in items] for topic, items in news.items()} == {
            "hollow": [keys["hollow"]],
            "red": [keys["red"]],
            "lost": [keys["lost"]],
            "fixed": [keys["fixed"]],
            "gained": [None],
        }
        (hollow,), (fixed,), (build,) = news["hollow"], news["fixed"], news["gained"]
        assert stored_jobs.FAULT in hollow["cause"]
        assert fixed["cause"] == "hollow on b1"
        assert (build["name"], build["before"]) == ("b2", "b1")
        assert build["cause"] == "2 hollow, 2 red, 1 with crashes, hangs or errors of 5 tests"
        (flag,) = (
            one
            for one in api.get(f"/flags?test={keys['hollow']}")["items"]
            if one["branch"] == "main"
        )
        assert hollow["page"] == f"/tests/{keys['hollow']}?branch=main&arch=wormhole&board=n150"
        assert hollow["acknowledge"] == f"/flags/{flag['id']}#change"
        page = api.client.get("/").text
        assert all(label in page for label in ("Newly hollow", "Newly red", "Fixed"))
        assert 'href="/compare?base=b1&amp;head=b2"' in page
        bisect = f"/bisections/new?test={keys['hollow']}&amp;branch=main&amp;first=b1&amp;last=b2"
        assert bisect in page
        assert "epsilon 1e-05" in page, "tests of one shape have labels of their own"
        acknowledged = {"state": "acknowledged", "reason": "known"}
        end = {"expires": (now + timedelta(hours=3)).isoformat()}
        answer = api.client.patch(f"/api/v1/flags/{flag['id']}", json={**acknowledged, **end})
        assert answer.status_code == 200, answer.text
        (ending,) = tell(api)["ending"]
        assert ending["cause"] == "Hollow pass, acknowledged by local: known"
        assert (ending["test_key"], ending["canonical"]) == (keys["hollow"], hollow["canonical"])
        clock.move_to(now + minute)
        until = api.client.get("/overview.json").json()["news"]["until"]
        assert f"news:seen?at={until.replace(':', '%3A')}" in api.client.get("/").text
        see(api, datetime.fromisoformat(until))
        assert tell(api) == {}
        clock.move_to(now + timedelta(hours=4))
        with api.context.session() as session:
            flags.expire(session, now=utcnow())
        (yours,) = tell(api)["yours"]
        assert yours["cause"].startswith("Hollow pass, expired: acknowledged until")
        assert yours["acknowledge"] == f"/flags/{flag['id']}#change"
        clock.move_to(now + timedelta(hours=5))
        see(api, utcnow())
        assert tell(api) == {}
        assert "Nothing changed" in api.client.get("/").text


def test_each_reader_has_news_of_at_most_thirty_days_and_who_changed_a_flag(
    database_url: str,
) -> None:
    with in_process(database_url, embedded=False) as api:
        ada, bob = (api.token("submit", name=name) for name in ("ada", "bob"))
        ran(api, 1)
        client = api.visitor(ELSEWHERE)

        def news(reader: dict[str, str]) -> Any:
            return client.get("/api/v1/news", headers=reader).json()

        address = "/api/v1/news:seen"
        assert client.post(address, headers=ada).status_code == 422
        for at in ("0001-01-01T00:00:00Z", "1970-01-02T00:00:00Z"):
            seen = client.post(address, params={"at": at}, headers=ada)
            assert seen.status_code == 204, seen.text
            since = datetime.fromisoformat(news(ada)["since"])
            assert timedelta(days=30) <= utcnow() - since < timedelta(days=31)
        assert (news(ada)["never_seen"], news(bob)["never_seen"]) == (False, True)
        assert {topic["topic"] for topic in news(bob)["topics"]} == {"hollow", "gained"}
        (flag, *_) = client.get("/api/v1/flags", headers=ada).json()["items"]
        for state, who in (("acknowledged", ada), ("resolved", bob)):
            change = {"state": state, "reason": "why not"}
            answer = client.patch(f"/api/v1/flags/{flag['id']}", json=change, headers=who)
            assert answer.status_code == 200, answer.text
        (yours,) = (topic for topic in news(ada)["topics"] if topic["topic"] == "yours")
        assert yours["items"][0]["cause"] == "Hollow pass, resolved by bob: why not"
        assert "yours" not in {topic["topic"] for topic in news(bob)["topics"]}
