"""Exact inputs: their sums are exact, every value is in its format, and the bytes never change."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from exact_kernels import exact_test
from gonogo.errors import FieldError
from gonogo.exact import draws, integers, scales, squares, vernier
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec

KERNELS = ("layernorm_fw", "layernorm_bw", "rmsnorm_fw")


@pytest.mark.parametrize("features", [2, 4, 5, 7, 8, 9, 11, 33, 64, 1000, 1024, 8462])
def test_integers_of_a_row_have_sum_0_and_sum_of_squares_4n(features: int) -> None:
    c = integers.patterns(3, 6, features)
    assert (c.sum(axis=1) == 0).all()
    assert ((c**2).sum(axis=1) == 4 * features).all()
    assert np.abs(c).max() <= 4


def test_lanes_of_many_tiles_are_balanced_one_by_one() -> None:
    lanes = integers.patterns(0, 5, 1024).reshape(5, 32, 32)
    assert (lanes.sum(axis=1) == 0).all()
    assert ((lanes**2).sum(axis=1) == 4 * 32).all()


def test_a_spotlight_makes_its_tile_the_heaviest_of_the_row() -> None:
    c = integers.patterns(0, 8, 8462)
    for row in range(8):
        weights = np.add.reduceat(c[row] ** 2, np.arange(0, 8462, 32))
        weights[-1] *= 32 / 14  # the last tile has 14 columns
        assert int(np.argmax(weights)) == integers.spot(row, 8462)
    assert integers.spot(0, 8462) == 264


@pytest.mark.parametrize("features", [16, 33, 64, 1000, 8462])
@pytest.mark.parametrize("bits", [8, 11])
def test_wide_integers_have_an_exact_mean_square(features: int, bits: int) -> None:
    numerators = 129 + 2 * draws.choices(1, "numerators", (features,), 64)
    c = squares.patterns(1, 3, numerators, bits)
    assert ((c**2).sum(axis=1) == 4 ** squares.exponent(features) * features).all()
    assert np.abs(c).max() <= 255
    assert 4 ** squares.exponent(features) * features <= 2**24


def test_four_squares_completes_any_rest() -> None:
    for total in (0, 1, 7, 112, 1023, 65_024, 130_049, 4 * 255**2):
        some = squares.four_squares(total)
        assert sum(value * value for value in some) == total
        assert max(some) <= 255


@pytest.mark.parametrize(("bits", "fmt"), [(8, "bf16"), (11, "fp16")])
@pytest.mark.parametrize("mean", [0, 3])
def test_vernier_pairs_stay_away_from_ties_for_every_xhat(bits: int, fmt: str, mean: int) -> None:
    pairs, finest = vernier.candidates(bits, mean)
    assert finest > 0
    gamma, beta = pairs[:, 0], pairs[:, 1]
    for xhat in (0.5, 1.0, 1.5, 2.0):
        for sign in (1, -1):
            value = gamma * xhat + sign * beta
            distance = vernier.tie_distance(value, bits)
            assert (distance >= vernier.TIE_MARGIN * (gamma * xhat + beta)).all()
    least = np.minimum.reduce([vernier.tie_distance(gamma + s * beta, bits) for s in (1, -1)])
    assert (least[:finest] < 1e-5 * gamma[:finest]).any()  # a factor of 1e-5 crosses it


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("fmt", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("features", [1, 2, 3, 7, 64, 1000])
def test_every_value_but_full_mantissas_is_in_its_format(
    kernel: str, fmt: str, features: int
) -> None:
    test = exact_test(kernel, 16, features, fmt=fmt, numerics={"statistics": "own"})
    raw = generate(test, 5)
    rows = scales.layout(test).kind != scales.ALL_BITS
    for name, value in quantise(test, raw).items():
        some = rows if test.is_matrix(name) else slice(None)
        assert np.array_equal(value[some], raw[name][some]), name
        if fmt == "fp16":
            size = np.abs(value[some][value[some] != 0])
            assert size.size == 0 or size.min() >= 2.0**-14 or name == "x"


def test_rows_of_every_kind_are_there_and_neighbors_differ() -> None:
    test = exact_test("layernorm_fw", 16, 64)
    layout = scales.layout(test)
    assert set(layout.kind) == {scales.EXACT, scales.EPSILON, scales.ALL_BITS}
    exact = layout.kind == scales.EXACT
    pairs = exact[1:] & exact[:-1]
    assert (np.diff(layout.mean)[pairs] != 0).all()
    assert (np.diff(np.log2(layout.scale))[pairs] != 0).all()


GOLDEN = {
    ("layernorm_fw", 0): "f8633bef05df1d2a",
    ("layernorm_bw", 1): "4dcc5f669e97cd48",
    ("rmsnorm_fw", 2): "522175c4efdf14a8",
}


@pytest.mark.parametrize(("kernel", "seed"), list(GOLDEN))
def test_a_seed_gives_the_same_bytes_forever(kernel: str, seed: int) -> None:
    raw = generate(exact_test(kernel, 9, 70, numerics={"statistics": "own"}), seed)
    hasher = hashlib.sha256()
    for name in sorted(raw):
        hasher.update(name.encode() + raw[name].astype("<f4").tobytes())
    assert hasher.hexdigest()[:16] == GOLDEN[kernel, seed]


def test_the_regime_is_canonical_and_all_tensors_have_it() -> None:
    test = exact_test("layernorm_fw", 4, 64)
    assert test.canonical()["inputs"] == {"regime": "exact"}
    assert TestSpec.parse(test.canonical()) == test
    assert {test.regime(name).name for name in test.drawn_names} == {"exact"}


@pytest.mark.parametrize(
    ("fields", "field", "limit"),
    [
        ({"inputs": {"regime": "exact", "gamma": 1}}, "test.inputs.gamma", "regime"),
        ({"inputs": {"gamma": {"regime": "exact"}}}, "test.inputs.gamma.regime", "only member"),
        ({"numerics": {"accumulate": "bf16"}}, "test.numerics.accumulate", "fp32"),
        ({"numerics": {"fidelity": "hifi3"}}, "test.numerics.fidelity", "hifi4"),
        ({"numerics": {"output": "bfp8_b"}}, "test.numerics.output", "fp16"),
        ({"numerics": {"input": {"x": "bfp8_b"}}}, "test.numerics.input.x", "fp16"),
        ({"shape": [1, 2**20 + 1]}, "test.shape", "1048576"),
        ({"epsilon": 2.0}, "test.epsilon", "<= 1"),
        ({"epsilon": 1e-4, "numerics": {"input": "fp16"}}, "test.epsilon", "<= 1.5"),
    ],
)
def test_a_test_that_cannot_be_exact_is_refused(
    fields: dict[str, Any], field: str, limit: str
) -> None:
    data = {"kernel": "layernorm_fw", "shape": [4, 64], "inputs": {"regime": "exact"}} | fields
    with pytest.raises(FieldError) as caught:
        TestSpec.parse(data)
    assert caught.value.field == field
    assert limit in str(caught.value.limit)
