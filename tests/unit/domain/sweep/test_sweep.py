"""A sweep's cases, and to what it shrinks failures of invented kernels."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice
from typing import Any

import pytest

from gonogo.spec.test_spec import TestSpec
from gonogo.sweep.cases import MOST_ELEMENTS, Case, cases, regimes
from gonogo.sweep.search import sweep


def base(kernel: str = "layernorm_fw", shape: tuple[int, ...] = (64, 1024)) -> TestSpec:
    return TestSpec.parse({"kernel": kernel, "shape": shape})


def regime(case: Case) -> Any:
    return case.test.inputs.to_json().get("regime", "plain")


@pytest.mark.parametrize(
    ("fails", "smallest"),
    [
        (lambda rows, width, inputs: width > 32 and width % 32 > 0, ((1, 33), "plain")),
        (lambda rows, width, inputs: width > 900, ((1, 901), "plain")),
        (lambda rows, width, inputs: rows > 32 and width % 2 == 0, ((33, 2), "plain")),
        (lambda rows, width, inputs: width == 31 and inputs != "plain", ((1, 31), "offset")),
        (lambda rows, width, inputs: inputs == "ramp", ((1, 1), "ramp")),
        (lambda rows, width, inputs: True, ((1, 1), "plain")),
    ],
)
def test_a_failure_shrinks_to_the_smallest_shape_and_the_plainest_inputs(
    fails: Callable[[int, int, str], bool], smallest: tuple[tuple[int, ...], str]
) -> None:
    def kind(case: Case) -> str:
        return "wrong" if fails(*case.test.shape, regime(case)) else ""

    (failure,) = sweep(islice(cases(base(), 0), 150), kind, lambda: False).values()
    assert (failure.smallest.test.shape, regime(failure.smallest)) == smallest
    assert failure.cases
    assert kind(failure.smallest)


def test_each_kind_of_failure_has_its_smallest_case_and_time_ends_the_search() -> None:
    def kind(case: Case) -> str:
        return "hang" if case.test.shape[0] > 31 else "fail" if case.test.shape[1] > 31 else ""

    failures = sweep(islice(cases(base(), 0), 100), kind, lambda: False)
    smallest = {name: failure.smallest.test.shape for name, failure in failures.items()}
    assert smallest == {"hang": (32, 1), "fail": (1, 32)}
    runs = count()  # time for one run, and none to shrink what it shows
    (failure,) = sweep(cases(base(), 0), kind, lambda: next(runs) > 0).values()
    assert failure.smallest.test.shape == (64, 1024)


@pytest.mark.parametrize(
    ("kernel", "shape", "boundaries"),
    [
        ("layernorm_bw", (64, 1024), {(64, 1), (64, 31), (33, 1024), (5, 23425), (2049, 63)}),
        ("groupnorm_fw", (2, 8, 4, 16), {(1, 8, 4, 16), (2, 33, 4, 16), (2, 8, 4, 31)}),
        ("matmul", (64, 128), {(1, 128), (64, 33), (65, 128)}),
        ("softmax", (1024,), {(1,), (33,), (1025,)}),
    ],
)
def test_the_first_round_has_every_boundary_and_every_regime(
    kernel: str, shape: tuple[int, ...], boundaries: set[tuple[int, ...]]
) -> None:
    usual = base(kernel, shape)
    drawn = [case for case in cases(usual, 7) if case.seed == 7]
    assert boundaries <= {case.test.shape for case in drawn}
    assert len({str(case.test.inputs.to_json()) for case in drawn}) == len(regimes("bf16"))
    assert max(case.test.elements for case in drawn) <= MOST_ELEMENTS
    assert [case.key for case in islice(cases(usual, 7), 30)] == [case.key for case in drawn[:30]]
    groups = {case.test.parameters.get("num_groups") for case in drawn}
    assert groups >= ({2, 4, 8} if kernel == "groupnorm_fw" else {None})
