"""The classes of a commit's tests: the table of cases, several findings, and when a gate closes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gonogo.flakiness.classes import OpenFlag, RunSummary
from gonogo.flakiness.classification import classify
from gonogo.flakiness.gating import FailOn, gate
from gonogo.flakiness.masking import Fault, Record, Seed
from gonogo.spec.verdicts import Explanation, Verdict

OPEN = OpenFlag("f1", "flaky", False)
ACKNOWLEDGED = OpenFlag(
    "f2", "flaky", True, owner="kim", reason="a race, see the board", expires="2026-12-01T00:00:00Z"
)

SHORT = {"hollow": "pass_by_tolerance", "alarm": "fail_by_tolerance"}


def ran(build: str = "b", record: Record | None = None, **counts: int) -> RunSummary:
    """Summarize the runs of one side: `ran(fail=3, pass_=5)`.

    `red` and `green` count runs that were not judged, by the color that they report.
    """
    red, green = counts.pop("red", 0), counts.pop("green", 0)
    counts = {SHORT.get(name, name.rstrip("_")): number for name, number in counts.items()}
    verdict_counts = counts | ({"not_judged": red + green} if red + green else {})
    return RunSummary(build, ("job",), verdict_counts, red, record=record)


def record(
    build: str,
    *,
    green: bool,
    wrong: bool = True,
    faults: Mapping[str, float] | None = None,
    seeds: int = 8,
) -> Record:
    """Return a record of equal seeds, with the sizes of dx's fault by its name."""
    explanation = Explanation.unexplained if wrong else Explanation.explained
    named = {"dx": Fault(*next(iter(faults.items())))} if faults else {}
    return Record(
        build,
        {
            number: Seed(green, explanation, {"dx": f"{build}{number}"}, named)
            for number in range(seeds)
        },
    )


def kinds(base: RunSummary | None, head: RunSummary | None, *flags: OpenFlag) -> list[str]:
    """Return the class of each finding."""
    return [finding.kind.value for finding in classify(base, head, flags).findings]


HOLLOW, TOO_TIGHT, HANGS = "passes_by_tolerance", "tolerance_too_tight", "hangs"
TWICE, PART = {"twice:s1": 1.0}, {"factor:s2": 0.1}


def flag(kind: str, acknowledged: bool = False) -> OpenFlag:
    return OpenFlag("f", kind, acknowledged)


def red(build: str, faults: Mapping[str, float]) -> RunSummary:
    return ran(build, record(build, green=False, faults=faults), fail=8)


def hidden(build: str, faults: Mapping[str, float]) -> RunSummary:
    return ran(build, record(build, green=True, faults=faults), hollow=8)


