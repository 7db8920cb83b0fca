"""The comparison of two builds: it decides *within*, says which build rounding explains, and counts
the flips between the two."""

from __future__ import annotations

from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from gonogo.arithmetic.formats import round_to
from gonogo.errors import KernelOutputError
from gonogo.judging.flip_summary import FlipsSummary, pooled, pooled_rows
from gonogo.judging.judging import SeedJudgement, judge
from gonogo.judging.pairs import Reference, compare, words
from gonogo.judgment.pairs import flips_of, sign_probability
from gonogo.spec.compared_outputs import FlipCounts
from gonogo.workloads import exact_outputs
from numeric_cases import Case, copied, spec

CORRECT = Reference("other", "tt-train")
LOOSE, NOTHING = {"rtol": 1e-3, "atol": 0.5}, {"rtol": 0, "atol": 0}
WRONG = "double-subtract"


def pair(
    case: Case,
    outputs: dict[str, Any],
    other: dict[str, Any],
    reference: Reference = CORRECT,
    **options: Any,
) -> SeedJudgement:
    options = {"arithmetic": reference.arithmetic, "with_limits": False} | options
    alone = judge(case.test, case.raw, case.given, outputs, **options)
    return compare(case.test, alone, case.raw, case.given, outputs, other, reference)


def entry(judgement: SeedJudgement, output: str) -> dict[str, Any]:
    reference_entry: dict[str, Any] = judgement.outputs[output].statistics["reference"]
    return reference_entry


def backward_case(tolerance: dict[str, Any] = LOOSE) -> Case:
    return Case.of(spec(shape=(16, 96), tolerance=tolerance))


@pytest.fixture(scope="module")
def case() -> Case:
    return backward_case()


def test_each_build_has_its_own_explanation_and_arithmetic() -> None:
    case = Case.of(spec("layernorm_fw", (16, 96)))
    rounded = {
        name: round_to(values, "bf16").astype(np.float32)
        for name, values in exact_outputs(case.test, case.given).items()
    }
    judgement = pair(case, case.emulated(), rounded, Reference("other"), arithmetic="tt-train")
    assert judgement.verdict == "pass"
    assert words(judgement) is None
    assert "tt-train" in judgement.arithmetic
    for output in case.test.outputs:
        reference = entry(judgement, output)
        assert (reference["build"], reference["explanation"]) == ("other", "explained")
        assert reference["within"] is True
        arithmetic = judgement.outputs[output].statistics["arithmetic"]
        assert reference["arithmetic"] not in (None, arithmetic)


@pytest.mark.parametrize(
    ("build", "other", "verdict", "explanations", "sentence"),
    [
        (WRONG, "correct", "pass_by_tolerance", ("unexplained", "explained"), "other, not this"),
        ("correct", WRONG, "pass", ("explained", "unexplained"), "this build, not other (they"),
        (WRONG, WRONG, "pass_by_tolerance", ("unexplained",) * 2, "neither this build nor other"),
    ],
)
def test_a_wrong_build_is_told_from_a_wrong_reference(
    case: Case, build: str, other: str, verdict: str, explanations: tuple[str, str], sentence: str
) -> None:
    judgement = pair(case, case.emulated(build), case.emulated(other))
    dx = judgement.outputs["dx"]
    assert judgement.verdict == dx.verdict == verdict
    assert judgement.outputs["dgamma"].verdict == "pass"
    assert (dx.explanation, entry(judgement, "dx")["explanation"]) == explanations
    assert (words(judgement) or "").startswith(f"dx: rounding explains {sentence}")
    assert (entry(judgement, "dx")["max_abs"] == 0) is (build == other)  # alike, and both wrong


