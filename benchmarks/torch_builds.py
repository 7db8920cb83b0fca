"""Measure how far torch's eager, decomposed and compiled LayerNorm are apart.

Before and after a bf16 linear.

Needs an interpreter with torch: that of the builds file, or the one that GONOGO_TEST_TORCH_PYTHON
names.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import gonogo_settings
from gonogo.errors import GonogoError
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.judging.pairs import Reference, compare
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.local import runner as local

VARIANTS = ("torch-eager", "torch-decomposed", "torch-compiled")
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "fp32": ("", {"input": "fp32", "output": "fp32"}),
    "bf16, then a bf16 linear": ("-linear", {}),
}


def main(words: list[str] | None = None) -> int:
    """Compare each variant with the eager one; 1 when there is no torch here."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_builds", description=__doc__)
    parser.add_argument("--shape", default="4096,128", help="shape of x")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(words)
    shape = [int(part) for part in options.shape.split(",")]
    console = Console(highlight=False, markup=False, width=120)
    console.print("in-sample: torch's arithmetic models were made from these builds\n")
    with tempfile.TemporaryDirectory() as folder:
        python = os.environ.get("GONOGO_TEST_TORCH_PYTHON")
        if gonogo_settings.load().builds is None and python:
            path = Path(folder) / "builds.toml"
            path.write_text(f'[executors.torch]\npython = "{python}"\n')
            os.environ["GONOGO_BUILDS"] = str(path)
            gonogo_settings.load.cache_clear()
        try:
            for title, (suffix, numerics) in CASES.items():
                fields = {
                    "kernel": "layernorm_fw",
                    "shape": shape,
                    "numerics": numerics,
                    "inputs": {"regime": "normal"},
                }
                console.print(_compared(title, suffix, TestSpec.parse(fields), options.seeds))
        except GonogoError as problem:
            console.print(str(problem), style="bold red")
            return 1
    return 0


def _compared(title: str, suffix: str, test: TestSpec, seeds: int) -> Table:
    """A line per variant and output: the largest difference from the eager build over the seeds."""
    table = Table(
        title=f"{title}, {test.rows} x {test.features}, {seeds} seeds",
        title_justify="left",
        box=None,
    )
    for name in (
        "build",
        "output",
        "max difference",
        "in ulp",
        "elements that differ",
        "of both budgets",
        "ms a seed",
    ):
        table.add_column(name, justify="left" if name in ("build", "output") else "right")
    with ExitStack() as stack:
        runners = {
            name: stack.enter_context(local.load("torch", name + suffix)) for name in VARIANTS
        }
        largest: dict[tuple[str, str], dict[str, float]] = {}
        spent = dict.fromkeys(VARIANTS, 0.0)
        for seed in range(seeds):
            raw = generate(test, seed)
            given = quantise(test, raw)
            outputs = {}
            for name, runner in runners.items():
                runner.run(test, given, seed=seed)  # a first run compiles
                began = time.perf_counter()
                outputs[name] = runner.run(test, given, seed=seed)
                spent[name] += (time.perf_counter() - began) * 1e3 / seeds
            eager = runners[VARIANTS[0]]
            reference = Reference(VARIANTS[0], eager.arithmetic, eager.produced)
            for name in VARIANTS[1:]:
                runner = runners[name]
                alone = judge(
                    test,
                    raw,
                    given,
                    outputs[name],
                    arithmetic=runner.arithmetic,
                    produced=runner.produced,
                )
                comparison = compare(
                    test, alone, raw, given, outputs[name], outputs[VARIANTS[0]], reference
                )
                for output, output_statistics in comparison.outputs.items():
                    numbers = largest.setdefault((name, output), {})
                    for key in ("max_abs", "ulp_max", "mismatch_fraction", "budget_ratio"):
                        numbers[key] = max(
                            numbers.get(key, 0.0),
                            output_statistics.statistics["reference"].get(key) or 0.0,
                        )
    for (name, output), numbers in largest.items():
        sizes = [f"{numbers[key]:.3g}" for key in ("max_abs", "ulp_max")]
        parts = [
            f"{numbers['mismatch_fraction']:.2%}",
            f"{numbers['budget_ratio']:.3f}",
            f"{spent[name]:.1f}",
        ]
        table.add_row(name + suffix, output, *sizes, *parts)
    return table


if __name__ == "__main__":
    sys.exit(main())
