"""The inputs of a test.

A seed's bytes never change. A regime gives the values that it declares. Each tensor is quantized to
its input format.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri

from gonogo.arithmetic.formats import round_to
from gonogo.errors import FieldError
from gonogo.judging import normals
from gonogo.judging.inputs import MAX_SEED, generate, quantise, row_statistics
from gonogo.spec.regimes import EXACT_KERNELS
from gonogo.spec.test_spec import TestSpec


def backward(*shape: int, **fields: Any) -> TestSpec:
    return TestSpec.parse({"kernel": "layernorm_bw", "shape": list(shape), **fields})


def forward(*shape: int, **fields: Any) -> TestSpec:
    return TestSpec.parse({"kernel": "layernorm_fw", "shape": list(shape), **fields})


def digest(arrays: dict[str, NDArray[Any]]) -> str:
    hasher = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name].astype(arrays[name].dtype.newbyteorder("<"))
        hasher.update(f"{name}{array.shape}{array.dtype.str}".encode() + array.tobytes())
    return hasher.hexdigest()[:16]


GOLDEN = [
    (backward(3, 33), 0, "e03a6493aade7778"),
    (backward(3, 33), 2**53 - 1, "84d74f8d515ab27b"),
    (backward(2, 3, 40, inputs={"regime": "normal", "mean": 1, "std": 3}), 1, "59c67af362613144"),
    (
     forward(5, 70,
     inputs={"regime": "offset", "offset": 10, "gamma": {"regime": "ramp"}, "beta": 0.25}), 12,
     "b267e801d5e3787c"),
    (forward(64, 64, inputs={"regime": "hot_tile", "tile": 1, "value": 100}), 3,
     "4735fbd3076e3605"),
]  # fmt: skip


@pytest.mark.parametrize(("test", "seed", "expected"), GOLDEN)
def test_the_bytes_of_a_seed_are_the_same_for_ever(
    test: TestSpec, seed: int, expected: str
) -> None:
    raw = generate(test, seed)
    assert digest(raw) == expected
    assert digest(generate(test, seed)) == expected


def test_the_first_values_of_a_stream_by_hand() -> None:
    """The recipe, written out.

    SHA-256 of version/seed/tensor is the key of Philox. The low half of a word comes first, and a
    value takes the top 24 bits of its half.
    """
    key = hashlib.sha256(b"gonogo-1/5/dy").digest()[:16]
    words = np.random.Philox(key=int.from_bytes(key, "little")).random_raw(2)
    halves = [int(word) >> shift & 0xFFFFFFFF for word in words for shift in (0, 32)]
    expected = [-1 + 2 * ((half >> 8) * 2.0**-24) for half in halves]
    assert generate(backward(1, 4), 5)["dy"][0].tolist() == expected


def test_names_shapes_and_types() -> None:
    raw = generate(backward(2, 3, 40), 0)
    assert {name: (array.shape, array.dtype.name) for name, array in raw.items()} == {
        "x": ((6, 40), "float32"),
        "gamma": ((40,), "float32"),
        "mean": ((6,), "float64"),
        "rstd": ((6,), "float64"),
        "dy": ((6, 40), "float32"),
    }
    assert all(array.flags.c_contiguous for array in raw.values())
    assert list(generate(backward(3, numerics={"statistics": "own"}), 0)) == ["x", "gamma", "dy"]
    assert list(generate(forward(3), 0)) == ["x", "gamma", "beta"]


def test_a_tensors_stream_depends_on_nothing_but_seed_and_name() -> None:
    """Another regime of dy, tolerance or format leaves x as it is. A shape cuts the stream."""
    x = generate(backward(4, 50), 9)["x"]
    for test in (
        backward(4, 50, inputs={"dy": 1}),
        forward(4, 50),
        backward(4, 50, numerics={"input": "fp32"}, epsilon=1),
    ):
        assert (generate(test, 9)["x"] == x).all()
    assert (generate(backward(100, 50), 9)["x"][:4] == x).all()
    assert (generate(backward(2, 100), 9)["x"].ravel() == x.ravel()).all()


@pytest.mark.parametrize("seed", [-1, MAX_SEED, 1.0, True, "1", None])
def test_a_seed_outside_its_range_is_refused(seed: Any) -> None:
    with pytest.raises(FieldError, match=r"seed: must be an integer .*9007199254740992"):
        generate(backward(2, 2), seed)


def test_uniform_stays_in_its_range_and_fills_it() -> None:
    x = generate(backward(64, 1000, inputs={"regime": "uniform", "low": -3, "high": 5}), 0)["x"]
    assert -3 <= x.min() < -2.99
    assert 4.99 < x.max() <= 5
    assert abs(float(x.mean()) - 1) < 0.05
    gamma = generate(backward(1, 20_000), 0)["gamma"]
    assert 0 <= gamma.min() < 0.001
    assert 0.999 < gamma.max() <= 1


def test_normal_and_offset_have_their_mean_and_deviation() -> None:
    for name, regime in (
        ("normal", {"regime": "normal", "mean": 2, "std": 3}),
        ("offset", {"regime": "offset", "offset": 2, "std": 3}),
    ):
        x = generate(backward(100, 1000, inputs=regime), 4)["x"].astype(np.float64)
        assert abs(x.mean() - 2) < 0.05, name
        assert abs(x.std() - 3) < 0.03, name
        z = (x - 2) / 3
        assert abs((z**3).mean()) < 0.05
        assert abs((z**4).mean() - 3) < 0.15


def test_constant_ramp_and_hot_tile() -> None:
    raw = generate(
        backward(
            3, 70, inputs={"x": 0.5, "dy": {"regime": "ramp", "low": 0, "high": 69}, "gamma": 1}
        ),
        0,
    )
    assert (raw["x"] == 0.5).all()
    assert (raw["gamma"] == 1).all()
    assert (raw["dy"] == np.arange(70, dtype=np.float32)).all()
    plain = generate(backward(3, 70), 0)["x"]
    hot = generate(backward(3, 70, inputs={"regime": "hot_tile", "tile": 2, "value": 50}), 0)["x"]
    assert (hot[:, 64:] == 50).all()
    assert (hot[:, :64] == plain[:, :64]).all()
    assert generate(backward(2, 1, inputs={"regime": "ramp", "low": -4, "high": 4}), 0)[
        "x"
    ].tolist() == [[-4], [-4]]


def test_given_statistics_are_those_of_the_raw_rows() -> None:
    test = backward(33, 1001, epsilon=1e-3, inputs={"regime": "offset", "offset": 100})
    raw = generate(test, 0)
    x = raw["x"].astype(np.float64)
    np.testing.assert_allclose(raw["mean"], x.mean(axis=1), rtol=1e-14)
    np.testing.assert_allclose(raw["rstd"], 1 / np.sqrt(x.var(axis=1) + 1e-3), rtol=1e-12)
    assert (
        np.abs(raw["mean"] - quantise(test, raw)["x"].astype(np.float64).mean(axis=1)).max() > 1e-6
    )


def test_a_kernel_that_subtracts_no_mean_is_given_rstd_of_the_mean_square() -> None:
    spec = {"kernel": "rmsnorm_bw", "shape": [33, 1001], "epsilon": 1e-3}
    test = TestSpec.parse({**spec, "inputs": {"regime": "offset", "offset": 100}})
    raw = generate(test, 0)
    assert tuple(raw) == ("x", "gamma", "rstd", "dy")
    square = (raw["x"].astype(np.float64) ** 2).mean(axis=1)
    np.testing.assert_allclose(raw["rstd"], 1 / np.sqrt(square + 1e-3), rtol=1e-14)
    computing = TestSpec.parse({**spec, "numerics": {"statistics": "own"}})
    assert tuple(generate(computing, 0)) == ("x", "gamma", "dy")


def test_row_statistics_do_not_depend_on_the_rows_beside() -> None:
    x = generate(backward(100, 77), 0)["x"]
    mean, rstd = row_statistics(x, 1e-6)
    for row in (0, 31, 32, 99):
        alone = row_statistics(x[row : row + 1], 1e-6)
        assert (alone[0][0], alone[1][0]) == (mean[row], rstd[row])


def test_the_device_is_given_bf16_to_nearest_even_by_default() -> None:
    test = backward(40, 33)
    raw = generate(test, 0)
    given = quantise(test, raw)
    assert list(given) == list(raw)
    for name, values in given.items():
        assert values.dtype == np.float32
        assert values.flags.c_contiguous
        assert values.shape == raw[name].shape
        assert (values == round_to(raw[name], "bf16", "even")).all()


def test_each_tensor_has_its_own_input_format() -> None:
    test = backward(
        5, 40, numerics={"input": {"x": "fp32", "dy": "bfp8_b", "mean": "bfp8_b", "rstd": "fp32"}}
    )
    raw = generate(test, 0)
    given = quantise(test, raw)
    assert (given["x"] == raw["x"]).all()
    assert (given["dy"] == round_to(raw["dy"], "bfp8_b")).all()
    assert (given["rstd"] == raw["rstd"].astype(np.float32)).all()
    # The means are a column on the device, so each mean has its own block and exponent.
    assert (np.abs(given["mean"] - raw["mean"]) <= np.abs(raw["mean"]) * 2.0**-7).all()


def test_a_row_of_bfp_is_blocked_within_itself() -> None:
    test = backward(4, 20, numerics={"input": "bfp8_b"})
    raw = generate(test, 0)
    given = quantise(test, raw)["dy"]
    assert all((given[row] == round_to(raw["dy"][row], "bfp8_b")).all() for row in range(4))


def test_the_normal_quantile_is_scipys() -> None:
    p = np.concatenate(
        [
            np.logspace(-9.9, -0.31, 4001),
            np.linspace(0.07, 0.93, 4001),
            1 - np.logspace(-9.9, -0.31, 4001),
        ]
    )
    p = p[p != 0.5]
    expected = ndtri(p)
    assert (np.abs(normals.quantile(p) - expected) <= 4e-15 * np.abs(expected) + 1e-15).all()


def test_the_logarithm_is_numpys_to_the_last_digits() -> None:
    v = np.concatenate([np.logspace(-300, 300, 5001), np.linspace(0.5, 2, 5001)])
    assert (np.abs(normals.log(v) - np.log(v)) <= 4e-16 * np.maximum(np.abs(np.log(v)), 0.4)).all()


@pytest.mark.parametrize("kernel", EXACT_KERNELS)
@pytest.mark.parametrize("form", ["fp32", "bf16"])
def test_exact_inputs_are_drawn_together_and_given_as_they_are(kernel: str, form: str) -> None:
    fields = {"shape": [8, 64], "numerics": {"input": form, "output": form}}
    fields |= {"shape": [2, 8, 16], "parameters": {"num_groups": 4}} if "group" in kernel else {}
    test = TestSpec.parse({"kernel": kernel, "inputs": {"regime": "exact"}, **fields})
    raw = generate(test, 5)
    given = quantise(test, raw)
    assert list(given) == list(test.input_names)
    assert digest(raw) == digest(generate(test, 5)) != digest(generate(test, 6))
    for name in test.input_names:
        assert raw[name].shape == test.flat_shape_of(name)
        assert (given[name] == raw[name]).all()