def test_within_is_asked_of_the_reference_builds_output_and_numbers_say_how_far_it_is() -> None:
    case = backward_case(NOTHING)
    right = case.emulated()
    assert judge(case.test, case.raw, case.given, right, arithmetic="tt-train").verdict != "pass"
    same = pair(case, right, copied(right))
    assert (same.verdict, entry(same, "dx")["within"]) == ("pass", True)
    assert entry(same, "dx")["tolerance_ratio"] == 0
    assert same.outputs["dx"].statistics["tolerance_ratio"] is None  # against float64 it is x / 0
    other = copied(right)
    where = np.abs(other["dx"]).argmax()
    value = float(other["dx"].flat[where])
    other["dx"].flat[where] *= np.float32(1 + 2.0**-7)
    differing = entry(pair(case, right, other), "dx")
    assert differing["within"] is False
    assert differing["nonfinite_statistics"] == {"tolerance_ratio": "inf"}
    assert differing["max_abs"] == pytest.approx(abs(value) * 2.0**-7)
    assert differing["mismatch_fraction"] == pytest.approx(1 / other["dx"].size)
    assert 0.5 <= differing["ulp_max"] <= 2
    assert differing["flips"]["differing"] == 1
    assert not {"tolerance_ratio_quantized", "outliers"} & differing.keys()


@pytest.mark.parametrize(
    ("side", "verdict", "answers"),
    [
        ("build", "fail", ("unexplained", "explained")),
        ("reference", "fail_by_tolerance", ("explained", "unexplained")),
    ],
)
def test_nan_of_one_build_is_outside_every_tolerance_and_is_its_own(
    case: Case, side: str, verdict: str, answers: tuple[str, str]
) -> None:
    sides = {"build": case.emulated(), "reference": case.emulated()}
    sides[side]["dx"][3, 5] = np.nan
    judgement = pair(case, sides["build"], sides["reference"])
    assert judgement.verdict == verdict
    assert (judgement.outputs["dx"].explanation, entry(judgement, "dx")["explanation"]) == answers
    assert entry(judgement, "dx")["nonfinite"] == 1
    assert judgement.outputs["dgamma"].verdict == "pass"


def test_equal_infinities_are_no_difference(case: Case) -> None:
    outputs = case.emulated()
    outputs["dx"][3, 5:7] = np.inf, np.nan
    reference = entry(pair(case, outputs, copied(outputs)), "dx")
    assert (reference["nonfinite"], reference["mismatch_fraction"]) == (0, 0)
    assert reference["within"] is True


def test_an_output_that_the_reference_does_not_produce_is_judged_against_float64_alone(
    case: Case,
) -> None:
    right = case.emulated()
    judgement = pair(case, right, {"dx": right["dx"]}, Reference("other", "tt-train", ("dx",)))
    assert "reference" in judgement.outputs["dx"].statistics
    assert "reference" not in judgement.outputs["dgamma"].statistics
    assert judgement.outputs["dgamma"].verdict == "pass"
    with pytest.raises(KernelOutputError, match="dgamma"):
        pair(case, right, {"dx": right["dx"]})


def test_a_downstream_output_shows_its_difference_and_counts_for_nothing() -> None:
    case = Case.of(spec("layernorm_fw", (8, 64)))
    produced = ("linear", "mean", "rstd", "y")
    outputs = case.emulated() | {"linear": np.full((8, 64), 2, np.float32)}
    others = case.emulated() | {"linear": np.full((8, 64), 2 + 2.0**-6, np.float32)}
    reference = Reference("other", "tt-train", produced)
    judgement = pair(case, outputs, others, reference, produced=produced)
    assert judgement.verdict == "pass"
    assert judgement.outputs["linear"].verdict == "not_judged"
    linear = entry(judgement, "linear")
    names = ("explanation", "within", "arithmetic", "max_abs", "ulp_max", "mismatch_fraction")
    assert [linear[name] for name in names] == ["not_judged", None, None, 2.0**-6, 1.0, 1.0]
    assert "linear" not in pair(case, outputs, others).outputs


# Flips


def summary(output: Any, reference: Any) -> FlipsSummary:
    """Return the flips of one seed."""
    return pooled({"y": [asdict(flips_of(output, reference))]})[0]


def test_flips_are_counted_for_each_common_output_and_decide_no_verdict() -> None:
    case = Case.of(spec("layernorm_fw", (32, 96)))
    right = case.emulated()
    moved = right | {"y": round_to(right["y"] * (1 + 2e-3), "bf16").astype(np.float32)}
    judgement = pair(case, right, moved)
    assert judgement.verdict == pair(case, right, right).verdict == "pass"
    flips = {name: [entry(judgement, name)["flips"]] for name in case.test.outputs}
    mean, rstd, y = pooled(flips)
    assert (mean.differing, rstd.differing, y.one_way, y.away) == (0, 0, True, 0)


