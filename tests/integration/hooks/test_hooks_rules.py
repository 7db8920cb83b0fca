"""Rules arrive over HTTP and from a file; missed deliveries and the changed paths of pull requests
are fetched from GitHub."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
import yaml
from pydantic import SecretStr
from typer.testing import CliRunner

import gonogo_settings as configuration
from api import Api, on_port
from github import APP, TOKEN, Scripted
from github import REPOSITORY as AT_GITHUB
from github_hooks import HookedGitHub
from gonogo.ci.events import CommitEvent, from_ci
from gonogo.ci.rules import Rule
from gonogo.errors import InfrastructureError, JobError
from gonogo_cli.app import app
from gonogo_service.hooks import catch_up
from gonogo_storage.db.encoding import utcnow
from hook_payloads import HEAD, NEXT, deliver, pull_request, push
from hook_service import RULE, SETTINGS, SMALL, came, copied, emptied, store_rule, work
from suite_runs import SUITE


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Api]:
    with copied(sqlite_template, tmp_path_factory.mktemp("hooks")) as service:
        yield service


@pytest.fixture
def lite(shared: Api) -> Api:
    return emptied(shared)


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
    assert Rule.of(rules["rules"][0]).repositories == (event.repository,)


@pytest.fixture(scope="module")
def hooked() -> Iterator[HookedGitHub]:
    server = HookedGitHub()
    yield server
    server.close()


@pytest.fixture
def at_github(hooked: HookedGitHub) -> HookedGitHub:
    hooked.clear()
    return hooked


def caught_up(*options: str) -> dict[str, Any]:
    """Run the command that fetches missed deliveries; return its JSON output."""
    configuration.load.cache_clear()
    result = CliRunner().invoke(
        app, ["hooks", "catch-up", "--json", *options], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.output))


@pytest.mark.parametrize("speaker", ["token", "app"])
def test_catch_up_fetches_what_was_missed_and_nothing_twice(
    lite: Api, at_github: HookedGitHub, monkeypatch: pytest.MonkeyPatch, speaker: str
) -> None:
    store_rule(lite, repositories=[AT_GITHUB])
    deliver(lite.client, "push", push(), delivery="d-2")
    now = utcnow()
    old, recent = now - timedelta(days=5), now - timedelta(hours=1)
    at_github.send("d-0", "push", push(after="e5" * 20), old)
    at_github.send("d-1", "push", push(before=HEAD, after=NEXT), recent)
    at_github.send("d-2", "push", push(), recent)
    at_github.send("d-3", "issues", {"action": "opened"}, recent)
    at_github.send("d-4", "pull_request", pull_request(), recent)
    at_github.send("d-4", "pull_request", pull_request(), now)  # GitHub tried it twice
    at_github.send("d-5", "push", None, now)  # too large for GitHub to show it
    at_github.most = 2
    who = {"DATABASE_URL": str(lite.settings.database_url), "GITHUB_URL": at_github.url}
    who |= (
        {"GITHUB_TOKEN": TOKEN}
        if speaker == "token"
        else {"GITHUB_APP_ID": APP, "GITHUB_APP_KEY": at_github.pem}
    )
    for name, value in who.items():
        monkeypatch.setenv(f"GONOGO_{name}", value)
    options = ["--app"] if speaker == "app" else []
    below = "/app/hook" if speaker == "app" else f"/repos/{AT_GITHUB}/hooks/12"
    at_github.script = [Scripted(403, {"retry-after": "40"})]
    waits: list[float] = []
    with time_machine.travel(now, tick=False) as clock:

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            clock.shift(seconds)

        monkeypatch.setattr("time.sleep", sleep)
        first = caught_up(*options)
    assert first == {
        "repositories": ["app/hook" if options else AT_GITHUB],
        "hooks": 1,
        "seen": 4,
        "known": 1,
        "fetched": 2,
        "sent_again": 1,
    }
    assert waits == [40]
    assert at_github.again == [7]
    assert f"{below}/deliveries/7/attempts" in at_github.paths("POST")
    cursors = [
        request.query.get("cursor")
        for request in at_github.requests
        if request.path == f"{below}/deliveries"
    ]
    # the old delivery on the last page shows that no page follows
    assert cursors[-4:] == [None, "v1_2", "v1_4", "v1_6"]
    second = caught_up(*options)
    assert (second["known"], second["fetched"]) == (3, 0)
    assert {delivery["delivery"] for delivery in came(lite)} == {"d-1", "d-2", "d-4"}
    assert work(lite, clock=lambda: utcnow() + timedelta(minutes=1)) == 3
    assert caught_up("--send-again", *options)["sent_again"] == 1
    if speaker == "app":
        # the App itself asks, with a JSON web token
        assert all(
            request.headers["authorization"].count(".") == 2 for request in at_github.requests
        )


def test_catch_up_says_until_when_a_limit_lasts_that_is_too_long_to_wait_for(
    lite: Api, at_github: HookedGitHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_github.send("d-1", "push", push(), utcnow())
    at_github.script = [Scripted(429, {"retry-after": "600"})]
    for name, value in {
        "DATABASE_URL": str(lite.settings.database_url),
        "GITHUB_URL": at_github.url,
        "GITHUB_TOKEN": TOKEN,
    }.items():
        monkeypatch.setenv(f"GONOGO_{name}", value)
    configuration.load.cache_clear()
    with pytest.raises(InfrastructureError, match=r"429.*0 deliveries were fetched"):
        CliRunner().invoke(
            app, ["hooks", "catch-up", "--repository", AT_GITHUB], catch_exceptions=False
        )
    assert len(at_github.requests) == 1
    with pytest.raises(JobError, match="GONOGO_GITHUB_APP_ID"):
        CliRunner().invoke(app, ["hooks", "catch-up", "--app"], catch_exceptions=False)


def test_the_paths_of_a_pull_request_are_asked_for_where_a_rule_wants_them(
    lite: Api, at_github: HookedGitHub
) -> None:
    store_rule(lite, paths=["ttnn/**"])
    token = {"github_url": at_github.url, "github_token": SecretStr(TOKEN)}
    client = catch_up.client_of(lite.settings.model_copy(update=token))
    assert client is not None
    paths = catch_up.Paths(client)
    at_github.files, at_github.most = ["docs/a", "docs/b", "docs/c"], 2
    deliver(lite.client, "pull_request", pull_request())
    assert work(lite, paths=paths) == 0
    assert "none of the 3 changed paths" in came(lite)[0]["reason"]
    at_github.files.append("ttnn/layernorm.cpp")
    deliver(lite.client, "pull_request", pull_request(head=NEXT), delivery=str(uuid.uuid4()))
    assert work(lite, paths=paths) == 1
    paths.close()
    assert catch_up.client_of(lite.settings) is None
