"""Bad input: each wrong request stores nothing and gets a problem document.

The document names the field, the value and the limit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from api import JOB, Api, in_process

TEST = JOB["test"]
LAST_SEED = 2**53 - 1


@pytest.fixture
def api(database_url: str) -> Iterator[Api]:
    with in_process(database_url, max_elements=10_000, max_seeds=1000) as service:
        yield service


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service for requests that never reach the database."""
    url = f"sqlite:///{tmp_path_factory.mktemp('bad') / 'gonogo.sqlite'}"
    with in_process(url, max_elements=10_000, max_seeds=1000, max_body_bytes=4096) as service:
        yield service


def problem(answer: Any, status: int = 422) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert {"type", "title", "status", "detail"} <= set(document)
    assert document["status"] == status
    return document


SELECTED: dict[str, Any] = {
    "test": {"selection": {"suite": "nightly"}},
    "target": {"executor": "pytest"},
    "build": "main",
}
BAD_JOBS: list[tuple[dict[str, Any], str, str]] = [
    # the changes of the body, the refused field, a phrase of the detail or the limit
    ({"colour": "red"}, "colour", "unknown field"),
    ({"colour": "red"}, "colour", "one of target, context, priority,"),
    ({"test": {**TEST, "colour": "red"}}, "test.colour", "one of kernel, shape,"),
    ({"test": {**TEST, "colour": "red"}}, "test.colour", "unknown field"),
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
    ({"test": []}, "test", "must be an object"),
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
    ({"seeds": {"start": 0, "count": 10**15}}, "seeds.count", "1000"),
    ({"seeds": {"start": LAST_SEED, "count": 2}}, "seeds", str(LAST_SEED)),
    (
        {"seeds": {"policy": "sequential", "start": LAST_SEED, "max": 2}},
        "seeds",
        f"<= {LAST_SEED}",
    ),
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
    ({"context": "grouped"}, "context", "isolated"),
    ({"context": "grouped"}, "context", "name and before"),
    ({"context": {"name": "x", "before": [], "after": 1}}, "context.before", "1 to 16 items"),
    (
        {"context": {"name": "x", "before": [TEST], "after": 1}},
        "context.after",
        "one of name, before",
    ),
    ({"context": {"name": "x", "before": []}}, "context.before", "1 to 16 items"),
    (
        {"context": {"name": "x", "before": [{"kernel": "softmx", "shape": [1]}]}},
        "context.before.0.kernel",
        "layernorm_fw",
    ),
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
    ({**SELECTED, "repeats": 2}, "repeats", "use shuffle"),
    ({**SELECTED, "reference": {"build": "other"}}, "reference.build", "with another build"),
    ({**SELECTED, "context": {"name": "x", "before": [TEST]}}, "context", "suite with `order`"),
    (
        {"seeds": {"policy": "sequential", "max": 9}, "reference": {"build": "correct"}},
        "reference.build",
        "a range of seeds",
    ),
]


@pytest.mark.parametrize(
    ("changes", "field", "phrase"),
    BAD_JOBS,
    ids=[f"{n}-{case[1]}" for n, case in enumerate(BAD_JOBS)],
)
def test_a_wrong_field_of_a_job_is_named(
    lone: Api, changes: dict[str, Any], field: str, phrase: str
) -> None:
    for path in ("/api/v1/jobs", "/api/v1/jobs:validate"):
        document = problem(lone.client.post(path, json={**JOB, **changes}))
        assert document["field"] == document["errors"][0]["field"] == field
        assert phrase in f"{document['detail']} {document['limit']}"
        assert field in document["detail"]
        assert set(document["errors"][0]) == {"field", "value", "limit", "message"}
    assert not any(lone.rows().values())


@pytest.mark.parametrize("name", ["test", "build", "seeds"])
def test_a_missing_field_is_named(lone: Api, name: str) -> None:
    document = problem(
        lone.client.post(
            "/api/v1/jobs", json={key: value for key, value in JOB.items() if key != name}
        )
    )
    assert document["field"] == name
    assert "required" in document["detail"]


def test_nothing_is_stored_by_refused_jobs_on_either_database(api: Api) -> None:
    before = api.rows()
    for changes, _, _ in BAD_JOBS[::4]:
        assert (
            api.client.post(
                "/api/v1/jobs", json={**JOB, **changes}, headers={"Idempotency-Key": "k"}
            ).status_code
            == 422
        )
    assert api.rows() == before


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_refused_with_their_place(
    lone: Api, literal: str
) -> None:
    text = json.dumps(
        {**JOB, "test": {**TEST, "tolerance": {"rtol": 1e-3, "atol": 0.123}}}
    ).replace("0.123", literal)
    document = problem(
        lone.client.post("/api/v1/jobs", content=text, headers={"Content-Type": "application/json"})
    )
    assert document["field"] == "test.tolerance.atol"
    assert document["limit"] == "finite"