def test_flips_are_counted_by_direction_and_by_row() -> None:
    other = np.array([[1.0, -1.0, 2.0, 0.0], [1.0, 1.0, -4.0, np.nan], [1.0, 1.0, 1.0, np.inf]])
    values = other.copy()
    values[0, :3] += [2.0**-7, 2.0**-7, 2.0**-6]  # away from zero, toward it, away
    values[0, 3] = -1e-3  # a zero has no direction
    values[1, 2] += 0.5
    values[1, 3] = 1.0
    assert flips_of(values, other) == FlipCounts(10, 5, 2, 2, 1, 1)
    assert flips_of(2 * np.ones(20), np.ones(20)).rows_away == 20, "a vector's rows are its values"


def layernorm(seed: int, lanes: int = 32, factor: float = 1.0, form: str = "bf16") -> NDArray[Any]:
    """Return y (32, 1024) of an fp32 LayerNorm whose sums have so many running totals."""
    x = round_to(np.random.default_rng(seed).uniform(-1, 1, (32, 1024)), "bf16").astype(np.float32)

    def average(values: Any) -> Any:
        totals = np.cumsum(values.reshape(32, -1, lanes), axis=1, dtype=np.float32)[:, -1]
        return np.float32(np.cumsum(totals, axis=1, dtype=np.float32)[:, -1:] / np.float32(1024))

    centered = x - average(x)
    rstd = np.float32(factor / np.sqrt(average(centered * centered).astype(np.float64) + 1e-6))
    return round_to(centered * rstd, form)


@pytest.mark.parametrize(("factor", "way"), [(1 + 3e-6, "away from"), (1 - 3e-6, "toward")])
def test_a_common_factor_moves_all_flips_one_way(factor: float, way: str) -> None:
    counts = [flips_of(layernorm(seed, factor=factor), layernorm(seed)) for seed in range(4)]
    (y,) = pooled({"y": [asdict(one) for one in counts]})
    assert y.one_way
    assert (y.toward if factor > 1 else y.away) == 0
    flipped, rows = max(y.away, y.toward), max(y.rows_away, y.rows_toward)
    assert y.words == (
        f"one way: {flipped} of {flipped} flips point {way} zero, in {rows} of {rows} rows"
        f" (sign test: {y.probability:.2g})"
    )


def test_right_kernels_that_sum_in_another_order_flip_both_ways() -> None:
    for one, other in combinations((4, 8, 32), 2):
        y = summary(layernorm(0, one, form="fp32"), layernorm(0, other, form="fp32"))
        assert not y.one_way
        assert y.words.startswith("both ways: ")


def test_equal_bits_and_few_rows_are_said() -> None:
    ones = np.ones((3, 4))
    assert summary(ones, ones).words == "no element differs"
    assert summary(ones * 2, ones).words == (
        "too few rows to tell: 12 of 12 flips point away from zero, in 3 of 3 rows"
        " (sign test: 0.25)"
    )


def test_repeats_of_a_seed_count_once_and_rows_without_a_comparison_not_at_all() -> None:
    def row(seed: int, repeat: int, value: float) -> dict[str, Any]:
        counts = asdict(flips_of(np.full((2, 2), value), np.ones((2, 2))))
        outputs = {"y": {"reference": {"flips": counts}}, "rstd": {}}
        return {"seed": seed, "repeat": repeat, "outputs": outputs}

    (y,) = pooled_rows([row(0, 0, 2.0), row(0, 1, 2.0), row(1, 0, 1.0)])
    assert (y.output, y.seeds, y.elements, y.differing) == ("y", 2, 8, 4)


@pytest.mark.parametrize(("one", "other"), [(8, 0), (15, 3), (7, 7), (4, 5), (0, 0), (6000, 5800)])
def test_the_sign_test_is_the_binomial_one(one: int, other: int) -> None:
    exact = stats.binomtest(one, one + other).pvalue if one + other else 1.0
    assert sign_probability(one, other) == pytest.approx(exact, rel=1e-9)
