"""Compare GoNoGo's verdict with the gates of others, on the same kernels and inputs.

`python -m benchmarks.yardstick [--seeds 1] [--tests 2] [--family emulated] [--format bf16] [--json
FILE]`.

For each gate of gonogo.gauge.gates: the share of mutants that it rejects, plain ones and faint ones
apart, and the share of right kernels that it rejects, with 95 % intervals of Clopper and Pearson.
The runs of one kernel on several tests are not independent, so an interval is a little too narrow.
Every gate sees one seed of each test, and so does our verdict here: a job judges a suspect again on
more seeds.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import samples
from benchmarks.yardstick.bench import PLAIN_FACTOR, Result, Showing, results
from benchmarks.yardstick.counts import JUDGES, SUSPECT, UNEXPLAINED, Count, Counts, counted, passes
from benchmarks.yardstick.families import FAMILIES
from gonogo.errors import FieldError
from gonogo.gauge.gates import FORMATS, GATES
from gonogo.spec.arithmetic_names import canonical

LEFT_OUT = (
    "benchdnn's mean and variance: their threshold is 0 for data whose statistics are exact, which"
    " random inputs don't have",
    "benchdnn's, hipDNN's and tt-train's inputs: every gate sees the same inputs here",
    "JAX's table for gradients: check_grads compares with finite differences in one random"
    " direction, not element by element",
    "hipDNN: no backward, no statistics; its tolerance is written for LayerNorm's forward only",
    "suites' own reference kernels: gates compare with the correctly rounded result here",
)
UNCOUNTED = {
    Showing.hidden: "mutants that change fewer than three elements, or nothing in exact arithmetic",
    Showing.overflow: "right kernels that overflow (NaN or Inf where float64 is finite)",
}
SHOWN_MISSES = 12


def _model(text: str) -> str | None:
    """Return the canonical spelling of an arithmetic model's name."""
    try:
        return canonical(text, "--arithmetic")
    except FieldError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main(words: list[str] | None = None) -> int:
    """Run the families and print the tables; 2 where nothing ran."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.yardstick",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=1, help="seeds of each test")
    parser.add_argument("--tests", type=int, default=2, help="tests that each mutant runs on")
    parser.add_argument(
        "--family", action="append", choices=tuple(FAMILIES), help="repeatable; default: all"
    )
    parser.add_argument(
        "--arithmetic",
        type=_model,
        metavar="NAME",
        help="name this model for kernels that are no Wormhole's (default: none is named)",
    )
    parser.add_argument("--format", choices=FORMATS, help="one output format only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts to a file, too")
    chosen = parser.parse_args(words)
    console = Console(highlight=False, width=150)
    console.print(samples.sentence("yardstick"))
    console.print(heading())
    named = chosen.arithmetic or "none named"
    console.print(f"arithmetic model of kernels that are no Wormhole's: {named}")
    began = time.monotonic()
    collected: list[Result] = []
    left_out = list(LEFT_OUT)
    for name in chosen.family or FAMILIES:
        family = FAMILIES[name]
        started = time.monotonic()
        before = len(collected)
        try:
            for bench in family.benches(chosen.seeds, chosen.tests):
                if chosen.format in (None, bench.test.numerics.output):
                    model = bench.arithmetic or chosen.arithmetic
                    collected += results(replace(bench, arithmetic=model))
        except ImportError as problem:
            left_out.append(f"{name}: {problem}")
            continue
        left_out += [f"{name}: {reason}" for reason in family.left_out]
        console.print(
            f"{name}: {family.sentence}; {len(collected) - before:,} runs,"
            f" {time.monotonic() - started:.0f} s"
        )
    if not collected:
        console.print("nothing ran")
        return 2
    formats = [name for name in FORMATS if any(r.output_format == name for r in collected)]
    tables = {name: counted(r for r in collected if r.output_format == name) for name in formats}
    for name, counts in tables.items():
        console.print(table(f"outputs in {name}", counts))
    if len(tables) > 1:
        tables["all"] = counted(collected)
        console.print(table("all formats", tables["all"]))
    show_ours(console, collected)
    for showing, reason in UNCOUNTED.items():
        number = sum(result.showing is showing for result in collected)
        left_out.append(f"{number} runs of {reason}")
    console.print("left out:")
    for reason in left_out:
        console.print(f"- {reason}")
    console.print(f"{time.monotonic() - began:.0f} s")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(as_json(tables), indent=1) + "\n", "utf-8")
    return 0


def heading() -> str:
    """Return the date and the versions that the figures belong to."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("gonogo", "numpy", "numba"))
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {versions},"
        f" {platform.machine()}; a mutant is plain where its error is above {PLAIN_FACTOR} times"
        " the worst right kernel's"
    )


def table(title: str, counts: Mapping[str, Counts]) -> Table:
    """Return one line a judge; judges that judged nothing are left out."""
    lines = Table(title=title, title_justify="left", box=None, header_style="dim", pad_edge=False)
    for column in ("judge", "plain mutants caught", "faint mutants caught", "false alarms"):
        lines.add_column(column)
    for judge in JUDGES:
        judged = counts[judge]
        if judged.plain.of or judged.right.of:
            lines.add_row(judge, *map(cell, (judged.plain, judged.faint, judged.right)))
    return lines


def cell(count: Count) -> str:
    """Return "37 of 57, 64.9 % [51.1, 77.1]"."""
    if not count.of:
        return "–"
    low, high = (100 * edge for edge in count.rate.interval)
    share = 100 * count.rejected / count.of
    return f"{count.rejected} of {count.of}, {share:.1f} % [{low:.1f}, {high:.1f}]"


def show_ours(console: Console, collected: Iterable[Result]) -> None:
    """Print where our verdict is wrong: plain mutants that it passes, right kernels it rejects."""
    missed, alarms = [], []
    for result in collected:
        words = f"{result.kernel} on {result.test}"
        if result.showing is Showing.plain and passes(SUSPECT, result):
            missed.append(words)
        if result.showing is None and not passes(UNEXPLAINED, result):
            alarms.append(words)
    for title, names in (("missed by our verdict", missed), ("our false alarms", alarms)):
        more = f", and {len(names) - SHOWN_MISSES} more" if len(names) > SHOWN_MISSES else ""
        console.print(f"{title} ({len(names)}): {'; '.join(names[:SHOWN_MISSES]) or 'none'}{more}")


def as_json(tables: Mapping[str, Mapping[str, Counts]]) -> dict[str, object]:
    """Return the counts in plain JSON types, with the limits' sources."""
    return {
        "heading": heading(),
        "sources": {name: gate.source for name, gate in GATES.items()},
        "formats": {
            name: {
                judge: {
                    "plain": asdict(judged.plain.rate.summary),
                    "faint": asdict(judged.faint.rate.summary),
                    "false_alarms": asdict(judged.right.rate.summary),
                }
                for judge, judged in counts.items()
            }
            for name, counts in tables.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
