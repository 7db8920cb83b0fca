"""Fixed or masked: records of builds whose verdict turns green while the fault stays."""

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
from gonogo.spec.verdicts import Explanation
from numeric_cases import spec

TEST = spec("layernorm_bw", (16, 96), tolerance={"rtol": 1e-3, "atol": 0.5})
UNEXPLAINED, EXPLAINED = Explanation.unexplained, Explanation.explained
TWICE = Fault("twice:s1", 1.0, "s1 is subtracted twice")
FACTOR = Fault("factor:rstd", 0.01)
ROWS, BLOCK = "32 of 64 values are off, in rows 0 to 31", "32 of 64 values are off, in block (0, 0)"


def emulated(build: str, defect: str, stray: float = 0.0) -> Record:
    """Return the record of an emulated build with a defect; a large `stray` turns its gate red."""
    raw = generate(TEST, 0)
    inputs = quantise(TEST, raw)
    dx = np.array(emulator.run(TEST, inputs, defect)["dx"])
    dx[3, 5] += stray
    about = {"arithmetic": "tt-train", "produced": ("dx",), "with_limits": False}
    judged = judge(TEST, raw, inputs, {"dx": dx}, **about)
    entry = judged.outputs["dx"].to_json()
    best = entry["faults"][0] if entry.get("fault") else None
    faults = {"dx": Fault(best["id"], best["size"], best["label"])} if best else {}
    green = outcome_of(judged.verdict) is Outcome.passed
    return Record(build, {0: Seed(green, judged.explanation, {"dx": entry["digest"]}, faults)})


@pytest.mark.slow
def test_a_series_of_builds_turns_green_and_the_fault_stays() -> None:
    """As in the bug report, two red builds turn green without a fix; the last has a real fix."""
    red = emulated("december-10", "double-subtract", stray=1.0)
    green = emulated("december-16", "double-subtract")
    again = Record("december-12", red.seeds), green, Record("december-17", green.seeds)
    changes = series([red, *again, Record("not-run", {}), emulated("fixed", "correct")])
    kinds = ["unchanged", "fix_masked", "unchanged", "unknown", "fixed"]
    assert [change.change.value for change in changes] == kinds
    assert (changes[1].turned_green, changes[1].by) == (True, "faults")
    assert "s1 is subtracted twice" in changes[1].words
    assert changes[4].before == "december-17"


def record(
    build: str, color: str, fault: Fault | None = None, places: str = "", numbers: range = range(5)
) -> Record:
    """Return seeds of dx with bits of their own; the color is right, hollow or red."""
    explanation = EXPLAINED if color == "right" else UNEXPLAINED
    faults, at = {"dx": fault} if fault else {}, {"dx": places} if places else {}
    green = color != "red"
    digests = {n: {"dx": f"{build}{n}"} for n in numbers}
    return Record(build, {n: Seed(green, explanation, digests[n], faults, at) for n in numbers})


RIGHT, OTHER, RED = record("a", "right"), record("b", "right"), record("c", "red", TWICE)
HOLLOW, ELSEWHERE = record("d", "hollow", TWICE), record("e", "hollow", Fault("missing:s2", 1.0))


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (RIGHT, OTHER, Change.right),
        (RIGHT, RED, Change.broken),
        (RED, RIGHT, Change.fixed),
        (RED, HOLLOW, Change.fix_masked),
        (HOLLOW, RED, Change.still_wrong),
        (RED, ELSEWHERE, Change.wrong_otherwise),
        (RIGHT, RIGHT, Change.unchanged),
    ],
)
def test_every_pair_of_builds_has_its_change(before: Record, after: Record, change: Change) -> None:
    assert compare_builds(before, after).change is change


def test_a_masked_fault_is_said_with_its_rates() -> None:
    assert compare_builds(RED, HOLLOW).words == (
        "c to d: The verdict turned green, and the error stayed: the fault is masked, not fixed;"
        " red 5 of 5, then 0 of 5; unexplained 5 of 5, then 5 of 5; the same by faults:"
        " dx: s1 is subtracted twice"
    )


LATER = range(9, 12)


