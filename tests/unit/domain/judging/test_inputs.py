"""The inputs of a test: a seed's bytes never change, a regime gives the values that it declares,
and each tensor is quantized to its input format."""

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

Arrays = dict[str, NDArray[Any]]


def backward(*shape: int, **fields: Any) -> TestSpec:
    return TestSpec.parse({"kernel": "layernorm_bw", "shape": list(shape), **fields})


def forward(*shape: int, **fields: Any) -> TestSpec:
    return TestSpec.parse({"kernel": "layernorm_fw", "shape": list(shape), **fields})


def drawn(inputs: dict[str, Any], *shape: int, seed: int = 0) -> Arrays:
    return generate(backward(*shape, inputs=inputs), seed)


def digest(arrays: Arrays) -> str:
    hasher = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name].astype(arrays[name].dtype.newbyteorder("<"))
        hasher.update(f"{name}{array.shape}{array.dtype.str}".encode() + array.tobytes())
    return hasher.hexdigest()[:16]


NORMAL = {"regime": "normal", "mean": 1, "std": 3}
OFFSET = {"regime": "offset", "offset": 10, "gamma": {"regime": "ramp"}, "beta": 0.25}
HOT = {"regime": "hot_tile", "tile": 1, "value": 100}
EMBEDDING = TestSpec.parse({"kernel": "embedding", "shape": [5, 7]})
EXACT = {"inputs": {"regime": "exact"}, "numerics": {"statistics": "own"}}
GROUPS = {"kernel": "groupnorm_fw", "shape": [2, 8, 16], "parameters": {"num_groups": 4}}
RMSNORM = TestSpec.parse({"kernel": "rmsnorm_fw", "shape": [9, 70], **EXACT})


@pytest.mark.parametrize(
    ("test", "seed", "expected"),
    [
        (backward(3, 33), 0, "e03a6493aade7778"),
        (backward(3, 33), 2**53 - 1, "84d74f8d515ab27b"),
        (backward(2, 3, 40, inputs=NORMAL), 1, "59c67af362613144"),
        (forward(5, 70, inputs=OFFSET), 12, "b267e801d5e3787c"),
        (forward(64, 64, inputs=HOT), 3, "4735fbd3076e3605"),
        (EMBEDDING, 4, "8aab773b90bf9b38"),
        (TestSpec.parse(GROUPS | {"inputs": {"regime": "exact"}}), 5, "a4b5dada42705e2f"),
        (forward(9, 70, **EXACT), 0, "aa94d82d032ce619"),
        (backward(9, 70, **EXACT), 1, "b4cda4f3234e5716"),
        (RMSNORM, 2, "53293e14aadf5d53"),
    ],
)
def test_the_bytes_of_a_seed_are_the_same_for_ever(
    test: TestSpec, seed: int, expected: str
) -> None:
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


@pytest.mark.parametrize(
    "test",
    [
        backward(4, 50, inputs={"dy": 1}),
        backward(4, 50, numerics={"input": "fp32"}, epsilon=1),
        forward(4, 50),
        backward(100, 50),
        backward(2, 100),
    ],
)
def test_a_tensors_stream_depends_on_nothing_but_seed_and_name(test: TestSpec) -> None:
    """Another regime of dy, tolerance or format leaves x as it is. A shape cuts the stream."""
    x = generate(backward(4, 50), 9)["x"].ravel()
    assert (generate(test, 9)["x"].ravel()[:200] == x).all()


@pytest.mark.parametrize("seed", [-1, MAX_SEED, 1.0, True, "1", None])
def test_a_seed_outside_its_range_is_refused(seed: Any) -> None:
    with pytest.raises(FieldError, match=r"seed: must be an integer .*9007199254740992"):
        generate(backward(2, 2), seed)


def test_constant_ramp_and_hot_tile() -> None:
    raw = drawn({"x": 0.5, "dy": {"regime": "ramp", "low": 0, "high": 69}, "gamma": 1}, 3, 70)
    assert (raw["x"] == 0.5).all()
    assert (raw["gamma"] == 1).all()
    assert (raw["dy"] == np.arange(70, dtype=np.float32)).all()
    single = drawn({"regime": "ramp", "low": -4, "high": 4}, 2, 1)["x"]
    assert single.tolist() == [[-4], [-4]]
    hot = drawn({"regime": "hot_tile", "tile": 1, "value": 50}, 3, 70)["x"]
    is_hot = np.arange(70) // 32 == 1
    assert (hot[:, is_hot] == 50).all()
    assert (hot[:, ~is_hot] == drawn({}, 3, 70)["x"][:, ~is_hot]).all()


@pytest.mark.parametrize(
    ("kernel", "names"),
    [
        ("layernorm_bw", ["x", "gamma", "mean", "rstd", "dy"]),
        ("rmsnorm_bw", ["x", "gamma", "rstd", "dy"]),
    ],
)
def test_given_statistics_are_those_of_the_raw_rows(kernel: str, names: list[str]) -> None:
    """A kernel that subtracts no mean is given 1 / the root of the mean square."""
    fields = {"kernel": kernel, "shape": [33, 1001], "epsilon": 1e-3}
    test = TestSpec.parse({**fields, "inputs": {"regime": "offset", "offset": 100}})
    raw = generate(test, 0)
    assert list(raw) == names
    x = raw["x"].astype(np.float64)
    mean = x.mean(axis=1) if "mean" in names else np.zeros(33)
    rstd = 1 / np.sqrt(np.square(x - mean[:, None]).mean(axis=1) + 1e-3)
    np.testing.assert_allclose(raw["rstd"], rstd, rtol=1e-12)
    np.testing.assert_allclose(raw.get("mean", mean), mean, rtol=1e-14)
    computing = TestSpec.parse({**fields, "numerics": {"statistics": "own"}})
    assert list(generate(computing, 0)) == ["x", "gamma", "dy"]


def test_row_statistics_do_not_depend_on_the_rows_beside() -> None:
    x = generate(backward(100, 77), 0)["x"]
    mean, rstd = row_statistics(x, 1e-6)
    for row in (0, 31, 32, 99):
        alone = row_statistics(x[row : row + 1], 1e-6)
        assert (alone[0][0], alone[1][0]) == (mean[row], rstd[row])


def test_each_tensor_is_rounded_to_its_own_format_which_is_bf16_by_default() -> None:
    forms = {"gamma": "bfp8_b", "dy": "bfp8_b", "mean": "bfp8_b", "rstd": "fp32"}
    test = backward(40, 33, numerics={"input": forms})
    raw = generate(test, 0)
    given = quantise(test, raw)
    assert list(given) == list(raw)
    for name, form in {**forms, "x": "bf16"}.items():
        assert (given[name].dtype, given[name].shape) == (np.float32, raw[name].shape)
        assert given[name].flags.c_contiguous
        if name != "mean":
            assert (given[name] == round_to(raw[name], form, "even").astype("f4")).all(), name
    # The means are a column on the device, so each mean has its own block and exponent.
    assert (np.abs(given["mean"] - raw["mean"]) <= np.abs(raw["mean"]) * 2.0**-7).all()
    rows = [round_to(row, "bfp8_b") for row in raw["dy"]]
    assert (given["dy"] == rows).all(), "a row is blocked within itself"


def test_the_normal_quantile_is_scipys() -> None:
    tail = np.logspace(-9.9, -0.31, 4001)
    far = np.logspace(-300, -11, 100)
    p = np.concatenate([far, tail, np.linspace(0.07, 0.93, 4001), 1 - tail])
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
