"""The gauge on right and wrong kernels, at small sizes: what public gates and the nightly test's
tolerance miss, what right kernels need, and how often they fail."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo import emulator
from gonogo.arithmetic.formats import round_to
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

TT = "tt-train"
REDUCTIONS = ("last-two-tiles", "double-subtract", "last-block-only", "tt-train-2025", "drop-s1")
"""The faults of the nightly kernel's two reductions: the real ones and the alleged ones."""
SMALL = ("tile-missing", "unbiased-variance", "bf16-accumulate")
"""Mutants whose effect is small in long rows."""
BF16 = spec("layernorm_fw", (16, 96), numerics={"input": "bf16", "output": "bf16"})


def run(part: Part, drawn: measure.Drawn) -> dict[str, Any]:
    given = drawn.as_given_to(part).given
    if part.unsure:
        emulator.run(part.test, given, part.build)
    return emulator.run(part.test, given, part.build, position=1)


def row(part: Part, drawn: measure.Drawn) -> measure.Row:
    return measure.measured(part, drawn, run(part, drawn), arithmetic=TT, produced=None)


def mutant(test: TestSpec, name: str) -> Part:
    return next(part for part in kernels.wrong(test) if part.name == name)


def rows(test: TestSpec, mutants: Sequence[str]) -> list[measure.Row]:
    drawn = measure.Drawn.of(test, 0)
    parts = [*kernels.right(test)[:2], *(mutant(test, name) for name in mutants)]
    return [row(part, drawn) for part in parts]


@cache
def nightly() -> tuple[TestSpec, list[measure.Row], MeasuredTest]:
    test = spec("layernorm_bw", (8, 1024), tolerance={"rtol": 1e-3, "atol": 0.5})
    measured_rows = rows(test, (*REDUCTIONS, *SMALL))
    return test, measured_rows, report(test, measured_rows)


@pytest.mark.slow
def test_atol_a_half_misses_every_fault_of_the_nightly_reductions_and_so_does_pcc() -> None:
    _, _, gauge = nightly()
    assert (gauge.false_alarms.count, gauge.sharpness) == (0, Sharpness.blunt)
    assert set(REDUCTIONS) <= set(gauge.blind) & set(gauge.gates["pcc-.999"].missed)
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


def test_a_fault_within_the_rounding_of_a_right_kernel_cannot_show() -> None:
    _, measured_rows, gauge = nightly()
    able = {one["part"]: one["able"] for one in measured_rows if one["kind"] == "no_go"}
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


@pytest.mark.parametrize(("build", "shows"), [("correct", False), ("double-subtract", True)])
def test_a_build_of_somebody_s_can_show_by_what_it_gives(build: str, shows: bool) -> None:
    test = spec("layernorm_bw", (16, 130))
    part = kernels.foreign(test, "emulator", build, Kind.no_go)
    assert row(part, measure.Drawn.of(test, 0))["able"] is shows


# other inputs


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
    some = [one for one in measured_rows if one["kind"] == "go" or one["part"] == name]
    here = report(test, some)
    there = report(other, rows(other, (name,)))
    before, after = (
        next(window.room for window in gauge.windows if str(window) == "allclose rtol 0") or 0.0
        for gauge in (here, there)
    )
    assert after > max(1.5 * before, 1.0)
    assert elsewhere.compared(here, where, there).advice.works


def test_inputs_that_add_nothing_are_not_advised() -> None:
    test, _, gauge = nightly()
    same = elsewhere.compared(gauge, elsewhere.candidates(test)[0], gauge)
    assert same.gains == same.loses == elsewhere.cover([same]) == []


@pytest.mark.parametrize("kernel", ["layernorm_bw", "layernorm_fw"])
@pytest.mark.parametrize("features", [1, 20, 519])
def test_every_other_input_is_a_valid_one_also_for_a_short_row(kernel: str, features: int) -> None:
    candidates = elsewhere.candidates(spec(kernel, (4, features)))
    assert candidates
    assert all(candidate.inputs for candidate in candidates)


# gates


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
    test, tolerance = spec("layernorm_fw", (8, 70)), GATES[name].tolerance_for("y")
    assert tolerance is not None
    drawn, part = measure.Drawn.of(test, 1), mutant(test, "tile-missing")
    outputs = run(part, drawn)
    gated = test.replace(tolerance={"y": tolerance.to_json()})
    judged = judge(gated, drawn.raw, drawn.given, outputs, arithmetic=TT, with_limits=False)
    is_within = within(tolerance, judged.outputs["y"].statistics)
    measured = measure.measured(part, drawn, outputs, arithmetic=TT, produced=None)
    assert within(tolerance, measured["outputs"]["y"]) == is_within
    assert judged.verdict.value == ("pass_by_tolerance" if is_within else "fail")


# right kernels


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["layernorm_bw", "layernorm_fw", "rmsnorm_bw"])
def test_right_kernels_in_every_arithmetic_are_explained_and_give_other_bits(kernel: str) -> None:
    test = spec(kernel, (8, 130))
    right_rows = [row(part, measure.Drawn.of(test, 0)) for part in kernels.right(test)]
    assert {one["explanation"] for one in right_rows} == {"explained"}
    assert len({one["outputs"][test.outputs[0]]["digest"] for one in right_rows}) > 1
    for one in right_rows:
        for name, edges in one["edges"].items():
            needed = one["outputs"][name]["needed_atol"]
            assert all(needed[rtol] <= atol for rtol, atol in edges["needed_atol"].items())


