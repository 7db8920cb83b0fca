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

INSIDE, STORED, RUNNING = "fp32-inside", "bf16: x^ stored", "fp32-inside, running sums"


def of(programs: Programs, name: str = "night") -> BuildPrograms:
    return BuildPrograms(name, {"y": programs})


def nights(*names: str | None) -> list[BuildPrograms]:
    """Return earlier builds, newest first, each with 8 seeds of one program."""
    return [of({name: 8}, f"night-{number}") for number, name in enumerate(names)]


def test_a_new_program_says_what_changed_and_since_which_builds() -> None:
    (change,) = changes(of({STORED: 7, None: 1}, "b9"), nights(INSIDE, INSIDE))
    assert change == ArithmeticChange("y", INSIDE, STORED, 7, 8, ("night-0", "night-1"))
    assert change.words == "y: x^ is now stored in bf16"
    assert change.builds == ("night-0", "night-1")


@pytest.mark.parametrize(
    ("here", "earlier"),
    [
        ({INSIDE: 8}, nights(INSIDE)),
        ({STORED: 8}, []),
        ({None: 8}, nights(INSIDE)),
        ({STORED: 4, INSIDE: 4}, nights(INSIDE)),
        ({STORED: 8}, nights(None, None)),
        ({STORED: 8}, [of({INSIDE: 4, RUNNING: 4})]),
        ({STORED: 8}, nights(INSIDE, RUNNING)),
        ({"bf16: rstd, x^ stored": 8}, nights("bf16: x^, rstd stored")),
    ],
    ids=[
        "the same",
        "no build before",
        "nothing reproduces it now",
        "its seeds disagree",
        "nothing reproduced it before",
        "the earlier seeds disagree",
        "the earlier builds disagree",
        "another order of the same quantities",
    ],
)
def test_nothing_is_said_where_seeds_or_builds_don_t_agree(
    here: Programs, earlier: list[BuildPrograms]
) -> None:
    assert changes(of(here), earlier) == ()


def test_one_odd_night_is_not_what_the_next_is_compared_with_and_three_are() -> None:
    assert changes(of({INSIDE: 8}), nights(STORED, *[INSIDE] * 4)) == ()
    assert changes(of({STORED: 8}), nights(STORED, STORED, *[INSIDE] * 3)) != ()
    assert changes(of({STORED: 8}), nights(STORED, STORED, STORED, INSIDE, INSIDE)) == ()
    beyond = nights(*[INSIDE] * LAST_BUILDS, *[STORED] * 9)
    assert changes(of({INSIDE: 8}), beyond) == ()
    silent = nights(None, None, *[INSIDE] * LAST_BUILDS)
    assert changes(of({STORED: 8}), silent)[0].builds == tuple(build.build for build in silent[2:])


def test_jobs_of_a_build_count_together_and_equal_changes_stand_together() -> None:
    here = pooled("b2", [{"dx": {STORED: 1}, "dgamma": {STORED: 2}}, {"dx": {INSIDE: 1}}])
    assert here.outputs == {"dx": {STORED: 1, INSIDE: 1}, "dgamma": {STORED: 2}}
    before = BuildPrograms("b1", {"dx": {INSIDE: 2}, "dgamma": {INSIDE: 2}, "dbeta": {INSIDE: 2}})
    after = BuildPrograms("b2", {"dx": {STORED: 2}, "dgamma": {STORED: 2}, "dbeta": {RUNNING: 2}})
    assert words(changes(after, [before])) == (
        "dbeta: now with running sums; dgamma, dx: x^ is now stored in bf16"
    )


def side(programs: Programs | None, **counts: int) -> RunSummary:
    known: dict[str, int] = {Verdict(name.rstrip("_")): n for name, n in counts.items()}
    return RunSummary("b", ("job",), known, programs=None if programs is None else of(programs))


