"""The forensics of layernorm_fw.

They tell a wrong mean, variance, epsilon, gamma or beta from y, and from the outputs mean and rstd.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging.inputs import generate, quantise
from gonogo.kernels.layernorm import emulation
from gonogo.kernels.layernorm.forensics import RIGHT, Diagnosis, diagnose
from gonogo.kernels.layernorm.forensics.forward_sums import Forward
from gonogo.kernels.layernorm.forensics.precision import Precision
from gonogo.kernels.layernorm.reference import forward
from gonogo.kernels.rows.model import fitted
from gonogo.spec.diagnoses import PARTLY
from gonogo.spec.test_spec import TestSpec

Arrays = dict[str, NDArray[np.float32]]
CALM = {
    "gamma": {"regime": "uniform", "low": 0.5, "high": 1.5},
    "beta": {"regime": "uniform", "low": -0.1, "high": 0.1},
}


def case_of(rows: int, features: int, **fields: Any) -> tuple[TestSpec, Arrays]:
    """Return a test of that shape, and the device's inputs for it."""
    test = TestSpec.parse({"kernel": "layernorm_fw", "shape": [rows, features], **fields})
    return test, quantise(test, generate(test, 0))


def emulated(
    build: str,
    rows: int,
    features: int,
    outputs: tuple[str, ...] = ("y", "mean", "rstd"),
    **fields: Any,
) -> Diagnosis:
    """Return the diagnosis of some outputs of an emulated build."""
    test, given = case_of(rows, features, **fields)
    results = emulation.run(test, given, build)
    return diagnose(test, given, {name: results[name] for name in outputs})


def bf16(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        ("correct", RIGHT),
        ("mean-last-tile-missing", "mean misses the last tile (32nd of 32)"),
        ("tile-missing", "mean misses the 17th tile of 32"),
        ("mean-not-subtracted", "mean is missing in all 32 tiles"),
        ("gamma-shifted-tile", "gamma is that of the tile before in all 32 tiles"),
        (
            "mask-missing",
            "mean counts the padding of the last tile (24 columns of the 32nd tile); "
            "variance counts the padding of the last tile (24 columns of the 32nd tile)",
        ),
        ("power-of-two-outliers", "4 isolated values of y are off by a power of two"),
        ("rstd-off-1e-3", "rstd is 1.0014 times what it should be"),
    ],
)
def test_every_named_defect_is_told_in_words(build: str, words: str) -> None:
    assert emulated(build, 160, 1000, inputs=CALM).words == words


@pytest.mark.parametrize("outputs", [("y",), ("mean",)])
def test_y_and_the_output_mean_tell_the_same(outputs: tuple[str, ...]) -> None:
    diagnosis = emulated("mean-last-tile-missing", 160, 1024, outputs)
    assert diagnosis.words == "mean misses the last tile (32nd of 32)"
    assert diagnosis.can_tell


def test_fewer_rows_than_tiles_tell_a_missing_tile() -> None:
    assert (
        emulated("mean-last-tile-missing", 64, 4096, inputs=CALM).words
        == "mean misses the last tile (128th of 128)"
    )
    assert emulated("correct", 64, 4096, inputs=CALM).words == RIGHT


@pytest.mark.parametrize("outputs", [("y",), ("rstd",)])
def test_an_unbiased_variance_is_named_where_it_shows(outputs: tuple[str, ...]) -> None:
    for features in (20, 32, 64):
        assert (
            emulated("unbiased-variance", 64, features, outputs).words
            == "variance is unbiased (divides by N-1)"
        )
        assert emulated("correct", 64, features, outputs).words == RIGHT


