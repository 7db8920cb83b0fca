"""Compare GoNoGo's verdict with the gates of others, on the same right and wrong kernels.

    python -m benchmarks.yardstick [--sample N] [--kernel NAME]

The kernels are those of benchmarks.kernels: outputs of libraries (`make libraries` first) and of
NumPy in float32, right and clearly wrong. Gates compare with the correctly rounded result; those
that are calibrated are measured on the other right kernels of the operation in the format. Prints
percent of the wrong kernels that are caught, and of the right ones that are rejected.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.corpus.run import CLEAR, CLEAR_16
from benchmarks.kernels.cases import REGIMES, Arrays, Case
from benchmarks.kernels.libraries import Result, Run, results
from benchmarks.kernels.rows import FORMATS, Row, rows
from benchmarks.kernels.wrong import FAULTS, numpy_fault, numpy_kernel
from benchmarks.report import Figure, keep
from gonogo.arithmetic.formats import Doubles, round_to, step
from gonogo.closeness import pcc_deficit
from gonogo.gauge.gates import GATES, Gate

_STATISTICS = """mean = x.mean(-1, {0}=True)
rstd = {1}(((x - mean) ** 2).mean(-1, {0}=True) + epsilon)
y = (x - mean) * rstd * gamma + beta"""
_NATIVE = "y, mean, rstd = torch.native_layer_norm(x, gamma.shape, gamma, beta, epsilon)"
ROWS = (
    Row("layernorm_fw", "torch", _NATIVE),
    Row("layernorm_fw", "torch", _STATISTICS.format("keepdim", "torch.rsqrt")),
    Row("layernorm_fw", "jax", _STATISTICS.format("keepdims", "jax.lax.rsqrt")),
)
"""LayerNorms, for which some suites have gates of their own."""
VERDICT = "GoNoGo's verdict"


@dataclass(frozen=True)
class CalibratedGate:
    """A gate whose limit follows a percentile of what right kernels have."""

    measure: Literal["max_abs", "ulp"]
    """Their largest errors, or the errors of all elements in ulps."""
    percentile: float
    limit: Callable[[float, str], Mapping[str, float]]
    """Returns the tolerance after that percentile, for a format."""


def _ulp_budget(measured: float, form: str) -> Mapping[str, float]:
    budget = math.ceil(1.25 * measured) if math.isfinite(measured) else math.inf
    if budget > {"fp32": 419430, "fp16": 51, "bf16": 6}[form]:
        return {"rtol": 0.05, "atol": 0.05, "pcc": 0.99}
    return {"ulp": max(budget, 1)}


CALIBRATED: Mapping[str, CalibratedGate] = {
    # Skelf-Research/gpuemu, documentation/docs/why-gpuemu/the-evidence.md, P2
    "gpuemu": CalibratedGate("max_abs", 95, lambda measured, _: {"atol": 1.5 * measured}),
    # tenstorrent/tt-metal, tt_metal/tt-llk/tests/python_tests/helpers/sfpu_accuracy_budget.yaml
    "llk-ulp-budgets": CalibratedGate("ulp", 99.9, _ulp_budget),
}


@dataclass(frozen=True, eq=False)
class Kernel:
    """A run of a kernel: its outputs in float64, and their formats."""

    case: Case
    is_right: bool
    outputs: Arrays
    formats: Mapping[str, str]

    @cached_property
    def expected(self) -> Arrays:
        """The correctly rounded outputs."""
        return {name: round_to(self.case.right[name], self.formats[name]) for name in self.outputs}

    @property
    def alike(self) -> tuple[str, str]:
        """The operation and the format: such kernels calibrate a gate for one another."""
        return self.case.kernel.name, self.case.form

    def error(self, name: str) -> Doubles:
        """Return the error of each element of an output; infinite where one isn't finite."""
        output, expected = self.outputs[name], self.expected[name]
        with np.errstate(invalid="ignore"):
            error = np.nan_to_num(np.abs(output - expected), nan=np.inf)
        return np.where(output == expected, 0.0, error)

    def ulps(self, name: str) -> Doubles:
        """Return that error in steps of the output's format."""
        return self.error(name) / step(self.expected[name], self.formats[name])


def within(kernel: Kernel, name: str, limits: Mapping[str, float]) -> bool:
    """Return whether an output meets limits: rtol and atol (and guard), pcc, frobenius, ulp."""
    expected, error = kernel.expected[name], kernel.error(name)
    size = np.abs(expected)
    bound = limits.get("atol", 0.0) + limits.get("rtol", 0.0) * size
    if "guard" in limits:  # the wider of the two
        bound = np.maximum(limits["atol"], limits["rtol"] * (size + limits["guard"]))
    is_within = not {"atol", "rtol"} & limits.keys() or bool((error <= bound).all())
    if "pcc" in limits and expected.size > 1:
        deficit = pcc_deficit(expected, kernel.outputs[name] - expected)
        is_within &= deficit is not None and 1 - deficit >= limits["pcc"]
    if "frobenius" in limits:
        is_within &= bool(np.linalg.norm(error) <= limits["frobenius"] * np.linalg.norm(expected))
    if "ulp" in limits:
        is_within &= bool((kernel.ulps(name) <= limits["ulp"]).all())
    return is_within