@pytest.mark.parametrize(
    ("base", "head", "flags", "finding"),
    [
        # red
        (ran(pass_=8), ran(fail=8), (), "new_failure fail new p: red 8 of 8; none of 8 on base"),
        (ran(pass_=8), ran(fail=1, pass_=7), (), "new_failure fail new: red 1 of 8; none of 8 on"),
        (ran(hollow=8), ran(fail=8), (), "new_failure fail new p: red 8 of 8; none of 8 on base"),
        (ran(green=8), ran(red=8), (), "new_failure not_judged new p: red 8 of 8; none of 8 on"),
        (ran(fail=1, pass_=63), ran(fail=64), (),
         "new_failure fail new p: red 64 of 64; red on base, too, but less often: 1 of 64"),
        (ran(alarm=8), ran(fail=8), (),
         "new_failure fail new p: red 8 of 8; base was red, too, and right: 8 of 8"),
        (ran(fail=8), ran(fail=8), (), "broken_on_base fail: red 8 of 8; on base 8 of 8"),
        (ran(fail=2, pass_=6), ran(fail=4, pass_=4), (),
         "broken_on_base fail: red 4 of 8; on base 2 of 8"),
        (ran(red=1, green=7), ran(red=8), (), "broken_on_base not_judged: red 8 of 8; on base 1"),
        (ran(fail=4, hollow=4), ran(fail=8), (), "broken_on_base fail: red 8 of 8; on base 4 of 8"),
        (ran(pass_=8), ran(fail=2, pass_=6), (OPEN,),
         "known_flaky fail flag: red 2 of 8; open flag flaky"),
        (None, ran(fail=2, pass_=6), (OPEN,), "known_flaky fail flag: red 2 of 8; open flag flaky"),
        (ran(pass_=64), ran(fail=64), (OPEN,),
         "new_failure fail new p flag: red 64 of 64; none of 64 on base; worse than open flag"
         " flaky can account for"),
        (ran(pass_=8), ran(fail=2, pass_=6), (flag(HOLLOW),), "new_failure fail new: red 2 of 8"),
        (ran(pass_=8), ran(fail=8), (ACKNOWLEDGED,),
         "waived fail p flag: red 8 of 8; flag flaky, acknowledged by kim until"
         " 2026-12-01T00:00:00Z: a race, see the board"),
        (None, ran(fail=8), (), "unknown fail: red 8 of 8; base was not run"),
        (ran(error=8), ran(fail=8), (), "unknown fail: red 8 of 8; base gave no answer"),
        (RunSummary("b", ("job",), waiting=1), ran(fail=8), (),
         "unknown fail: red 8 of 8; base has not finished"),
        # red though right
        (ran(pass_=8), ran(alarm=1, pass_=7), (),
         "false_alarm fail_by_tolerance new: red though right 1 of 8; on base 0 of 8"),
        (ran(alarm=1, pass_=7), ran(alarm=1, pass_=7), (),
         "false_alarm fail_by_tolerance: red though right 1 of 8; on base 1 of 8"),
        (None, ran(alarm=8), (), "false_alarm fail_by_tolerance: red though right 8 of 8; base"),
        (ran(pass_=8), ran(alarm=8), (flag(TOO_TIGHT, True),),
         "waived fail_by_tolerance p flag: red though right 8 of 8; flag tolerance_too_tight,"
         " acknowledged by someone: no reason given"),
        # green and wrong
        (ran(pass_=8), ran(hollow=8), (),
         "new_hollow_pass pass_by_tolerance new p: green and unexplained 8 of 8; none of 8 on"),
        (ran(fail=8), ran(hollow=8), (),
         "new_hollow_pass pass_by_tolerance new p: green and unexplained 8 of 8; red on base"),
        (ran(hollow=8), ran(hollow=8), (),
         "known_hollow pass_by_tolerance: green and unexplained 8 of 8; on base 8 of 8"),
        (ran(hollow=1, pass_=63), ran(hollow=64), (),
         "new_hollow_pass pass_by_tolerance new p: green and unexplained 64 of 64; on base 1"),
        (ran(pass_=8), ran(hollow=1, pass_=7), (flag(HOLLOW),),
         "known_hollow pass_by_tolerance flag: green and unexplained 1 of 8; open flag"),
        (
            ran(pass_=2),  # it was gone on base
            ran(hollow=2),
            (flag(HOLLOW),),
            "new_hollow_pass pass_by_tolerance new flag: green and unexplained 2 of 2; none of 2",
        ),
        (ran(fail=1, pass_=1), ran(hollow=2), (flag(HOLLOW),),
         "new_hollow_pass pass_by_tolerance new flag: green and unexplained 2 of 2; red on base"),
        (None, ran(hollow=8), (flag(HOLLOW),), "known_hollow pass_by_tolerance flag: green and"),
        (None, ran(hollow=8), (), "unknown pass_by_tolerance: green and unexplained 8 of 8; base"),
        (ran(green=8), ran(hollow=8), (),
         "unknown pass_by_tolerance p: green and unexplained 8 of 8; base has no arrays to"),
        (ran(pass_=8), ran(hollow=8), (flag(HOLLOW, True),), "waived pass_by_tolerance p flag: "),
        # lost
        (None, ran(hang=1, pass_=7), (), "infrastructure hang: 1 of 8 runs: hang"),
        (ran(pass_=8), ran(hang=1, pass_=7), (), "infrastructure hang new: 1 of 8 runs: hang"),
        (ran(hang=1, pass_=7), ran(hang=1, pass_=7), (),
         "infrastructure hang: 1 of 8 runs: hang; on base, too: 1"),
        (ran(pass_=8), ran(hang=1, pass_=7), (flag(HANGS),), "infrastructure hang flag: 1 of 8"),
        (ran(pass_=8), ran(hang=1, pass_=7), (flag(HANGS, True),),
         "waived hang flag: 1 of 8 runs: hang; flag hangs, acknowledged by someone: no reason"),
        (ran(pass_=8), RunSummary("h", ("j",), {"pass": 1}, sick={"lab/1": 2, "lab/0": 7}), (),
         "infrastructure error: left out, because the device was sick: 7 on lab/0, 2 on lab/1"),
        (ran(pass_=8), RunSummary("h", ("j",), ended_empty={"queue deadline": 2, "cancelled": 1}),
         (), "infrastructure error: ended without a result: 1 cancelled, 2 queue deadline"),
        (ran(pass_=8), RunSummary("h", ("j",), {"pass": 1}, ended_empty={"cancelled": 1}), (),
         "passed pass: green 1 of 1"),
        (ran(pass_=8), RunSummary("h", ("j",), {"pass": 1}, waiting=1), (),
         "pending inconclusive: 1 job of head not finished"),
        (ran(pass_=8), RunSummary("h", ("j",), waiting=2, ended_empty={"cancelled": 1}), (),
         "pending inconclusive: 2 jobs of head not finished"),
        (ran(pass_=8), RunSummary("h"), (), "not_run not_run: 8 runs on b, none on head"),
        (ran(pass_=8), None, (), "not_run not_run: 8 runs on b, none on head"),
        # good news, and none
        (ran(fail=8), ran(pass_=8), (), "fixed pass: green 8 of 8; red on base 8 of 8"),
        (ran(alarm=8), ran(green=8), (), "fixed not_judged: green 8 of 8, without arrays to"),
        (ran(fail=64), ran(pass_=64), (OPEN,), "fixed pass: green 64 of 64; red on base 64 of 64"),
        (
            ran(fail=1, pass_=7),  # a flaky test that happens to be green isn't fixed
            ran(pass_=8),
            (OPEN,),
            "passed pass flag: green 8 of 8; open flag flaky: too few seeds to call it fixed",
        ),
        (ran(hollow=8), ran(pass_=8), (),
         "no_longer_hollow pass: green 8 of 8; green and unexplained on base 8 of 8"),
        (ran(hollow=8), ran(green=8), (), "passed not_judged: green 8 of 8, without arrays to"),
        (None, ran(pass_=8), (), "passed pass: green 8 of 8"),
        (ran(pass_=8), ran(inconclusive=1, pass_=7), (), "passed pass: green 7 of 7"),
        (ran(pass_=8), ran(suspect=1, pass_=7), (), "undecided suspect: 1 of 8 runs: suspect"),
        (ran(pass_=8), ran(inconclusive=6, skipped=2), (), "undecided inconclusive: 6 of 8 runs"),
        (ran(pass_=8), ran(skipped=6, not_run=2), (), "not_run skipped: 6 of 8 runs: skipped"),
        # the errors tell
        (red("base", TWICE), hidden("head", TWICE), (),
         "new_hollow_pass pass_by_tolerance new p: green and unexplained 8 of 8; red on base,"
         " and the same error stays: masked, not fixed (the verdict turned green, and the error"
         " stayed: the fault is masked, not fixed, by faults)"),
        (hidden("base", TWICE), red("head", TWICE), (),
         "broken_on_base fail p: red 8 of 8; on base the same error, hidden by the tolerance"
         " (the error is unexplained on both, and looks the same, by faults)"),
        (red("base", TWICE), red("head", TWICE), (), "broken_on_base fail: red 8 of 8; on base 8"),
        (red("base", TWICE), red("head", PART), (),
         "new_failure fail new: red 8 of 8; red on base, too, with another error (the error is"),
        (hidden("base", TWICE), hidden("head", PART), (),
         "new_hollow_pass pass_by_tolerance new: green and unexplained 8 of 8; with another"
         " error than on base (the error is unexplained on both, and looks different"),
        (hidden("base", TWICE), hidden("head", TWICE), (), "known_hollow pass_by_tolerance: green"),
        (ran("base", record("base", green=True, wrong=False), pass_=8),
         ran("head", record("head", green=False), fail=8), (),
         "new_failure fail new p: red 8 of 8; none of 8 on base (rounding explained the error,"
         " and does not any more)"),
    ],
)  # fmt: skip
def test_every_case_has_its_class_and_says_why(
    base: RunSummary | None, head: RunSummary | None, flags: tuple[OpenFlag, ...], finding: str
) -> None:
    """A finding begins so: class, verdict, marks (new; p: head is worse; a flag), and words."""
    (only,) = classify(base, head, flags).findings
    has = {
        "new": only.new,
        "p": only.evidence.get("p") is not None,
        "flag": "flag" in only.evidence,
    }
    marks = (mark for mark, is_there in has.items() if is_there)
    line = f"{' '.join((only.kind, only.verdict, *marks))}: {only.words}"
    assert line.startswith(finding)
    assert only.kind.sentence


