"""The table of problem types has each type that the service and the command can answer with, with
its status; and nothing else."""

from __future__ import annotations

import ast
import http
from collections.abc import Iterator

from checkout import ROOT
from gonogo_service.kit.problem_types import PROBLEM_TYPES
from gonogo_service.kit.problems import Problem, document

FOLDERS = ("service/gonogo_service",)
ERRORS = ("Problem", "HTTPException")
OF_THE_COMMAND = {"usage", "infrastructure", "invalid-field"}
OF_STARLETTE = {"not-found", "method-not-allowed"}
"""Types of problems that the framework raises, for an address that nothing answers."""
NO_BODY = 204


def raised() -> Iterator[tuple[str, int]]:
    """Yield (type, status) of each problem whose status is written where it is raised."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            for call in ast.walk(ast.parse(path.read_text())):
                if isinstance(call, ast.Call) and _is_problem(call) and call.args:
                    status = call.args[0]
                    if isinstance(status, ast.Constant) and status.value != NO_BODY:
                        yield _type(call, status.value), status.value


def _is_problem(call: ast.Call) -> bool:
    """Return whether a call makes a problem, or is that of a kind of problem to its base."""
    slugs = [word for word in call.keywords if word.arg == "slug"]
    return _name(call.func) in ERRORS or (_name(call.func) == "__init__" and bool(slugs))


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _type(call: ast.Call, status: int) -> str:
    slug = next((word.value for word in call.keywords if word.arg == "slug"), None)
    if slug is None and status == http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "body-too-large"  # refusals.too_large takes the place of the framework's
    name = ast.literal_eval(slug) if slug is not None else None
    urn: str = document(Problem(status, "", slug=name))["type"]
    return urn.rpartition(":")[2]


def test_every_problem_that_the_code_raises_is_in_the_table() -> None:
    pairs = set(raised())
    assert len(pairs) > 25
    known = {(name, status) for name, row in PROBLEM_TYPES.items() for status in row.statuses}
    assert pairs <= known
    elsewhere = OF_THE_COMMAND | OF_STARLETTE
    assert {name for name, _ in known - pairs} <= elsewhere
    assert set(PROBLEM_TYPES) == {name for name, _ in pairs} | elsewhere


def test_each_type_has_a_sentence_of_its_own() -> None:
    sentences = [row.sentence for row in PROBLEM_TYPES.values()]
    assert all(sentences)
    assert len(set(sentences)) == len(sentences)
    assert list(PROBLEM_TYPES) == sorted(PROBLEM_TYPES)
