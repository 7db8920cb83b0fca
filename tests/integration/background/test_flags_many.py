"""Many flags at once: the order of the list, one change for several flags, each refusal by itself,
the page's form without a script."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

import compared_builds
import nightly_history
from api import ELSEWHERE, Api, in_process
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo_service.flags.api import FLAGS
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.outbox import outbox

TOMORROW = timestamp(datetime.now(UTC) + timedelta(days=1))
UNKNOWN = "01900000-0000-7000-8000-000000000000"
KINDS = (FlagKind.flaky, FlagKind.tolerance_too_tight, FlagKind.hangs, FlagKind.fix_masked)
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Api]:
    """Two tests, each hollow, and four findings about the first of them."""
    place = tmp_path_factory.mktemp("triage") / "gonogo.sqlite"
    copyfile(sqlite_template, place)
    with in_process(f"sqlite:///{place}") as service:
        with service.context.session() as session:
            job = nightly_history.night(
                session, "b1", 1, range(2), test=compared_builds.HOLLOW, wrong=True
            )
            for kind in KINDS:
                compared_builds.flag(session, job, kind)
            nightly_history.night(session, "b2", 2, range(2), test=compared_builds.NEW, wrong=True)
        yield service


@pytest.fixture
def flag_ids(api: Api) -> dict[str, list[str]]:
    """The ids of all flags by kind; all flags are open and have no owner."""
    by_kind: dict[str, list[str]] = {}
    for flag in api.get("/flags")["items"]:
        by_kind.setdefault(flag["kind"], []).append(flag["id"])
    ids = [flag_id for kind_ids in by_kind.values() for flag_id in kind_ids]
    change(api, ids, state="open", owner=None, reason=None)
    return by_kind


def change(api: Api, ids: list[str], **fields: Any) -> Any:
    answer = api.client.post("/api/v1/flags:change", json={"ids": ids, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def order(api: Api, *, limit: int = 50, cursor: str | None = None, **filters: Any) -> list[str]:
    with api.context.reading() as session:
        return [
            flag.kind
            for flag in FLAGS.for_triage(session, limit=limit, cursor=cursor, **filters).items
        ]


def test_the_list_is_by_kind_hollow_first_and_pages_through(
    api: Api, flag_ids: dict[str, list[str]]
) -> None:
    kinds = ["passes_by_tolerance"] * 2 + ["fix_masked", "hangs", "flaky", "tolerance_too_tight"]
    assert order(api) == kinds
    first = api.client.get("/flags.json?limit=3").json()
    second = api.client.get(
        first["next_url"].replace("/flags?", "/flags.json?") + "&limit=2"
    ).json()
    rest = api.client.get(second["next_url"].replace("/flags?", "/flags.json?")).json()
    assert [flag["kind"] for page in (first, second, rest) for flag in page["items"]] == kinds
    assert rest["next"] is None
    assert first["counts"][:2] == [["passes_by_tolerance", 2], ["fix_masked", 1]]
    newest, _ = (flag["build"] for flag in first["items"][:2])
    assert newest == "b2"
    assert order(api, build="b1", kind="passes_by_tolerance") == ["passes_by_tolerance"]
    change(api, flag_ids["hangs"], state="acknowledged", owner="ada", reason="the board")
    change(api, flag_ids["flaky"], state="resolved")
    assert order(api, owner="ada") == []
    assert (
        order(api, owner="ada", state="any"),
        order(api, state="resolved"),
        order(api, job="x"),
    ) == (["hangs"], ["flaky"], [])
    assert [flag["kind"] for flag in api.get("/flags?owner=ada&build=b1")["items"]] == ["hangs"]
    for cursor in ("x", f"odd.{UNKNOWN}", "flaky.x"):
        assert api.client.get(f"/flags.json?cursor={cursor}").status_code == 400


def test_one_change_for_many_has_an_outcome_for_each_and_is_told_as_for_one(
    api: Api, flag_ids: dict[str, list[str]]
) -> None:
    first, second = flag_ids["passes_by_tolerance"]
    (resolved,) = flag_ids["flaky"]
    change(api, [resolved], state="resolved", reason="fixed in 4.2")
    ids = [first, resolved, UNKNOWN, "nothing", second, first]
    fields = {
        "state": "acknowledged",
        "owner": "ada",
        "reason": "known since May",
        "expires": TOMORROW,
    }
    answer = change(api, ids, **fields)
    assert answer["changed"] == 2
    assert [(entry["id"], entry["outcome"]) for entry in answer["items"]] == [
        (first, "changed"),
        (resolved, "refused"),
        (UNKNOWN, "missing"),
        ("nothing", "missing"),
        (second, "changed"),
    ]
    assert answer["items"][1]["problem"]["limit"] == "resolved, open"
    assert answer["items"][0]["before"] == {
        "state": "open",
        "owner": None,
        "reason": None,
        "expires_at": None,
    }
    changed_flag = api.get(f"/flags/{second}")
    assert (
        changed_flag["state"],
        changed_flag["owner"],
        changed_flag["expires_at"],
        changed_flag["version"],
    ) == (
        "acknowledged",
        "ada",
        TOMORROW,
        answer["items"][4]["version"],
    )
    assert (changed_flag["history"][0]["actor"], changed_flag["history"][0]["reason"]) == (
        "local",
        "known since May",
    )
    assert api.get(f"/audit?subject={second}")["items"][0]["detail"] == fields
    again = change(api, ids, **fields)
    assert [entry["outcome"] for entry in again["items"]] == [
        "same",
        "refused",
        "missing",
        "missing",
        "same",
    ]
    assert api.get(f"/flags/{second}")["version"] == changed_flag["version"]
    with api.context.reading() as session:
        messages = len(outbox.due(session, topics=("flag.resolved",)))
    change(api, [first, second], state="resolved")
    with api.context.reading() as session:
        assert len(outbox.due(session, topics=("flag.resolved",))) == messages + 2
    assert (
        change(api, [first], state="open", owner=None)["items"][0]["state"] == "open"
    )  # taken back


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"ids": []}, "ids"),
        ({"ids": [UNKNOWN] * 201, "state": "resolved"}, "ids"),
        ({"ids": [UNKNOWN]}, "body"),
        ({"ids": [UNKNOWN], "state": "acknowledged", "expires": "2020-01-01T00:00:00Z"}, "expires"),
        ({"ids": [UNKNOWN], "state": "acknowledged", "expires": TOMORROW}, "reason"),
        ({"ids": [UNKNOWN], "state": "open", "versions": {UNKNOWN: "x"}}, f"versions.{UNKNOWN}"),
        ({"ids": [UNKNOWN], "state": "reopened"}, "state"),
        ({"ids": [UNKNOWN], "version": 1, "state": "open"}, "version"),
    ],
)
def test_a_change_that_none_can_take_is_refused_whole(
    api: Api, body: dict[str, Any], field: str
) -> None:
    answer = api.client.post("/api/v1/flags:change", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


def test_the_form_of_the_page_works_without_a_script(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url, embedded=False) as api:
        with api.context.session() as session:
            for test in (compared_builds.HOLLOW, compared_builds.NEW):
                nightly_history.night(session, "b1", 1, range(2), test=test, wrong=True)
            first, second = (flag.id for flag in FLAGS.page(session).items)
        reader, person = api.visitor(ELSEWHERE), api.visitor(ELSEWHERE)
        for visitor, scope in ((reader, "read"), (person, "submit")):
            token = api.token(scope)["Authorization"].removeprefix("Bearer ")
            assert visitor.post("/login", data={"token": token}).status_code == 303
        page = person.get("/flags?kind=passes_by_tolerance").text
        assert page.count('name="flag"') == 2
        csrf = page.split('name="csrf_token" value="')[1].split('"')[0]
        body = {
            "flag": [first, UNKNOWN],
            "state": "acknowledged",
            "owner": HOSTILE,
            "reason": "known",
            "csrf_token": csrf,
        }
        stale = person.post("/flags", data={**body, "flag": [first], "version": f"{first} 9"})
        assert "1 flag could not be changed" in stale.text
        assert "is outdated" in stale.text
        assert person.post("/flags", data={**body, "csrf_token": "x"}).status_code == 403
        assert (
            reader.post(
                "/flags",
                data={
                    **body,
                    "csrf_token": reader.get("/flags")
                    .text.split('csrf_token" value="')[1]
                    .split('"')[0],
                },
            ).status_code
            == 403
        )
        done = person.post("/flags?kind=passes_by_tolerance", data=body)
        assert done.status_code == 200
        assert "1 flag acknowledged" in done.text
        assert f"{UNKNOWN}" in done.text  # named, because it could not be changed
        assert HOSTILE not in done.text
        assert (
            done.text.count('name="flag" value="' + first) == 1
        )  # in the form that takes the change back; the list has only the other flag
        assert f'id="flag-{second}"' in done.text
        assert f'id="flag-{first}"' not in done.text
        for changes, error in (
            ({"reason": " "}, "reason: is required to acknowledge a flag"),
            ({"flag": []}, "flag: nothing is selected"),
            ({"expires": "2001-01-01"}, "expires: is past"),
            ({"expires": "soon"}, "expires: is not a day"),
            ({"state": "owned", "owner": ""}, "owner: is required"),
        ):
            refused = person.post("/flags", data={**body, **changes})
            assert (refused.status_code, error in refused.text) == (422, True), refused.text[-3000:]
        back = person.post("/flags", data={"flag": [first], "state": "open", "csrf_token": csrf})
        assert "1 flag reopened" in back.text
        person.post(
            "/flags",
            data={
                "flag": [first, second],
                "state": "resolved",
                "reason": "fixed",
                "csrf_token": csrf,
            },
        )
        assert "No open flags" in person.get("/flags").text


def test_a_row_says_which_flag_it_is_and_that_its_test_has_others(
    api: Api, flag_ids: dict[str, list[str]]
) -> None:
    assert set(flag_ids) == {*KINDS, FlagKind.passes_by_tolerance}
    items = api.client.get("/flags.json?state=any").json()["items"]
    one = next(item for item in items if item["kind"] == "hangs")
    assert {other["words"] for other in one["others"]} == {
        kind.label for kind in (*KINDS, FlagKind.passes_by_tolerance) if kind != "hangs"
    }
    alone = [item for item in items if item["tolerance"] != one["tolerance"]]
    page = api.client.get("/flags").text
    row = page.partition(f'id="flag-{one["id"]}"')[2].partition("</li>")[0]
    assert "<strong>Hangs</strong>" in row
    assert "One of 5 open flags of this test; also" in row
    assert alone
    assert not any(item["others"] for item in alone)
