"""Every noun of `Resource` by one table: lists, filters, CSV, scopes, audit and secrets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, inspect

import stored_jobs
from api import JOB, Api, in_process, refusal
from gonogo_service.kit import rows
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.resource import NEXT, Resource
from gonogo_service.models import MODELS
from gonogo_service.routers import routers
from suite_runs import SUITE

assert MODELS
assert routers()
NOUNS = {resource.noun.name: resource for resource in Resource.registered}
RULE = {"events": ["push"], "repositories": ["lab/x"], "suites": ["nightly"]}
BODIES: dict[str, list[dict[str, Any]]] = {
    "builds": [{"name": f"b{n}", "executor": "ttnn", "branch": "night"} for n in range(3)],
    "tokens": [{"name": f"ci-{n}", "scopes": ["read"]} for n in range(3)],
    "suites": [{**SUITE, "name": f"s{n}"} for n in range(3)],
    "runs": [{"suite": "nightly", "labels": {"n": str(n)}} for n in range(3)],
    "schedules": [{"name": f"n{n}", "suite": "nightly", "cron": "1 2 * * *"} for n in range(3)],
    "rules": [{**RULE, "name": f"r{n}"} for n in range(3)],
    "waivers": [{"names": [f"{n} *"], "reason": "moved"} for n in range(3)],
    "webhooks": [{"url": f"https://x.example/{n}", "events": ["*"]} for n in range(3)],
    "gauges": [{"test": JOB["test"], "seeds": {"count": n + 1}} for n in range(3)],
    "bisections": [{"test": JOB["test"], "builds": ["correct"] * (n + 3)} for n in range(3)],
}
"""Three things to make of each noun that is made over HTTP."""
CHANGES: dict[str, dict[str, Any]] = {
    "schedules": {"paused": True},
    "waivers": {"owner": "kim"},
    "webhooks": {"description": "for ci"},
    "flags": {"owner": "kim"},
}
BAD_CHANGES: dict[str, list[tuple[dict[str, Any], int, str]]] = {
    "flags": [
        ({"state": "gone"}, 422, "state"),
        ({"state": "reopened"}, 422, "state"),
        ({"kind": "flaky"}, 422, "kind"),
        ({"owner": ""}, 422, "owner"),
    ],
    "devices": [
        ({"reason": "x"}, 422, "body"),
        ({"health": "bad", "reason": "x"}, 422, "health"),
        ({"health": "good"}, 422, "reason"),
        ({"drained": True, "test": True, "reason": " "}, 422, "reason"),
        ({"reason": "x", "color": 1}, 422, "color"),
    ],
    "schedules": [({"cron": "* * *"}, 422, "cron")],
    "webhooks": [],
    "waivers": [
        ({"owner": "x", "version": 9}, 409, "version"),
        ({"expires": None, "owner": "x"}, 422, "expires"),
        ({"expires": "2020-01-01T00:00:00Z"}, 422, "expires"),
        ({"reason": " "}, 422, "reason"),
        ({"test": "v1-x"}, 422, "test"),
    ],
}


def until(noun: str) -> dict[str, str]:
    """Return the end that a body of BODIES lacks, where it must have one."""
    return {"expires": (utcnow() + timedelta(days=3)).isoformat()} if noun == "waivers" else {}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service with three of each noun, and the suite that some of them name."""
    url = f"sqlite:///{tmp_path_factory.mktemp('resources') / 'gonogo.sqlite'}"
    with in_process(url) as api:
        with api.context.session() as session:
            stored_jobs.device(session)
            stored_jobs.finished(session)  # and its flag
        assert api.client.post("/api/v1/suites", json=SUITE).status_code == 201
        for noun, bodies in BODIES.items():
            for body in bodies:
                answer = api.client.post(f"/api/v1/{noun}", json=body | until(noun))
                assert answer.status_code in (201, 202), answer.text
        yield api


def listed(api: Api, noun: str, **query: Any) -> list[dict[str, Any]]:
    """Return all items of a list, two at a time."""
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        page = api.get(NOUNS[noun].noun.address, params={"limit": 2, **query, **more})
        assert len(page["items"]) <= 2
        items += page["items"]
        cursor = page["next"]
        if cursor is None:
            return items


