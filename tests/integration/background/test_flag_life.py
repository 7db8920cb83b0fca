"""The life of flags over HTTP, one and many: who moved them where and why, until when, in which
order they are listed, and what is refused; the page's form without a script."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

import compared_builds
import nightly_history
from api import ELSEWHERE, Api, in_process, refusal
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo_service.flags.api import FLAGS
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.outbox import outbox
from records import pick

TOMORROW = timestamp(datetime.now(UTC) + timedelta(days=1))
UNKNOWN = "01900000-0000-7000-8000-000000000000"
HOSTILE = "<img src=x onerror=alert(1)>"
KNOWN = {"state": "acknowledged", "reason": "known since May"}
KINDS = (FlagKind.flaky, FlagKind.tolerance_too_tight, FlagKind.hangs, FlagKind.fix_masked)
"""The findings about one test beside its hollow passes."""


@pytest.fixture(scope="module")
def api(module_engine: Engine) -> Iterator[Api]:
    """Two tests, each hollow, and four findings about the first of them."""
    with in_process(module_engine.url.render_as_string(hide_password=False)) as service:
        with service.context.session() as session:
            about: dict[str, Any] = {"seeds": range(2), "wrong": True}
            first = {"test": compared_builds.HOLLOW, **about}
            job = nightly_history.night(session, "b1", 1, **first)
            for kind in KINDS:
                compared_builds.flag(session, job, kind)
            nightly_history.night(session, "b2", 2, test=compared_builds.NEW, **about)
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


@pytest.fixture
def flag(api: Api, flag_ids: dict[str, list[str]]) -> dict[str, Any]:
    """A flag about hollow passes."""
    return dict(api.get(f"/flags/{flag_ids['passes_by_tolerance'][1]}"))


def change(api: Api, ids: list[str], **fields: Any) -> Any:
    answer = api.client.post("/api/v1/flags:change", json={"ids": ids, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def patch(api: Api, flag: dict[str, Any], **body: Any) -> Any:
    """Change a flag; return it, or the status, field and limit of the refusal."""
    answer = api.client.patch(f"/api/v1/flags/{flag['id']}", json=body)
    changed = answer.json()
    return changed if answer.status_code == 200 else (*refusal(answer), changed["limit"])


def topics(api: Api) -> list[str]:
    with api.context.reading() as session:
        due = outbox.due(session, topics=("flag.opened", "flag.resolved"), limit=500)
        return [message.topic for message in due]


# --- one flag


def test_every_change_is_told_with_who_and_why_and_a_resolved_flag_is_reopened_by_evidence_only(
    api: Api, flag: dict[str, Any]
) -> None:
    fields = {**KNOWN, "owner": "ada", "expires": TOMORROW}
    acknowledged = patch(api, flag, **fields, version=flag["version"])
    shown = pick(acknowledged, "state", "owner", "expires_at", "version")
    assert shown == ("acknowledged", "ada", TOMORROW, flag["version"] + 1)
    closed = patch(api, flag, state="resolved", reason="fixed in 4.2")
    assert pick(closed, "state", "expires_at") == ("resolved", None)
    with api.context.session() as session:
        nightly_history.night(session, "b3", 3, range(2), test=compared_builds.HOLLOW, wrong=True)
    reopened = api.get(f"/flags/{flag['id']}")
    assert reopened["state"] == "reopened"
    names = ("what", "before", "after", "actor", "reason")
    newest, *history = [pick(entry, *names) for entry in reopened["history"][:3]]
    assert newest[:4] == ("reopened", "resolved", "reopened", "background")
    assert history == [
        ("resolved", "acknowledged", "resolved", "local", "fixed in 4.2"),
        ("changed", "open", "acknowledged", "local", "known since May"),
    ]
    assert reopened["history"][0]["detail"]["check"].startswith("gonogo check")
    assert topics(api)[-2:] == ["flag.resolved", "flag.opened"]
    audited = api.get("/audit", params={"action": "flag.changed", "subject": flag["id"]})["items"]
    assert audited[0]["detail"] == {"state": "resolved", "reason": "fixed in 4.2"}


@pytest.mark.parametrize("reason", [{"reason": None}, {"reason": ""}, {"reason": "  "}, {}])
def test_an_acknowledgement_needs_a_reason(
    api: Api, flag: dict[str, Any], reason: dict[str, Any]
) -> None:
    fields = {"state": "acknowledged", **reason}
    status, field, limit = patch(api, flag, **fields)
    assert (status, field, "1" in str(limit)) == (422, "reason", True)
    many = api.client.post("/api/v1/flags:change", json={"ids": [flag["id"]], **fields})
    assert (*refusal(many), many.json()["value"]) == (422, "reason", reason.get("reason"))
    assert api.get(f"/flags/{flag['id']}") == flag


def test_an_acknowledgement_is_the_callers_for_14_days_and_says_what_it_does(
    api: Api, flag: dict[str, Any]
) -> None:
    now = datetime.now(UTC)
    known = patch(api, flag, **KNOWN)
    end = datetime.fromisoformat(known["expires_at"])
    assert abs(end - now - timedelta(days=14)) < timedelta(minutes=1)
    assert (known["owner"], flag["effect"]) == ("local", None)
    assert known["effect"] == (
        f"Until {end:%Y-%m-%d %H:%M} UTC, hollow passes of this test on wormhole n150 block no"
        f" commit of the branch {flag['branch']}, and none compared with it."
    )
    (listed,) = api.get("/flags?owner=local")["items"]
    assert listed["effect"] == known["effect"]
    accepted = api.client.get("/waivers.json").json()["acknowledged"]
    assert [one["id"] for one in accepted] == [flag["id"]]
    for field in ("owner", "reason", "expires"):  # what it has can't be taken away
        assert patch(api, flag, **{field: None})[:2] == (422, field)
    assert patch(api, flag, owner="kim")["expires_at"] == known["expires_at"]


def test_a_change_of_what_somebody_else_changed_says_what_happened(
    api: Api, flag: dict[str, Any]
) -> None:
    seen = {"version": flag["version"]}
    patch(api, flag, **KNOWN, **seen)
    late = {"state": "resolved", "reason": "fixed"}
    answer = api.client.patch(f"/api/v1/flags/{flag['id']}", json={**late, **seen})
    assert (*refusal(answer), answer.json()["limit"]) == (409, "version", flag["version"] + 1)
    happened = "version: is outdated: local set it to acknowledged at 20"
    assert answer.json()["detail"].startswith(happened)
    assert "Z: known since May" in answer.json()["detail"]
    (outcome,) = change(api, [flag["id"]], versions={flag["id"]: flag["version"]}, **late)["items"]
    assert outcome["outcome"] == "refused"
    assert outcome["problem"]["message"].startswith(happened)
    assert api.get(f"/flags/{flag['id']}")["state"] == "acknowledged"


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "body", ""),
    ({"expires": TOMORROW}, "expires", '"state": "acknowledged"'),
    ({**KNOWN, "expires": "2020-01-01T00:00:00Z"}, "expires", "after "),
    ({**KNOWN, "expires": "2099-01-01T00:00:00Z"}, "expires", "90 days from now (GONOGO_WAIVER_"),
    ({**KNOWN, "expires": "soon"}, "expires", ""),
    ({**KNOWN, "expires": 1790000000}, "expires", ""),
    ({**KNOWN, "expires": "2099-01-01T00:00:00"}, "expires", ""),
    ({"state": "reopened"}, "state", ""),
]


@pytest.mark.parametrize(("body", "field", "limit"), REFUSED)
def test_what_may_not_be_is_refused_with_field_and_limit(
    api: Api, flag: dict[str, Any], body: dict[str, Any], field: str, limit: str
) -> None:
    refused = patch(api, flag, **body, version=flag["version"])
    assert refused[:2] == (422, field)
    assert str(refused[2]).startswith(limit)
    assert api.get(f"/flags/{flag['id']}") == flag


def test_a_resolved_flag_is_opened_and_not_acknowledged(api: Api, flag: dict[str, Any]) -> None:
    outdated = patch(api, flag, state="resolved", version=flag["version"] + 1)
    assert outdated == (409, "version", flag["version"])
    closed = patch(api, flag, state="resolved")
    assert pick(closed, "state", "expires_at") == ("resolved", None)
    assert patch(api, flag, **KNOWN) == (422, "state", "resolved, open")
    assert patch(api, flag, state="resolved")["version"] == closed["version"]  # nothing new
    assert patch(api, flag, state="open")["state"] == "open"


def test_a_line_says_whether_the_newest_build_still_has_it(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url) as api:
        for sequence, wrong, still in (
            (2, True, "The newest build still has it"),
            (3, False, "Not found on the newest build, b3"),
            (1, True, "Not found on the newest build, b3"),  # an older build says nothing new
        ):
            with api.context.session() as session:
                build = f"b{sequence}"
                nightly_history.night(session, build, sequence, range(3), wrong=wrong)
            (line,) = api.client.get("/flags.json?kind=passes_by_tolerance").json()["items"]
            assert (line["build"], line["still"]) == ("b2", still)


# --- many flags


def test_the_list_is_by_kind_hollow_first_and_pages_through(
    api: Api, flag_ids: dict[str, list[str]]
) -> None:
    def order(**filters: Any) -> list[str]:
        with api.context.reading() as session:
            return [flag.kind for flag in FLAGS.for_triage(session, limit=50, **filters).items]

    def page(address: str) -> Any:
        return api.client.get(address.replace("/flags?", "/flags.json?")).json()

    kinds = ["passes_by_tolerance"] * 2 + ["fix_masked", "hangs", "flaky", "tolerance_too_tight"]
    assert order() == kinds
    first = page("/flags?limit=3")
    second = page(first["next_url"] + "&limit=2")
    rest = page(second["next_url"])
    assert [flag["kind"] for part in (first, second, rest) for flag in part["items"]] == kinds
    assert rest["next"] is None
    assert first["counts"][:2] == [["passes_by_tolerance", 2], ["fix_masked", 1]]
    assert first["items"][0]["build"] == "b2"
    change(api, flag_ids["hangs"], **KNOWN, owner="ada")
    change(api, flag_ids["flaky"], state="resolved")
    for filters, chosen in (
        ({"build": "b2", "kind": "passes_by_tolerance"}, ["passes_by_tolerance"]),
        ({"owner": "ada"}, []),
        ({"owner": "ada", "state": "any"}, ["hangs"]),
        ({"state": "resolved"}, ["flaky"]),
        ({"job": "x"}, []),
    ):
        assert order(**filters) == chosen, filters
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
    fields = {**KNOWN, "owner": "ada", "expires": TOMORROW}
    answer = change(api, ids, **fields)
    outcomes = {entry["id"]: entry["outcome"] for entry in answer["items"]}
    refused = {resolved: "refused", UNKNOWN: "missing", "nothing": "missing"}
    assert (answer["changed"], list(outcomes)) == (2, list(dict.fromkeys(ids)))
    assert outcomes == {first: "changed", second: "changed", **refused}
    assert answer["items"][1]["problem"]["limit"] == "resolved, open"
    nothing = dict.fromkeys(("owner", "reason", "expires_at"))
    assert answer["items"][0]["before"] == {"state": "open", **nothing}
    changed = api.get(f"/flags/{second}")
    shown = pick(changed, "state", "owner", "expires_at", "version")
    assert shown == ("acknowledged", "ada", TOMORROW, answer["items"][4]["version"])
    assert pick(changed["history"][0], "actor", "reason") == ("local", "known since May")
    assert api.get(f"/audit?subject={second}")["items"][0]["detail"] == fields
    again = change(api, ids, **fields)
    outcomes = {entry["id"]: entry["outcome"] for entry in again["items"]}
    assert outcomes == {first: "same", second: "same", **refused}
    assert api.get(f"/flags/{second}")["version"] == changed["version"]
    before = topics(api).count("flag.resolved")
    change(api, [first, second], state="resolved")
    assert topics(api).count("flag.resolved") == before + 2
    (back,) = change(api, [first], state="open", owner=None)["items"]  # taken back
    assert back["state"] == "open"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"ids": []}, "ids"),
        ({"ids": [UNKNOWN] * 201, "state": "resolved"}, "ids"),
        ({"ids": [UNKNOWN]}, "body"),
        ({"ids": [UNKNOWN], **KNOWN, "expires": "2020-01-01T00:00:00Z"}, "expires"),
        ({"ids": [UNKNOWN], "state": "acknowledged", "expires": TOMORROW}, "reason"),
        ({"ids": [UNKNOWN], "state": "open", "versions": {UNKNOWN: "x"}}, f"versions.{UNKNOWN}"),
        ({"ids": [UNKNOWN], "state": "reopened"}, "state"),
        ({"ids": [UNKNOWN], "version": 1, "state": "open"}, "version"),
    ],
)
def test_a_change_that_none_can_take_is_refused_whole(
    api: Api, body: dict[str, Any], field: str
) -> None:
    assert refusal(api.client.post("/api/v1/flags:change", json=body)) == (422, field)


def test_a_row_says_which_flag_it_is_and_that_its_test_has_others(
    api: Api, flag_ids: dict[str, list[str]]
) -> None:
    assert set(flag_ids) == {*KINDS, FlagKind.passes_by_tolerance}
    items = api.client.get("/flags.json?state=any").json()["items"]
    one = next(item for item in items if item["kind"] == "hangs")
    others = {*KINDS, FlagKind.passes_by_tolerance} - {FlagKind.hangs}
    assert {other["words"] for other in one["others"]} == {kind.label for kind in others}
    (alone,) = [item for item in items if item["tolerance"] != one["tolerance"]]
    assert not alone["others"]
    page = api.client.get("/flags").text
    row = page.partition(f'id="flag-{one["id"]}"')[2].partition("</li>")[0]
    assert ": Hangs, on " in row
    assert "One of 5 open flags of this test; also" in row


def csrf_of(page: str) -> str:
    """Return the token of a page's form."""
    return page.split('name="csrf_token" value="')[1].split('"')[0]


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
        csrf = {"csrf_token": csrf_of(page)}
        body: dict[str, Any] = {"flag": [first, UNKNOWN], "owner": HOSTILE, **KNOWN, **csrf}
        stale = person.post("/flags", data={**body, "flag": [first], "version": f"{first} 9"})
        assert "1 flag could not be changed" in stale.text
        assert "is outdated" in stale.text
        forged = {**body, "csrf_token": "x"}
        assert person.post("/flags", data=forged).status_code == 403
        by_reader = {**body, "csrf_token": csrf_of(reader.get("/flags").text)}
        assert reader.post("/flags", data=by_reader).status_code == 403
        done = person.post("/flags?kind=passes_by_tolerance", data=body)
        assert done.status_code == 200
        assert "1 flag acknowledged" in done.text
        assert UNKNOWN in done.text  # named, because it could not be changed
        assert HOSTILE not in done.text
        # in the form that takes the change back; the list has only the other flag
        assert done.text.count(f'name="flag" value="{first}') == 1
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
        back = person.post("/flags", data={"flag": [first], "state": "open", **csrf})
        assert "1 flag reopened" in back.text
        both = {"flag": [first, second], "state": "resolved", "reason": "fixed", **csrf}
        person.post("/flags", data=both)
        assert "No open flags" in person.get("/flags").text
