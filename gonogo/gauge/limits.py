"""How far outputs are from the limits of public gates.

The expected value is the float64 function of the inputs as the kernel received them, rounded once
to the output's format: what a perfect kernel would give. It favors the gates, because the kernels
that these suites compare with have errors of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.gauge.gates import Gate
from gonogo.gauge.rules import (
    Accumulated,
    Close,
    Declared,
    Either,
    ScaledThreshold,
    Ulps,
    WelfordBound,
)
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.formats import Doubles, round_to, ulp
from gonogo.spec.test_spec import TestSpec

Ratios = dict[str, float | None]
"""Gate -> the largest ratio of error and limit; up to 1 passes. None: infinite."""

TINY = 1e-5
"""benchdnn compares sizes up to this absolutely."""
TINY_DIFFERENCE = 2.0**-23
"""benchdnn ignores a smaller difference of tiny values."""
COLUMN_SUMS = ("dgamma", "dbeta")


@dataclass(frozen=True)
class Facts:
    """The quantities of one output that limits depend on, besides the element itself.

    largest: the largest |expected|. gamma, beta: the largest sizes. shift: beta by column, for a
    forward output with one.
    """

    name: str
    output_format: str
    features: int
    additions: int
    largest: float
    gamma: float
    beta: float
    shift: NDArray[Any] | None


def ratios(
    test: TestSpec,
    name: str,
    given: Mapping[str, NDArray[Any]],
    reference: Doubles,
    output: NDArray[np.float32],
    gates: Iterable[Gate],
) -> Ratios:
    """Return how far one output is from the limits of these gates; declared tolerances are skipped.

    reference: the float64 function of `given`, unrounded; both have the shape (rows, N), or (1, n)
    for an output of another shape. An output with NaN or Inf is beyond every limit.
    """
    applied = [
        gate for gate in gates if name in gate.outputs and not isinstance(gate.rule, Declared)
    ]
    if not applied:
        return {}
    if not np.isfinite(output).all():
        return dict.fromkeys((gate.name for gate in applied), None)
    facts = _facts(test, name, given, reference)

    def block(start: int, stop: int) -> dict[str, tuple[float, float]]:
        return _block(applied, facts, reference[start:stop], output[start:stop])

    blocks = over_rows(block, output.shape[0])
    return {
        gate.name: _combined(gate, facts, [part[gate.name] for part in blocks]) for gate in applied
    }


def _facts(
    test: TestSpec, name: str, given: Mapping[str, NDArray[Any]], reference: Doubles
) -> Facts:
    sizes = {
        tensor: float(np.abs(given[tensor]).max()) if tensor in given else 0.0
        for tensor in ("gamma", "beta")
    }
    beta = given.get("beta")
    columns = beta is not None and name == "y" and beta.shape == (reference.shape[1],)
    return Facts(
        name=name,
        output_format=test.numerics.output,
        features=test.features,
        additions=test.rows if name in COLUMN_SUMS else test.features,
        largest=float(np.abs(reference).max(initial=0.0)),
        shift=np.asarray(beta, np.float64) if columns else None,
        **sizes,
    )


def _block(
    gates: Iterable[Gate], facts: Facts, reference: Doubles, output: NDArray[np.float32]
) -> dict[str, tuple[float, float]]:
    """Return (largest ratio, 0) of each gate, or (sum of e^2, sum of expected^2) for norms."""
    expected = round_to(reference, facts.output_format).astype(np.float64)
    error = np.abs(output - expected)
    size = np.abs(expected)
    parts: dict[str, tuple[float, float]] = {}
    distance: float | None = None
    ratios_by_table: dict[tuple[float, float], float] = {}  # several suites share a limit
    for gate in gates:
        rule = gate.rule
        if isinstance(rule, Ulps):
            if distance is None:
                distance = float((error / ulp(expected, facts.output_format)).max(initial=0.0))
            parts[gate.name] = (_ratio(distance, rule.limit), 0.0)
        elif isinstance(rule, ScaledThreshold) and facts.name != "y":
            parts[gate.name] = (float((error**2).sum()), float((expected**2).sum()))
        elif isinstance(rule, Close):
            table = rule.by_format[facts.output_format]
            if table not in ratios_by_table:
                rtol, atol = table
                ratios_by_table[table] = _largest(error, atol + rtol * size)
            parts[gate.name] = (ratios_by_table[table], 0.0)
        else:
            parts[gate.name] = (_largest(error, _limit(gate, facts, expected, size)), 0.0)
    return parts


def _largest(error: Doubles, limit: Doubles | float) -> float:
    """Return the largest ratio; an error of 0 is within every limit, also within 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(error == 0, 0.0, error / limit).max(initial=0.0))


def _limit(gate: Gate, facts: Facts, expected: Doubles, size: Doubles) -> Doubles | float:
    """Return the largest |e| that passes, of each element or of all."""
    rule = gate.rule
    match rule:
        case Either():
            return np.maximum(rule.atol, rule.rtol * (size + rule.guard))
        case Accumulated():
            return rule.threshold(facts.output_format, facts.additions) * (size + facts.largest)
        case WelfordBound():
            return rule.atol(facts.output_format, facts.features, facts.gamma, facts.beta)
        case ScaledThreshold():
            return _scaled(rule.threshold(facts.name, facts.output_format), facts, expected, size)
    raise TypeError(f"the rule of {gate.name} gives no limit by element")


def _scaled(threshold: float, facts: Facts, expected: Doubles, size: Doubles) -> Doubles:
    limit = np.where(size > TINY, threshold * size, max(threshold, TINY_DIFFERENCE))
    if facts.shift is None:
        return limit
    # y = a x + beta: where the two nearly cancel, the product's own error counts.
    product = np.abs(expected - facts.shift)
    return np.where(product > size, np.maximum(limit, threshold * product), limit)


def _combined(gate: Gate, facts: Facts, parts: Iterable[tuple[float, float]]) -> float | None:
    first, second = zip(*parts, strict=True)
    if isinstance(gate.rule, ScaledThreshold) and facts.name != "y":
        allowed = gate.rule.threshold(facts.name, facts.output_format) * math.sqrt(sum(second))
        ratio = _ratio(math.sqrt(sum(first)), allowed)
    else:
        ratio = max(first)
    return ratio if math.isfinite(ratio) else None


def _ratio(distance: float, limit: float) -> float:
    if distance == 0:
        return 0.0
    return distance / limit if limit else math.inf
