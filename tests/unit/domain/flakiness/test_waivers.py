"""Waivers without a database: the tests that they fit, the classes, and what they don't change."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gonogo.flakiness.classes import Class, OpenFlag, RunSummary
from gonogo.flakiness.classification import classify
from gonogo.flakiness.gating import FailOn, gate
from gonogo.flakiness.waivers import RED_OR_HOLLOW, WAIVABLE, day, waivable, waived
from gonogo.spec.verdicts import Verdict
from gonogo_service.waivers.model import WaiverRow

END = datetime(2026, 12, 1, tzinfo=UTC)


def waiver(**changes: Any) -> WaiverRow:
    return WaiverRow(
        **{
            "id": "o1",
            "classes": RED_OR_HOLLOW,
            "owner": "kim",
            "reason": "the race of ticket 12",
            "expires_at": END,
            "test": "v1-a",
            **changes,
        }
    )


def ran(**counts: int) -> RunSummary:
    return RunSummary("b", ("job",), {name.rstrip("_"): number for name, number in counts.items()})


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"test": "v1-b"}, False),
        ({"test": None, "names": ("layernorm_* 32x*",)}, True),
        ({"test": None, "names": ("rmsnorm *",)}, False),
        ({"names": ("*", "!layernorm_bw*")}, False),
        ({"test": None, "labels": {"suite": "nightly"}}, True),
        (
            {"test": None, "labels": {"suite": "nightly", "team": "x"}},
            False,
        ),  # each of the two jobs has only one
        ({"builds": ("kernels-*",)}, True),
        ({"builds": ("release-*",)}, False),
    ],
)
def test_everything_that_an_waiver_names_must_fit(changes: dict[str, Any], fits: bool) -> None:
    labels = [{"suite": "nightly"}, {"team": "x"}]
    changed_waiver = waiver(**changes)
    assert changed_waiver.concerns("v1-a", ["layernorm_bw 32x64"], labels, "kernels-1f") is fits
    assert changed_waiver.concerns("v1-a", ["layernorm_bw 32x64"], labels) is (
        fits or "builds" in changes
    )


def test_the_class_is_waived_and_the_verdict_stays() -> None:
    classification = classify(ran(pass_=8), ran(fail=6, error=2))
    (lost, red) = waived(classification, [waiver()]).findings
    assert (lost.kind, lost.verdict) == (Class.infrastructure, Verdict.error)
    assert (red.kind, red.verdict, red.new, red.evidence["otherwise"]) == (
        Class.waived,
        Verdict.fail,
        False,
        "new_failure",
    )
    assert (
        red.words
        == "red 6 of 6; none of 8 on base; waived until 2026-12-01 by kim: the race of ticket 12"
    )
    assert red.evidence["waiver"] == {
        "id": "o1",
        "owner": "kim",
        "reason": "the race of ticket 12",
        "expires": END,
        "words": "waived until 2026-12-01 by kim: the race of ticket 12",
    }
    assert red.evidence["head"]["failures"] == 6  # the evidence still has the rates
    assert gate([waived(classification, [waiver()])]).code == 3  # the crash is not covered
    assert gate([waived(classification, [waiver(classes=WAIVABLE)])], FailOn.any).code == 0


def test_only_the_classes_that_it_names_and_nothing_that_never_ran() -> None:
    new = classify(ran(pass_=8), ran(fail=8))
    assert waived(new, [waiver(classes=(Class.known_flaky,))]) is new
    everything = waiver(classes=WAIVABLE)
    for base, head in (
        (ran(pass_=8), RunSummary("h", ("j",), {"pass": 1}, waiting=1)),
        (ran(pass_=8), RunSummary("h", ("j",), ended_empty={"cancelled": 1})),
        (ran(pass_=8), RunSummary("h", ("j",), sick={"lab/0": 8})),
        (ran(pass_=8), ran(pass_=8)),
        (ran(fail=8), ran(pass_=8)),
    ):
        classification = classify(base, head)
        assert not waivable(classification)
        assert waived(classification, [everything]) is classification
    assert Class.infrastructure not in RED_OR_HOLLOW


def test_a_flag_that_someone_took_on_is_named_before_an_waiver_and_of_several_the_longest() -> None:
    known = OpenFlag(
        "f1", "flaky", True, owner="ada", reason="seen", expires="2026-11-01T00:00:00Z"
    )
    (by_flag,) = waived(classify(ran(pass_=8), ran(fail=8), [known]), [waiver()]).findings
    assert (by_flag.evidence["flag"]["id"], "waiver" in by_flag.evidence) == ("f1", False)
    later = waiver(id="o2", expires_at=END.replace(hour=12))
    (by_waiver,) = waived(classify(ran(pass_=8), ran(fail=8)), [waiver(), later]).findings
    assert by_waiver.evidence["waiver"]["id"] == "o2"
    assert "until 2026-12-01 12:00 UTC by" in by_waiver.words
    assert day(END) == "2026-12-01"
