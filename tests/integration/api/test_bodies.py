"""Bodies of strangers: bounded in size and time, read as one JSON only, refused cheaply."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import ValidationError

import event_loop
from api import JOB, Api, in_process
from gonogo.spec.validation import MAX_ERRORS
from gonogo_service.ci.rules_api import RulesFile
from gonogo_service.jobs.bodies import JobIn
from gonogo_service.kit import problems
from gonogo_service.routers import routers
from gonogo_service.suites.bodies import SuiteIn
from patience import scaled

SECRET = "a secret of at least some length"
SIGNED = {
    "x-github-delivery": "1",
    "x-github-event": "push",
    "x-hub-signature-256": "sha256=" + "0" * 64,
    "content-type": "application/json",
}
ROUTES = [
    route
    for router in routers()
    for route in router.routes
    if isinstance(route, APIRoute) and route.body_field is not None
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service whose deadline for bodies is short."""
    url = f"sqlite:///{tmp_path_factory.mktemp('bodies')}/db"
    with in_process(url, github_webhook_secret=SECRET, body_deadline_s=scaled(0.05)) as service:
        yield service


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (json.dumps(JOB).encode("utf-16"), 400, "UTF-16"),
        (json.dumps(JOB).encode("utf-32-le"), 400, "UTF-32"),
        (b"\xef\xbb\xbf{}", 400, "byte order mark"),
        (b'{"a": "\xff"}', 400, "not UTF-8"),
        (b'{"build": 1, "build": 2}', 422, "'build' twice"),
        (b'{"a": [{"b": 1, "b": 1}], "pad": "' + b"x" * 5000 + b'"}', 422, "'b' twice"),
        (b"[" * 100_000, 400, "nested too deeply"),
    ],
)
def test_every_json_address_reads_one_text_in_one_way(
    api: Api, content: bytes, status: int, words: str
) -> None:
    assert len(ROUTES) > 20
    for route in ROUTES:
        path = route.path.replace("{name:path}", "x")
        for method in route.methods:
            headers = {"Content-Type": "application/json"}
            answer = api.client.request(method, path, content=content, headers=headers)
            assert (answer.status_code, words in answer.text) == (status, True), (path, answer.text)


class Sender:
    """Sends a request to the app part by part, as a server does."""

    def __init__(self, api: Api, path: str, headers: dict[str, str], *parts: Any) -> None:
        self.app, self.parts, self.read = api.client.app, list(parts), 0
        self.sent: list[dict[str, Any]] = []
        fields = {"host": "localhost", "transfer-encoding": "chunked", **headers}
        self.scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        }

    async def receive(self) -> Any:
        self.read += 1
        if not self.parts:
            await asyncio.Event().wait()
        return self.parts.pop(0)

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def answer(self) -> tuple[int, str, dict[str, str]]:
        """The status, the text and the headers of the answer."""
        await self.app(self.scope, self.receive, self.send)  # type: ignore[operator]
        head = {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}
        text = b"".join(message.get("body", b"") for message in self.sent[1:])
        return self.sent[0]["status"], text.decode(), head


def part(size: int, *, more: bool = True) -> dict[str, Any]:
    """A part of a body."""
    return {"type": "http.request", "body": b" " * size, "more_body": more}


GITHUB, CI = "/api/v1/hooks/github", "/api/v1/hooks/ci"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (GITHUB, {**SIGNED, "x-hub-signature-256": "sha256=00"}, 401),
        (GITHUB, {**SIGNED, "content-type": "text/plain"}, 415),
        (GITHUB, {name: SIGNED[name] for name in SIGNED if "signature" not in name}, 401),
        (CI, {"webhook-id": "1"}, 403),
        ("/api/v1/jobs", {"authorization": "Bearer gng_nothing"}, 401),
        ("/api/v1/jobs", {"content-encoding": "gzip"}, 415),
        ("/api/v1/imports", {"content-encoding": "zstd"}, 415),
    ],
)
def test_a_body_is_not_read_where_the_headers_refuse_it(
    api: Api, path: str, headers: dict[str, str], status: int
) -> None:
    sender = Sender(api, path, headers, part(1))
    got, _, head = event_loop.run(sender.answer())
    assert (got, sender.read, head["connection"]) == (status, 0, "close")


