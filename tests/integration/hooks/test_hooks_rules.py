"""Rules arrive over HTTP and from a file; changed paths come from GitHub."""

from __future__ import annotations

import json
import re
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr
from typer.testing import CliRunner

from api import Api, on_port, refusal
from github import TOKEN, GitHubServer
from gonogo import settings as configuration
from gonogo.ci.events import CommitEvent, from_ci
from gonogo.ci.rules import Rule
from gonogo.cli.app import app
from gonogo.errors import JobError
from gonogo_service.ci import processor
from gonogo_service.ci.github import client_of
from gonogo_service.ci.processor import changed_paths
from hook_payloads import BEFORE, NEXT, deliver, pull_request, push
from hook_service import RULE, SETTINGS, SMALL, came, store_rule, work
from suite_runs import SUITE

NO_SHAPE = {**SUITE, "entries": [{"test": {"shape": [0]}}]}
NO_KERNEL = {"test": {"kernel": "x", "shape": [1]}}
TEMPLATE = "such as kernels-{short}"


@pytest.mark.parametrize(
    ("changes", "field", "about"),
    [
        ({"suites": []}, "suites", ([], "a suite or a gauge")),
        ({"suites": ["nightly", "nightly"]}, "suites.1", ("nightly", "distinct suites")),
        ({"suites": ["no-such"]}, "suites.0", None),
        ({"suites": [NO_SHAPE]}, "suites.0.entries.0.test.shape.0", None),
        ({"events": ["issues"]}, "events.0", None),
        ({"repositories": []}, "repositories", None),
        ({"branches": ["a b"]}, "branches.0", None),
        ({"builds": {"head": "correct"}}, "builds.base", None),
        ({"builds": {"head": "tt-{commit}"}}, "builds.head", ("tt-{commit}", TEMPLATE)),
        ({"builds": {"head": "tt-{sha}", "base": "a b"}}, "builds.base", ("a b", TEMPLATE)),
        (
            {"register": {"executor": "emulator"}},
            "register.executor",
            ("emulator", "any other executor"),
        ),
        ({"builds": {}, "register": {"executor": "ttnn"}}, "register", None),
        ({"gauges": [NO_KERNEL]}, "gauges.0.test.kernel", None),
        ({"colour": "red"}, "colour", None),
    ],
)
def test_a_wrong_rule_names_its_field_its_value_and_what_is_allowed(
    shared: Api, changes: dict[str, Any], field: str, about: tuple[object, str] | None
) -> None:
    wrong = {**RULE, **changes}
    alone = shared.client.post("/api/v1/rules", json=wrong)
    assert refusal(alone) == (422, field)
    assert about in (None, (alone.json()["value"], alone.json()["limit"]))
    rules = {"rules": [{**RULE, "name": "fine"}, wrong]}
    file = shared.client.put("/api/v1/rules", json=rules)
    assert refusal(file) == (422, f"rules.1.{field}")
    assert "fine" not in {rule["name"] for rule in shared.get("/rules")["items"]}


def test_two_rules_of_a_file_have_two_names(shared: Api) -> None:
    answer = shared.client.put("/api/v1/rules", json={"rules": [RULE, RULE]}).json()
    assert (answer["field"], answer["value"]) == ("rules.1.name", RULE["name"])
    assert answer["detail"] == "rules.1.name: occurs twice (allowed: distinct names)"


def test_a_rules_file_is_all_the_rules_there_are(lite: Api) -> None:
    store_rule(lite, name="old")
    first, second = {**RULE, "name": "a"}, {**RULE, "name": "b"}
    changed = {**second, "enabled": False}
    for rules, stored, same, archived in (
        ([first, second], ["a", "b"], [], ["old"]),
        ([first, changed], ["b"], ["a"], []),
    ):
        answer = lite.client.put("/api/v1/rules", json={"rules": rules}).json()
        assert answer == {"stored": stored, "same": same, "archived": archived}
    listed = lite.get("/rules")["items"]
    assert [(rule["name"], rule["version"]) for rule in listed] == [("a", 1), ("b", 2)]
    assert not any("content" in rule for rule in listed)
    assert lite.client.delete("/api/v1/rules/a").status_code == 200
    assert lite.client.get("/api/v1/rules/a").status_code == 404
    (entry, *_) = lite.get("/audit?action=rules.replaced")["items"]
    assert entry["detail"] == {"stored": ["b"], "archived": []}


def test_the_command_stores_a_rules_file_and_lists_what_came(
    migrated_sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"rules": [{**RULE, "suites": [SMALL]}]}))

    def run(*words: str) -> str:
        return CliRunner().invoke(app, [*words], catch_exceptions=False).output

    with on_port(migrated_sqlite_url, **SETTINGS) as (client, _):
        monkeypatch.setenv("GONOGO_URL", str(client.base_url))
        configuration.load.cache_clear()
        deliver(client, "push", push(), delivery="over a socket")
        stored = run("rules", "push", str(file), "--json")
        listed = run("hooks", "list", "--json")
        assert "waiting" in run("hooks", "list")
        file.write_text("rules: [{name: x}]")
        with pytest.raises(JobError, match=r"rules\.0\.events"):
            run("rules", "push", str(file))
    assert json.loads(stored) == {"stored": ["kernels"], "same": [], "archived": []}
    (delivery,) = json.loads(listed)["items"]
    assert delivery["delivery"] == "over a socket"


def test_the_examples_of_the_document_are_taken(lite: Api) -> None:
    written = (Path(__file__).parents[3] / "docs/hooks.md").read_text()
    rules = yaml.safe_load(re.findall(r"```yaml[^\n]*\n(.*?)```", written, re.DOTALL)[0])
    assert lite.client.put("/api/v1/rules", json=rules).json()["stored"] == ["kernels"]
    event = from_ci(json.loads(re.findall(r"```json[^\n]*\n(.*?)```", written, re.DOTALL)[0]))
    assert isinstance(event, CommitEvent)
    assert Rule.parse(rules["rules"][0]).repositories == [event.repository]


def test_the_paths_of_a_pull_request_are_asked_for_where_a_rule_wants_them(
    lite: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_rule(lite, paths=["ttnn/**"])
    with closing(GitHubServer()) as github:
        token = {"github_url": github.url, "github_token": SecretStr(TOKEN)}
        client = client_of(lite.settings.model_copy(update=token))
        assert client is not None
        with closing(client):
            paths = partial(changed_paths, client)
            github.files, github.most = ["docs/a", "docs/b", "docs/c"], 2
            deliver(lite.client, "pull_request", pull_request())
            assert work(lite, paths=paths) == 0
            assert "none of the 3 changed paths" in came(lite)[0]["reason"]
            github.files.append("ttnn/layernorm.cpp")
            deliver(lite.client, "pull_request", pull_request(head=NEXT))
            assert work(lite, paths=paths) == 1
            monkeypatch.setattr(processor, "MAX_FILES", 4)  # GitHub lists no more: some may lack
            github.files[-1] = "docs/d"
            deliver(lite.client, "pull_request", pull_request(head=BEFORE))
            assert work(lite, paths=paths) == 1
    assert client_of(lite.settings) is None
