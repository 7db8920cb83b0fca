"""Speed of the numerics: `python -m benchmarks.speed`. Every figure with a ratio to something measured in the same run.

Machines are shared and noisy: medians of a few runs, A and B in turn, and nothing here is a test.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.figures import FORWARD, NIGHTLY, PROFILE
from gonogo import inputs, tensix
from gonogo.judging import judge
from gonogo.numerics import compare, layernorm
from gonogo.numerics.budgets.expectation import binade
from gonogo.tests import TestSpec

RUNS = 5


def median_seconds(*work: Callable[[], object]) -> list[float]:
    """Medians of RUNS runs of each, in turn, after one that is not counted."""
    times: list[list[float]] = [[] for _ in work]
    for counted in range(RUNS + 1):
        for place, each in enumerate(work):
            started = time.perf_counter()
            each()
            if counted:
                times[place].append(time.perf_counter() - started)
    return [statistics.median(each) for each in times]


def four_metrics(out: NDArray[np.float32], reference: NDArray[np.float64]) -> tuple[Any, ...]:
    """What others compare with: allclose, PCC, relative Frobenius and the largest ULP distance, in plain NumPy."""
    close = np.allclose(out, reference, rtol=1e-3, atol=0.5)
    pcc = np.corrcoef(out.ravel(), reference.ravel())[0, 1]
    frobenius = np.linalg.norm(out - reference) / np.linalg.norm(reference)
    ulp = (np.abs(out - reference) / np.maximum(binade(reference) * 2.0**-7, 2.0**-133)).max()
    return close, pcc, frobenius, ulp


def main() -> int:
    """Print the table."""
    table = Table("figure", "asked", "measured", "beside it")
    test = TestSpec.parse(NIGHTLY)
    raw = inputs.generate(test, 0)
    given = inputs.quantise(test, raw)
    outputs = tensix.run(test, given, "correct")
    only_dx = {"dx": outputs["dx"]}
    reference = layernorm.reference(test, raw)["dx"]
    elements = reference.size

    def seed() -> None:
        fresh = inputs.generate(test, 1)
        mine = inputs.quantise(test, fresh)
        judge(test, fresh, mine, tensix.run(test, mine, "correct"), profile=PROFILE)

    whole, plain = median_seconds(seed, lambda: layernorm.reference(test, raw))
    table.add_row(
        "one seed of the 819x8462 backward test, emulated, all outputs, references, budgets, statistics",
        "at most 1 s",
        f"{whole:.2f} s",
        f"{whole / plain:.1f} times the fp64 reference alone ({plain:.2f} s)",
    )
    making, quantising, kernel, judging = median_seconds(
        lambda: inputs.generate(test, 1),
        lambda: inputs.quantise(test, raw),
        lambda: tensix.run(test, given, "correct"),
        lambda: judge(test, raw, given, outputs, profile=PROFILE),
    )
    table.add_row("  of that", "", f"inputs {making:.2f}, quantising {quantising:.2f}, kernel {kernel:.2f}, judging {judging:.2f} s", "")

    target = np.empty_like(outputs["dx"])
    fused, four, copy, digest = median_seconds(
        lambda: judge(test, raw, given, only_dx, profile=PROFILE, produced=("dx",)),
        lambda: four_metrics(outputs["dx"], reference),
        lambda: np.copyto(target, outputs["dx"]),
        lambda: compare.digest(outputs["dx"], test.shape),
    )
    judged = judge(test, raw, given, only_dx, profile=PROFILE, produced=("dx",))
    count = sum(1 for value in judged.outputs["dx"].statistics.values() if value is not None)
    read = 5 * 4 * elements
    table.add_row(
        "the comparison: both references, budget and every statistic of dx in one fused pass",
        "3 times faster than allclose + PCC + Frobenius + ULP in NumPy (which is given its reference)",
        f"{four / fused:.1f} times ({fused * 1e3:.0f} ms, NumPy {four * 1e3:.0f} ms)",
        f"{fused * 1e3 / count:.2f} ms a statistic ({count}); reads {read / fused / 1e9:.2f} GB/s, "
        f"a plain copy {8 * elements / copy / 1e9:.1f} GB/s; of it the digest {digest * 1e3:.0f} ms",
    )
    forward = TestSpec.parse(FORWARD)
    forward_raw = inputs.generate(forward, 0)
    forward_given = inputs.quantise(forward, forward_raw)
    forward_outputs = tensix.run(forward, forward_given, "correct")
    forward_seconds, forward_plain = median_seconds(
        lambda: judge(forward, forward_raw, forward_given, forward_outputs, profile=PROFILE),
        lambda: layernorm.reference(forward, forward_raw),
    )
    table.add_row(
        "judging one seed of the 819x8462 forward test",
        "",
        f"{forward_seconds:.2f} s",
        f"{forward_seconds / forward_plain:.1f} times the fp64 reference alone",
    )
    Console(width=170 if not sys.stdout.isatty() else None).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
