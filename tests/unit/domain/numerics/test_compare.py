"""Every statistic of one output against a plain computation of it: Fractions, Decimals, math.fsum
and loops over elements."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from decimal import Decimal, getcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import xxhash
from numpy.typing import NDArray

from gonogo.numerics import compare
from gonogo.numerics.expectation import Direction, Expectation
from gonogo.numerics.formats import round_to

Array = NDArray[np.float64]
Output = NDArray[np.float32]
BF16 = 2.0**-8
getcontext().prec = 60


def expectation(
    reference: Array, bound: float | Array = 1.0, noise: float | Array = 1.0, **fields: Any
) -> Expectation:
    wide = np.asarray(reference, np.float64)
    bounds, noises = (
        np.broadcast_to(np.asarray(values, np.float64), wide.shape).copy()
        for values in (bound, noise)
    )
    return Expectation(reference=wide, bound=bounds, noise=noises, **{"out": BF16, **fields})


def statistics(
    output: Any,
    reference: Any,
    raw: Any = None,
    allclose: tuple[float, float] | None = None,
    **fields: Any,
) -> compare.Statistics:
    """Return an output's statistics as stored; without `raw`, the reference is the raw one too."""
    wide = np.asarray(reference, np.float64)
    out = np.asarray(output, np.float32)
    against = wide if raw is None else np.asarray(raw, np.float64)
    return compare.storable(
        compare.statistics(
            out, expectation(wide, **fields), against, allclose=allclose, shape=out.shape
        )
    )


@pytest.fixture(scope="module")
def sample() -> tuple[Output, Array, Array]:
    """Return (output, quantized reference, raw reference) of 7x33, all different."""
    random = np.random.default_rng(3)
    reference = random.normal(0, 2, (7, 33))
    raw = reference + random.normal(0, 1e-3, (7, 33))
    return round_to(reference + random.normal(0, 0.02, (7, 33)), "bf16"), reference, raw


def pairs(output: Output, reference: Array) -> list[tuple[Fraction, Fraction]]:
    """Return the exact (error, reference) of every element."""
    return [
        (Fraction(float(o)) - Fraction(float(r)), Fraction(float(r)))
        for o, r in zip(output.ravel(), reference.ravel(), strict=True)
    ]


def total(values: Iterable[Fraction]) -> Fraction:
    return sum(values, Fraction(0))


def decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def root(value: Fraction) -> Decimal:
    return decimal(value).sqrt()


def test_errors_are_those_against_the_raw_reference(sample: tuple[Output, Array, Array]) -> None:
    output, reference, raw = sample
    stats = statistics(output, reference, raw)
    exact = pairs(output, raw)
    count = len(exact)
    assert stats["count"] == count == 231
    assert stats["max_abs"] == pytest.approx(float(max(abs(e) for e, _ in exact)), rel=1e-12)
    assert stats["mean_abs"] == pytest.approx(
        float(total(abs(e) for e, _ in exact) / count), rel=1e-12
    )
    assert stats["rms"] == pytest.approx(
        float(root(total(e * e for e, _ in exact) / count)), rel=1e-12
    )
    relative = root(total(e * e for e, _ in exact)) / root(total(r * r for _, r in exact))
    assert stats["rel_frobenius"] == pytest.approx(float(relative), rel=1e-12)


def exact_deficit(raw: Array, error: Array) -> float:
    """Return 1 - Pearson's rho of raw + error and raw, in 60 digits."""
    b = [Fraction(float(v)) for v in raw.ravel()]
    a = [v + Fraction(float(e)) for v, e in zip(b, error.ravel(), strict=True)]
    mean_a, mean_b = total(a) / len(a), total(b) / len(b)
    ab = total((u - mean_a) * (v - mean_b) for u, v in zip(a, b, strict=True))
    aa, bb = total((u - mean_a) ** 2 for u in a), total((v - mean_b) ** 2 for v in b)
    return float(1 - decimal(ab) / (root(aa) * root(bb)))


