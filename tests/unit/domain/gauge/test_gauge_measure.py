"""The gauge on the emulator's right and wrong kernels: what public gates and the nightly test's
tolerance miss, at small sizes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from gonogo import emulator
from gonogo.gauge import elsewhere, kernels, measure
from gonogo.gauge.gates import GATES
from gonogo.gauge.kernels import Kind, Part
from gonogo.gauge.report import Gauge, Sharpness, report
from gonogo.judging.judging import judge
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import within
from numeric_cases import spec

ARITHMETIC = "tt-train"
NIGHTLY = {"rtol": 1e-3, "atol": 0.5}
REDUCTIONS = ("last-two-tiles", "double-subtract", "last-block-only", "tt-train-2025", "drop-s1")
"""The faults of the nightly kernel's two reductions: the real ones and the alleged ones."""


def run(part: Part, drawn: measure.Drawn) -> dict[str, Any]:
    given = measure.given_to(part, drawn)
    if part.unsure:
        emulator.run(part.test, given, part.build)
    return emulator.run(part.test, given, part.build, position=1)


def row(part: Part, drawn: measure.Drawn) -> measure.Row:
    return measure.measured(part, drawn, run(part, drawn), arithmetic=ARITHMETIC, produced=None)


def rows(test: TestSpec, seeds: int = 2) -> list[measure.Row]:
    measured_rows = []
    for seed in range(seeds):
        drawn = measure.Drawn.of(test, seed)
        measured_rows += [row(part, drawn) for part in (*kernels.right(test), *kernels.wrong(test))]
    return measured_rows


@cache
def gauged(kernel: str, rows_: int, features: int) -> Gauge:
    tolerance = (
        NIGHTLY
        if kernel == "layernorm_bw"
        else {"y": {"rtol": 1e-2, "atol": 5e-2, "pcc": 0.9999, "frobenius": 0.015}}
    )
    test = spec(kernel, (rows_, features), tolerance=tolerance)
    return report(test, rows(test))


def test_atol_a_half_misses_every_fault_of_the_nightly_reductions_and_so_does_pcc() -> None:
    gauge = gauged("layernorm_bw", 8, 8462)
    assert gauge.alarms.count == 0
    assert gauge.sharpness is Sharpness.blunt
    assert set(REDUCTIONS) <= set(gauge.blind)
    assert set(REDUCTIONS) <= set(gauge.gates["pcc-.999"][2])
    for name in REDUCTIONS:
        assert gauge.misses[name].count == gauge.misses[name].of == 2, name
        assert gauge.seen[name].count == gauge.seen[name].of == 2, name


def test_the_advised_nightly_tolerance_rejects_mutants_and_passes_right_kernels() -> None:
    gauge = gauged("layernorm_bw", 8, 8462)
    assert not set(REDUCTIONS) & set(gauge.advice.missed)
    for measured_row in rows(
        TestSpec.parse({**gauge.test.canonical(), "tolerance": gauge.advice.tolerance}), seeds=1
    ):
        advised = {
            name: Tolerance(**tolerance) for name, tolerance in gauge.advice.tolerance.items()
        }
        green = all(
            within(advised.get(name), numbers) for name, numbers in measured_row["outputs"].items()
        )
        assert green == (
            measured_row["kind"] == "go"
            or measured_row["part"] in gauge.advice.missed
            or not measured_row["able"]
        ), measured_row["part"]


def test_an_impossible_window_is_said_to_be_one_and_other_inputs_see_more() -> None:
    gauge = gauged("layernorm_bw", 8, 8462)
    assert not gauge.advice.works
    assert "No tolerance works with these inputs" in gauge.words
    where = next(
        candidate
        for candidate in elsewhere.candidates(gauge.test)
        if candidate.name == "offset x and dy"
    )
    other = spec("layernorm_bw", (8, 8462), tolerance=NIGHTLY, inputs=where.inputs)
    there = report(other, rows(other, seeds=1))
    tried = elsewhere.TriedInputs.of(gauge, where, there)
    # a mean of dy makes s1 as large as dx: now even a far looser allclose rejects the faults
    window = next(window for window in there.windows if str(window.comparator) == "allclose rtol 0")
    assert not set(REDUCTIONS) & set(window.missed)
    assert window.lower["dx"] < 0.1
    assert tried.words.startswith('With inputs "offset x and dy" dx: ')


@pytest.mark.parametrize("features", [64, 519, 4096])
def test_the_gates_of_ttnn_s_own_suites_miss_wrong_kernels_at_every_width(features: int) -> None:
    gauge = gauged("layernorm_fw", 32, features)
    for gate in ("ttnn-bf16", "ttnn-legacy", "pcc-.99"):
        alarms, _, missed = gauge.gates[gate]
        assert alarms.count == 0, gate
        assert missed, gate
    assert set(gauge.gates["ttnn-bf16"][2]) <= set(gauge.gates["ttnn-legacy"][2])
    assert "moreh-backward" not in gauge.gates


def test_a_gate_judged_from_a_row_says_what_it_would_have_said_as_the_test_s_own() -> None:
    test = spec("layernorm_fw", (16, 519))
    drawn = measure.Drawn.of(test, 1)
    for part in kernels.wrong(test):
        outputs = run(part, drawn)
        measured_row = measure.measured(part, drawn, outputs, arithmetic=ARITHMETIC, produced=None)
        for gate in GATES.values():
            tolerance = gate.tolerance_for(gate.outputs[0])
            if tolerance is None:  # test_gates compares these by hand
                continue
            gated = TestSpec.parse({**test.canonical(), "tolerance": {"y": tolerance.to_json()}})
            judged_statistics = (
                judge(gated, drawn.raw, drawn.given, outputs, arithmetic=ARITHMETIC)
                .outputs["y"]
                .statistics
            )
            assert within(tolerance, measured_row["outputs"]["y"]) == within(
                tolerance, judged_statistics
            ), (
                part.name,
                gate.name,
            )


@pytest.mark.parametrize("kernel", ["layernorm_bw", "layernorm_fw"])
def test_right_kernels_in_every_arithmetic_are_explained_and_give_other_bits(kernel: str) -> None:
    test = spec(kernel, (40, 519))
    right_rows = [row(part, measure.Drawn.of(test, 0)) for part in kernels.right(test)]
    assert {right_row["explanation"] for right_row in right_rows} == {"explained"}
    first = test.outputs[0]
    assert len({right_row["outputs"][first]["digest"] for right_row in right_rows}) > 1


def test_turning_twice_gives_the_same_back_and_a_turned_run_is_compared_in_its_own_order() -> None:
    test = spec("layernorm_bw", (6, 70))
    drawn = measure.Drawn.of(test, 0)
    twice = measure.turn(test, measure.turn(test, drawn.given))
    assert all(np.array_equal(twice[name], drawn.given[name]) for name in drawn.given)
    turned = next(part for part in kernels.right(test) if part.turned)
    assert row(turned, drawn)["verdict"] == "pass"
    assert not np.array_equal(measure.given_to(turned, drawn)["x"], drawn.given["x"])


def test_a_defect_that_cannot_show_is_not_blamed_on_the_test() -> None:
    gauge = gauged("layernorm_fw", 32, 519)
    assert gauge.hidden["bf16-accumulate"] == 2
    assert gauge.misses["bf16-accumulate"].of == 0


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
    gauge = gauged("layernorm_bw", 8, 8462)
    same = elsewhere.TriedInputs.of(gauge, elsewhere.candidates(gauge.test)[0], gauge)
    assert same.gains == same.loses == ()
    assert elsewhere.cover([same]) == []
