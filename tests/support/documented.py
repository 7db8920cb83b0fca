"""Validate each JSON answer of the API that a test gets against the OpenAPI document, and the type
of each problem against the table of docs/errors.md."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import httpx
import jsonschema_rs
from fastapi.routing import APIRoute
from starlette.routing import Match

from gonogo.kernels.registry import KERNELS
from gonogo.settings import Settings
from gonogo_service.app import create_app
from gonogo_service.kit import problems
from gonogo_service.kit.problem_types import PROBLEM_TYPES
from gonogo_service.operate import health_api as health
from gonogo_service.routers import routers

HOOKS: dict[str, list[Any]] = {}
JSON, NDJSON, PROBLEM = "application/json", "application/x-ndjson", problems.MEDIA_TYPE


def check(response: httpx.Response) -> None:
    """Fail for an answer in JSON that its operation doesn't describe.

    It may be an object, a line of NDJSON, or a problem document. Pages aren't JSON, and streams of
    events are never read to their end.
    """
    media_type = response.headers.get("content-type", "").partition(";")[0]
    if media_type not in (JSON, NDJSON, PROBLEM):
        return
    operation = _operation(response.request.method, response.request.url.path)
    if operation is None:
        return
    response.read()
    if not response.content:
        return
    path, method = operation
    if media_type == PROBLEM:
        name = response.json()["type"].removeprefix(problems.TYPE_PREFIX)
        known = PROBLEM_TYPES.get(name)
        assert known, f"PROBLEM_TYPES, and with it docs/errors.md, lacks {name}"
        assert response.status_code in known.statuses, (
            f"docs/errors.md has no {response.status_code} for {name}"
        )
    status = "default" if media_type == PROBLEM else str(response.status_code)
    validator = _validator(path, method, status, media_type, tuple(KERNELS))
    texts = response.text.splitlines() if media_type == NDJSON else [response.text]
    for error in (problem for text in texts for problem in validator.iter_errors(json.loads(text))):
        where = "".join(f"[{part!r}]" for part in error.instance_path)
        raise AssertionError(
            f"{response.request.method} {response.request.url.path}: the answer{where} is not "
            f"what {path} documents: {error.message[:500]}"
        )


HOOKS["response"] = [check]
HTTP = httpx.Client(event_hooks=HOOKS)
"""For single requests to any service."""


@cache
def _document(_kernels: tuple[str, ...]) -> dict[str, Any]:
    """Return the document; the routes are those of every app. It lists the registered kernels."""
    settings = Settings(database_url="sqlite:///never-opened.sqlite", embedded=True)
    app = create_app(settings)
    document: dict[str, Any] = app.openapi()
    app.state.context.engine.dispose()
    for schema in document["components"]["schemas"].values():
        if "properties" in schema:  # a field that the document lacks is an error, too
            schema.setdefault("additionalProperties", False)
    return document


@cache
def _operation(method: str, path: str) -> tuple[str, str] | None:
    """Return path and method as the document spells them; None for a page's JSON."""
    scope = {"type": "http", "method": method, "path": path, "headers": []}
    for router in (*routers(), health.router):
        for route in router.routes:
            if isinstance(route, APIRoute) and route.matches(scope)[0] is Match.FULL:
                return route.path_format, method.lower()
    return None


@cache
def _validator(
    path: str, method: str, status: str, media_type: str, kernels: tuple[str, ...]
) -> jsonschema_rs.Draft202012Validator:
    document = _document(kernels)
    answer = document["paths"][path][method]["responses"].get(status)
    if answer is None:
        raise AssertionError(f"{method.upper()} {path}: {status} is not documented")
    schema = answer.get("content", {}).get(media_type, {}).get("schema")
    if not schema:
        raise AssertionError(f"{method.upper()} {path}: the answer {status} has no schema")
    schemas = {name: document["components"]["schemas"][name] for name in _named(document, schema)}
    return jsonschema_rs.Draft202012Validator(
        {"allOf": [schema], "components": {"schemas": schemas}}, validate_formats=True
    )


def _named(document: dict[str, Any], schema: Any) -> set[str]:
    """Return the names of the schemas that a schema leads to: few of the document's, and the time
    to make a validator grows with what it gets."""
    names: set[str] = set()
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name and name not in names:
                names.add(name)
                waiting.append(document["components"]["schemas"][name])
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return names
