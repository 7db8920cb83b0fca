"""Fixed or masked: invented records, and emulated builds whose verdict turns green while the
coefficients stay."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo import emulator
from gonogo.flakiness.masking import (
    Change,
    Coefficients,
    Record,
    Seed,
    compare_builds,
    same_coefficients,
    series,
)
from gonogo.flakiness.rates import Outcome, outcome_of
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.kernels.layernorm.forensics import diagnose
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation

TEST = TestSpec.parse(
    {"kernel": "layernorm_bw", "shape": [96, 1024], "tolerance": {"rtol": 1e-3, "atol": 0.5}}
)
UNEXPLAINED, EXPLAINED = Explanation.unexplained, Explanation.explained


def emulated(build: str, defect: str, seeds: range, stray: float = 0.0) -> Record:
    """Return the record of an emulated build with a defect; a large `stray` turns its gate red."""
    judged_seeds, terms = {}, {}
    for seed in seeds:
        raw = generate(TEST, seed)
        inputs = quantise(TEST, raw)
        dx = np.array(emulator.run(TEST, inputs, defect)["dx"])
        dx[3, 5] += stray
        judged = judge(TEST, raw, inputs, {"dx": dx}, arithmetic="tt-train", produced=("dx",))
        output = judged.outputs["dx"]
        statistics = {
            name: value for name, value in output.statistics.items() if isinstance(value, float)
        }
        green = outcome_of(judged.verdict) is Outcome.passed
        judged_seeds[seed] = Seed(
            green, judged.explanation, {"dx": str(output.statistics["digest"])}, {"dx": statistics}
        )
        if not terms and judged.explanation is UNEXPLAINED:
            terms = {
                f"{term.output} {term.name}": Coefficients(
                    term.coefficients, term.errors, term.wrong, term.words
                )
                for term in diagnose(TEST, inputs, {"dx": dx}).terms
            }
    return Record(build, judged_seeds, terms)


def test_a_series_of_builds_turns_green_and_the_fault_stays() -> None:
    """As in the bug report, two red builds turn green without a fix; the last has a real fix."""
    records = [
        emulated("december-10", "double-subtract", range(2), stray=1.0),
        emulated("december-12", "double-subtract", range(2), stray=1.0),
        emulated("december-16", "double-subtract", range(2)),
        emulated("december-17", "double-subtract", range(2)),
        Record("not-run", {}),
        emulated("fixed", "correct", range(2)),
    ]
    build_changes = series(records)
    assert [build_change.change for build_change in build_changes] == [
        Change.unchanged,
        Change.fix_masked,
        Change.unchanged,
        Change.unknown,
        Change.fixed,
    ]
    masked = build_changes[1]
    assert masked.turned_green
    assert masked.by == "coefficients"
    assert "s1 is subtracted twice" in masked.words
    assert build_changes[4].before == "december-17"


def seeds(
    explanation: Explanation, green: bool, digest: str, **statistics: float
) -> dict[int, Seed]:
    return {
        k: Seed(green, explanation, {"dx": f"{digest}{k}"}, {"dx": statistics}) for k in range(5)
    }


def test_every_pair_of_builds_has_its_word() -> None:
    right, other = (
        Record("a", seeds(EXPLAINED, True, "r")),
        Record("b", seeds(EXPLAINED, True, "q")),
    )
    red = Record("c", seeds(UNEXPLAINED, False, "w", row_z=200.0))
    hollow = Record("d", seeds(UNEXPLAINED, True, "h", row_z=210.0))
    elsewhere = Record("e", seeds(UNEXPLAINED, True, "x", row_z=20.0))
    expected_changes = (
        (right, other, Change.right),
        (right, red, Change.broken),
        (red, right, Change.fixed),
        (red, hollow, Change.fix_masked),
        (hollow, red, Change.still_wrong),
        (red, elsewhere, Change.wrong_otherwise),
        (right, right, Change.unchanged),
    )
    for before, after, change in expected_changes:
        assert compare_builds(before, after).change is change
    assert compare_builds(red, hollow).by == "statistics"
    assert all(member.sentence for member in Change)


def test_one_of_two_faults_fixed_is_masked_only_if_the_other_stays_the_same() -> None:
    def record(build: str, green: bool, **values: float) -> Record:
        terms = {
            name: Coefficients((value,) * 8, (0.001,) * 8, abs(value - 1) > 0.1)
            for name, value in values.items()
        }
        return Record(build, seeds(UNEXPLAINED, green, build), terms)

    both, one, changed = (
        record("a", False, s1=2.0, s2=0.0),
        record("b", True, s1=2.0, s2=1.0),
        record("c", True, s1=0.0, s2=1.0),
    )
    assert compare_builds(both, one).change is Change.fix_masked
    assert compare_builds(both, changed).change is Change.wrong_otherwise
    assert compare_builds(both, changed).differing == ("s1",)


def test_coefficients_are_compared_within_their_errors() -> None:
    exact = Coefficients((1.0, 2.0, None), (0.001, 0.001, None), True)
    assert same_coefficients(exact, Coefficients((1.01, 2.0, 5.0), (0.001, 0.001, 0.1), True))
    assert not same_coefficients(exact, Coefficients((1.0, 1.0, None), (0.001, 0.001, None), True))
    assert same_coefficients(exact, Coefficients((1.0, 1.0, None), (0.001, 0.5, None), True))
    assert not same_coefficients(exact, Coefficients((1.0,), (0.001,), True))
    assert not same_coefficients(
        Coefficients((None,), (None,), False), Coefficients((None,), (None,), False)
    )


@pytest.mark.parametrize(
    ("second", "errors", "same"),
    [
        ((1.0,) * 4 + (9.0,), None, True),  # four of five are enough
        ((1.0,) * 3 + (9.0,) * 2, None, False),
        ((1.049,) * 5, None, True),
        ((1.051,) * 5, None, False),
        ((1.5,) * 5, (0.1,) * 5, True),  # within four joint errors of 0.13
        ((1.6,) * 5, (0.1,) * 5, False),
        ((1.5,) * 5, (float("inf"),) * 5, False),  # an error without an end excuses nothing
        ((1.0, float("nan"), float("inf"), None, 1.0), None, True),
    ],
)
def test_most_tiles_have_the_same_coefficient(
    second: tuple[float | None, ...], errors: tuple[float, ...] | None, same: bool
) -> None:
    first = Coefficients((1.0,) * 5, (0.08,) * 5 if errors else (None,) * 5, True)
    other = Coefficients(second, errors or (None,) * 5, True)
    assert same_coefficients(first, other) is same
    assert same_coefficients(other, first) is same


@pytest.mark.parametrize(
    ("before", "after", "change", "same", "differing"),
    [
        # explained limits: budget_ratio 3, chi 2, directions 4; the same is within a factor of two
        ({"row_z": 40.0}, {"row_z": 80.0}, "fix_masked", ("dx row_z",), ()),
        ({"row_z": 40.0}, {"row_z": -80.1}, "wrong_otherwise", (), ("dx row_z",)),
        ({"row_z": 4.0}, {"row_z": 1.0}, "wrong_otherwise", (), ()),
        ({"row_z": 4.1}, {"row_z": 2.1}, "fix_masked", ("dx row_z",), ()),
        ({"chi": 2.1}, {"chi": 2.0}, "fix_masked", ("dx chi",), ()),
        ({"chi": 2.0}, {"chi": 2.0}, "wrong_otherwise", (), ()),
        ({"budget_ratio": 3.1}, {"budget_ratio": 3.0}, "fix_masked", ("dx budget_ratio",), ()),
        ({"budget_ratio": 3.0}, {"budget_ratio": 3.0}, "wrong_otherwise", (), ()),
        ({"row_z_max": 90.0}, {"row_z_max": 90.0}, "wrong_otherwise", (), ()),  # maxima scatter
        ({"chi": 9.0, "row_z": 9.0}, {"chi": 9.0}, "fix_masked", ("dx chi",), ()),
        (
            {"chi": 9.0, "row_z": 9.0},
            {"chi": 9.0, "row_z": 99.0},
            "wrong_otherwise",
            ("dx chi",),
            ("dx row_z",),
        ),
    ],
)
def test_statistics_above_their_limits_are_the_signature(
    before: dict[str, float],
    after: dict[str, float],
    change: str,
    same: tuple[str, ...],
    differing: tuple[str, ...],
) -> None:
    build_change = compare_builds(
        Record("a", seeds(UNEXPLAINED, False, "w", **before)),
        Record("b", seeds(UNEXPLAINED, True, "v", **after)),
    )
    assert (build_change.change, build_change.same, build_change.differing) == (
        change,
        same,
        differing,
    )
    assert build_change.turned_green
    assert build_change.by == ("statistics" if same or differing else "nothing")


def test_terms_that_are_wrong_on_one_side_only_differ() -> None:
    wrong = Coefficients((2.0,), (0.1,), True, "s1 is counted twice")
    right = Coefficients((1.0,), (0.1,), False)

    def record(build: str, **terms: Coefficients) -> Record:
        return Record(build, seeds(UNEXPLAINED, False, build, chi=9.0), terms)

    for before, after in ((wrong, right), (right, wrong)):
        build_change = compare_builds(record("a", s1=before), record("b", s1=after))
        assert (build_change.change, build_change.by) == (Change.wrong_otherwise, "coefficients")
        assert build_change.differing == ("s1",)
    neither = compare_builds(record("a", s1=right), record("b", s1=right))
    assert (neither.change, neither.by) == (Change.still_wrong, "statistics")
    unnamed = compare_builds(record("a", s1=wrong), record("b"))
    assert (unnamed.change, unnamed.by) == (Change.still_wrong, "statistics")
    both = compare_builds(record("a", s1=wrong, s2=wrong), record("b", s1=wrong, s2=right))
    assert (both.change, both.same) == (Change.still_wrong, ("s1",))
    assert both.words == (
        "a to b: The error is unexplained on both, and looks the same; red 5 of 5, then 5 of 5; "
        "unexplained 5 of 5, then 5 of 5; the same by coefficients: s1 (s1 is counted twice)"
    )


def test_only_common_seeds_with_digests_are_compared_bit_for_bit() -> None:
    first = seeds(EXPLAINED, True, "w")
    second = {**first, 7: Seed(True, EXPLAINED, {"dx": "other"}), 8: Seed(True, EXPLAINED)}
    build_change = compare_builds(
        Record("a", first), Record("b", second | {0: Seed(True, EXPLAINED)})
    )
    assert (build_change.change, build_change.by) == (Change.unchanged, "digests")
    assert "; 4 seeds compared" in build_change.words
    third = {**first, 2: Seed(True, EXPLAINED, {"dx": "other"})}
    assert compare_builds(Record("a", first), Record("b", third)).change is Change.right


def test_a_build_is_red_or_wrong_by_what_its_seeds_say() -> None:
    before = {
        0: Seed(False, UNEXPLAINED),
        1: Seed(None, EXPLAINED),
        2: Seed(True, Explanation.suspect),
    }
    silent = {0: Seed(None, Explanation.inconclusive)}
    build_change = compare_builds(Record("a", before), Record("b", silent))
    assert (build_change.change, build_change.turned_green) == (Change.unknown, False)
    assert build_change.words.endswith("there is no baseline. No judged seed of b.")
    assert (build_change.red[0].failures, build_change.red[0].runs, build_change.red[1].known) == (
        1,
        2,
        False,
    )
    assert (build_change.unexplained[0].failures, build_change.unexplained[0].runs) == (1, 2)
    both = compare_builds(Record("a", silent), Record("b", silent))
    assert both.words.endswith("No judged seed of a and b.")


def test_a_series_compares_with_the_nearest_judged_build() -> None:
    silent = Record("s", {0: Seed(True, Explanation.suspect)})
    right, wrong = (
        Record("r", seeds(EXPLAINED, True, "r")),
        Record("w", seeds(UNEXPLAINED, False, "w")),
    )
    build_change = series([silent, right, silent, wrong])
    assert [(change.before, change.after, change.change.value) for change in build_change] == [
        ("s", "r", "unknown"),
        ("r", "s", "unknown"),
        ("r", "w", "broken"),
    ]


def test_bits_that_are_equal_say_so_even_where_the_verdict_moved() -> None:
    before, after = (
        Record("a", seeds(UNEXPLAINED, False, "w")),
        Record("b", seeds(UNEXPLAINED, True, "w")),
    )
    build_change = compare_builds(before, after)
    assert build_change.change is Change.unchanged
    assert "turned green for another reason" in build_change.words


def test_without_judged_seeds_there_is_no_baseline() -> None:
    empty = Record("a", {0: Seed(True, Explanation.not_judged)})
    build_change = compare_builds(empty, Record("b", seeds(EXPLAINED, True, "r")))
    assert build_change.change is Change.unknown
    assert "No judged seed of a" in build_change.words
    assert series([]) == ()


NUMBERS = st.none() | st.floats()
RECORDS = st.builds(
    Record,
    st.sampled_from("ab"),
    st.dictionaries(
        st.integers(0, 3),
        st.builds(
            Seed,
            st.none() | st.booleans(),
            st.sampled_from(list(Explanation)),
            st.dictionaries(st.just("dx"), st.sampled_from("12")),
            st.dictionaries(
                st.just("dx"), st.dictionaries(st.sampled_from(["chi", "row_z"]), NUMBERS)
            ),
        ),
    ),
    st.dictionaries(
        st.sampled_from(["s1", "s2"]),
        st.integers(0, 3).flatmap(
            lambda n: st.builds(
                Coefficients, st.tuples(*[NUMBERS] * n), st.tuples(*[NUMBERS] * n), st.booleans()
            )
        ),
    ),
)


@given(st.lists(RECORDS, max_size=4))
def test_any_records_have_an_answer(records: list[Record]) -> None:
    for build_change in series(records):
        json.dumps(asdict(build_change), allow_nan=False)
        assert build_change.words


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_statistics_that_say_nothing_are_no_signature(value: float) -> None:
    before, after = (
        Record("a", seeds(UNEXPLAINED, False, "w", chi=value)),
        Record("b", seeds(UNEXPLAINED, True, "v", chi=value)),
    )
    build_change = compare_builds(before, after)
    assert build_change.change is Change.wrong_otherwise
    assert build_change.by == "nothing"
