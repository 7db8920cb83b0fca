"""Compare GoNoGo's verdict with the gates of others, on the same right and wrong kernels.

    python -m benchmarks.yardstick [--sample N] [--kernel NAME]

The kernels are those of benchmarks.kernels: outputs of libraries (`make libraries` first) and of
NumPy in float32, right and with a fault. A wrong one counts where its error is clearly beyond that
of every right kernel on its inputs. Each gate compares with the correctly rounded result. One that
is calibrated is measured on the other right kernels of the operation in the format. Prints percent
of the wrong kernels that are caught, and of the right ones that are rejected.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.kernels.__main__ import FLAGGED, is_clear, runs_of
from benchmarks.kernels.cases import Arrays, Case
from benchmarks.kernels.libraries import results
from benchmarks.kernels.rows import Row, rows
from benchmarks.kernels.wrong import numpy_faults, numpy_kernel
from gonogo.arithmetic.formats import Doubles, round_to, step
from gonogo.closeness import pcc_deficit
from gonogo.gauge.gates import CALIBRATED, GATES, CalibratedGate, Gate
from gonogo.gauge.limits import ratios
from gonogo.spec.test_spec import TestSpec

FORMATS = ("fp32", "bf16", "fp16")
_STATISTICS = """mean = x.mean(-1, {0}=True)
rstd = {1}(((x - mean) ** 2).mean(-1, {0}=True) + epsilon)
y = (x - mean) * rstd * gamma + beta"""
ROWS = (
    Row(
        "layernorm_fw",
        "torch",
        "y, mean, rstd = torch.native_layer_norm(x, gamma.shape, gamma, beta, epsilon)",
    ),
    Row("layernorm_fw", "torch", _STATISTICS.format("keepdim", "torch.rsqrt")),
    Row("layernorm_fw", "jax", _STATISTICS.format("keepdims", "jax.lax.rsqrt")),
)
"""LayerNorms, for which some suites have gates of their own."""
FAULTS = 4
"""Faults of the table for each case."""
VERDICT = "GoNoGo's verdict"


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
        """The operation and the format: kernels that calibrate a gate for one another."""
        return self.case.kernel, self.case.form

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
    """Return whether an output meets a tolerance: rtol and atol, pcc, frobenius, ulp."""
    expected, error = kernel.expected[name], kernel.error(name)
    bound = limits.get("atol", 0.0) + limits.get("rtol", 0.0) * np.abs(expected)
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
    case = kernel.case
    if (gate.kernels or gate.formula) and case.kernel not in (gate.kernels or ("layernorm_fw",)):
        return None
    names = [name for name in kernel.outputs if not gate.kernels or name in gate.outputs]
    test = TestSpec.parse({"kernel": "layernorm_fw", "shape": list(case.shape)})
    for name in names:
        known = name if name in gate.outputs else "y"
        if gate.tolerance:
            tolerance = gate.tolerance_for(known)
            if tolerance is not None and not within(kernel, name, tolerance.to_json()):
                return False
            continue
        shape = (1, -1) if kernel.outputs[name].ndim < 2 else (-1, kernel.outputs[name].shape[-1])
        numerics = test.numerics.model_copy(update={"output": kernel.formats[name]})
        ratio = ratios(
            test.model_copy(update={"numerics": numerics}),
            known,
            case.inputs,
            case.right[name].reshape(shape),
            kernel.outputs[name].reshape(shape),
            [gate],
        )[gate.name]
        if ratio is None or ratio > 1:
            return False
    return True if names else None


def calibrated_passes(
    gate: CalibratedGate, kernel: Kernel, others: Sequence[Kernel]
) -> bool | None:
    """Return whether all outputs are within what other right kernels have; None: there are none."""
    if not others:
        return None
    for name in kernel.outputs:
        alike = [other for other in others if name in other.outputs]
        if gate.measure == "max_abs":
            sizes = [float(other.error(name).max(initial=0.0)) for other in alike]
            limits = {"atol": gate.factor * float(np.percentile(sizes, gate.percentile))}
        else:
            ulps = np.concatenate([other.ulps(name).ravel() for other in alike])
            budget = math.ceil(gate.factor * min(np.percentile(ulps, gate.percentile), 1e12))
            ceiling = gate.ceilings.get(kernel.case.form, math.inf)
            limits = {"ulp": max(budget, gate.least)} if budget <= ceiling else dict(gate.tolerance)
        if not within(kernel, name, limits):
            return False
    return True


def kernels_of(chosen: Sequence[Row]) -> Iterator[Kernel]:
    """Yield the right kernels of rows, and the clearly wrong ones."""
    runs = runs_of(chosen)
    right: dict[Case, list[Kernel]] = {}
    for case in dict.fromkeys(run.case for run in runs):
        formats = dict.fromkeys(case.right, case.form)
        right[case] = [Kernel(case, True, numpy_kernel(case)["numpy"], formats)]
    wrong: list[Kernel] = []
    for library in sorted({row.library for row in chosen}):
        library_runs = [run for run in runs if run.row.library == library]
        for run, result in zip(library_runs, results(library, library_runs), strict=True):
            if result.problem is None:
                shaped = {n: a.reshape(run.case.right[n].shape) for n, a in result.outputs.items()}
                kernel = Kernel(run.case, run.is_right, shaped, result.formats)
                (right[run.case] if run.is_right else wrong).append(kernel)
    for case, kernels in right.items():
        yield from kernels
        worst = dict.fromkeys(case.right, 0.0)
        for kernel in kernels:
            for name, error in case.errors(kernel.outputs).items():
                worst[name] = max(worst[name], error)
        every = [kernel.outputs for kernel in wrong if kernel.case == case]
        every += [outputs for _, outputs in numpy_faults(case, FAULTS)]
        for outputs in every:
            if is_clear(case, outputs, worst):
                yield Kernel(case, False, outputs, dict.fromkeys(outputs, case.form))


def share(hit: int, missed: int) -> str:
    """Return hits in percent, and of how many."""
    return f"{100 * hit / (hit + missed):.1f} of {hit + missed}" if hit + missed else ""


def main(words: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.yardstick", description=__doc__)
    parser.add_argument("--sample", type=int, help="this many rows, drawn at random")
    parser.add_argument("--kernel", action="append", help="rows of this kernel")
    options = parser.parse_args(words)
    every = [*ROWS, *rows()]
    chosen = [row for row in every if row.kernel in (options.kernel or [row.kernel])]
    if options.sample and options.sample < len(chosen):
        places = np.random.default_rng(0).choice(len(chosen), options.sample, replace=False)
        chosen = [chosen[place] for place in sorted(places)]
    kernels = list(kernels_of(chosen))
    right: dict[tuple[str, str], list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        if kernel.is_right:
            right[kernel.alike].append(kernel)
    counts: Counter[tuple[str, str, bool, bool]] = Counter()
    for kernel in kernels:
        form = kernel.case.form
        others = [one for one in right[kernel.alike] if one is not kernel]
        passes = {name: gate_passes(gate, kernel) for name, gate in GATES.items()}
        passes |= {n: calibrated_passes(gate, kernel, others) for n, gate in CALIBRATED.items()}
        explanation = kernel.case.judged(kernel.outputs, kernel.formats).explanation
        passes[VERDICT] = explanation.value not in FLAGGED
        for name, is_passed in passes.items():
            if is_passed is not None:
                counts[name, form, kernel.is_right, not is_passed] += 1
    table = Table("gate", *(f"{form}: {what}" for form in FORMATS for what in ("caught", "alarms")))
    for name in (*GATES, *CALIBRATED, VERDICT):
        cells = ((form, is_right) for form in FORMATS for is_right in (False, True))
        table.add_row(
            name, *(share(counts[name, *c, True], counts[name, *c, False]) for c in cells)
        )
    Console(width=160).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
