"""Another arithmetic than on earlier builds: only where seeds and builds agree, and never red."""

from __future__ import annotations

import pytest
from scipy.stats import fisher_exact

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
    ("here", "earlier", "count"),
    [
        pytest.param({BLOCKED: 8}, nights(BLOCKED), 0, id="the same"),
        pytest.param({STORED: 8}, [], 0, id="no build before"),
        pytest.param({}, nights(BLOCKED), 0, id="nothing explains it now"),
        pytest.param({STORED: 4, BLOCKED: 4}, nights(BLOCKED), 0, id="its seeds disagree"),
        pytest.param({STORED: 8}, [of({}), of({})], 0, id="nothing explained it before"),
        pytest.param({STORED: 8}, [of({BLOCKED: 4, RUNNING: 4})], 0, id="earlier seeds disagree"),
        pytest.param({STORED: 8}, nights(BLOCKED, RUNNING), 0, id="earlier builds disagree"),
        pytest.param({BLOCKED: 5, RUNNING: 3}, [of({RUNNING: 5, BLOCKED: 3})], 0, id="it flips"),
        pytest.param({BLOCKED: 8}, [of({RUNNING: 5, BLOCKED: 3})], 0, id="one name is rarer"),
        pytest.param({RUNNING: 5, BLOCKED: 3}, nights(*[BLOCKED] * 3), 1, id="no seed had it"),
        pytest.param({RUNNING: 8}, [of({BLOCKED: 15, RUNNING: 1})], 1, id="nearly none had it"),
        pytest.param({RUNNING: 2}, [of({BLOCKED: 2})], 1, id="few seeds without a doubt"),
        pytest.param({BLOCKED: 8}, nights(STORED, *[BLOCKED] * 4), 0, id="an odd night before"),
        pytest.param({STORED: 8}, nights(*[STORED] * 2, *[BLOCKED] * 3), 1, id="two nights ago"),
        pytest.param({STORED: 8}, nights(*[STORED] * 3, *[BLOCKED] * 2), 0, id="three nights ago"),
        pytest.param(
            {BLOCKED: 8}, nights(*[BLOCKED] * LAST_BUILDS, *[STORED] * 9), 0, id="long ago"
        ),
    ],
)
def test_a_change_is_said_where_seeds_and_builds_agree(
    here: Programs, earlier: list[BuildPrograms], count: int
) -> None:
    assert len(changes(of(here), earlier)) == count


def test_builds_that_nothing_explains_do_not_count_as_earlier_ones() -> None:
    silent = [of({}), of({}), *nights(*[BLOCKED] * LAST_BUILDS)]
    (change,) = changes(of({STORED: 8}), silent)
    assert change.builds == tuple(build.build for build in silent[2:])


def test_jobs_of_a_build_count_together_and_equal_changes_stand_together() -> None:
    here = pooled("b2", [{"dx": {STORED: 1}, "dgamma": {STORED: 2}}, {"dx": {BLOCKED: 1}}])
    assert here.outputs == {"dx": {STORED: 1, BLOCKED: 1}, "dgamma": {STORED: 2}}
    outputs = ("dx", "dgamma", "dbeta")
    before = BuildPrograms("b1", {name: {BLOCKED: 2} for name in outputs})
    after = BuildPrograms("b2", {"dx": {STORED: 2}, "dgamma": {STORED: 2}, "dbeta": {RUNNING: 2}})
    assert words(changes(after, [before])) == (
        'dbeta: was "blocked sums", is "running sums"; '
        'dgamma, dx: was "blocked sums", is "xhat in bf16; blocked sums"'
    )


@pytest.mark.parametrize(
    ("before", "before_verdict", "after", "after_verdict", "kinds"),
    [
        (BLOCKED, "pass", STORED, "pass", ["arithmetic_changed"]),
        (BLOCKED, "pass", STORED, "fail_by_tolerance", ["false_alarm", "arithmetic_changed"]),
        (BLOCKED, "fail", STORED, "pass", ["fixed", "arithmetic_changed"]),
        (BLOCKED, "pass", BLOCKED, "pass", ["passed"]),
        (None, "pass", BLOCKED, "pass", ["passed"]),
    ],
)
def test_a_commit_with_another_arithmetic_has_a_class_after_its_others(
    before: str | None, before_verdict: str, after: str, after_verdict: str, kinds: list[str]
) -> None:
    programs = of({before: 8}) if before else None
    base = RunSummary("b", ("job",), {before_verdict: 8}, programs=programs)
    head = RunSummary("h", ("job",), {after_verdict: 8}, programs=of({after: 8}))
    assert [finding.kind.value for finding in classify(base, head).findings] == kinds


def test_another_arithmetic_alone_closes_no_gate() -> None:
    base, head = (
        RunSummary("b", ("job",), {"pass": 8}, programs=of({name: 8})) for name in (BLOCKED, STORED)
    )
    classified = classify(base, head)
    assert classified.findings[0].evidence["arithmetic"][0]["before"] == BLOCKED
    assert {gate([classified], level).code for level in FailOn} == {0}


def test_the_exact_test_of_fisher() -> None:
    for few, of_few, many, of_many in ((0, 8, 8, 8), (4, 8, 40, 40), (3, 8, 5, 8), (2, 2, 2, 2)):
        table = [[few, of_few - few], [many, of_many - many]]
        expected = fisher_exact(table, alternative="less").pvalue
        assert chance(few, of_few, many, of_many) == pytest.approx(expected)
