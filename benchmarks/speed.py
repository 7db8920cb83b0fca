"""Speed of the numerics: `python -m benchmarks.speed`.

Every figure with a ratio to something measured in the same run.

Machines are shared and noisy: medians of a few runs, A and B in turn, and nothing here is a test.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.figures import ARITHMETIC, FORWARD, NIGHTLY
from gonogo import emulator
from gonogo.judging import inputs
from gonogo.judging.judging import judge
from gonogo.kernels.layernorm import reference as layernorm
from gonogo.kernels.layernorm.arithmetic import backward, backward_terms, given_moments
from gonogo.kernels.layernorm.fused import finish
from gonogo.kernels.layernorm.fused.columns import COLUMNS, add_columns
from gonogo.kernels.layernorm.fused.variance import add_variance
from gonogo.numerics import compare
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.compiled import rows
from gonogo.numerics.expectation import Expectation, binade
from gonogo.numerics.formats import round_to
from gonogo.numerics.jit import jit
from gonogo.numerics.totals import DIRECTIONS, Totals, finished
from gonogo.spec.test_spec import TestSpec

RUNS = 5
MAX_REPLAY_COST = 1.5
"""The largest ratio of judging without a named arithmetic to judging with one."""

COMPARED_BYTES = 4 + 5 * 8
"""Per element: the output, and the raw reference, reference, bound, noise and xhat in float64."""


def median_seconds(*work: Callable[[], object]) -> list[float]:
    """Medians of RUNS runs of function, in turn, after one that is not counted."""
    times: list[list[float]] = [[] for _ in work]
    for counted in range(RUNS + 1):
        for place, function in enumerate(work):
            started = time.perf_counter()
            function()
            if counted:
                times[place].append(time.perf_counter() - started)
    return [statistics.median(function) for function in times]


def four_metrics(out: NDArray[np.float32], reference: NDArray[np.float64]) -> tuple[Any, ...]:
    """Compute allclose, PCC, relative Frobenius and the largest ULP distance in plain NumPy.

    These are what other tools compare with.
    """
    close = np.allclose(out, reference, rtol=1e-3, atol=0.5)
    pcc = np.corrcoef(out.ravel(), reference.ravel())[0, 1]
    frobenius = np.linalg.norm(out - reference) / np.linalg.norm(reference)
    ulp = (np.abs(out - reference) / np.maximum(binade(reference) * 2.0**-7, 2.0**-133)).max()
    return close, pcc, frobenius, ulp


@jit
def compare_block(
    start: int,
    stop: int,
    output: Any,
    raw: Any,
    ref: Any,
    bound: Any,
    noise: Any,
    xhat: Any,
    shared: Any,
    unit: float,
    tolerance: Any,
    totals: Any,
    bins: Any,
    scores: Any,
    columns: Any,
) -> None:
    """Compare rows start..stop of given arrays (rows, N).

    This is the comparison alone, with its directions along rows and down columns.
    """
    n = ref.shape[1]
    out, ones, nothing = np.empty(n), np.ones(n), np.zeros(n)
    error, even, away, variance = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    scratch, allowance = rows.row_scratch(n), np.zeros((3, n))
    known, trends, spreads = (
        np.zeros((rows.KNOWN, DIRECTIONS)),
        np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        np.array([1.0, 0.0, 1.0, 0.0]),
    )
    for i in range(start, stop):
        for j in range(n):
            out[j] = output[i, j]
        add_variance(ref[i], noise[i], nothing, ones, xhat[i], shared[i], n, variance)
        tied = rows.compare_row(
            i,
            n,
            True,
            out,
            raw[i],
            raw[i],
            ref[i],
            ref[i],
            bound[i],
            noise[i],
            variance,
            nothing,
            ones,
            xhat[i],
            ref[i],
            shared[i],
            known,
            unit,
            tolerance[0],
            tolerance[1],
            True,
            raw[0, 0],
            True,
            totals,
            bins,
            scores[i],
            scratch,
            error,
            even,
            away,
        )
        add_columns(
            n,
            ones,
            False,
            ones,
            xhat[i],
            ref[i],
            error,
            even,
            away,
            tied,
            variance,
            trends,
            spreads,
            allowance,
            0,
            columns,
        )


def compare_all(
    output: NDArray[np.float32], raw: NDArray[np.float64], expected: Expectation, test: TestSpec
) -> dict[str, Any]:
    """Every statistic of dx from arrays that are given, and the digest of the output meanwhile."""
    count, n = output.shape
    scores = np.zeros((count, rows.SCORES))
    shared = np.stack([source.variance[:, 0] for source in expected.shared], axis=1)[:, :DIRECTIONS]
    xhat, tolerance = expected.directions[1].weights, np.array([1e-3, 0.5])

    def block(start: int, stop: int) -> tuple[Totals, NDArray[np.float64]]:
        totals, columns = Totals.empty(), np.zeros((COLUMNS, n))
        compare_block(
            start,
            stop,
            output,
            raw,
            expected.reference,
            expected.bound,
            expected.noise,
            xhat,
            shared,
            expected.out,
            tolerance,
            totals.sums,
            totals.bins,
            scores,
            columns,
        )
        return totals, columns

    totals, columns = Totals.empty(), np.zeros((COLUMNS, n))
    with ThreadPoolExecutor(1) as beside:
        digest = beside.submit(compare.digest, output, test.shape)
        for block_totals, block_columns in over_rows(block, count, finish.ROWS):
            totals.add(block_totals)
            columns += block_columns
        names = ("row", "xhat", "scale", "col")
        for place, name in enumerate(names[:3]):
            totals.add_scores(name, scores, place, 0.0, np.ones(count, bool))
        totals.columns["col"] = finish.column(columns, (0.0,) * 4)
        result = finished(totals, output.size, declared=True, names=names)
        return result | {"digest": digest.result()}


def replay_cost(test_json: Mapping[str, Any]) -> tuple[float, float]:
    """Return the seconds of judging a right kernel with no arithmetic named, and by `generic`."""
    test = TestSpec.parse(test_json)
    raw = inputs.generate(test, 0)
    given = inputs.quantise(test, raw)
    exact = layernorm.reference(test, given)
    outputs = {name: round_to(value, test.numerics.output) for name, value in exact.items()}
    seconds = median_seconds(
        lambda: judge(test, raw, given, outputs, arithmetic=None),
        lambda: judge(test, raw, given, outputs, arithmetic="generic"),
    )
    return seconds[0], seconds[1]


def statistics_in(outputs: dict[str, Any]) -> int:
    """How many numbers (the six of needed_atol are six) there are."""
    return sum(
        len(value) if isinstance(value, dict) else 1
        for value in outputs.values()
        if value is not None
    )


def main() -> int:
    """Print the table."""
    table = Table("figure", "asked", "measured", "beside it")
    test = TestSpec.parse(NIGHTLY)
    raw = inputs.generate(test, 0)
    given = inputs.quantise(test, raw)
    outputs = emulator.run(test, given, "correct")
    only_dx = {"dx": outputs["dx"]}
    reference = layernorm.reference(test, raw)["dx"]
    elements = reference.size

    def seed() -> None:
        fresh = inputs.generate(test, 1)
        quantised = inputs.quantise(test, fresh)
        judge(
            test, fresh, quantised, emulator.run(test, quantised, "correct"), arithmetic=ARITHMETIC
        )

    whole, plain = median_seconds(seed, lambda: layernorm.reference(test, raw))
    table.add_row(
        (
            "one seed of the 819x8462 backward test, emulated, all outputs, references, "
            "budgets, statistics"
        ),
        "at most 1 s",
        f"{whole:.2f} s",
        f"{whole / plain:.1f} times the fp64 reference alone ({plain:.2f} s)",
    )
    making, quantising, kernel, judging = median_seconds(
        lambda: inputs.generate(test, 1),
        lambda: inputs.quantise(test, raw),
        lambda: emulator.run(test, given, "correct"),
        lambda: judge(test, raw, given, outputs, arithmetic=ARITHMETIC),
    )
    table.add_row(
        "  of that",
        "",
        (
            f"inputs {making:.2f}, quantising {quantising:.2f}, kernel {kernel:.2f}, judging "
            f"{judging:.2f} s"
        ),
        "",
    )

    terms = backward_terms(test, ARITHMETIC)
    expected = backward.input_gradient(given, given_moments(given, test.epsilon, terms), terms)
    target = np.empty_like(outputs["dx"])
    alone, four, copy, digest, fused = median_seconds(
        lambda: compare_all(outputs["dx"], reference, expected, test),
        lambda: four_metrics(outputs["dx"], reference),
        lambda: np.copyto(target, outputs["dx"]),
        lambda: compare.digest(outputs["dx"], test.shape),
        lambda: judge(test, raw, given, only_dx, arithmetic=ARITHMETIC, produced=("dx",)),
    )
    count = statistics_in(compare_all(outputs["dx"], reference, expected, test))
    bytes_read = COMPARED_BYTES * elements
    table.add_row(
        (
            "the comparison: every statistic of dx in one fused pass over the output, both "
            "references, bound and variance"
        ),
        "3 times faster than allclose + PCC + Frobenius + ULP in NumPy, on the same arrays",
        f"{four / alone:.1f} times ({alone * 1e3:.0f} ms, NumPy {four * 1e3:.0f} ms)",
        (
            f"{alone * 1e3 / count:.2f} ms a statistic ({count}); reads "
            f"{bytes_read / alone / 1e9:.1f} GB/s, "
            f"a plain copy {8 * elements / copy / 1e9:.1f} GB/s; the digest alone, which runs "
            f"beside it, {digest * 1e3:.0f} ms"
        ),
    )
    table.add_row(
        "the same, with both references and the budget made on the way",
        "",
        f"{four / fused:.1f} times ({fused * 1e3:.0f} ms)",
        f"{fused / alone:.1f} times the comparison alone",
    )
    forward = TestSpec.parse(FORWARD)
    forward_raw = inputs.generate(forward, 0)
    forward_given = inputs.quantise(forward, forward_raw)
    forward_outputs = emulator.run(forward, forward_given, "correct")
    forward_seconds, forward_plain = median_seconds(
        lambda: judge(forward, forward_raw, forward_given, forward_outputs, arithmetic=ARITHMETIC),
        lambda: layernorm.reference(forward, forward_raw),
    )
    table.add_row(
        "judging one seed of the 819x8462 forward test",
        "",
        f"{forward_seconds:.2f} s",
        f"{forward_seconds / forward_plain:.1f} times the fp64 reference alone",
    )
    for name, test_json in (("forward", FORWARD), ("backward", NIGHTLY)):
        for form in ("fp32", "bf16"):
            judged, beside = replay_cost({**test_json, "numerics": {"input": form, "output": form}})
            table.add_row(
                f"finding the arithmetic of an 819x8462 {name} test that computes in fp32, {form}",
                f"at most {MAX_REPLAY_COST} times the judging by the generic one",
                f"{judged / beside:.2f} times ({judged:.2f} s)",
                f"{beside:.2f} s by the generic one",
            )
    Console(width=170 if not sys.stdout.isatty() else None).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