def test_the_value_of_an_unknown_field_is_what_was_given(lone: Api) -> None:
    for changes in (
        {"colour": "red"},
        {"test": {**TEST, "colour": "red"}},
        {"target": {"colour": "red"}},
    ):
        assert problem(lone.client.post("/api/v1/jobs", json={**JOB, **changes}))["value"] == "red"


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": {"start": 0, "count": 10**3000}},
        {"seeds": [10**3000]},
        {"priority": 10**3000},
        {"test": {**TEST, "shape": [10**1500, 10**1500]}},
        {"test": {**TEST, "shape": [10**400]}},
        {"test": {**TEST, "epsilon": -(10**3000)}},
        {"test": {**TEST, "memory": {"sharded": [10**3000, 1]}}},
        {"labels": {"a": 10**3000}},
    ],
)
def test_a_huge_number_is_not_echoed_in_full(lone: Api, changes: dict[str, Any]) -> None:
    answer = lone.client.post("/api/v1/jobs", json={**JOB, **changes})
    document = problem(answer)
    assert len(answer.content) < 2000
    assert "digits)" in str(document["value"])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[1]", 422),
        (b"null", 422),
        (b'{"test": "\\ud800"}', 422),
        (b'{"\\u0000": 1}', 422),
        (b"\xff\xfe", 400),
        (b"[" * 4000, 400),
        (b'{"build": ' + b"9" * 4000 + b"}", 422),
    ],
)
def test_a_body_that_is_no_job_is_a_problem(lone: Api, body: bytes, status: int) -> None:
    answer = lone.client.post(
        "/api/v1/jobs", content=body, headers={"Content-Type": "application/json"}
    )
    if status == 400 and answer.status_code == 422:  # newer JSON parsers accept deeper nesting
        status = 422
    problem(answer, status)


def test_a_body_of_another_type_is_refused(lone: Api) -> None:
    problem(
        lone.client.post("/api/v1/jobs", content=b"a=1", headers={"Content-Type": "text/plain"}),
        415,
    )


def test_a_body_over_the_limit_is_refused_whether_its_length_is_told_or_not(lone: Api) -> None:
    def pieces() -> Iterator[bytes]:
        yield from [b" " * 1024] * 5

    for content in (b" " * 4097, pieces()):
        document = problem(
            lone.client.post(
                "/api/v1/jobs", content=content, headers={"Content-Type": "application/json"}
            ),
            413,
        )
        assert document["field"] == "body"
        assert "4096 bytes (GONOGO_MAX_BODY_BYTES)" in document["detail"]
    assert (
        lone.client.post(
            "/api/v1/jobs", content=json.dumps({**JOB, "colour": 1}).ljust(4096)
        ).status_code
        != 413
    )


@pytest.mark.parametrize(
    ("path", "field", "phrase"),
    [
        ("/jobs?limit=0", "limit", ">= 1"),
        ("/jobs?limit=501", "limit", "<= 500"),
        ("/jobs?limit=x", "limit", "integer"),
        ("/jobs?stat=queued", "stat", "did you mean 'state'?"),
        ("/jobs?state=runing", "state", "did you mean 'running'?"),
        ("/jobs?kind=imprt", "kind", "did you mean 'import'? (allowed: one of seeds, import)"),
        ("/jobs?state=sleeping", "state", "queued"),
        ("/jobs?cursor=nonsense", "cursor", "next"),
        ("/flags?kind=odd", "kind", "passes_by_tolerance"),
        ("/flags?cursor=1", "cursor", "next"),
        ("/audit?cursor=1", "cursor", "next"),
        ("/tokens?cursor=1", "cursor", "next"),
        ("/builds?name=x", "name", "executor"),
        ("/devices?x=1", "x", "none"),
    ],
)
def test_a_wrong_parameter_is_named(lone: Api, path: str, field: str, phrase: str) -> None:
    document = problem(lone.client.get("/api/v1" + path))
    assert document["field"] == field
    assert phrase in f"{document['detail']} {document['limit']}"


def test_what_is_not_there_and_what_is_not_done_are_problems(lone: Api) -> None:
    problem(lone.client.get("/api/v1/nothing"), 404)
    problem(lone.client.get("/nothing"), 404)
    wrong = lone.client.put("/api/v1/jobs")
    problem(wrong, 405)
    assert wrong.headers["allow"] == "GET, POST"


def test_a_person_gets_a_page_instead(lone: Api) -> None:
    answer = lone.client.get("/nothing", headers={"Accept": "text/html"})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "Try again" not in answer.text


def test_a_page_that_fails_is_a_page_that_says_so_unless_no_page_can_be_made(
    lone: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gonogo_dashboards import pages
    from gonogo_service.jobs import store as jobs

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr(jobs, "list_", broken)
    answer = lone.client.get("/jobs", headers={"Accept": "text/html"})
    assert (answer.status_code, "Try again" in answer.text, "secret" in answer.text) == (
        500,
        True,
        False,
    )
    assert answer.headers["content-type"].startswith("text/html")
    monkeypatch.setattr(pages, "environment", broken)
    document = problem(lone.client.get("/jobs", headers={"Accept": "text/html"}), 500)
    assert "secret" not in str(document)


def test_an_address_with_nul_is_refused(lone: Api) -> None:
    problem(lone.client.get("/api/v1/tests/%00"), 400)
    problem(lone.client.get("/api/v1/jobs?build=%00"), 400)


def test_an_unforeseen_error_says_nothing_of_the_inside(
    lone: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gonogo_service.devices import api as devices

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr(devices.workers, "list_", broken)
    document = problem(lone.client.get("/api/v1/workers"), 500)
    assert "inside" not in json.dumps(document)
    assert "the secret inside" in capsys.readouterr().out