@pytest.mark.parametrize("noise", [1.0, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("offset", [0.0, 10.0])
def test_the_deficit_of_the_correlation_keeps_its_digits_down_to_1e_12(
    noise: float, offset: float
) -> None:
    random = np.random.default_rng(11)
    raw = random.normal(offset, 1, (6, 50))
    output = (raw + random.normal(0, noise, raw.shape)).astype(np.float32)
    expected_deficit = exact_deficit(raw, output - raw)
    assert compare.pcc_deficit(raw, output - raw) == pytest.approx(
        expected_deficit, rel=1e-6, abs=0
    )
    assert statistics(output, raw)["pcc_deficit"] == compare.pcc_deficit(raw, output - raw)
    if noise == 1e-6:
        assert 1e-13 < expected_deficit < 1e-11
        naive = 1 - float(np.corrcoef(output.ravel(), raw.ravel())[0, 1])
        assert (
            abs(naive - expected_deficit) > 1e-6 * expected_deficit
        )  # why the formula isn't the textbook's


def test_the_deficit_keeps_its_digits_beside_a_large_mean_and_a_common_factor() -> None:
    random = np.random.default_rng(12)
    raw = random.normal(0, 1, (6, 50))
    for moved, error in (
        (raw + 1e9, random.normal(0, 1e-2, raw.shape)),
        (
            raw,
            1e-12 * raw + random.normal(0, 1e-12, raw.shape),
        ),  # nearly as much of it along raw as across
    ):
        assert compare.pcc_deficit(moved, error) == pytest.approx(
            exact_deficit(moved, error), rel=1e-6, abs=0
        )


def test_the_deficit_agrees_with_numpy_where_that_has_digits(
    sample: tuple[Output, Array, Array],
) -> None:
    output, reference, raw = sample
    expected_deficit = 1 - np.corrcoef(output.astype(np.float64).ravel(), raw.ravel())[0, 1]
    assert statistics(output, reference, raw)["pcc_deficit"] == pytest.approx(
        expected_deficit, rel=1e-9
    )


def test_anticorrelated_outputs_have_a_deficit_of_two_and_scaled_ones_none() -> None:
    raw = np.arange(12.0).reshape(3, 4)
    assert statistics(-raw, raw)["pcc_deficit"] == pytest.approx(2, rel=1e-12)
    assert statistics(2 * raw, raw)["pcc_deficit"] == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    ("output", "raw"), [("constant", "constant"), ("varied", "constant"), ("constant", "varied")]
)
def test_the_correlation_of_a_constant_is_undefined(output: str, raw: str) -> None:
    arrays = {"constant": np.full((2, 9), 0.1), "varied": np.linspace(0, 1, 18).reshape(2, 9)}
    assert statistics(arrays[output], arrays[raw])["pcc_deficit"] is None


def ulps(output: float, raw: float, bits: int) -> float:
    """Return the exact distance from the golden value in spacings of its binade; `bits` of
    fraction."""

    def spacing(value: Fraction) -> Fraction:
        exponent = math.frexp(float(value))[1] - 1 if value else -126
        return Fraction(2) ** (max(exponent, -126) - bits)

    exact = Fraction(raw)
    step = spacing(exact)
    golden = round(exact / step) * step  # Fractions round half to even
    return float(abs(Fraction(output) - golden) / spacing(golden))


@pytest.mark.parametrize(
    ("fmt", "unit", "bits"), [("bf16", 2.0**-8, 7), ("fp32", 2.0**-24, 23), ("fp16", 2.0**-11, 10)]
)
def test_ulps_count_from_the_rounded_golden_value(fmt: str, unit: float, bits: int) -> None:
    random = np.random.default_rng(8)
    raw = random.normal(0, 1, (5, 40))
    raw[0, :3] = 1.99999, 2.0, 1.00001  # across a binade: the golden value's own spacing counts
    output = round_to(raw * (1 + random.normal(0, 4 * unit, raw.shape)), fmt)
    distances = sorted(
        ulps(float(o), float(r), bits) for o, r in zip(output.ravel(), raw.ravel(), strict=True)
    )
    stats = statistics(output, raw, out=unit)
    assert stats["ulp_max"] == distances[-1]
    assert stats["ulp_p99"] == math.ceil(distances[math.ceil(0.99 * len(distances)) - 1])


def test_an_ulp_is_that_of_the_golden_value_where_rounding_reaches_the_next_binade() -> None:
    assert statistics([[2 + 2.0**-6]], [[1.999]])["ulp_max"] == 1


def test_a_perfectly_rounded_output_is_no_ulp_off() -> None:
    raw = np.random.default_rng(1).normal(0, 1, (4, 25))
    stats = statistics(round_to(raw, "bf16"), raw)
    assert (stats["ulp_max"], stats["ulp_p99"], stats["mismatch_fraction"]) == (0, 0, 0)


def test_the_99th_percentile_is_the_least_whole_number_that_99_percent_do_not_exceed() -> None:
    distances = np.concatenate([np.zeros(98), [6.25], [70.0]])
    assert compare.percentile_99(distances) == 7
    assert compare.percentile_99(np.append(distances, 0.0)) == 7
    assert compare.percentile_99(np.array([0.5])) == 1
    assert compare.percentile_99(np.array([4095.0])) == 4095


def test_huge_distances_keep_one_of_32_bins_an_octave() -> None:
    for value in (4096.0, 5000.0, 123456.0, 2.0**60):
        percentile = compare.percentile_99(np.array([value]))
        assert percentile <= value < percentile * (1 + 1 / 32)
    assert compare.percentile_99(np.array([4096.0])) == 4096


def test_the_needed_atol_is_stored_for_every_rtol(sample: tuple[Output, Array, Array]) -> None:
    output, reference, raw = sample
    needed = statistics(output, reference, raw)["needed_atol"]
    assert set(needed) == {"0", "1e-05", "0.001", "0.01", "0.016", "0.1"}
    exact = pairs(output, raw)
    for text, value in needed.items():
        expected_atol = max(abs(e) - Fraction(float(text)) * abs(r) for e, r in exact)
        assert value == pytest.approx(max(0.0, float(expected_atol)), rel=1e-12)
    assert needed["0"] == statistics(output, reference, raw)["max_abs"]


def test_no_atol_is_needed_where_rtol_alone_holds() -> None:
    needed = statistics([[1.05, 2.0]], [[1.0, 2.0]])["needed_atol"]
    assert needed["0.1"] == 0
    assert needed["0"] == pytest.approx(0.05, rel=1e-6)


def test_tolerance_ratios_compare_with_the_raw_and_with_the_quantised_reference(
    sample: tuple[Output, Array, Array],
) -> None:
    output, reference, raw = sample
    stats = statistics(output, reference, raw, allclose=(1e-2, 1e-3))
    for name, against in (("tolerance_ratio", raw), ("tolerance_ratio_quantised", reference)):
        expected_ratio = max(
            abs(e) / (Fraction(1e-3) + Fraction(1e-2) * abs(r)) for e, r in pairs(output, against)
        )
        assert stats[name] == pytest.approx(float(expected_ratio), rel=1e-12)
    assert stats["tolerance_ratio"] != stats["tolerance_ratio_quantised"]


def test_without_a_declared_allclose_there_is_no_ratio(sample: tuple[Output, Array, Array]) -> None:
    output, reference, raw = sample
    stats = statistics(output, reference, raw)
    assert stats["tolerance_ratio"] is None
    assert stats["tolerance_ratio_quantised"] is None
    assert stats["nonfinite_statistics"] is None


def test_nothing_over_nothing_is_nothing_and_something_over_nothing_is_infinite() -> None:
    exact = statistics([[0.0, 1.0]], [[0.0, 1.0]], allclose=(0.0, 0.0))
    assert (exact["tolerance_ratio"], exact["tolerance_ratio_quantised"]) == (0, 0)
    off = statistics([[0.5, 1.0]], [[0.0, 1.0]], allclose=(0.1, 0.0))
    assert off["tolerance_ratio"] is None
    assert off["nonfinite_statistics"] == {
        "tolerance_ratio": "inf",
        "tolerance_ratio_quantised": "inf",
    }
    zeros = np.zeros((1, 3))
    assert statistics(zeros, zeros)["rel_frobenius"] == 0
    assert statistics(zeros + 1, zeros)["nonfinite_statistics"] == {"rel_frobenius": "inf"}
    unbound = statistics([[1.0, 1.0]], [[1.0, 1.5]], bound=0.0, noise=0.0)
    assert {"budget_ratio", "chi"} <= set(unbound["nonfinite_statistics"])
    assert statistics([[1.0, 1.5]], [[1.0, 1.5]], bound=0.0, noise=0.0)["budget_ratio"] == 0


def test_the_budget_is_compared_element_by_element_with_the_quantised_reference(
    sample: tuple[Output, Array, Array],
) -> None:
    output, reference, raw = sample
    random = np.random.default_rng(4)
    bound, noise = (
        random.uniform(0.01, 0.1, reference.shape),
        random.uniform(1e-4, 1e-3, reference.shape),
    )
    stats = statistics(output, reference, raw, bound=bound, noise=noise)
    ratios = [
        float(abs(e)) / b for (e, _), b in zip(pairs(output, reference), bound.ravel(), strict=True)
    ]
    assert stats["budget_ratio"] == pytest.approx(max(ratios), rel=1e-12)
    assert stats["over_budget_fraction"] == sum(r > 1 for r in ratios) / len(ratios) > 0
    place = ratios.index(max(ratios))
    assert stats["worst_index"] == [place // 33, place % 33]
    standard = math.fsum(
        float(e * e) / v for (e, _), v in zip(pairs(output, reference), noise.ravel(), strict=True)
    )
    assert stats["chi"] == pytest.approx(math.sqrt(standard / len(ratios)), rel=1e-12)


def test_mismatches_are_counted_against_the_rounded_quantised_reference(
    sample: tuple[Output, Array, Array],
) -> None:
    output, reference, raw = sample
    golden = round_to(reference, "bf16")
    expected_fraction = (
        sum(bool(o != g) for o, g in zip(output.ravel(), golden.ravel(), strict=True)) / output.size
    )
    assert 0 < expected_fraction < 1
    assert statistics(output, reference, raw)["mismatch_fraction"] == expected_fraction
    one = golden.copy()
    one[2, 5] = np.nextafter(one[2, 5], np.float32(9))
    assert statistics(one, reference, raw)["mismatch_fraction"] == 1 / output.size


def test_the_golden_value_of_a_block_format_lies_on_the_grid_of_its_block() -> None:
    reference = np.random.default_rng(6).normal(0, 1, (3, 32))
    reference[:, 4] = 7.3
    golden = round_to(reference, "bfp8_b")
    assert statistics(golden, reference, out=2.0**-7, out_block=True)["mismatch_fraction"] == 0
    np.testing.assert_array_equal(
        compare.rounded(reference, 2.0**-7, block=True), golden.astype(np.float64)
    )


def test_outliers_are_isolated_powers_of_two_beyond_the_budget() -> None:
    reference = np.array([[1.5, -1.25, 3.0, 0.75, 1.0, 2.0, 0.1]])
    output = np.array([[3.0, -0.3125, 3.02, 0.75, -2.0, 3.0, 0.2]])
    #   twice     a quarter   close    right  -2 times  1.5 times  twice, but within three budgets
    stats = statistics(output, reference, bound=[[0.1, 0.1, 0.005, 0.1, 0.1, 0.1, 0.05]])
    assert stats["outliers"] == 3
    assert statistics(reference * 2, reference, bound=10.0)["outliers"] == 0


def packed_digest(values: list[float], shape: tuple[int, ...]) -> str:
    return xxhash.xxh3_64_hexdigest(
        struct.pack(f"<{len(shape)}q", *shape) + struct.pack(f"<{len(values)}f", *values)
    )


def test_the_digest_is_that_of_the_shape_and_the_bytes() -> None:
    values = [1.0, -2.5, 0.0, 3.25, 1e-30, -7.0]
    array = np.array(values, np.float32).reshape(2, 3)
    assert compare.digest(array, (2, 3)) == packed_digest(values, (2, 3)) == "135e39a1dea4b589"
    assert (
        compare.digest(array, (3, 2))
        == packed_digest(values, (3, 2))
        != compare.digest(array, (2, 3))
    )
    assert compare.digest(array.T, (3, 2)) != compare.digest(
        array, (3, 2)
    )  # C order of what it is given
    assert compare.digest(np.asfortranarray(array), (2, 3)) == compare.digest(array, (2, 3))
    assert compare.digest(array.astype(">f4"), (2, 3)) == compare.digest(array, (2, 3))


def test_the_digest_keeps_the_sign_of_zero_and_makes_all_nans_one() -> None:
    zero = np.zeros((1, 2), np.float32)
    assert compare.digest(-zero, (1, 2)) != compare.digest(zero, (1, 2))
    patterns = [
        np.array([[bits, 0x3F800000]], np.uint32).view(np.float32)
        for bits in (0x7FC00000, 0xFFC00000, 0x7FC00001, 0x7F800001)
    ]
    assert len({compare.digest(pattern, (1, 2)) for pattern in patterns}) == 1
    assert np.isnan(patterns[1][0, 0])
    assert patterns[1].view(np.uint32)[0, 0] == 0xFFC00000  # the caller's array is left alone


def test_statistics_carry_the_digest_of_the_shape_they_are_told() -> None:
    output = np.ones((1, 4), np.float32)
    wide = output.astype(np.float64)
    stats = compare.statistics(output, expectation(wide), wide, allclose=None, shape=(4,))
    assert stats["digest"] == compare.digest(output, (4,)) != compare.digest(output, (1, 4))


def test_nonfinite_values_are_counted_by_kind_and_their_rows_left_out() -> None:
    reference = np.arange(1.0, 13.0).reshape(3, 4)
    output = reference + 0.25
    output[1] = np.nan, np.inf, -np.inf, np.nan
    stats = statistics(output, reference, bound=0.5)
    assert stats["nonfinite"] == 4
    assert stats["nonfinite_kinds"] == {"nan": 2, "+inf": 1, "-inf": 1}
    assert stats["worst_index"] == [1, 0]
    assert stats["count"] == 12
    assert (stats["max_abs"], stats["budget_ratio"]) == (0.25, 0.5)
    assert math.isfinite(stats["rms"])


def test_an_output_of_one_row_is_compared_where_it_is_finite() -> None:
    reference = np.arange(1.0, 5.0)[None, :]
    output = reference + 0.25
    output[0, 2] = np.inf
    stats = statistics(output, reference, bound=0.5, directions=(Direction("scale", reference),))
    assert stats["nonfinite"] == 1
    assert stats["worst_index"] == [0, 2]
    assert (stats["max_abs"], stats["budget_ratio"]) == (0.25, 0.5)
    assert stats["scale_z"] is None  # a projection of some of the values says nothing


def test_an_output_without_a_finite_row_has_no_statistics_but_its_keys() -> None:
    reference = np.ones((2, 3))
    stats = statistics(
        np.full((2, 3), np.nan), reference, directions=(Direction("row", reference),)
    )
    assert (stats["nonfinite"], stats["nonfinite_kinds"]) == (6, {"nan": 6})
    assert stats["budget_ratio"] is stats["chi"] is stats["row_z"] is None
    assert stats["row_count"] == 0


def test_rows_that_say_nothing_are_left_out_of_the_budget_and_counted() -> None:
    reference = np.ones((3, 4))
    output = reference.copy()
    output[0] = 9.0
    output[2] += 0.25
    informative = np.array([False, True, True])
    directions = (Direction("row", np.ones((3, 4))),)
    stats = statistics(output, reference, bound=0.5, informative=informative, directions=directions)
    assert stats["rows_left_out"] == 1
    assert stats["budget_ratio"] == 0.5
    assert stats["worst_index"][0] == 2
    assert stats["mismatch_fraction"] == 0.5
    assert stats["over_budget_fraction"] == 0
    assert stats["row_count"] == 2
    assert stats["max_abs"] == 8.0  # the declared comparators see every row


def test_an_output_that_says_nothing_has_no_budget_statistics() -> None:
    reference = np.ones((2, 4))
    stats = statistics(
        reference + 9,
        reference,
        informative=np.zeros(2, bool),
        directions=(Direction("row", reference),),
    )
    assert stats["rows_left_out"] == 2
    assert stats["budget_ratio"] is stats["chi"] is stats["row_z"] is None
    assert stats["max_abs"] == 9


def test_stored_statistics_are_plain_json() -> None:
    values = {
        "a": np.float64(0.5),
        "b": np.int64(3),
        "c": float("nan"),
        "d": np.float64("inf"),
        "e": None,
        "f": {"0": 1.0},
    }
    stored = compare.storable(values)
    assert stored == {
        "a": 0.5,
        "b": 3,
        "c": None,
        "d": None,
        "e": None,
        "f": {"0": 1.0},
        "nonfinite_statistics": {"c": "nan", "d": "inf"},
    }
    assert type(stored["a"]) is float
    assert type(stored["b"]) is int
