"""Fixed or masked: invented records, and emulated builds whose verdict turns green while the
coefficients stay."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from gonogo.kernels.layernorm import emulation
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
        dx = np.array(emulation.run(TEST, inputs, defect)["dx"])
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
        json.dumps(build_change.to_json(), allow_nan=False)
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
