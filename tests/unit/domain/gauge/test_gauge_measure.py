"""The gauge on the emulator's right and wrong kernels: what public gates and the nightly test's
tolerance miss, at small sizes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from gonogo import emulator
from gonogo.gauge import elsewhere, kernels, measure
from gonogo.gauge.gates import GATES
from gonogo.gauge.kernels import Kind, Part
from gonogo.gauge.report import Sharpness, report
from gonogo.gauge.summary import MeasuredTest
from gonogo.judging.judging import judge
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import within
from numeric_cases import spec

ARITHMETIC = "tt-train"
NIGHTLY = {"rtol": 1e-3, "atol": 0.5}
FEATURES = 1024
REDUCTIONS = ("last-two-tiles", "double-subtract", "last-block-only", "tt-train-2025", "drop-s1")
"""The faults of the nightly kernel's two reductions: the real ones and the alleged ones."""
SMALL = ("tile-missing", "unbiased-variance", "bf16-accumulate")
"""Mutants whose effect is small in long rows."""


def run(part: Part, drawn: measure.Drawn) -> dict[str, Any]:
    given = drawn.as_given_to(part).given
    if part.unsure:
        emulator.run(part.test, given, part.build)
    return emulator.run(part.test, given, part.build, position=1)


def row(part: Part, drawn: measure.Drawn) -> measure.Row:
    return measure.measured(part, drawn, run(part, drawn), arithmetic=ARITHMETIC, produced=None)


def mutant(test: TestSpec, name: str) -> Part:
    return next(part for part in kernels.wrong(test) if part.name == name)


def rows(test: TestSpec, mutants: Sequence[str]) -> list[measure.Row]:
    drawn = measure.Drawn.of(test, 0)
    parts = [*kernels.right(test)[:2], *(mutant(test, name) for name in mutants)]
    return [row(part, drawn) for part in parts]


@cache
def nightly() -> tuple[TestSpec, list[measure.Row], MeasuredTest]:
    test = spec("layernorm_bw", (8, FEATURES), tolerance=NIGHTLY)
    measured_rows = rows(test, (*REDUCTIONS, *SMALL))
    return test, measured_rows, report(test, measured_rows)


@pytest.mark.slow
def test_atol_a_half_misses_every_fault_of_the_nightly_reductions_and_so_does_pcc() -> None:
    _, _, gauge = nightly()
    assert gauge.false_alarms.count == 0
    assert gauge.sharpness is Sharpness.blunt
    assert set(REDUCTIONS) <= set(gauge.blind)
    assert set(REDUCTIONS) <= set(gauge.gates["pcc-.999"].missed)
    for name in REDUCTIONS:
        misses = gauge.misses.parts[name]
        assert misses.count == misses.of == misses.unexplained.count == 1, name


def test_the_advised_nightly_tolerance_rejects_mutants_and_passes_right_kernels() -> None:
    _, measured_rows, gauge = nightly()
    assert not set(REDUCTIONS) & set(gauge.advice.missed)
    advised = {name: Tolerance(**limits) for name, limits in gauge.advice.tolerance.items()}
    for measured in measured_rows:
        outputs = measured["outputs"]
        green = all(within(advised.get(name), numbers) for name, numbers in outputs.items())
        if measured["kind"] == "go" or measured["able"]:
            passes = measured["kind"] == "go" or measured["part"] in gauge.advice.missed
            assert green == passes, measured["part"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inputs", "name"),
    [("offset x and dy", "double-subtract"), ("hot middle tile of dy", "tile-missing")],
)
def test_other_inputs_show_more(inputs: str, name: str) -> None:
    """A mean of dy makes s1 as large as dx, and a hot tile is all of a sum."""
    test, measured_rows, _ = nightly()
    where = next(other for other in elsewhere.candidates(test) if other.name == inputs)
    other = test.replace(inputs=where.inputs)
    here = report(
        test, [row for row in measured_rows if row["kind"] == "go" or row["part"] == name]
    )
    there = report(other, rows(other, (name,)))
    rooms = [
        next(window.room for window in gauge.windows if str(window) == "allclose rtol 0") or 0.0
        for gauge in (here, there)
    ]
    assert rooms[1] > max(1.5 * rooms[0], 1.0)
    assert elsewhere.compared(here, where, there).advice.works


def test_a_fault_within_the_rounding_of_a_right_kernel_cannot_show() -> None:
    _, measured_rows, gauge = nightly()
    mutants = [measured for measured in measured_rows if measured["kind"] == "no_go"]
    able = {measured["part"]: measured["able"] for measured in mutants}
    assert able == dict.fromkeys((*REDUCTIONS, "tile-missing"), True) | {
        "unbiased-variance": False,  # mean and rstd are given
        "bf16-accumulate": False,  # a loss of precision, not of logic
    }
    misses = gauge.misses.parts["bf16-accumulate"]
    assert (misses.of, misses.cannot_show) == (0, 1)


