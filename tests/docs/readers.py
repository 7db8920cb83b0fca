"""Parsers of the documents that pages show: each is read as GoNoGo itself would read it.

Each reader raises for a document that GoNoGo would refuse.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from gonogo.ci import events
from gonogo.gauge import tests_file
from gonogo.reports import lines
from gonogo.spec.test_spec import TestSpec
from gonogo_service.ci.rules_api import RuleIn
from gonogo_service.jobs.bodies import JobIn
from gonogo_workers.executors import builds_file
from parsed_tests import parse_test
from running_service import TINY


def documents(text: str) -> Iterator[Any]:
    """Yield the JSON documents of a block: one, or one per line."""
    try:
        yield json.loads(text)
    except json.JSONDecodeError:
        yield from map(json.loads, text.strip().splitlines())


def _tests(text: str) -> None:
    for document in documents(text):
        parse_test(document)


def _fields(name: str) -> Callable[[str], None]:
    """Return a reader of one field of a test, such as its inputs."""

    def read(text: str) -> None:
        for document in documents(text):
            TestSpec.parse({"kernel": "layernorm_bw", "shape": [32, 64], name: document})

    return read


def _job(text: str) -> None:
    for document in documents(text):
        JobIn.model_validate(document)
        parse_test(document["test"])


def _seeds(text: str) -> None:
    for document in documents(text):
        JobIn.model_validate(document | {"test": TINY, "build": "correct"})


def _builds(text: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        assert builds_file.read(file.name) != builds_file.BuildsFile()


def _rules(text: str) -> None:
    for rule in yaml.safe_load(text)["rules"]:
        RuleIn.model_validate(rule)


def _commit_event(text: str) -> None:
    assert isinstance(events.from_ci(json.loads(text)), events.CommitEvent)


def _import_line(text: str) -> None:
    """Read a run's line, or a test's line below the shortest one of a run."""
    line = json.loads(text)
    header = line if "format" in line else {"format": "gonogo", "version": 1}
    cases = [] if "format" in line else [line]
    report = lines.parse("\n".join(map(json.dumps, [header, *cases])).encode())
    assert len(report.cases) == len(cases)


def _gauge_file(text: str) -> None:
    assert tests_file.parse(yaml.safe_load(text), seeds=1)


READERS: dict[str, Callable[[str], None]] = {
    "answer": lambda text: list(documents(text)) and None,
    "builds": _builds,
    "commit-event": _commit_event,
    "gauge-file": _gauge_file,
    "import-line": _import_line,
    "inputs": _fields("inputs"),
    "job": _job,
    "rules": _rules,
    "seeds": _seeds,
    "test": _tests,
    "tolerance": _fields("tolerance"),
}