@pytest.mark.parametrize(
    ("before", "after", "is_same", "by"),
    [
        ((FACTOR,), (FACTOR._replace(size=0.0104),), True, "faults"),  # within a twentieth
        ((FACTOR,), (FACTOR._replace(size=0.0106),), False, "faults"),
        ((FACTOR,), (FACTOR._replace(size=-0.01),), False, "faults"),
        ((FACTOR,), (TWICE,), False, "faults"),
        ((FACTOR,), (None, ROWS), False, "faults"),  # no fault any more
        ((None, ROWS), (FACTOR, ROWS), False, "faults"),
        ((FACTOR, BLOCK), (FACTOR, ROWS), True, "faults"),  # the fault counts, not the places
        ((None, ROWS), (None, ROWS), True, "places"),
        ((None, ROWS), (None, ROWS.replace("32 of", "1,030 of")), True, "places"),
        ((None, ROWS), (None, BLOCK), False, "places"),
        ((None, ROWS), (None, ROWS, LATER), True, "places"),  # on other seeds
        ((None, ROWS), (None, BLOCK, LATER), False, "places"),
        ((), (None, ROWS), False, "places"),
        ((), (), False, "nothing"),
    ],
)
def test_an_output_is_known_by_its_fault_else_by_its_wrong_places(
    before: tuple[Any, ...], after: tuple[Any, ...], is_same: bool, by: str
) -> None:
    change = compare_builds(record("b", "hollow", *before), record("a", "hollow", *after))
    assert change.change is (Change.still_wrong if is_same else Change.wrong_otherwise)
    assert (bool(change.same), change.by) == (is_same, by)
    assert bool(change.differing) is (not is_same and by != "nothing")


def test_one_of_two_faults_fixed_is_masked_only_if_the_other_stays_the_same() -> None:
    def seeds(build: str, green: bool, **faults: Fault) -> Record:
        return Record(build, {0: Seed(green, UNEXPLAINED, {"dx": build}, faults)})

    both = seeds("a", False, dx=TWICE, dgamma=FACTOR)
    assert compare_builds(both, seeds("b", True, dx=TWICE)).change is Change.fix_masked
    moved = compare_builds(both, seeds("c", True, dx=TWICE, dgamma=TWICE))
    assert (moved.change, moved.same) == (Change.wrong_otherwise, ("dx: s1 is subtracted twice",))
    assert moved.differing == ("dgamma: s1 is subtracted twice",)


def test_the_fault_of_most_seeds_counts_with_the_median_of_its_sizes() -> None:
    faults = [TWICE, *(Fault("factor:rstd", size) for size in (0.01, 0.01, 0.5))]
    seeds = {n: Seed(True, UNEXPLAINED, {}, {"dx": fault}) for n, fault in enumerate(faults)}
    for fault, change in ((FACTOR, Change.still_wrong), (TWICE, Change.wrong_otherwise)):
        after = record("a", "hollow", fault)
        assert compare_builds(Record("b", seeds), after).change is change


@pytest.mark.parametrize(
    ("moved", "change"), [(range(2), Change.still_wrong), (range(3), Change.wrong_otherwise)]
)
def test_places_are_the_same_if_those_of_most_common_seeds_are(
    moved: range, change: Change
) -> None:
    before, after = record("b", "hollow", None, ROWS), record("a", "hollow", None, ROWS)
    others = record("a", "hollow", None, BLOCK, moved)
    assert compare_builds(before, Record("a", after.seeds | others.seeds)).change is change


def test_only_common_seeds_with_digests_are_compared_bit_for_bit() -> None:
    first, other = record("w", "right").seeds, Seed(True, EXPLAINED, {"dx": "other"})
    without_digest = Seed(True, EXPLAINED)
    second = {**first, 0: without_digest, 7: other, 8: without_digest}
    change = compare_builds(Record("a", first), Record("b", second))
    assert (change.change, change.by) == (Change.unchanged, "digests")
    assert "; 4 seeds compared" in change.words
    change = compare_builds(Record("a", first), Record("b", {**first, 2: other}))
    assert change.change is Change.right


def test_equal_bits_are_said_also_where_the_verdict_moved() -> None:
    change = compare_builds(record("w", "red"), record("w", "hollow"))
    assert change.change is Change.unchanged
    assert "turned green for another reason" in change.words


def test_a_build_is_red_or_wrong_by_what_its_seeds_say() -> None:
    verdicts = (False, UNEXPLAINED), (None, EXPLAINED), (True, Explanation.suspect)
    before = {n: Seed(*verdict) for n, verdict in enumerate(verdicts)}
    silent = {0: Seed(None, Explanation.inconclusive)}
    change = compare_builds(Record("a", before), Record("b", silent))
    assert (change.change, change.turned_green) == (Change.unknown, False)
    assert change.words.endswith("there is no baseline. No judged seed of b.")
    for rates in (change.red, change.unexplained):
        assert (rates[0].failures, rates[0].runs, rates[1].known) == (1, 2, False)
    both = compare_builds(Record("a", silent), Record("b", silent))
    assert both.words.endswith("No judged seed of a and b.")


def test_a_series_compares_with_the_nearest_judged_build() -> None:
    silent = Record("s", {0: Seed(True, Explanation.suspect)})
    changes = series([silent, record("r", "right"), silent, record("w", "red")])
    rows = [(change.before, change.after, change.change.value) for change in changes]
    assert rows == [("s", "r", "unknown"), ("r", "s", "unknown"), ("r", "w", "broken")]


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