def test_one_kind_of_trouble_hides_no_other() -> None:
    assert kinds(ran(pass_=8), ran(fail=6, error=2)) == ["new_failure", "infrastructure"]
    assert kinds(ran(alarm=2, pass_=6), ran(alarm=2, hollow=6)) == [
        "new_hollow_pass",
        "false_alarm",
    ]
    assert kinds(ran(pass_=8), ran(fail=1, hollow=7), ACKNOWLEDGED) == ["new_hollow_pass", "waived"]
    assert kinds(None, RunSummary("h", ("j",), {"fail": 1}, waiting=2)) == ["unknown", "pending"]


def test_the_evidence_has_rates_the_test_and_the_flag() -> None:
    (finding,) = classify(ran(pass_=64), ran(fail=64), [OPEN]).findings
    evidence: Mapping[str, Any] = finding.evidence
    assert (
        evidence["head"]["failures"],
        evidence["head"]["runs"],
        evidence["base"]["failures"],
    ) == (64, 64, 0)
    assert (evidence["p"] < 1e-20, evidence["flag"]["id"], finding.new, finding.verdict) == (
        True,
        "f1",
        True,
        Verdict.fail,
    )
    (waived_finding,) = classify(ran(pass_=8), ran(fail=8), [OPEN, ACKNOWLEDGED]).findings
    assert "acknowledged by kim until 2026-12-01T00:00:00Z: a race" in waived_finding.words
    with pytest.raises(ValueError, match="base or head"):
        classify(None, None)


