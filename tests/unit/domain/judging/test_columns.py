"""The outputs of a batch's seeds as columns: nothing is lost on the way."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batch_rows import rows_of
from gonogo.judging.columns import SeedColumns, in_columns

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
    output = {**columns["outputs"][0], "statistics": ["rms", "shared"]}
    with pytest.raises(ValueError, match=r"output dx: .* these don't: \['shared'\]"):
        SeedColumns.parse({**columns, "outputs": [output]})
