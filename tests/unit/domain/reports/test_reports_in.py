"""Reports of test runs that happened elsewhere: the rows of each format, and the refusal of
hostile files."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest

from gonogo.errors import FieldError
from gonogo.reports import xml
from gonogo.reports.cases import Case, TestReport
from gonogo.reports.outcomes import Outcome
from gonogo.reports.reading import guess, read
from gonogo.reports.rows import rows_of
from gonogo.spec.verdicts import JUDGE

JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests">
<testsuite name="pytest" errors="1" tests="6" timestamp="2026-01-31T12:00:00+00:00">
<testcase classname="tests.test_ln.TestDx" name="test_right[32]" time="0.25"><properties>
<property name="max_diff" value="0.5"/>
<property name="board" value="n150"/></properties></testcase>
<testcase classname="tests.test_ln" name="test_wrong" time="1,234.5"
 file="tests/test_ln.py" line="31">
<failure message="assert 1 &lt; 0">tests/test_ln.py:33: AssertionError</failure>
<system-out>much</system-out></testcase>
<testcase classname="tests.test_ln" name="test_setup"><error message="no device"/></testcase>
<testcase classname="tests.test_ln" name="test_later">
<skipped type="pytest.skip" message="no board"/></testcase>
<testcase classname="tests.test_ln" name="test_flaky">
<flakyFailure message="once">trace</flakyFailure></testcase>
<testcase classname="tests.test_ln" name="test_off" status="disabled"/>
</testsuite></testsuites>"""
GTEST_XML = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="3" failures="1" disabled="1" errors="0" time="0.1"
 timestamp="2026-01-31T12:00:00.1" name="AllTests">
<testsuite name="Ln" tests="3">
<testcase name="Backward" file="ln.cpp" line="6" status="run" result="completed"
 time="27.002" classname="Ln" max_diff="0.75">
<failure message="ln.cpp:183&#x0A;Value of: allclose(dx, ref)&#x0A;  Actual: false"
 type=""><![CDATA[ln.cpp:183
Value of: allclose(dx, ref)
  Actual: false]]></failure></testcase>