GATES = {
    "new_failure": (ran(pass_=8), ran(fail=8), ()),
    "new_hollow_pass": (ran(pass_=8), ran(hollow=8), ()),
    "broken_on_base": (ran(fail=8), ran(fail=8), ()),
    "known_hollow": (ran(hollow=8), ran(hollow=8), ()),
    "false_alarm": (ran(pass_=8), ran(alarm=8), ()),
    "waived": (ran(pass_=8), ran(fail=8), (ACKNOWLEDGED,)),
    "unknown": (None, ran(fail=8), ()),
    "unknown hollow": (None, ran(hollow=8), ()),
    "new hang": (ran(pass_=8), ran(hang=8), ()),
    "old hang": (ran(hang=8), ran(hang=8), ()),
    "error": (ran(pass_=8), ran(error=8), ()),
    "pending": (ran(pass_=8), RunSummary("h", ("j",), waiting=1), ()),
    "undecided": (ran(pass_=8), ran(suspect=8), ()),
    "red gtest": (ran(red=8), ran(red=8), ()),
    "green gtest": (ran(green=8), ran(green=8), ()),
    "passed": (ran(pass_=8), ran(pass_=8), ()),
    "not_run": (ran(pass_=8), None, ()),
}


@pytest.mark.parametrize(
    ("level", "closed", "undecided"),
    [
        ("new", {"new_failure", "new_hollow_pass", "new hang"},
         {"unknown", "unknown hollow", "error", "pending", "not_run"}),
        ("fail",
         {"new_failure", "broken_on_base", "unknown", "new hang", "old hang", "error", "red gtest"},
         {"unknown hollow", "pending", "not_run"}),
        ("hollow",
         {"new_failure", "broken_on_base", "unknown", "new hang", "old hang", "error", "red gtest",
         "new_hollow_pass", "known_hollow", "unknown hollow"}, {"pending", "not_run"}),
        ("suspect",
         {"new_failure", "broken_on_base", "unknown", "new hang", "old hang", "error", "red gtest",
         "new_hollow_pass", "known_hollow", "unknown hollow", "false_alarm", "undecided"},
         {"pending", "not_run"}),
        ("any", set(GATES) - {"passed", "waived", "pending"}, {"pending"}),
    ],
)  # fmt: skip
def test_a_gate_closes_for_what_its_level_names(
    level: str, closed: set[str], undecided: set[str]
) -> None:
    codes = {name: gate([classify(*case)], level).code for name, case in GATES.items()}
    assert {name for name, code in codes.items() if code == 1} == closed
    assert {name for name, code in codes.items() if code == 3} == undecided


def test_a_gate_takes_the_worst_and_nothing_at_all_is_not_green() -> None:
    classifications = [classify(*case) for case in GATES.values()]
    closed_gate = gate(classifications)
    assert (closed_gate.code, closed_gate.words) == (
        1,
        "1 new failure, 1 new hollow pass, 1 infrastructure",
    )
    assert gate([]).code == 3
    assert gate([classify(*GATES["passed"]), classify(*GATES["not_run"])], FailOn.new).code == 0
