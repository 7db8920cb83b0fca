"""The arithmetic models of a gauge's kernels, and what their verdicts could not have shown."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from gonogo.gauge import kernels, measure
from gonogo.gauge.arithmetic import alike
from gonogo.gauge.kernels import Kind
from gonogo.gauge.report import report
from gonogo.kernels import registry
from gonogo.numerics.formats import round_to
from gonogo.spec.test_spec import TestSpec
from numeric_cases import spec

BF16 = {"input": "bf16", "output": "bf16"}
TEST = spec("layernorm_fw", (16, 96), numerics=BF16)


def row(
    seed: int, *, arithmetic: str | None, test: TestSpec = TEST, factor: float = 1.0
) -> dict[str, Any]:
    """Return the row of a kernel that computes in fp32 and rounds once."""
    drawn = measure.Drawn.of(test, seed)
    exact = registry.numerics(test).reference(test, drawn.given)
    outputs = {output: round_to(factor * value, "bf16") for output, value in exact.items()}
    part = kernels.foreign(test, "mine", "right", Kind.go)
    return measure.measured(part, drawn, outputs, arithmetic=arithmetic, produced=("y",))


def least_atol(rows: list[dict[str, Any]], test: TestSpec) -> float:
    """Return the lower edge of y's atol at rtol 0."""
    windows = {str(window.comparator): window for window in report(test, rows).windows}
    return windows["allclose rtol 0"].lower["y"]


def test_a_kernel_s_model_and_limits_are_those_of_its_seeds() -> None:
    rows = [row(seed, arithmetic=None) for seed in range(2)]
    gauge = report(TEST, rows)
    ((part, (y,)),) = gauge.arithmetic.items()
    assert (part, y.output, y.arithmetic, y.seeds) == ("mine:right", "y", "fp32-inside", 2)
    limits = [row_["outputs"]["y"]["detection_limits"] for row_ in rows]
    assert y.detection_limits
    assert set(y.detection_limits) <= {phrase for phrases in limits for phrase in phrases}
    (shown,) = json.loads(json.dumps(asdict(gauge.summary)))["arithmetic"]["mine:right"]
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


def test_the_lower_edge_of_a_library_s_kernel_is_that_of_its_own_arithmetic() -> None:
    gamma = {"regime": "constant", "value": 8.0}
    inputs = {"regime": "normal", "gamma": gamma}
    once = {"input": "fp32", "output": "bf16"}
    test = spec("layernorm_fw", (16, 96), numerics=once, inputs=inputs)
    replayed = [row(seed, arithmetic=None, test=test) for seed in range(2)]
    # outputs from 16 to 32 have steps of .125: the one rounding needs half of it
    assert 0.0625 <= least_atol(replayed, test) < 0.07
    budget = [row(seed, arithmetic="generic", test=test) for seed in range(2)]
    assert least_atol(budget, test) > 0.14


def test_programs_that_reproduce_nothing_have_no_edges() -> None:
    measured = row(0, arithmetic=None, factor=1.01)
    assert measured["outputs"]["y"]["arithmetic"] is None
    assert measured["edges"] == {}
