"""Measure what known gates let pass, on the emulator's right and wrong kernels.

`python -m benchmarks.gauges [--seeds N] [--shape 3,273,1,8462]`.

The nightly test's atol of .5 and PCC >= .999 against the faults of its reductions, then the gates
of ttnn's layer_norm suites at widths 64, 519 and 4096. Exit 1 where the nightly gate or PCC rejects
one of those faults, where a ttnn gate misses nothing, or where GoNoGo itself leaves one of the
reductions' faults unseen.
"""

from __future__ import annotations

import argparse
import sys
import time

from rich.console import Console
from rich.table import Table

from gonogo.gauge.summary import MeasuredTest
from gonogo.gauge.tests_file import Entry
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.cli.gauge import gauged

REDUCTIONS = ("last-two-tiles", "double-subtract", "last-block-only", "tt-train-2025", "drop-s1")
"""The faults of the nightly kernel's two reductions: what was wrong, and what was said to be
wrong."""
NIGHTLY_GATES = ("tt-train-nightly", "pcc-.999")
TTNN_GATES = ("ttnn-bf16", "ttnn-legacy", "ttnn-ulp-fp32-dst", "ttnn-ulp-bf16-dst")
WIDTHS = (64, 519, 4096)
ROWS = 32


def measure(test: TestSpec, seeds: int) -> MeasuredTest:
    """The gauge of a test, without other inputs."""
    return gauged(Entry(name=test.kernel, test=test, seeds=seeds), search=False, deadline=None)[0]


def show(console: Console, title: str, gauge: MeasuredTest, names: tuple[str, ...]) -> None:
    """One line a gate."""
    table = Table(title=title, title_justify="left", box=None)
    for column in ("gate", "false alarms", "misses", "which"):
        table.add_column(column)
    for name in names:
        if name in gauge.gates:
            gate = gauge.gates[name]
            table.add_row(
                name,
                str(gate.false_alarms),
                f"{len(gate.missed)} of {len(gate.missed) + len(gate.rejected)}",
                ", ".join(gate.missed) or "none",
            )
    console.print(table)
    hidden = [name for name, misses in gauge.misses.parts.items() if not misses.of]
    console.print(f"can't show with these inputs: {', '.join(hidden) or 'none'}\n")


def main(words: list[str] | None = None) -> int:
    """Print the tables; 1 where a claim doesn't hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gauges", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--shape", default="3,273,1,8462", help="of the nightly test")
    chosen = parser.parse_args(words)
    console = Console(highlight=False, width=160)
    console.print("out-of-sample: the gates are others', and nothing was chosen on them\n")
    began = time.monotonic()
    broken: list[str] = []
    shape = [int(size) for size in chosen.shape.split(",")]
    nightly = TestSpec.parse(
        {"kernel": "layernorm_bw", "shape": shape, "tolerance": {"rtol": 1e-3, "atol": 0.5}}
    )
    gauge = measure(nightly, chosen.seeds)
    show(
        console,
        f"layernorm_bw {chosen.shape}, uniform, {chosen.seeds} seeds",
        gauge,
        (*NIGHTLY_GATES, "pcc-.99", "moreh-backward"),
    )
    for name in REDUCTIONS:
        broken += [
            f"{gate} rejects {name}"
            for gate in NIGHTLY_GATES
            if name not in gauge.gates[gate].missed
        ]
        if name not in gauge.blind:
            broken.append(f"the nightly test rejects {name}")
        seen = gauge.misses.parts[name].unexplained
        if seen.count < seen.of:
            broken.append(f"GoNoGo does not see {name} on every seed")
    for width in WIDTHS:
        test = TestSpec.parse({"kernel": "layernorm_fw", "shape": [1, 1, ROWS, width]})
        gauge = measure(test, chosen.seeds)
        show(
            console,
            f"layernorm_fw {ROWS}x{width}, uniform, {chosen.seeds} seeds",
            gauge,
            (*TTNN_GATES, "pcc-.999", "pcc-.99"),
        )
        broken += [
            f"{gate} misses nothing at width {width}"
            for gate in TTNN_GATES[:2]
            if not gauge.gates[gate].missed
        ]
    console.print(f"{time.monotonic() - began:.0f} s")
    console.print(f"not met: {'; '.join(broken)}" if broken else "every claim holds")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
