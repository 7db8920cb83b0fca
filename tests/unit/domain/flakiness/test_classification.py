"""The classes of a commit's tests, what a waiver changes about them, and when a gate closes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from gonogo.flakiness.classes import Class, OpenFlag, RunSummary
from gonogo.flakiness.classification import Classification, classify
from gonogo.flakiness.gating import FailOn, gate
from gonogo.flakiness.masking import Fault, Record, Seed
from gonogo.flakiness.waivers import RED_OR_HOLLOW, WAIVABLE, waivable, waived
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_service.waivers.model import WaiverRow

KIM = {"owner": "kim", "reason": "a race, see the board", "expires": "2026-12-01T00:00:00Z"}
FLAGS = {
    "flaky": OpenFlag("f1", "flaky", False),
    "hollow": OpenFlag("f", "passes_by_tolerance", False),
    "hangs": OpenFlag("f", "hangs", False),
    "kim's flaky": OpenFlag("f2", "flaky", True, **KIM),
    "known hollow": OpenFlag("f", "passes_by_tolerance", True),
    "known hangs": OpenFlag("f", "hangs", True),
    "known tight": OpenFlag("f", "tolerance_too_tight", True),
}
SHORT = {"hollow": "pass_by_tolerance", "alarm": "fail_by_tolerance"}
EMPTY = {"canceled": "cancelled", "late": "queue deadline"}
FAULTS = {"twice": Fault("twice:s1", 1.0), "part": Fault("factor:s2", 0.1)}
ERRORS = dict.fromkeys(("red twice", "red part", "red wrong"), "fail")
ERRORS |= {"green right": "pass"} | dict.fromkeys(("green twice", "green part"), SHORT["hollow"])
"""Verdict of eight seeds of this color and error."""


def record(build: str, error: str, *, green: bool) -> Record:
    """Return a record of eight equal seeds that are right, or wrong with an error of FAULTS."""
    explanation = Explanation.explained if error == "right" else Explanation.unexplained
    faults = {"dx": FAULTS[error]} if error in FAULTS else {}
    seeds = {n: Seed(green, explanation, {"dx": f"{build}{n}"}, faults) for n in range(8)}
    return Record(build, seeds)


def side(text: str, build: str = "b") -> RunSummary | None:
    """Summarize the runs of one side: `fail 3 pass 5`, or `-` for none of this test.

    red, green: runs that weren't judged; canceled, late: jobs that ended without a result;
    waiting: jobs; `lab/0 7`: runs on a sick device; `nothing`: no job at all; or one of ERRORS.
    """
    if text == "-":
        return None
    words = [] if text == "nothing" else text.split()
    if text in ERRORS:
        errors = record(build, words[1], green=words[0] == "green")
        return RunSummary(build, ("job",), {ERRORS[text]: 8}, record=errors)
    counts = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    red, green, waiting = (counts.pop(name, 0) for name in ("red", "green", "waiting"))
    sick = {name: counts.pop(name) for name in list(counts) if "/" in name}
    ended_empty = {EMPTY[name]: counts.pop(name) for name in list(counts) if name in EMPTY}
    verdicts = {SHORT.get(name, name): number for name, number in counts.items()}
    if red + green:
        verdicts["not_judged"] = red + green
    jobs = ("job",) if words else ()
    empty = {"sick": sick, "ended_empty": ended_empty, "waiting": waiting}
    return RunSummary(build, jobs, verdicts, red, **empty)


def classified(base: str, head: str, *flags: str) -> Classification:
    return classify(side(base, "base"), side(head, "head"), [FLAGS[flag] for flag in flags])


CASES = """
red:
pass 8 > fail 8 > new_failure fail new p: red 8 of 8; none of 8 on base
pass 8 > fail 1 pass 7 > new_failure fail new: red 1 of 8; none of 8 on
hollow 8 > fail 8 > new_failure fail new p: red 8 of 8; none of 8 on base
green 8 > red 8 > new_failure not_judged new p: red 8 of 8; none of 8 on
fail 1 pass 63 > fail 64 > new_failure fail new p: red 64 of 64; red on base, too, but less often
alarm 8 > fail 8 > new_failure fail new p: red 8 of 8; base was red, too, and right: 8 of 8
fail 8 > fail 8 > broken_on_base fail: red 8 of 8; on base 8 of 8
fail 2 pass 6 > fail 4 pass 4 > broken_on_base fail: red 4 of 8; on base 2 of 8
red 1 green 7 > red 8 > broken_on_base not_judged: red 8 of 8; on base 1
fail 4 hollow 4 > fail 8 > broken_on_base fail: red 8 of 8; on base 4 of 8
pass 8 > fail 2 pass 6 + flaky > known_flaky fail flag: red 2 of 8; open flag flaky
- > fail 2 pass 6 + flaky > known_flaky fail flag: red 2 of 8; open flag flaky
pass 64 > fail 64 + flaky > new_failure fail new p flag: red 64 of 64; none of 64 on base;
    worse than open flag flaky can account for
