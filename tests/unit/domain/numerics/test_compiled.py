"""The comparisons of blocks, compiled and in NumPy, and their definition, of any expectation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gonogo.numerics import compare, directions, row_blocks
from gonogo.numerics.compiled import comparison
from gonogo.numerics.expectation import (
    Direction,
    Expectation,
    Keyed,
    Shared,
    output_step,
    truncate,
)
from gonogo.numerics.jit import HAVE_NUMBA
from gonogo.numerics.totals import Totals, finished
from property_examples import examples

pytestmark = pytest.mark.skipif(not HAVE_NUMBA, reason="numba: not installed")

Array = NDArray[np.float64]
FORMATS = {
    "bf16": (2.0**-8, False),
    "fp16": (2.0**-11, False),
    "fp32": (2.0**-24, False),
    "bfp8_b": (2.0**-7, True),
}
SUMMED = 1e-12
"""The two add the same float64 numbers in different orders."""
CANCELED = 1e-9
"""Room where large terms cancel: projections, and the centered sums of a correlation."""


def sample(seed: int, rows: int, n: int, form: str) -> tuple[Array, Array, Expectation]:
    """Return (output, raw reference, expectation) with whatever an expectation can hold."""
    random = np.random.default_rng(seed)
    unit, block = FORMATS[form]

    def normal(*shape: int) -> Array:
        return np.asarray(random.normal(0, 1, shape))

    def some(most: int) -> range:
        return range(int(random.integers(0, most + 1)))

    def maybe(values: Array) -> Array | None:
        return values if random.random() < 0.5 else None

    def pattern(scale: float = 1.0) -> Array:
        """Return values for each row, or for all rows alike."""
        return scale * normal(rows if random.random() < 0.7 else 1, n)

    # few bits make ties, equal values, zeros and whole rows that are equal
    reference = truncate(normal(rows, n), 2.0 ** -int(random.integers(2, 30)))
    reference[random.random((rows, n)) < 0.1] = 0.0
    reference[:: int(random.integers(2, 8))] = reference[0]
    step = output_step(reference, unit, block) + 1e-30
    noise = step**2 / 3
    keys = np.where(random.random((rows, n)) < 0.2, np.nan, np.round(4 * normal(rows, n)) / 4)
    expected = Expectation(
        reference=reference,
        bound=step * (1 + normal(rows, n) ** 2),
        noise=noise,
        out=unit,
        out_block=block,
        shared=tuple(Shared(unit**2 * normal(rows, 1) ** 2, pattern()) for _ in some(2)),
        directions=(
            *(Direction(f"row{k}", normal(rows, n)) for k in some(4)),
            Direction("reference", reference, floor=float(random.choice([0.0, 0.5 * n]))),
            Direction("floors", normal(rows, n), floor=n * normal(rows) ** 2),
            *(Direction(f"column{k}", pattern(), axis="column") for k in some(2)),
            *(Direction(f"tile{k}", normal(3, n), axis="tiles") for k in some(1) if rows == 1),
        ),
        bias=maybe(2 * unit * pattern()),
        trend=tuple(pattern(unit) for _ in some(3)),
        spread=maybe(unit * normal(rows, n) ** 2),
        keyed=tuple(Keyed(keys, unit * normal(rows, n), adds_variance=k > 0) for k in some(2)),
        allowance=tuple(pattern(unit) for _ in some(8)),
        truncated=maybe(-np.abs(step) * np.sign(reference)),
        factors=tuple(unit * normal(2, n) for _ in some(1)),
        informative=None if random.random() < 0.5 else random.random(rows) < 0.8,
    )
    if any(direction.axis == "tiles" for direction in expected.directions):
        expected = replace(expected, keyed=())  # the definition has no keys there
    if expected.bias is not None:
        expected = replace(expected, bias=np.broadcast_to(expected.bias, (rows, n)).copy())
    raw = reference + 1e-3 * unit * normal(rows, n)
    output = reference + step * np.round(2 * normal(rows, n)) * (random.random((rows, n)) < 0.8)
    return output, raw, expected


def groups_of(expected: Expectation, used: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Number the rows with one reference, as the definition groups them; -1 where it is alone."""
    groups = np.full(used.size, -1)
    first = directions.identical_rows(expected.reference[used])
    counts = np.bincount(first, minlength=first.size)
    groups[used] = np.where(counts[first] > 1, first, -1)
    return groups


