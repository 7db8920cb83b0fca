"""The parsers of strangers' input, each with what it may raise.

tests/unit/project/test_hostile_input.py tries them with hypothesis; `make fuzz` does so for long.
Where atheris is installed, `python -m checks.fuzz NAME [options of libFuzzer]` fuzzes one by
coverage. It can't be in the locks: it has no package for every Python that GoNoGo runs on.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.ci import events
from gonogo.errors import GonogoError
from gonogo.reports import ctrf, gtest, junit, lines
from gonogo.spec import json_text
from gonogo.spec.selections import parse_test
from gonogo_service.api.ci.rule_schemas import RuleIn
from gonogo_service.api.suites.schemas import SuiteIn
from gonogo_service.kit import json_bodies
from gonogo_service.kit.problems import Problem
from gonogo_service.submission.bodies import GaugeIn, JobIn
from gonogo_workers.executors import builds_file
from gonogo_workers.reports import npy

REFUSALS = (GonogoError, Problem)


@dataclass(frozen=True)
class Parser:
    """A parser: its function, an input that it takes, and the errors that refuse another."""

    parse: Callable[[bytes], Any]
    example: bytes
    refusals: tuple[type[Exception], ...] = REFUSALS

    def check(self, data: bytes) -> bool:
        """Return whether the parser takes the input. Raises what it must not raise."""
        try:
            self.parse(data)
        except self.refusals:
            return False
        return True


def _body(model: Any) -> Callable[[bytes], Any]:
    return lambda data: model.parse(json_bodies.parse(data))


def _event(name: str) -> Callable[[bytes], Any]:
    return lambda data: events.from_github(name, json_bodies.parse(data))


_TEST = b'{"kernel": "layernorm_bw", "shape": [32, 64], "tolerance": {"rtol": 1e-3, "atol": 0.5}}'
_XML = (
    b'<testsuites><testsuite name="s" tests="2"><testcase classname="c" name="a" time="0.5"/>'
    b'<testcase classname="c" name="b"><failure message="m">text</failure></testcase>'
    b"</testsuite></testsuites>"
)
_PUSH = (
    b'{"ref": "refs/heads/main", "before": "' + b"a" * 40 + b'", "after": "' + b"b" * 40 + b'", '
    b'"repository": {"full_name": "org/name"}, "commits": [{"modified": ["a"]}]}'
)
_PULL = (
    b'{"action": "opened", "number": 1, "repository": {"full_name": "org/name"}, "pull_request": '
    b'{"head": {"sha": "' + b"a" * 40 + b'", "ref": "x", "repo": {"full_name": "org/name"}}, '
    b'"base": {"sha": "' + b"b" * 40 + b'", "ref": "main"}}}'
)
_CI = (
    b'{"type": "commit", "timestamp": "2026-01-01T00:00:00Z", "data": {"repository": "org/name", '
    b'"sha": "' + b"a" * 40 + b'", "branch": "main"}}'
)
PARSERS: Mapping[str, Parser] = {
    "junit": Parser(junit.parse, _XML),
    "gtest-xml": Parser(gtest.parse_xml, _XML),
    "gtest-json": Parser(
        gtest.parse_json,
        b'{"testsuites": [{"name": "s", "testsuite": [{"name": "a", "status": "RUN", "time": "0s", '
        b'"failures": [{"failure": "x"}]}]}]}',
    ),
    "ctrf": Parser(
        ctrf.parse,
        b'{"results": {"tool": {"name": "t"}, "tests": [{"name": "a", "status": "passed", '
        b'"duration": 1}]}}',
    ),
    "gonogo": Parser(
        lines.parse,
        b'{"format": "gonogo", "version": 1, "suite": "s"}\n{"name": "a", "outcome": "passed"}\n',
    ),
    "test": Parser(lambda data: parse_test(json_bodies.parse(data)), _TEST),
    "job": Parser(_body(JobIn), b'{"test": ' + _TEST + b', "build": "correct", "seeds": [1, 2]}'),
    "gauge": Parser(_body(GaugeIn), b'{"test": ' + _TEST + b', "seeds": {"count": 2}}'),
    "suite": Parser(
        _body(SuiteIn),
        b'{"name": "s", "entries": [{"name": "a", "test": ' + _TEST + b', "seeds": {"count": 2}}]}',
    ),
    "rule": Parser(
        _body(RuleIn),
        b'{"name": "r", "events": ["push"], "repositories": ["org/*"], "suites": ["s"]}',
    ),
    "push": Parser(_event("push"), _PUSH),
    "pull request": Parser(_event("pull_request"), _PULL),
    "ci": Parser(lambda data: events.from_ci(json_bodies.parse(data)), _CI),
    "npy": Parser(
        lambda data: npy.header(io.BytesIO(data)),
        b"\x93NUMPY\x01\x00\x46\x00"
        + b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }".ljust(69)
        + b"\n",
        (ValueError,),
    ),
    "builds": Parser(
        builds_file.parse,
        b'[executors.torch]\npython = "python3"\n[builds.mine]\nexecutor = "torch"\n',
        (GonogoError, ValueError, RecursionError),
    ),
    "json": Parser(json_text.loads, b'{"a": [1, "b", null]}', (ValueError, RecursionError)),
}


def main(arguments: list[str]) -> int:
    """Fuzz one parser with atheris."""
    name = arguments[1] if len(arguments) > 1 else ""
    if name not in PARSERS:
        print(f"usage: python -m checks.fuzz NAME; one of {', '.join(PARSERS)}", file=sys.stderr)
        return 2
    try:
        import atheris
    except ImportError:
        print("atheris is not installed; `make fuzz` needs hypothesis only", file=sys.stderr)
        return 3
    atheris.Setup([arguments[0], *arguments[2:]], lambda data: PARSERS[name].check(data) and None)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
