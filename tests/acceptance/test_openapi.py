"""The OpenAPI document is true: schemathesis sends every operation what it allows and what it forbids, and checks the answers by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
import seeded
from api import JOB, Api, in_process, make_settings
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from servers import RedisServer
from suite_runs import SUITE

from service.api import health, routers
from service.app import create_app
from storage import inbound
from storage.states import HookSource

# The stream of events never ends while its job is alive; tests/integration/test_api_events.py looks after it.
STREAM = "/api/v1/jobs/{job_id}/events"
# What a `test` may be is checked by the domain, not by the schema, so a body that the schema allows may still be refused.
NOT_MEANT = ("positive_data_acceptance",)
EXAMPLES = 30
FEWER = {("/api/v1/suites", "post"): 8, ("/api/v1/runs", "post"): 8, ("/api/v1/rules", "post"): 3, ("/api/v1/rules", "put"): 3}
"""Their entries have the fields of a job again, which `POST /jobs` tries; to make them takes a third of a second each."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Iterator[Api]:
    """A service with a little of everything in it."""
    url = f"sqlite:///{tmp_path_factory.mktemp('openapi') / 'gonogo.sqlite'}"
    with in_process(url, embedded=False, hosts=("localhost", "testserver"), broker_url=redis_server.url) as api:
        with api.context.session() as session:
            job = seeded.finished(session)
            seeded.device(session)
        header = api.token("submit")
        for path, body in (
            ("suites", SUITE),
            ("runs", {"suite": "nightly"}),
            ("schedules", {"name": "every night", "suite": "nightly", "cron": "30 2 * * *"}),
            ("rejudgements", {"test": job.test_key, "store": True}),
        ):
            assert api.client.post(f"/api/v1/{path}", json=body, headers=header).is_success
        tiny = {"test": JOB["test"], "seeds": {"start": 0, "count": 1}}
        assert api.client.post("/api/v1/gauges", json=tiny, headers=header).is_success
        subscription = {"url": "https://ci.example.org/gonogo", "events": ["*"]}
        webhook = api.client.post("/api/v1/webhooks", json=subscription, headers=api.token("admin")).json()
        assert api.client.post(f"/api/v1/webhooks/{webhook['id']}:test", headers=api.token("admin")).is_success
        with api.context.session() as session:
            inbound.store(session, HookSource.github, "of this test", "ping", b"{}")
        yield api


@pytest.fixture(scope="module")
def schema(service: Api) -> Any:
    return schemathesis.openapi.from_asgi("/api/v1/openapi.json", service.client.app, headers=service.token("admin"))


@pytest.fixture(scope="module")
def header(service: Api) -> dict[str, str]:
    return service.token("admin")


def operations() -> list[tuple[str, str]]:
    """Path and method of every operation; the app is only asked for its document."""
    document = create_app(make_settings("sqlite:///never-opened")).openapi()
    return [(path, method) for path, methods in document["paths"].items() for method in methods if path != STREAM]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "forbidden"])
@pytest.mark.parametrize(("path", "method"), operations())
def test_every_operation_keeps_to_the_document(path: str, method: str, mode: GenerationMode, schema: Any, header: dict[str, str]) -> None:
    operation = schema[path][method]

    @settings(max_examples=FEWER.get((path, method), EXAMPLES), suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        case.call_and_validate(headers=header, excluded_checks=[getattr(checks, name) for name in NOT_MEANT])

    try:
        run()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE  # an operation without parameters and body forbids nothing


def test_the_answers_for_what_exists_keep_to_the_document(service: Api, schema: Any, header: dict[str, str]) -> None:
    """Generated ids are those of nothing; here they are real."""
    get = service.client.get
    (job,) = get("/api/v1/jobs?state=finished", headers=header).json()["items"]
    (flag,) = get("/api/v1/flags", headers=header).json()["items"]
    (device,) = get("/api/v1/devices", headers=header).json()["items"]
    of_suites = {name: get(f"/api/v1/{name}", headers=header).json()["items"][-1]["id"] for name in ("runs", "schedules", "rejudgements")}
    (gauge,) = get("/api/v1/gauges", headers=header).json()["items"]
    (webhook,) = get("/api/v1/webhooks", headers=header).json()["items"]
    (delivery,) = get(f"/api/v1/webhooks/{webhook['id']}/deliveries", headers=header).json()["items"]
    (artifact,) = get(job["links"]["artifacts"], headers=header).json()["items"]
    rule = {"name": SUITE["name"], "events": ["push"], "repositories": ["org/*"], "suites": [SUITE["name"]]}
    assert service.client.post("/api/v1/rules", json=rule, headers=header).is_success  # here: to replace the rules takes others away
    (came,) = get("/api/v1/hooks/deliveries", headers=header).json()["items"]
    real = {
        "inbound_id": came["id"],
        "job_id": job["id"],
        "artifact_id": artifact["id"],
        "flag_id": flag["id"],
        "device_id": device["id"],
        "key": job["test_key"],
        "subject_key": job["subject_key"],
        "name": SUITE["name"],
        "gauge_id": gauge["id"],
        "webhook_id": webhook["id"],
        "delivery_id": delivery["id"],
        **{f"{name.removesuffix('s')}_id": each for name, each in of_suites.items()},
    }
    asked = 0
    for path, method in operations():
        if method == "get" and "{" in path:
            wanted = {name: value for name, value in real.items() if f"{{{name}}}" in path}
            case = schema[path][method].Case(path_parameters=wanted)
            answer = case.call_and_validate(headers=header, excluded_checks=[getattr(checks, name) for name in NOT_MEANT])
            assert answer.status_code == 200, path
            asked += 1
    assert asked >= 8


def test_every_route_is_in_the_document_and_says_how_it_fails(service: Api) -> None:
    document = service.client.get("/api/v1/openapi.json", headers=service.token("read")).json()
    routes = {
        (route.path_format, method.lower())  # "{name:path}" is "{name}" in a document
        for router in [*routers(), health.router]
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    described = {(path, method) for path, operations in document["paths"].items() for method in operations}
    assert described == routes
    for path, method in described:
        operation = document["paths"][path][method]
        assert "application/problem+json" in operation["responses"]["default"]["content"]
        assert operation["summary"]
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_the_example_of_the_contract_is_a_valid_job(service: Api) -> None:
    body = {
        **JOB,
        "target": {"executor": "emulator", "arch": "wormhole", "board": "n150"},
        "reference": None,
        "repeats": 1,
        "context": "isolated",
        "priority": 5,
        "queue_deadline_s": 86400,
        "labels": {"suite": "nightly"},
        "commit": {"repository": "org/name", "sha": "0123456789abcdef", "pull_request": 1},
    }
    assert service.client.post("/api/v1/jobs", json=body, headers=service.token("submit")).status_code == 202
