"""The parsers of strangers' input, each with what it may raise.

tests/unit/project/test_hostile_input.py tries them with hypothesis; `make fuzz` does so for long,
and then fuzzes each by coverage, with atheris:
`python -m tests.checks.fuzz NAME [options of libFuzzer]`,
where NAME may be "all". It can't be in the locks: it has no package for every Python that GoNoGo
runs on.
"""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from pydantic import BaseModel

from gonogo.ci import events
from gonogo.errors import GonogoError, JobError
from gonogo.reports import ctrf, gtest, junit, lines
from gonogo.spec import json_text
from gonogo.spec.test_spec import TestSpec
from gonogo_service.ci.rules import RuleIn
from gonogo_service.gauges.bodies import GaugeIn
from gonogo_service.hosts import forms
from gonogo_service.jobs.bodies import JobIn
from gonogo_service.kit import json_bodies
from gonogo_service.kit.problems import Problem
from gonogo_service.results.batch import Batch
from gonogo_service.suites.bodies import SuiteIn
from gonogo_workers.executors import builds_file
from gonogo_workers.messages.rows import Place
from gonogo_workers.reports import npy
from gonogo_workers.reports.rows import iteration_row, reports_of

REFUSALS = (GonogoError, Problem)
ALL = "all"
INSTRUMENTED = ("gonogo.", "gonogo_service.kit.", "gonogo_service.hosts.", "gonogo_workers.")
"""The modules whose coverage guides: those of other packages take minutes to prepare."""


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


def _of_host(form: type[BaseModel]) -> Callable[[bytes], Any]:
    return lambda data: forms.check(form, forms.unpacked(data, "identity")[0])


