"""How far outputs are from the limits of public gates.

The expected value is the float64 function of the inputs as the kernel received them, rounded once
to the output's format: what a perfect kernel would give. It favors the gates, because the kernels
that these suites compare with have errors of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.gauge.gates import Gate
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.formats import FORMATS, Doubles, round_to, ulp
from gonogo.spec.test_spec import TestSpec

Ratios = dict[str, float | None]
"""Gate -> the largest ratio of error and limit; up to 1 passes. None: infinite."""
Arrays = Mapping[str, NDArray[Any]]


def ratios(
    test: TestSpec,
    name: str,
    given: Arrays,
    reference: Doubles,
    output: NDArray[np.float32],
    gates: Iterable[Gate],
) -> Ratios:
    """Return how far one output is from the limits of these gates; declared tolerances are skipped.

    reference: the float64 function of `given`, unrounded; both have the shape (rows, N), or (1, n)
    for an output of another shape. An output with NaN or Inf is beyond every limit.
    """
    output_format = test.numerics.output
    applied = [gate for gate in gates if name in gate.outputs and not gate.tolerance]
    if not applied or not np.isfinite(output).all():
        return dict.fromkeys((gate.name for gate in applied), None)
    keys = {gate.name: gate.formula or str(gate.limits_in(output_format)) for gate in applied}
    gate_by_key = {keys[gate.name]: gate for gate in applied}  # several suites share a limit
    largest = float(np.abs(reference).max(initial=0.0))

    def block(start: int, stop: int) -> list[float]:
        expected = round_to(reference[start:stop], output_format).astype(np.float64)
        error = np.abs(output[start:stop] - expected)
        return [
            _ratio(error, _limit(gate, test, name, given, expected, largest))
            for gate in gate_by_key.values()
        ]

    blocks = zip(*over_rows(block, output.shape[0]), strict=True)
    by_limit = dict(zip(gate_by_key, map(max, blocks), strict=True))
    if "benchdnn" in by_limit and name != "y":
        expected = round_to(reference, output_format).astype(np.float64)
        error = np.linalg.norm(output - expected)
        by_limit["benchdnn"] = _ratio(error, benchdnn(test, name) * np.linalg.norm(expected))
    return {
        gate: by_limit[key] if math.isfinite(by_limit[key]) else None for gate, key in keys.items()
    }


def _ratio(error: Any, limit: Any) -> float:
    """Return the largest ratio; an error of 0 is within every limit, also within 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(error == 0, 0.0, error / limit).max(initial=0.0))


def _limit(
    gate: Gate, test: TestSpec, name: str, given: Arrays, expected: Doubles, largest: float
) -> Doubles | float:
    """Return the largest |e| that passes, of each element or of all; largest: max|expected|."""
    size = np.abs(expected)
    if gate.formula == "composable-kernel":
        return composable_kernel(test, name) * (size + largest)
    if gate.formula == "hipdnn":
        gamma, beta = (float(np.abs(given.get(t, 0.0)).max()) for t in ("gamma", "beta"))
        return hipdnn(test.numerics.output, test.features, gamma, beta)
    if gate.formula == "benchdnn":
        return _benchdnn_forward(benchdnn(test, name), given, expected) if name == "y" else math.inf
    limits = gate.limits_in(test.numerics.output)
    if "ulp" in limits:
        return limits["ulp"] * ulp(expected, test.numerics.output)
    if "guard" in limits:
        return np.maximum(limits["atol"], limits["rtol"] * (size + limits["guard"]))
    return limits["atol"] + limits["rtol"] * size


def composable_kernel(test: TestSpec, name: str) -> float:
    """Return t of rtol t and atol t max|expected|, as `check_err.hpp` defines it for fp32 sums.

    It is half a step of the output's format at 1, or that of fp32 times the number of additions,
    whichever is larger.
    """
    additions = test.rows if name in ("dgamma", "dbeta") else test.features
    bits = FORMATS[test.numerics.output].fraction_bits
    return max(2.0**-24 * additions, 2.0 ** -(bits + 1))


def hipdnn(output_format: str, features: int, gamma: float, beta: float) -> float:
    """Return one atol for fp32 computation; gamma and beta are the largest sizes.

    atol = (growth(2N)/2 + growth(N) + 5u) max|gamma| + u max|beta| + u_out (max|gamma| +
    max|beta|), as `DynamicTolerancesLayerNorm.hpp` defines it. u = 2^-23, u_out is the output
    format's step at 1 (0 for fp32). growth(k) = 2ku/(1 - 2ku) below 2ku = .01, else 6 sqrt(2k) u.
    """
    step = 2.0**-23
    last = 0.0 if output_format == "fp32" else 2.0 ** -FORMATS[output_format].fraction_bits

    def growth(additions: int) -> float:
        product = 2.0 * additions * step
        if product < 0.01:
            return product / (1.0 - product)
        return 6.0 * math.sqrt(2.0 * additions) * step

    sums = growth(2 * features) / 2 + growth(features) + 5 * step
    return sums * gamma + step * beta + last * (gamma + beta)


def benchdnn(test: TestSpec, name: str) -> float:
    """Return the relative threshold of `setup_cmp` in oneDNN's lnorm.cpp.

    That of fp32 doubles for each bit that the output's format has less. It is of each element of y,
    and of the 2-norm of a gradient.
    """
    fewer_bits = 23 - FORMATS[test.numerics.output].fraction_bits
    return (5e-6 if name in ("dgamma", "dbeta") else 5e-7) * 2.0**fewer_bits


def _benchdnn_forward(threshold: float, given: Arrays, expected: Doubles) -> Doubles:
    """Return the limit of each element of y.

    Sizes up to 1e-5 count as 1, and differences below 2^-23 don't count there. Where y = a x + beta
    nearly cancels, the product's own error counts.
    """
    size = np.abs(expected)
    limit = np.where(size > 1e-5, threshold * size, max(threshold, 2.0**-23))
    beta = given.get("beta")
    if beta is None or beta.shape != (expected.shape[1],):
        return limit
    product = np.abs(expected - beta.astype(np.float64))
    return np.where(product > size, np.maximum(limit, threshold * product), limit)