@pytest.mark.parametrize("path", [GITHUB, "/api/v1/jobs", "/api/v1/imports"])
@pytest.mark.parametrize(
    ("parts", "status", "words"),
    [
        ((part(1),), 408, "did not arrive in time"),
        ((part(1), {"type": "http.disconnect"}), 400, "the sender went away"),
        ((part(40 * 2**20),), 413, "too large"),
        ((part(20 * 2**20), part(20 * 2**20)), 413, "too large"),
    ],
    ids=["slow", "aborted", "large", "large in parts"],
)
def test_a_body_that_is_slow_aborted_or_large_is_refused_while_it_streams(
    api: Api, path: str, parts: Any, status: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    sender = Sender(api, path, SIGNED, *parts)
    got, text, head = event_loop.run(sender.answer())
    assert (got, words in text, head["connection"]) == (status, True, "close"), text
    assert "Traceback" not in "".join(capfd.readouterr())


def test_a_body_that_nobody_reads_ends_the_connection(api: Api) -> None:
    """Else its sender would hold the connection for ever, with a byte now and then."""
    answer = api.client.request("GET", "/healthz", content=b"x")
    assert (answer.status_code, answer.headers.get("connection")) == (200, "close")


MANY = 30_000
TEST, KERNEL = JOB["test"], {"kernel": "layernorm_bw", "shape": [4, 64]}
LONG: list[Any] = ["x"] * 5 * MANY


def members(value: object) -> dict[str, Any]:
    return {f"field{number}": value for number in range(MANY)}


HOSTILE_JOBS: list[dict[str, Any]] = [
    *({"seeds": LONG}, {"labels": members([])}, members([])),
    *({"context": {"name": "a", "before": before}} for before in (LONG, [{}] * 16)),
    *({"test": {**TEST, name: members([])}} for name in ("parameters", "tolerance", "inputs")),
    {"test": members(1)},
    {"test": {**KERNEL, **members(1)}},
    *({"test": {**KERNEL, "shape": shape}} for shape in (LONG, [1] * 5 * MANY)),
    {"test": {**KERNEL, "tolerance": members({"rtol": -1})}},
    {"test": {**KERNEL, "numerics": {"input": members("fp33")}}},
    {"test": {**KERNEL, "memory": {"sharded": LONG}}},
    {"test": {**KERNEL, "program": [1] * 5 * MANY}},
    {"test": {**KERNEL, "kernel": "layernorm" + "x" * 10**6}},
    {"test": {"selection": {"stages": LONG, "suite": "nightly"}}},
]
HOSTILE: list[tuple[Any, dict[str, Any]]] = [
    *((JobIn, {**JOB, **changes}) for changes in HOSTILE_JOBS),
    (RulesFile, {"rules": [{"suites": [{"entries": [1] * 100}] * 20}] * 200}),
    (RulesFile, {"rules": [{"repositories": [1] * 100, "branches": [1] * 100}] * 200}),
    (SuiteIn, {"name": "s", "entries": [{"matrix": {"shape": [["x"] * 10] * 500}}] * 500}),
]
MAX_CALLS = 20_000
"""Python calls that a refusal may make: some milliseconds."""


def calls(function: Callable[[], object]) -> int:
    """Return how many Python functions run, which no load of the machine changes."""
    count = 0

    def profile(_frame: object, event: str, _value: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(("model", "body"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_body_is_refused_briefly_and_with_little_work(
    model: Any, body: dict[str, Any]
) -> None:
    """It runs on the event loop, where nobody else is served meanwhile: 30,000 errors take 1 s."""

    def refuse() -> dict[str, Any]:
        with pytest.raises(ValidationError) as caught:
            model.model_validate(body)
        errors = caught.value.errors(include_url=False)
        assert 1 <= len(errors) <= 2 * MAX_ERRORS
        return problems.document(
            problems.invalid([{**error, "loc": ("body", *error["loc"])} for error in errors], model)
        )

    answer = refuse()
    assert len(answer["errors"]) <= 20
    assert len(json.dumps(answer)) < 20_000
    assert calls(refuse) < MAX_CALLS * (1 if model is JobIn else 2)
