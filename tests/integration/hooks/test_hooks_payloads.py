"""Every payload of npm's @octokit/webhooks-examples is accepted, and starts something or is ignored
with a reason; none fails."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

import pytest
from pydantic import SecretStr

import node_programs
from api import in_process
from gonogo.ci.events import GITHUB, CommitEvent, Ignored, Rerequest, from_github
from gonogo_service.ci import incoming
from gonogo_service.ci.model import IncomingDeliveryRow
from gonogo_service.ci.processor import process
from gonogo_service.kit.database.states import HookSource, IncomingState
from hook_payloads import SECRET, deliver
from servers import Missing
from suite_runs import SUITE

SMALL = {**SUITE, "name": "small", "entries": SUITE["entries"][:1]}
RULE = {
    "name": "everything",
    "events": list(GITHUB),
    "repositories": ["**"],
    "forks": True,
    "suites": [SMALL],
    "builds": {"head": "tt-train-2025", "base": "correct"},
}
HERE = "api.github.com"
Examples = dict[str, list[tuple[str, dict[str, Any]]]]
"""Events with payloads by server, without those that an earlier server sends as well."""


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    try:
        installed = node_programs.install(tmp_path_factory.mktemp("octokit"))
    except Missing as problem:
        pytest.skip(str(problem))
    by_server: Examples = defaultdict(list)
    seen: set[str] = set()
    files = (installed / "node_modules/@octokit/webhooks-examples").glob("*/index.json")
    for file in sorted(files):
        for event in json.loads(file.read_text()):
            for payload in event["examples"]:
                text = json.dumps([event["name"], payload], sort_keys=True)
                if text not in seen:
                    seen.add(text)
                    by_server[file.parent.name].append((event["name"], payload))
    return by_server


def test_every_example_is_understood(examples: Examples) -> None:
    assert len(examples[HERE]) > 300
    assert len(examples) > 1  # GitHub Enterprise Server sends others
    understood: Counter[str] = Counter()
    for name, payload in (example for server in examples.values() for example in server):
        event = from_github(name, payload)
        assert isinstance(event, CommitEvent | Rerequest | Ignored)
        if isinstance(event, CommitEvent):
            understood[name] += 1
    assert set(understood) == set(GITHUB)
    assert understood["pull_request"] >= 29


def test_every_example_is_taken_and_worked_off(
    migrated_sqlite_url: str, examples: Examples
) -> None:
    with in_process(migrated_sqlite_url, github_webhook_secret=SecretStr(SECRET)) as api:
        assert api.client.post("/api/v1/rules", json=RULE).status_code == 201
        # the endpoint sees only bytes, so one of each event is posted and the rest is stored
        for name, payload in dict(examples[HERE]).items():
            assert deliver(api.client, name, payload).status_code == 202, name
        posted = len(dict(examples[HERE]))
        states: Counter[IncomingState | None] = Counter()
        with api.context.session() as session:
            for number, (name, payload) in enumerate(examples[HERE]):
                body = json.dumps(payload).encode()
                incoming.store(session, HookSource.github, str(number), name, body)
            while due := session.scalars(IncomingDeliveryRow.due()).all():
                for row in due:
                    states[process(session, row.id, api.settings)] += 1
                session.flush()
        assert sum(states.values()) == posted + len(examples[HERE])
        assert set(states) == {IncomingState.started, IncomingState.ignored}
        assert states[IncomingState.started] >= 10
        ignored = api.get("/hooks/deliveries?state=ignored&limit=500")["items"]
        assert all(delivery["reason"] for delivery in ignored)