def gate_passes(gate: Gate, kernel: Kernel) -> bool | None:
    """Return whether a gate passes all outputs that its suite compares; None where it has none."""
    if gate.kernels and kernel.case.kernel.name not in gate.kernels:
        return None
    for name in kernel.outputs:
        if gate.kernels and name not in gate.outputs:
            continue
        tolerance = gate.tolerance_for(name if gate.kernels else "y")
        limits = tolerance.to_json() if tolerance else gate.limits_in(kernel.formats[name])
        if not within(kernel, name, limits):
            return False
    return True


def calibrated_passes(gate: CalibratedGate, kernel: Kernel, right: Sequence[Kernel]) -> bool | None:
    """Return whether all outputs are within what other right kernels have; None: there are none."""
    others = [k for k in right if k is not kernel and kernel.outputs.keys() <= k.outputs.keys()]
    for name in kernel.outputs if others else ():
        errors = [one.ulps(name) if gate.measure == "ulp" else one.error(name) for one in others]
        pooled = [error.ravel() if gate.measure == "ulp" else [error.max()] for error in errors]
        percentile = float(np.percentile(np.concatenate(pooled), gate.percentile))
        if not within(kernel, name, gate.limit(percentile, kernel.case.form)):
            return False
    return True if others else None


def kernels_of(chosen: Sequence[Row]) -> Iterator[Kernel]:
    """Yield the right kernels of rows, and the clearly wrong ones."""
    cases: dict[Case, Case] = {}  # equal cases are one object, which keeps what it computed
    runs = []
    for row in chosen:
        for form, regime in product(row.formats, REGIMES):
            case = Case.of(row, form, regime)
            runs += [
                Run(row, code, cases.setdefault(case, case)) for code in (row.code, *row.faults)
            ]
    done: dict[Case, list[tuple[bool, Result]]] = {}
    for case in cases:
        numbers = range(len(case.kernel.mistakes) + FAULTS)
        wrong = [(False, numpy_fault(case, number)[1]) for number in numbers]
        done[case] = [(True, numpy_kernel(case)), *wrong]
    for run, result in results(runs):
        done[run.case].append((run.is_right, result))
    for case, pairs in done.items():
        kernels = [
            Kernel(case, is_right, case.shaped(result.outputs), result.formats)
            for is_right, result in pairs
        ]
        worst = dict.fromkeys(case.right, 0.0)
        for kernel in kernels:
            if kernel.is_right:
                yield kernel
                errors = case.errors(kernel.outputs)
                worst |= {name: max(worst[name], error) for name, error in errors.items()}
        for kernel in kernels:
            errors = case.errors(kernel.outputs)
            is_clear = any(
                errors[name] > CLEAR.get(case.form, CLEAR_16) * worst[name] for name in errors
            )
            if not kernel.is_right and is_clear:
                yield kernel


def share(
    name: str, form: str, is_right: bool, counts: Counter[tuple[str, str, bool, bool]]
) -> Figure | None:
    """Return the share of right or wrong kernels that a gate rejects, in percent; None of none."""
    rejected = counts[name, form, is_right, True]
    tried = rejected + counts[name, form, is_right, False]
    if not tried:
        return None
    what = "false alarms" if is_right else "caught"
    return Figure(f"{name}, {form}: {what}", 100 * rejected / tried, "%", note=f"of {tried}")


def main(words: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.yardstick", description=__doc__)
    parser.add_argument("--sample", type=int, help="this many rows, drawn at random")
    parser.add_argument("--kernel", action="append", help="rows of this kernel")
    options = parser.parse_args(words)
    chosen = [row for row in (*ROWS, *rows()) if row.kernel in (options.kernel or [row.kernel])]
    order = np.random.default_rng(0).permutation(len(chosen))[: options.sample]
    kernels = list(kernels_of([chosen[place] for place in sorted(order)]))
    right: dict[tuple[str, str], list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        if kernel.is_right:
            right[kernel.alike].append(kernel)
    counts: Counter[tuple[str, str, bool, bool]] = Counter()
    for kernel in kernels:
        passes = {name: gate_passes(gate, kernel) for name, gate in GATES.items()}
        passes |= {
            name: calibrated_passes(gate, kernel, right[kernel.alike])
            for name, gate in CALIBRATED.items()
        }
        explanation = kernel.case.judged(kernel.outputs, kernel.formats).explanation
        passes[VERDICT] = explanation.value not in ("unexplained", "suspect")
        for name, is_passed in passes.items():
            if is_passed is not None:
                counts[name, kernel.case.form, kernel.is_right, not is_passed] += 1
    forms = FORMATS["torch"]
    heads = [f"{form}: {what}" for form in forms for what in ("caught", "false alarms")]
    table = Table("judge", *heads)
    figures = []
    for name in (*GATES, *CALIBRATED, VERDICT):
        shares = [
            share(name, form, is_right, counts) for form, is_right in product(forms, (False, True))
        ]
        if any(shares):
            cells = (f"{figure.value:.1f} {figure.note}" if figure else "" for figure in shares)
            table.add_row(name, *cells)
            figures += [figure for figure in shares if figure]
    Console(width=160, highlight=False).print(table)
    keep("yardstick", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