@pytest.mark.parametrize("noun", NOUNS)
def test_a_list_has_pages_in_one_order(api: Api, noun: str) -> None:
    resource = NOUNS[noun]
    items = listed(api, noun)
    keys = [item[resource.noun.key] for item in items]
    assert keys == sorted(set(keys), reverse=resource.by_id)
    assert len(keys) >= len(BODIES.get(noun, ()))
    refused = api.client.get(f"/api/v1{resource.noun.address}?cursor=nonsense")
    wrong = api.client.get(f"/api/v1{resource.noun.address}?limit=0")
    assert (wrong.status_code, wrong.json()["field"]) == (422, "limit")
    is_name = not resource.by_id and noun != "tolerances"  # a list by name goes on after any
    assert refused.status_code == (200 if is_name else 422)


@pytest.mark.parametrize("noun", NOUNS)
def test_a_filter_selects_and_an_unknown_one_is_refused(api: Api, noun: str) -> None:
    resource = NOUNS[noun]
    whole = listed(api, noun)
    for name in resource.noun.filters:
        values = {str(item[name]) for item in whole if isinstance(item.get(name), str)}
        for value in values:
            expected = [item for item in whole if item[name] == value]
            assert listed(api, noun, **{name: value}) == expected, name
        if resource.noun.kinds.get(name) is None:
            assert listed(api, noun, **{name: "nobody-has-this"}) == []
    answer = api.client.get(f"/api/v1{resource.noun.address}?colour=red")
    assert (answer.status_code, answer.json()["field"]) == (422, "colour")


@pytest.mark.parametrize("noun", NOUNS)
def test_a_list_as_csv_has_the_fields_of_its_items(api: Api, noun: str) -> None:
    resource = NOUNS[noun]
    query = {"format": "csv", "limit": 2}
    answer = api.client.get(f"/api/v1{resource.noun.address}", params=query)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    lines = list(csv.DictReader(io.StringIO(answer.text)))
    page = api.get(resource.noun.address, params={"limit": 2})
    assert [line[resource.noun.key] for line in lines] == [
        item[resource.noun.key] for item in page["items"]
    ]
    assert answer.headers.get(NEXT) == page["next"]
    assert not page["items"] or set(lines[0]) == set(page["items"][0])


@pytest.mark.parametrize("noun", NOUNS)
def test_a_long_list_takes_no_more_statements_than_a_short_one(api: Api, noun: str) -> None:
    statements: list[str] = []

    def note(*given: Any) -> None:
        statements.append(given[2])

    def count(limit: int) -> int:
        statements.clear()
        api.get(NOUNS[noun].noun.address, params={"limit": limit})
        return len(statements)

    event.listen(api.context.engine, "before_cursor_execute", note)
    # the least of some, because other threads of the service look at the database, too
    short, long = (min(count(limit) for _ in range(3)) for limit in (1, 3))
    event.remove(api.context.engine, "before_cursor_execute", note)
    assert short == long


@pytest.mark.parametrize("noun", NOUNS)
def test_one_is_shown_and_a_missing_one_is_named(api: Api, noun: str) -> None:
    resource = NOUNS[noun]
    address = f"/api/v1{resource.noun.address}"
    if not resource.has_one:
        return
    for item in listed(api, noun)[:2]:
        key = item[resource.noun.key]
        assert api.client.get(f"{address}/{key}").json()[resource.noun.key] == key
    answer = api.client.get(f"{address}/nobody-has-this")
    assert (answer.status_code, answer.json()["field"]) == (404, resource.noun.one)


@pytest.mark.parametrize("noun", NOUNS)
def test_a_noun_needs_its_scope(api: Api, noun: str) -> None:
    """A token with less is refused, and one with its scope is not."""
    resource = NOUNS[noun].noun
    order = ("read", "submit", "admin")
    visitor, address = api.visitor(), f"/api/v1{resource.address}"
    for scope in order:
        headers = api.token(scope, name=scope)
        may = order.index(scope) >= order.index(resource.scope)
        assert (visitor.get(address, headers=headers).status_code == 200) == may
        for method, verb in (("PATCH", resource.change), ("DELETE", resource.remove)):
            if verb is not None:
                body = {"json": CHANGES.get(noun, {})} if method == "PATCH" else {}
                path = f"{address}/nobody-has-this"
                code = visitor.request(method, path, headers=headers, **body).status_code
                assert code == (404 if order.index(scope) >= order.index(verb.scope) else 403)


@pytest.mark.parametrize("noun", BAD_CHANGES)
def test_a_wrong_change_is_named_and_changes_nothing(api: Api, noun: str) -> None:
    item = api.get(f"/{noun}")["items"][0]
    for body, status, field in ({}, 422, "body"), *BAD_CHANGES[noun]:
        answer = api.client.patch(f"/api/v1/{noun}/{item['id']}", json=body)
        assert refusal(answer) == (status, field), body
    assert api.get(f"/{noun}")["items"][0] == item