@pytest.mark.parametrize(("output", "shows"), [("bf16", False), ("fp32", True)])
def test_whether_a_fault_can_show_depends_on_the_formats(output: str, shows: bool) -> None:
    test = spec("layernorm_bw", (16, 130), numerics={"input": output, "output": output})
    assert row(mutant(test, "rstd-off-1e-3"), measure.Drawn.of(test, 0))["able"] is shows


@pytest.mark.slow
@pytest.mark.parametrize("features", [64, 519])
def test_the_gates_of_ttnn_s_own_suites_miss_wrong_kernels_at_every_width(features: int) -> None:
    test = spec("layernorm_fw", (32, features))
    gates = report(test, rows(test, ("unbiased-variance", "tile-missing"))).gates
    for gate in ("ttnn-bf16", "ttnn-legacy", "pcc-.99"):
        assert gates[gate].false_alarms.count == 0, gate
        assert gates[gate].missed, gate
    assert set(gates["ttnn-bf16"].missed) <= set(gates["ttnn-legacy"].missed)
    assert "moreh-backward" not in gates


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ttnn-bf16", "ttnn-ulp-fp32-dst"])
def test_a_gate_judged_from_a_row_says_what_it_would_have_said_as_the_test_s_own(name: str) -> None:
    """The declared tolerance of a test that has the gate's, and of one that has none."""
    test, gate = spec("layernorm_fw", (8, 70)), GATES[name]
    drawn = measure.Drawn.of(test, 1)
    part = mutant(test, "tile-missing")
    outputs, tolerance = run(part, drawn), gate.tolerance_for("y")
    measured = measure.measured(part, drawn, outputs, arithmetic=ARITHMETIC, produced=None)
    assert tolerance is not None
    gated = test.replace(tolerance={"y": tolerance.to_json()})
    judgement = judge(
        gated, drawn.raw, drawn.given, outputs, arithmetic=ARITHMETIC, with_limits=False
    )
    is_within = within(tolerance, judgement.outputs["y"].statistics)
    assert within(tolerance, measured["outputs"]["y"]) == is_within
    assert judgement.verdict.value == ("pass_by_tolerance" if is_within else "fail")


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["layernorm_bw", "layernorm_fw", "rmsnorm_bw"])
def test_right_kernels_in_every_arithmetic_are_explained_and_give_other_bits(kernel: str) -> None:
    test = spec(kernel, (16, 519))
    right_rows = [row(part, measure.Drawn.of(test, 0)) for part in kernels.right(test)]
    assert {right_row["explanation"] for right_row in right_rows} == {"explained"}
    first = test.outputs[0]
    assert len({right_row["outputs"][first]["digest"] for right_row in right_rows}) > 1
    for right_row in right_rows:
        for name, edges in right_row["edges"].items():
            needed = right_row["outputs"][name]["needed_atol"]
            assert all(needed[rtol] <= atol for rtol, atol in edges["needed_atol"].items())


def test_turning_twice_gives_the_same_back_and_a_turned_run_is_judged_in_its_own_order() -> None:
    test = spec("layernorm_bw", (6, 70))
    drawn = measure.Drawn.of(test, 0)
    twice = measure.turn(test, measure.turn(test, drawn.given))
    assert all(np.array_equal(twice[name], drawn.given[name]) for name in drawn.given)
    turned = next(part for part in kernels.right(test) if part.turned)
    assert row(turned, drawn)["verdict"] == "pass"
    assert not np.array_equal(drawn.as_given_to(turned).given["x"], drawn.given["x"])


def test_a_build_of_somebody_s_can_show_by_what_it_gives() -> None:
    test = spec("layernorm_bw", (16, 130))
    drawn = measure.Drawn.of(test, 0)
    for build, shows in (("correct", False), ("double-subtract", True)):
        part = kernels.foreign(test, "emulator", build, Kind.no_go)
        assert row(part, drawn)["able"] is shows


def test_a_switch_that_the_test_sets_already_is_no_other_arithmetic() -> None:
    names = [
        part.name for part in kernels.right(spec(numerics={"srcb": "bf16", "fidelity": "hifi3"}))
    ]
    assert names == ["correct", "reversed"]


@pytest.mark.parametrize("kernel", ["layernorm_bw", "layernorm_fw"])
def test_every_other_input_is_a_valid_one_also_for_a_short_row(kernel: str) -> None:
    for features in (1, 20, 519):
        test = spec(kernel, (4, features))
        candidates = elsewhere.candidates(test)
        assert candidates
        assert all(candidate.inputs for candidate in candidates)


def test_inputs_that_add_nothing_are_not_advised() -> None:
    test, _, gauge = nightly()
    same = elsewhere.compared(gauge, elsewhere.candidates(test)[0], gauge)
    assert same.gains == same.loses == []
    assert elsewhere.cover([same]) == []
