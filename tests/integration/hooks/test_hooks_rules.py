"""Rules arrive over HTTP and from a file; changed paths come from GitHub."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr
from typer.testing import CliRunner

from api import Api, on_port
from github import TOKEN, GitHubServer
from gonogo import settings as configuration
from gonogo.ci.events import CommitEvent, from_ci
from gonogo.ci.rules import Rule
from gonogo.cli.app import app
from gonogo.errors import JobError
from gonogo_service.ci.github import client_of
from gonogo_service.ci.processor import changed_paths
from hook_payloads import NEXT, deliver, pull_request, push
from hook_service import RULE, SETTINGS, SMALL, came, store_rule, work
from suite_runs import SUITE


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"suites": []}, "suites"),
        ({"suites": ["nightly", "nightly"]}, "suites.1"),
        ({"suites": ["no-such"]}, "suites.0"),
        (
            {"suites": [{**SUITE, "entries": [{"test": {"shape": [0]}}]}]},
            "suites.0.entries.0.test.shape.0",
        ),
        ({"events": ["issues"]}, "events.0"),
        ({"repositories": []}, "repositories"),
        ({"branches": ["a b"]}, "branches.0"),
        ({"builds": {"head": "correct"}}, "builds.base"),
        ({"builds": {"head": "{commit}"}}, "builds.head"),
        ({"register": {"executor": "emulator"}}, "register.executor"),
        ({"builds": {}, "register": {"executor": "ttnn"}}, "register"),
        ({"gauges": [{"test": {"kernel": "x", "shape": [1]}}]}, "gauges.0.test.kernel"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_rule_names_its_field(shared: Api, changes: dict[str, Any], field: str) -> None:
    alone = shared.client.post("/api/v1/rules", json={**RULE, **changes})
    assert (alone.status_code, alone.json()["field"]) == (422, field)
    file = shared.client.put(
        "/api/v1/rules", json={"rules": [{**RULE, "name": "fine"}, {**RULE, **changes}]}
    )
    assert (file.status_code, file.json()["field"]) == (422, f"rules.1.{field}")
    assert not {rule["name"] for rule in shared.get("/rules")["items"]} & {"fine"}


@pytest.mark.parametrize(
    ("changes", "value", "allowed"),
    [
        ({"builds": {"head": "tt-{commit}"}}, "tt-{commit}", "such as kernels-{short}"),
        ({"builds": {"head": "tt-{sha}", "base": "a b"}}, "a b", "such as kernels-{short}"),
        ({"suites": ["nightly", "nightly"]}, "nightly", "distinct suites"),
        ({"suites": []}, [], "a suite or a gauge"),
        ({"register": {"executor": "emulator"}}, "emulator", "any other executor"),
    ],
)
def test_a_wrong_rule_names_the_value_and_what_is_allowed(
    shared: Api, changes: dict[str, Any], value: object, allowed: str
) -> None:
    answer = shared.client.post("/api/v1/rules", json={**RULE, **changes}).json()
    assert (answer["value"], answer["limit"]) == (value, allowed)


def test_two_rules_of_a_file_have_two_names(shared: Api) -> None:
    answer = shared.client.put("/api/v1/rules", json={"rules": [RULE, RULE]}).json()
    assert (answer["field"], answer["value"]) == ("rules.1.name", RULE["name"])
    assert answer["detail"] == "rules.1.name: occurs twice (allowed: distinct names)"


def test_a_rules_file_is_all_the_rules_there_are(lite: Api) -> None:
    store_rule(lite, name="old")
    first, second = {**RULE, "name": "a"}, {**RULE, "name": "b"}
    answer = lite.client.put("/api/v1/rules", json={"rules": [first, second]}).json()
    assert answer == {"stored": ["a", "b"], "same": [], "archived": ["old"]}
    answer = lite.client.put(
        "/api/v1/rules", json={"rules": [first, {**second, "enabled": False}]}
    ).json()
    assert answer == {"stored": ["b"], "same": ["a"], "archived": []}
    assert not any("content" in rule for rule in lite.get("/rules")["items"])
    assert [(rule["name"], rule["version"]) for rule in lite.get("/rules")["items"]] == [
        ("a", 1),
        ("b", 2),
    ]
    assert lite.client.delete("/api/v1/rules/a").status_code == 200
    assert lite.client.get("/api/v1/rules/a").status_code == 404
    assert lite.get("/audit?action=rules.replaced")["items"][0]["detail"] == {
        "stored": ["b"],
        "archived": [],
    }


def test_the_command_stores_a_rules_file_and_lists_what_came(
    migrated_sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"rules": [{**RULE, "suites": [SMALL]}]}))
    with on_port(migrated_sqlite_url, **SETTINGS) as (client, _):
        monkeypatch.setenv("GONOGO_URL", str(client.base_url))
        configuration.load.cache_clear()
        deliver(client, "push", push(), delivery="over a socket")
        stored = CliRunner().invoke(
            app, ["rules", "push", str(file), "--json"], catch_exceptions=False
        )
        listed = CliRunner().invoke(app, ["hooks", "list", "--json"], catch_exceptions=False)
        shown = CliRunner().invoke(app, ["hooks", "list"], catch_exceptions=False)
        file.write_text("rules: [{name: x}]")
        with pytest.raises(JobError, match=r"rules\.0\.events"):
            CliRunner().invoke(app, ["rules", "push", str(file)], catch_exceptions=False)
    assert json.loads(stored.output) == {"stored": ["kernels"], "same": [], "archived": []}
    assert [delivery["delivery"] for delivery in json.loads(listed.output)["items"]] == [
        "over a socket"
    ]
    assert "waiting" in shown.output


def test_the_examples_of_the_document_are_taken(lite: Api) -> None:
    written = (Path(__file__).parents[3] / "docs/hooks.md").read_text()
    rules = yaml.safe_load(re.findall(r"```yaml[^\n]*\n(.*?)```", written, re.DOTALL)[0])
    assert lite.client.put("/api/v1/rules", json=rules).json()["stored"] == ["kernels"]
    event = from_ci(json.loads(re.findall(r"```json[^\n]*\n(.*?)```", written, re.DOTALL)[0]))
    assert isinstance(event, CommitEvent)
    assert Rule.parse(rules["rules"][0]).repositories == [event.repository]


@pytest.fixture(scope="module")
def hooked() -> Iterator[GitHubServer]:
    server = GitHubServer()
    yield server
    server.close()


@pytest.fixture
def at_github(hooked: GitHubServer) -> GitHubServer:
    hooked.clear()
    return hooked


def test_the_paths_of_a_pull_request_are_asked_for_where_a_rule_wants_them(
    lite: Api, at_github: GitHubServer
) -> None:
    store_rule(lite, paths=["ttnn/**"])
    token = {"github_url": at_github.url, "github_token": SecretStr(TOKEN)}
    client = client_of(lite.settings.model_copy(update=token))
    assert client is not None
    paths = partial(changed_paths, client)
    at_github.files, at_github.most = ["docs/a", "docs/b", "docs/c"], 2
    deliver(lite.client, "pull_request", pull_request())
    assert work(lite, paths=paths) == 0
    assert "none of the 3 changed paths" in came(lite)[0]["reason"]
    at_github.files.append("ttnn/layernorm.cpp")
    deliver(lite.client, "pull_request", pull_request(head=NEXT), delivery=str(uuid.uuid4()))
    assert work(lite, paths=paths) == 1
    client.close()
    assert client_of(lite.settings) is None
