"""The comparison of two builds, and what got worse: hollow is hollow, and worse is worse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import nightly_history
from api import Api, in_process


@pytest.fixture
def api(migrated_sqlite_url: str) -> Iterator[Api]:
    with in_process(migrated_sqlite_url) as running:
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


def test_a_known_hollow_pass_looks_hollow(api: Api) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "b1", 1, range(4), wrong=True)
        nightly_history.night(session, "b2", 2, range(4), wrong=True)
    view = api.client.get("/compare.json?base=b1&head=b2").json()
    (line,) = view["tests"]
    assert [(each["label"], each["verdict"]) for each in line["findings"]] == [
        ("Known hollow pass", "pass_by_tolerance")
    ]
    assert [count["verdict"] for count in view["counts"]] == ["pass_by_tolerance"]
