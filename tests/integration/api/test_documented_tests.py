"""OpenAPI documents a job's test: its examples are accepted, and what its schema refuses is
refused with the field's name."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jsonschema_rs
import pytest
from fastapi.routing import APIRoute

from api import JOB, Api
from gonogo_service.kit import openapi
from gonogo_service.routers import routers


@pytest.fixture(scope="module")
def document(shared: Api) -> dict[str, Any]:
    return dict(shared.get("/openapi.json"))


def resolved(document: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in node:
        node = document["components"]["schemas"][node["$ref"].rpartition("/")[2]]
    return node


def validator(document: dict[str, Any], name: str) -> Any:
    return jsonschema_rs.validator_for(
        {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    )


FORBIDDEN: dict[str, Callable[[Any], object]] = {
    "enum": lambda _: "no such value",
    "const": lambda _: "no such value",
    "minimum": lambda least: least * 2 - 1,
    "exclusiveMinimum": lambda limit: limit,
    "maximum": lambda most: most * 2 + 1,
    "exclusiveMaximum": lambda limit: limit,
    "maxLength": lambda most: "x" * (most + 1),
    "minLength": lambda _: "",
    "maxItems": lambda most: [1] * (most + 1),
    "minItems": lambda _: [],
}
"""Keywords of a schema, and a value that each forbids."""


def wrong_values(
    document: Mapping[str, Any], node: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield (path, a value that the schema forbids there) for everything it says of its fields."""
    node = resolved(document, node)
    for member in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from wrong_values(document, member, path)
    yield from ((path, wrong(node[limit])) for limit, wrong in FORBIDDEN.items() if limit in node)
    if node.get("type") in ("number", "integer", "boolean", "array", "object"):
        yield path, "a text"
    if isinstance(node.get("items"), Mapping):
        yield from wrong_values(document, node["items"], (*path, "0"))
    for name, inner_node in node.get("properties", {}).items():
        yield from wrong_values(document, inner_node, (*path, name))
    if node.get("additionalProperties") is False:
        yield (*path, "no_such_field"), 1


