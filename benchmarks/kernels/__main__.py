"""Judge every kernel on outputs of libraries and of NumPy, right and wrong, and print the shares.

    python -m benchmarks.kernels [--sample N] [--only NAME] [--faults N]

`make libraries` first: a library that isn't installed is left out. No arithmetic is named. A wrong
kernel is clear where its largest error is above 1.25 times that of the worst right kernel on these
inputs, 2 times in 16 bits.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.kernels.cases import REGIMES, Arrays, Case
from benchmarks.kernels.libraries import Result, Run, results
from benchmarks.kernels.rows import Row, rows
from benchmarks.kernels.wrong import numpy_faults, numpy_kernel

CLEAR = {"fp32": 1.25, "bf16": 2.0, "fp16": 2.0}
FLAGGED = ("unexplained", "suspect")
ASKED = {"right": "at most 1 %", "wrong": "at least 97 %"}


class Tally:
    """Counts of flagged outputs, right and wrong, by library and format."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str, str]] = Counter()

    def add(self, kind: str, library: str, case: Case, explanation: str) -> None:
        """Count a judgment."""
        for place in ((library, case.form), (library, ""), ("", case.form), ("", "")):
            self.counts[kind, *place, explanation] += 1

    def print(self) -> None:
        """Print a line for each library and format, then for all."""
        places = sorted({key[1:3] for key in self.counts}, key=lambda place: (not place[0], place))
        for kind, asked in ASKED.items():
            print(f"\n{kind} kernels flagged (asked: {asked})")
            for library, form in places:
                counts = {
                    key[3]: n for key, n in self.counts.items() if key[:3] == (kind, library, form)
                }
                if not (total := sum(counts.values())):
                    continue
                flagged = sum(counts.get(name, 0) for name in FLAGGED)
                unsure = counts.get("inconclusive", 0)
                title = f"{library or 'all'} {form}".strip()
                print(
                    f"  {title:24} {flagged:5} of {total:5}  {100 * flagged / total:6.2f} %"
                    f"  inconclusive {unsure}"
                )


def judged(kind: str, run: Run | str, case: Case, result: Result, tally: Tally) -> None:
    """Judge a result, count it, and print one that is other than asked."""
    judgment = case.judged(result.outputs, result.formats)
    explanation = judgment.explanation.value
    library, code = ("numpy", run) if isinstance(run, str) else (run.row.library, run.code)
    tally.add(kind, library, case, explanation)
    if (explanation in FLAGGED) != (kind == "wrong"):
        places = f"{case.kernel} {list(case.shape)} {case.form} {case.regime}"
        print(
            f"{kind}, {explanation}: {library} {places}: {code}\n    {judgment.message}", flush=True
        )


def is_clear(case: Case, outputs: Arrays, worst: dict[str, float]) -> bool:
    """Return whether a wrong kernel's error is beyond that of every right one."""
    errors = case.errors(outputs)
    return any(error > CLEAR[case.form] * worst[name] for name, error in errors.items())


def judge_case(case: Case, done: Sequence[tuple[Run, Result]], faults: int, tally: Tally) -> None:
    """Judge all outputs of a case."""
    formats = dict.fromkeys(case.right, case.form)
    numpy_right = Result(numpy_kernel(case)["numpy"], formats, None)
    right = [result for run, result in done if run.is_right] + [numpy_right]
    worst: dict[str, float] = dict.fromkeys(case.right, 0.0)
    for result in right:
        for name, error in case.errors(result.outputs).items():
            worst[name] = max(worst[name], error)
    judged("right", "right", case, numpy_right, tally)
    for run, result in done:
        if run.is_right:
            judged("right", run, case, result, tally)
        elif is_clear(case, result.outputs, worst):
            judged("wrong", run, case, result, tally)
    for id, outputs in numpy_faults(case, faults):
        if is_clear(case, outputs, worst):
            judged("wrong", id, case, Result(outputs, formats, None), tally)


def runs_of(chosen: Sequence[Row]) -> list[Run]:
    """Return the runs of rows: each code in each format and regime."""
    cases: dict[Case, Case] = {}
    runs = []
    for row in chosen:
        for form in row.run_formats:
            for regime in REGIMES:
                case = Case.of(row, form, regime)
                case = cases.setdefault(case, case)
                runs += [Run(row, code, case) for code in (row.code, *row.faults)]
    return runs


def main(words: list[str] | None = None) -> int:
    """Run rows, judge them, and print the shares."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("--sample", type=int, help="this many rows, drawn at random")
    parser.add_argument("--only", action="append", help="rows of this kernel")
    parser.add_argument("--faults", type=int, default=4, help="of the table, for each case")
    options = parser.parse_args(words)
    chosen = [row for row in rows() if not options.only or row.kernel in options.only]
    if options.sample and options.sample < len(chosen):
        places = np.random.default_rng(0).choice(len(chosen), options.sample, replace=False)
        chosen = [chosen[place] for place in sorted(places)]
    runs, tally = runs_of(chosen), Tally()
    done: dict[Case, list[tuple[Run, Result]]] = {run.case: [] for run in runs}
    problems = set()
    for library in sorted({row.library for row in chosen}):
        own = [run for run in runs if run.row.library == library]
        for run, result in zip(own, results(library, own), strict=True):
            if result.problem is None:
                shaped = run.case.shaped(result.outputs)
                done[run.case].append((run, replace(result, outputs=shaped)))
            else:
                problems.add(
                    f"not run: {library} {run.case.kernel} {run.case.form}: {result.problem}"
                )
    print("\n".join(sorted(problems)), flush=True)
    for case, outputs in done.items():
        judge_case(case, outputs, options.faults, tally)
    tally.print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
