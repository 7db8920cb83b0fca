"""Judging again from stored numbers: a seed's row holds all that its verdict needs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging.judging import SeedJudgement, judge
from gonogo.spec.statistics import STATISTICS, find
from gonogo.spec.verdicts import (
    POLICY,
    Explanation,
    Verdict,
    explain,
    verdict,
    within,
    worst_explanation,
)
from numeric_cases import KERNELS, Case, spec

Outputs = dict[str, NDArray[Any]]
LOOSE = {"rtol": 1e-3, "atol": 0.5}
TIGHT = {"rtol": 0, "atol": 1e-4}


def judged(
    case: Case, outputs: Outputs | None = None, arithmetic: str | None = "tt-train", **fields: Any
) -> SeedJudgement:
    return judge(
        case.test,
        case.raw,
        case.given,
        case.emulated() if outputs is None else outputs,
        arithmetic=arithmetic,
        **fields,
    )


@pytest.fixture(scope="module")
def case() -> Case:
    return Case.of(spec(shape=(2, 3, 10, 40), tolerance=LOOSE))


def stored(judgement: SeedJudgement) -> dict[str, Any]:
    """Return a judgment as a database gives it back: strict JSON, without NaN and Infinity."""
    result: dict[str, Any] = json.loads(json.dumps(judgement.to_json(), allow_nan=False))
    return result


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "build",
    [
        "correct",
        "tile-missing",
        "nan-tile",
        "power-of-two-outliers",
        "rstd-off-1e-3",
        "bf16-accumulate",
    ],
)
@pytest.mark.parametrize("tolerance", [{}, LOOSE, {"rtol": 0, "atol": 0}, {"pcc": 0.999, "ulp": 3}])
def test_the_stored_numbers_give_the_same_verdict_again(
    kernel: str, build: str, tolerance: dict[str, float]
) -> None:
    for regime in ("uniform", "constant"):
        case = Case.of(spec(kernel, (33, 70), regime=regime, tolerance=tolerance))
        judgement = judged(case, case.emulated(build))
        row = stored(judgement)
        assert (row["verdict"], row["explanation"]) == (judgement.verdict, judgement.explanation)
        explanations, all_within = [], True
        for name, numbers in row["outputs"].items():
            is_within = within(case.test.tolerance_for(name), numbers)
            assert explain(numbers) == judgement.outputs[name].explanation == numbers["explanation"]
            assert (
                verdict(is_within, explain(numbers))
                == judgement.outputs[name].verdict
                == numbers["verdict"]
            )
            explanations.append(explain(numbers))
            all_within = all_within and is_within
        assert verdict(all_within, worst_explanation(explanations)) == judgement.verdict


def test_an_infinite_statistic_survives_the_store() -> None:
    case = Case.of(
        spec(
            shape=(4, 64),
            inputs={"regime": "constant", "x": 0.5, "dy": 0, "gamma": 1},
            tolerance={"rtol": 0.1, "atol": 0},
        )
    )
    outputs = case.emulated()
    outputs["dx"] = outputs["dx"] + np.float32(
        1e-3
    )  # rounding can't err here: the ratio is 1e-3 / 0
    judgement = judged(case, outputs)
    row = stored(judgement)["outputs"]["dx"]
    assert row["tolerance_ratio"] is row["budget_ratio"] is None
    assert row["nonfinite_statistics"]["budget_ratio"] == "inf"
    assert explain(row) is Explanation.unexplained
    assert not within(case.test.tolerance_for("dx"), row)
    assert judgement.verdict is Verdict.fail


def test_another_tolerance_of_a_stored_rtol_can_be_judged_from_the_row() -> None:
    loose = Case.of(spec(shape=(60, 40), tolerance=LOOSE))
    row = stored(judged(loose))["outputs"]["dx"]
    needed = row["needed_atol"]["0.01"]
    for atol, green in ((needed * 1.001, True), (needed * 0.999, False)):
        other = spec(shape=(60, 40), tolerance={"rtol": 1e-2, "atol": atol})
        assert within(other.tolerance_for("dx"), row) is green
        again = judged(Case.of(other)).outputs["dx"]
        assert (again.verdict is Verdict.pass_) is green


def test_another_policy_is_applied_to_stored_rows(case: Case) -> None:
    row = stored(judged(case))["outputs"]["dx"]
    strict = replace(POLICY, budget_ratio=0.1, suspect_budget_ratio=0.2)
    assert explain(row) is Explanation.explained
    assert explain(row, strict) is Explanation.unexplained
    assert judged(case, policy=strict).verdict is Verdict.pass_by_tolerance


OF_SOME = ("exact", "reference", "against_float64", "gates")
"""The statistics of exact inputs, of comparisons and of gauges only."""


def test_a_row_has_every_key_of_its_outputs_directions(case: Case) -> None:
    directions = {
        "dx": {"row", "xhat", "scale", "col"},
        "dgamma": {"scale", "tile"},
        "dbeta": {"scale", "tile"},
        "y": {"mean", "rstd", "scale", "gamma", "beta"},
        "mean": {"scale"},
        "rstd": {"scale"},
    }
    common = {
        "verdict",
        "explanation",
        *(
            row.name
            for row in STATISTICS.values()
            if row.reference != "replay"
            and row.name not in OF_SOME
            and not row.name.endswith(("_z", "_z_max", "*_count"))
        ),
    }
    for kernel in KERNELS:
        for name, numbers in stored(judged(Case.of(spec(kernel, (40, 50), tolerance=LOOSE))))[
            "outputs"
        ].items():
            expected_keys = common | {
                f"{direction}{end}"
                for direction in directions[name]
                for end in ("_z", "_z_max", "_count")
            }
            assert set(numbers) == expected_keys, name
        replayed = stored(judged(Case.of(spec(kernel, (40, 50))), arithmetic=None))["outputs"]
        for name, numbers in replayed.items():
            unknown = [key for key in numbers if find(key) is None]
            assert unknown == ["verdict", "explanation"], name