def test_a_commit_with_another_arithmetic_has_a_class_and_may_pass() -> None:
    classified = classify(side({INSIDE: 8}, pass_=8), side({STORED: 8}, pass_=8))
    (finding,) = classified.findings
    assert (finding.kind, finding.words) == ("arithmetic_changed", "y: x^ is now stored in bf16")
    assert finding.evidence["arithmetic"][0]["before"] == INSIDE
    assert {gate([classified], level).code for level in FailOn} == {0}


def test_other_findings_of_the_commit_stay_and_come_first() -> None:
    alarm = classify(side({INSIDE: 8}, pass_=8), side({STORED: 8}, fail_by_tolerance=8))
    assert [finding.kind.value for finding in alarm.findings] == [
        "false_alarm",
        "arithmetic_changed",
    ]
    fixed = classify(side({INSIDE: 8}, fail=8), side({STORED: 8}, pass_=8))
    assert [finding.kind.value for finding in fixed.findings] == ["fixed", "arithmetic_changed"]


@pytest.mark.parametrize("base", [None, {INSIDE: 8}])
def test_equal_or_named_arithmetic_is_no_news(base: Programs | None) -> None:
    classified = classify(side(base, pass_=8), side({INSIDE: 8}, pass_=8))
    assert classified.kind == "passed"


def small(programs: Programs, others: Programs, name: str = "night") -> BuildPrograms:
    """A build of a small test, whose seeds other programs explain, too."""
    return BuildPrograms(name, {"y": programs}, {"y": others})


@pytest.mark.parametrize(
    ("here", "earlier"),
    [
        (small({INSIDE: 8}, {RUNNING: 8}), [small({RUNNING: 5, INSIDE: 3}, {RUNNING: 3})]),
        (
            small({RUNNING: 5, INSIDE: 3}, {RUNNING: 3}),
            [small({INSIDE: 5, RUNNING: 3}, {RUNNING: 5})],
        ),
        (of({RUNNING: 1}), [small({INSIDE: 1}, {RUNNING: 1})] * LAST_BUILDS),
    ],
    ids=["the earlier program explains all", "the name flips between seeds", "one seed a night"],
)
def test_a_name_that_flips_where_several_programs_explain_a_test_is_no_change(
    here: BuildPrograms, earlier: list[BuildPrograms]
) -> None:
    assert changes(here, earlier) == ()
    (change,) = changes(of(here.outputs["y"]), [of({STORED: 8})])
    assert change.before == STORED


@pytest.mark.parametrize(
    ("here", "earlier"),
    [
        # running sums are wide enough for blocked ones at any size, but not the other way round
        (small({INSIDE: 8}, {RUNNING: 8}), [small({RUNNING: 8}, {})]),
        (small({RUNNING: 8}, {}), [small({INSIDE: 8}, {RUNNING: 8})]),
        (small({RUNNING: 5, INSIDE: 3}, {RUNNING: 3}), [small({INSIDE: 8}, {RUNNING: 8})] * 3),
    ],
    ids=["to blocked sums", "to running sums", "to running sums, some of which look blocked"],
)
def test_seeds_enough_tell_a_change_from_names_that_flip(
    here: BuildPrograms, earlier: list[BuildPrograms]
) -> None:
    assert len(changes(here, earlier)) == 1


def test_the_exact_test_of_fisher() -> None:
    from scipy.stats import fisher_exact

    for few, of_few, many, of_many in ((0, 8, 8, 8), (4, 8, 40, 40), (3, 8, 5, 8), (2, 2, 2, 2)):
        table = [[few, of_few - few], [many, of_many - many]]
        assert chance(few, of_few, many, of_many) == pytest.approx(
            fisher_exact(table, alternative="less").pvalue
        )


def test_the_other_programs_of_a_build_s_jobs_add_up() -> None:
    build = pooled("b", [{"y": {INSIDE: 2}}, {"y": {RUNNING: 1}}], [{"y": {RUNNING: 2}}, {}])
    assert (build.explained("y", RUNNING), build.explained("y", INSIDE)) == (3, 2)
