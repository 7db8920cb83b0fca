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

from gonogo.arithmetic.formats import Doubles, round_to, step, unit_roundoff
from gonogo.gauge.gates import Gate
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
    applied = [gate for gate in gates if name in gate.outputs and not gate.tolerance]
    if not applied or not np.isfinite(output).all():
        return dict.fromkeys((gate.name for gate in applied), None)
    expected = round_to(reference, test.numerics.output)
    error = np.abs(output - expected)
    by_limit: dict[str, float] = {}  # several suites share a limit
    by_gate: Ratios = {}
    for gate in applied:
        key = gate.formula or str(gate.limits_in(test.numerics.output))
        if key not in by_limit:
            is_norm = gate.formula == "benchdnn" and name != "y"
            size = np.linalg.norm(error) if is_norm else error
            with np.errstate(divide="ignore", invalid="ignore"):  # an error of 0 is within 0
                ratio = np.where(size == 0, 0.0, size / _limit(gate, test, name, given, expected))
            by_limit[key] = float(ratio.max(initial=0.0))
        by_gate[gate.name] = by_limit[key] if math.isfinite(by_limit[key]) else None
    return by_gate


def _limit(
    gate: Gate, test: TestSpec, name: str, given: Arrays, expected: Doubles
) -> Doubles | float:
    """Return the largest |e| that passes, of each element or of all."""
    form, size = test.numerics.output, np.abs(expected)
    match gate.formula:
        case "composable-kernel":
            return composable_kernel(test, name) * (size + float(size.max(initial=0.0)))
        case "hipdnn":
            gamma, beta = (float(np.abs(given.get(t, 0.0)).max()) for t in ("gamma", "beta"))
            return hipdnn(form, test.features, gamma, beta)
        case "benchdnn":
            return benchdnn(test, name, given, expected)
    limits = gate.limits_in(form)
    if "ulp" in limits:
        return limits["ulp"] * step(expected, form)
    if "guard" in limits:
        return np.maximum(limits["atol"], limits["rtol"] * (size + limits["guard"]))
    return limits["atol"] + limits["rtol"] * size


def composable_kernel(test: TestSpec, name: str) -> float:
    """Return t of rtol t and atol t max|expected|, as `check_err.hpp` defines it for fp32 sums.

    It is half a step of the output's format at 1, or that of fp32 times the number of additions,
    whichever is larger.
    """
    additions = test.rows if name in ("dgamma", "dbeta") else test.features
    return max(2.0**-24 * additions, unit_roundoff(test.numerics.output))


def hipdnn(output_format: str, features: int, gamma: float, beta: float) -> float:
    """Return one atol for fp32 computation; gamma and beta are the largest sizes.

    atol = (growth(2N)/2 + growth(N) + 5u) max|gamma| + u max|beta| + u_out (max|gamma| +
    max|beta|), as `DynamicTolerancesLayerNorm.hpp` defines it. u = 2^-23, u_out is the output
    format's step at 1 (0 for fp32). growth(k) = 2ku/(1 - 2ku) below 2ku = .01, else 6 sqrt(2k) u.
    """
    u = 2.0**-23
    last = 0.0 if output_format == "fp32" else 2 * unit_roundoff(output_format)

    def growth(additions: int) -> float:
        product = 2.0 * additions * u
        return product / (1.0 - product) if product < 0.01 else 6.0 * math.sqrt(2.0 * additions) * u

    sums = growth(2 * features) / 2 + growth(features) + 5 * u
    return sums * gamma + u * beta + last * (gamma + beta)


def benchdnn(test: TestSpec, name: str, given: Arrays, expected: Doubles) -> Doubles | float:
    """Return the limit of each element of y, or of the 2-norm of a gradient, as in lnorm.cpp.

    The relative threshold of fp32 doubles for each bit that the output's format has less. Sizes of
    y up to 1e-5 count as 1, and differences below 2^-23 don't count there. Where y = a x + beta
    nearly cancels, the product's own error counts.
    """
    fp32 = 5e-6 if name in ("dgamma", "dbeta") else 5e-7
    threshold = fp32 * unit_roundoff(test.numerics.output) / 2.0**-24
    if name != "y":
        return float(threshold * np.linalg.norm(expected))
    size = np.abs(expected)
    limit = np.where(size > 1e-5, threshold * size, max(threshold, 2.0**-23))
    beta = given.get("beta")
    if beta is None or beta.shape != (expected.shape[1],):
        return limit
    product = np.abs(expected - beta.astype(np.float64))
    return np.where(product > size, np.maximum(limit, threshold * product), limit)
