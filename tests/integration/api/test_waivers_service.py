"""Waivers over HTTP, in comparisons and by the command: they take effect and end at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

import compared_builds
import nightly_history
from api import Api, in_process, refusal
from compared_builds import BASE, HEAD
from gonogo.spec.test_spec import TestSpec
from gonogo_service.compare import comparing
from gonogo_service.jobs.model import JobLabelRow
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.waivers import store as waivers
from records import pick

KEY = TestSpec.parse(compared_builds.NEW).key
# not midnight, which is shown without its time
SOON = timestamp((datetime.now(UTC) + timedelta(days=3, hours=-1)).replace(minute=30))
BODY = {"test": KEY, "reason": "the race of ticket 12", "owner": "kim", "expires": SOON}


def history(api: Api) -> None:
    """Store a new failure, a new hollow pass, and a test of a suite that breaks."""
    with api.context.session() as session:
        red = {"wrong": True, "red": compared_builds.EIGHT}
        compared_builds.both(session, compared_builds.NEW, {}, red)
        compared_builds.both(session, compared_builds.HOLLOW, {}, {"wrong": True})
        compared_builds.suite(session, BASE, {"Ops.Breaks": "passed"})
        compared_builds.suite(session, HEAD, {"Ops.Breaks": "failed"})


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Api]:
    place = tmp_path_factory.mktemp("waivers") / "gonogo.sqlite"
    copyfile(sqlite_template, place)
    with in_process(f"sqlite:///{place}") as service:
        history(service)
        yield service


@pytest.fixture
def api(stored: Api) -> Iterator[Api]:
    """The service, without the waivers of the test before."""
    yield stored
    for item in stored.get("/waivers?state=active")["items"]:
        stored.client.delete(f"/api/v1/waivers/{item['id']}")


def add(api: Api, **changes: Any) -> dict[str, Any]:
    answer = api.client.post("/api/v1/waivers", json={**BODY, **changes})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def concerning(api: Api, test: str, **query: Any) -> list[str]:
    params = {"test": test, "state": "active", **query}
    return [waiver["id"] for waiver in api.get("/waivers", params=params)["items"]]


def test_it_works_at_once_and_ends_at_its_time_and_rewrites_no_verdict(api: Api) -> None:
    before = api.get(f"/compare?base={BASE}&head={HEAD}")
    assert before["counts"] == {"new_failure": 2, "new_hollow_pass": 1}
    waiver = add(api)
    words = f"waived until {SOON[:10]} {SOON[11:16]} UTC by kim: the race of ticket 12"
    assert pick(waiver, "state", "words") == ("active", words)
    assert waiver["links"]["test"] == f"/tests/{KEY}"
    after = api.get(f"/compare?base={BASE}&head={HEAD}")
    assert after["counts"] == {"new_failure": 1, "new_hollow_pass": 1, "waived": 1}
    (waived,) = (entry for entry in after["items"] if entry["test_key"] == KEY)
    assert (waived["class"], waived["verdict"]) == ("waived", "fail")
    evidence = waived["findings"][0]["evidence"]["waiver"]
    assert (evidence["id"], evidence["expires"]) == (waiver["id"], waiver["expires_at"])
    assert waived["words"].endswith(waiver["words"])
    assert waiver["words"] in api.client.get(f"/compare?base={BASE}&head={HEAD}").text
    with api.context.reading() as session:  # it expires by itself
        late = utcnow() + timedelta(days=3)
        assert comparing.compare(session, BASE, HEAD, now=late).counts == before["counts"]
        (row,) = waivers.of_test(session, KEY, now=utcnow())
        assert row.state_at(late) == "expired"
        assert waivers.of_test(session, KEY, now=late) == []
    ended = api.client.delete(f"/api/v1/waivers/{waiver['id']}").json()
    assert (ended["state"], ended["ended_by"], ended["version"]) == ("ended", "local", 2)
    assert api.client.delete(f"/api/v1/waivers/{waiver['id']}").json() == ended
    assert api.get(f"/compare?base={BASE}&head={HEAD}")["counts"] == before["counts"]


@pytest.mark.parametrize(
    ("changes", "left"),
    [  # (waived, new failures, new hollow passes)
        ({"test": None, "names": ["layernorm_bw *"]}, (2, 1, 0)),
        ({"test": None, "names": ["Ops.*"]}, (1, 1, 1)),
        ({"test": None, "names": ["**"], "classes": ["new_hollow_pass"]}, (1, 2, 0)),
        ({"test": None, "names": ["**"], "builds": [HEAD[:4] + "*"]}, (3, 0, 0)),
        ({"builds": ["release-*"]}, (0, 2, 1)),
        ({"test": None, "labels": {"suite": "nightly"}}, (0, 2, 1)),
    ],
)
def test_it_covers_what_it_names(api: Api, changes: dict[str, Any], left: tuple[int, ...]) -> None:
    add(api, **changes)
    counts = Counter(api.get(f"/compare?base={BASE}&head={HEAD}")["counts"])
    assert pick(counts, "waived", "new_failure", "new_hollow_pass") == left


def test_a_label_of_a_job_is_enough_and_lists_find_what_concerns_a_test(api: Api) -> None:
    test = compared_builds.test_of(0.9)
    key = TestSpec.parse(test).key
    with api.context.session() as session:
        nightly_history.night(session, "labelled-1", 8, range(4), test=test)
        job = nightly_history.night(session, "labelled-2", 9, range(4), test=test, wrong=True)
        session.add(JobLabelRow(job_id=job.id, name="suite", value="nightly"))
    about = {
        "label": add(api, test=None, labels={"suite": "nightly"}),
        "name": add(api, test=None, names=["layernorm_bw *"], classes=["known_flaky"]),
        "key": add(api, test=key, builds=["elsewhere"]),
        "other": add(api),
        "no name": add(api, test=None, names=["Ops.*"]),
    }
    assert api.get("/compare?base=labelled-1&head=labelled-2")["counts"] == {"waived": 1}
    expected_ids = [about[name]["id"] for name in ("key", "name", "label")]
    assert concerning(api, key) == expected_ids
    first = api.get(f"/waivers?test={key}&state=active&limit=2")
    assert concerning(api, key, limit=2, cursor=first["next"]) == expected_ids[2:]
    items = api.get(f"/compare?base={BASE}&head={HEAD}")["items"]
    suite = next(entry["test_key"] for entry in items if entry["within"])
    assert concerning(api, suite) == [about["no name"]["id"]]
    shown = api.client.get(f"/tests/{key}").text
    assert shown.count('class="waiver"') == 3
    of_test = api.client.get(f"/tests/{key}.json").json()["waivers"]["active"]
    assert {waiver["id"] for waiver in of_test} == set(expected_ids)


def test_it_is_renewed_while_it_is_in_force(api: Api) -> None:
    address = f"/api/v1/waivers/{add(api)['id']}"
    later = timestamp(datetime.now(UTC) + timedelta(days=80))
    change = {"expires": later, "reason": "still", "version": 1}
    renewed = api.client.patch(address, json=change).json()
    assert pick(renewed, "expires_at", "reason", "version") == (later, "still", 2)
    assert api.client.patch(address, json={"reason": "still"}).json()["version"] == 2
    api.client.delete(address)
    assert refusal(api.client.patch(address, json={"owner": "x"}))[1] == "state"