def placed(base: dict[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    """Return a copy of a body with a value at a path, whose parents are made."""
    body = copy.deepcopy(base)
    parent: dict[str, Any] = body
    for number, name in enumerate(path[:-1]):
        if path[number + 1] == "0":
            parent[name] = [value]
            return body
        if not isinstance(parent.get(name), dict):
            parent[name] = {}
        parent = parent[name]
    parent[path[-1]] = value
    return body


KERNEL = {"kernel": "layernorm_bw", "shape": [4, 64]}
SELECTION: dict[str, Any] = {"selection": {"suite": "nightly"}}


@pytest.mark.parametrize(("schema", "base"), [("TestSpec", KERNEL), ("SelectionTest", SELECTION)])
def test_what_the_schema_refuses_is_refused_with_the_name_of_the_field(
    shared: Api, document: dict[str, Any], schema: str, base: dict[str, Any]
) -> None:
    schema_of_test = validator(document, schema)
    tried = 0
    for path, value in wrong_values(document, document["components"]["schemas"][schema]):
        if not path:
            continue
        body = placed(base, path, value)
        if schema_of_test.is_valid(body):
            continue  # another member of a union allows it
        tried += 1
        answer = shared.client.post("/api/v1/jobs:validate", json={**JOB, "test": body})
        assert answer.status_code == 422, (path, value, answer.text)
        fields = [error["field"] for error in answer.json()["errors"]]
        place = f"test.{'.'.join(path)}"
        named = [field for field in fields if place.startswith(field) or field.startswith(place)]
        assert named, (path, value, fields)
        assert fields[0].startswith(f"test.{path[0]}"), (path, value, fields)
    assert tried >= (60 if schema == "TestSpec" else 8)


def test_documented_examples_are_valid_and_accepted(shared: Api, document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for example in schemas["JobIn"]["examples"]:
        assert validator(document, "JobIn").is_valid(example)
        answer = shared.client.post("/api/v1/jobs:validate", json=example)
        assert answer.status_code == 200, (example, answer.text)
    documented = 0
    for name, field in schemas["TestSpec"]["properties"].items():
        for example in field.get("examples", ()):
            documented += 1
            test = {**KERNEL, name: example}
            assert validator(document, "TestSpec").is_valid(test), test
            answer = shared.client.post("/api/v1/jobs:validate", json={**JOB, "test": test})
            assert answer.status_code == 200, (test, answer.text)
    assert documented >= 6


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": None, "numerics": None, "inputs": None, "tolerance": None},
        {"parameters": {}, "numerics": {}, "inputs": {}, "tolerance": {}},
        {"tolerance": {"dx": {}, "dgamma": {"ulp": None}}, "shape": [4.0, 64]},
    ],
)
def test_what_stands_for_a_default_is_documented(
    shared: Api, document: dict[str, Any], changes: dict[str, Any]
) -> None:
    test = {**KERNEL, **changes}
    assert validator(document, "TestSpec").is_valid(test)
    answer = shared.client.post("/api/v1/jobs:validate", json={**JOB, "test": test})
    assert answer.status_code == 200, answer.text


FOREIGN = {
    "POST /api/v1/hooks/ci": "the sender's payload",
    "POST /api/v1/hooks/github": "GitHub's payload",
    "ArtifactOut.content": "a kind that only another version of a worker knows",
    "AuditEntry.detail": "facts of an action",
    "EventMessage.data": "the object as it was when the event happened",
    "IncomingDeliveryDetails.payload": "the sender's payload",
    "PartialTest.parameters": "a kernel's parameters, which its kind checks",
    "SentArtifact.content": "a kind that only another version of a worker knows",
    "SentOutput.different": "statistics that only another version of a worker knows",
    "SentOutput.same": "statistics that only another version of a worker knows",
    "SentSeed.outputs": "statistics that only another version of a worker knows",
    "TestSpec.parameters": "a kernel's parameters, which its kind checks",
    "Problem.limit": "the limit of any field",
    "Problem.value": "the refused value, whatever it was",
    "WrongField.limit": "the limit of any field",
    "WrongField.value": "the refused value, whatever it was",
}
"""The places where the document allows anything, and whose data stand there."""
TEXTS = {"title", "description", "default", "examples"}


def allows_anything(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema, or one of its members or items, allows any value or any object."""
    limits = schema.keys() - TEXTS
    if limits <= {"type", "additionalProperties"}:
        inner = schema.get("additionalProperties", True)
        is_open = inner is True or (isinstance(inner, dict) and allows_anything(inner))
        if schema.get("type", "object") == "object" and is_open:
            return True
    if schema.get("type") == "array" and "prefixItems" not in schema:
        return allows_anything(schema.get("items", {}))
    return any(map(allows_anything, (*schema.get("anyOf", ()), *schema.get("oneOf", ()))))


def test_a_name_of_the_document_is_of_one_shape(document: dict[str, Any]) -> None:
    """Else pydantic lengthens both names, or one stands for the other."""
    names = document["components"]["schemas"].keys()
    assert not [name for name in names if "__" in name or name.endswith(("-Input", "-Output"))]
    endpoints = (route for router in routers() for route in router.routes)
    shapes = openapi._shapes(route for route in endpoints if isinstance(route, APIRoute))
    counted = Counter(shape.__name__ for shape in shapes)
    assert [name for name, number in counted.items() if number > 1] == []


def test_the_document_allows_anything_only_where_others_data_stand(
    document: dict[str, Any],
) -> None:
    places = {
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, inner in schema.get("properties", {}).items()
        if allows_anything(inner)
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            contents = [content for body in bodies for content in body.get("content", {}).values()]
            if any(allows_anything(content["schema"]) for content in contents):
                places.add(f"{method.upper()} {path}")
    assert places == FOREIGN.keys()