@pytest.mark.parametrize("outputs", [("y",), ("rstd",)])
def test_a_wrong_epsilon_is_measured(outputs: tuple[str, ...]) -> None:
    small = {"x": {"regime": "normal", "mean": 0.0, "std": 0.01}}
    diagnosis = emulated("wrong-epsilon", 160, 1000, outputs, inputs=small)
    assert diagnosis.words == "epsilon is 0.001 instead of 1e-06"
    assert diagnosis.can_tell


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda gamma, beta: (gamma, 0 * beta), "beta is missing (0 in its place) in all 32 tiles"),
        (
            lambda gamma, beta: (gamma, np.roll(beta, 32)),
            "beta is that of the tile before in all 32 tiles",
        ),
        (
            lambda gamma, beta: (gamma, np.roll(beta, -32)),
            "beta is that of the tile after in all 32 tiles",
        ),
        (
            lambda gamma, beta: (1 + 0 * gamma, beta),
            "gamma is missing (1 in its place) in all 32 tiles",
        ),
        (lambda gamma, beta: (gamma, beta), RIGHT),
    ],
)
def test_gamma_and_beta_are_told_apart(wrong: Any, words: str) -> None:
    test, given = case_of(160, 1024)
    x, gamma, beta = (given[name].astype(np.float64) for name in ("x", "gamma", "beta"))
    used_gamma, used_beta = wrong(gamma, beta)
    diagnosis = diagnose(
        test, given, {"y": bf16(forward(x, used_gamma, used_beta, test.epsilon)["y"])}
    )
    assert diagnosis.words == words


def test_the_variance_without_a_tile_is_told_in_fp32() -> None:
    test, given = case_of(
        160, 1024, numerics={"input": "fp32", "output": "fp32", "buffers": "fp32"}
    )
    x, gamma, beta = (given[name].astype(np.float64) for name in ("x", "gamma", "beta"))
    mean = x.mean(axis=1, keepdims=True)
    square = (x - mean) ** 2
    square[:, 192:224] = 0
    rstd = 1 / np.sqrt(square.mean(axis=1, keepdims=True) + test.epsilon)
    y = (gamma * (x - mean) * rstd + beta).astype(np.float32)
    assert diagnose(test, given, {"y": y}).words == "variance misses the 7th tile of 32"


def test_constant_x_tells_the_mean_in_total_only() -> None:
    inputs = {"x": {"regime": "constant", "value": 0.5}}
    diagnosis = emulated("mean-not-subtracted", 64, 2048, inputs=inputs)
    assert diagnosis.words == "mean is missing in total; cannot tell which tiles: x is constant"
    assert not diagnosis.can_tell
    diagnosis = emulated("correct", 64, 2048, inputs=inputs)
    assert diagnosis.words.startswith(f"{PARTLY}; cannot tell which tiles: x is constant")
    assert not diagnosis.can_tell


def test_a_mean_that_should_be_zero_and_is_not_is_said() -> None:
    diagnosis = emulated(
        "mean-last-tile-missing",
        64,
        2048,
        ("mean",),
        inputs={"x": {"regime": "ramp", "low": -1, "high": 1}},
    )
    assert diagnosis.words == (
        "mean is -0.0154 where it should be 0; cannot tell which tiles: x is the same in every row"
    )


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        CALM,
        {"regime": "normal", "mean": 0.3, "std": 0.01},
        {"regime": "normal", "mean": 5, "std": 1},
    ],
)
def test_right_kernels_of_other_regimes_have_no_wrong_term(inputs: dict[str, Any]) -> None:
    for rows, features in ((160, 1024), (33, 100), (8, 64), (1, 1), (3, 2)):
        diagnosis = emulated("correct", rows, features, inputs=inputs)
        assert not any(term.wrong for term in diagnosis.terms), diagnosis.words


@pytest.mark.parametrize("groups", [1, 4])
def test_the_fit_of_a_seed_leaves_its_noise_beside_a_large_beta(groups: int) -> None:
    """Inner products of y and beta would cancel out: their rounding is 1e8 times that noise."""
    rng = np.random.default_rng(5)
    rows, channels, width, noise = 12, 8, 20 if groups > 1 else 1, 1e-9
    x = rng.normal(3.0, 1.0, (rows, channels * width // groups))
    gamma, beta = rng.uniform(0.5, 1.5, channels), 1000.0 * rng.normal(size=channels)
    test = TestSpec.parse({"kernel": "layernorm_fw", "shape": list(x.shape)})
    seed = Forward(x, gamma, beta, 1e-5, None, Precision.of(test), groups, width)
    channel = np.arange(x.shape[1]) // width
    of_row = (np.arange(rows) % groups * (channels // groups))[:, None] + channel
    xhat = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    seed.y = gamma[of_row] * xhat + beta[of_row] + noise * rng.normal(size=x.shape)
    fit = fitted(seed, gamma, beta)
    freedom = x.size - 2 * rows
    assert fit.energy == pytest.approx(freedom * noise**2, rel=0.4)
    assert np.allclose(fit.fit.slope, 1.0, atol=1e-8)
