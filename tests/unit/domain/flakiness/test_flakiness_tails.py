"""Tails of errors, the grades that come of them, and what a seed that runs again adds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from scipy import stats

from gonogo.flakiness.attribution import Cause, attribute
from gonogo.flakiness.grades import Sharpness, Stability, grade, hollow, sharpness, stability
from gonogo.flakiness.rates import Outcome, rate
from gonogo.flakiness.samples import Sample, devices, distinct_places
from gonogo.flakiness.tails import clustered, pareto_fit, survival, tail, tail_of

Floats = NDArray[np.float64]
NIGHTS = 30
FAR, NEAR = (0.1, 0.15, 0.2, 0.27), (0.5, 0.6, 0.7, 0.86)


def exponential(seeds: int, true: float, stream: int = 0) -> Floats:
    """Return tolerance ratios: the share `true` of the distribution is above 1."""
    return np.random.default_rng(stream).exponential(size=seeds) / -np.log(true)


def quantiles(count: int, shape: float = 0.0) -> Floats:
    """Return quantiles of a generalized Pareto distribution: a sample without noise."""
    return np.asarray(stats.genpareto.ppf((np.arange(count) + 0.5) / count, shape), np.float64)


def plain_fit(excess: Iterable[float]) -> tuple[float, float]:
    """Zhang and Stephens, Technometrics 51, 2009, as they write it; the shape is xi = -k."""
    x = sorted(excess)
    n, m = len(x), 20 + int(len(x) ** 0.5)
    quarter = x[int(n / 4 + 0.5) - 1]
    theta = [1 / x[-1] + (1 - math.sqrt(m / (j - 0.5))) / (3 * quarter) for j in range(1, m + 1)]

    def log_likelihood(b: float) -> float:
        k = -sum(math.log(1 - b * value) for value in x) / n
        return n * (math.log(b / k) + k - 1)

    logs = [log_likelihood(b) for b in theta]
    weights = [1 / sum(math.exp(other - one) for other in logs) for one in logs]
    best = sum(weight * b for weight, b in zip(weights, theta, strict=True))
    k = -sum(math.log(1 - best * value) for value in x) / n
    return -k, k / best


@pytest.mark.parametrize("shape", [-0.4, 0.0, 0.5, 2.0])
@pytest.mark.parametrize("count", [10, 13, 37])
def test_a_fit_is_zhang_and_stephens_s(shape: float, count: int) -> None:
    rows = np.stack([quantiles(count, shape), 3.0 * quantiles(count, shape) ** 1.2])
    for row, fitted_shape, fitted_scale in zip(rows, *pareto_fit(rows), strict=True):
        assert (fitted_shape, fitted_scale) == pytest.approx(plain_fit(row), rel=1e-9)


@pytest.mark.parametrize("shape", [-0.5, -1e-7, 0.0, 1e-12, 1e-7, 0.3, 2.0])
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_survival_is_scipy_s(shape: float, scale: float) -> None:
    for z in (0.0, 0.3, 0.99, 1.0, 2.5):
        expected = stats.genpareto.sf(z, shape, scale=scale)
        probability = survival(z, np.array([shape]), np.array([scale]))
        assert probability == pytest.approx([expected], rel=1e-6, abs=1e-12)


def test_the_prediction_is_the_median_of_the_thresholds_near_the_true_rate() -> None:
    near = tail(quantiles(200) / 5.5)
    predictions = [fit.predicted for fit in near.thresholds]
    assert predictions == pytest.approx([math.exp(-5.5)] * len(predictions), rel=0.2)
    assert near.predicted == np.median(predictions)
    assert max(predictions) < (near.upper or 0) < 0.05
    drawn = [tail(exponential(200, 0.004, stream)) for stream in range(60)]
    assert np.median([one.predicted or 0 for one in drawn]) == pytest.approx(0.004, rel=0.35)
    assert sum((one.upper or 0) >= 0.004 for one in drawn) >= 55
    assert tail(exponential(100_000, 1e-4)).predicted == pytest.approx(1e-4, rel=0.7)


def test_nothing_is_predicted_beyond_ten_times_the_seeds() -> None:
    prediction = tail(np.random.default_rng(2).random(50) * 0.1)
    assert (prediction.predicted, prediction.at_most) == (pytest.approx(1 / 500), True)
    assert prediction.words.startswith("fewer than 2 failures per thousand seeds")


@pytest.mark.parametrize("value", [0.0, 0.5, 1e-300, 1.0])
def test_equal_ratios_have_no_tail_but_a_bound_by_their_count(value: float) -> None:
    prediction = tail([value] * 40)
    assert prediction.thresholds == ()
    assert prediction.upper == pytest.approx(0.0466, abs=1e-3)  # Jeffreys, one-sided: 0 of 40
    assert "no tail to fit" in prediction.words


def test_infinite_ratios_and_failures_count() -> None:
    prediction = tail([*exponential(100, 0.01), np.inf, np.inf])
    assert prediction.observed.failures >= 2
    assert (prediction.predicted or 0) > 2 / 102
    most = tail([5.0 + k for k in range(40)])
    assert most.predicted == 1
    assert "too many above the limit" in most.words


TIES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.999, 1.0, 1.5]), min_size=20, max_size=120)
ANY = arrays.arrays(np.float64, st.integers(0, 200), elements=st.floats(width=64))


@given(ANY | TIES.map(np.array))
def test_any_numbers_have_an_answer_in_any_order(values: Floats) -> None:
    prediction = tail(values)
    json.dumps(asdict(prediction), allow_nan=False)
    assert (prediction.predicted is None) == (np.count_nonzero(~np.isnan(values)) < 20)
    if prediction.predicted is not None:
        assert 0 <= prediction.predicted <= (prediction.upper or 0) <= 1
    assert tail(values[::-1].copy()) == prediction


@pytest.mark.parametrize(
    ("failures", "runs", "true", "kind"),
    [
        (0, 200, 0.004, Stability.marginal),
        (0, 200, 1e-9, Stability.robust),
        (3, 5, None, Stability.flaky),
        (8, 8, None, Stability.broken),
        (2, 2, None, Stability.unknown),
        (0, 3, None, Stability.unknown),
        (0, 0, None, Stability.unknown),
    ],
)
def test_a_test_is_as_stable_as_its_rate_and_its_tail(
    failures: int, runs: int, true: float | None, kind: Stability
) -> None:
    prediction = None if true is None else tail(exponential(200, true))
    assert stability(rate(failures, runs), prediction)[0] is kind


def test_a_test_is_as_sharp_as_the_mutants_it_rejects() -> None:
    assert sharpness({})[0] is Sharpness.unmeasured
    assert sharpness({"cannot-show": rate(0, 0)})[0] is Sharpness.unmeasured
    assert sharpness({"drop-s1": rate(0, 8), "cannot-show": rate(0, 0)})[0] is Sharpness.sharp
    kind, words = sharpness({"drop-s1": rate(0, 8), "last-block-only": rate(8, 8)})
    assert kind is Sharpness.blunt
    assert words.startswith("1 of 2 mutants pass: last-block-only 8 of 8")
    _, words = sharpness({f"wrong-{number}": rate(8, 8) for number in range(7)})
    assert words.endswith(" and 2 more")
    assert ("wrong-4" in words, "wrong-5" in words) == (True, False)


def test_a_grade_has_both_axes() -> None:
    green = hollow([{"pass": 1, "fail": 1}, {"pass_by_tolerance": 1, "hang": 1}])
    assert (green.failures, green.runs) == (1, 2)
    graded = grade(rate(0, 200), tail(exponential(200, 0.004)), {"drop-s1": rate(1, 8)}, green)
    assert (graded.latent, graded.hollow) == (True, True)
    json.dumps(asdict(graded), allow_nan=False)


# seeds that run again


def sample(
    seed: int, *, failed: bool = False, device: str = "a", build: str = "b", night: int = 0
) -> Sample:
    """Return a run, first in its process, whose digest depends on its seed alone."""
    outcome = Outcome.failed if failed else Outcome.passed
    return Sample(seed, 0, device, build, "isolated", f"{night}", 0, f"{seed}", outcome)


def noisy(values: tuple[float, ...], spread: float) -> list[tuple[int | None, float | None]]:
    """Return (seed, ratio) of thirty nights, whose numbers differ from night to night."""
    noise = np.random.default_rng(1).normal(1, spread, size=(NIGHTS, len(values)))
    return [(seed, values[seed] * float(row[seed])) for row in noise for seed in range(len(values))]


@pytest.mark.parametrize("values", [FAR, NEAR])
@pytest.mark.parametrize("spread", [0.0, 1e-6, 0.01])
def test_four_seeds_of_thirty_nights_are_four(values: tuple[float, ...], spread: float) -> None:
    prediction = tail_of(noisy(values, spread))
    assert (prediction.seeds, prediction.distinct, prediction.repeated) == (4, 4, 116)
    few = "4 distinct seeds are too few to predict how often others fail (20 are needed)"
    assert prediction.words.startswith(few)
    assert prediction.predicted is None
    kind, words = stability(rate(0, 120), prediction)
    assert kind is Stability.unknown
    assert words.startswith("not enough seeds: 4 of 20; 4 distinct seeds are too few")


def test_numbers_that_differ_as_much_within_a_seed_as_between_seeds_are_new_samples() -> None:
    drawn = 0.42 + 0.1 * quantiles(NIGHTS * 4)  # .003 of them are above 1
    values = [float(value) for value in np.random.default_rng(3).permutation(drawn)]
    again = tail_of([(place % 4, value) for place, value in enumerate(values)])
    fresh = tail_of(list(enumerate(values)))
    assert (again.seeds, again.distinct, again.per) == (120, 4, "runs")
    assert (fresh.seeds, fresh.distinct, fresh.per) == (120, 120, "seeds")
    assert (again.predicted or 0) == fresh.predicted > 1e-3
    for prediction in (again, fresh):
        assert stability(rate(0, 120), prediction)[0] is Stability.marginal
    assert again.words.endswith("(120 runs), of 4 seeds")


def test_enough_seeds_are_one_sample_each_however_often_they_run() -> None:
    values = np.random.default_rng(2).random(50) * 0.1
    nights = [(seed, (1 + 1e-4 * night) * values[seed]) for night in range(5) for seed in range(50)]
    prediction = tail_of(nights)
    assert (prediction.seeds, prediction.distinct, prediction.repeated) == (50, 50, 200)
    assert prediction.predicted == pytest.approx(1 / 500)


def test_runs_without_a_controlled_seed_are_each_their_own() -> None:
    values = [0.1 + 0.001 * (place % 4) for place in range(40)]
    prediction = tail_of([(None, value) for value in values])
    assert (asdict(prediction), prediction.seeds) == (asdict(tail(values)), 40)


NONE_OF_20 = "not enough seeds: 0 of 20"


@pytest.mark.parametrize(
    ("seed_ratios", "counts", "words"),
    [
        ([], (0, 0, 0), NONE_OF_20),
        ([(1, None), (1, math.nan)], (0, 2, 0), NONE_OF_20),
        ([(0, 0.1), (1, None), (2, math.nan), (None, 0.2)], (2, 2, 0), "not enough seeds: 2 of 20"),
        ([*noisy(FAR, 0.0), (9, None), (None, math.nan)], (4, 2, 116), "4 distinct seeds are"),
        ([(7, 0.1)] * 5, (1, 0, 4), "1 distinct seed is too few to predict how often others fail"),
    ],
)
def test_missing_numbers_are_counted_and_too_few_are_said_to_be_so(
    seed_ratios: list[tuple[int | None, float | None]], counts: tuple[int, ...], words: str
) -> None:
    fit = tail_of(seed_ratios)
    assert (fit.seeds, fit.left_out, fit.repeated) == counts
    assert fit.words.startswith(words)


def test_seeds_are_clustered_by_their_numbers() -> None:
    low, high = [0.10, 0.11, 0.12, 0.13], [0.50, 0.51, 0.52, 0.53]
    assert clustered([low, high])
    assert clustered([low])
    assert clustered([[1.0, 1.1]])
    assert not clustered([low[:2] + high[:2], low[2:] + high[2:]])
    assert not clustered([[0.1], [0.2], [0.3]])


def test_equal_bits_count_once_but_not_of_a_kernel_that_gave_others() -> None:
    nights = [
        sample(k, night=night, build=f"b{night}") for night in range(NIGHTS) for k in range(4)
    ]
    four, all_places = [0, 1, 2, 3], list(range(120))
    assert distinct_places(nights) == four
    assert distinct_places([replace(run, digest=None) for run in nights]) == all_places
    assert distinct_places([replace(run, seed=None) for run in nights]) == all_places
    by_build = [replace(run, digest=f"{run.digest} {run.build}") for run in nights]
    assert distinct_places(by_build) == all_places
    assert distinct_places(by_build, [0.5] * 120) == four  # the bits differ, the figures don't
    same = [replace(run, build="b") for run in nights]
    same[50] = replace(same[50], digest="another")
    assert distinct_places(same, [0.5] * 120) == all_places


def test_one_bad_seed_run_every_night_is_no_difference_of_devices() -> None:
    runs = [
        sample(seed, device="a" if seed < 2 else "b", failed=seed == 3, night=night)
        for night in range(NIGHTS)
        for seed in range(4)
    ]
    first, second = devices(runs)
    assert (first.runs, second.runs, second.failed, second.repeated) == (2, 2, 1, 58)
    assert second.host_runs == NIGHTS
    attributed = attribute(runs)
    assert attributed.cause is Cause.seed_sensitive
    assert (attributed.failures.failures, attributed.failures.runs, attributed.repeated) == (
        1,
        4,
        116,
    )
    assert "(116 more repeat one of these bit for bit)" in attributed.words
    mixed = [replace(run, digest=f"{night}") for night, run in enumerate(runs)]  # all are trials
    assert attribute(mixed).failures.runs == 120
    assert devices(mixed)[1].runs == 60


def test_one_bad_seed_run_again_on_every_other_device_is_no_difference_of_devices() -> None:
    well = [sample(seed, device="a") for seed in range(30)]
    bad = [sample(99, failed=True, device=f"d{number}") for number in range(8)]
    attributed = attribute([*well, *bad])
    assert Cause.device_dependent not in attributed.causes
    (p,) = (row.p for row in attributed.devices if row.name == "a")
    assert p == pytest.approx(1 / 31)  # 0 of 30 against 1 of 1
    other = [replace(run, digest=run.device) for run in bad]  # bits of its own: eight failures
    assert Cause.device_dependent in attribute([*well, *other]).causes


def test_one_red_seed_run_again_is_not_a_broken_test() -> None:
    nights = [sample(0, failed=True, night=night) for night in range(9)]
    assert attribute(nights).cause is Cause.unknown
    assert attribute([sample(seed, failed=True) for seed in range(4)]).cause is Cause.broken
