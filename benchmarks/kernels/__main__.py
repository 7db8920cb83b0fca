"""Judge every kernel on outputs of libraries and of NumPy, right and wrong, and print the shares.

    python -m benchmarks.kernels [--sample N] [--only NAME]

`make libraries` first: a library that isn't installed is left out. No arithmetic is named.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from benchmarks.kernels.cases import REGIMES, Case
from benchmarks.kernels.libraries import Result, Run, results
from benchmarks.kernels.rows import FORMATS, Row, rows
from benchmarks.kernels.wrong import numpy_faults, numpy_kernel

CLEAR = {"fp32": 1.25, "bf16": 2.0, "fp16": 2.0}
"""How far beyond the worst right kernel's error on the same inputs a wrong one is clear."""
FLAGGED = ("unexplained", "suspect")
LIMITS = {"right": "at most 1 %", "wrong": "at least 97 %"}


@dataclass(frozen=True)
class Answer:
    """An answer of the judge about a kernel's outputs; kind: "right" or "wrong"."""

    kind: str
    library: str
    form: str
    explanation: str


def judged(kind: str, library: str, label: str, case: Case, result: Result) -> Answer:
    """Judge a result, and print an answer that isn't the right one."""
    judgment = case.judged(result.outputs, result.formats)
    explanation = judgment.explanation.value
    if (explanation in FLAGGED) != (kind == "wrong"):
        print(
            f"{kind}, {explanation}: {library} {case}: {label}\n    {judgment.message}", flush=True
        )
    return Answer(kind, library, case.form, explanation)


def judge_case(case: Case, done: Sequence[tuple[Run, Result]]) -> Iterator[Answer]:
    """Judge all outputs of a case: those of right kernels, and of clearly wrong ones."""
    right = [(run.row.library, run.code, result) for run, result in done if run.is_right]
    right.append(("numpy", "float32", numpy_kernel(case)))
    wrong = [(run.row.library, run.code, result) for run, result in done if not run.is_right]
    wrong += [("numpy", id, result) for id, result in numpy_faults(case)]
    worst = dict.fromkeys(case.right, 0.0)
    for library, label, result in right:
        for name, error in case.errors(result.outputs).items():
            worst[name] = max(worst[name], error)
        yield judged("right", library, label, case, result)
    for library, label, result in wrong:
        errors = case.errors(result.outputs)
        if any(error > CLEAR[case.form] * worst[name] for name, error in errors.items()):
            yield judged("wrong", library, label, case, result)


def table(answers: Sequence[Answer]) -> Iterator[str]:
    """Yield the lines of the shares, by library and format."""
    libraries = sorted({answer.library for answer in answers})
    for kind, limit in LIMITS.items():
        yield f"\n{kind} kernels flagged (required: {limit})"
        for library, form in product(("all", *libraries), ("", *FORMATS["torch"])):
            chosen = [
                answer.explanation
                for answer in answers
                if answer.kind == kind
                and library in ("all", answer.library)
                and form in ("", answer.form)
            ]
            flagged = sum(explanation in FLAGGED for explanation in chosen)
            unsure = chosen.count("inconclusive")
            share = 100 * flagged / max(len(chosen), 1)
            yield (
                f"  {library:12} {form:5} {flagged:5} of {len(chosen):5}, {share:6.2f} %;"
                f" inconclusive {unsure}"
            )


def main(words: list[str] | None = None) -> int:
    """Run rows, judge them, and print the shares."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("--sample", type=int, default=sys.maxsize, help="rows, drawn at random")
    parser.add_argument("--only", action="append", help="rows of this kernel")
    options = parser.parse_args(words)
    chosen: list[Row] = [row for row in rows() if not options.only or row.kernel in options.only]
    order = np.random.default_rng(0).permutation(len(chosen))[: options.sample]
    cases: dict[Case, Case] = {}  # equal cases are one object, which keeps what it computed
    runs = []
    for row in [chosen[at] for at in sorted(order)]:
        for form, regime in product(row.formats or FORMATS[row.library], REGIMES):
            case = Case.of(row, form, regime)
            case = cases.setdefault(case, case)
            runs += [Run(row, code, case) for code in (row.code, *row.faults)]
    done: dict[Case, list[tuple[Run, Result]]] = {case: [] for case in cases}
    for run, result in results(runs):
        done[run.case].append((run, result))
    answers = [answer for case, pairs in done.items() for answer in judge_case(case, pairs)]
    print("\n".join(table(answers)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
