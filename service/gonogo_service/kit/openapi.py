"""The OpenAPI document.

FastAPI derives it. This module replaces its error schema by problem documents, and adds the ways to
authenticate.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable
from dataclasses import is_dataclass
from itertools import pairwise
from types import GenericAlias
from typing import Any, get_args, get_type_hints

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from starlette.routing import BaseRoute

from gonogo import urls
from gonogo.settings.release import release
from gonogo_service.kit.database.records import SCHEMA_OF, documented
from gonogo_service.kit.problems import MEDIA_TYPE, TYPE_PREFIX

TITLE = "GoNoGo"
DESCRIPTION = (
    "A go/no-go gauge for numerical kernel tests: it runs them, stores the numbers of "
    "every seed, and says whether a green test means anything."
)
PUBLIC = frozenset({"/healthz", "/readyz", urls.GITHUB_DELIVERIES, urls.CI_DELIVERIES})
PROBLEM = {
    "title": "Problem",
    "description": "RFC 9457. `field`, `value` and `limit` repeat those of the first error.",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "examples": [TYPE_PREFIX + "invalid-field"]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "field": {"type": "string"},
        "value": {},
        "limit": {},
        "errors": {"type": "array", "items": {"$ref": "#/components/schemas/WrongField"}},
    },
}
REFUSED = {
    "description": "A problem document that names the field, the value, and what is allowed",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def install(app: FastAPI, routes: Iterable[BaseRoute]) -> None:
    """Make `app.openapi()` return the document, which is built once, at its first use."""
    described = [route for route in routes if isinstance(route, APIRoute)]

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _build(app, described)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # the way that FastAPI documents


def _build(app: FastAPI, described: Iterable[APIRoute]) -> dict[str, Any]:
    document = get_openapi(
        title=TITLE, version=release(), description=DESCRIPTION, routes=app.routes
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas.update(_documented(schemas, document["paths"]))
    given = schemas["TestSpec"]["properties"] | schemas["JobIn"]["properties"]
    for schema in schemas.values():
        properties = schema.get("properties", {})
        for name in properties.keys() & given.keys():
            if _is_free(properties[name]):  # as it was given, without its defaults
                properties[name] = given[name]
    for shape in _shapes(described):
        properties = schemas.get(shape.__name__, {}).get("properties", {})
        for name, text in _docstrings(shape).items():
            if name in properties:
                properties[name] = {**properties[name], "description": text}
    schemas["Problem"] = PROBLEM
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "gng_..."},
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": "gonogo_session",
            "description": "Set by the login page; unsafe methods need X-CSRF-Token",
        },
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            responses = operation["responses"]
            responses.pop("422", None)
            responses["default"] = REFUSED
            operation["security"] = [] if path in PUBLIC else [{"bearer": []}, {"session": []}, {}]
    return document


def _documented(schemas: dict[str, Any], paths: dict[str, Any]) -> dict[str, Any]:
    """Put documented shapes in the places of their numbers; return the schemas they bring."""
    added: dict[str, Any] = {}
    waiting: list[Any] = [schemas, paths]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if SCHEMA_OF in node:
                shape = documented[node.pop(SCHEMA_OF)]
                listed: Any = GenericAlias(list, (shape,))
                adapter: TypeAdapter[Any] = TypeAdapter(listed)
                schema = adapter.json_schema(ref_template="#/components/schemas/{model}")
                item, brought = schema["items"], schema.get("$defs", {})
                if "oneOf" in item:  # {} is a member of several
                    item["anyOf"] = item.pop("oneOf")
                node |= item
                fresh = {name: brought[name] for name in brought.keys() - schemas.keys()}
                added |= fresh
                waiting.append(fresh)
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return added


def _is_free(schema: dict[str, Any]) -> bool:
    """Return whether a schema allows any object."""
    free = schema.get("type") == "object" and schema.get("additionalProperties") is True
    return free or any(map(_is_free, schema.get("anyOf", ())))


def _shapes(routes: Iterable[APIRoute]) -> set[type[Any]]:
    """Return the dataclasses and models in the answers of the routes."""
    shapes: set[type[Any]] = set()
    waiting: list[Any] = [
        *documented,
        *(
            field.field_info.annotation
            for route in routes
            for field in (route.response_field, *route.response_fields.values())
            if field is not None
        ),
    ]
    while waiting:
        shape = waiting.pop()
        waiting += get_args(shape)
        if not isinstance(shape, type) or shape in shapes:
            continue
        if is_dataclass(shape):
            shapes.add(shape)
            waiting += get_type_hints(shape).values()
        elif issubclass(shape, BaseModel):
            shapes.add(shape)
            waiting += (field.annotation for field in shape.model_fields.values())
    return shapes


def _docstrings(shape: type[Any]) -> dict[str, str]:
    """Return the docstrings of a dataclass's fields, those that it inherits included."""
    texts: dict[str, str] = {}
    for cls in reversed(shape.__mro__):
        if is_dataclass(cls):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
            assert isinstance(tree, ast.ClassDef)
            for field, text in pairwise(tree.body):
                match field, text:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str() as words)),
                    ):
                        texts[name.removesuffix("_")] = " ".join(words.split())
    return texts
