"""The comparison of two builds, and what got worse: hollow is hollow, and worse is worse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import time_machine

import nightly_history
import stored_jobs
from api import Api, in_process
from gonogo_service.kit.database import ids
from gonogo_service.kit.database.encoding import utcnow


@pytest.fixture
def api(migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with in_process(migrated_sqlite_url) as running:
        monkeypatch.setattr(ids, "_last", 0)  # so that ids can be of the past
        yield running


def test_a_test_that_is_red_and_hollow_is_a_part_of_the_bar_that_is_both(api: Api) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(4))
        nightly_history.night(session, "b2", 2, range(4), wrong=True, red=[0])
    view = api.client.get("/compare.json?base=b1&head=b2").json()
    hollow = next(delta for delta in view["deltas"] if delta["label"] == "Hollow")
    assert (hollow["base"], hollow["head"]) == (0, 1)
    base, head = view["bars"]
    assert (base["words"], head["words"]) == ("1 pass", "1 fail and hollow")
    assert [(part["verdict"], part["hollow"]) for part in head["counts"]] == [("fail", True)]
    page = api.client.get("/compare?base=b1&head=b2").text
    assert page.count('<rect class="v-pass_by_tolerance"') == 1


def test_a_known_hollow_looks_hollow(api: Api) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(4), wrong=True)
        nightly_history.night(session, "b2", 2, range(4), wrong=True)
    view = api.client.get("/compare.json?base=b1&head=b2").json()
    (line,) = view["tests"]
    assert [finding["kind"] for finding in line["findings"]] == ["known_hollow"]
    assert view["counts"] == [["known_hollow", 1]]
    page = api.client.get("/compare?base=b1&head=b2").text
    assert re.search('v-pass_by_tolerance chip".*?</svg>Known hollow pass<', page)


def test_a_test_leads_to_its_page_on_the_branch_that_is_compared(api: Api) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(10, 13), wrong=True)
        nightly_history.night(session, "b2", 2, range(10, 13))
        nightly_history.night(session, "b3", 3, range(3))
        nightly_history.night(session, "fast-1", 1, range(3), branch="fast-ln")

    def branch_of(line: dict[str, Any]) -> str:
        path, _, place = line["url"].partition("?")
        return str(api.client.get(f"{path}.json?{place}").json()["variant"]["branch"])

    (compared,) = api.client.get("/compare.json?base=b1&head=b2").json()["tests"]
    (by_api,) = api.get("/compare?base=b1&head=b2")["items"]
    assert by_api["links"]["test"] == compared["url"]
    (beside,) = api.client.get("/branch.json?head=fast-1").json()["items"]
    assert (branch_of(compared), branch_of(beside)) == ("main", "fast-ln")
    labels = [cell["label"] for cell in beside["cells"]]
    assert labels == ["fixed", "nothing new", "other bits, right"]


def _lines(api: Api) -> list[dict[str, Any]]:
    """Return the tests that changed in the last seven days."""
    lines: list[dict[str, Any]] = api.client.get("/worse.json").json()["items"]
    return lines


def _two_weeks_ago(api: Api, **night: Any) -> None:
    """Store a night of the build b1 as it was two weeks ago."""
    with (
        time_machine.travel(utcnow() - timedelta(days=14), tick=True),
        api.context.session() as session,
    ):
        nightly_history.night(session, "b1", 1, **night)


def test_a_failure_rate_that_rose_is_worse_although_both_builds_are_red(api: Api) -> None:
    _two_weeks_ago(api, seeds=range(20), red=range(2))
    with api.context.session() as session:
        nightly_history.night(session, "b2", 2, range(20), red=range(18))
    (line,) = _lines(api)
    assert (line["kind"], line["change"]) == ("worse", "failed seeds: 10%, now 90%")
    assert "Failed seeds: 10%, now 90%" in api.client.get("/worse").text


def test_a_rate_that_chance_explains_stayed(api: Api) -> None:
    _two_weeks_ago(api, seeds=range(20), red=range(2))
    with api.context.session() as session:
        nightly_history.night(session, "b2", 2, range(20), red=range(4))
    assert _lines(api) == []
    assert api.client.get("/worse.json").json()["counts"]["same"] == 1


def test_an_error_that_grew_is_worse_although_both_builds_pass(api: Api) -> None:
    _two_weeks_ago(api, seeds=range(4))
    with api.context.session() as session:
        job = nightly_history.submit(session, range(4), build="b2", sequence=2)
        rows = []
        for seed in range(4):
            row = nightly_history.row(seed, wrong=False, within=True, bits="b2")
            row["outputs"]["dgamma"]["rms"] *= 5
            rows.append(row)
        stored_jobs.report(session, job.id, rows)
        stored_jobs.finish(session, job.id)
    (line,) = _lines(api)
    assert line["kind"] == "worse"
    assert line["change"].startswith("error of dgamma: ")
    assert line["change"].endswith(" times larger")
