"""The float64 references against independent formulas.

These are sums of Fractions, and finite differences of the forward.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.kernels.layernorm import reference
from numeric_cases import Case, spec

Array = NDArray[np.float64]
EPSILON = 1e-6


def drawn(rows: int, n: int, seed: int = 1) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        "x": random.normal(0.3, 1.5, (rows, n)),
        "dy": random.normal(0, 1, (rows, n)),
        "gamma": random.uniform(0.5, 2, n),
        "beta": random.normal(0, 1, n),
    }


def exact_moments(row: Array, epsilon: float) -> tuple[float, float]:
    """Return the mean and rstd of a row; only the last step rounds."""
    values = [Fraction(float(v)) for v in row]
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / len(values)
    return float(mean), 1 / math.sqrt(variance + Fraction(epsilon))


def test_moments_are_those_of_exact_arithmetic_with_the_biased_variance() -> None:
    x = drawn(5, 37)["x"]
    mean, rstd = reference.moments(x, EPSILON)
    exact = np.array([exact_moments(row, EPSILON) for row in x])
    np.testing.assert_allclose(np.stack([mean, rstd], axis=1), exact, rtol=1e-14)


def test_float32_inputs_are_widened_before_anything_is_summed() -> None:
    x = (
        np.float32(1e4) + np.random.default_rng(2).normal(0, 1, (3, 200)).astype(np.float32)
    ).astype(np.float32)
    mean, rstd = reference.moments(x, EPSILON)
    assert mean.dtype == rstd.dtype == np.float64
    exact = np.array([exact_moments(row.astype(np.float64), EPSILON) for row in x])
    np.testing.assert_allclose(np.stack([mean, rstd], axis=1), exact, rtol=1e-11)


def test_the_forward_is_the_textbook_one() -> None:
    a = drawn(4, 19)
    outputs = reference.forward(a["x"], a["gamma"], a["beta"], EPSILON)
    for i, row in enumerate(a["x"]):
        mean, rstd = exact_moments(row, EPSILON)
        expected_y = [
            g * (v - mean) * rstd + b for v, g, b in zip(row, a["gamma"], a["beta"], strict=True)
        ]
        np.testing.assert_allclose(outputs["y"][i], expected_y, rtol=1e-12, atol=1e-14)
        assert (outputs["mean"][i], outputs["rstd"][i]) == pytest.approx((mean, rstd), rel=1e-14)


@pytest.mark.parametrize("epsilon", [1e-6, 0.25])
def test_the_backward_is_the_derivative_of_the_forward(epsilon: float) -> None:
    a = drawn(3, 11, seed=5)
    mean, rstd = reference.moments(a["x"], epsilon)
    gradients = reference.backward(a["x"], a["gamma"], mean, rstd, a["dy"])

    def loss(**changed: Array) -> float:
        used = a | changed
        return math.fsum(
            (
                reference.forward(used["x"], used["gamma"], used["beta"], epsilon)["y"] * a["dy"]
            ).ravel()
        )

    step = 2.0**-16
    for output, tensor in (("dx", "x"), ("dgamma", "gamma"), ("dbeta", "beta")):
        slopes = np.empty_like(a[tensor])
        for index in np.ndindex(*slopes.shape):
            up, down = a[tensor].copy(), a[tensor].copy()
            up[index] += step
            down[index] -= step
            slopes[index] = (loss(**{tensor: up}) - loss(**{tensor: down})) / (2 * step)
        np.testing.assert_allclose(gradients[output], slopes, atol=2e-8, err_msg=output)


def test_the_backward_takes_the_statistics_that_it_is_given() -> None:
    a = drawn(3, 6)
    mean, rstd = np.array([0.5, -1.0, 0.0]), np.array([1.0, 2.0, 0.25])  # not the statistics of x
    gradients = reference.backward(a["x"], a["gamma"], mean, rstd, a["dy"])
    for i in range(3):
        xhat = [(v - mean[i]) * rstd[i] for v in a["x"][i]]
        p = [d * g for d, g in zip(a["dy"][i], a["gamma"], strict=True)]
        s1 = math.fsum(p) / 6
        s2 = math.fsum(u * v for u, v in zip(p, xhat, strict=True)) / 6
        dx = [rstd[i] * (u - s1 - v * s2) for u, v in zip(p, xhat, strict=True)]
        np.testing.assert_allclose(gradients["dx"][i], dx, rtol=1e-13, atol=1e-15)
    for j in range(6):
        xhat = [(a["x"][i, j] - mean[i]) * rstd[i] for i in range(3)]
        assert gradients["dgamma"][j] == pytest.approx(
            math.fsum(a["dy"][i, j] * xhat[i] for i in range(3)), rel=1e-13
        )
        assert gradients["dbeta"][j] == pytest.approx(math.fsum(a["dy"][:, j]), rel=1e-13)


def test_reference_makes_the_statistics_itself_only_where_none_are_given() -> None:
    own_case = Case.of(spec(shape=(4, 9), numerics={"statistics": "own"}))
    given_case = Case.of(spec(shape=(4, 9)))
    assert "mean" not in own_case.given
    mean, rstd = reference.moments(own_case.given["x"], EPSILON)
    with_them = reference.reference(own_case.test, {**own_case.given, "mean": mean, "rstd": rstd})
    without = reference.reference(own_case.test, own_case.given)
    for name in ("dx", "dgamma", "dbeta"):
        np.testing.assert_array_equal(without[name], with_them[name])
    # Given statistics are bf16 on the device, which makes another function.
    assert (
        np.abs(reference.reference(given_case.test, given_case.given)["dx"] - without["dx"]).max()
        > 1e-4
    )


def test_reference_uses_the_epsilon_of_the_test() -> None:
    small, large = (
        Case.of(spec("layernorm_fw", (2, 8), epsilon=epsilon)) for epsilon in (1e-6, 3.0)
    )
    assert reference.reference(large.test, large.given)["rstd"].max() < 1 / math.sqrt(3)
    assert reference.reference(small.test, small.given)["rstd"].min() > 1


def test_a_kernel_without_reference_is_refused() -> None:
    test = spec(shape=(2, 4))
    object.__setattr__(test, "kernel", "softmax")
    with pytest.raises(ValueError, match="no reference for kernel 'softmax'"):
        reference.reference(test, {})