@pytest.mark.parametrize("noun", [name for name in BODIES if NOUNS.get(name) and name != "runs"])
def test_each_change_is_audited_once(api: Api, noun: str) -> None:
    resource = NOUNS[noun].noun
    address = f"/api/v1{resource.address}"
    item = listed(api, noun)[0]
    if noun in ("builds", "suites"):  # not a built-in build, and not the suite that others name
        item = next(one for one in listed(api, noun) if one["name"] in ("b0", "s0"))
    key = item[resource.key]

    def entries() -> list[str]:
        return [entry["action"] for entry in api.get("/audit", params={"subject": key})["items"]]

    if resource.create is not None:
        assert entries() == [f"{resource.one}.{resource.create.done}"]
    before = len(entries())
    if resource.change is not None:
        for _ in range(2):
            changed = api.client.patch(f"{address}/{key}", json=CHANGES[noun])
            assert changed.status_code == 200, changed.text
            for field, value in CHANGES[noun].items():
                assert changed.json()[field] == value
        assert entries()[:-before] == [f"{resource.one}.{resource.change.done}"]
    if resource.remove is not None:
        before = len(entries())
        for _ in range(2):
            removed = api.client.delete(f"{address}/{key}")
            assert removed.status_code in (200, 404)
        assert entries()[:-before] == [f"{resource.one}.{resource.remove.done}"]


# not webhooks: the answer has the secret, which is stored for nobody who repeats the request
@pytest.mark.parametrize(
    "noun", [name for name in BODIES if NOUNS[name].noun.create and name != "webhooks"]
)
def test_a_repeated_request_makes_one(api: Api, noun: str) -> None:
    body = BODIES[noun][2] | until(noun)
    body |= {"name": "once"} if "name" in body else {}
    key = {"Idempotency-Key": f"once-{noun}"}
    before = len(listed(api, noun))
    answers = [api.client.post(f"/api/v1/{noun}", json=body, headers=key) for _ in range(2)]
    assert {answer.status_code for answer in answers} <= {201, 202}
    assert answers[0].json() == answers[1].json()
    assert len(listed(api, noun)) == before + 1
    assert answers[0].headers["location"] == answers[1].headers["location"]


def test_no_answer_has_a_secret_column() -> None:
    hidden = {mapper.class_: rows.secrets_of(mapper.class_) for mapper in Base.registry.mappers}
    for table, names in hidden.items():
        assert not names & set(rows.answer_of(table).model_fields), table
        suspicious = {"secret", "hash", "csrf", "password", "token"}
        assert suspicious & {column.key for column in inspect(table).column_attrs} <= names, table
    by_name = {table.__name__.removesuffix("Row"): names for table, names in hidden.items()}
    for model in rows.Answer.__subclasses__():
        assert not by_name.get(model.__name__, frozenset()) & set(model.model_fields), model
    for resource in Resource.registered:
        for answer in (resource.answer, resource.line):
            assert not hidden[resource.row] & set(answer.model_fields), resource.noun.name


CHECKED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gauges": (BODIES["gauges"][0], {"seeds": {"count": 10**6}}),
    "bisections": (BODIES["bisections"][0], {"builds": ["correct"]}),
    "webhooks": (BODIES["webhooks"][0], {"events": ["nonsense"]}),
    "waivers": (BODIES["waivers"][0], {"reason": ""}),
    "rules": ({**RULE, "name": "checked"}, {"events": ["nonsense"]}),
    "schedules": ({**BODIES["schedules"][0], "name": "checked"}, {"cron": "x"}),
}


@pytest.mark.parametrize("noun", CHECKED)
def test_a_check_refuses_what_the_request_refuses_and_leaves_nothing(api: Api, noun: str) -> None:
    body, wrong = CHECKED[noun]
    body = body | until(noun)
    before = api.rows()
    checked = api.client.post(f"/api/v1/{noun}:validate", json=body)
    assert (checked.status_code, checked.json()) == (200, {"valid": True}), checked.text
    refusals = [
        api.client.post(f"/api/v1/{path}", json=body | wrong) for path in (f"{noun}:validate", noun)
    ]
    assert [refusal.status_code for refusal in refusals] == [422, 422]
    assert refusals[0].json()["errors"] == refusals[1].json()["errors"]
    assert api.rows() == before
    assert api.client.post(f"/api/v1/{noun}", json=body).status_code in (201, 202)