pass 8 > fail 2 pass 6 + hollow > new_failure fail new: red 2 of 8
pass 8 > fail 8 + kim's flaky > waived fail p flag: red 8 of 8; flag flaky, acknowledged by kim
    until 2026-12-01 00:00 UTC: a race, see the board
pass 8 > fail 8 + flaky + kim's flaky > waived fail p flag: red 8 of 8; flag flaky, acknowledged by
- > fail 8 > unknown fail: red 8 of 8; base was not run
error 8 > fail 8 > unknown fail: red 8 of 8; base gave no answer
waiting 1 > fail 8 > unknown fail: red 8 of 8; base has not finished

red though right:
pass 8 > alarm 1 pass 7 > false_alarm fail_by_tolerance new: red though right 1 of 8; on base 0 of 8
alarm 1 pass 7 > alarm 1 pass 7 > false_alarm fail_by_tolerance: red though right 1 of 8; on base 1
- > alarm 8 > false_alarm fail_by_tolerance: red though right 8 of 8; base
pass 8 > alarm 8 + known tight > waived fail_by_tolerance p flag: red though right 8 of 8; flag
    tolerance_too_tight, acknowledged by someone: no reason given

green and wrong:
pass 8 > hollow 8 > new_hollow_pass pass_by_tolerance new p: green and unexplained 8 of 8; none of 8
fail 8 > hollow 8 > new_hollow_pass pass_by_tolerance new p: green and unexplained 8 of 8; red on
hollow 8 > hollow 8 > known_hollow pass_by_tolerance: green and unexplained 8 of 8; on base 8 of 8
hollow 1 pass 63 > hollow 64 > new_hollow_pass pass_by_tolerance new p: green and unexplained 64
    of 64; on base 1
pass 8 > hollow 1 pass 7 + hollow > known_hollow pass_by_tolerance flag: green and unexplained 1 of
    8; open flag
pass 2 > hollow 2 + hollow > new_hollow_pass pass_by_tolerance new flag: green and unexplained 2
    of 2; none of 2
fail 1 pass 1 > hollow 2 + hollow > new_hollow_pass pass_by_tolerance new flag: green and
    unexplained 2 of 2; red on base
- > hollow 8 + hollow > known_hollow pass_by_tolerance flag: green and
- > hollow 8 > unknown pass_by_tolerance: green and unexplained 8 of 8; base
green 8 > hollow 8 > unknown pass_by_tolerance p: green and unexplained 8 of 8; base has no arrays
pass 8 > hollow 8 + known hollow > waived pass_by_tolerance p flag:

lost:
- > hang 1 pass 7 > infrastructure hang: 1 of 8 runs: hang
pass 8 > hang 1 pass 7 > infrastructure hang new: 1 of 8 runs: hang
hang 1 pass 7 > hang 1 pass 7 > infrastructure hang: 1 of 8 runs: hang; on base, too: 1
pass 8 > hang 1 pass 7 + hangs > infrastructure hang flag: 1 of 8
pass 8 > hang 1 pass 7 + known hangs > waived hang flag: 1 of 8 runs: hang; flag hangs, acknowledged
    by someone: no reason
pass 8 > pass 1 lab/1 2 lab/0 7 > infrastructure error: left out, because the device was sick: 7 on
    lab/0, 2 on lab/1
pass 8 > canceled 1 late 2 > infrastructure error: ended without a result: 1 cancelled, 2 queue
    deadline
pass 8 > pass 1 canceled 1 > passed pass: green 1 of 1
pass 8 > pass 1 waiting 1 > pending inconclusive: 1 job of head not finished
pass 8 > waiting 2 canceled 1 > pending inconclusive: 2 jobs of head not finished
pass 8 > nothing > not_run not_run: 8 runs on base, none on head
pass 8 > - > not_run not_run: 8 runs on base, none on head

good news, and none:
fail 8 > pass 8 > fixed pass: green 8 of 8; red on base 8 of 8
alarm 8 > green 8 > fixed not_judged: green 8 of 8, without arrays to
fail 64 > pass 64 + flaky > fixed pass: green 64 of 64; red on base 64 of 64
fail 1 pass 7 > pass 8 + flaky > passed pass flag: green 8 of 8; open flag flaky: too few seeds to
    call it fixed
