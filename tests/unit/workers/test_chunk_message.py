"""A chunk's message: all of its fields are read by a typed model, and a wrong one is named."""

from __future__ import annotations

from typing import Any

import pytest

from chunk_bodies import BODY, parse
from gonogo.errors import FieldError
from gonogo_workers.messages.chunk import parse_context

PART = {"number": 0, "name": "correct", "kind": "go", "build": "correct"}


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"attempt": ""}, "attempt", "text, not empty"),
        ({"job": 3}, "job", "must be text"),
        ({"build": None}, "build", "must be text"),
        ({"target": None}, "target", ""),
        ({"target": {}}, "target.executor", "is required"),
        ({"work": []}, "work", "1 to 1000000 items"),
        ({"work": "all"}, "work", ""),
        ({"work": [[0, 0], [1, 2, 3]]}, "work.1", "[seed, repeat]"),
        ({"work": [[0, 0], "ab"]}, "work.1", "[seed, repeat]"),
        ({"work": [[-1, 0]]}, "work.0.0", ">= 0 and < 9007199254740992"),
        ({"work": [[2**53, 0]]}, "work.0.0", "< 9007199254740992"),
        ({"work": [[0, "a"]]}, "work.0.1", ">= 0"),
        ({"seed_deadline_s": -1.0}, "seed_deadline_s", "> 0"),
        ({"artifacts": {"worst": 17}}, "artifacts.worst", "<= 16"),
        ({"outputs": 3}, "outputs", "must be a list"),
        ({"test": {**BODY["test"], "kernel": "layernrm_bw"}}, "test.kernel", "'layernorm_bw'?"),
        ({"test": {**BODY["test"], "shape": [2**20, 2]}}, "test.shape", "1048576 elements"),
        ({"context": "shared"}, "context", 'isolated, or {"name", "before": [tests]}'),
        ({"context": {"name": "x", "befor": []}}, "context.befor", "'before'?"),
        ({"context": {"before": []}}, "context.name", "is required"),
        ({"gauge": {"parts": [{**PART, "kind": "gox"}]}}, "gauge.parts.0.kind", "'go'?"),
        ({"gauge": {"parts": [{**PART, "build": None}]}}, "gauge.parts.0.build", "must be text"),
        ({"test": {"selection": {}}, "gauge": {"parts": [PART]}}, "gauge.parts", "a kernel"),
    ],
)
def test_a_wrong_field_of_a_chunk_s_message_is_named(
    changes: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(FieldError) as refused:
        parse(**changes)
    assert refused.value.field == field
    assert words in str(refused.value)


def test_a_chunk_has_defaults_and_what_a_newer_service_adds_is_ignored() -> None:
    chunk = parse(color="red", target={**BODY["target"], "color": "red"}, artifacts={"best": 1})
    assert (chunk.executor, chunk.work, chunk.context) == ("emulator", ((0, 0), (7, 1)), "isolated")
    assert (chunk.seed_deadline_s, chunk.before) == (600.0, ())
    assert (chunk.evidence_first, chunk.evidence_worst) == (True, 1)
    for given, limits in (
        ({}, (600, 600)),
        ({"seed_deadline_s": 2}, (2, 2)),
        ({"seed_deadline_s": 2, "first_seed_deadline_s": 9}, (9, 2)),
    ):
        limited = parse(**given)
        assert (limited.limit_s(first=True), limited.limit_s(first=False)) == limits


def test_the_tests_of_a_context_are_read_with_their_place() -> None:
    test = {"kernel": "layernorm_fw", "shape": [2, 64]}
    name, before = parse_context({"name": "after", "before": [test]}, 2**20)
    assert (name, [spec.kernel for spec in before]) == ("after", ["layernorm_fw"])
    with pytest.raises(FieldError, match=r"context\.before\.1\.shape: has 128 elements"):
        parse_context({"name": "after", "before": [{**test, "shape": [64]}, test]}, 100)