def test_turning_twice_gives_the_same_back_and_a_turned_run_is_judged_in_its_own_order() -> None:
    test = spec("layernorm_bw", (6, 70))
    drawn = measure.Drawn.of(test, 0)
    twice = measure.turn(test, measure.turn(test, drawn.given))
    assert all(np.array_equal(twice[name], drawn.given[name]) for name in drawn.given)
    turned = next(part for part in kernels.right(test) if part.turned)
    assert row(turned, drawn)["verdict"] == "pass"
    assert not np.array_equal(drawn.as_given_to(turned).given["x"], drawn.given["x"])


def test_a_switch_that_the_test_sets_already_is_no_other_arithmetic() -> None:
    parts = kernels.right(spec(numerics={"srcb": "bf16", "fidelity": "hifi3"}))
    assert [part.name for part in parts] == ["correct", "reversed"]


# what right kernels need: the lower edges of windows


def rounded(outputs: dict[str, NDArray[Any]], factor: float = 1.0) -> dict[str, NDArray[Any]]:
    """Return the outputs of a kernel whose only error is the rounding of its output."""
    return {
        name: round_to(factor * array, "bf16").astype(np.float32) for name, array in outputs.items()
    }


def foreign_row(test: TestSpec, seed: int = 0, factor: float = 1.0) -> measure.Row:
    """Return the row of a library's kernel that computes in fp32 and rounds once."""
    drawn = measure.Drawn.of(test, seed)
    part = kernels.foreign(test, "mine", "right", Kind.go)
    outputs = rounded(dict(drawn.expected), factor)
    return measure.measured(part, drawn, outputs, arithmetic=None, produced=("y",))


def test_the_lower_edge_of_a_library_s_kernel_is_that_of_its_own_arithmetic() -> None:
    inputs = {"regime": "normal", "gamma": {"regime": "constant", "value": 6.0}}
    once = {"input": "fp32", "output": "bf16"}
    test = spec("layernorm_fw", (16, 96), numerics=once, inputs=inputs)
    windows = report(test, [foreign_row(test)]).windows
    lower = {str(window): window.outputs["y"].lower for window in windows}
    # outputs from 16 to 32 have steps of .125: the one rounding needs half of it
    assert 0.0625 <= lower["allclose rtol 0"] < 0.07
    # and half a step relative to the smallest value of a binade
    assert lower["allclose rtol 0.01"] < 1e-4
    assert 0.5 <= lower["ulp"] <= 1.1


def test_a_kernel_that_no_arithmetic_explains_has_no_edges() -> None:
    measured = foreign_row(BF16, factor=1.01)
    assert measured["outputs"]["y"]["explanation"] == "unexplained"
    assert measured["edges"] == {}


def test_the_edges_of_three_seeds_hold_for_others() -> None:
    part = kernels.right(BF16)[0]
    measured = [row(part, measure.Drawn.of(BF16, seed)) for seed in range(15)]
    for name in BF16.outputs:
        edges = [one["edges"][name] for one in measured[:3]]
        for one in measured[3:]:
            numbers = one["outputs"][name]
            for metric in ("rel_frobenius", "pcc_deficit"):
                assert numbers[metric] <= max(edge[metric] for edge in edges), (name, metric)
            # with an rtol, one of a few means that is close to 0 needs more
            atols = numbers["needed_atol"]
            for rtol, needed in atols.items() if name == "y" else [("0.0", atols["0.0"])]:
                assert needed <= max(edge["needed_atol"][rtol] for edge in edges), (name, rtol)


# a right kernel that fails one run in a hundred

SEEDS = 20
# a public report: bf16 outputs of 4,736 elements, some beyond 16, where half an ulp is .0625
PUBLIC = spec(
    "layernorm_fw",
    (37, 128),
    numerics={"input": "fp32"},
    inputs={"x": {"regime": "normal", "mean": 0, "std": 1}, "gamma": 4.0, "beta": 0.0},
    tolerance={"y": {"rtol": 0, "atol": 0.06}},
)


@cache
def flaky() -> tuple[list[measure.Row], MeasuredTest]:
    measured = []
    for seed in range(SEEDS):
        drawn = measure.Drawn.of(PUBLIC, seed)
        perfect = Part("perfect", Kind.go, "Rounds its output only.", "correct", PUBLIC)
        right = rounded(dict(drawn.references))
        measured.append(measure.measured(perfect, drawn, right, arithmetic=None, produced=None))
    part, drawn = mutant(PUBLIC, "unbiased-variance"), measure.Drawn.of(PUBLIC, 0)
    wrong = rounded(emulator.ideal(PUBLIC, drawn.given, part.build))
    measured.append(measure.measured(part, drawn, wrong, arithmetic=None, produced=None))
    return measured, report(PUBLIC, measured)


def test_its_rate_is_predicted_also_from_seeds_none_of_which_fails() -> None:
    measured, gauge = flaky()
    alarms = gauge.false_alarms
    assert 0.004 < (alarms.predicted or 0) < 0.015
    expected = (alarms.predicted or 0) * SEEDS
    assert abs(alarms.count - expected) < 4 * expected**0.5
    green = [one for one in measured if one["outputs"]["y"]["needed_atol"]["0.0"] <= 0.06]
    alarms = report(PUBLIC, green).false_alarms
    assert alarms.count == 0
    assert 0.003 < (alarms.predicted or 0) < 0.015


def test_a_relative_tolerance_is_advised_that_it_never_fails() -> None:
    measured, gauge = flaky()
    advised = gauge.advice.tolerance["y"]
    assert advised["rtol"] > 0
    needed = [one["outputs"]["y"]["needed_atol"] for one in measured if one["kind"] == "go"]
    assert max(atols[repr(advised["rtol"])] for atols in needed) <= advised["atol"] < 0.06