hollow 8 > pass 8 > no_longer_hollow pass: green 8 of 8; green and unexplained on base 8 of 8
hollow 8 > green 8 > passed not_judged: green 8 of 8, without arrays to
- > pass 8 > passed pass: green 8 of 8
pass 8 > inconclusive 1 pass 7 > passed pass: green 7 of 7
pass 8 > suspect 1 pass 7 > undecided suspect: 1 of 8 runs: suspect
pass 8 > inconclusive 6 skipped 2 > undecided inconclusive: 6 of 8 runs
pass 8 > skipped 6 not_run 2 > not_run skipped: 6 of 8 runs: skipped

the errors tell:
red twice > green twice > new_hollow_pass pass_by_tolerance new p: green and unexplained 8 of 8; red
    on base, and the same error stays: masked, not fixed (the verdict turned green, and the error
    stayed: the fault is masked, not fixed, by faults)
green twice > red twice > broken_on_base fail p: red 8 of 8; on base the same error, hidden by the
    tolerance (the error is unexplained on both, and looks the same, by faults)
red twice > red twice > broken_on_base fail: red 8 of 8; on base 8
red twice > red part > new_failure fail new: red 8 of 8; red on base, too, with another error (the
green twice > green part > new_hollow_pass pass_by_tolerance new: green and unexplained 8 of 8; with
    another error than on base (the error is unexplained on both, and looks different
green twice > green twice > known_hollow pass_by_tolerance: green
green right > red wrong > new_failure fail new p: red 8 of 8; none of 8 on base (rounding explained
    the error, and does not any more)

several:
pass 8 > fail 6 error 2 > new_failure | infrastructure
alarm 2 pass 6 > alarm 2 hollow 6 > new_hollow_pass | false_alarm
pass 8 > fail 1 hollow 7 + kim's flaky > new_hollow_pass | waived
- > fail 1 waiting 2 > unknown | pending
"""


LINES = [line for line in CASES.replace("\n    ", " ").splitlines() if " > " in line]


@pytest.mark.parametrize("case", LINES)
def test_every_case_has_its_classes_and_says_why(case: str) -> None:
    """base > head + flags > class verdict marks (new; p: head is worse; a flag): words, begun."""
    base, head_with_flags, begins = case.split(" > ")
    head, *flags = head_with_flags.split(" + ")
    findings = classified(base, head, *flags).findings
    for finding, begin in zip(findings, begins.split(" | "), strict=True):
        has = {"new": finding.new, "p": finding.evidence.get("p") is not None}
        has["flag"] = "flag" in finding.evidence
        marks = [mark for mark, is_there in has.items() if is_there]
        line = f"{' '.join((finding.kind, finding.verdict, *marks))}: {finding.words}"
        assert line.startswith(begin)


def test_the_evidence_has_rates_the_test_and_the_flag() -> None:
    (finding,) = classified("pass 64", "fail 64", "flaky").findings
    evidence: Mapping[str, Any] = finding.evidence
    assert (evidence["head"]["failures"], evidence["head"]["runs"]) == (64, 64)
    assert (evidence["base"]["failures"], evidence["flag"]["id"]) == (0, "f1")
    assert evidence["p"] < 1e-20
    with pytest.raises(ValueError, match="base or head"):
        classify(None, None)


# waivers

END = datetime(2026, 12, 1, tzinfo=UTC)


def waiver(**changes: Any) -> WaiverRow:
    about = {"id": "o1", "owner": "kim", "reason": "the race of ticket 12", "expires_at": END}
    return WaiverRow(**{**about, "classes": RED_OR_HOLLOW, "test": "v1-a", **changes})


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"test": "v1-b"}, False),
        ({"test": None, "names": ("layernorm_* 32x*",)}, True),
        ({"test": None, "names": ("rmsnorm *",)}, False),
        ({"names": ("*", "!layernorm_bw*")}, False),
        ({"test": None, "labels": {"suite": "nightly"}}, True),
        ({"test": None, "labels": {"suite": "nightly", "team": "x"}}, False),  # one per job
        ({"builds": ("kernels-*",)}, True),
        ({"builds": ("release-*",)}, False),
    ],
)
def test_everything_that_a_waiver_names_must_fit(changes: dict[str, Any], fits: bool) -> None:
    about = "v1-a", ["layernorm_bw 32x64"], [{"suite": "nightly"}, {"team": "x"}]
    assert waiver(**changes).concerns(*about, "kernels-1f") is fits
    assert waiver(**changes).concerns(*about) is (fits or "builds" in changes)


def test_the_class_is_waived_and_the_verdict_stays() -> None:
    classification = classified("pass 8", "fail 6 error 2")
    (lost, red) = waived(classification, [waiver()]).findings
    assert (lost.kind, lost.verdict) == (Class.infrastructure, Verdict.error)
    assert (red.kind, red.verdict, red.new) == (Class.waived, Verdict.fail, False)
    words = "waived until 2026-12-01 by kim: the race of ticket 12"
    assert red.words == f"red 6 of 6; none of 8 on base; {words}"
    assert red.evidence["otherwise"] == "new_failure"
    about = {"id": "o1", "owner": "kim", "reason": "the race of ticket 12", "expires": END}
    assert red.evidence["waiver"] == {**about, "words": words}
    assert red.evidence["head"]["failures"] == 6  # the evidence still has the rates
    assert gate([waived(classification, [waiver()])]).code == 3  # the crash is not covered
    assert gate([waived(classification, [waiver(classes=WAIVABLE)])], FailOn.any).code == 0


@pytest.mark.parametrize(
    ("base", "head"),
    [
        ("pass 8", "pass 1 waiting 1"),
        ("pass 8", "canceled 1"),
        ("pass 8", "lab/0 8"),
        ("pass 8", "pass 8"),
        ("fail 8", "pass 8"),
    ],
)
def test_nothing_is_waived_that_is_not_red_or_never_ran(base: str, head: str) -> None:
    classification = classified(base, head)
    assert not waivable(classification)
    assert waived(classification, [waiver(classes=WAIVABLE)]) is classification


def test_a_waiver_waives_only_the_classes_that_it_names() -> None:
    new = classified("pass 8", "fail 8")
    assert waived(new, [waiver(classes=(Class.known_flaky,))]) is new
    assert Class.infrastructure not in RED_OR_HOLLOW


def test_an_acknowledged_flag_is_named_before_a_waiver_and_of_several_the_longest() -> None:
    (by_flag,) = waived(classified("pass 8", "fail 8", "kim's flaky"), [waiver()]).findings
    assert (by_flag.evidence["flag"]["id"], "waiver" in by_flag.evidence) == ("f2", False)
    later = waiver(id="o2", expires_at=END.replace(hour=12))
    (by_waiver,) = waived(classified("pass 8", "fail 8"), [waiver(), later]).findings
    assert by_waiver.evidence["waiver"]["id"] == "o2"
    assert "until 2026-12-01 12:00 UTC by" in by_waiver.words


# gates

GATES = {
    "new_failure": classified("pass 8", "fail 8"),
    "new_hollow_pass": classified("pass 8", "hollow 8"),
    "broken_on_base": classified("fail 8", "fail 8"),
    "known_hollow": classified("hollow 8", "hollow 8"),
    "false_alarm": classified("pass 8", "alarm 8"),
    "waived": classified("pass 8", "fail 8", "kim's flaky"),
    "unknown": classified("-", "fail 8"),
    "unknown hollow": classified("-", "hollow 8"),
    "new hang": classified("pass 8", "hang 8"),
    "old hang": classified("hang 8", "hang 8"),
    "error": classified("pass 8", "error 8"),
    "pending": classified("pass 8", "waiting 1"),
    "undecided": classified("pass 8", "suspect 8"),
    "red gtest": classified("red 8", "red 8"),
    "green gtest": classified("green 8", "green 8"),
    "passed": classified("pass 8", "pass 8"),
    "not_run": classified("pass 8", "-"),
}
NEW = {"new_failure", "new hang"}
RED = NEW | {"broken_on_base", "unknown", "old hang", "error", "red gtest"}
HOLLOW = RED | {"new_hollow_pass", "known_hollow", "unknown hollow"}
OPEN = {"pending", "not_run"}


@pytest.mark.parametrize(
    ("level", "closed", "undecided"),
    [
        ("new", NEW | {"new_hollow_pass"}, OPEN | {"unknown", "unknown hollow", "error"}),
        ("fail", RED, OPEN | {"unknown hollow"}),
        ("hollow", HOLLOW, OPEN),
        ("suspect", HOLLOW | {"false_alarm", "undecided"}, OPEN),
        ("any", set(GATES) - {"passed", "waived", "pending"}, {"pending"}),
    ],
)
def test_a_gate_closes_for_what_its_level_names(
    level: str, closed: set[str], undecided: set[str]
) -> None:
    codes = {name: gate([classification], level).code for name, classification in GATES.items()}
    assert {name for name, code in codes.items() if code == 1} == closed
    assert {name for name, code in codes.items() if code == 3} == undecided


def test_a_gate_takes_the_worst_and_nothing_at_all_is_not_green() -> None:
    closed = gate(list(GATES.values()))
    assert closed.code == 1
    assert closed.words == "1 new failure, 1 new hollow pass, 1 infrastructure"
    assert gate([]).code == 3
    assert gate([GATES["passed"], GATES["not_run"]], FailOn.new).code == 0
