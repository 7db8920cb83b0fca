"""Fixed or masked: invented records, and emulated builds whose verdict turns green while the fault
stays."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gonogo import emulator
from gonogo.flakiness.masking import Change, Fault, Record, Seed, compare_builds, series
from gonogo.flakiness.rates import Outcome, outcome_of
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation

TEST = TestSpec.parse(
    {"kernel": "layernorm_bw", "shape": [16, 96], "tolerance": {"rtol": 1e-3, "atol": 0.5}}
)
UNEXPLAINED, EXPLAINED = Explanation.unexplained, Explanation.explained
TWICE = Fault("twice:s1", 1.0, "s1 is subtracted twice")


def emulated(build: str, defect: str, seeds: range, stray: float = 0.0) -> Record:
    """Return the record of an emulated build with a defect; a large `stray` turns its gate red."""
    judged_seeds = {}
    for seed in seeds:
        raw = generate(TEST, seed)
        inputs = quantise(TEST, raw)
        dx = np.array(emulator.run(TEST, inputs, defect)["dx"])
        dx[3, 5] += stray
        arrays = TEST, raw, inputs, {"dx": dx}
        judged = judge(*arrays, arithmetic="tt-train", produced=("dx",), with_limits=False)
        entry = judged.outputs["dx"].to_json()
        faults = {}
        if entry.get("fault"):
            best = entry["faults"][0]
            faults["dx"] = Fault(best["id"], best["size"], best["label"])
        green = outcome_of(judged.verdict) is Outcome.passed
        judged_seeds[seed] = Seed(green, judged.explanation, {"dx": entry["digest"]}, faults)
    return Record(build, judged_seeds)


@pytest.mark.slow
def test_a_series_of_builds_turns_green_and_the_fault_stays() -> None:
    """As in the bug report, two red builds turn green without a fix; the last has a real fix."""
    red = emulated("december-10", "double-subtract", range(2), stray=1.0)
    green = emulated("december-16", "double-subtract", range(2))
    records = [
        red,
        Record("december-12", red.seeds),
        green,
        Record("december-17", green.seeds),
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
    assert masked.by == "faults"
    assert "s1 is subtracted twice" in masked.words
    assert build_changes[4].before == "december-17"


def seeds(
    explanation: Explanation,
    green: bool,
    digest: str,
    fault: Fault | None = None,
    places: str = "",
    numbers: range = range(5),
) -> dict[int, Seed]:
    """Return seeds of dx with other bits each."""
    faults = {"dx": fault} if fault else {}
    at = {"dx": places} if places else {}
    return {n: Seed(green, explanation, {"dx": f"{digest}{n}"}, faults, at) for n in numbers}


def wrong(digest: str, green: bool = True, **signature: Any) -> Record:
    return Record(digest, seeds(UNEXPLAINED, green, digest, **signature))


def test_every_pair_of_builds_has_its_word() -> None:
    right, other = (
        Record("a", seeds(EXPLAINED, True, "r")),
        Record("b", seeds(EXPLAINED, True, "q")),
    )
    red = wrong("c", green=False, fault=TWICE)
    hollow = wrong("d", fault=TWICE)
    elsewhere = wrong("e", fault=Fault("missing:s2", 1.0))
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
    assert compare_builds(red, hollow).words == (
        "c to d: The verdict turned green, and the error stayed: the fault is masked, not fixed;"
        " red 5 of 5, then 0 of 5; unexplained 5 of 5, then 5 of 5; the same by faults:"
        " dx: s1 is subtracted twice"
    )
    assert all(member.sentence for member in Change)


FACTOR = Fault("factor:rstd", 0.01)
ROWS, BLOCK = "32 of 64 values are off, in rows 0 to 31", "32 of 64 values are off, in block (0, 0)"


@pytest.mark.parametrize(
    ("before", "after", "is_same", "by"),
    [
        (wrong("b", fault=FACTOR), wrong("a", fault=FACTOR._replace(size=0.0104)), True, "faults"),
        (wrong("b", fault=FACTOR), wrong("a", fault=FACTOR._replace(size=0.0106)), False, "faults"),
        (wrong("b", fault=FACTOR), wrong("a", fault=FACTOR._replace(size=-0.01)), False, "faults"),
        (wrong("b", fault=FACTOR), wrong("a", fault=TWICE), False, "faults"),
        (wrong("b", fault=FACTOR), wrong("a", places=ROWS), False, "faults"),
        (wrong("b", places=ROWS), wrong("a", fault=FACTOR, places=ROWS), False, "faults"),
        (wrong("b", fault=FACTOR, places=BLOCK), wrong("a", fault=FACTOR, places=ROWS), True,
         "faults"),
        (wrong("b", places=ROWS), wrong("a", places=ROWS), True, "places"),
        (wrong("b", places=ROWS), wrong("a", places=ROWS.replace("32 of", "1,030 of")), True,
         "places"),
        (wrong("b", places=ROWS), wrong("a", places=BLOCK), False, "places"),
        (wrong("b", places=ROWS), wrong("a", places=ROWS, numbers=range(9, 12)), True, "places"),
        (wrong("b", places=ROWS), wrong("a", places=BLOCK, numbers=range(9, 12)), False, "places"),
        (wrong("b"), wrong("a", places=ROWS), False, "places"),
        (wrong("b"), wrong("a"), False, "nothing"),
    ],
    ids=[
        "a size within a twentieth", "a size beyond it", "a size of the other sign",
        "another fault", "no fault any more", "a fault where there was none",
        "the fault counts, not the places", "the same places", "the same with another count",
        "other places",
        "the same places on other seeds", "other places on other seeds",
        "no places before", "no signature",
    ],
)  # fmt: skip
def test_an_output_is_known_by_its_fault_else_by_its_wrong_places(
    before: Record, after: Record, is_same: bool, by: str
) -> None:
    change = compare_builds(before, after)
    assert change.change is (Change.still_wrong if is_same else Change.wrong_otherwise)
    assert (bool(change.same), change.by) == (is_same, by)
    assert bool(change.differing) is (not is_same and by != "nothing")


def test_one_of_two_faults_fixed_is_masked_only_if_the_other_stays_the_same() -> None:
    def record(build: str, green: bool, **faults: Fault) -> Record:
        return Record(build, {0: Seed(green, UNEXPLAINED, {"dx": build}, faults)})

    both = record("a", False, dx=TWICE, dgamma=FACTOR)
    assert compare_builds(both, record("b", True, dx=TWICE)).change is Change.fix_masked
    moved = compare_builds(both, record("c", True, dx=TWICE, dgamma=TWICE))
    assert (moved.change, moved.same) == (Change.wrong_otherwise, ("dx: s1 is subtracted twice",))
    assert moved.differing == ("dgamma: s1 is subtracted twice",)


def test_the_fault_of_most_seeds_counts_with_the_median_of_its_sizes() -> None:
    sizes = [Fault("factor:rstd", size) for size in (0.01, 0.01, 0.5)]
    faults = enumerate([TWICE, *sizes])
    mixed = Record("b", {n: Seed(True, UNEXPLAINED, {}, {"dx": fault}) for n, fault in faults})
    assert compare_builds(mixed, wrong("a", fault=FACTOR)).change is Change.still_wrong
    assert compare_builds(mixed, wrong("a", fault=TWICE)).change is Change.wrong_otherwise


def test_places_are_the_same_if_those_of_most_common_seeds_are() -> None:
    before = wrong("b", places=ROWS)
    some = seeds(UNEXPLAINED, True, "a", places=ROWS)
    for count, change in ((2, Change.still_wrong), (3, Change.wrong_otherwise)):
        others = seeds(UNEXPLAINED, True, "a", places=BLOCK, numbers=range(count))
        assert compare_builds(before, Record("a", some | others)).change is change


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


FAULTS = st.builds(Fault, st.sampled_from(["twice:s1", "factor:s2"]), st.floats())
OUTPUTS = st.sampled_from(["dx", "dgamma"])
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
            st.dictionaries(OUTPUTS, FAULTS),
            st.dictionaries(OUTPUTS, st.sampled_from([ROWS, BLOCK])),
        ),
    ),
)


@given(st.lists(RECORDS, max_size=4))
def test_any_records_have_an_answer(records: list[Record]) -> None:
    for build_change in series(records):
        json.dumps(asdict(build_change), allow_nan=False)
        assert build_change.words
