"""Another arithmetic than on earlier builds: only where seeds and builds agree on both, and never
red."""

from __future__ import annotations

import pytest

from gonogo.flakiness.arithmetic_changes import (
    LAST_BUILDS,
    ArithmeticChange,
    BuildPrograms,
    Programs,
    chance,
    changes,
    pooled,
    words,
)
from gonogo.flakiness.classes import RunSummary
from gonogo.flakiness.classification import classify
from gonogo.flakiness.gating import FailOn, gate
from gonogo.spec.verdicts import Verdict

BLOCKED, STORED, RUNNING = "blocked sums", "xhat in bf16; blocked sums", "running sums"


def of(programs: Programs, name: str = "night") -> BuildPrograms:
    return BuildPrograms(name, {"y": programs})


def nights(*names: str) -> list[BuildPrograms]:
    """Return earlier builds, newest first, each with 8 seeds of one program."""
    return [of({name: 8}, f"night-{number}") for number, name in enumerate(names)]


def test_a_new_program_says_what_changed_and_since_which_builds() -> None:
    (change,) = changes(of({STORED: 7, RUNNING: 1}, "b9"), nights(BLOCKED, BLOCKED))
    assert change == ArithmeticChange("y", BLOCKED, STORED, 7, 8, ("night-0", "night-1"))
    assert change.words == 'y: was "blocked sums", is "xhat in bf16; blocked sums"'


@pytest.mark.parametrize(
    ("here", "earlier"),
    [
        ({BLOCKED: 8}, nights(BLOCKED)),
        ({STORED: 8}, []),
        ({}, nights(BLOCKED)),
        ({STORED: 4, BLOCKED: 4}, nights(BLOCKED)),
        ({STORED: 8}, [of({}), of({})]),
        ({STORED: 8}, [of({BLOCKED: 4, RUNNING: 4})]),
        ({STORED: 8}, nights(BLOCKED, RUNNING)),
    ],
    ids=[
        "the same",
        "no build before",
        "nothing explains it now",
        "its seeds disagree",
        "nothing explained it before",
        "the earlier seeds disagree",
        "the earlier builds disagree",
    ],
)
def test_nothing_is_said_where_seeds_or_builds_don_t_agree(
    here: Programs, earlier: list[BuildPrograms]
) -> None:
    assert changes(of(here), earlier) == ()


def test_one_odd_night_is_not_what_the_next_is_compared_with_and_three_are() -> None:
    assert changes(of({BLOCKED: 8}), nights(STORED, *[BLOCKED] * 4)) == ()
    assert changes(of({STORED: 8}), nights(STORED, STORED, *[BLOCKED] * 3)) != ()
    assert changes(of({STORED: 8}), nights(STORED, STORED, STORED, BLOCKED, BLOCKED)) == ()
    beyond = nights(*[BLOCKED] * LAST_BUILDS, *[STORED] * 9)
    assert changes(of({BLOCKED: 8}), beyond) == ()
    silent = [of({}), of({}), *nights(*[BLOCKED] * LAST_BUILDS)]
    assert changes(of({STORED: 8}), silent)[0].builds == tuple(build.build for build in silent[2:])


def test_jobs_of_a_build_count_together_and_equal_changes_stand_together() -> None:
    here = pooled("b2", [{"dx": {STORED: 1}, "dgamma": {STORED: 2}}, {"dx": {BLOCKED: 1}}])
    assert here.outputs == {"dx": {STORED: 1, BLOCKED: 1}, "dgamma": {STORED: 2}}
    before = BuildPrograms(
        "b1", {"dx": {BLOCKED: 2}, "dgamma": {BLOCKED: 2}, "dbeta": {BLOCKED: 2}}
    )
    after = BuildPrograms("b2", {"dx": {STORED: 2}, "dgamma": {STORED: 2}, "dbeta": {RUNNING: 2}})
    assert words(changes(after, [before])) == (
        'dbeta: was "blocked sums", is "running sums"; '
        'dgamma, dx: was "blocked sums", is "xhat in bf16; blocked sums"'
    )


def side(programs: Programs | None, **counts: int) -> RunSummary:
    known: dict[str, int] = {Verdict(name.rstrip("_")): n for name, n in counts.items()}
    return RunSummary("b", ("job",), known, programs=None if programs is None else of(programs))


def test_a_commit_with_another_arithmetic_has_a_class_and_may_pass() -> None:
    classified = classify(side({BLOCKED: 8}, pass_=8), side({STORED: 8}, pass_=8))
    (finding,) = classified.findings
    words_of_change = 'y: was "blocked sums", is "xhat in bf16; blocked sums"'
    assert (finding.kind, finding.words) == ("arithmetic_changed", words_of_change)
    assert finding.evidence["arithmetic"][0]["before"] == BLOCKED
    assert {gate([classified], level).code for level in FailOn} == {0}


def test_other_findings_of_the_commit_stay_and_come_first() -> None:
    alarm = classify(side({BLOCKED: 8}, pass_=8), side({STORED: 8}, fail_by_tolerance=8))
    assert [finding.kind.value for finding in alarm.findings] == [
        "false_alarm",
        "arithmetic_changed",
    ]
    fixed = classify(side({BLOCKED: 8}, fail=8), side({STORED: 8}, pass_=8))
    assert [finding.kind.value for finding in fixed.findings] == ["fixed", "arithmetic_changed"]


@pytest.mark.parametrize("base", [None, {BLOCKED: 8}])
def test_equal_or_named_arithmetic_is_no_news(base: Programs | None) -> None:
    classified = classify(side(base, pass_=8), side({BLOCKED: 8}, pass_=8))
    assert classified.kind == "passed"


@pytest.mark.parametrize(
    ("here", "earlier", "count"),
    [
        ({BLOCKED: 5, RUNNING: 3}, [{RUNNING: 5, BLOCKED: 3}], 0),
        ({BLOCKED: 8}, [{RUNNING: 5, BLOCKED: 3}], 0),
        ({RUNNING: 5, BLOCKED: 3}, [{BLOCKED: 8}] * 3, 1),
        ({RUNNING: 8}, [{BLOCKED: 15, RUNNING: 1}], 1),
        ({RUNNING: 2}, [{BLOCKED: 2}], 1),
    ],
    ids=[
        "the name flips between seeds",
        "one of the names is rarer",
        "no seed had the name before",
        "nearly none had it",
        "few seeds without a doubt",
    ],
)
def test_a_name_that_differs_between_seeds_by_chance_is_no_change(
    here: Programs, earlier: list[Programs], count: int
) -> None:
    assert len(changes(of(here), [of(programs) for programs in earlier])) == count


def test_the_exact_test_of_fisher() -> None:
    from scipy.stats import fisher_exact

    for few, of_few, many, of_many in ((0, 8, 8, 8), (4, 8, 40, 40), (3, 8, 5, 8), (2, 2, 2, 2)):
        table = [[few, of_few - few], [many, of_many - many]]
        assert chance(few, of_few, many, of_many) == pytest.approx(
            fisher_exact(table, alternative="less").pvalue
        )