def _reports(data: bytes) -> None:
    """Parse the reports of a kernel's tests; the service must store what comes of it."""
    try:
        reports = json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise JobError(f"no JSON: {problem}") from problem
    place = Place("host/chip:0", "a" * 32, 0)
    row = iteration_row((0, 0), place, 1.0, reports_of(reports), {})
    json.dumps(row, allow_nan=False)
    Batch.of([row]).check()


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
_REPOSITORY = b'"repository": {"id": 1, "full_name": "org/name"}, "installation": {"id": 2}'
_SUBJECT = (
    b'"head_sha": "' + b"a" * 40 + b'", "head_branch": "main", "before": "' + b"b" * 40 + b'", '
    b'"app": {"id": 3, "slug": "ci"}, "conclusion": "success", "created_at": '
    b'"2026-01-01T00:00:00Z", "pull_requests": [{"number": 1, "head": {"repo": {"id": 1}}, '
    b'"base": {"sha": "' + b"c" * 40 + b'", "ref": "main", "repo": {"id": 1}}}]'
)
_WORKFLOW = (
    b'{"action": "completed", "workflow_run": {"name": "w", "head_repository": {"id": 1}, '
    + _SUBJECT
    + b"}, "
    + _REPOSITORY
    + b"}"
)
_CHECK_SUITE = b'{"action": "%s", "check_suite": {' + _SUBJECT + b"}, " + _REPOSITORY + b"}"
_CHECK_RUN = (
    b'{"action": "requested_action", "requested_action": {"identifier": "gonogo-both"}, '
    b'"check_run": {"external_id": "x", ' + _SUBJECT + b"}, " + _REPOSITORY + b"}"
)
_BEAT = (
    b'{"worker": "h/chip:0/1", "device": "h/chip:0", "queues": ["a.b.c"], "attempt": "x", '
    b'"seed": 1, "stage": "running", "devices": [{"device": '
    b'"h/chip:0", "host": "h", "queue": "a.b.c", "name": "chip:0", "arch": "b", "board": "c", '
    b'"source": "s", "health": "good", "reason": null, "firmware": {"fw": "1", "cm": 2}}]}'
)
_RESULTS = (
    b'{"artifacts": [{"kind": "log", "seed": 0, "repeat": 0, "output": '
    b'null, "content": {"text": "x"}}, {"kind": "error_map", "seed": 0, "content": {"rows": 1, '
    b'"features": 2, "tile": 32, "group": [1, 1], "cells": [1, 1], "max_abs": [[0.5]], '
    b'"signed_mean": [[0.5]], "nonfinite": [[0]]}}, {"kind": "stages", "seed": 0, '
    b'"content": {"stages": [{"name": "s", "status": "passed"}]}}]}'
)
_ROW = (
    b'"repeat": 0, "device": "h/chip:0", "host_run": "r", "position": 0, "duration_ms": 1.5, '
    b'"arithmetic": "fused", "judge": "3", "message": "m"'
)
_BATCH = (
    b'{"rows": [{"seed": 0, "verdict": "pass", "explanation": "explained", ' + _ROW + b', "outputs"'
    b': {"dx": {"verdict": "pass", "explanation": "explained", "max_abs": 0.5, "shared": 1.0, '
    b'"nonfinite": 0, "nonfinite_kinds": {}, "worst_index": [0, 1]}}}, {"seed": 1, "verdict": '
    b'"not_judged", "explanation": "not_judged", ' + _ROW + b', "outputs": {"S.t": {"outcome": '
    b'"failed", "verdict": "not_judged", "failures": [{"expression": "e", "count": 1, "line": 2}], '
    b'"measurements": {"x": 1.5}, "duration_ms": 2, "stage": "s", "more": [1, "a"]}}}]}'
)
_REPORTS = (
    b'[{"name": "S.t", "outcome": "failed", "duration_ms": 1.5, "message": "m", "stage": "s", '
    b'"failures": [{"expression": "e", "count": 2, "message": "m", "file": "f", "line": 3}], '
    b'"measurements": {"x": 1.5}, "dumps": [{"path": "p"}], "hash": 12, "list": [1, "a"], '
    b'"object": {"k": 1}}, {"name": "S.t", "outcome": "passed"}]'
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
    "test": Parser(lambda data: TestSpec.parse(json_bodies.parse(data)), _TEST),
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
    "workflow run": Parser(_event("workflow_run"), _WORKFLOW),
    "check suite": Parser(_event("check_suite"), _CHECK_SUITE % b"completed"),
    "check suite again": Parser(_event("check_suite"), _CHECK_SUITE % b"rerequested"),
    "check run": Parser(_event("check_run"), _CHECK_RUN),
    "compressed body": Parser(lambda data: forms.unpacked(data, "gzip"), gzip.compress(_BEAT, 1)),
    "heartbeat": Parser(_of_host(forms.HostHeartbeat), _BEAT),
    "claim": Parser(
        _of_host(forms.AttemptClaim), b'{"worker": "h/chip:0/1", "device": "h/chip:0"}'
    ),
    "results": Parser(_of_host(forms.ResultsBatch), _RESULTS),
    "finish": Parser(
        _of_host(forms.AttemptEnd),
        b'{"outcome": "done", "sent": [[0, 0], [1, 0]], "batches": 1, "log_tail": "x", "error": '
        b'null, "telemetry": {"temperature_c": 40.5, "firmware": "1"}}',
    ),
    "health": Parser(
        _of_host(forms.HealthReport),
        b'{"device": "h/chip:0", "worker": "h/chip:0/1", "health": "good", "reason": "r", '
        b'"evidence": {"executor": "e", "canary": "c", "digests": {"dx": "1"}, "steps": '
        b'[{"rung": "r", "outcome": "o", "output": ""}]}}',
    ),
    "rows": Parser(
        lambda data: Batch.parse(forms.unpacked(data, "identity")[0]).check(),
        _BATCH,
        (*REFUSALS, AttributeError, KeyError, TypeError, ValueError),
    ),
    "reports": Parser(_reports, _REPORTS),
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
    """Fuzz one parser with atheris, or each, in a process of its own."""
    name = arguments[1] if len(arguments) > 1 else ""
    names = [*PARSERS] if name == ALL else [name]
    if not {*names} <= PARSERS.keys():
        allowed = ", ".join((ALL, *PARSERS))
        print(f"usage: python -m tests.checks.fuzz NAME; one of {allowed}", file=sys.stderr)
        return 2
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: `make fuzz` installs it where it can", file=sys.stderr)
        return 3
    for function in [item for item in gc.get_objects() if isinstance(item, FunctionType)]:
        if str(function.__module__).startswith(INSTRUMENTED):
            atheris.instrument_func(function)
    # not only the first failure: each parser's is worth knowing
    return max([_fuzzed(parser, arguments[0], arguments[2:]) for parser in names])


def _fuzzed(name: str, program: str, options: list[str]) -> int:
    """Fuzz one parser in a child, which libFuzzer ends; return its exit status."""
    import atheris

    print(f"fuzzing the parser {name!r}", flush=True)
    parser = PARSERS[name]

    def check(data: bytes) -> None:
        parser.check(data)

    with tempfile.TemporaryDirectory(prefix="gonogo-fuzz-") as corpus:
        Path(corpus, "example").write_bytes(parser.example)
        child = os.fork()
        if child == 0:
            atheris.Setup([program, *options, corpus], check)
            atheris.Fuzz()
            os._exit(1)  # libFuzzer has ended the process
        return abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
