"""The classes of a commit's tests: the table of cases, several findings, and when a gate closes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from gonogo.flakiness.classes import Class, Finding, OpenFlag, RunSummary
from gonogo.flakiness.classification import classify
from gonogo.flakiness.gating import FailOn, gate
from gonogo.flakiness.masking import Fault, Record, Seed
from gonogo.spec.verdicts import Explanation, Verdict

OPEN = OpenFlag("f1", "flaky", False)
ACKNOWLEDGED = OpenFlag(
    "f2", "flaky", True, owner="kim", reason="a race, see the board", expires="2026-12-01T00:00:00Z"
)


def ran(build: str = "b", record: Record | None = None, **counts: int) -> RunSummary:
    """Summarize the runs of one side: `ran(fail=3, pass_=5)`.

    `red` and `green` count runs that were not judged, by the color that they report.
    """
    red, green = counts.pop("red", 0), counts.pop("green", 0)
    verdict_counts = {name.rstrip("_"): number for name, number in counts.items()} | (
        {"not_judged": red + green} if red + green else {}
    )
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


@pytest.mark.parametrize(
    ("base", "head", "flags", "expected"),
    [
        (ran(pass_=8), ran(fail=8), (), "new_failure"),
        (
            ran(pass_=8),
            ran(fail=1, pass_=7),
            (),
            "new_failure",
        ),  # one red seed is a failure; nothing says that it is flaky
        (ran(fail=8), ran(fail=8), (), "broken_on_base"),
        (ran(fail=1, pass_=63), ran(fail=64), (), "new_failure"),  # base is red too rarely
        (
            ran(fail=2, pass_=6),
            ran(fail=4, pass_=4),
            (),
            "broken_on_base",
        ),  # so few seeds show no difference
        (ran(fail_by_tolerance=8), ran(fail=8), (), "new_failure"),  # base was red and right
        (ran(pass_=8), ran(fail=2, pass_=6), (OPEN,), "known_flaky"),
        (
            ran(pass_=64),
            ran(fail=64),
            (OPEN,),
            "new_failure",
        ),  # a flaky test can't explain this
        (None, ran(fail=2, pass_=6), (OPEN,), "known_flaky"),
        (None, ran(fail=8), (), "unknown"),
        (ran(error=8), ran(fail=8), (), "unknown"),  # base says nothing about the kernel
        (ran(pass_=8), ran(fail=8), (ACKNOWLEDGED,), "waived"),
        (ran(pass_=8), ran(fail=2, pass_=6), (OpenFlag("f", "flaky", True),), "waived"),
        (
            ran(pass_=8),
            ran(fail=2, pass_=6),
            (OpenFlag("f", "passes_by_tolerance", False),),
            "new_failure",
        ),  # a flag of another kind
        (ran(pass_=8), ran(fail_by_tolerance=1, pass_=7), (), "false_alarm"),
        (None, ran(fail_by_tolerance=8), (), "false_alarm"),
        (
            ran(pass_=8),
            ran(fail_by_tolerance=8),
            (OpenFlag("f", "tolerance_too_tight", True),),
            "waived",
        ),
        (ran(pass_=8), ran(pass_by_tolerance=8), (), "new_hollow_pass"),
        (ran(fail=8), ran(pass_by_tolerance=8), (), "new_hollow_pass"),
        (ran(pass_by_tolerance=8), ran(pass_by_tolerance=8), (), "known_hollow"),
        (ran(pass_by_tolerance=1, pass_=63), ran(pass_by_tolerance=64), (), "new_hollow_pass"),
        (
            None,
            ran(pass_by_tolerance=8),
            (OpenFlag("f", "passes_by_tolerance", False),),
            "known_hollow",
        ),
        (None, ran(pass_by_tolerance=8), (), "unknown"),
        (ran(green=8), ran(pass_by_tolerance=8), (), "unknown"),  # base has no arrays
        (
            ran(pass_=8),
            ran(pass_by_tolerance=1, pass_=7),
            (OpenFlag("f", "passes_by_tolerance", False),),
            "known_hollow",
        ),
        (
            ran(pass_=2),
            ran(pass_by_tolerance=2),
            (OpenFlag("f", "passes_by_tolerance", False),),
            "new_hollow_pass",
        ),  # it was gone on base
        (ran(pass_=8), ran(hang=1, pass_=7), (), "infrastructure"),
        (ran(pass_=8), ran(hang=1, pass_=7), (OpenFlag("f", "hangs", True),), "waived"),
        (ran(pass_=8), ran(error=8), (), "infrastructure"),
        (
            ran(pass_=8),
            RunSummary("h", ("j",), {"pass": 1}, sick={"lab/0": 7}),
            (),
            "infrastructure",
        ),
        (ran(pass_=8), RunSummary("h", ("j",), ended_empty={"cancelled": 1}), (), "infrastructure"),
        (ran(pass_=8), RunSummary("h", ("j",), {"pass": 1}, waiting=1), (), "pending"),
        (ran(fail=8), ran(pass_=8), (), "fixed"),
        (ran(fail_by_tolerance=8), ran(pass_=8), (), "fixed"),
        (
            ran(fail=1, pass_=7),
            ran(pass_=8),
            (OPEN,),
            "passed",
        ),  # a flaky test that happens to be green isn't fixed
        (ran(pass_by_tolerance=8), ran(pass_=8), (), "no_longer_hollow"),
        (ran(pass_by_tolerance=8), ran(green=8), (), "passed"),  # without arrays it is unknown
        (ran(pass_=8), ran(pass_=8), (), "passed"),
        (None, ran(pass_=8), (), "passed"),
        (ran(pass_=8), ran(suspect=1, pass_=7), (), "undecided"),
        (ran(pass_=8), ran(inconclusive=8), (), "undecided"),
        (ran(pass_=8), ran(not_run=1), (), "not_run"),
        (ran(pass_=8), None, (), "not_run"),
        (ran(green=8), ran(red=8), (), "new_failure"),
        (ran(red=8), ran(red=8), (), "broken_on_base"),
        (ran(red=8), ran(green=8), (), "fixed"),
    ],
)
def test_every_case_has_its_class(
    base: RunSummary | None, head: RunSummary | None, flags: tuple[OpenFlag, ...], expected: str
) -> None:
    classification = classify(base, head, flags)
    assert (
        classification.kind.value,
        classification.kind.sentence != "",
        classification.words != "",
    ) == (expected, True, True)
    assert classification.findings[0].kind == expected


TOO_TIGHT = OpenFlag("f", "tolerance_too_tight", True)
HOLLOW_FLAG = OpenFlag("f", "passes_by_tolerance", False)
TWICE = {"twice:s1": 1.0}


@pytest.mark.parametrize(
    ("base", "head", "flags", "findings"),
    [
        (None, ran(fail=8), (), ["unknown fail: red 8 of 8; base was not run"]),
        (
            None,
            ran(pass_by_tolerance=8),
            (),
            ["unknown pass_by_tolerance: green and unexplained 8 of 8; base was not run"],
        ),
        (
            ran(green=8),
            ran(pass_by_tolerance=8),
            (),
            [
                "unknown pass_by_tolerance p: green and unexplained 8 of 8; "
                "base has no arrays to judge"
            ],
        ),
        (
            ran(pass_=8),
            ran(fail=8),
            (ACKNOWLEDGED,),
            [
                "waived fail p flag: red 8 of 8; flag flaky, acknowledged by kim until "
                "2026-12-01T00:00:00Z: a race, see the board"
            ],
        ),
        (
            ran(pass_=8),
            ran(fail_by_tolerance=8),
            (TOO_TIGHT,),
            [
                "waived fail_by_tolerance p flag: red though right 8 of 8; "
                "flag tolerance_too_tight, acknowledged by someone: no reason given"
            ],
        ),
        (
            ran(pass_=8),
            RunSummary("h", ("j",), {"pass": 1}, waiting=1),
            (),
            ["pending inconclusive: 1 job of head not finished"],
        ),
        (
            ran(pass_=8),
            RunSummary("h", ("j",), {}, waiting=2),
            (),
            ["pending inconclusive: 2 jobs of head not finished"],
        ),
        (
            ran(pass_=8),
            ran(hang=1, crash=2, pass_=5),
            (OpenFlag("f", "hangs", True),),
            [
                "infrastructure crash new: 2 of 8 runs: crash",
                (
                    "waived hang flag: 1 of 8 runs: hang; flag hangs, acknowledged by someone: "
                    "no reason given"
                ),
            ],
        ),
        (
            ran(hang=1, pass_=7),
            ran(hang=1, pass_=7),
            (),
            ["infrastructure hang: 1 of 8 runs: hang; on base, too: 1"],
        ),
        (
            ran(pass_=8),
            ran(hang=1, pass_=7),
            (OpenFlag("f", "hangs", False),),
            ["infrastructure hang flag: 1 of 8 runs: hang"],
        ),
        (None, ran(hang=1, pass_=7), (), ["infrastructure hang: 1 of 8 runs: hang"]),
        (
            ran(pass_=8),
            RunSummary("h", ("j",), {"pass": 1}, sick={"lab/1": 2, "lab/0": 7}),
            (),
            ["infrastructure error: left out, because the device was sick: 7 on lab/0, 2 on lab/1"],
        ),
        (
            ran(pass_=8),
            RunSummary("h", ("j",), {}, sick={"lab/0": 7}),
            (),
            ["infrastructure error: left out, because the device was sick: 7 on lab/0"],
        ),
        (
            ran(pass_=8),
            RunSummary("h", ("j",), ended_empty={"queue deadline": 2, "cancelled": 1}),
            (),
            ["infrastructure error: ended without a result: 1 cancelled, 2 queue deadline"],
        ),
        (
            ran(pass_=8),
            RunSummary("h", ("j",), {"pass": 1}, ended_empty={"cancelled": 1}),
            (),
            ["passed pass: green 1 of 1"],
        ),
        (
            ran(pass_=8),
            RunSummary("h", ("j",), waiting=1, ended_empty={"cancelled": 1}),
            (),
            ["pending inconclusive: 1 job of head not finished"],
        ),
        (ran(pass_=8), RunSummary("h"), (), ["not_run not_run: 8 runs on b, none on head"]),
        (ran(pass_=8), ran(fail=8), (), ["new_failure fail new p: red 8 of 8; none of 8 on base"]),
        (
            ran(fail=1, pass_=63),
            ran(fail=64),
            (),
            [
                (
                    "new_failure fail new p: red 64 of 64; red on base, too, but less often: 1 "
                    "of 64 (1.56%, 0.169% to 7.07%)"
                ),
            ],
        ),
        (
            ran(fail_by_tolerance=8),
            ran(fail=8),
            (),
            [
                (
                    "new_failure fail new p: red 8 of 8; base was red, too, and right: 8 of 8 "
                    "(100%, 73.8% to 100%)"
                ),
            ],
        ),
        (
            ran(pass_=64),
            ran(fail=64),
            (OPEN,),
            [
                (
                    "new_failure fail new p flag: red 64 of 64; none of 64 on base; worse than "
                    "open flag flaky can account for"
                ),
            ],
        ),
        (
            ran(pass_=8),
            ran(fail=2, pass_=6),
            (OPEN,),
            ["known_flaky fail flag: red 2 of 8; open flag flaky"],
        ),
        (
            ran(fail=2, pass_=6),
            ran(fail=4, pass_=4),
            (),
            ["broken_on_base fail: red 4 of 8; on base 2 of 8 (25%, 5.6% to 59.2%)"],
        ),
        (
            ran(red=1, green=7),
            ran(red=8),
            (),
            ["broken_on_base not_judged: red 8 of 8; on base 1 of 8 (12.5%, 1.38% to 45.4%)"],
        ),
        (
            ran(green=8),
            ran(red=8),
            (),
            ["new_failure not_judged new p: red 8 of 8; none of 8 on base"],
        ),
        (
            ran(pass_by_tolerance=8),
            ran(fail=8),
            (),
            ["new_failure fail new p: red 8 of 8; none of 8 on base"],
        ),
        (
            ran(fail=4, pass_by_tolerance=4),
            ran(fail=8),
            (),
            ["broken_on_base fail: red 8 of 8; on base 4 of 8 (50%, 19.9% to 80.1%)"],
        ),
        (
            ran(pass_=8),
            ran(fail_by_tolerance=1, pass_=7),
            (),
            [
                (
                    "false_alarm fail_by_tolerance new: red though right 1 of 8; on base 0 of "
                    "8 (0%, 0% to 26.2%)"
                ),
            ],
        ),
        (
            ran(fail_by_tolerance=1, pass_=7),
            ran(fail_by_tolerance=1, pass_=7),
            (),
            [
                (
                    "false_alarm fail_by_tolerance: red though right 1 of 8; on base 1 of 8 "
                    "(12.5%, 1.38% to 45.4%)"
                ),
            ],
        ),
        (
            None,
            ran(fail_by_tolerance=8),
            (),
            ["false_alarm fail_by_tolerance: red though right 8 of 8; base was not run"],
        ),
        (
            ran(pass_=8),
            ran(pass_by_tolerance=8),
            (),
            [
                (
                    "new_hollow_pass pass_by_tolerance new p: green and unexplained 8 of 8; "
                    "none of 8 on base"
                ),
            ],
        ),
        (
            ran(fail=8),
            ran(pass_by_tolerance=8),
            (),
            ["new_hollow_pass pass_by_tolerance new p: green and unexplained 8 of 8; red on base"],
        ),
        (
            ran(pass_by_tolerance=8),
            ran(pass_by_tolerance=8),
            (),
            [
                (
                    "known_hollow pass_by_tolerance: green and unexplained 8 of 8; on base 8 "
                    "of 8 (100%, 73.8% to 100%)"
                ),
            ],
        ),
        (
            ran(pass_by_tolerance=1, pass_=63),
            ran(pass_by_tolerance=64),
            (),
            [
                (
                    "new_hollow_pass pass_by_tolerance new p: green and unexplained 64 of 64; "
                    "on base 1 of 64 (1.56%, 0.169% to 7.07%)"
                ),
            ],
        ),
        (
            ran(pass_=8),
            ran(pass_by_tolerance=1, pass_=7),
            (HOLLOW_FLAG,),
            [
                (
                    "known_hollow pass_by_tolerance flag: green and unexplained 1 of 8; open "
                    "flag passes_by_tolerance"
                ),
            ],
        ),
        (
            ran(pass_=2),
            ran(pass_by_tolerance=2),
            (HOLLOW_FLAG,),
            [
                (
                    "new_hollow_pass pass_by_tolerance new flag: green and unexplained 2 of 2; "
                    "none of 2 on base"
                ),
            ],
        ),
        (
            ran(fail=1, pass_=1),
            ran(pass_by_tolerance=2),
            (HOLLOW_FLAG,),
            [
                (
                    "new_hollow_pass pass_by_tolerance new flag: green and unexplained 2 of 2; "
                    "red on base"
                ),
            ],
        ),
        (
            ran(pass_=8),
            ran(pass_by_tolerance=8),
            (OpenFlag("f", "passes_by_tolerance", True),),
            [
                (
                    "waived pass_by_tolerance p flag: green and unexplained 8 of 8; flag "
                    "passes_by_tolerance, acknowledged by someone: no reason given"
                ),
            ],
        ),
        (
            ran(fail=8),
            ran(pass_=8),
            (),
            ["fixed pass: green 8 of 8; red on base 8 of 8 (100%, 73.8% to 100%)"],
        ),
        (
            ran(fail=1, pass_=7),
            ran(pass_=8),
            (OPEN,),
            ["passed pass flag: green 8 of 8; open flag flaky: too few seeds to call it fixed"],
        ),
        (
            ran(fail=64),
            ran(pass_=64),
            (OPEN,),
            ["fixed pass: green 64 of 64; red on base 64 of 64 (100%, 96.2% to 100%)"],
        ),
        (
            ran(fail_by_tolerance=8),
            ran(green=8),
            (),
            [
                (
                    "fixed not_judged: green 8 of 8, without arrays to judge; red on base 8 of "
                    "8 (100%, 73.8% to 100%)"
                ),
            ],
        ),
        (
            ran(pass_by_tolerance=8),
            ran(pass_=8),
            (),
            [
                (
                    "no_longer_hollow pass: green 8 of 8; green and unexplained on base 8 of 8 "
                    "(100%, 73.8% to 100%)"
                ),
            ],
        ),
        (
            ran(pass_by_tolerance=8),
            ran(green=8),
            (),
            ["passed not_judged: green 8 of 8, without arrays to judge"],
        ),
        (ran(pass_=8), ran(suspect=1, pass_=7), (), ["undecided suspect: 1 of 8 runs: suspect"]),
        (
            ran(pass_=8),
            ran(inconclusive=6, skipped=2),
            (),
            ["undecided inconclusive: 6 of 8 runs: inconclusive"],
        ),
        (ran(pass_=8), ran(skipped=6, not_run=2), (), ["not_run skipped: 6 of 8 runs: skipped"]),
        (ran(pass_=8), ran(inconclusive=1, pass_=7), (), ["passed pass: green 7 of 7"]),
        (
            ran("base", record("base", green=False, faults=TWICE), fail=8),
            ran("head", record("head", green=True, faults=TWICE), pass_by_tolerance=8),
            (),
            [
                (
                    "new_hollow_pass pass_by_tolerance new p: green and unexplained 8 of 8; "
                    "red on base, and the same error stays: masked, not fixed (the verdict "
                    "turned green, and the error stayed: the fault is masked, not fixed, by "
                    "faults)"
                ),
            ],
        ),
        (
            ran("base", record("base", green=True, faults=TWICE), pass_by_tolerance=8),
            ran("head", record("head", green=False, faults=TWICE), fail=8),
            (),
            [
                (
                    "broken_on_base fail p: red 8 of 8; on base the same error, hidden by the "
                    "tolerance (the error is unexplained on both, and looks the same, by "
                    "faults)"
                ),
            ],
        ),
        (
            ran("base", record("base", green=False, faults=TWICE), fail=8),
            ran("head", record("head", green=False, faults={"factor:s2": 0.1}), fail=8),
            (),
            [
                (
                    "new_failure fail new: red 8 of 8; red on base, too, with another error "
                    "(the error is unexplained on both, and looks different: another fault, or "
                    "one of several fixed, by faults)"
                ),
            ],
        ),
        (
            ran("base", record("base", green=True, faults=TWICE), pass_by_tolerance=8),
            ran("head", record("head", green=True, faults={"factor:s2": 0.1}), pass_by_tolerance=8),
            (),
            [
                (
                    "new_hollow_pass pass_by_tolerance new: green and unexplained 8 of 8; with "
                    "another error than on base (the error is unexplained on both, and looks "
                    "different: another fault, or one of several fixed, by faults)"
                ),
            ],
        ),
        (
            ran("base", record("base", green=True, wrong=False), pass_=8),
            ran("head", record("head", green=False), fail=8),
            (),
            [
                (
                    "new_failure fail new p: red 8 of 8; none of 8 on base (rounding explained "
                    "the error, and does not any more)"
                ),
            ],
        ),
    ],
)
def test_every_finding_says_why_and_whether_it_is_new(
    base: RunSummary | None,
    head: RunSummary,
    flags: tuple[OpenFlag, ...],
    findings: list[str],
) -> None:
    """Each in a line: class, verdict, marks (new; p: head is worse; a flag), and words."""

    def line(finding: Finding) -> str:
        has = {
            "new": finding.new,
            "p": finding.evidence.get("p") is not None,
            "flag": "flag" in finding.evidence,
        }
        marks = (mark for mark, is_there in has.items() if is_there)
        return f"{' '.join((finding.kind, finding.verdict, *marks))}: {finding.words}"

    assert [line(finding) for finding in classify(base, head, flags).findings] == findings


def test_one_kind_of_trouble_hides_no_other() -> None:
    assert kinds(ran(pass_=8), ran(fail=6, error=2)) == ["new_failure", "infrastructure"]
    assert kinds(
        ran(fail_by_tolerance=2, pass_=6), ran(fail_by_tolerance=2, pass_by_tolerance=6)
    ) == ["new_hollow_pass", "false_alarm"]
    assert kinds(ran(pass_=8), ran(fail=1, pass_by_tolerance=7), ACKNOWLEDGED) == [
        "new_hollow_pass",
        "waived",
    ]
    assert kinds(None, RunSummary("h", ("j",), {"fail": 1}, waiting=2)) == ["unknown", "pending"]


def test_what_the_errors_look_like_decides_whether_it_is_the_same_failure() -> None:
    twice, part = {"twice:s1": 1.0}, {"factor:s2": 0.1}
    red = ran("base", record("base", green=False, faults=twice), fail=8)
    assert kinds(red, ran("head", record("head", green=False, faults=twice), fail=8)) == [
        "broken_on_base"
    ]
    other = classify(red, ran("head", record("head", green=False, faults=part), fail=8))
    assert (other.kind, "with another error" in other.words) == (Class.new_failure, True)
    assert other.findings[0].evidence["change"]["differing"] == ("dx: factor:s2",)

    # green from now on, and still wrong in the same way: the pass hides the fault
    masked = classify(
        red, ran("head", record("head", green=True, faults=twice), pass_by_tolerance=8)
    )
    assert (masked.kind, "masked, not fixed" in masked.words) == (Class.new_hollow_pass, True)
    # the reverse: a commit that shows what base's tolerance hides didn't break it
    hollow = ran("base", record("base", green=True, faults=twice), pass_by_tolerance=8)
    shown = classify(hollow, ran("head", record("head", green=False, faults=twice), fail=8))
    assert (shown.kind, "hidden by the tolerance" in shown.words) == (Class.broken_on_base, True)

    assert kinds(
        hollow, ran("head", record("head", green=True, faults=twice), pass_by_tolerance=8)
    ) == ["known_hollow"]
    assert kinds(
        hollow, ran("head", record("head", green=True, faults=part), pass_by_tolerance=8)
    ) == ["new_hollow_pass"]


def test_an_unknown_says_why_base_is_silent() -> None:
    for base, why in (
        (None, "base was not run"),
        (RunSummary("b", ("j",), waiting=1), "base has not finished"),
        (ran(error=8), "base gave no answer"),
    ):
        assert classify(base, ran(fail=8)).words == f"red 8 of 8; {why}"
    assert classify(ran(green=8), ran(pass_by_tolerance=8)).words.endswith(
        "base has no arrays to judge"
    )


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
    "new_hollow_pass": (ran(pass_=8), ran(pass_by_tolerance=8), ()),
    "broken_on_base": (ran(fail=8), ran(fail=8), ()),
    "known_hollow": (ran(pass_by_tolerance=8), ran(pass_by_tolerance=8), ()),
    "false_alarm": (ran(pass_=8), ran(fail_by_tolerance=8), ()),
    "waived": (ran(pass_=8), ran(fail=8), (ACKNOWLEDGED,)),
    "unknown": (None, ran(fail=8), ()),
    "unknown hollow": (None, ran(pass_by_tolerance=8), ()),
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
        (
            "new",
            {"new_failure", "new_hollow_pass", "new hang"},
            {"unknown", "unknown hollow", "error", "pending", "not_run"},
        ),
        (
            "fail",
            {
                "new_failure",
                "broken_on_base",
                "unknown",
                "new hang",
                "old hang",
                "error",
                "red gtest",
            },
            {"unknown hollow", "pending", "not_run"},
        ),
        (
            "hollow",
            {
                "new_failure",
                "broken_on_base",
                "unknown",
                "new hang",
                "old hang",
                "error",
                "red gtest",
                "new_hollow_pass",
                "known_hollow",
                "unknown hollow",
            },
            {"pending", "not_run"},
        ),
        (
            "suspect",
            {
                "new_failure",
                "broken_on_base",
                "unknown",
                "new hang",
                "old hang",
                "error",
                "red gtest",
                "new_hollow_pass",
                "known_hollow",
                "unknown hollow",
                "false_alarm",
                "undecided",
            },
            {"pending", "not_run"},
        ),
        ("any", set(GATES) - {"passed", "waived", "pending"}, {"pending"}),
    ],
)
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
