"""The page of waivers: where the form leads, who accepts what until when, and how one ends."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import time_machine

import stored_jobs
from api import Api
from gonogo_dashboards.tests import waivers
from gonogo_service.kit.database.encoding import timestamp, utcnow


def _waive(api: Api, **fields: Any) -> dict[str, Any]:
    expires = timestamp(utcnow() + timedelta(days=3))
    body = {"reason": "ticket 12", "owner": "kim", "expires": expires, **fields}
    answer = api.client.post("/api/v1/waivers", json=body)
    assert answer.status_code == 201, answer.text
    created: dict[str, Any] = answer.json()
    return created


def test_a_waiver_by_names_leads_to_the_list_that_shows_it(api: Api) -> None:
    form = api.client.get("/waivers/new").text
    then = re.search('data-then="([^"]*)"', form)
    assert then is not None
    _waive(api, names=["layernorm*"])
    answer = api.client.get(then[1])
    assert answer.status_code == 200
    assert "tests layernorm*" in answer.text
    assert "ticket 12" in answer.text
    assert 'href="/waivers"' in api.client.get("/").text, "the navigation leads to it"
    listed = api.client.get("/waivers.csv")
    assert "kim" in listed.text.splitlines()[1]
    hits = api.client.get("/search.json?q=waiver").json()["items"]
    assert [hit["url"] for hit in hits] == ["/waivers"]


def _click(api: Api, button: str) -> None:
    """Send what the first such button of the page of waivers sends."""
    page = api.client.get("/waivers").text
    name, value = next(re.finditer(button, page, re.DOTALL)).groups()
    place = re.search('data-patch="([^"]*)" data-version="([0-9]*)"', page)
    assert place is not None
    answer = api.client.patch(place[1], json={name: value, "version": int(place[2])})
    assert answer.status_code == 200, answer.text


def test_one_click_gives_a_waiver_fourteen_more_days(api: Api) -> None:
    waiver = _waive(api, names=["a*"])
    assert waiver["effect"] in api.client.get("/waivers").text
    _click(api, 'name="(expires)" value="([^"]*)"')
    (line,) = api.client.get("/waivers.json").json()["items"]
    before, after = (datetime.fromisoformat(one["expires_at"]) for one in (waiver, line))
    assert after - before == timedelta(days=14)


def test_an_acknowledged_flag_is_listed_with_who_why_and_until_when(api: Api) -> None:
    with api.context.session() as session:
        test = stored_jobs.finished(session, seeds=1).test_key
    (flag,) = api.get("/flags")["items"]
    for page in ("/waivers", f"/tests/{test}"):
        assert "every new finding blocks a commit" in api.client.get(page).text.lower()
    body = {"state": "acknowledged", "reason": "ticket 14", "owner": "kim"}
    known = api.client.patch(f"/api/v1/flags/{flag['id']}", json=body).json()
    (line,) = api.client.get("/waivers.json").json()["acknowledged"]
    assert (line["owner"], line["reason"], line["expires_at"], line["id"]) == (
        "kim",
        "ticket 14",
        known["expires_at"],
        flag["id"],
    )
    for page in ("/waivers", f"/tests/{test}"):
        text = api.client.get(page).text
        assert "every new finding blocks a commit" not in text.lower()
        assert "ticket 14" in text
        assert known["effect"].rstrip(".") in text
    assert known["effect"] in api.client.get(f"/flags/{flag['id']}").text
    with api.context.reading() as session:
        later = utcnow() + timedelta(days=15)
        assert not waivers.listed(session, {}, None, 50, later).acknowledged
    _click(api, f'{flag["id"]}.*?name="(state)" value="(open)"')
    assert api.get(f"/flags/{flag['id']}")["state"] == "open"
    assert not api.client.get("/waivers.json").json()["acknowledged"]


def test_each_waiver_has_its_state_and_only_one_in_force_can_be_ended(api: Api) -> None:
    with api.context.session() as session:
        test = stored_jobs.finished(session, seeds=1).test_key
    first, second = _waive(api, test=test), _waive(api, names=["a*"], reason="ticket 13")
    assert api.client.delete(f"/api/v1/waivers/{second['id']}").status_code == 200
    lines = api.client.get("/waivers.json").json()["items"]
    assert [(line["reason"], line["state"]) for line in lines] == [
        ("ticket 13", "ended"),
        ("ticket 12", "active"),
    ]
    assert lines[1]["test_words"] == "layernorm_bw 3×273×1×8462, rtol 0.001, atol 0.5"
    assert lines[1]["test"] == test
    page = api.client.get("/waivers").text
    assert page.count(">End now<") == 1
    assert f'data-post="/api/v1/waivers/{first["id"]}"' in page
    assert ">just now, by local<" in page, "the ended one"
    assert ">ends in 2 d" in page
    active = api.client.get("/waivers.json?state=active").json()["items"]
    assert [line["id"] for line in active] == [first["id"]]
    later = utcnow() + timedelta(days=4)
    with time_machine.travel(later), api.context.reading() as session:
        expired = waivers.listed(session, {"state": "expired"}, None, 50, later).items
    assert [line["id"] for line in expired] == [first["id"]]
