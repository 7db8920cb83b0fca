"""Measure how often right kernels are not explained, by kernel, arithmetic model and statistic.

`python -m benchmarks.false_alarms [--seeds N]`.

Every seed has its own shape, regime and formats, so that 1,000 seeds of an arithmetic cover all of
them many times. Exit 1 if a right kernel is called unexplained, or suspect in more than one seed in
a thousand.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import samples
from benchmarks.arithmetics import MONTE_CARLO, RIGHT, by_budget, explanation
from gonogo.judging import expected, inputs
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import POLICY, Explanation, explain

SHAPES = (
    [1, 1],
    [1, 7],
    [5, 1],
    [3, 20],
    [33, 50],
    [64, 96],
    [40, 257],
    [16, 1024],
    [4, 4096],
    [300, 32],
    [2, 3, 32, 64],
)
DEVIATIONS = 6.0
"""Right kernels in Monte-Carlo arithmetic stay below so many standard deviations: s, of rounding to
nearest (variance h^2/3 each), times"""
STOCHASTIC = 2**0.5
"""what stochastic rounding has more: between its two neighbours a value errs with variance h^2 2/3
on average."""

REGIMES: tuple[Mapping[str, Any], ...] = (
    {"regime": "uniform", "low": -1, "high": 1},
    {"regime": "normal", "mean": 0, "std": 1},
    {"regime": "normal", "mean": 0, "std": 1e-3},
    {"regime": "offset", "offset": 10, "std": 1},
    {"regime": "offset", "offset": -3, "std": 0.05},
    {"regime": "ramp", "low": -1, "high": 1},
    {"regime": "ramp", "low": 1, "high": 1.01},
    {"regime": "hot_tile", "tile": 0, "value": 8},
    {"regime": "constant", "value": 0.5},
    {"regime": "uniform", "low": 0, "high": 1},
)
NUMERICS: tuple[Mapping[str, Any], ...] = (
    {},
    {"input": "fp32", "output": "fp32"},
    {"input": "fp32"},
    {"output": "bfp8_b"},
    {"statistics": "own"},
)


GROUPED: tuple[tuple[list[int], int], ...] = (
    ([1, 1], 1),
    ([3, 7], 7),
    ([2, 12], 3),
    ([2, 6, 5, 5], 2),
    ([4, 32, 8, 8], 8),
    ([1, 64, 4, 4], 1),
    ([16, 8, 3], 4),
    ([2, 40, 16], 10),
    ([1, 16, 32, 16], 2),
    ([32, 4, 7, 7], 1),
    ([5, 33, 2], 33),
)
"""Shapes of group norm, with their groups."""
BACKWARD = ("layernorm_bw", "rmsnorm_bw")
KERNELS = (*BACKWARD, "layernorm_fw", "rmsnorm_fw", "groupnorm_fw")
WELFORD = ("layernorm_fw", "groupnorm_fw")


def cases(seeds: int, kernel: str) -> Iterator[tuple[int, TestSpec]]:
    """(seed, test) with every combination in turn."""
    for seed, (numerics, regime, shape) in zip(
        range(seeds), itertools.cycle(itertools.product(NUMERICS, REGIMES, SHAPES)), strict=False
    ):
        chosen = {
            k: v for k, v in numerics.items() if not (kernel not in BACKWARD and k == "statistics")
        }
        spec = {
            "kernel": kernel,
            "shape": shape,
            "inputs": dict(regime),
            "numerics": chosen,
            "tolerance": {"rtol": 1e-2, "atol": 5e-2},
        }
        if kernel == "groupnorm_fw":
            grouped, groups = GROUPED[SHAPES.index(shape)]
            spec |= {"shape": grouped, "parameters": {"num_groups": groups}}
            if chosen.get("output") == "bfp8_b":  # a group isn't a row of tiles
                spec["numerics"] = {"output": "bf16", "input": {"gamma": "fp32", "beta": "fp32"}}
        yield seed, TestSpec.parse(spec)


def applies(name: str, arithmetic: str, test: TestSpec) -> bool:
    """Return whether the named kernel is right for an arithmetic model.

    One that stores bf16 is not right for `generic` where every tensor is fp32.
    """
    numerics = test.numerics
    wide = numerics.input == numerics.output == "fp32"
    return not (
        arithmetic == "generic"
        and wide
        and (name.startswith("bf16") or name == "emulated Wormhole")
    )


def beyond(statistics: Mapping[str, Any]) -> list[str]:
    """The statistics that by themselves would not be explained."""
    parts = [
        name
        for name in statistics
        if name in ("budget_ratio", "chi") or name.endswith(("_z", "_z_max"))
    ]
    numbers = {
        name: value
        for name, value in statistics.items()
        if name == "count" or name.endswith("_count")
    }
    return [
        name
        for name in parts
        if statistics[name] is not None
        and explain({**numbers, name: statistics[name]}, POLICY) is not Explanation.explained
    ]


def monte_carlo(seeds: int) -> float:
    """Return the largest |e|/s when every stored intermediate is rounded stochastically.

    Stochastic rounding has half a ulp of bias and twice the spread.
    """
    worst = 0.0
    for seed in range(seeds):
        test = TestSpec.parse({"kernel": "layernorm_bw", "shape": SHAPES[seed % len(SHAPES)]})
        given = inputs.quantise(test, inputs.generate(test, seed))
        outputs = MONTE_CARLO(test, given)
        for name, expectation in expected.expectations(test, given, "generic").items():
            error = outputs[name].reshape(expectation.reference.shape) - expectation.reference
            worst = max(
                worst,
                float(np.max(np.abs(error) / np.sqrt(np.maximum(expectation.variance, 1e-300)))),
            )
    return worst


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 when a right kernel is flagged more often than allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds",
        type=int,
        default=1000,
        help="seeds of statistic arithmetic and arithmetic (default 1000)",
    )
    parser.add_argument("--show", type=int, default=0, help="print so many of the alarms")
    parser.add_argument(
        "--kernel",
        action="append",
        choices=KERNELS,
        help="only this kernel; repeatable (default: all)",
    )
    chosen = parser.parse_args(arguments)
    console = Console(width=170 if not sys.stdout.isatty() else None)
    console.print(samples.sentence("false_alarms"))
    table = Table(
        "kernel",
        "arithmetic",
        "arithmetic",
        "seeds",
        "explained",
        "suspect",
        "unexplained",
        "no information",
        "beyond its limit, by statistic",
    )
    bad = 0
    for kernel, (name, (run, arithmetics)) in itertools.product(
        chosen.kernel or KERNELS, RIGHT.items()
    ):
        if name == "fp32, Welford" and kernel not in WELFORD:
            continue
        for arithmetic in arithmetics:
            verdicts: Counter[str] = Counter()
            statistics: Counter[str] = Counter()
            for seed, test in cases(chosen.seeds, kernel):
                if not applies(name, arithmetic, test):
                    continue
                raw = inputs.generate(test, seed)
                given = inputs.quantise(test, raw)
                judged = by_budget(test, raw, given, run(test, given), arithmetic)
                verdicts[explanation(judged).value] += 1
                for output, numbers in judged.items():
                    for statistic in beyond(numbers):
                        statistics[f"{output}.{statistic}"] += 1
                        if chosen.show:
                            chosen.show -= 1
                            console.print(
                                name,
                                arithmetic,
                                seed,
                                test.canonical(),
                                output,
                                statistic,
                                numbers[statistic],
                                soft_wrap=True,
                            )
            bad += verdicts["unexplained"] > 0 or verdicts["suspect"] > chosen.seeds / 1000
            rates = ", ".join(
                f"{statistic} {count / chosen.seeds:.2%}"
                for statistic, count in statistics.most_common(6)
            )
            words = ("explained", "suspect", "unexplained", "inconclusive")
            table.add_row(
                kernel,
                name,
                arithmetic,
                str(verdicts.total()),
                *(str(verdicts[word]) for word in words),
                rates or "none",
            )
    console.print(table)
    worst = monte_carlo(chosen.seeds)
    bad += worst / STOCHASTIC > DEVIATIONS
    deviations = worst / STOCHASTIC
    console.print(
        f"Monte-Carlo arithmetic, generic, {chosen.seeds} seeds: largest |e| is {worst:.2f} s, "
        f"{deviations:.2f} standard deviations of stochastic rounding (limit {DEVIATIONS:g})"
    )
    console.print(f"{bad} rows with more alarms than allowed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