<testcase name="DISABLED_Big" status="notrun" result="suppressed" time="0" classname="Ln"/>
<testcase name="Small" value_param="4" status="run" result="completed" time="0.001"
 classname="Ln"/></testsuite></testsuites>"""
GTEST_JSON = r"""{"tests": 3, "name": "AllTests", "timestamp": "2026-01-31T12:00:00Z",
 "testsuites": [{"name": "Ln", "testsuite": [
  {"name": "Backward", "file": "ln.cpp", "line": 6, "status": "RUN", "result": "COMPLETED",
   "time": "27.002s", "classname": "Ln", "max_diff": "0.75",
   "failures": [{"failure": "ln.cpp:183\nValue of: allclose(dx, ref)\n  Actual: false"}]},
  {"name": "DISABLED_Big", "status": "NOTRUN", "result": "SUPPRESSED", "time": "0s",
   "classname": "Ln"},
  {"name": "Small", "value_param": "4", "status": "RUN", "result": "COMPLETED",
   "time": "0.001s", "classname": "Ln"}]}]}"""
CTRF = """{"reportFormat": "CTRF", "results": {"tool": {"name": "jest", "version": "30"},
 "summary": {}, "environment": {"commit": "4f1c2d9", "repositoryName": "org/name"}, "tests": [
  {"name": "adds", "status": "passed", "duration": 801, "suite": ["math", "sums"],
   "filePath": "a.js", "tags": ["fast"]},
  {"name": "flickers", "status": "passed", "duration": 1, "flaky": true, "retries": 1},
  {"name": "breaks", "status": "failed", "duration": 2, "message": "expected 1",
   "trace": "at a.js:3"},
  {"name": "waits", "status": "pending", "duration": 0},
  {"name": "lost", "status": "other", "duration": 0, "rawStatus": "cancelled"}]}}"""
SPEC = {"kernel": "layernorm_bw", "shape": [1, 1, 32, 64], "tolerance": {"rtol": 1e-3, "atol": 0.5}}
COMMON = {"source": "rstd", "estimate": 0.0, "deviation": 1e-7, "is_certain": False, "limit": 2e-7}
NUMBERS = {"count": 2048, "nonfinite": 0, "tolerance_ratio": 0.03, "rounding_ratio": 0.9}
NEEDED = {"needed_atol": {"0.001": 0.01}}
RIGHT = NUMBERS | NEEDED | {"common": [COMMON], "explanation": "explained"}


def outcomes(report: TestReport) -> dict[str, str]:
    return {case.name: case.outcome.value for case in report.cases}


def case_of(report: TestReport, name: str) -> Case:
    return next(case for case in report.cases if case.name.endswith(name))


def lines(*tests: dict[str, Any], **header: Any) -> bytes:
    records = ({"format": "gonogo", "version": 1, **header}, *tests)
    return "\n".join(map(json.dumps, records)).encode()


def passed(*comparisons: Any, **fields: Any) -> dict[str, Any]:
    return {"name": "t", "outcome": "passed", "comparisons": list(comparisons), **fields}


def row_of(*tests: dict[str, Any]) -> dict[str, Any]:
    return rows_of(read(lines(*tests), "gonogo"))[-1]


def test_junit_tells_outcomes_times_places_and_measurements() -> None:
    report = read(JUNIT.encode(), "junit")
    assert (report.suite, report.started_at) == ("pytest tests", "2026-01-31T12:00:00+00:00")
    assert report.numbers is False
    assert outcomes(report) == {
        "tests.test_ln.TestDx.test_right[32]": "passed",
        "tests.test_ln.test_wrong": "failed",
        "tests.test_ln.test_setup": "error",
        "tests.test_ln.test_later": "skipped",
        "tests.test_ln.test_flaky": "failed",
        "tests.test_ln.test_off": "skipped",
    }
    right, wrong = case_of(report, "test_right[32]"), case_of(report, "test_wrong")
    assert (right.measurements, right.duration_ms) == ({"max_diff": 0.5}, 250.0)
    assert right.more == {"properties": {"board": "n150"}}
    assert (wrong.duration_ms, wrong.more) == (
        1_234_500.0,
        {"file": "tests/test_ln.py", "line": 31},
    )
    assert wrong.message == "assert 1 < 0\ntests/test_ln.py:33: AssertionError"
    flaky = case_of(report, "test_flaky").message
    assert flaky.startswith("failed, then passed when it was run again")


@pytest.mark.parametrize(("data", "form"), [(GTEST_XML, "gtest-xml"), (GTEST_JSON, "gtest-json")])
def test_both_reports_of_googletest_come_to_the_same(data: str, form: str) -> None:
    assert guess(data.encode()) == form
    report = read(data.encode(), form)
    assert (report.suite, report.tool) == (None, "googletest")
    names = {"Ln.Backward": "failed", "Ln.DISABLED_Big": "skipped", "Ln.Small": "passed"}
    assert outcomes(report) == names
    backward = case_of(report, "Ln.Backward")
    assert (backward.measurements, backward.duration_ms) == ({"max_diff": 0.75}, 27002.0)
    assert backward.more["line"] == 6
    (failure,) = backward.failures
    assert failure["expression"] == "allclose(dx, ref)"
    assert (failure["file"], failure["line"]) == ("ln.cpp", 183)
    assert case_of(report, "Ln.Small").more == {"value_param": "4"}


def test_ctrf_tells_suites_flaky_tests_and_the_commit() -> None:
    report = read(CTRF.encode(), "ctrf")
    assert (report.tool, report.suite) == ("jest 30", "jest")
    assert report.commit == {"repository": "org/name", "sha": "4f1c2d9"}
    assert outcomes(report) == {
        "math > sums.adds": "passed",
        "flickers": "failed",
        "breaks": "failed",
        "waits": "skipped",
        "lost": "error",
    }
    assert case_of(report, "lost").message == "status other: cancelled"
    odd = read(CTRF.replace('"name": "lost"', '"name": "lost", "tags": 5').encode(), "ctrf")
    assert case_of(odd, "lost").more == case_of(report, "lost").more
    assert case_of(report, "breaks").failures[0]["message"] == "expected 1\nat a.js:3"


def test_without_numbers_red_and_green_are_not_judged_and_the_same_name_twice_is_kept() -> None:
    twice = '<testsuite><testcase name="a"/><testcase name="a"><failure/></testcase></testsuite>'
    (row,) = rows_of(read(twice.encode(), "junit"))
    assert row["verdict"] == "not_judged"
    by_name = {name: (one["verdict"], one["outcome"]) for name, one in row["outputs"].items()}
    assert by_name == {"a": ("not_judged", "passed"), "a (2)": ("not_judged", "failed")}
    often = read(b"<testsuite>" + b'<testcase name="a"/>' * 10_000 + b"</testsuite>", "junit")
    began = time.process_time()
    (row,) = rows_of(often)
    assert len(row["outputs"]) == 10_000
    assert time.process_time() - began < 10


def test_a_file_without_tests_is_never_green() -> None:
    (row,) = rows_of(read(b"<testsuites/>", "junit"))
    assert (row["verdict"], row["message"]) == ("not_run", "the file has no tests")


@pytest.mark.parametrize(
    ("outcome", "numbers", "verdict"),
    [
        ("passed", {}, "pass"),
        ("passed", {"explanation": "unexplained"}, "pass_by_tolerance"),
        ("passed", {"needed_atol": {"0.001": 0.7}}, "fail_by_tolerance"),
        ("failed", {"explanation": "unexplained"}, "fail"),
        ("passed", {"explanation": "suspect"}, "suspect"),
        ("passed", {"explanation": None}, "not_judged"),
        ("failed", {}, "not_judged"),  # red for a reason that its arrays don't show
        ("error", {}, "error"),
    ],
)
def test_a_verdict_comes_from_numbers_and_explanation_whatever_the_file_says_of_it(
    outcome: str, numbers: dict[str, Any], verdict: str
) -> None:
    entry = {**RIGHT, **numbers, "verdict": "pass"}
    comparison = {"test": SPEC, "arithmetic": "blocked sums", "outputs": {"dx": entry}}
    row = row_of(passed(comparison, outcome=outcome, seed=7))
    assert (row["seed"], row["verdict"], row["arithmetic"]) == (7, verdict, "blocked sums")
    assert row["judge"] == JUDGE
    assert row["outputs"]["t/dx"]["common"] == RIGHT["common"]
    assert row["outputs"]["t"]["seed"] == 7
    assert row["outputs"]["t/dx"]["test"]["shape"] == [1, 1, 32, 64]


def test_numbers_without_a_spec_are_not_judged_and_bad_arrays_change_no_outcome() -> None:
    numbers = {"max_abs": 0.5, "tolerance_in_roundings": 12.5}
    gate = {"name": "late", "tolerance": {"rtol": 0.01}, "outputs": {"actual": numbers}}
    row = row_of(passed(gate, {**gate, "name": None}))
    assert row["verdict"] == "not_judged"
    assert set(row["outputs"]) == {"t", "t#late/actual", "t#2/actual"}
    output = row["outputs"]["t#late/actual"]
    assert output["tolerance_in_roundings"] == 12.5
    assert output["tolerance"] == {"rtol": 0.01, "atol": 0.0}
    row = row_of(passed({"problem": "x is missing"}))
    assert (row["verdict"], row["outputs"]["t"]["message"]) == ("not_judged", "x is missing")


def test_a_comparison_of_a_kernel_that_is_not_here_is_kept_and_the_others_are_judged() -> None:
    good = {"test": SPEC, "outputs": {"dx": RIGHT}}
    foreign = {"test": {"kernel": "l2norm_fw", "anything": 1}, "outputs": {"y": {"max_abs": 0.5}}}
    there = passed({**foreign, "words": "a note"}, name="there")
    outputs = row_of(passed(good, name="here"), there)["outputs"]
    assert (outputs["here/dx"]["verdict"], outputs["there"]["verdict"]) == ("pass", "not_judged")
    words = "not judged: this server has no kernel l2norm_fw\na note"
    assert outputs["there"]["message"] == words
    answer = {"verdict": "not_judged", "explanation": "not_judged", "max_abs": 0.5}
    assert outputs["there/y"] == answer


def compared(**output: Any) -> dict[str, Any]:
    return passed({"outputs": {"y": output}})


@pytest.mark.parametrize(
    ("test", "field"),
    [
        ({"name": "t", "outcome": "green"}, "outcome"),
        ({"outcome": "passed"}, "name"),
        (passed(seed=2**53), "seed"),
        (passed(colour=1), "colour"),
        (passed(measurements={"a": "1"}), "measurements.a"),
        (compared(max_abs=1e999), ""),
        (compared(rms="low"), "comparisons.0.outputs.y.rms"),
        (compared(explanation="right"), "comparisons.0.outputs.y.explanation"),
        (passed({"test": {**SPEC, "shape": [0]}}), "comparisons.0.test.shape.0"),
        (passed({"test": SPEC, "outputs": {"dz": {}}}), "comparisons.0.outputs.dz"),
    ],
)
def test_a_wrong_field_of_a_line_is_named(test: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as caught:
        read(lines(test), "gonogo")
    assert caught.value.field == f"lines.2.{field}".rstrip(".")


def _laughs() -> str:
    entities = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    return f'<!DOCTYPE lolz [<!ENTITY l0 "lol">{entities}]><testsuites name="&l9;"/>'


HOSTILE = {
    "billion laughs": _laughs(),
    "a file of this machine": (
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><testsuites name="&x;"/>'
    ),
    "quadratic": (
        f'<!DOCTYPE a [<!ENTITY x "{"x" * 10_000}">]><testsuites><testsuite '
        f'name="{"&x;" * 10_000}"/></testsuites>'
    ),
    "a document type of another host": '<!DOCTYPE a SYSTEM "http://127.0.0.1:1/a.dtd"><testsuites/>',
    "too deep": "<testsuite>" * 100_000,
    "too many attributes": '<testsuite a="" {}/>'.format(" ".join(f"b{n}=''" for n in range(100))),
    "an undeclared entity": '<testsuites name="&nbsp;"/>',
    "an unknown encoding": '<?xml version="1.0" encoding="utf-7"?><testsuites/>',
    "another root": "<html/>",
    "cut off": "<testsuites><testsuite>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_xml_is_refused_and_cheaply(name: str) -> None:
    data = HOSTILE[name].encode()
    tracemalloc.start()
    try:
        with pytest.raises(FieldError) as caught:
            read(data, "junit")
        # the laughs would be 3 GB, the quadratic one 100 MB
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
    assert caught.value.field == "file"


def test_texts_tags_and_the_number_of_elements_have_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(xml, "MAX_ELEMENTS", 3)
    log = "x" * (xml.MAX_TEXT + 10_000)
    texts: list[str] = []
    xml.read(f"<a><b>{log}</b></a>".encode(), lambda *_: None, lambda _, text: texts.append(text))
    assert [len(text) for text in texts] == [xml.MAX_TEXT, 0]
    with pytest.raises(FieldError, match="too many elements"):
        read(b"<testsuite><testcase/><testcase/><testcase/></testsuite>", "junit")
    with pytest.raises(FieldError, match="too large a tag"):
        read(b'<testsuite name="' + b"x" * 2 * xml.MAX_TAG + b'"/>', "junit")


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("ctrf", b"[" + b"[]," * 2**20 + b"[]]"),
        ("gtest-json", b"[" + b"1," * 2**22 + b"1]"),
        ("gonogo", b"[" + b"[]," * 2**20 + b"[]]"),
    ],
)
def test_json_that_grows_when_it_is_read_is_refused_unread(form: str, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(FieldError, match="too"):
            read(data, form)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", ["gtest-json", "ctrf", "gonogo"])
@pytest.mark.parametrize(
    "data",
    [b"", b"[" * 100_000, b"\xff\xfe", b"{}", b"[]", b'{"results": {"tests": 1}, "testsuites": 1}'],
)
def test_what_is_no_report_is_a_problem_of_a_field(form: str, data: bytes) -> None:
    with pytest.raises(FieldError):
        read(data, form)


def test_the_format_is_guessed_from_the_file() -> None:
    assert guess(b"\xef\xbb\xbf \n" + JUNIT.encode()) == "junit"
    assert guess(CTRF.encode()) == "ctrf"
    assert guess(lines()) == "gonogo"
    with pytest.raises(FieldError, match="has an unknown format"):
        guess(b"\x7fELF")


def test_what_databases_cant_hold_is_replaced() -> None:
    row = row_of({"name": "a\x00b\ud800", "outcome": "failed", "message": "\x00"})
    assert list(row["outputs"]) == ["a\ufffdb?"]
    assert row["outputs"]["a\ufffdb?"]["outcome"] == Outcome.failed
