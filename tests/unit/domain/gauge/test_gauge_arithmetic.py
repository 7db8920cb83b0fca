"""The arithmetic models of a gauge's kernels, and what their verdicts could not have shown."""

from __future__ import annotations

import json
from typing import Any

from gonogo.gauge import kernels, measure
from gonogo.gauge.arithmetic import alike
from gonogo.gauge.kernels import Kind
from gonogo.gauge.report import report
from gonogo.kernels import registry
from gonogo.numerics.formats import round_to
from numeric_cases import spec

TEST = spec("layernorm_fw", (16, 96), numerics={"input": "bf16", "output": "bf16"})


def row(seed: int, *, arithmetic: str | None, name: str = "right") -> dict[str, Any]:
    """Return the row of a kernel that computes in fp32 and rounds once."""
    drawn = measure.Drawn.of(TEST, seed)
    exact = registry.numerics(TEST).reference(TEST, drawn.given)
    outputs = {output: round_to(value, "bf16") for output, value in exact.items()}
    part = kernels.foreign(TEST, "mine", name, Kind.go)
    return measure.measured(part, drawn, outputs, arithmetic=arithmetic, produced=("y",))


def test_a_kernel_s_model_and_limits_are_those_of_its_seeds() -> None:
    rows = [row(seed, arithmetic=None) for seed in range(2)]
    gauge = report(TEST, rows)
    ((part, (y,)),) = gauge.arithmetic.items()
    assert (part, y.output, y.arithmetic, y.seeds) == ("mine:right", "y", "fp32-inside", 2)
    limits = [row_["outputs"]["y"]["detection_limits"] for row_ in rows]
    assert y.detection_limits
    assert set(y.detection_limits) <= {phrase for phrases in limits for phrase in phrases}
    (shown,) = json.loads(json.dumps(gauge.to_json()))["arithmetic"]["mine:right"]
    assert shown["model"] == "fp32-inside"
    assert shown["detection_limits"] == list(y.detection_limits)


def test_a_budget_that_a_build_names_is_its_model_with_limits() -> None:
    measured = row(0, arithmetic="ttnn")
    ((_, (y,)),) = report(TEST, [measured]).arithmetic.items()
    assert (y.output, y.arithmetic, y.model) == ("y", "ttnn", "ttnn")
    assert list(y.detection_limits) == measured["outputs"]["y"]["detection_limits"] != []


def test_a_budget_that_explains_nothing_is_still_the_model() -> None:
    measured = row(0, arithmetic="ttnn")
    del measured["outputs"]["y"]["detection_limits"]
    ((_, (y,)),) = report(TEST, [measured]).arithmetic.items()
    assert (y.output, y.arithmetic, y.model, y.detection_limits) == ("y", "ttnn", "ttnn", ())


def test_kernels_with_equal_models_stand_together() -> None:
    assert alike({"a": 1}) == [("a", 1)]
    assert alike({"a": 1, "b": 1}) == [("all kernels", 1)]
    groups = alike(dict.fromkeys("abcde", 1) | {"f": 2})
    assert groups == [("a, b, c and 2 more", 1), ("f", 2)]


def test_a_row_without_numbers_has_no_model() -> None:
    part = kernels.foreign(TEST, "mine", "dies", Kind.go)
    assert report(TEST, [measure.without_numbers(part, 0, "crash", "died")]).arithmetic == {}
