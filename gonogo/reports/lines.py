"""Format "gonogo": a line of JSON for the run, then one for each test (docs/imports.md).

The pytest plug-in writes it. A comparison that names its kernel's spec is judged here, from its
numbers: a file may say which numbers it measured, not what they mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from gonogo.errors import FieldError
from gonogo.reports.cases import (
    MAX_CASES,
    MAX_FAILURES,
    MAX_MEASUREMENTS,
    MAX_SEED,
    Case,
    Comparison,
    TestReport,
)
from gonogo.reports.outcomes import Outcome
from gonogo.reports.texts import MAX_MESSAGE_CHARS, MAX_NAME_CHARS, clean
from gonogo.spec import fields, json_text, statistics
from gonogo.spec.arithmetic_names import canonical
from gonogo.spec.kernels.registry import KERNELS
from gonogo.spec.test_spec import MAX_ELEMENTS, TestSpec
from gonogo.spec.tolerances import Tolerance

FORMAT = "gonogo"
VERSION = 1
HEADER = ("format", "version", "suite", "build", "tool", "commit", "labels", "started_at")
CASE = (
    "name",
    "outcome",
    "seed",
    "repeat",
    "duration_ms",
    "message",
    "failures",
    "measurements",
    "file",
    "line",
    "worker",
    "comparisons",
)
COMPARISON = ("name", "test", "tolerance", "arithmetic", "outputs", "words", "problem")
MAX_COMPARISONS = 100
MAX_OUTPUTS = 64
MAX_STATISTICS = 200
MAX_REPEATS = 1_000_000
MAX_TEXT = 500
MAX_LINE = 2**20
"""Bytes: a line is decoded as a whole, and may become sixty times as large."""
_SHOWN = 60


def parse(data: bytes, *, max_elements: int = MAX_ELEMENTS) -> TestReport:
    """Return the report in the lines of a file.

    Raises FieldError, with the path "lines.<number>" (from 1).
    """
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            raise FieldError(f"lines.{number}", len(line), "is too long", limit=f"{MAX_LINE} bytes")
    header = fields.mapping(_decoded(lines[0] if lines else b"", 1), "lines.1")
    fields.known(header, HEADER, "lines.1")
    fields.choice(header.get("format"), (FORMAT,), "lines.1.format")
    fields.integer(header.get("version"), "lines.1.version", least=VERSION, most=VERSION)
    if len(lines) - 1 > MAX_CASES:
        raise FieldError("lines", len(lines), "too many tests", limit=f"{MAX_CASES} in a file")
    specs: dict[str, TestSpec] = {}
    cases = tuple(
        _case(_decoded(line, number), f"lines.{number}", specs, max_elements)
        for number, line in enumerate(lines[1:], 2)
        if line.strip()
    )
    commit = header.get("commit")
    labels = fields.mapping(header.get("labels") or {}, "lines.1.labels")
    return TestReport(
        cases,
        suite=_text(header.get("suite"), "lines.1.suite"),
        build=_text(header.get("build"), "lines.1.build"),
        tool=_text(header.get("tool"), "lines.1.tool"),
        commit=None if commit is None else dict(fields.mapping(commit, "lines.1.commit")),
        labels={
            name: _text(value, f"lines.1.labels.{name}") or "" for name, value in labels.items()
        },
        started_at=_text(header.get("started_at"), "lines.1.started_at"),
    )


def _decoded(line: bytes, number: int) -> Any:
    try:
        return json_text.loads(line)
    except (ValueError, RecursionError) as problem:  # a decoding error is a ValueError, too
        raise FieldError(
            f"lines.{number}", line[:_SHOWN], f"isn't JSON: {clean(problem, 200)}"
        ) from None


def _case(data: object, path: str, specs: dict[str, TestSpec], max_elements: int) -> Case:
    given = fields.mapping(data, path)
    fields.known(given, CASE, path)
    name, seed, duration = given.get("name"), given.get("seed"), given.get("duration_ms")
    if not isinstance(name, str) or not name.strip():
        raise FieldError(f"{path}.name", name, "must be text", limit="the name of a test")
    failures = _list(given.get("failures"), f"{path}.failures", MAX_FAILURES)
    comparisons = _list(given.get("comparisons"), f"{path}.comparisons", MAX_COMPARISONS)
    return Case(
        name=name,
        outcome=Outcome(fields.choice(given.get("outcome"), tuple(Outcome), f"{path}.outcome")),
        seed=None if seed is None else fields.integer(seed, f"{path}.seed", least=0, most=MAX_SEED),
        repeat=fields.integer(given.get("repeat", 0), f"{path}.repeat", least=0, most=MAX_REPEATS),
        duration_ms=None
        if duration is None
        else fields.number(duration, f"{path}.duration_ms", least=0),
        message=_text(given.get("message"), f"{path}.message", MAX_MESSAGE_CHARS) or "",
        failures=tuple(_failure(item, f"{path}.failures.{n}") for n, item in enumerate(failures)),
        measurements=_measurements(given.get("measurements") or {}, f"{path}.measurements"),
        more={
            key: _plain(given[key], f"{path}.{key}")
            for key in ("file", "line", "worker")
            if given.get(key) is not None
        },
        comparisons=tuple(
            _comparison(item, f"{path}.comparisons.{n}", specs, max_elements)
            for n, item in enumerate(comparisons)
        ),
    )


def _comparison(
    data: object, path: str, specs: dict[str, TestSpec], max_elements: int
) -> Comparison:
    given = fields.mapping(data, path)
    fields.known(given, COMPARISON, path)
    spec, test, missing = given.get("test"), None, ""
    if spec is not None and _lacks_kernel(spec):
        missing = f"not judged: this server has no kernel {clean(spec['kernel'], MAX_NAME_CHARS)}"
    elif spec is not None:  # a thousand seeds share one spec: parse it once
        text = json.dumps(spec, sort_keys=True)
        test = specs.get(text) or TestSpec.parse(
            spec, max_elements=max_elements, path=f"{path}.test"
        )
        specs[text] = test
    tolerance = given.get("tolerance")
    if spec is not None and tolerance is not None:
        raise FieldError(
            f"{path}.tolerance",
            tolerance,
            "a spec has its tolerance in it",
            limit="null with a test",
        )
    outputs = fields.mapping(given.get("outputs") or {}, f"{path}.outputs")
    if len(outputs) > MAX_OUTPUTS:
        raise FieldError(
            f"{path}.outputs", len(outputs), "too many outputs", limit=str(MAX_OUTPUTS)
        )
    if test is not None:
        fields.known(outputs, (*test.outputs, *test.downstream), f"{path}.outputs")
    return Comparison(
        outputs={
            clean(name, MAX_NAME_CHARS): _statistics(numbers, f"{path}.outputs.{name}")
            for name, numbers in outputs.items()
        },
        name=_text(given.get("name"), f"{path}.name"),
        test=test,
        tolerance={}
        if tolerance is None
        else Tolerance.parse(tolerance, f"{path}.tolerance").to_json(),
        arithmetic=canonical(given.get("arithmetic"), f"{path}.arithmetic"),
        words="\n".join(
            filter(None, (missing, _text(given.get("words"), f"{path}.words", MAX_MESSAGE_CHARS)))
        ),
        problem=_text(given.get("problem"), f"{path}.problem", MAX_MESSAGE_CHARS) or "",
    )


def _lacks_kernel(spec: object) -> bool:
    """Return whether a spec names a kernel that this process doesn't have.

    The numbers of a package's kernel are kept then, and the rest of the run is judged.
    """
    kernel = spec.get("kernel") if isinstance(spec, Mapping) else None
    return isinstance(kernel, str) and kernel not in KERNELS


def _statistics(data: object, path: str) -> dict[str, Any]:
    """Return numbers, null, short texts, and lists and maps of these.

    A verdict among them is left out: verdicts are computed from the numbers.
    """
    given = fields.mapping(data, path)
    if len(given) > MAX_STATISTICS:
        raise FieldError(path, len(given), "too many statistics", limit=str(MAX_STATISTICS))
    computed = {"verdict", "explanation", "outcome", "test", "policy"}
    numbers = {
        clean(name, 100): _plain(value, f"{path}.{name}")
        for name, value in given.items()
        if name not in computed
    }
    for name, value in numbers.items():
        if not statistics.fits(name, value):
            raise FieldError(
                f"{path}.{name}",
                value,
                "is no value of this statistic",
                limit="what the manual says (verdicts), or another name",
            )
    return numbers


def _failure(data: object, path: str) -> dict[str, Any]:
    given = fields.mapping(data, path)
    fields.known(given, ("expression", "count", "message", "file", "line"), path)
    return {
        "expression": _text(given.get("expression"), f"{path}.expression", MAX_TEXT) or "",
        "count": fields.integer(given.get("count", 1), f"{path}.count", least=1, most=MAX_SEED),
        "message": _text(given.get("message"), f"{path}.message", MAX_MESSAGE_CHARS // 2) or "",
        **{
            key: _plain(given[key], f"{path}.{key}")
            for key in ("file", "line")
            if given.get(key) is not None
        },
    }


def _measurements(data: object, path: str) -> dict[str, float]:
    given = fields.mapping(data, path)
    if len(given) > MAX_MEASUREMENTS:
        raise FieldError(path, len(given), "too many measurements", limit=str(MAX_MEASUREMENTS))
    return {
        clean(name, 100): fields.number(value, f"{path}.{name}") for name, value in given.items()
    }


def _plain(value: object, path: str, *, deep: bool = False) -> Any:
    """Return plain JSON with one level of lists and maps.

    Numbers must be finite, and whole numbers must fit a database column.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= MAX_SEED:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str):
        return clean(value, MAX_TEXT)
    if not deep and isinstance(value, list) and len(value) <= MAX_STATISTICS:
        return [_plain(item, f"{path}.{number}", deep=True) for number, item in enumerate(value)]
    if not deep and isinstance(value, Mapping) and len(value) <= MAX_STATISTICS:
        return {
            clean(name, 100): _plain(item, f"{path}.{name}", deep=True)
            for name, item in value.items()
        }
    raise FieldError(
        path,
        value,
        "must be a number, text, null, or a short list or map of these",
        limit=f"finite, at most {MAX_SEED}",
    )


def _list(value: object, path: str, most: int) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > most:
        raise FieldError(path, value, "must be a list", limit=f"at most {most}")
    return value


def _text(value: object, path: str, most: int = MAX_TEXT) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise FieldError(path, value, "must be text")
    return clean(value, most)
