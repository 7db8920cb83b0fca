"""Bad input: each wrong request stores nothing and gets a problem document.

The document names the field, the value and the limit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from fastapi.routing import APIRoute

from api import JOB, Api, refusal
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.routers import routers
from suite_runs import SUITE

TEST = JOB["test"]
LAST_SEED = 2**53 - 1
SETTINGS = {
    "max_elements": 10_000,
    "max_seeds": 1000,
    "max_body_bytes": 4096,
    "executors": "mine=my.module:Factory",
    "max_gauge_runs": 500,
}
HEADERS = {"Content-Type": "application/json"}


SELECTED: dict[str, Any] = {
    "test": {"selection": {"suite": "nightly"}},
    "target": {"executor": "pytest"},
    "build": "main",
}


def before(test: dict[str, Any]) -> dict[str, Any]:
    """A job behind another test."""
    return {"context": {"name": "x", "before": [test]}}


def sequential(**seeds: Any) -> dict[str, Any]:
    return {"seeds": {"policy": "sequential", **seeds}}


def selected(**selection: Any) -> dict[str, Any]:
    return {**SELECTED, "test": {"selection": selection}}


Rows = list[tuple[dict[str, Any], str, str]]
"""Rows of what makes a body bad, the field that is refused, a phrase of the detail or the limit."""
SOON = timestamp(utcnow() + timedelta(days=3))
WAIVER = {"names": ["x *"], "reason": "known", "owner": "kim", "expires": SOON}
BUILD = {"name": "v0.60", "executor": "ttnn", "branch": "main", "outputs": ["dx"]}
SCHEDULE = {"name": "n", "suite": "nightly", "cron": "30 2 * * *", "timezone": "UTC"}
PLUGGED = {"target": {"executor": "mine"}}
SHARDED = {"test": {"memory": {"sharded": [8, 0]}}}
TTNN = {"target": {"executor": "ttnn"}, "builds": ["ttnn"]}
ENTRY = {"test": {"shape": [1, 2]}}
BAD_SUITES: Rows = [
    ({"entries": [*SUITE["entries"], {"test": {"shape": [0]}}]}, "entries.2.test.shape.0", ""),
    ({"entries": [{"test": {"shape": [50000, 5000]}}]}, "entries.0.test.shape", ""),
    ({"entries": [{"matrix": {"shape": [[1, 2], [3, 0]]}}]}, "entries.0.matrix.shape.1.1", ""),
    ({"entries": [{**ENTRY, "build": "correct"}]}, "entries.0.build", ""),
    ({"entries": [{**ENTRY, "seeds": {"count": 0}}]}, "entries.0.seeds.count", ""),
    ({"defaults": {"seeds": {"count": 1}}}, "entries.0.test.kernel", ""),
    ({"defaults": {"test": TEST}, "entries": [ENTRY]}, "entries.0.seeds", ""),
    ({"entries": []}, "entries", ""),
    ({"name": "no good"}, "name", ""),
    ({"defaults": {"test": {"kernl": "x"}}}, "defaults.test.kernl", "did you mean 'kernel'"),
    ({"defaults": SHARDED}, "defaults.test.memory.sharded.1", ">= 1"),
    ({"defaults": {"test": {"epsilon": None}}}, "defaults.test.epsilon", "> 0"),
    ({"defaults": {"test": {"selection": {"suit": 1}}}}, "defaults.test.selection.suit", "did you"),
]
BAD_JOBS: Rows = [
    ({"colour": "red"}, "colour", "unknown field"),
    ({"colour": "red"}, "colour", "one of target, context, priority,"),
    ({"test": {**TEST, "colour": "red"}}, "test.colour", "one of kernel, shape,"),
    ({"test": {**TEST, "kernel": "softmx"}}, "test.kernel", "layernorm_fw, layernorm_bw"),
    ({"test": {"kernel": "layernorm_bw"}}, "test.shape", "required"),
    ({"test": {**TEST, "shape": [32, 0]}}, "test.shape.1", ">= 1"),
    ({"test": {**TEST, "shape": [2, 3, "x", 5]}}, "test.shape.2", ">= 1"),
    ({"test": {**TEST, "memory": {"sharded": [1, 99]}}}, "test.memory.sharded.1", "<= 64"),
    ({"test": {**TEST, "shape": [1000, 11]}}, "test.shape", "10000 elements (GONOGO_MAX_ELEMENTS)"),
    ({"test": {**TEST, "shape": [2**60, 2**60]}}, "test.shape", ""),
    ({"test": {**TEST, "tolerance": {"rtol": -1e-3, "atol": 0.5}}}, "test.tolerance.rtol", ">= 0"),
    ({"test": {**TEST, "tolerance": {"rtol": "x"}}}, "test.tolerance.rtol", "number"),
    ({"test": {**TEST, "epsilon": 0}}, "test.epsilon", "> 0"),
    ({"test": {**TEST, "numerics": {"input": "int8"}}}, "test.numerics.input", "bf16"),
    ({"test": None}, "test", "must be an object"),
    ({"build": "tt-train-1999"}, "build", "tt-train-2025"),
    ({"build": ""}, "build", ""),
    ({"build": "rm -rf /"}, "build", "pattern"),
    ({"build": 7}, "build", "must be text"),
    ({"target": {"executor": "abacus"}}, "target.executor", "emulator"),
    ({"target": {"executor": "ttnn"}}, "target.executor", "emulator"),
    ({"target": {"executor": "import"}}, "target.executor", "another executor"),
    ({"target": {"board": "../../etc"}}, "target.board", "pattern"),
    ({"target": {"arch": "wormhol"}}, "target.arch", "did you mean 'wormhole'?"),
    ({"target": {"arch": "x86"}}, "target.arch", "one of blackhole, wormhole; another name is"),
    ({"target": {"board": "n105"}}, "target.board", "did you mean 'n150'?"),
    ({"target": {"board": "p150b"}}, "target.board", "chips of blackhole, not of wormhole"),
    ({"target": {"chip": "x"}}, "target.chip", "one of executor, arch, board"),
    ({"target": {"executor": "ttnn"}, "build": "v0.60"}, "build", "registered for ttnn"),
    ({"seeds": {"start": 0, "count": 0}}, "seeds.count", ">= 1"),
    ({"seeds": {"start": -1, "count": 1}}, "seeds.start", ">= 0"),
    ({"seeds": {"count": 1, "step": 2}}, "seeds.step", "one of start, count"),
    ({"seeds": {"start": 0, "count": 1001}}, "seeds.count", "1000 (GONOGO_MAX_SEEDS)"),
    ({"seeds": {"start": 0, "count": 501}, "repeats": 2}, "seeds.count", "1000 (GONOGO_MAX_SEEDS)"),
    ({"seeds": {"start": LAST_SEED, "count": 2}}, "seeds", str(LAST_SEED)),
    ({"seeds": [1, 5, 9, 5]}, "seeds.3", "twice"),
    ({"seeds": [1, 5, 9, 5], "repeats": 0}, "repeats", ">= 1"),
    ({"seeds": []}, "seeds", "at least 1"),
    ({"seeds": [2**53]}, "seeds.0", str(LAST_SEED)),
    ({"seeds": [1.5]}, "seeds.0", "integer"),
    ({"seeds": [True]}, "seeds.0", "integer"),
    ({"seeds": "all"}, "seeds", "object"),
    ({"seeds": {"count": "4"}}, "seeds.count", "integer"),
    ({"repeats": 0}, "repeats", ">= 1"),
    ({"priority": 10}, "priority", "<= 9"),
    ({"priority": -1}, "priority", ">= 0"),
    ({"queue_deadline_s": 0}, "queue_deadline_s", ">= 1"),
    ({"queue_deadline_s": 1e300}, "queue_deadline_s", "<="),
    ({"context": "grouped"}, "context", "name and before"),
    ({"context": {"name": "x", "before": [], "after": 1}}, "context.before", "1 to 16 items"),
    ({"labels": {"a b": "c"}}, "labels.a b", "pattern"),
    ({"labels": {"a": 1}}, "labels.a", "text"),
    ({"labels": {f"l{n}": "x" for n in range(33)}}, "labels", "at most 32"),
    ({"labels": {"a": "x" * 201}}, "labels.a", "at most 200"),
    ({"commit": {"repository": "org/name", "sha": "HEAD"}}, "commit.sha", "pattern"),
    ({"reference": "other"}, "reference", "object"),
    ({"reference": {}}, "reference.build", "required"),
    ({"reference": {"build": "tt-train-2026"}}, "reference.build", "tt-train-2025"),
    ({"reference": {"build": "torch-eager"}}, "reference.build", "emulator"),
    ({"reference": {"build": "half-groups"}}, "reference.build", "only of groupnorm_fw"),
    ({"build": "group-boundaries"}, "build", "one of correct, last-two-tiles, double-subtract"),
    ({"build": "mean-last-tile-missing"}, "build", "is not a build of layernorm_bw"),
    ({"build": "tt-train-2O25"}, "build", "did you mean 'tt-train-2025'?"),
    ({"reference": {"build": "correct", "command": "rm"}}, "reference.command", "unknown field"),
    ({"labels": {"a": "nul\0"}}, "labels.a", "NUL"),
    (before({"kernel": "softmx", "shape": [1]}), "context.before.0.kernel", "layernorm_fw"),
    (before({"selection": {}}), "context.before.0.selection", ""),
    ({"context": {"name": "x", "before": [TEST], "after": 1}}, "context.after", "name, before"),
    (sequential(), "seeds.max", "required"),
    (sequential(max=0), "seeds.max", ">= 1"),
    (sequential(max=10**15), "seeds.max", "1000 (GONOGO_MAX_SEEDS)"),
    (sequential(max=2, start=LAST_SEED), "seeds", f"<= {LAST_SEED}"),
    (sequential(max=5, count=5), "seeds.count", "one of policy, max, start, stop_on_finding"),
    ({"seeds": {"policy": "bayes", "max": 5}}, "seeds.policy", "sequential"),
    (sequential(max=9) | {"reference": {"build": "correct"}}, "reference.build", "range of seeds"),
    ({**SELECTED, "target": {"executor": "emulator"}, "build": "correct"}, "test.selection", ""),
    ({"target": SELECTED["target"]}, "test.kernel", ""),
    (selected(stages=["api"], filter="x"), "test.selection.stages", ""),
    (selected(filters="A.*"), "test.selection.filters", ""),
    (selected(filter=""), "test.selection.filter", ""),
    (selected(shuffle=-1), "test.selection.shuffle", ""),
    (selected() | {"test": {"selection": {}, "kernel": "layernorm_bw"}}, "test.kernel", ""),
    ({**SELECTED, "build": "not-registered"}, "build", ""),
    ({**SELECTED, "repeats": 2}, "repeats", "use shuffle"),
    ({**SELECTED, "reference": {"build": "other"}}, "reference.build", "with another build"),
    ({**SELECTED, "context": {"name": "x", "before": [TEST]}}, "context", "suite with `order`"),
]
BAD_GAUGES: Rows = [
    ({"test": {"selection": {"suite": "x"}}}, "test.selection", "kernel"),
    ({"test": {**TEST, "shape": [2**14, 2**13]}}, "test.shape", "GONOGO_MAX_ELEMENTS"),
    ({"test": {**TEST, "kernel": "softmx"}}, "test.kernel", "layernorm_bw"),
    ({"seeds": {"count": 21}}, "seeds.count", "GONOGO_MAX_GAUGE_RUNS"),
    ({"seeds": {"count": 10**15}}, "seeds.count", "500"),
    ({"seeds": {"start": LAST_SEED, "count": 2}}, "seeds", str(LAST_SEED)),
    ({"seeds": [1, 2]}, "seeds", ""),
    ({"builds": ["correct"]}, "builds.0", "executor"),
    (PLUGGED | {"builds": ["a"], "wrong_builds": ["b", "a"]}, "wrong_builds.1", "twice"),
    ({"target": {"executor": "nobody"}, "builds": ["a"]}, "target.executor", "mine"),
    (TTNN | {"wrong_builds": ["ttnn-legacy"]}, "wrong_builds.0", "no output of layernorm_bw"),
    ({"branch": ""}, "branch", ""),
    ({"sharp": True}, "sharp", ""),
    ({"gates": ["ulp-1", "kernelbnch"]}, "gates.1", "did you mean 'kernelbench'?"),
]
BAD_BISECTIONS: Rows = [
    ({"builds": ["correct"]}, "builds", ""),
    ({"builds": ["correct", "no-such-build"]}, "builds.1", ""),
    ({"builds": ["correct", "group-boundaries"]}, "builds.1", ""),
    ({"builds": None, "branch": "emulator", "last": "half-groups"}, "last", ""),
    ({"builds": None}, "builds", ""),
    ({"branch": "emulator"}, "branch", ""),
    ({"builds": None, "branch": "nowhere"}, "branch", ""),
    ({"builds": None, "branch": "emulator", "last": "nobody"}, "last", ""),
    ({"signal": "colour"}, "signal", ""),
    ({"max_runs": 1}, "max_runs", ""),
    ({"test": {"kernel": "layernorm_bw", "shape": [0]}}, "test.shape.0", ""),
]
BAD_RUNS: Rows = [
    *(({"suite": {**SUITE, **wrong}}, f"suite.{at}", phrase) for wrong, at, phrase in BAD_SUITES),
    ({"builds": ["correct", "no-such"]}, "builds.1", ""),
    ({"suite": {**SUITE, "builds": ["no-such"]}}, "suite.builds.0", ""),
    # a build of another kernel would run as `correct`, and be green
    ({"builds": ["correct", "group-boundaries"]}, "builds.1", ""),
    ({"suite": {**SUITE, "builds": []}}, "builds", ""),
    ({"suite": "nigtly"}, "suite", "did you mean 'nightly'"),
    ({"suite": {**SUITE, "file": {"path": "a.yaml", "text": "name: nightly"}}}, "suite.file", ""),
]
BAD_SCHEDULES: Rows = [
    ({"cron": "nightly"}, "cron", ""),
    ({"timezone": "Mars/Olympus"}, "timezone", ""),
    ({"suite": "other"}, "suite", ""),
    ({"overlap": "queue"}, "overlap", ""),
]
BAD_WAIVERS: Rows = [
    ({"names": []}, "test", ""),
    ({"test": "v1-nothing"}, "test", "a key of GET /api/v1/tests"),
    ({"names": ["!x"]}, "names", "a pattern without !"),
    ({"classes": ["new_failure", "passed"]}, "classes.1", ""),
    ({"classes": ["sad"]}, "classes.0", ""),
    ({"reason": "  "}, "reason", ""),
    ({"expires": None}, "expires", ""),
    ({"expires": str(int(utcnow().timestamp()) + 86400)}, "expires", ""),
    ({"expires": "9999-12-31T23:59:59-23:59"}, "expires", ""),  # out of range in UTC
    ({"expires": "0001-01-01T00:00:00+23:59"}, "expires", ""),
    ({"expires": "2099-01-01T00:00:00Z"}, "expires", "90 days from now (GONOGO_WAIVER_DAYS):"),
]
BAD_BUILDS: Rows = [
    ({"command": "rm"}, "command", ""),
    ({"name": "correct"}, "name", ""),
    ({"executor": "emulator"}, "executor", ""),
    ({"executor": "emulatr"}, "executor", ""),
    ({"executor": "abacus"}, "executor", "new_executor"),
    ({"arithmetic": "moreh"}, "arithmetic", ""),
    ({"sequence": -1}, "sequence", ""),
    ({"sequence": True}, "sequence", ""),
    ({"commit": 7}, "commit", ""),
    ({"outputs": []}, "outputs", ""),
    ({"outputs": [" "]}, "outputs.0", ""),
]
BAD_TOKENS: Rows = [
    ({"name": ""}, "name", ""),
    ({"name": "a\nb"}, "name", ""),
    ({"name": "x" * 101}, "name", ""),
    ({"scopes": []}, "scopes", ""),
    ({"scopes": ["root"]}, "scopes.0", ""),
    ({"scopes": ["admin"], "repositories": ["org/*"]}, "repositories", ""),
    ({"scopes": ["admin"], "suites": ["a"]}, "suites", ""),
    ({"builds": ["!k-*", "!main"]}, "builds", ""),
    ({"branches": ["main"]}, "branches", ""),
]
BAD_HOSTS_ADD: Rows = [
    *(({"addresses": [text]}, "addresses", "") for text in ("lab.example.org", "0.0.0.0/0")),
    *(({"addresses": [text]}, "addresses", "") for text in ("10.0.0.1/8", "")),
]
BAD: dict[str, tuple[dict[str, Any], Rows]] = {
    "jobs": (JOB, BAD_JOBS),
    "gauges": ({"test": TEST, "seeds": {"count": 2}}, BAD_GAUGES),
    "bisections": ({"test": TEST, "builds": ["correct"] * 4}, BAD_BISECTIONS),
    "suites": (SUITE, BAD_SUITES),
    "runs": ({"suite": SUITE}, BAD_RUNS),
    "schedules": (SCHEDULE, BAD_SCHEDULES),
    "waivers": (WAIVER, BAD_WAIVERS),
    "builds": (BUILD, BAD_BUILDS),
    "tokens": ({"name": "ci", "scopes": ["submit"]}, BAD_TOKENS),
    "hosts:add": ({"name": "lab-2"}, BAD_HOSTS_ADD),
}
"""Good bodies, and what makes them bad."""
CASES = [
    (noun, good | bad, field, phrase)
    for noun, (good, rows) in BAD.items()
    for bad, field, phrase in rows
]


@pytest.fixture(scope="module", autouse=True)
def stored_suite(shared: Api) -> None:
    assert shared.client.post("/api/v1/suites", json=SUITE).status_code == 201


@pytest.mark.parametrize(
    ("noun", "body", "field", "phrase"), CASES, ids=[f"{case[0]} {case[2]}" for case in CASES]
)
def test_a_wrong_field_is_named_and_nothing_is_stored(
    shared: Api, noun: str, body: dict[str, Any], field: str, phrase: str
) -> None:
    before = shared.rows()
    for path in (noun, "jobs:validate") if noun == "jobs" else (noun,):
        answer = shared.client.post(f"/api/v1/{path}", json=body)
        document = answer.json()
        assert refusal(answer) == (422, document["errors"][0]["field"]) == (422, field)
        assert {"type", "title", "status", "detail"} <= set(document)
        assert phrase in f"{document['detail']} {document['limit']}"
        assert field in document["detail"]
        assert set(document["errors"][0]) == {"field", "value", "limit", "message"}
    assert shared.rows() == before


def test_a_missing_field_is_named_and_an_unknown_one_with_its_value(shared: Api) -> None:
    for name in ("test", "build", "seeds"):
        body = {key: value for key, value in JOB.items() if key != name}
        answer = shared.client.post("/api/v1/jobs", json=body)
        assert refusal(answer) == (422, name)
        assert "required" in answer.json()["detail"]
    red = {"colour": "red"}
    for changes in (red, {"test": {**TEST, **red}}, {"target": red}):
        assert shared.client.post("/api/v1/jobs", json={**JOB, **changes}).json()["value"] == "red"


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_refused_with_their_place(
    shared: Api, literal: str
) -> None:
    body = {**JOB, "test": {**TEST, "tolerance": {"rtol": 1e-3, "atol": 0.123}}}
    text = json.dumps(body).replace("0.123", literal)
    answer = shared.client.post("/api/v1/jobs", content=text, headers=HEADERS)
    assert refusal(answer) == (422, "test.tolerance.atol")
    assert answer.json()["limit"] == "finite"


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": {"start": 0, "count": 10**3000}},
        {"seeds": [10**3000]},
        {"priority": 10**3000},
        {"test": {**TEST, "shape": [10**1500, 10**1500]}},
        {"test": {**TEST, "epsilon": -(10**3000)}},
        {"labels": {"a": 10**3000}},
    ],
)
def test_a_huge_number_is_not_echoed_in_full(shared: Api, changes: dict[str, Any]) -> None:
    answer = shared.client.post("/api/v1/jobs", json={**JOB, **changes})
    assert refusal(answer)[0] == 422
    assert len(answer.content) < 2000
    assert "digits)" in str(answer.json()["value"])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", {422}),
        (b"{", {422}),
        (b"[1]", {422}),
        (b"null", {422}),
        (b'{"test": "\\ud800"}', {422}),
        (b'{"\\u0000": 1}', {422}),
        (b"\xff\xfe", {400}),
        (b"[" * 4000, {400, 422}),  # newer JSON parsers accept deeper nesting
        (b'{"build": ' + b"9" * 4000 + b"}", {422}),
    ],
)
def test_a_body_that_is_no_job_is_a_problem(shared: Api, body: bytes, status: set[int]) -> None:
    answer = shared.client.post("/api/v1/jobs", content=body, headers=HEADERS)
    assert refusal(answer)[0] in status
    form = {"Content-Type": "text/plain"}
    assert refusal(shared.client.post("/api/v1/jobs", content=b"a=1", headers=form))[0] == 415


def test_a_body_over_the_limit_is_refused_whether_its_length_is_told_or_not(shared: Api) -> None:
    def pieces() -> Iterator[bytes]:
        yield from [b" " * 1024] * 5

    for content in (b" " * 4097, pieces()):
        answer = shared.client.post("/api/v1/jobs", content=content, headers=HEADERS)
        assert refusal(answer) == (413, "body")
        assert "4096 bytes (GONOGO_MAX_BODY_BYTES)" in answer.json()["detail"]
    fits = json.dumps({**JOB, "colour": 1}).ljust(4096)
    assert refusal(shared.client.post("/api/v1/jobs", content=fits, headers=HEADERS))[0] == 422


NOTHING = "/tests/v1-nothing"
MISSING = "01900000-0000-7000-8000-000000000000"
PAGES = ("runs", "gauges", "bisections", "tests", "flags")


@pytest.mark.parametrize(
    ("path", "status", "field", "phrase"),
    [
        ("/jobs?limit=501", 422, "limit", "<= 500"),
        ("/jobs?limit=x", 422, "limit", "integer"),
        ("/jobs?stat=queued", 422, "stat", "did you mean 'state'?"),
        ("/jobs?state=runing", 422, "state", "did you mean 'running'?"),
        ("/jobs?kind=imprt", 422, "kind", "did you mean 'import'? (allowed: one of seeds, import)"),
        ("/jobs?state=sleeping", 422, "state", "queued"),
        ("/jobs?cursor=nonsense", 422, "cursor", "next"),
        ("/flags?kind=odd", 422, "kind", "passes_by_tolerance"),
        ("/builds?name=x", 422, "name", "executor"),
        ("/devices?x=1", 422, "x", "none"),
        ("/compare?base=a", 422, "head", ""),
        ("/compare?base=a&head=never-built", 422, "head", ""),
        (f"/compare?base={MISSING}&head=a", 422, "base", ""),
        ("/compare?base=a&head=a&class=sad", 422, "class", ""),
        ("/compare?base=a&head=a&fail_on=never", 422, "fail_on", ""),
        ("/compare?base=a&head=a&cursor=x", 422, "cursor", ""),
        ("/compare?base=a&heat=a", 422, "heat", ""),
        (NOTHING, 404, "test", ""),
        (f"{NOTHING}/attribution", 404, "test", ""),
        (f"{NOTHING}/changes", 404, "test", ""),
        (f"{NOTHING}/comparison", 404, "test", ""),
        (f"{NOTHING}/changes?metric=shoe_size", 422, "metric", ""),
        (f"{NOTHING}/changes?over=moons", 422, "over", ""),
        (f"{NOTHING}/attribution?samples=501", 422, "samples", ""),
        (f"{NOTHING}/attribution?lines=main", 422, "lines", ""),
        ("/workloads/v1-nothing/history", 404, "workload", ""),
        (f"/runs/{MISSING}/results?format=csv", 404, "run", ""),
    ],
)
def test_a_wrong_parameter_is_named(
    shared: Api, path: str, status: int, field: str, phrase: str
) -> None:
    answer = shared.client.get("/api/v1" + path)
    assert refusal(answer) == (status, field)
    assert phrase in f"{answer.json()['detail']} {answer.json()['limit']}"


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        *((f"/{noun}?cursor=x", 400, "cursor: unknown; follow the link") for noun in PAGES),
        *((f"/{noun}/nothing", 404, "") for noun in PAGES),
        ("/compare?base=a&head=never-built", 422, ""),
        ("/devices", 200, "No devices yet"),
        ("/devices/none", 404, "No such device"),
    ],
)
def test_a_page_of_what_is_not_there_says_so(
    shared: Api, path: str, status: int, words: str
) -> None:
    page = shared.client.get(path, headers={"Accept": "text/html"})
    assert (page.status_code, words in page.text) == (status, True)
    if status != 200:
        twin = path.replace("?", ".json?") if "?" in path else f"{path}.json"
        assert shared.client.get(twin).status_code == status


def test_what_is_not_there_is_a_problem_for_programs_and_a_page_for_people(shared: Api) -> None:
    for path, status in (
        ("/api/v1/nothing", 404),
        ("/nothing", 404),
        ("/api/v1/tests/%00", 400),
        ("/api/v1/jobs?build=%00", 400),
    ):
        assert refusal(shared.client.get(path))[0] == status
    wrong = shared.client.put("/api/v1/jobs")
    assert (refusal(wrong)[0], wrong.headers["allow"]) == (405, "GET, POST")
    page = shared.client.get("/nothing", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["content-type"][:9]) == (404, "text/html")
    assert "Try again" not in page.text


def test_an_unforeseen_error_says_nothing_of_the_inside(
    shared: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gonogo_dashboards import pages
    from gonogo_service.jobs.api.jobs import JOBS

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the secret inside")

    def ask(path: str) -> Any:
        answer = shared.client.get(path, headers={"Accept": "text/html"})
        assert (answer.status_code, "secret" in answer.text) == (500, False)
        return answer

    monkeypatch.setattr(JOBS, "page", broken)
    page = ask("/jobs")
    assert page.headers["content-type"].startswith("text/html")
    assert "Try again" in page.text
    assert refusal(ask("/api/v1/jobs"))[0] == 500
    monkeypatch.setattr(pages, "environment", broken)
    assert refusal(ask("/jobs"))[0] == 500
    assert "the secret inside" in capsys.readouterr().out


def test_the_addresses_below_a_job_say_when_there_is_no_such_job(shared: Api) -> None:
    get = [
        route.path
        for router in routers()
        for route in router.routes
        if isinstance(route, APIRoute) and "{job_id}" in route.path and "GET" in route.methods
    ]
    assert len(get) == 6
    requests = [("GET", path) for path in get]
    requests += [("POST", f"/api/v1/jobs/{{job_id}}:{verb}") for verb in ("cancel", "resubmit")]
    for name in ("nonsense", "01890000-0000-7000-8000-000000000000", "x%2Fy"):
        for method, path in requests:
            address = path.replace("{job_id}", name).replace("{artifact_id}", "x")
            assert refusal(shared.client.request(method, address))[0] == 404, address
