"""Suites expanded: defaults merged, matrices, names, and where a wrong field was written."""

from __future__ import annotations

from typing import Any

import pytest

from gonogo.errors import FieldError
from gonogo.spec.suites import MAX_TESTS, Template, expand

TEST: dict[str, Any] = {"kernel": "layernorm_bw", "tolerance": {"rtol": 1e-3, "atol": 0.5}}
DEFAULTS = {"test": TEST, "target": {"board": "n300"}, "seeds": {"count": 4}}


def suite(*entries: dict[str, Any]) -> list[Template]:
    return expand({"defaults": DEFAULTS, "entries": list(entries)})


def test_an_entry_is_merged_over_the_defaults_member_by_member() -> None:
    custom_test = {"kernel": "layernorm_fw", "shape": [2, 3], "tolerance": {"pcc": 0.99}}
    changed = {"test": custom_test, "target": {"arch": "x"}, "seeds": [7]}
    (plain, custom) = suite({"test": {"shape": [32, 64]}}, changed)
    assert plain.body == {**DEFAULTS, "test": {**TEST, "shape": [32, 64]}}
    assert custom.body["test"] == custom_test  # a tolerance isn't mixed
    assert (custom.body["target"], custom.body["seeds"]) == ({"board": "n300", "arch": "x"}, [7])
    assert [plain.name, custom.name] == ["layernorm_bw 32x64", "layernorm_fw 2x3"]


def test_a_selection_takes_nothing_of_a_kernel_s_defaults() -> None:
    selection = {"selection": {"suite": "unit", "filter": "LayerNorm*"}}
    (template,) = suite({"test": selection})
    assert (template.body["test"], template.name) == (selection, "unit LayerNorm*")


def test_a_matrix_makes_a_test_of_each_combination() -> None:
    matrix = {"shape": [[32, 64], [1, 9]], "numerics": [{"accumulate": "bf16"}, {}]}
    templates = suite({"name": "grid", "test": {"numerics": {"input": "fp32"}}, "matrix": matrix})
    names = ["32x64 accumulate=bf16", "32x64", "1x9 accumulate=bf16", "1x9"]
    assert [template.name for template in templates] == [f"grid {name}" for name in names]
    assert templates[0].body["test"]["numerics"] == {"input": "fp32", "accumulate": "bf16"}
    assert templates[2].body["test"]["shape"] == [1, 9]
    assert "matrix" not in templates[0].body


@pytest.mark.parametrize(
    ("entries", "field"),
    [
        ([], "entries"),
        ([{"name": "a"}, {"name": "a"}], "entries.1.name"),
        ([{"matrix": {"build": ["x"]}}], "entries.0.matrix.build"),
        ([{"matrix": {"shape": []}}], "entries.0.matrix.shape"),
        ([{"test": {"selection": {}}, "matrix": {"shape": [[1]]}}], "entries.0.matrix"),
        ([{"name": "x" * 250}], "entries.0.name"),
        ([{"name": str(n)} for n in range(MAX_TESTS + 1)], "entries"),
    ],
)
def test_a_suite_that_is_none_is_refused(entries: list[dict[str, Any]], field: str) -> None:
    with pytest.raises(FieldError) as refused:
        expand({"entries": entries})
    assert refused.value.field == field
