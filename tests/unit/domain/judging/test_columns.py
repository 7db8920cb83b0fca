"""The outputs of a batch's seeds as columns: nothing is lost on the way."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batch_rows import rows_of
from gonogo.judging.columns import SeedColumns, columns_of, in_columns

VALUES: st.SearchStrategy[Any] = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([None, 1, 1.0, True, "a", [], [1], [1.0], [True], {}, {"0": 1}, {"0": -0.0}]),
    st.dictionaries(st.sampled_from("xyz"), st.floats(0, 1), min_size=1),
)
OUTPUTS = st.dictionaries(
    st.sampled_from(["dx", "dgamma"]),
    st.dictionaries(st.sampled_from(["verdict", "rms", "shared", "atol"]), VALUES, min_size=1),
)


@given(st.lists(OUTPUTS, max_size=6))
@example([{"dx": {"rms": 0.5, "shared": value}} for value in ([1], [1.0], [True])])
def test_rows_come_back_as_they_were(outputs: list[dict[str, Any]]) -> None:
    rows = [{"seed": seed, "outputs": of_seed} for seed, of_seed in enumerate(outputs)]
    message = json.loads(json.dumps(in_columns(rows)))
    # repr tells 1 from 1.0 and True
    assert repr(_ordered(rows_of(message))) == repr(_ordered(rows))


def _ordered(rows: list[dict[str, Any]]) -> list[Any]:
    return [(row["seed"], sorted(row["outputs"].items())) for row in rows]


ENTRIES: list[dict[str, Any]] = [
    {"verdict": "pass", "rms": 0.5, "needed": {"0.1": 1.0, "0.2": 2.0}},
    {"verdict": "fail", "rms": 1.5, "needed": {"0.1": 3.0, "0.2": 4.0}},
    {"verdict": "pass", "rms": np.inf, "needed": {"0.1": 5.0, "0.2": 6.0}},
]


def test_columns_give_values_and_parts_by_places() -> None:
    seeds = [{"y": entry, "dx": {"rms": 0.25}} for entry in ENTRIES]
    (columns,) = columns_of([*seeds, {}], [10, 20, 40, 50])
    assert columns.rows == [10, 20, 40]
    assert not columns.is_finite
    dx, y = columns.outputs
    assert (dx.name, y.name) == ("dx", "y")
    assert y.values("verdict") == ("pass", "fail", "pass")
    assert y.values("rms") == [0.5, 1.5, np.inf]
    assert y.values("needed") == [entry["needed"] for entry in ENTRIES]
    assert y.values("unknown") == [None] * 3
    assert (y.find("verdict"), y.find("needed")) == (None, None)
    assert columns.objects() == seeds
    part = columns.within({40: 1, 10: 0, 30: 2})
    assert part.rows == [0, 1]
    assert part.objects() == [seeds[0], seeds[2]]
    assert columns.take([1]).is_finite
    again = SeedColumns.parse(json.loads(json.dumps(columns.take([1]).to_json())))
    assert (again.rows, again.objects()) == ([20], [seeds[1]])


def test_seeds_with_other_statistics_have_columns_of_their_own() -> None:
    seeds = [{"y": {"rms": 0.5}}, {"y": {"rms": None}}, {"y": {"rms": 1.5}}]
    assert [part.rows for part in columns_of(seeds, range(3))] == [[0, 2], [1]]


def test_gauges_and_existing_tests_keep_their_outputs_and_columns_are_counted() -> None:
    judged = {"seed": 0, "outputs": {"dx": {"rms": 0.5}}}
    others = [
        {"seed": 1, "part": "a", "outputs": {"dx": {"rms": 0.5}}},
        {"seed": 2, "outputs": {"Suite.0": {"outcome": "passed"}, "Suite.0/dx": {"rms": 0.5}}},
        {"seed": 3, "outputs": {}},
    ]
    message = in_columns([judged, *others])
    assert message["rows"] == [{"seed": 0}, *others]
    (columns,) = message["columns"]
    assert SeedColumns.parse(columns).take([0]).outputs[0].find("rms") == np.array([0.5])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"statistics": ["rms", "shared"]}, r"1 other values; these don't: \['shared'\]"),
        ({"statistics": []}, r"these don't: \['rms'\]"),
        ({"same": {"rms": 1}}, "either numbers or"),
        ({"different": {"shared": [1, 2]}}, r"these don't: \['shared'\]"),
        ({"numbers": "AAAA"}, "buffer size"),
        ({"numbers": "!"}, "base64"),
    ],
)
def test_columns_that_do_not_fit_are_refused(changes: dict[str, Any], words: str) -> None:
    message = in_columns([{"seed": 0, "outputs": {"dx": {"rms": 0.5}}}])
    (columns,) = message["columns"]
    output = columns["outputs"][0] | changes
    with pytest.raises(ValueError, match=words):
        SeedColumns.parse({**columns, "outputs": [output]})