def in_blocks(
    compare_block: Callable[..., Totals],
    output: NDArray[np.float32],
    raw: Array,
    expected: Expectation,
    allclose: tuple[float, float] | None,
    step: int,
) -> dict[str, Any]:
    """Return the statistics by the comparison of blocks of `step` rows."""
    rows, n = output.shape
    keep = compare.finite_rows(output)
    used = keep if expected.informative is None else keep & expected.informative
    groups = groups_of(expected, used)
    parts = []
    for start in range(0, rows, step):
        here = np.arange(rows) // step == start // step
        part = compare_block(
            output[here],
            raw[here],
            compare.restrict(expected, here),
            keep[here],
            start=start,
            allclose=allclose,
            origin=float(raw[0, 0]),
            groups=groups[here],
        )
        parts.append(part)
    totals, *others = parts
    for other in others:
        totals.add(other)
    names = list(dict.fromkeys(direction.name for direction in expected.directions))
    count = int(keep.sum()) * n
    result = finished(totals, count, allclose is not None, names) if count else compare.blank(names)
    bare = {"count": output.size, "digest": compare.digest(output, output.shape)}
    return compare.storable(result | bare | compare.nonfinite(output))


def assert_same(fast: Any, plain: Any, name: str = "") -> None:
    if isinstance(plain, dict):
        assert fast.keys() == plain.keys()
        for key in plain:
            assert_same(fast[key], plain[key], key)
    elif isinstance(plain, float) and fast is not None:
        room = CANCELED if name == "pcc_deficit" or "_z" in name else SUMMED
        assert fast == pytest.approx(plain, rel=room, abs=1e-13), name
    else:
        assert fast == plain, name


def assert_is_the_definition(
    output: Array,
    raw: Array,
    expected: Expectation,
    allclose: tuple[float, float] | None = None,
    step: int = 32,
) -> dict[str, Any]:
    singles = np.asarray(output, np.float32)
    plain = compare.storable(
        compare.statistics(singles, expected, raw, allclose=allclose, shape=singles.shape)
    )
    for compare_block in (row_blocks.compare_block, comparison.compare_block):
        assert_same(in_blocks(compare_block, singles, raw, expected, allclose, step), plain)
    return plain


@settings(max_examples=examples(150))
@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(1, 45), st.integers(1, 90)),
    form=st.sampled_from(sorted(FORMATS)),
    allclose=st.sampled_from([None, (0.0, 0.0), (1e-3, 0.05)]),
    step=st.sampled_from([7, 32, 64]),
)
@example(seed=1, shape=(1, 1), form="bf16", allclose=(0.0, 0.0), step=32)
@example(seed=2, shape=(1, 40), form="bfp8_b", allclose=None, step=32)
@example(seed=3, shape=(40, 1), form="fp32", allclose=(1e-3, 0.05), step=7)
def test_the_compiled_comparison_is_the_definition(
    seed: int,
    shape: tuple[int, int],
    form: str,
    allclose: tuple[float, float] | None,
    step: int,
) -> None:
    assert_is_the_definition(*sample(seed, *shape, form), allclose, step)


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_long_rows_of_every_format_agree(form: str) -> None:
    """Rows longer than the chunk that the loops fold, and than the block that they share."""
    for n in (255, 256, 257, 2048, 4711):
        assert_is_the_definition(*sample(n, 5, n, form))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_left_out(value: float) -> None:
    output, raw, expected = sample(11, 40, 50, "bf16")
    output[3, 5] = output[38] = value
    plain = assert_is_the_definition(output, raw, expected)
    assert plain["nonfinite"] == 51
    assert plain["worst_index"] == [3, 5]
    output[:, 7] = value
    plain = assert_is_the_definition(output, raw, expected)
    assert plain["nonfinite"] == 90
    assert plain["budget_ratio"] is None


def test_outputs_of_zeros_and_rows_without_information_agree() -> None:
    output, raw, expected = sample(12, 33, 70, "bf16")
    zero = np.zeros_like(output)
    assert_is_the_definition(zero, raw, expected, (1e-3, 0.0))
    nothing = replace(expected, reference=zero, bound=zero, noise=zero, shared=(), keyed=())
    plain = assert_is_the_definition(zero, zero, nothing, (1e-3, 0.0))
    assert plain["max_abs"] == plain["budget_ratio"] == 0.0
    blind = replace(expected, informative=np.zeros(33, bool))
    plain = assert_is_the_definition(output, raw, blind)
    assert plain["rows_left_out"] == 33
    assert plain["chi"] is None


def test_powers_of_two_off_are_outliers() -> None:
    output, raw, expected = sample(13, 20, 60, "bf16")
    output[4, 9], output[4, 10] = 4 * expected.reference[4, 9] + 1e-9, 1e9
    expected.reference[4, 9] = output[4, 9] / 4
    plain = assert_is_the_definition(output, raw, expected)
    assert plain["outliers"] >= 1


def test_the_first_of_equally_bad_elements_is_named_across_blocks() -> None:
    zero, one = np.zeros((40, 50)), np.ones((40, 50))
    output = zero.copy()
    output[3, 5] = output[38, 7] = -2.0
    expected = Expectation(reference=zero, bound=one, noise=one, out=2.0**-8)
    plain = assert_is_the_definition(output, zero, expected)
    assert plain["worst_index"] == [3, 5]
